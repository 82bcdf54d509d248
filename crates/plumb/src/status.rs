//! `plumb status`: desired, allocated and actual resources of pods, and their resizes; recommendations of VPAs; the
//! progress of rollouts.

pub(crate) mod explanations;
pub(crate) mod listing;
pub(crate) mod usage;
pub(crate) mod vpa;
pub(crate) mod watch;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{anyhow, bail};
use clap::{Args, Parser};
use clap_complete::engine::ArgValueCompleter;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use plumb_client::Api;
use plumb_cluster::say;
use plumb_vpa_explain::BoostView;
use serde_json::Value;

use listing::{Form, Listing, Live};
use usage::Usage;

use crate::client::{self, Cluster, Output, POD_WORDS, block_on, print, workload_kind, write_out};
use crate::recommender_flags::Tuning;
use crate::rollout::{self, Workload};
use crate::{completion, reading};

/// Show the actual and the desired cpu and memory of containers (request/limit) and the state of their resize; what VPAs
/// recommend, and why; or the progress of the in-place rollout of a workload.
///
/// For one pod it exits as `plumb resize` does: 0 when the resize is applied, 3 deferred, 4 infeasible, 5 in progress.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    plumb status\n  \
    plumb status pod/web -o wide\n  \
    plumb status --watch\n  \
    plumb status --watch -o json\n  \
    plumb status vpa -A\n  \
    plumb status vpa/web --explain\n  \
    plumb status deploy/web --watch")]
pub(crate) struct Status {
    /// A pod (`web`, `pod/web`), all pods (`pods`), a VPA (`vpa/web`), all VPAs (`vpa`), or a workload (`deploy/web`,
    /// `sts/db`, `ds/agent`). [default: pods]
    #[arg(value_name = "OBJECT", add = ArgValueCompleter::new(completion::of_status))]
    object: Option<Object>,
    /// Objects of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// Only objects with these labels, such as app=web.
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    selector: Option<String>,
    /// Print where the recommendations of VPAs come from, too: samples, percentiles, confidence, limits, histograms. It
    /// is computed here from the VPA's checkpoints, whichever recommender has written them.
    #[arg(long)]
    explain: bool,
    /// The flags of the recommender that are not at their defaults, for --explain, as one argument such
    /// as '--target-cpu-percentile=0.95 --round-memory-bytes=1048576'.
    #[arg(long, value_name = "FLAGS", requires = "explain", allow_hyphen_values = true, value_parser = tuning)]
    recommender_flags: Option<Tuning>,
    /// The output format.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Output>,
    /// Redraw pods or VPAs when they change, until Ctrl-C; where standard output is no terminal, print those that change,
    /// with -o json each as an object on a line of its own. Of a workload: print its rollout until it ends.
    #[arg(short, long, value_name = "true|false", default_value = "false", hide_default_value = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    watch: bool,
    #[command(flatten)]
    cluster: Cluster,
}

/// The subject of the status.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Object {
    /// A pod by its name.
    Pod(String),
    /// All pods.
    Pods,
    /// A VPA by its name.
    Vpa(String),
    /// All VPAs.
    Vpas,
    /// A workload whose pods are resized in place.
    Workload(Workload),
}

impl FromStr for Object {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        const VPA: [&str; 4] = ["vpa", "vpas", "verticalpodautoscaler", "verticalpodautoscalers"];
        let is_vpa = |kind: &str| VPA.contains(&kind.split('.').next().unwrap_or(kind));
        Ok(match text.split_once('/') {
            Some((kind, "")) if !kind.is_empty() => bail!("the name is missing: write {kind}/NAME"),
            Some((kind, name)) if is_vpa(kind) => Self::Vpa(name.to_owned()),
            None if is_vpa(text) => Self::Vpas,
            None if POD_WORDS.contains(&text) => Self::Pods,
            Some((kind, name)) if POD_WORDS.contains(&kind) => Self::Pod(name.to_owned()),
            Some((kind, _)) => match text.parse() {
                Ok(workload) => Self::Workload(workload),
                Err(_) if kind.is_empty() => bail!("the kind is missing: write pod/NAME"),
                Err(error) => bail!("{error}; a pod is pod/NAME or NAME, a VPA is vpa/NAME"),
            },
            None => match workload_kind(text) {
                Some((_, word)) => bail!("write {word}/NAME; a pod of that name is pod/{text}"),
                None => Self::Pod(text.to_owned()),
            },
        })
    }
}

/// Reads flags of the recommender that are one argument.
fn tuning(text: &str) -> anyhow::Result<Tuning> {
    #[derive(Debug, Parser)]
    #[command(no_binary_name = true, disable_help_flag = true)]
    struct Flags {
        #[command(flatten)]
        tuning: Tuning,
    }
    let read = Flags::try_parse_from(text.split_whitespace());
    // The first line of clap's message is the error; the rest is usage.
    let wrong = |error: clap::Error| anyhow!(error.to_string().lines().next().unwrap_or_default().to_owned());
    read.map(|flags| flags.tuning).map_err(wrong)
}

impl Status {
    /// The error for flags that are valid by themselves and not together.
    pub(crate) fn conflict(&self) -> Option<&'static str> {
        let one = matches!(self.object, Some(Object::Pod(_) | Object::Vpa(_) | Object::Workload(_)));
        let of_vpas = matches!(self.object, Some(Object::Vpa(_) | Object::Vpas));
        if one && (self.all_namespaces || self.selector.is_some()) {
            return Some("--all-namespaces and --selector are for several objects, not for one by its name");
        }
        if self.watch && self.output == Some(Output::Name) {
            return Some("--watch prints more than names: leave -o name out");
        }
        let of_workload = matches!(self.object, Some(Object::Workload(_)));
        if self.watch && of_workload && !matches!(self.output, None | Some(Output::Wide)) {
            return Some(
                "--watch prints the lines of a rollout; `plumb rollout status -o json` waits for its end",
            );
        }
        if self.watch && self.explain {
            return Some("--explain is printed once: leave --watch out");
        }
        (self.explain && !of_vpas).then_some("--explain is for VPAs: plumb status vpa/NAME --explain")
    }
}

pub(crate) fn run(args: Status) -> anyhow::Result<ExitCode> {
    block_on(status(args))
}

async fn status(args: Status) -> anyhow::Result<ExitCode> {
    let (client, namespace) = args.cluster.connect().await?;
    if let Some(Object::Vpa(_) | Object::Vpas) = &args.object {
        if args.watch {
            return watch::vpas(client, &namespace, &args).await;
        }
        return vpa::status(&args, client, &namespace).await;
    }
    if let Some(Object::Workload(workload)) = &args.object {
        return rollout::show(client, &namespace, workload, args.watch, args.output).await;
    }
    if args.watch {
        return watch::pods(client, &namespace, &args).await;
    }
    let api: Api<Pod> = args.api(&client, &namespace);
    if let Some(Object::Pod(name)) = &args.object {
        let pod = match api.get(name).await {
            Err(error) => return Err(client::refusal_in(&client, &namespace, error).await),
            Ok(pod) => pod,
        };
        let code = reading::exit_code(&reading::of(&pod)?.stage);
        show(&client, &namespace, &[pod], &args).await?;
        return Ok(code);
    }
    let wanted = ListParams { label_selector: args.selector.clone(), ..ListParams::default() };
    let pods = api.list(&wanted).await.map_err(client::refusal)?.items;
    if pods.is_empty() && !args.all_namespaces {
        client::check_namespace(&client, &namespace).await?;
    }
    if pods.is_empty() && args.output.is_none() {
        say!("no pods in {}", args.place(&namespace));
    } else {
        show(&client, &namespace, &pods, &args).await?;
    }
    Ok(ExitCode::SUCCESS)
}

impl Status {
    /// The objects that the command is about: of the namespace, or of all.
    fn api<K>(&self, client: &Client, namespace: &str) -> Api<K>
    where
        K: kube::Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        if self.all_namespaces {
            Api::all(client.clone())
        } else {
            Api::namespaced(client.clone(), namespace)
        }
    }

    /// The only namespace that the command is about, if it is not about all.
    fn only<'a>(&self, namespace: &'a str) -> Option<&'a str> {
        (!self.all_namespaces).then_some(namespace)
    }

    /// Which columns tables have.
    fn form(&self) -> Form {
        Form { with_namespace: self.all_namespaces, wide: self.output == Some(Output::Wide) }
    }

    /// Whether the command is about one VPA.
    fn is_of_one_vpa(&self) -> bool {
        matches!(self.object, Some(Object::Vpa(_)))
    }

    /// The searched namespace.
    fn place(&self, namespace: &str) -> String {
        if self.all_namespaces { "the cluster".to_owned() } else { format!("namespace {namespace:?}") }
    }
}

async fn show(client: &Client, namespace: &str, pods: &[Pod], args: &Status) -> anyhow::Result<()> {
    if args.output == Some(Output::Name) {
        let names = pods.iter().filter_map(|pod| pod.metadata.name.as_deref());
        return names.map(|name| format!("pod/{name}\n")).try_for_each(|line| write_out(&line));
    }
    let usage = Usage::read(client, args.only(namespace));
    let (boosts, usage) = tokio::join!(vpa::pods::boosts(client, pods), usage);
    if let Some(output @ (Output::Json | Output::Yaml)) = args.output {
        let values = pods.iter().zip(&boosts).map(|(pod, boosts)| value(pod, boosts, Some(&usage)));
        let values = values.collect::<anyhow::Result<Vec<Value>>>()?;
        return match <[Value; 1]>::try_from(values) {
            Ok([one]) if matches!(args.object, Some(Object::Pod(_))) => print(&one, output),
            Ok(one) => print(&Value::Array(one.into()), output),
            Err(several) => print(&Value::Array(several), output),
        };
    }
    let live = Live { usage: &usage, now: Timestamp::now() };
    let listing = Listing::of(pods, args.form(), Some(live))?;
    write_out(&(listing.text() + &boost_lines(pods.iter().zip(&boosts))))?;
    if let (Some(Object::Pod(_)), [pod]) = (&args.object, pods) {
        write_out(&explanations::explanations(client, pod).await)?;
    }
    Ok(())
}

/// A pod for programs.
fn value(pod: &Pod, boosts: &[BoostView], usage: Option<&Usage>) -> anyhow::Result<Value> {
    let mut value = reading::to_json(pod, &reading::of(pod)?);
    value["boosts"] = boosts.iter().map(BoostView::json).collect();
    if let (Some(usage), Some(containers)) = (usage, value["containers"].as_array_mut()) {
        for container in containers {
            let used = container["name"].as_str().and_then(|name| usage.of(pod, name));
            container["used"] = used.as_ref().map_or(Value::Null, reading::list);
        }
    }
    Ok(value)
}

/// The boosts of pods, a line for each.
pub(crate) fn boost_lines<'a>(pods: impl IntoIterator<Item = (&'a Pod, &'a Vec<BoostView>)>) -> String {
    let mut text = String::new();
    for (pod, boosts) in pods {
        for boost in boosts {
            if text.is_empty() {
                text.push('\n');
            }
            // Writing to a string does not fail.
            let _ = writeln!(text, "{}: {boost}", pod.metadata.name.as_deref().unwrap_or_default());
        }
    }
    text
}

/// A pod with all its values, and below it why its resize is not applied.
pub(crate) fn wide(pod: &Pod) -> anyhow::Result<String> {
    let form = Form { with_namespace: false, wide: true };
    Ok(Listing::of([pod], form, None)?.text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_a_pod_unless_its_kind_says_otherwise() {
        for (text, expected) in [
            ("web", Object::Pod("web".to_owned())),
            ("pod/vpa", Object::Pod("vpa".to_owned())),
            ("pods", Object::Pods),
            ("pod/deploy", Object::Pod("deploy".to_owned())),
            ("vpa", Object::Vpas),
            ("verticalpodautoscalers.autoscaling.k8s.io", Object::Vpas),
            ("vpa/web", Object::Vpa("web".to_owned())),
            ("verticalpodautoscaler.autoscaling.k8s.io/web", Object::Vpa("web".to_owned())),
            ("cloneset/web", Object::Workload("cloneset.apps.kruise.io/web".parse().unwrap())),
        ] {
            assert_eq!(text.parse::<Object>().unwrap(), expected, "{text}");
        }
        for text in ["pod/", "job/web", "/web"] {
            let refused = text.parse::<Object>().unwrap_err().to_string();
            assert!(refused.contains("pod/NAME"), "{text}: {refused}");
        }
    }

    #[test]
    fn a_kind_without_a_name_is_no_pod() {
        for (text, words) in [
            ("deploy", "write deploy/NAME"),
            ("deploy/", "write deploy/NAME"),
            ("vpa/", "write vpa/NAME"),
            ("statefulsets", "write sts/NAME"),
        ] {
            let refused = text.parse::<Object>().unwrap_err().to_string();
            assert!(refused.contains(words), "{text}: {refused}");
        }
    }

    #[test]
    fn flags_of_the_recommender_are_read_from_one_argument() {
        let flags = tuning("--target-cpu-percentile=0.95 --round-memory-bytes 1048576").unwrap();
        assert!((flags.estimation().percentiles.cpu.target - 0.95).abs() < f64::EPSILON);
        assert_eq!(flags.estimation().round_up_to.memory, 1_048_576);
        assert!(tuning("").is_ok());
        assert!(tuning("--target-cpu-percentile=95").unwrap_err().to_string().contains("from 0 to 1"));
    }
}
