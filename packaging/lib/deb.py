"""The package for Debian and Ubuntu."""
import os
import shutil
import subprocess

from . import files

CONTROL = """\
Package: plumb
Version: {version}
Architecture: {architecture}
Maintainer: The Plumb maintainers <maintainers@plumb.dev>
Installed-Size: {kilobytes}
Section: admin
Priority: optional
Homepage: {homepage}
Recommends: ca-certificates
Suggests: kubernetes-client
Description: Kubernetes cluster in one binary, built around in-place pod resize
 API server, scheduler, controllers, node agent and container runtime of a
 Kubernetes cluster in one program, in which the CPU and memory of running
 pods change without a restart; and a Vertical Pod Autoscaler and in-place
 rollouts for any Kubernetes from 1.33 on.
 .
 The package starts nothing: "systemctl enable --now plumb" does.
"""

# An upgrade restarts what runs: containers run on meanwhile (KillMode=process). A new installation starts nothing.
POSTINST = """\
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    if [ -n "$2" ]; then
        systemctl try-restart plumb.service plumb-node.service
    fi
fi
"""

PRERM = """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl disable --now plumb.service plumb-node.service || true
fi
if [ "$1" = remove ]; then
    # While the program is there that can remove them.
    for data in /var/lib/plumb /var/lib/plumb-node; do
        [ ! -d "$data" ] || plumb down --data-dir "$data" || true
    done
fi
"""

POSTRM = """\
#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || true
fi
if [ "$1" = purge ]; then
    for data in /var/lib/plumb /var/lib/plumb-node; do
        [ ! -d "$data" ] || echo "plumb: $data has the objects and volumes of a cluster and is kept; remove it by hand" >&2
    done
fi
"""


def package(to, release, architecture, tree, work):
    root = work / "deb"
    shutil.copytree(tree, root, symlinks=True)
    control = root / "DEBIAN"
    control.mkdir()
    size = sum(path.lstat().st_size for path in tree.rglob("*") if not path.is_dir())
    (control / "control").write_text(CONTROL.format(
        version=release.version, architecture=architecture.deb, homepage=release.homepage, kilobytes=size // 1024))
    for name, text in (("postinst", POSTINST), ("prerm", PRERM), ("postrm", POSTRM)):
        (control / name).write_text(text)
        (control / name).chmod(0o755)
    files.set_times(root, release.epoch)
    path = to / f"plumb_{release.version}_{architecture.deb}.deb"
    environment = dict(os.environ, SOURCE_DATE_EPOCH=str(release.epoch))
    # zstd takes seconds where xz takes minutes; Debian 12 and Ubuntu 18.04 are the first to read it. One thread: the frames
    # that several make depend on how many there are.
    command = ["dpkg-deb", "--root-owner-group", "-Zzstd", "-z10", "--threads-max=1", "--build", root, path]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
