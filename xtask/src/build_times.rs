//! How long builds take, from nothing and after a change.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use xtask::repository::root;

use crate::run::{Outcome, cargo, run};

/// Measures each build that is named.
pub(crate) fn measure(names: &[String]) -> Outcome {
    if names.is_empty() {
        return Err("say which: cargo xtask build-times release tests change".to_owned());
    }
    if let Some(unknown) = names.iter().find(|name| !matches!(name.as_str(), "release" | "tests" | "change"))
    {
        return Err(format!("`{unknown}` is not one of release, tests, change"));
    }
    let target = root().join("target").join("build-times");
    let measured = names.iter().try_for_each(|name| match name.as_str() {
        "release" => cold(&target, &["build", "--locked", "--release", "--package", "plumb"]),
        "tests" => cold(&target, &["test", "--locked", "--workspace", "--no-run"]),
        _ => change(&target),
    });
    let removed = std::fs::remove_dir_all(&target);
    measured?;
    removed.map_err(|error| format!("cannot remove {}: {error}", target.display()))
}

/// A build in an empty target directory.
fn cold(target: &Path, arguments: &[&str]) -> Outcome {
    if target.exists() {
        std::fs::remove_dir_all(target)
            .map_err(|error| format!("cannot empty {}: {error}", target.display()))?;
    }
    timed(cargo(arguments).env("CARGO_TARGET_DIR", target))
}

/// The tests of the controllers, after one of them has changed.
fn change(target: &Path) -> Outcome {
    let test = || {
        let mut command = cargo(["test", "--locked", "--package", "plumb-controllers"]);
        command.env("CARGO_TARGET_DIR", target);
        command
    };
    run(test().arg("--no-run"))?;
    let file = root().join("crates/controllers/src/deployment.rs");
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    // A function that no other build of this workspace has had.
    let seconds = std::time::UNIX_EPOCH.elapsed().map_or(0, |elapsed| elapsed.as_secs());
    let changed = format!("{text}\n/// A change.\npub fn changed() -> u64 {{\n    {seconds}\n}}\n");
    std::fs::write(&file, changed).map_err(|error| format!("{}: {error}", file.display()))?;
    let measured = timed(&mut test());
    std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    measured
}

/// Runs a command, and prints how long it took on the wall and on the processors.
fn timed(command: &mut Command) -> Outcome {
    let (began, before) = (Instant::now(), cpu_seconds());
    run(command)?;
    let wall = began.elapsed().as_secs_f64();
    let cpu = cpu_seconds()
        .zip(before)
        .map_or_else(String::new, |(after, before)| format!(", {:.0} s of CPU", after - before));
    println!("{wall:.0} s{cpu}");
    Ok(())
}

/// What all processes that were waited for have used of the processors: fields 16 and 17 of `/proc/self/stat`, in
/// hundredths of a second.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let user: u32 = fields.nth(13)?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some(f64::from(user + system) / 100.0)
}
