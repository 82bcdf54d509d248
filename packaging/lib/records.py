"""What a release says of itself: bill of materials, provenance, notes, checksums."""
import hashlib
import json
import re
import subprocess
import time

from .release import ROOT


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def moment(epoch):
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch))


def bill_of_materials(to, release):
    """CycloneDX 1.5: the crates that are in the binary, as Cargo.lock pins them."""
    command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    is_used = lambda dependency: any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])
    binary = next(id for id, package in packages.items() if package["name"] == "plumb")
    reached, waiting = set(), [binary]
    while waiting:
        id = waiting.pop()
        if id not in reached:
            reached.add(id)
            waiting += [dependency["pkg"] for dependency in nodes[id]["deps"] if is_used(dependency)]
    components = []
    for package in sorted((packages[id] for id in reached - {binary}), key=lambda one: (one["name"], one["version"])):
        reference = f"pkg:cargo/{package['name']}@{package['version']}"
        component = {"type": "library", "bom-ref": reference, "name": package["name"], "version": package["version"]}
        if package["source"]:
            component["purl"] = reference
        if package["license"]:
            component["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        components.append(component)
    document = {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": {"timestamp": moment(release.epoch), "component": {
            "type": "application", "bom-ref": f"pkg:cargo/plumb@{release.version}", "name": "plumb", "version": release.version,
            "licenses": [{"expression": "Apache-2.0"}]}},
        "components": components,
    }
    (to / f"plumb-{release.version}.cdx.json").write_text(json.dumps(document, indent=1) + "\n")


def notes(to, release):
    """The part of the changelog about this version, or about what is not released yet."""
    text = (ROOT / "CHANGELOG.md").read_text()
    for heading in (re.escape(release.version), "Unreleased"):
        if part := re.search(rf"^## \[?{heading}\]?.*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL):
            (to / "NOTES.md").write_text(part.group(1).strip() + "\n")
            return
    raise SystemExit(f"CHANGELOG.md has no section for {release.version}, nor one of what is unreleased")


def provenance(to, release):
    """An in-toto statement with SLSA provenance: which commit gave which bytes. docs/releasing.md says who signs it."""
    toolchain = subprocess.run(["rustc", "--version"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path.name, "digest": {"sha256": digest(path)}} for path in sorted(to.iterdir())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": f"{release.homepage}/blob/main/docs/releasing.md",
                "externalParameters": {"version": release.version},
                "internalParameters": {"toolchain": toolchain},
                "resolvedDependencies": [
                    {"uri": f"git+{release.homepage}", "digest": {"gitCommit": release.commit}},
                    {"uri": "Cargo.lock", "digest": {"sha256": digest(ROOT / "Cargo.lock")}}],
            },
            "runDetails": {"builder": {"id": f"{release.homepage}/blob/main/packaging/dist"}},
        },
    }
    (to / f"plumb-{release.version}.provenance.json").write_text(json.dumps(statement, indent=1) + "\n")


def checksums(to):
    lines = [f"{digest(path)}  {path.name}\n" for path in sorted(to.iterdir())]
    (to / "SHA256SUMS").write_text("".join(lines))
