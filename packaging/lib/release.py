"""What is released: version, commit, architectures."""
import pathlib
import re
import subprocess
from dataclasses import dataclass

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Architecture:
    """An architecture, by the names that others have for it."""
    rust: str
    oci: str
    deb: str
    rpm: str


ARCHITECTURES = {
    "x86_64": Architecture("x86_64", "amd64", "amd64", "x86_64"),
    "aarch64": Architecture("aarch64", "arm64", "arm64", "aarch64"),
}


@dataclass(frozen=True)
class Release:
    version: str
    homepage: str
    commit: str
    # The time of the commit, in seconds: the only one in anything that is made.
    epoch: int

    @classmethod
    def from_checkout(cls):
        manifest = (ROOT / "Cargo.toml").read_text()
        value = lambda key: re.search(rf'^{key} = "([^"]+)"', manifest, re.MULTILINE).group(1)
        git = lambda *arguments: subprocess.run(
            ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
        return cls(value("version"), value("repository"), git("rev-parse", "HEAD"), int(git("log", "-1", "--format=%ct")))
