"""Static programs, one for each architecture."""
import os
import pathlib
import shutil
import subprocess

from .release import ARCHITECTURES, ROOT


def all_architectures(release):
    """The programs of the architectures that can be built here, by their names."""
    return {name: program for name in ARCHITECTURES if (program := architecture(name, release))}


def architecture(name, release):
    target = chosen_target(name)
    if target is None:
        print(f"SKIPPED: {name}: the standard library of Rust for it is not installed (rustup target add {name}-unknown-linux-musl)")
        return None
    environment = dict(os.environ, SOURCE_DATE_EPOCH=str(release.epoch))
    cargo_home = os.environ.get("CARGO_HOME", str(pathlib.Path.home() / ".cargo"))
    # Paths of the machine that builds are in no binary.
    flags = [f"--remap-path-prefix={ROOT}=/plumb", f"--remap-path-prefix={cargo_home}=/cargo", "-C", "target-feature=+crt-static"]
    environment["RUSTFLAGS"] = " ".join(flags)
    if name != os.uname().machine:
        compiler = f"{name}-linux-gnu-gcc"
        if shutil.which(compiler) is None:
            print(f"SKIPPED: {name}: there is no {compiler} (Debian: gcc-{name.replace('_', '-')}-linux-gnu)")
            return None
        variable = target.upper().replace("-", "_")
        environment[f"CARGO_TARGET_{variable}_LINKER"] = compiler
        environment[f"CC_{target.replace('-', '_')}"] = compiler
    command = ["cargo", "build", "--locked", "--profile", "dist", "--target", target, "--package", "plumb", "--bin", "plumb"]
    print("+", " ".join(command), flush=True)
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    folder = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return folder / target / "dist" / "plumb"


def chosen_target(name):
    """musl where its standard library is installed, else glibc, linked statically."""
    for libc in ("musl", "gnu"):
        target = f"{name}-unknown-linux-{libc}"
        found = subprocess.run(["rustc", "--print", "target-libdir", "--target", target], capture_output=True, text=True)
        library = pathlib.Path(found.stdout.strip())
        if found.returncode == 0 and any(library.glob("libstd-*.rlib")):
            return target
    return None
