"""The container image, as an OCI archive with one manifest for each architecture.

Made without a container engine: an image is one layer, a configuration and a manifest, each addressed by its digest.
"""
import gzip
import hashlib
import json
import pathlib
import time

from . import files
from .release import ARCHITECTURES

PASSWD = b"root:x:0:0:root:/:/sbin/nologin\nplumb:x:65532:65532::/:/sbin/nologin\n"
# What a controller verifies servers with that the cluster's own authority did not sign, such as a Prometheus.
AUTHORITIES = pathlib.Path("/etc/ssl/certs/ca-certificates.crt")


class Layout:
    """An OCI image layout."""

    def __init__(self):
        self.blobs = {}

    def add(self, content, kind):
        """Adds a blob; returns its descriptor."""
        if not isinstance(content, bytes):
            content = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    def archive(self, manifests, epoch):
        """The layout as a tar archive, with an index of these manifests."""
        index = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests}
        members = [("oci-layout", b'{"imageLayoutVersion":"1.0.0"}', 0o644),
                   ("index.json", json.dumps(index, sort_keys=True).encode(), 0o644)]
        members += [(f"blobs/sha256/{digest}", content, 0o644) for digest, content in sorted(self.blobs.items())]
        return files.tar(members, epoch)


def write(to, release, programs):
    layout = Layout()
    name = f"localhost/plumb:{release.version}"
    manifests = [manifest(layout, release, architecture, program) for architecture, program in sorted(programs.items())]
    index = layout.add({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": manifests},
                       "application/vnd.oci.image.index.v1+json")
    # `ctr image import` takes the first annotation for the name, other tools the second.
    index["annotations"] = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": release.version}
    (to / f"plumb-{release.version}-oci.tar").write_bytes(layout.archive([index], release.epoch))


def manifest(layout, release, architecture, program):
    members = [("plumb", program.read_bytes(), 0o755), ("etc/passwd", PASSWD, 0o644)]
    if AUTHORITIES.exists():
        members.append(("etc/ssl/certs/ca-certificates.crt", AUTHORITIES.read_bytes(), 0o644))
    content = files.tar(members, release.epoch)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.epoch))
    config = {
        "architecture": ARCHITECTURES[architecture].oci, "os": "linux", "created": created,
        "config": {"Entrypoint": ["/plumb"], "User": "65532:65532", "WorkingDir": "/", "Labels": {
            "org.opencontainers.image.source": release.homepage, "org.opencontainers.image.revision": release.commit,
            "org.opencontainers.image.version": release.version, "org.opencontainers.image.licenses": "Apache-2.0"}},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
        "history": [{"created": created, "created_by": "packaging/dist"}],
    }
    descriptor = layout.add({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": layout.add(config, "application/vnd.oci.image.config.v1+json"),
        "layers": [layout.add(gzip.compress(content, 6, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip")],
    }, "application/vnd.oci.image.manifest.v1+json")
    return descriptor | {"platform": {"architecture": ARCHITECTURES[architecture].oci, "os": "linux"}}
