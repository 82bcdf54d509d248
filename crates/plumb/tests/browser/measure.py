"""How fast and how large the dashboard of a cluster of 10,000 pods is, and what it costs.

usage: measure.py path/to/plumb path/to/chromium path/to/axe.min.js

Run by `.ci/browser --measure`; PLUMB names a release to measure. The numbers are printed; nothing fails.
"""
import concurrent.futures
import http.client
import os
import pathlib
import ssl
import sys
import threading
import time
import urllib.parse
import json

from browser import Visit, chromium
from cluster import DEADLINE, Cluster

PODS = 10_000
NODES = 100
OPEN = 100
SECONDS = 20


def main():
    # Only the objects count: no component reads or changes them.
    cluster = Cluster(sys.argv[1], "--components", "apiserver")
    try:
        began = time.monotonic()
        fill(cluster)
        print(f"{PODS} pods on {NODES} nodes were created in {time.monotonic() - began:.0f} s")
        with chromium(sys.argv[2]) as browser:
            measure(cluster, browser)
    finally:
        cluster.stop()


def measure(cluster, browser):
    before = memory(cluster)
    visit = Visit(browser, cluster.url)
    visit.open("/pods").locator("#pods", has_text=f"of {PODS}").wait_for()
    more = memory(cluster) - before
    print(f"the process has {more / 1024:.0f} MiB more once a page is open ({before / 1024:.0f} MiB before)")
    for path in ("/", "/pods", "/pods?q=pod-77", "/pods/default/pod-77"):
        paints = []
        for _ in range(5):
            page = visit.open(path)
            paints.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
        size = page.evaluate("performance.getEntriesByType('navigation')[0].transferSize + "
                             "performance.getEntriesByType('resource').reduce((sum, one) => sum + one.encodedBodySize, 0)")
        print(f"{path}: first paint after {sorted(paints)[2]:.0f} ms (median of 5), {size / 1000:.0f} kB")
    cookie = "; ".join(f"{one['name']}={one['value']}" for one in visit.context.cookies())
    visit.close()
    pages = [live(visit.base, cookie, f"/pods?q=pod-{number}&format=live") for number in range(OPEN)]
    time.sleep(5)
    used = cpu(cluster)
    time.sleep(SECONDS)
    share = (cpu(cluster) - used) / SECONDS * 100
    for page in pages:
        page.close()
    print(f"{OPEN} open pages take {share:.1f} % of a core when nothing changes")


def live(base, cookie, path):
    """A connection with the updates of a page, which are received and dropped."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(base).netloc, timeout=DEADLINE)
    connection.request("GET", path, headers={"Cookie": cookie})
    response = connection.getresponse()
    assert response.status == 200, response.status
    threading.Thread(target=drain, args=(response,), daemon=True).start()
    return connection


def drain(response):
    try:
        while response.read1(1 << 16):
            pass
    except (OSError, ValueError, AttributeError):
        # It was closed.
        pass


def fill(cluster):
    """Creates nodes, and pods that run on them."""
    amounts = {"cpu": "64", "memory": "256Gi", "pods": "250"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    for number in range(NODES):
        cluster.create("/api/v1/nodes", {"metadata": {"name": f"node-{number}"}})
        cluster.patch(f"/api/v1/nodes/node-{number}/status", {"status": status}, "application/merge-patch+json")
    parts = urllib.parse.urlsplit(cluster.api)
    local = threading.local()

    def create(number):
        if not hasattr(local, "connection"):
            tls = ssl.create_default_context(cafile=cluster.data / "pki" / "ca.crt")
            tls.load_cert_chain(cluster.data / "pki" / "admin.pem")
            local.connection = http.client.HTTPSConnection(parts.netloc, context=tls, timeout=DEADLINE)
        resources = {"requests": {"cpu": "100m", "memory": "128Mi"}}
        pod = {"metadata": {"name": f"pod-{number}"},
               "spec": {"nodeName": f"node-{number % NODES}",
                        "containers": [{"name": "app", "image": "app", "resources": resources}]}}
        send("POST", "/api/v1/namespaces/default/pods", pod, "application/json")
        running = {"status": {"phase": "Running"}}
        send("PATCH", f"/api/v1/namespaces/default/pods/pod-{number}/status", running, "application/merge-patch+json")

    def send(method, path, body, kind):
        local.connection.request(method, path, json.dumps(body), {"Content-Type": kind})
        response = local.connection.getresponse()
        answer = response.read()
        assert response.status in (200, 201), answer

    with concurrent.futures.ThreadPoolExecutor(4) as workers:
        for _ in workers.map(create, range(PODS)):
            pass


def memory(cluster):
    """The resident memory of the process, in KiB."""
    status = pathlib.Path(f"/proc/{cluster.process.pid}/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))


def cpu(cluster):
    """The processor time of the process so far, in seconds."""
    fields = pathlib.Path(f"/proc/{cluster.process.pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
