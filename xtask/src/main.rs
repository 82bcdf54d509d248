//! The commands of every day. `cargo xtask` without arguments lists them.
//!
//! Each prints the commands that it runs, so that one can see what it stands for and go on from there.

mod build_times;
mod features;
mod run;
mod site;
mod tasks;

use std::process::ExitCode;

use run::Outcome;

/// A command.
struct Task {
    name: &'static str,
    arguments: &'static str,
    /// What it does, in a line; then what else there is to know of it.
    about: &'static [&'static str],
    run: fn(&[String]) -> Outcome,
}

const TASKS: &[Task] = &[
    Task {
        name: "test",
        arguments: "CRATE [FILTER]… [-- ARG…]",
        about: &[
            "the tests of one crate",
            "CRATE with or without `plumb-`. FILTER is part of a test's name; arguments after `--` are the test program's.",
            "cargo xtask test controllers deployment",
        ],
        run: tasks::test,
    },
    Task {
        name: "check",
        arguments: "CRATE",
        about: &[
            "formatting, clippy and tests of one crate, as `.ci/run` has them",
            "cargo xtask check scheduler",
        ],
        run: tasks::check,
    },
    Task {
        name: "conformance",
        arguments: "virtual|builtin|kubernetes|KUBECONFIG [ARG]…",
        about: &[
            "the table of resize cases against a cluster",
            "virtual and builtin start `plumb up` in both dialects; builtin takes root, kubernetes `testbed obtain` as well.",
            "With a kubeconfig the arguments are those of `plumb-conformance`; it tests a cluster that runs already.",
            "cargo xtask conformance plumb-data/kubeconfig --target virtual --only 'deferred-*'",
        ],
        run: tasks::conformance,
    },
    Task {
        name: "bench",
        arguments: "GROUP|CRATE [ARG]…",
        about: &[
            "one group of benchmarks",
            "node, api, workloads, lists, objects: beside Kubernetes (bench/compare, takes root).",
            "scheduling, decisions, deployment, idle: many virtual nodes (bench/virtual).",
            "A crate with `benches/` (apischema, apiserver, resize, runtime, scheduler, store): its own, without a cluster.",
            "cargo xtask bench api --rounds 1",
        ],
        run: tasks::bench,
    },
    Task {
        name: "regenerate",
        arguments: "[NAME]…",
        about: &[
            "writes generated files anew: pages, tables, the chart, recordings",
            "schema, conformance, chart, fields, annotations: take Rust alone.",
            "demo, startup-boost: only if named. They record a terminal session with `plumb up`, and a slow start.",
        ],
        run: tasks::regenerate,
    },
    Task {
        name: "verify",
        arguments: "[NAME]…",
        about: &["fails if a generated file is not what `regenerate` writes"],
        run: tasks::verify,
    },
    Task {
        name: "dist",
        arguments: "[--binary ARCH=FILE]… [--out DIR]",
        about: &[
            "builds what is released, in dist/: static binaries, .deb, .rpm, image, chart, checksums",
            "Takes Python 3, dpkg-deb and rpmbuild; docs/releasing.md has the rest.",
            "cargo xtask dist --binary x86_64=target/release/plumb",
        ],
        run: tasks::dist,
    },
    Task {
        name: "site",
        arguments: "",
        about: &[
            "builds the documents as a site with search, in target/site",
            "Builds a pinned mdBook the first time, in two minutes, and keeps it in the user's cache.",
        ],
        run: site::build,
    },
    Task {
        name: "features",
        arguments: "",
        about: &[
            "fails if building one crate and building all of them need different builds of a dependency",
            "If it fails, dependencies are compiled once more by each `cargo … -p`. CONTRIBUTING.md says what to do.",
        ],
        run: features::check,
    },
    Task {
        name: "tidy",
        arguments: "[FILTER]…",
        about: &[
            "the rules that the whole workspace follows: layout of crates and files, words, documents",
            "The rules are tests in xtask/tests/tidy. FILTER is part of a test's name.",
        ],
        run: tasks::tidy,
    },
    Task {
        name: "build-times",
        arguments: "release|tests|change…",
        about: &[
            "measures cold builds, and the build after a change in one controller",
            "In a target directory of its own, which is removed afterwards. Prints wall-clock and CPU time.",
        ],
        run: build_times::measure,
    },
    Task {
        name: "ci",
        arguments: "[fast|full|nightly|STEP…]",
        about: &["what must hold before a change lands (.ci/run)", "cargo xtask ci fast"],
        run: tasks::ci,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (name, rest) = match arguments.split_first() {
        None => return help(None),
        Some((name, rest)) if matches!(name.as_str(), "help" | "--help" | "-h") => {
            return help(rest.first().map(String::as_str));
        }
        Some((name, rest)) => (name.as_str(), rest),
    };
    let Some(task) = TASKS.iter().find(|task| task.name == name) else {
        eprintln!("there is no command `{name}`; `cargo xtask help` lists them");
        return ExitCode::FAILURE;
    };
    if rest.iter().any(|argument| matches!(argument.as_str(), "--help" | "-h")) {
        return help(Some(name));
    }
    match (task.run)(rest) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("cargo xtask {name}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn help(name: Option<&str>) -> ExitCode {
    let asked: Vec<&Task> = TASKS.iter().filter(|task| name.is_none_or(|name| name == task.name)).collect();
    match (name, asked.is_empty()) {
        (Some(name), true) => {
            eprintln!("there is no command `{name}`; `cargo xtask help` lists them");
            return ExitCode::FAILURE;
        }
        (None, _) => println!("The commands of every day. `cargo xtask help COMMAND` says more of one.\n"),
        _ => {}
    }
    for task in asked {
        println!("cargo xtask {} {}", task.name, task.arguments);
        let said = if name.is_some() { task.about } else { &task.about[..1] };
        for line in said {
            println!("    {line}");
        }
    }
    ExitCode::SUCCESS
}
