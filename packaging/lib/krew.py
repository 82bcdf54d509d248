"""The manifest with which krew installs `kubectl plumb`."""
import hashlib

from .release import ARCHITECTURES

HEAD = """\
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: plumb
spec:
  version: v{version}
  homepage: {homepage}
  shortDescription: Resize running pods in place, and see why not
  description: |
    `kubectl plumb resize` changes the CPU and memory of a running pod, waits and says what came of it; `kubectl plumb status` shows
    what pods desire, have been allocated and actually have. Both work on any Kubernetes from 1.33 on.
  platforms:
"""

PLATFORM = """\
  - selector: {{matchLabels: {{os: linux, arch: {architecture}}}}}
    uri: {homepage}/releases/download/v{version}/{archive}
    sha256: {digest}
    bin: plumb
    files: [{{from: plumb, to: .}}, {{from: LICENSE, to: .}}]
"""


def write(to, release, archives):
    text = HEAD.format(version=release.version, homepage=release.homepage)
    for name, archive in sorted(archives.items()):
        text += PLATFORM.format(
            architecture=ARCHITECTURES[name].oci, homepage=release.homepage, version=release.version, archive=archive.name,
            digest=hashlib.sha256(archive.read_bytes()).hexdigest())
    (to / "krew-plumb.yaml").write_text(text)
