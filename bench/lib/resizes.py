"""Resizes and starts of pods with real containers, seen from outside: by a watch, and in the files of their cgroups."""
import glob, json, os, subprocess, threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .clusters import kubectl
from .machine import calm

PODS = "/api/v1/namespaces/default/pods"
OURS = "labelSelector=app%3Dbench"


def pod(cluster, name):
    container = {"name": "c", "imagePullPolicy": "IfNotPresent", **cluster.container,
                 "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"cpu": "300m", "memory": "32Mi"}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "bench"}}, "spec": {
        "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "containers": [container]}}


def create(cluster, name):
    cluster.api.ask("POST", PODS, pod(cluster, name))


def resize(cluster, name, milli):
    cluster.api.ask("PATCH", f"{PODS}/{name}/resize",
                    {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": f"{milli}m"}}}]}},
                    "application/strategic-merge-patch+json")


def delete(cluster, name):
    cluster.api.ask("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})


def is_ready(pod):
    statuses = pod.get("status", {}).get("containerStatuses") or [{}]
    return all(status.get("ready") for status in statuses)


def actual_cpu(pod):
    limit = pod["status"]["containerStatuses"][0].get("resources", {}).get("limits", {}).get("cpu", "0")
    return int(limit[:-1]) if limit.endswith("m") else int(float(limit) * 1000)


class Follower:
    """Follows pods in a thread and notes when something is first seen, until it is left."""

    def __init__(self, cluster, selector=OURS, path=PODS):
        self.events, self.changed, self.seen = cluster.api.watch(path, selector), threading.Condition(), {}
        self.thread = threading.Thread(target=self.follow, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.events.close()
        self.thread.join()

    def follow(self):
        for at, kind, found in self.events:
            name = found["metadata"]["name"]
            with self.changed:
                if kind == "DELETED":
                    self.seen.setdefault((name, "gone"), at)
                else:
                    self.note(at, name, found.get("status", {}))
                self.changed.notify_all()

    def note(self, at, name, status):
        if status.get("containerStatuses"):
            pod = {"status": status}
            self.seen.setdefault((name, "ready", is_ready(pod)), at)
            self.seen.setdefault((name, "cpu", actual_cpu(pod)), at)

    def forget(self):
        with self.changed:
            self.seen.clear()

    def wait(self, key):
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.seen, 120):
                raise RuntimeError(f"{key} never came")
            return self.seen[key]


def quota_file(uid):
    dashed = uid.replace("-", "[-_]")
    patterns = [f"/sys/fs/cgroup/cpu*/**/pod{dashed}/*/cpu.cfs_quota_us", f"/sys/fs/cgroup/**/*pod{dashed}*/*/cpu.max"]
    for pattern in patterns:
        found = sorted(set(map(os.path.realpath, glob.glob(pattern, recursive=True))))
        # A kubelet's pod has a group for its pause container, too; that has no quota.
        found = [path for path in found if Path(path).read_text().split()[0] not in ("-1", "max")]
        if found:
            return found[0]
    raise RuntimeError(f"pod {uid} has no cgroup here")


def latency(cluster, rounds):
    """Milliseconds from PATCH until the cgroup has the new quota (read every 0.1 ms), and until a watch shows it."""
    create(cluster, "bench-one")
    with Follower(cluster, "fieldSelector=metadata.name%3Dbench-one") as follower:
        pod = cluster.api.until("ready", lambda: is_ready(pod := cluster.api.ask("GET", f"{PODS}/bench-one")) and pod)
        with open(quota_file(pod["metadata"]["uid"])) as file:
            def quota():
                file.seek(0)
                return file.read().split()[0]

            applied, reported = [], []
            with ThreadPoolExecutor(1) as patching:  # one client, which keeps its connection
                patching.submit(cluster.api.ask, "GET", f"{PODS}/bench-one").result()
                for nth in range(rounds):
                    milli = 310 + 10 * (nth % 2)
                    follower.forget()
                    begun = time.perf_counter()
                    patched = patching.submit(resize, cluster, "bench-one", milli)
                    while quota() != str(milli * 100):
                        time.sleep(0.0001)
                    applied.append((time.perf_counter() - begun) * 1000)
                    reported.append((follower.wait(("bench-one", "cpu", milli)) - begun) * 1000)
                    patched.result()
                    time.sleep(0.05)
        delete(cluster, "bench-one")
        follower.wait(("bench-one", "gone"))
    return applied, reported


def burst(cluster, count, rounds):
    """Milliseconds until the status of every pod shows what 16 threads asked of all; the pods stay."""
    names = [f"bench-{nth}" for nth in range(count)]
    with ThreadPoolExecutor(16) as threads, Follower(cluster) as follower:
        list(threads.map(lambda name: create(cluster, name), names))
        for name in names:
            follower.wait((name, "ready", True))
        times = []
        for nth in range(rounds):
            milli = 310 + 10 * (nth % 2)
            calm()
            follower.forget()
            begun = time.perf_counter()
            list(threads.map(lambda name: resize(cluster, name, milli), names))
            times.append((max(follower.wait((name, "cpu", milli)) for name in names) - begun) * 1000)
        return times


def clear(cluster):
    """Deletes all pods that were made here."""
    for pod in cluster.api.ask("GET", f"{PODS}?{OURS}")["items"]:
        delete(cluster, pod["metadata"]["name"])
    cluster.api.until("empty", lambda: not cluster.api.ask("GET", f"{PODS}?{OURS}&limit=1")["items"], pause=0.1)


def apply(cluster, name):
    """Creates a pod by the real kubectl."""
    command = [kubectl(), "--kubeconfig", cluster.kubeconfig, "apply", "-f", "-"]
    subprocess.run(command, input=json.dumps(pod(cluster, name)), check=True, capture_output=True, text=True)


def starts(cluster, rounds, create=create):
    """Milliseconds from when a pod is asked for until a watch shows it ready."""
    times = []
    with Follower(cluster) as follower:
        for nth in range(rounds):
            name = f"bench-start-{nth}"
            follower.forget()
            begun = time.perf_counter()
            create(cluster, name)
            times.append((follower.wait((name, "ready", True)) - begun) * 1000)
            delete(cluster, name)
            follower.wait((name, "gone"))
    return times
