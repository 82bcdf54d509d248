"""What an API server is asked: small reads and writes, resizes of a pod that no node has, lists, and watches."""
import base64, http.server, json, ssl, subprocess, threading, time
from pathlib import Path

SMALL = {"cpu": "100m", "memory": "64Mi"}
RECORDS = "bench.example.com"


class Webhook(http.server.BaseHTTPRequestHandler):
    """Says yes to everything."""
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self):
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer = json.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
                             "response": {"uid": review["request"]["uid"], "allowed": True}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass

    @classmethod
    def start(cls, folder):
        """Serves on this machine; answers with the configuration of its clients."""
        key, certificate = Path(folder, "hook.key"), Path(folder, "hook.crt")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                        "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=hook",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"],
                       check=True, capture_output=True)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), cls)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return {"url": f"https://127.0.0.1:{server.server_port}/",
                "caBundle": base64.b64encode(certificate.read_bytes()).decode()}


def unscheduled(name=None):
    """A pod that no scheduler looks at, so that nothing but the API server works on it."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name} if name else {}, "spec": {
        "schedulerName": "none", "automountServiceAccountToken": False, "containers": [
            {"name": "c", "image": "x", "resources": {"requests": SMALL, "limits": SMALL}}]}}


def namespace(cluster, name):
    """A namespace that pods can be made in."""
    cluster.api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    cluster.api.until("with an account", lambda: cluster.api.is_there(account))


def seed(cluster):
    for i in range(64):
        cluster.api.ask("POST", "/api/v1/namespaces/default/configmaps",
                        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"b{i}"}, "data": {"k": "v"}})
    namespace(cluster, "plain")
    cluster.api.ask("POST", "/api/v1/namespaces/plain/pods", unscheduled("resized"))


def guard(cluster, client):
    """A namespace whose resizes pass a limit range, a quota and a webhook."""
    guarded = "/api/v1/namespaces/guarded"
    hard = {"requests.cpu": "100", "limits.cpu": "100", "pods": "10"}
    namespace(cluster, "guarded")
    cluster.api.ask("POST", f"{guarded}/limitranges", {"metadata": {"name": "r"}, "spec": {"limits": [
        {"type": "Container", "min": {"cpu": "1m"}, "max": {"cpu": "4"}}]}})
    cluster.api.ask("POST", f"{guarded}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    counted = lambda: cluster.api.ask("GET", f"{guarded}/resourcequotas/q").get("status", {}).get("used")
    cluster.api.until("counted", counted)
    cluster.api.ask("POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", {
        "metadata": {"name": "bench"}, "webhooks": [{
            "name": "resize.bench.example.com", "clientConfig": client, "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "guarded"}},
            "rules": [{"operations": ["UPDATE"], "apiGroups": [""], "apiVersions": ["v1"],
                       "resources": ["pods/resize"]}]}]})
    cluster.api.ask("POST", f"{guarded}/pods", unscheduled("resized"))


def resize(cluster, where, times=200):
    """Milliseconds that a resize takes to be answered."""
    took = []
    for i in range(times):
        amount = {"cpu": f"{101 + i % 2}m"}
        body = {"spec": {"containers": [{"name": "c", "resources": {"requests": amount, "limits": amount}}]}}
        begun = time.perf_counter()
        cluster.api.text("PATCH", f"/api/v1/namespaces/{where}/pods/resized/resize", body,
                         "application/strategic-merge-patch+json")
        took.append((time.perf_counter() - begun) * 1000)
    return took


def fill_lists(cluster, many):
    """Where there are as many pods, custom resources and config maps, the latter two alike but for their kind."""
    schema = {"type": "object", "properties": {"data": {"type": "object", "additionalProperties": {"type": "string"}}}}
    cluster.api.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": f"records.{RECORDS}"}, "spec": {
            "group": RECORDS, "scope": "Namespaced", "names": {"plural": "records", "kind": "Record"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]}})
    namespace(cluster, "listed")
    data = {"data": {"k": "v" * 100}}
    lists = {
        "pods": ("/api/v1/namespaces/listed/pods", unscheduled()),
        "custom resources": (f"/apis/{RECORDS}/v1/namespaces/listed/records",
                             {"apiVersion": f"{RECORDS}/v1", "kind": "Record", **data}),
        "config maps": ("/api/v1/namespaces/listed/configmaps", {"apiVersion": "v1", "kind": "ConfigMap", **data}),
    }
    for path, body in lists.values():
        cluster.api.until("served", lambda: cluster.api.is_there(path))
        cluster.fill(many, path, body)
    return {what: path for what, (path, _) in lists.items()}


def listed(cluster, path, times=3):
    """Milliseconds that a whole list takes, to its last byte."""
    took = []
    for _ in range(times):
        begun = time.perf_counter()
        cluster.api.text("GET", path)
        took.append((time.perf_counter() - begun) * 1000)
    return took


def watched(cluster, watchers):
    """Milliseconds from the moment a change is asked for until its last byte is at the last of many watchers."""
    return [cluster.crowd("watch", "--watchers", watchers)["asked_to_last_ms"]["p50"]]
