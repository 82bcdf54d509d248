//! `plumb install` and `plumb uninstall`: Plumb's controllers on a Kubernetes that runs elsewhere.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use clap::{Args, Parser as _};
use plumb_cluster::announce;
use plumb_cluster::features;
use plumb_install::apply::{ApplyError, Mode, apply};
use plumb_install::uninstall::{Removal, UninstallError, UninstallOutcome, uninstall};
use plumb_install::{Component, Options, check_parts, manifests, yaml};
use plumb_validation::names::dns_label;

use crate::cli::Cli;
use crate::client::{Target, block_on, refusal, write_out};

/// The namespace of an installation.
const NAMESPACE: &str = "plumb-system";

/// Print the manifests of Plumb's controllers for a Kubernetes cluster, or apply them.
///
/// Recommender, updater, admission webhook and rollout controllers, with the definitions of their custom resources, each
/// with a role that has only the permissions it needs. Without --apply and --dry-run the command contacts no cluster.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    plumb install --image registry.example.com/plumb:0.1.0 | kubectl apply -f -\n  \
    plumb install --apply\n  \
    plumb install --apply --replace-vpa --dry-run\n  \
    plumb install --components autoscaler | kubectl apply -f -\n  \
    plumb install --components recommender --replicas 1 --arg recommender=--cap-by-quota")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct Install {
    /// The namespace of the controllers. The manifests create it, unless it is one that every cluster has.
    #[arg(short, long, value_name = "NAME", default_value = NAMESPACE, value_parser = namespace)]
    namespace: String,
    /// The image of plumb. [default: localhost/plumb with this version, which has to be imported on every node]
    #[arg(long, value_name = "IMAGE", value_parser = image)]
    image: Option<String>,
    /// The components to install, separated by commas. `autoscaler` is recommender, updater and admission in one process, which
    /// takes the least memory.
    #[arg(
        long,
        value_name = "COMPONENTS",
        value_delimiter = ',',
        default_value = "recommender,updater,admission,rollout"
    )]
    components: Vec<Component>,
    /// How many pods each component has, at least 1; `autoscaler` has one.
    #[arg(long, value_name = "N", default_value = "2", value_parser = replicas)]
    replicas: i32,
    /// Feature gates of all components; `plumb run all --help` lists them.
    #[arg(long, value_name = "A=true,B=false", default_value = "", hide_default_value = true, value_parser = known_gates)]
    feature_gates: String,
    /// A further flag of a component, such as `recommender=--cap-by-quota`. May be given several times.
    #[arg(long = "arg", value_name = "COMPONENT=FLAG", value_parser = extra_arg)]
    args: Vec<(Component, String)>,
    /// Have a Prometheus operator scrape the components: a `ServiceMonitor` and a Service.
    #[arg(long)]
    service_monitor: bool,
    /// Leave the definitions of custom resources out.
    #[arg(long)]
    without_crds: bool,
    /// Apply the manifests to the cluster instead of printing them. May be repeated.
    #[arg(long)]
    apply: bool,
    /// With --apply: have the API server check everything, and store nothing.
    #[arg(long, requires = "apply")]
    dry_run: bool,
    /// With --apply: take over from a running Vertical Pod Autoscaler. Its Deployments are scaled to zero; VPAs,
    /// checkpoints and the name of the webhook configuration stay as they are.
    #[arg(long, requires = "apply")]
    replace_vpa: bool,
    #[command(flatten)]
    target: Target,
}

/// Remove the objects of `plumb install` from a cluster.
///
/// VPAs, their checkpoints and the definitions of custom resources stay, no pod is evicted, and a Vertical Pod
/// Autoscaler that was replaced gets its replicas back. Workloads that an in-place rollout holds are released: their
/// own controllers recreate the pods that were not resized yet.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    plumb uninstall --dry-run\n  \
    plumb uninstall")]
pub(crate) struct Uninstall {
    /// The namespace of the controllers.
    #[arg(short, long, value_name = "NAME", default_value = NAMESPACE, value_parser = namespace)]
    namespace: String,
    /// Uninstall though there are VPAs that a returning Vertical Pod Autoscaler would refuse.
    #[arg(long)]
    force: bool,
    /// Remove the definitions of custom resources that Plumb made, and with them every VPA, checkpoint, policy and
    /// `CloneSet`.
    #[arg(long)]
    delete_crds: bool,
    /// Print what would be removed.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    target: Target,
}

/// A namespace that can exist.
fn namespace(text: &str) -> anyhow::Result<String> {
    match dns_label(text).into_iter().next() {
        Some(why) => bail!(why),
        None => Ok(text.to_owned()),
    }
}

fn image(text: &str) -> anyhow::Result<String> {
    if text.is_empty() || text.contains(char::is_whitespace) {
        bail!("an image has a name without blanks, such as registry.example.com/plumb:0.1.0");
    }
    Ok(text.to_owned())
}

fn replicas(text: &str) -> anyhow::Result<i32> {
    match text.parse::<i32>().context("it is no number of pods")? {
        replicas if replicas < 1 => bail!(
            "a component needs at least one pod; --components says which are installed, and `plumb uninstall` removes them"
        ),
        replicas => Ok(replicas),
    }
}

fn known_gates(text: &str) -> anyhow::Result<String> {
    features::parse(text)?;
    Ok(text.to_owned())
}

fn extra_arg(text: &str) -> anyhow::Result<(Component, String)> {
    let (component, flag) = text.split_once('=').context("write COMPONENT=FLAG")?;
    Ok((component.parse()?, flag.to_owned()))
}

impl Install {
    fn options(&self) -> Options {
        let mut components = self.components.clone();
        components.sort_unstable();
        components.dedup();
        let mut extra_args: BTreeMap<Component, Vec<String>> = BTreeMap::new();
        for (component, flag) in &self.args {
            extra_args.entry(*component).or_default().push(flag.clone());
        }
        let default = Options::default();
        Options {
            namespace: self.namespace.clone(),
            image: self.image.clone().unwrap_or(default.image),
            components,
            replicas: self.replicas,
            crds: !self.without_crds,
            service_monitor: self.service_monitor,
            feature_gates: self.feature_gates.clone(),
            extra_args,
        }
    }
}

/// Checks the components, and their command lines, to which --arg adds flags that the component may refuse.
fn check(options: &Options) -> anyhow::Result<()> {
    check_parts(&options.components).context("--components")?;
    for (component, extra) in &options.extra_args {
        // What the manifests add are flags that are known.
        let line = ["plumb", "run", component.command()].into_iter().chain(extra.iter().map(String::as_str));
        if let Err(error) = Cli::try_parse_from(line) {
            let error = error.to_string();
            let first = error.lines().next().unwrap_or_default();
            bail!("--arg {}={}: {}", component.name(), extra.join(" "), first.trim_start_matches("error: "));
        }
    }
    Ok(())
}

/// Prints or applies the manifests.
pub(crate) fn install(args: Install) -> anyhow::Result<()> {
    let options = args.options();
    check(&options)?;
    if !args.apply {
        let text = yaml(&manifests(&options)).context("writing YAML")?;
        return write_out(&text);
    }
    let mode = Mode { dry_run: args.dry_run, replace_vpa: args.replace_vpa };
    let suffix = if args.dry_run { " (dry run)" } else { "" };
    block_on(async {
        let (_, client) = args.target.config().await?;
        let mut report = |what: &str, change: plumb_install::apply::Change| {
            announce!("{what} {}{suffix}", change.word());
        };
        apply(&client, &options, mode, &mut report).await.map_err(explained)
    })
}

/// Removes what was installed.
pub(crate) fn remove(args: Uninstall) -> anyhow::Result<()> {
    let removal = Removal {
        namespace: args.namespace,
        force: args.force,
        delete_crds: args.delete_crds,
        dry_run: args.dry_run,
    };
    let suffix = if args.dry_run { " (dry run)" } else { "" };
    block_on(async {
        let (_, client) = args.target.config().await?;
        let mut report = |what: &str, done: &str| announce!("{what} {done}{suffix}");
        let outcome = uninstall(&client, &removal, &mut report).await.map_err(|error| match error {
            UninstallError::Request(error) => explained(error),
            refused => anyhow::Error::new(refused),
        })?;
        if outcome == UninstallOutcome::NotInstalled {
            let namespace = &removal.namespace;
            announce!(
                "not installed in namespace {namespace} of this cluster: nothing to remove (--namespace names another)"
            );
        }
        Ok(())
    })
}

/// The message of the API server, without the wrapping of the client.
fn explained(error: ApplyError) -> anyhow::Error {
    match error {
        ApplyError::Request { doing, what, source } => refusal(source).context(format!("{doing} {what}")),
        other => anyhow::Error::new(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn containers(objects: &[kube::core::DynamicObject]) -> Vec<Value> {
        let deployments = objects
            .iter()
            .filter(|object| object.types.as_ref().is_some_and(|types| types.kind == "Deployment"));
        deployments.map(|object| object.data["spec"]["template"]["spec"]["containers"][0].clone()).collect()
    }

    #[test]
    fn the_arguments_of_every_deployment_are_a_command_line_that_is_taken() {
        let options = Options { feature_gates: "InPlace=true".to_owned(), ..Options::default() };
        let containers = containers(&manifests(&options));
        assert_eq!(containers.len(), options.components.len());
        for container in containers {
            let args = container["args"].as_array().expect("there are arguments");
            let args: Vec<&str> = args.iter().filter_map(Value::as_str).collect();
            let read = Cli::try_parse_from([&["plumb"], &args[..]].concat());
            if let Err(error) = read {
                panic!("plumb {}: {error}", args.join(" "));
            }
        }
    }

    #[test]
    fn a_flag_that_its_component_does_not_know_is_refused() {
        let options = |args: &[&str]| {
            let line = [&["plumb", "install"], args].concat();
            let cli = Cli::try_parse_from(line).expect("it is COMPONENT=FLAG");
            let crate::cli::Command::Install(args) = cli.command else { panic!("another command") };
            args.options()
        };
        let known = ["--arg", "recommender=--cap-by-quota", "--arg", "updater=--min-replicas=1"];
        assert!(check(&options(&known)).is_ok());
        assert!(
            check(&options(&["--arg", "updater=--min-replicas", "--arg", "updater=1"])).is_ok(),
            "a value may be an argument of its own"
        );
        for flag in ["recommender=--nope", "updater=--cap-by-quota", "updater=--min-replicas=many"] {
            let refused = check(&options(&["--arg", flag])).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("--arg {flag}: ")), "{refused}");
        }
    }

    #[test]
    fn an_installation_that_cannot_run_is_refused_by_its_flags() {
        for (flag, value, expected) in [
            ("--image", "", "an image has a name"),
            ("--image", "plumb 1", "an image has a name"),
            ("--replicas", "0", "a component needs at least one pod"),
            ("--replicas", "-1", "a component needs at least one pod"),
            ("--replicas", "two", "it is no number of pods"),
            ("--namespace", "Bad_NS", "must consist of lower case alphanumeric characters"),
        ] {
            let error = Cli::try_parse_from(["plumb", "install", &format!("{flag}={value}")]).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            let error = error.to_string();
            assert!(error.contains(expected) && error.contains(flag), "{error}");
        }
    }

    #[test]
    fn the_default_of_the_flags_is_that_of_the_options() {
        let cli = Cli::try_parse_from(["plumb", "install"]).expect("no flag is required");
        let crate::cli::Command::Install(args) = cli.command else { panic!("another command") };
        assert_eq!(args.options(), Options::default());
    }
}
