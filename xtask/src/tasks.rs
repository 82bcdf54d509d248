//! The commands that are other commands.

use crate::run::{Outcome, cargo, package, run, script};

/// The tests of one crate.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    let (name, rest) = arguments.split_first().ok_or("say which crate: cargo xtask test controllers")?;
    let package = package(name)?;
    // cargo takes one filter; the test program takes many.
    let (filters, flags) = match rest.iter().position(|argument| argument == "--") {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (rest, &[][..]),
    };
    let mut command = cargo(["test", "--package", &package]);
    if !filters.is_empty() || !flags.is_empty() {
        command.arg("--").args(filters).args(flags);
    }
    run(&mut command)
}

/// What `.ci/run` asks of one crate.
pub(crate) fn check(arguments: &[String]) -> Outcome {
    let [name] = arguments else { return Err("say which crate: cargo xtask check scheduler".to_owned()) };
    let package = package(name)?;
    run(&mut cargo(["fmt", "--package", &package, "--check"]))?;
    run(&mut cargo(["clippy", "--package", &package, "--all-targets", "--", "-D", "warnings"]))?;
    run(&mut cargo(["test", "--package", &package]))
}

/// The table of resize cases against a cluster.
pub(crate) fn conformance(arguments: &[String]) -> Outcome {
    let (target, rest) = arguments
        .split_first()
        .ok_or("say against what: cargo xtask conformance virtual|builtin|kubernetes|KUBECONFIG")?;
    let by_test = |package: &str, test: &str, arguments: &[&str]| {
        if !rest.is_empty() {
            return Err(format!("{target} takes no arguments; start a cluster and name its kubeconfig"));
        }
        run(cargo(["test", "--package", package, "--test", test, "--"]).args(arguments).arg("--nocapture"))
    };
    match target.as_str() {
        "virtual" => by_test("plumb", "it", &["conformance::the_table_holds_for_virtual_pods"]),
        "builtin" => by_test("plumb", "it", &["conformance::the_table_holds_for_real_containers"]),
        "kubernetes" => by_test("plumb-conformance", "conformance", &["--ignored"]),
        kubeconfig => {
            let command = ["run", "--package", "plumb-conformance", "--", "--kubeconfig", kubeconfig];
            run(cargo(command).args(rest))
        }
    }
}

/// One group of benchmarks.
pub(crate) fn bench(arguments: &[String]) -> Outcome {
    let (what, rest) = arguments.split_first().ok_or("say what: cargo xtask bench api")?;
    match what.as_str() {
        "node" | "api" | "workloads" | "lists" | "objects" => {
            run(script("bench/compare").args(["--only", what]).args(rest))
        }
        "scheduling" | "decisions" | "deployment" | "idle" => {
            run(script("bench/virtual").args(["--only", what]).args(rest))
        }
        name => {
            let package = package(name)?;
            run(cargo(["bench", "--package", &package, "--bench", "*", "--"]).args(rest))
        }
    }
}

/// A generated file: its name, and the commands that write it anew and that compare it.
struct Generated {
    name: &'static str,
    update: fn() -> Outcome,
    verify: fn() -> Outcome,
}

const GENERATED: &[Generated] = &[
    Generated { name: "schema", update: || schema("update"), verify: || schema("verify") },
    Generated {
        name: "conformance",
        update: || run(plan().env("PLUMB_UPDATE", "1")),
        verify: || run(&mut plan()),
    },
    Generated {
        name: "chart",
        update: || run(chart().env("PLUMB_UPDATE", "1")),
        verify: || run(&mut chart()),
    },
    Generated {
        name: "fields",
        update: || run(fields().env("PLUMB_RECORD_FIELDS", "1")),
        verify: || run(&mut fields()),
    },
    Generated {
        name: "annotations",
        update: || run(annotations().env("PLUMB_UPDATE", "1")),
        verify: || run(&mut annotations()),
    },
    Generated {
        name: "metrics",
        update: || run(metrics().env("PLUMB_UPDATE", "1")),
        verify: || run(&mut metrics()),
    },
    Generated {
        name: DEMO,
        update: || run(&mut script("docs/demo/record")),
        verify: || run(script("docs/demo/record").arg("--check")),
    },
    Generated {
        name: STARTUP_BOOST,
        update: || run(&mut script("docs/startup-boost/record")),
        verify: || run(script("docs/startup-boost/record").arg("--check")),
    },
];

const DEMO: &str = "demo";
const STARTUP_BOOST: &str = "startup-boost";

fn schema(verb: &str) -> Outcome {
    run(&mut cargo(["run", "--package", "plumb-apischema", "--example", "table", "--", verb]))
}

fn plan() -> std::process::Command {
    cargo(["test", "--package", "plumb-conformance", "--test", "conformance"])
}

fn chart() -> std::process::Command {
    cargo(["test", "--package", "plumb-install", "--test", "it", "chart::"])
}

fn fields() -> std::process::Command {
    cargo(["test", "--package", "plumb-apiserver", "--test", "it", "fields::"])
}

fn annotations() -> std::process::Command {
    cargo(["test", "--package", "xtask", "--test", "tidy", "annotations::"])
}

fn metrics() -> std::process::Command {
    cargo(["test", "--package", "xtask", "--test", "tidy", "metrics::"])
}

/// Writes generated files anew.
pub(crate) fn regenerate(names: &[String]) -> Outcome {
    // A recording takes a cluster, and differs each time: only if it is asked for.
    let takes_no_cluster = |generated: &Generated| ![DEMO, STARTUP_BOOST].contains(&generated.name);
    each(names, takes_no_cluster, |generated| (generated.update)())
}

/// Compares generated files with what would be written.
pub(crate) fn verify(names: &[String]) -> Outcome {
    each(names, |_| true, |generated| (generated.verify)())
}

fn each(names: &[String], usual: fn(&Generated) -> bool, what: fn(&Generated) -> Outcome) -> Outcome {
    if let Some(unknown) = names.iter().find(|name| GENERATED.iter().all(|one| one.name != **name)) {
        let known: Vec<&str> = GENERATED.iter().map(|generated| generated.name).collect();
        return Err(format!("nothing generated is called `{unknown}`; there are {}", known.join(", ")));
    }
    let wanted = |one: &Generated| {
        if names.is_empty() { usual(one) } else { names.iter().any(|name| name == one.name) }
    };
    GENERATED.iter().filter(|one| wanted(one)).try_for_each(what)
}

/// What is released: packages, archives, image, chart.
pub(crate) fn dist(arguments: &[String]) -> Outcome {
    run(script("packaging/dist").args(arguments))
}

/// The rules that the whole workspace follows. They are tests, so that each has a name and `cargo test --workspace` runs them.
pub(crate) fn tidy(rest: &[String]) -> Outcome {
    run(cargo(["test", "--package", "xtask", "--test", "tidy", "--"]).args(rest))
}

/// Everything that must hold.
pub(crate) fn ci(arguments: &[String]) -> Outcome {
    run(script(".ci/run").args(arguments))
}
