"""A client of a Kubernetes API: plain HTTP/1.1 on TLS, one connection per thread, nothing cached."""
import base64, http.client, json, re, socket, ssl, tempfile, threading, time, urllib.parse
from pathlib import Path


class Api:
    """An API, by its kubeconfig, which is YAML or JSON."""

    def __init__(self, kubeconfig, token=None):
        text = Path(kubeconfig).read_text()
        field = lambda name: re.search(rf'"?{name}"?:\s*"?([^\s",]+)', text).group(1)
        self.url = urllib.parse.urlparse(field("server"))
        self.local = threading.local()
        self.context = ssl._create_unverified_context()
        self.authority = f"{kubeconfig}.ca.crt"
        if "certificate-authority-data" in text:
            Path(self.authority).write_bytes(base64.b64decode(field("certificate-authority-data")))
        elif "certificate-authority" in text:
            self.authority = field("certificate-authority")
        found = re.search(r'"?token"?:\s*"?([^\s",]+)', text)
        self.token = token or (found and found.group(1))
        self.headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        if self.token:
            return
        with tempfile.NamedTemporaryFile("wb", suffix=".pem") as pem:
            for name in ("client-certificate", "client-key"):
                within = f"{name}-data" in text
                part = base64.b64decode(field(f"{name}-data")) if within else Path(field(name)).read_bytes()
                pem.write(part + b"\n")
            pem.flush()
            self.context.load_cert_chain(pem.name)

    def connect(self):
        connection = http.client.HTTPSConnection(self.url.hostname, self.url.port, context=self.context, timeout=300)
        connection.connect()
        connection.sock.setsockopt(6, 1, 1)
        return connection

    def send(self, method, path, body=None, kind="application/json"):
        """The status of the answer, and the answer; again while it is 429, as every client of Kubernetes does."""
        # A server closes what was not used for a while, and may do so just now.
        if time.monotonic() - getattr(self.local, "used", 0) > 5:
            self.local.connection = self.connect()
        while True:
            headers = {"Content-Type": kind, **self.headers}
            self.local.connection.request(method, path, body and json.dumps(body), headers)
            answer = self.local.connection.getresponse()
            data = answer.read()
            self.local.used = time.monotonic()
            if answer.status != 429:
                return answer.status, data
            time.sleep(float(answer.headers.get("Retry-After", 1)))

    def text(self, method, path, body=None, kind="application/json"):
        status, data = self.send(method, path, body, kind)
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {data[:300]}")
        return data

    def ask(self, method, path, body=None, kind="application/json"):
        return json.loads(self.text(method, path, body, kind))

    def merge(self, path, body):
        return self.ask("PATCH", path, body, "application/merge-patch+json")

    def until(self, what, holds, seconds=120, pause=0.02):
        """Asks again and again until something holds."""
        deadline = time.monotonic() + seconds
        while not (found := holds()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"still not {what} after {seconds} s")
            time.sleep(pause)
        return found

    def is_there(self, path):
        return self.send("GET", path)[0] == 200

    def watch(self, path, selector):
        return Watch(self, path, selector)


class Watch:
    """Events from now on, as they come: (time, type, object), until it is closed."""

    def __init__(self, api, path, selector):
        version = api.ask("GET", f"{path}?limit=1")["metadata"]["resourceVersion"]
        self.connection = api.connect()
        # A watch without events sends nothing.
        self.connection.sock.settimeout(None)
        self.connection.request("GET", f"{path}?watch=1&resourceVersion={version}&{selector}", headers=api.headers)
        self.socket, self.stream = self.connection.sock, self.connection.getresponse()

    def __iter__(self):
        while line := self.next():
            event = json.loads(line)
            yield time.perf_counter(), event["type"], event["object"]

    def next(self):
        try:
            return self.stream.readline()
        except (http.client.IncompleteRead, OSError):
            # It was closed in the midst of it.
            return b""

    def close(self):
        # The thread that reads owns the connection; the shutdown ends its read.
        self.socket.shutdown(socket.SHUT_RDWR)
