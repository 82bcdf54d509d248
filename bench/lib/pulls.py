"""Pulls of images, as the events of pods report them."""
import re

from .resizes import PODS, delete

UNITS = {"ms": 1, "s": 1000, "m": 60_000, "µs": 0.001}


def milliseconds(text):
    """A duration as Go prints it."""
    return sum(float(number) * UNITS[unit] for number, unit in re.findall(r"([\d.]+)(ms|µs|s|m)", text))


def pull(cluster, name, image):
    """Milliseconds that the node took to pull an image that it does not have, by its own event."""
    container = {"name": "c", "image": image, "imagePullPolicy": "Always"}
    cluster.api.ask("POST", PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "containers": [container]}})
    events = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3D{name}"

    def pulled():
        for event in cluster.api.ask("GET", events)["items"]:
            if event["reason"] == "Failed":
                raise RuntimeError(f"{cluster.name}: {event['message']}")
            if found := re.match(r"Successfully pulled image .* in (\S+) \(", event["message"]):
                return milliseconds(found.group(1))
        return None

    took = cluster.api.until("pulled", pulled)
    delete(cluster, name)
    return [took]
