"""A registry on this machine, Debian's docker-registry, with images made for the purpose."""
import gzip, hashlib, io, json, os, platform, random, shutil, socket, subprocess, tarfile, tempfile, time
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "plumb/testbed")
BUSYBOX = CACHE / "debian/busybox-static/root/bin/busybox"


def program():
    """Where docker-registry is: installed, or unpacked from its package by `.ci/registry`."""
    found = shutil.which("docker-registry") or CACHE / "docker-registry/usr/bin/docker-registry"
    if not Path(found).exists():
        raise RuntimeError("docker-registry is neither installed nor unpacked: run .ci/registry once")
    return found


class Registry:
    """A registry, for as long as it is measured. Images are written into its storage, as a push would."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="bench-registry-")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        config = Path(self.folder.name, "config.yml")
        config.write_text(f"version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {self.folder.name}/data\n"
                          f"http:\n  addr: {self.address}\n")
        self.process = subprocess.Popen([program(), "serve", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        host, port = self.address.split(":")
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection((host, int(port))).close()
                return self
            except OSError:
                if time.monotonic() > deadline:
                    raise RuntimeError("the registry does not start") from None
                time.sleep(0.02)

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.folder.cleanup()

    def write(self, path, data):
        file = Path(self.folder.name, "data/docker/registry/v2", path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    def blob(self, repository, data):
        hexadecimal = hashlib.sha256(data).hexdigest()
        self.write(f"blobs/sha256/{hexadecimal[:2]}/{hexadecimal}/data", data)
        self.write(f"repositories/{repository}/_layers/sha256/{hexadecimal}/link", f"sha256:{hexadecimal}".encode())
        return f"sha256:{hexadecimal}"

    def image(self, name, layers, megabytes):
        """Makes an image of so many layers, so large together, whose content no other image has; its reference."""
        descriptors, plain = [], []
        for nth in range(layers):
            tar = layer(f"{name}-{nth}", megabytes // layers, nth == 0)
            packed = gzip.compress(tar, 6, mtime=0)
            plain.append(f"sha256:{hashlib.sha256(tar).hexdigest()}")
            descriptors.append({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip",
                                "digest": self.blob(name, packed), "size": len(packed)})
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
        config = json.dumps({"architecture": machine, "os": "linux", "rootfs": {"type": "layers", "diff_ids": plain},
                             "config": {"Entrypoint": ["/bin/sleep", "100000"]}}).encode()
        manifest = json.dumps({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": descriptors,
            "config": {"mediaType": "application/vnd.oci.image.config.v1+json", "digest": self.blob(name, config),
                       "size": len(config)}}).encode()
        digest = self.blob(name, manifest)
        manifests, hexadecimal = f"repositories/{name}/_manifests", digest.removeprefix("sha256:")
        for link in (f"revisions/sha256/{hexadecimal}", "tags/1/current", f"tags/1/index/sha256/{hexadecimal}"):
            self.write(f"{manifests}/{link}/link", digest.encode())
        return f"{self.address}/{name}:1"


def layer(seed, megabytes, has_program):
    """A tar file of a layer: files of 256 KiB, of which half can be compressed, as in most images."""
    dice, out = random.Random(seed), io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        def add(name, data, mode=0o644):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            tar.addfile(entry, io.BytesIO(data))
        if has_program:
            add("bin/sleep", BUSYBOX.read_bytes(), 0o755)
        for nth in range(megabytes * 4):
            add(f"data/{seed}/{nth}", dice.randbytes(128 << 10) + (f"{seed} {nth}\n".encode() * (128 << 10))[:128 << 10])
    return out.getvalue()
