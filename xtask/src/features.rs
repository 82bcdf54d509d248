//! Whether every dependency has the same features whichever crates are built.
//!
//! cargo chooses the features of a dependency by what the selected packages ask of it. If one crate asks for more than
//! another, `cargo test --workspace` and `cargo test -p` of the other need two builds of that dependency, and of
//! everything above it: minutes. So the features are declared once, in `[workspace.dependencies]`, and what
//! dependencies ask of each other is evened out in `crates/workspace-hack`. This compares what cargo resolves.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::run::{Outcome, cargo, crates};

/// A dependency, and its features. A dependency of macros and build scripts may be there twice.
type Resolved = BTreeSet<(String, String)>;

/// Compares each crate, built and tested alone, with all of them tested together.
pub(crate) fn check(_: &[String]) -> Outcome {
    let together = resolve(&["--workspace"], "normal,build,dev")?;
    let mut differing: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
    let mut note = |selection: &str, resolved: Resolved| {
        for one in resolved.difference(&together) {
            differing.entry(one.clone()).or_default().push(selection.to_owned());
        }
    };
    note("build --workspace", resolve(&["--workspace"], "normal,build")?);
    for (_, package) in crates() {
        note(&format!("build -p {package}"), resolve(&["--package", &package], "normal,build")?);
        note(&format!("test -p {package}"), resolve(&["--package", &package], "normal,build,dev")?);
    }
    if differing.is_empty() {
        println!("{} dependencies, the same whichever crates are built", together.len());
        return Ok(());
    }
    let mut report = String::from("these dependencies are built twice:\n");
    for ((name, features), selections) in &differing {
        let others =
            together.iter().filter(|(other, _)| other == name).map(|(_, features)| features.as_str());
        let others = others.collect::<Vec<_>>().join("] or [");
        let more =
            if selections.len() > 1 { format!(" and {} more", selections.len() - 1) } else { String::new() };
        let _ = writeln!(report, "  {name}\n    cargo {}{more}: [{features}]", selections[0]);
        let _ = writeln!(report, "    cargo test --workspace: [{others}]");
    }
    Err(report)
}

/// What cargo resolves for a selection of packages.
fn resolve(selection: &[&str], edges: &str) -> Result<Resolved, String> {
    let output = cargo(["tree", "--locked", "--prefix", "none", "--format", "{p}|{f}", "--edges", edges])
        .args(selection)
        .output()
        .map_err(|error| format!("cannot start cargo tree: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(parse).collect())
}

/// A line of `cargo tree`: `name v1.2.3 (proc-macro)|feature,feature (*)`. Crates of the workspace have no features.
fn parse(line: &str) -> Option<(String, String)> {
    let (package, features) = line.trim_end_matches(" (*)").split_once('|')?;
    let mut words = package.split(' ');
    let (name, version) = (words.next()?, words.next()?);
    let is_ours = package.contains("(/");
    (!is_ours).then(|| (format!("{name} {version}"), features.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_cargo_tree_are_read() {
        let cases = [
            ("serde v1.0.1|default,std", Some(("serde v1.0.1", "default,std"))),
            ("serde v1.0.1|default,std (*)", Some(("serde v1.0.1", "default,std"))),
            ("serde_derive v1.0.1 (proc-macro)|default", Some(("serde_derive v1.0.1", "default"))),
            ("libc v0.2.1|", Some(("libc v0.2.1", ""))),
            ("plumb-store v0.1.0 (/src/crates/store)|", None),
            ("[dev-dependencies]", None),
            ("", None),
        ];
        for (line, read) in cases {
            let read = read.map(|(name, features)| (name.to_owned(), features.to_owned()));
            assert_eq!(parse(line), read, "{line}");
        }
    }

    #[test]
    fn every_crate_has_the_same_dependencies_alone_as_with_all_others() {
        if let Err(report) = check(&[]) {
            panic!("{report}");
        }
    }
}
