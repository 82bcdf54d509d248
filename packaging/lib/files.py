"""The files of an installation, and archives whose bytes depend on nothing but their content."""
import gzip
import io
import os
import pathlib
import shutil
import subprocess
import tarfile

from .release import ROOT


def strip(program, to, architecture):
    """A copy of a program without symbols."""
    to.parent.mkdir(parents=True, exist_ok=True)
    own = architecture == os.uname().machine
    command = "strip" if own else f"{architecture}-linux-gnu-strip"
    if shutil.which(command):
        subprocess.run([command, "-o", to, program], check=True)
    else:
        shutil.copyfile(program, to)
    to.chmod(0o755)
    return to


def generated(stage, programs):
    """Man pages and completions, as the program of this machine writes them; none if it was not built."""
    program = programs.get(os.uname().machine)
    folder = stage / "generated"
    (folder / "man").mkdir(parents=True)
    (folder / "completions").mkdir()
    if program is None:
        print("SKIPPED: man pages and completions: no program of this machine's architecture")
        return folder
    subprocess.run([program, "man", "--dir", folder / "man"], check=True, stdout=subprocess.DEVNULL)
    for shell in ("bash", "zsh", "fish"):
        text = subprocess.run([program, "completion", shell], check=True, capture_output=True).stdout
        (folder / "completions" / shell).write_bytes(text)
    return folder


def tree(root, program, shared):
    """What a package installs, in its place below `root`."""
    put(program, root / "usr/bin/plumb", 0o755)
    # `kubectl plumb …` runs what is called kubectl-plumb.
    os.symlink("plumb", root / "usr/bin/kubectl-plumb")
    for unit in sorted((ROOT / "packaging/systemd").glob("*.service")):
        put(unit, root / "usr/lib/systemd/system" / unit.name, 0o644)
    for page in sorted((shared / "man").iterdir()):
        to = root / "usr/share/man/man1" / f"{page.name}.gz"
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes(gzip.compress(page.read_bytes(), 6, mtime=0))
    names = {"bash": "bash-completion/completions/plumb", "zsh": "zsh/vendor-completions/_plumb", "fish": "fish/vendor_completions.d/plumb.fish"}
    for shell, name in names.items():
        if (shared / "completions" / shell).exists():
            put(shared / "completions" / shell, root / "usr/share" / name, 0o644)
    put(ROOT / "LICENSE", root / "usr/share/doc/plumb/copyright", 0o644)
    return root


def put(source, to, mode):
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, to)
    to.chmod(mode)


def archive(to, release, architecture, program):
    """The program alone with its licence, for those who want no package, and for krew."""
    path = to / f"plumb-{release.version}-linux-{architecture.oci}.tar.gz"
    members = [("plumb", program.read_bytes(), 0o755), ("LICENSE", (ROOT / "LICENSE").read_bytes(), 0o644)]
    path.write_bytes(gzip.compress(tar(members, release.epoch), 6, mtime=0))
    return path


def tar(members, epoch):
    """A tar archive of (path, content, mode): owned by root, with one time, directories included."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.USTAR_FORMAT) as writer:
        folders = set()
        for path, content, mode in members:
            for folder in reversed([parent for parent in pathlib.PurePosixPath(path).parents if str(parent) != "."]):
                if folder not in folders:
                    folders.add(folder)
                    writer.addfile(header(str(folder), 0, 0o755, epoch, tarfile.DIRTYPE))
            writer.addfile(header(path, len(content), mode, epoch, tarfile.REGTYPE), io.BytesIO(content))
    return output.getvalue()


def header(path, size, mode, epoch, kind):
    member = tarfile.TarInfo(path)
    member.size, member.mode, member.mtime, member.type = size, mode, epoch, kind
    member.uname = member.gname = "root"
    return member


def set_times(root, epoch):
    """Gives every file below `root` one time."""
    for folder, _, names in os.walk(root, topdown=False):
        for name in names:
            os.utime(os.path.join(folder, name), (epoch, epoch), follow_symlinks=False)
        os.utime(folder, (epoch, epoch))
