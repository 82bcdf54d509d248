"""The Helm chart, as a package and as an OCI artifact."""
import gzip
import json
import re

from . import files
from .image import Layout
from .release import ROOT


def write(to, release):
    folder = ROOT / "deploy/helm/plumb"
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    # Helm looks for Chart.yaml first.
    paths.sort(key=lambda path: path.name != "Chart.yaml")
    members = [(f"plumb/{path.relative_to(folder)}", path.read_bytes(), 0o644) for path in paths]
    package = gzip.compress(files.tar(members, release.epoch), 6, mtime=0)
    (to / f"plumb-chart-{release.version}.tgz").write_bytes(package)

    # The configuration of the artifact is Chart.yaml as JSON, which here is a flat list of strings.
    lines = (folder / "Chart.yaml").read_text().splitlines()
    chart = dict(match.groups() for line in lines if (match := re.fullmatch(r'(\w+): "?([^"]*)"?', line)))
    layout = Layout()
    manifest = layout.add({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": layout.add(json.dumps(chart, sort_keys=True).encode(), "application/vnd.cncf.helm.config.v1+json"),
        "layers": [layout.add(package, "application/vnd.cncf.helm.chart.content.v1.tar+gzip")],
    }, "application/vnd.oci.image.manifest.v1+json")
    manifest["annotations"] = {"org.opencontainers.image.ref.name": release.version}
    (to / f"plumb-chart-{release.version}-oci.tar").write_bytes(layout.archive([manifest], release.epoch))
