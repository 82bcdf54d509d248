"""The package for Fedora, RHEL and SUSE."""
import os
import shutil
import subprocess

from . import files

SPEC = """\
Name: plumb
Version: {version}
Release: 1
Summary: Kubernetes cluster in one binary, built around in-place pod resize
License: Apache-2.0
URL: {homepage}
Recommends: ca-certificates
# The program is static.
AutoReqProv: no

%description
API server, scheduler, controllers, node agent and container runtime of a Kubernetes cluster in one program, in which the CPU
and memory of running pods change without a restart; and a Vertical Pod Autoscaler and in-place rollouts for any Kubernetes
from 1.33 on. The package starts nothing: "systemctl enable --now plumb" does.

%install
cp -a {tree}/. %{{buildroot}}/

%files
{listing}

%post
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi

%preun
if [ "$1" = 0 ]; then
    [ ! -d /run/systemd/system ] || systemctl disable --now plumb.service plumb-node.service || :
    # While the program is there that can remove them.
    for data in /var/lib/plumb /var/lib/plumb-node; do
        [ ! -d "$data" ] || plumb down --data-dir "$data" || :
    done
fi

%postun
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    # An upgrade restarts what runs; containers run on meanwhile.
    [ "$1" = 0 ] || systemctl try-restart plumb.service plumb-node.service || :
fi
"""

# The name of the machine and the time of the build are not in the package, and nothing is stripped or compressed again.
MACROS = {
    "_buildhost": "reproducible",
    "use_source_date_epoch_as_buildtime": "1",
    "clamp_mtime_to_source_date_epoch": "1",
    "source_date_epoch_from_changelog": "0",
    "debug_package": "%{nil}",
    "_build_id_links": "none",
    "__os_install_post": "%{nil}",
    "_binary_payload": "w10.zstdio",
}


def package(to, release, architecture, tree, work):
    if shutil.which("rpmbuild") is None:
        print(f"SKIPPED: .rpm for {architecture.rust}: there is no rpmbuild (Debian: rpm)")
        return
    folder = work / "rpm"
    folder.mkdir()
    files.set_times(tree, release.epoch)
    paths = sorted(path for path in tree.rglob("*") if path.is_symlink() or path.is_file())
    listing = "\n".join(f"/{path.relative_to(tree)}" for path in paths)
    # The version has no hyphen in an rpm: 0.2.0-rc.1 becomes 0.2.0~rc.1, which sorts before 0.2.0.
    version = release.version.replace("-", "~")
    spec = folder / "plumb.spec"
    spec.write_text(SPEC.format(version=version, homepage=release.homepage, tree=tree, listing=listing))
    command = ["rpmbuild", "-bb", "--quiet", "--target", f"{architecture.rpm}-linux", "--define", f"_topdir {folder}", "--define", f"_rpmdir {folder / 'out'}"]
    for name, value in MACROS.items():
        command += ["--define", f"{name} {value}"]
    environment = dict(os.environ, SOURCE_DATE_EPOCH=str(release.epoch))
    subprocess.run([*command, spec], check=True, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    for built in (folder / "out").rglob("*.rpm"):
        shutil.copyfile(built, to / built.name)
