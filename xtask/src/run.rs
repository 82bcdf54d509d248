//! Programs that are run, and where.

use std::path::Path;
use std::process::Command;

use xtask::repository::root;

/// Whether a command did what it says, or why not.
pub(crate) type Outcome = Result<(), String>;

/// The cargo that runs this, in the root of the workspace.
pub(crate) fn cargo<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// A script of the repository, in the root of the workspace.
pub(crate) fn script(path: &str) -> Command {
    let mut command = Command::new(root().join(path));
    command.current_dir(root());
    command
}

/// Runs a command to its end, and shows which one it is.
pub(crate) fn run(command: &mut Command) -> Outcome {
    let shown = shown(command);
    eprintln!("+ {shown}");
    let status = command.status().map_err(|error| format!("cannot start `{shown}`: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("`{shown}` failed: {status}")) }
}

/// A command as one would type it.
fn shown(command: &Command) -> String {
    let variables = command
        .get_envs()
        .filter_map(|(name, value)| Some(format!("{}={}", name.display(), value?.display())));
    let program = Path::new(command.get_program());
    let program = program.strip_prefix(root()).unwrap_or(program);
    let program =
        if program.is_absolute() { program.file_name().map_or(program, Path::new) } else { program };
    let words = command.get_args().map(|word| {
        let word = word.display().to_string();
        let plain =
            !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=,+".contains(c));
        if plain { word } else { format!("'{word}'") }
    });
    variables.chain([program.display().to_string()]).chain(words).collect::<Vec<_>>().join(" ")
}

/// The name of the package that is meant, with or without `plumb-`.
pub(crate) fn package(name: &str) -> Result<String, String> {
    let folder = name.strip_prefix("plumb-").unwrap_or(name);
    let manifest = root().join("crates").join(folder).join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).map_err(|_| {
        let mut known: Vec<String> = crates().iter().map(|(folder, _)| folder.clone()).collect();
        known.sort_unstable();
        format!("there is no crate `{name}`; there are {}", known.join(", "))
    })?;
    name_in(&text).ok_or_else(|| format!("{} names no package", manifest.display()))
}

/// Every crate: its folder below `crates` and the name of its package.
pub(crate) fn crates() -> Vec<(String, String)> {
    let Ok(folders) = std::fs::read_dir(root().join("crates")) else { return Vec::new() };
    let mut crates: Vec<_> = folders
        .flatten()
        .filter_map(|folder| {
            let text = std::fs::read_to_string(folder.path().join("Cargo.toml")).ok()?;
            Some((folder.file_name().into_string().ok()?, name_in(&text)?))
        })
        .collect();
    crates.sort_unstable();
    crates
}

fn name_in(manifest: &str) -> Option<String> {
    let line = manifest.lines().find_map(|line| line.strip_prefix("name = \""))?;
    line.strip_suffix('"').map(ToOwned::to_owned)
}
