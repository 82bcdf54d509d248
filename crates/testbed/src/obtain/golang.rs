//! Kubernetes, and what is tested beside it: ordinary Go modules, built program by program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use super::tool;
use crate::cache;
use crate::error::{Error, IoContext as _};
use crate::release::{self, GoModule};

/// A line of progress for so many fetched modules; there are about 200.
const MODULES_PER_LINE: usize = 50;
/// A line of progress for so many compiled packages; all five programs together have about 2,500.
const PACKAGES_PER_LINE: usize = 200;

pub(super) fn obtain(of: &GoModule, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let missing: Vec<_> =
        of.packages.iter().filter(|(program, _)| !of.programs.join(program).is_file()).collect();
    if missing.is_empty() {
        say(&format!("{}: all {} programs cached", of.title, of.packages.len()));
        return Ok(());
    }
    if !tool::on_path("go") {
        return Err(Error::GoMissing);
    }
    fs::create_dir_all(&of.programs).doing("create", &of.programs)?;
    lay_out(of)?;
    download(of, say)?;
    for (index, (program, package)) in missing.iter().enumerate() {
        build(of, program, package, &format!("[{}/{}] {program}", index + 1, missing.len()), say)?;
    }
    Ok(())
}

/// Copies the files of a folder of a required module, once.
pub(super) fn copy(of: &GoModule, module: &str, folder: &str, target: &Path) -> Result<(), Error> {
    if target.is_dir() {
        return Ok(());
    }
    let source = folder_of(of, module)?.join(folder);
    let partial = cache::clear_partial(target)?;
    fs::create_dir_all(&partial).doing("create", &partial)?;
    for entry in fs::read_dir(&source).doing("list", &source)? {
        let path = entry.doing("list", &source)?.path();
        let to = partial.join(path.file_name().unwrap_or_default());
        fs::copy(&path, &to).doing("copy", &path)?;
    }
    fs::rename(&partial, target).doing("rename", &partial)
}

/// The folder that a required module was fetched to.
fn folder_of(of: &GoModule, module: &str) -> Result<PathBuf, Error> {
    if !tool::on_path("go") {
        return Err(Error::GoMissing);
    }
    lay_out(of)?;
    let listed = go(&of.module).args(["list", "-m", "-f", "{{.Dir}}", module]).output().doing("run", "go")?;
    let folder = String::from_utf8_lossy(&listed.stdout).trim().to_owned();
    // It has none if it was not fetched.
    if !listed.status.success() || folder.is_empty() {
        return Err(Error::Tool {
            what: format!("finding the files of {module}"),
            status: listed.status.to_string(),
            detail: String::from_utf8_lossy(&listed.stderr).trim().to_owned(),
        });
    }
    Ok(folder.into())
}

fn lay_out(of: &GoModule) -> Result<(), Error> {
    fs::create_dir_all(&of.module).doing("create", &of.module)?;
    for (name, text) in [("go.mod", of.go_mod), ("go.sum", of.go_sum)] {
        let path = of.module.join(name);
        fs::write(&path, text).doing("write", &path)?;
    }
    Ok(())
}

/// This is a step of its own, so that the error distinguishes an unreachable registry from a build that fails.
fn download(of: &GoModule, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    say(&format!("{}: fetching Go modules", of.title));
    let started = Instant::now();
    let mut modules = 0;
    let outcome = tool::run(go(&of.module).args(["mod", "download", "-x"]), |_, line| {
        if line.contains(".zip: 200 OK") {
            modules += 1;
            if modules % MODULES_PER_LINE == 0 {
                say(&format!("{}: {modules} modules fetched", of.title));
            }
        }
    })?;
    if !outcome.status.success() {
        return Err(Error::Registry {
            registry: "Go module registry",
            what: of.title.clone(),
            detail: outcome.tail,
        });
    }
    say(&format!("{}: Go modules there after {} s", of.title, started.elapsed().as_secs()));
    Ok(())
}

fn build(
    of: &GoModule,
    program: &str,
    package: &str,
    label: &str,
    say: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    say(&format!("{label}: building"));
    let started = Instant::now();
    let target = of.programs.join(program);
    let partial = cache::clear_partial(&target)?;
    let mut command = go(&of.module);
    if program == release::E2E {
        command.args(["test", "-c", "-vet=off"]);
    } else {
        command.arg("build");
    }
    command.args(["-v", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags"]);
    command.arg(&of.linker_flags).arg("-o").arg(&partial);
    command.arg(package);
    let outcome = tool::run(&mut command, |number, _| {
        if number % PACKAGES_PER_LINE == 0 {
            say(&format!("{label}: {number} packages compiled, {} s", started.elapsed().as_secs()));
        }
    })?;
    if !outcome.status.success() {
        return Err(outcome.failure(format!("building {program}")));
    }
    fs::rename(&partial, &target).doing("rename", &partial)?;
    say(&format!("{label}: done after {} s", started.elapsed().as_secs()));
    Ok(())
}

/// The toolchain, in the module's folder: no C compiler needed, and no flags of the user's in the way.
fn go(module: &Path) -> Command {
    let mut command = Command::new("go");
    command.current_dir(module).env("CGO_ENABLED", "0").env("GOFLAGS", "").env("GOWORK", "off");
    command
}
