"""The Python client against `plumb up`, unmodified: what its users do with it.

usage: clients.py path/to/plumb

Run by `.ci/python`, which gets the client first.
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

NAMESPACE = "default"
DIALECTS = ("kep", "v1.36")


class Cluster:
    """A running `plumb up` in a folder of its own."""

    def __init__(self, binary, dialect):
        self.folder = tempfile.TemporaryDirectory()
        data = pathlib.Path(self.folder.name) / "data"
        # Alone, so that only the tests write.
        command = [binary, "up", "--components", "apiserver", "--listen", "127.0.0.1:0", "--data-dir", str(data),
                   "--resize-dialect", dialect]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        assert line.startswith("plumb is ready"), line
        self.client = config.new_client_from_config(str(data / "kubeconfig"))

    def stop(self):
        self.client.close()
        self.process.terminate()
        assert self.process.wait(30) == 0
        self.process.stdout.close()
        self.folder.cleanup()


def pod(name, cpu="500m", labels=None):
    amounts = {"cpu": cpu, "memory": "64Mi"}
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name=name, labels=labels),
        spec=client.V1PodSpec(containers=[client.V1Container(
            name="main", image="plumb/load",
            resources=client.V1ResourceRequirements(requests=amounts, limits=amounts))]))


def config_map(name, **data):
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name), data=data)


class Clients(unittest.TestCase):
    binary = None
    dialect = None

    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster(cls.binary, cls.dialect)
        cls.core = client.CoreV1Api(cls.cluster.client)
        cls.apps = client.AppsV1Api(cls.cluster.client)

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def refused(self, code, call, *args, **kwargs):
        """Expects a refusal in the shape that clients act on."""
        with self.assertRaises(ApiException) as caught:
            call(*args, **kwargs)
        self.assertEqual(caught.exception.status, code, caught.exception.body)
        status = json.loads(caught.exception.body)
        self.assertEqual((status["kind"], status["status"], status["code"]), ("Status", "Failure", code))
        return status

    def test_versions_and_discovery(self):
        self.assertEqual(client.VersionApi(self.cluster.client).get_code().minor, "36")
        groups = {group.name for group in client.ApisApi(self.cluster.client).get_api_versions().groups}
        self.assertLessEqual({"apps", "batch", "autoscaling"}, groups)
        names = {resource.name for resource in self.core.get_api_resources().resources}
        self.assertLessEqual({"pods", "pods/resize", "pods/status", "configmaps"}, names)

    def test_create_read_replace_delete(self):
        made = self.core.create_namespaced_config_map(NAMESPACE, config_map("whole", k="1"))
        self.assertEqual(self.core.read_namespaced_config_map("whole", NAMESPACE), made)
        self.assertEqual(self.refused(409, self.core.create_namespaced_config_map, NAMESPACE,
                                      config_map("whole"))["reason"], "AlreadyExists")
        made.data["k"] = "2"
        replaced = self.core.replace_namespaced_config_map("whole", NAMESPACE, made)
        self.assertEqual(replaced.data, {"k": "2"})
        # The version that was read first has been overtaken.
        self.assertEqual(self.refused(409, self.core.replace_namespaced_config_map, "whole", NAMESPACE, made)
                         ["reason"], "Conflict")
        tried = self.core.create_namespaced_config_map(NAMESPACE, config_map("tried"), dry_run="All")
        self.assertEqual(tried.metadata.name, "tried")
        self.refused(404, self.core.read_namespaced_config_map, "tried", NAMESPACE)
        generated = self.core.create_namespaced_config_map(
            NAMESPACE, client.V1ConfigMap(metadata=client.V1ObjectMeta(generate_name="some-")))
        self.assertRegex(generated.metadata.name, "^some-[a-z0-9]{5}$")
        self.assertEqual(self.core.delete_namespaced_config_map("whole", NAMESPACE).status, "Success")
        self.refused(404, self.core.delete_namespaced_config_map, "whole", NAMESPACE)

    def test_every_kind_of_patch(self):
        self.core.create_namespaced_config_map(NAMESPACE, config_map("patched", a="1", b="1"))

        def patched(body, media):
            return self.core.patch_namespaced_config_map("patched", NAMESPACE, body, _content_type=media).data

        self.assertEqual(patched([{"op": "test", "path": "/data/a", "value": "1"},
                                  {"op": "replace", "path": "/data/a", "value": "2"}],
                                 "application/json-patch+json"), {"a": "2", "b": "1"})
        self.assertEqual(patched({"data": {"b": None, "c": "3"}}, "application/merge-patch+json"),
                         {"a": "2", "c": "3"})
        self.assertEqual(patched({"data": {"$patch": "replace", "d": "4"}},
                                 "application/strategic-merge-patch+json"), {"d": "4"})
        # What the client picks itself: a list is operations, anything else is merged strategically.
        self.assertEqual(self.core.patch_namespaced_config_map(
            "patched", NAMESPACE, [{"op": "add", "path": "/data/e", "value": "5"}]).data, {"d": "4", "e": "5"})
        self.assertEqual(self.core.patch_namespaced_config_map(
            "patched", NAMESPACE, {"metadata": {"labels": {"x": "y"}}}).metadata.labels, {"x": "y"})
        with self.assertRaises(ApiException) as caught:
            patched([{"op": "test", "path": "/data/d", "value": "no"}], "application/json-patch+json")
        self.assertEqual(caught.exception.status, 422)

    def test_lists_selectors_and_pages(self):
        for i in range(25):
            body = config_map(f"page-{i:02}")
            body.metadata.labels = {"pages": "yes", "even": str(i % 2 == 0).lower()}
            self.core.create_namespaced_config_map(NAMESPACE, body)
        names, token = [], None
        while True:
            page = self.core.list_namespaced_config_map(
                NAMESPACE, label_selector="pages=yes", limit=10, _continue=token)
            self.assertLessEqual(len(page.items), 10)
            names += [item.metadata.name for item in page.items]
            token = page.metadata._continue
            if not token:
                break
        self.assertEqual(names, [f"page-{i:02}" for i in range(25)])
        even = self.core.list_config_map_for_all_namespaces(label_selector="even in (true),!missing")
        self.assertEqual(len(even.items), 13)
        one = self.core.list_namespaced_config_map(NAMESPACE, field_selector="metadata.name=page-07")
        self.assertEqual([item.metadata.name for item in one.items], ["page-07"])
        self.refused(400, self.core.list_namespaced_config_map, NAMESPACE, _continue="nonsense")
        self.core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="pages=yes")
        self.assertEqual(self.core.list_namespaced_config_map(NAMESPACE, label_selector="pages=yes").items, [])

    def test_watch_tells_of_everything_and_goes_on_where_it_stopped(self):
        self.core.create_namespace(client.V1Namespace(metadata=client.V1ObjectMeta(name="watched")))
        start = self.core.list_namespaced_config_map("watched").metadata.resource_version

        def write():
            self.core.create_namespaced_config_map("watched", config_map("a", k="1"))
            self.core.patch_namespaced_config_map("a", "watched", {"data": {"k": "2"}})
            self.core.delete_namespaced_config_map("a", "watched")

        writer = threading.Thread(target=write)
        writer.start()
        seen, stream = [], watch.Watch()
        for event in stream.stream(self.core.list_namespaced_config_map, "watched", resource_version=start,
                                   timeout_seconds=30):
            seen.append((event["type"], (event["object"].data or {}).get("k")))
            last = event["object"].metadata.resource_version
            if event["type"] == "DELETED":
                stream.stop()
        writer.join()
        self.assertEqual(seen, [("ADDED", "1"), ("MODIFIED", "2"), ("DELETED", "2")])
        self.core.create_namespaced_config_map("watched", config_map("b"))
        again = watch.Watch()
        for event in again.stream(self.core.list_namespaced_config_map, "watched", resource_version=last,
                                  timeout_seconds=30):
            self.assertEqual((event["type"], event["object"].metadata.name), ("ADDED", "b"))
            again.stop()

    def test_pods_are_resized(self):
        made = self.core.create_namespaced_pod(NAMESPACE, pod("resized"))
        self.assertEqual((made.status.phase, made.status.qos_class), ("Pending", "Guaranteed"))
        amounts = {"cpu": "650m"}
        change = {"spec": {"containers": [
            {"name": "main", "resources": {"requests": amounts, "limits": amounts}}]}}
        resized = self.core.patch_namespaced_pod_resize("resized", NAMESPACE, change)
        self.assertEqual(resized.spec.containers[0].resources.requests["cpu"], "650m")
        self.assertEqual(resized.metadata.generation, 2)
        status = json.loads(self.core.read_namespaced_pod(
            "resized", NAMESPACE, _preload_content=False).data)["status"]
        self.assertEqual(status.get("resize"), "Proposed" if self.dialect == "kep" else None)
        self.assertEqual(self.core.read_namespaced_pod_resize("resized", NAMESPACE).metadata.name, "resized")
        # A whole pod may be put there as well.
        resized.spec.containers[0].resources.requests["cpu"] = "700m"
        resized.spec.containers[0].resources.limits["cpu"] = "700m"
        replaced = self.core.replace_namespaced_pod_resize("resized", NAMESPACE, resized)
        self.assertEqual(replaced.spec.containers[0].resources.limits["cpu"], "700m")
        if self.dialect == "kep":
            self.core.patch_namespaced_pod("resized", NAMESPACE, change)
        else:
            self.assertEqual(self.refused(422, self.core.patch_namespaced_pod, "resized", NAMESPACE, change)
                             ["reason"], "Invalid")
        class_change = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "2"}}}]}}
        status = self.refused(422, self.core.patch_namespaced_pod_resize, "resized", NAMESPACE, class_change)
        self.assertIn("Pod QOS Class may not change as a result of resizing", status["message"])
        self.core.delete_namespaced_pod("resized", NAMESPACE)

    def test_deployments_are_scaled(self):
        template = client.V1PodTemplateSpec(
            metadata=client.V1ObjectMeta(labels={"app": "web"}), spec=pod("x").spec)
        self.apps.create_namespaced_deployment(NAMESPACE, client.V1Deployment(
            metadata=client.V1ObjectMeta(name="web"), spec=client.V1DeploymentSpec(
                replicas=2, selector=client.V1LabelSelector(match_labels={"app": "web"}), template=template)))
        scale = self.apps.read_namespaced_deployment_scale("web", NAMESPACE)
        self.assertEqual((scale.spec.replicas, scale.status.selector), (2, "app=web"))
        self.apps.patch_namespaced_deployment_scale("web", NAMESPACE, {"spec": {"replicas": 5}})
        scale = self.apps.read_namespaced_deployment_scale("web", NAMESPACE)
        scale.spec.replicas = 7
        self.apps.replace_namespaced_deployment_scale("web", NAMESPACE, scale)
        deployment = self.apps.read_namespaced_deployment("web", NAMESPACE)
        self.assertEqual((deployment.spec.replicas, deployment.metadata.generation), (7, 3))
        deployment = self.apps.patch_namespaced_deployment_status(
            "web", NAMESPACE, {"status": {"replicas": 7, "observedGeneration": 3}})
        self.assertEqual(deployment.status.replicas, 7)
        self.apps.delete_namespaced_deployment("web", NAMESPACE, propagation_policy="Background")

    def test_events_are_kept(self):
        self.core.create_namespaced_event(NAMESPACE, client.CoreV1Event(
            metadata=client.V1ObjectMeta(name="e.1"), reason="Resized", message="from 1 to 2", type="Normal",
            involved_object=client.V1ObjectReference(kind="Pod", name="web", namespace=NAMESPACE)))
        found = self.core.list_namespaced_event(NAMESPACE, field_selector="involvedObject.name=web")
        self.assertEqual([event.reason for event in found.items], ["Resized"])

    def test_the_dynamic_client_finds_its_way(self):
        api = dynamic.DynamicClient(self.cluster.client)
        maps = api.resources.get(api_version="v1", kind="ConfigMap")
        maps.create(body={"metadata": {"name": "dynamic"}, "data": {"k": "1"}}, namespace=NAMESPACE)
        maps.patch(name="dynamic", namespace=NAMESPACE, body={"data": {"k": "2"}},
                   content_type="application/merge-patch+json")
        self.assertEqual(maps.get(name="dynamic", namespace=NAMESPACE).data.k, "2")
        deployments = api.resources.get(api_version="apps/v1", kind="Deployment")
        self.assertEqual(deployments.get(namespace=NAMESPACE).kind, "DeploymentList")
        for event in maps.watch(namespace=NAMESPACE, name="dynamic", timeout=5):
            self.assertEqual(event["object"].metadata.name, "dynamic")
            break
        maps.delete(name="dynamic", namespace=NAMESPACE)


def main():
    Clients.binary = sys.argv[1]
    good = True
    for dialect in DIALECTS:
        Clients.dialect = dialect
        print(f"-- {dialect}", flush=True)
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(Clients)
        good &= unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful()
    sys.exit(not good)


if __name__ == "__main__":
    main()
