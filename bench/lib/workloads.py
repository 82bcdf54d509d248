"""Pods that find nodes, and deployments that find pods."""
import time

SCHEDULED = "/api/v1/namespaces/scheduled/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


def make_nodes(cluster, count):
    """Nodes without a node agent, so that only the scheduler and the API server work on their pods."""
    capacity = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
    for i in range(count):
        labels = {"bench": "empty", "kubernetes.io/hostname": f"empty-{i}", "topology.kubernetes.io/zone": f"z{i % 3}"}
        cluster.api.ask("POST", "/api/v1/nodes", {"metadata": {"name": f"empty-{i}", "labels": labels}})
        cluster.api.merge(f"/api/v1/nodes/empty-{i}/status", {"status": {"allocatable": capacity, "capacity": capacity}})


def until_scheduled(cluster, pods):
    """Until every pod has a node."""
    without = f"{pods}?fieldSelector=spec.nodeName%3D&limit=1"
    cluster.api.until("all scheduled", lambda: not cluster.api.ask("GET", without)["items"], seconds=600)


def scheduled(cluster, pods):
    """Pods a second, from the first creation until all have a node; they are gone afterwards."""
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": {
        "automountServiceAccountToken": False, "nodeSelector": {"bench": "empty"},
        "tolerations": [{"operator": "Exists"}], "containers": [
            {"name": "c", "image": "x", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}]}}
    begun = time.perf_counter()
    cluster.fill(pods, SCHEDULED, body)
    until_scheduled(cluster, SCHEDULED)
    took = time.perf_counter() - begun
    cluster.api.text("DELETE", SCHEDULED, {"gracePeriodSeconds": 0})
    cluster.api.until("empty", lambda: not cluster.api.ask("GET", f"{SCHEDULED}?limit=1")["items"], pause=0.2)
    return [pods / took]


def remove_nodes(cluster, count):
    for i in range(count):
        cluster.api.ask("DELETE", f"/api/v1/nodes/empty-{i}")


def make_deployment(cluster):
    labels = {"app": "bench-scaled"}
    container = {"name": "c", "imagePullPolicy": "IfNotPresent", **cluster.container,
                 "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}}}
    spec = {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "containers": [container]}
    cluster.api.ask("POST", DEPLOYMENTS, {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "scaled"}, "spec": {
            "replicas": 0, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec}}})


def scaled(cluster, replicas):
    """Seconds from 0 to so many ready pods; there are none afterwards."""
    path = f"{DEPLOYMENTS}/scaled"
    ready = lambda: cluster.api.ask("GET", path).get("status", {}).get("readyReplicas", 0)
    begun = time.perf_counter()
    cluster.api.merge(f"{path}/scale", {"spec": {"replicas": replicas}})
    cluster.api.until("scaled up", lambda: ready() == replicas, seconds=600)
    took = time.perf_counter() - begun
    cluster.api.merge(f"{path}/scale", {"spec": {"replicas": 0}})
    pods = "/api/v1/namespaces/default/pods?labelSelector=app%3Dbench-scaled&limit=1"
    cluster.api.until("scaled down", lambda: not cluster.api.ask("GET", pods)["items"], seconds=600, pause=0.2)
    return [took]
