"""A `plumb up` with virtual nodes, its API, and the objects that the pages show."""
import json
import pathlib
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

# How long anything may take that has to happen, in seconds.
DEADLINE = 60
NAMESPACE = "shop"
# A text that must not become an element.
HOSTILE = "<img src=x onerror=\"window.hostile=true\">&<b>bold</b>"


class Cluster:
    """A running `plumb up` in a folder of its own, with the administrator's rights."""

    def __init__(self, binary, *flags):
        self.binary = binary
        self.folder = tempfile.TemporaryDirectory()
        self.data = pathlib.Path(self.folder.name) / "data"
        command = [binary, "up", "--listen", "127.0.0.1:0", "--dashboard-listen", "127.0.0.1:0", "--data-dir",
                   str(self.data), *flags]
        self.errors = open(pathlib.Path(self.folder.name) / "errors", "w+", encoding="utf-8")
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, text=True)
        ready = self.process.stdout.readline()
        if not ready.startswith("plumb is ready at "):
            self.stop()
            raise AssertionError(f"not ready: {ready}")
        self.api = ready.split()[4].rstrip(";")
        self.url = (self.data / "dashboard-url").read_text(encoding="ascii").strip()
        self.tls = ssl.create_default_context(cafile=self.data / "pki" / "ca.crt")
        self.tls.load_cert_chain(self.data / "pki" / "admin.pem")

    def stop(self):
        self.process.terminate()
        code = self.process.wait(DEADLINE)
        self.process.stdout.close()
        self.errors.seek(0)
        errors = self.errors.read()
        self.errors.close()
        self.folder.cleanup()
        assert code == 0, errors

    def request(self, method, path, body=None, kind="application/json"):
        """A request to the API, and the object in its response."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.api + path, data, {"Content-Type": kind}, method=method)
        try:
            with urllib.request.urlopen(request, context=self.tls, timeout=DEADLINE) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.read().decode()}") from error

    def create(self, path, body):
        return self.request("POST", path, body)

    def patch(self, path, body, kind="application/strategic-merge-patch+json"):
        return self.request("PATCH", path, body, kind)

    def eventually(self, what, holds):
        """Waits until something holds that no event tells."""
        deadline = time.monotonic() + DEADLINE
        while True:
            found = holds()
            if found:
                return found
            assert time.monotonic() < deadline, f"not in time: {what}"
            time.sleep(0.1)


PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"


def container(cpu, memory="128Mi"):
    return {"name": "app", "image": "plumb/load", "resources": {"requests": {"cpu": cpu, "memory": memory}}}


def pod(name, cpu, model="cpu=120m memory=60Mi shape=sine period=40s"):
    annotations = {"virtual.plumb.dev/model": model}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": {"containers": [container(cpu)]}}


def resize(cpu):
    """The body of a resize."""
    return {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": cpu}}}]}}


def shop(cluster):
    """Creates a shop: pods that run, a resize that waits, a VPA, and a rollout that soaks."""
    cluster.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    # Every pod needs the account, which a controller creates.
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    cluster.eventually("the service account", lambda: cluster.request("GET", account)["items"])
    for name, cpu in [("web", "500m"), ("db", "1"), ("batch", "1500m")]:
        cluster.create(PODS, pod(name, cpu))
    cluster.create(DEPLOYMENTS, deployment("api", 6, "100m"))
    cluster.create(DEPLOYMENTS, deployment("cart", 2, "100m"))
    # One pod is resized, and soaks for longer than any test takes.
    policy = {"apiVersion": "plumb.dev/v1alpha1", "kind": "RolloutPolicy", "metadata": {"name": "api"},
              "spec": {"targetRef": {"kind": "Deployment", "name": "api"}, "maxConcurrent": "1%",
                       "canary": [{"pods": 1}, {"pods": "50%", "pauseSeconds": 600}], "soakSeconds": 3600}}
    cluster.create(f"/apis/plumb.dev/v1alpha1/namespaces/{NAMESPACE}/rolloutpolicies", policy)
    vpa = {"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler", "metadata": {"name": "cart"},
           "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "cart"},
                    "updatePolicy": {"updateMode": "Off"},
                    "resourcePolicy": {"containerPolicies": [
                        {"containerName": "app", "minAllowed": {"cpu": "50m"}, "maxAllowed": {"cpu": "2", "memory": "1Gi"}}]}}}
    cluster.create(f"/apis/autoscaling.k8s.io/v1/namespaces/{NAMESPACE}/verticalpodautoscalers", vpa)
    for name in ("web", "db", "batch"):
        running(cluster, name)
    cluster.eventually("the deployment", lambda: ready(cluster, "api") == 6 and ready(cluster, "cart") == 2)
    # It fits no node as they are now, and would fit an empty one.
    cluster.patch(f"{PODS}/batch/resize", resize("3500m"))
    web = cluster.request("GET", f"{PODS}/web")
    event = {"metadata": {"name": "web.hostile", "namespace": NAMESPACE},
             "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": NAMESPACE, "name": "web",
                                "uid": web["metadata"]["uid"]},
             "reason": "Hostile", "type": "Warning", "message": HOSTILE, "count": 1}
    cluster.create(f"/api/v1/namespaces/{NAMESPACE}/events", event)


def running(cluster, name):
    phase = lambda: cluster.request("GET", f"{PODS}/{name}").get("status", {}).get("phase")  # noqa: E731
    cluster.eventually(f"pod {name} runs", lambda: phase() == "Running")


def deployment(name, replicas, cpu):
    labels = {"app": name}
    template = pod(name, cpu)
    template["metadata"] = {"labels": labels, "annotations": template["metadata"]["annotations"]}
    return {"metadata": {"name": name, "annotations": {"rollout.plumb.dev/in-place": "true"}},
            "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}}


def ready(cluster, name):
    return cluster.request("GET", f"{DEPLOYMENTS}/{name}").get("status", {}).get("readyReplicas", 0)


def edit_template(cluster, name, cpu):
    """Begins an in-place rollout."""
    cluster.patch(f"{DEPLOYMENTS}/{name}", {"spec": {"template": {"spec": {"containers": [
        {"name": "app", "resources": {"requests": {"cpu": cpu}}}]}}}})


def phase(cluster, name):
    """The phase of a rollout, as its controller reports it."""
    annotations = cluster.request("GET", f"{DEPLOYMENTS}/{name}")["metadata"].get("annotations", {})
    return json.loads(annotations.get("rollout.plumb.dev/status", "{}")).get("phase")
