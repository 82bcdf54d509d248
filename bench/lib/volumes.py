"""Claims of the default storage class, from when they are asked for until their pods have them."""
import time

from .resizes import OURS, PODS, Follower, delete, pod

CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"


class Claims(Follower):
    """Follows claims."""

    def __init__(self, cluster):
        super().__init__(cluster, OURS, CLAIMS)

    def note(self, at, name, status):
        self.seen.setdefault((name, status.get("phase")), at)


def claim(name):
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "labels": {"app": "bench"}},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}}


def with_claim(cluster, name):
    """A pod that mounts the claim of its name."""
    made = pod(cluster, name)
    made["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return made


def provisions(cluster, times):
    """Milliseconds from when a claim and its pod are asked for until the claim is bound, until the pod is ready, and from the
    deletion of both until the volume is gone."""
    bound, ready, gone = [], [], []
    with Follower(cluster) as pods, Claims(cluster) as claims, Follower(cluster, "", VOLUMES) as volumes:
        for nth in range(times):
            name = f"bench-volume-{nth}"
            for follower in (pods, claims, volumes):
                follower.forget()
            begun = time.perf_counter()
            cluster.api.ask("POST", CLAIMS, claim(name))
            cluster.api.ask("POST", PODS, with_claim(cluster, name))
            bound.append((claims.wait((name, "Bound")) - begun) * 1000)
            ready.append((pods.wait((name, "ready", True)) - begun) * 1000)
            volume = cluster.api.ask("GET", f"{CLAIMS}/{name}")["spec"]["volumeName"]
            begun = time.perf_counter()
            delete(cluster, name)
            cluster.api.ask("DELETE", f"{CLAIMS}/{name}")
            gone.append((volumes.wait((volume, "gone")) - begun) * 1000)
            pods.wait((name, "gone"))
            claims.wait((name, "gone"))
    return bound, ready, gone
