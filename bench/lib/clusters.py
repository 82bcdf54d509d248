"""The clusters that are measured: Plumb's, and a real Kubernetes from the testbed."""
import functools, glob, json, os, re, secrets, subprocess, tempfile, time
from pathlib import Path

from .client import Api

ROOT = Path(__file__).resolve().parent.parent.parent


def build():
    """Builds what is measured, and what measures it, as one set: parts built on their own would have other features."""
    for profile in (["--release", "--bins", "--examples"], ["--bins"]):
        subprocess.run(["cargo", "build", "--locked", "--workspace", *profile], check=True, cwd=ROOT)


@functools.cache
def target():
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    found = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    return Path(json.loads(found)["target_directory"])


@functools.cache
def kubectl():
    """The kubectl of the testbed."""
    command = [target() / "debug/testbed", "which", "kubectl"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


class Cluster:
    """A cluster that runs for as long as it is measured, also if measuring fails."""

    name = ""
    # The word in what it prints that says that it is there.
    ready = "ready"

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True)
        self.data = f"{self.folder.name}/data"

    def command(self):
        raise NotImplementedError

    def up(self):
        """Starts it, and answers how many seconds that took."""
        begun = time.perf_counter()
        self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for line in self.process.stdout:
            if self.ready in line:
                break
        else:
            raise RuntimeError(f"{self.name} did not start: {' '.join(map(str, self.command()))}")
        took = time.perf_counter() - begun
        tokens = sorted(Path(self.folder.name).rglob("tokens.csv"))
        self.api = Api(self.kubeconfig, tokens[0].read_text().split(",")[0])
        return took

    def down(self):
        self.process.terminate()
        self.process.wait()

    def __enter__(self):
        self.start = self.up()
        return self

    def __exit__(self, failed, *_):
        if failed:
            self.process.terminate()
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
        else:
            self.settle()
            self.down()
        self.folder.cleanup()

    def settle(self):
        """Waits until what was deleted is off the machine."""

    def memory(self):
        """Megabytes of all its processes, shared ones counted in parts (PSS)."""
        total = 0
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                line = Path(path).read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if self.is_mine(line):
                    rollup = Path(path).with_name("smaps_rollup").read_text()
                    total += int(re.search(r"^Pss:\s+(\d+)", rollup, re.M).group(1))
            except (OSError, AttributeError):
                # It has ended since, or belongs to the kernel.
                continue
        return total / 1024

    def is_mine(self, line):
        return self.folder.name in line

    def crowd(self, *args):
        """Many clients at once over HTTP/2; what they have measured."""
        command = [target() / "release/examples/crowd", "--address", self.api.url.netloc, "--ca", self.api.authority,
                   f"--token={self.api.token}", *map(str, args)]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)

    def fill(self, objects, path, body, at_once=16):
        """Makes as many objects; the seconds that took."""
        args = ["fill", "--objects", objects, "--path", path, "--body", json.dumps(body), "--at-once", at_once]
        return self.crowd(*args)["seconds"]

    def wrk(self, script, seconds):
        """Requests a second of `wrk -t2 -c32`."""
        command = ["wrk", "-t2", "-c32", f"-d{seconds}s", "-s", ROOT / "bench/lib" / script, self.api.url.geturl()]
        out = subprocess.run(command, check=True, capture_output=True, text=True,
                             env={**os.environ, "TOKEN": self.api.token}).stdout
        if "Non-2xx" in out:
            raise RuntimeError(f"{self.name}: {out}")
        return float(re.search(r"Requests/sec:\s+([\d.]+)", out).group(1))


class Plumb(Cluster):
    name = "plumb"
    container = {"image": "plumb/load"}

    def __init__(self, *flags, program=None):
        super().__init__()
        self.flags, self.program = flags, program or target() / "release/plumb"
        self.kubeconfig = f"{self.data}/kubeconfig"
        # wrk can send a token and no client certificate.
        self.tokens = Path(self.folder.name, "tokens.csv")
        self.tokens.write_text(f"{secrets.token_hex(32)},kubernetes-admin,,system:masters\n")
        self.tokens.chmod(0o600)

    def command(self):
        return [self.program, "up", "--listen", "127.0.0.1:0", "--data-dir", self.data, "--token-auth-file", self.tokens,
                *self.flags]

    def settle(self):
        sandboxes = Path(self.data, "runtime/sandboxes")
        while sandboxes.is_dir() and any(sandboxes.iterdir()):
            time.sleep(0.1)

    def processor(self):
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Kubernetes(Cluster):
    name = "Kubernetes"
    container = {"image": "localhost/busybox:1", "command": ["/bin/sleep", "100000"]}
    # Its shims don't say whose they are: there is to be no other on the machine.
    PROGRAMS = ["kube-apiserver", "etcd", "kubelet", "kube-scheduler", "kube-controller-manager", "containerd"]

    def __init__(self, *flags):
        super().__init__()
        self.flags = flags
        self.kubeconfig = f"{self.folder.name}/kubeconfig"

    def command(self):
        return [target() / "debug/testbed", "up", "--dir", self.data, "--kubeconfig", self.kubeconfig, *self.flags]

    def is_mine(self, line):
        return any(program in line for program in self.PROGRAMS)


class Containerd:
    """A containerd of the testbed, alone, for as long as it is measured."""

    def __enter__(self):
        command = [target() / "debug/testbed", "up", "--target", "containerd"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        line = self.process.stdout.readline()
        if not line.startswith("ready"):
            raise RuntimeError(f"containerd did not start: {line}")
        self.endpoint = line.split("; ")[1].strip()
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
