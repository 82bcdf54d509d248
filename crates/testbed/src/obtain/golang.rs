//! Kubernetes itself: an ordinary Go module, built program by program.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use super::tool;
use crate::cache::{self, Cache};
use crate::error::{Error, IoContext as _};
use crate::release;

/// A line of progress for so many fetched modules; there are about 200.
const MODULES_PER_LINE: usize = 50;
/// A line of progress for so many compiled packages; all five programs together have about 2,500.
const PACKAGES_PER_LINE: usize = 200;

pub(super) fn obtain(cache: &Cache, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    let folder = cache.programs();
    let missing: Vec<&str> =
        release::PROGRAMS.into_iter().filter(|program| !folder.join(program).is_file()).collect();
    if missing.is_empty() {
        say(&format!("Kubernetes {}: all {} programs cached", release::VERSION, release::PROGRAMS.len()));
        return Ok(());
    }
    if !tool::on_path("go") {
        return Err(Error::GoMissing);
    }
    fs::create_dir_all(&folder).doing("create", &folder)?;
    let module = cache.module();
    lay_out(&module)?;
    download(&module, say)?;
    for (index, program) in missing.iter().enumerate() {
        build(&module, &folder, program, &format!("[{}/{}] {program}", index + 1, missing.len()), say)?;
    }
    Ok(())
}

fn lay_out(module: &Path) -> Result<(), Error> {
    fs::create_dir_all(module).doing("create", module)?;
    for (name, text) in [("go.mod", release::GO_MOD), ("go.sum", release::GO_SUM)] {
        let path = module.join(name);
        fs::write(&path, text).doing("write", &path)?;
    }
    Ok(())
}

/// A step of its own, so that a registry that can't be reached is told apart from a build that fails.
fn download(module: &Path, say: &mut dyn FnMut(&str)) -> Result<(), Error> {
    say(&format!("Kubernetes {}: fetching Go modules", release::VERSION));
    let started = Instant::now();
    let mut modules = 0;
    let outcome = tool::run(go(module).args(["mod", "download", "-x"]), |_, line| {
        if line.contains(".zip: 200 OK") {
            modules += 1;
            if modules % MODULES_PER_LINE == 0 {
                say(&format!("Kubernetes {}: {modules} modules fetched", release::VERSION));
            }
        }
    })?;
    if !outcome.status.success() {
        return Err(Error::Registry {
            registry: "Go module registry",
            what: format!("Kubernetes {}", release::VERSION),
            detail: outcome.tail,
        });
    }
    say(&format!(
        "Kubernetes {}: Go modules there after {} s",
        release::VERSION,
        started.elapsed().as_secs()
    ));
    Ok(())
}

fn build(
    module: &Path,
    folder: &Path,
    program: &str,
    label: &str,
    say: &mut dyn FnMut(&str),
) -> Result<(), Error> {
    say(&format!("{label}: building"));
    let started = Instant::now();
    let target = folder.join(program);
    let partial = cache::clear_partial(&target)?;
    let mut command = go(module);
    command.args(["build", "-v", "-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags"]);
    command.arg(release::linker_flags()).arg("-o").arg(&partial);
    command.arg(format!("k8s.io/kubernetes/cmd/{program}"));
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
