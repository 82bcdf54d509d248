//! `plumb status`: desired, allocated and actual resources of pods, and their resizes; recommendations of VPAs; the
//! progress of rollouts.

mod explanations;
mod vpa;
mod watch;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::{anyhow, bail};
use clap::{Args, Parser};
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use plumb_client::Api;
use plumb_cluster::say;
use plumb_controller_runtime::pods;
use plumb_resize::resource::Resource;
use plumb_resize::status::Values;
use plumb_vpa_explain::{BoostView, printable};
use serde_json::Value;

use crate::client::{self, Cluster, Output, POD_WORDS, block_on, print, workload_kind, write_out};
use crate::reading;
use crate::recommender_flags::Tuning;
use crate::rollout::{self, Workload};

/// The columns with all four values.
const WIDE: [&str; 8] =
    ["CPU DESIRED", "ALLOCATED", "ACTUAL", "MEMORY DESIRED", "ALLOCATED", "ACTUAL", "RESIZE", "NODE"];

/// Show the actual and the desired cpu and memory of containers (request/limit) and the state of their resize; what VPAs
/// recommend, and why; or the progress of the in-place rollout of a workload.
///
/// For one pod it exits as `plumb resize` does: 0 when the resize is applied, 3 deferred, 4 infeasible, 5 in progress.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    plumb status\n  \
    plumb status pod/web -o wide\n  \
    plumb status --watch\n  \
    plumb status vpa -A\n  \
    plumb status vpa/web --explain\n  \
    plumb status deploy/web --watch")]
pub(crate) struct Status {
    /// A pod (`web`, `pod/web`), all pods (`pods`), a VPA (`vpa/web`), all VPAs (`vpa`), or a workload (`deploy/web`,
    /// `sts/db`, `ds/agent`). [default: pods]
    #[arg(value_name = "OBJECT")]
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
    /// Print pods again when their resources or their resize change, until Ctrl-C; or a rollout, until it ends.
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
        if self.watch && (of_vpas || !matches!(self.output, None | Some(Output::Wide))) {
            return Some("--watch is for pods and rollouts: plumb status [POD] [-o wide] --watch");
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
        return vpa::status(&args, client, &namespace).await;
    }
    if let Some(Object::Workload(workload)) = &args.object {
        return rollout::show(client, &namespace, workload, args.watch, args.output).await;
    }
    if args.watch {
        return watch::run(client, &namespace, &args).await;
    }
    let api: Api<Pod> = args.api(&client, &namespace);
    if let Some(Object::Pod(name)) = &args.object {
        let pod = match api.get(name).await {
            Err(error) => return Err(client::refusal_in(&client, &namespace, error).await),
            Ok(pod) => pod,
        };
        let code = reading::exit_code(&reading::of(&pod)?.stage);
        show(&client, &[pod], &args).await?;
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
        show(&client, &pods, &args).await?;
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

    /// The searched namespace.
    fn place(&self, namespace: &str) -> String {
        if self.all_namespaces { "the cluster".to_owned() } else { format!("namespace {namespace:?}") }
    }
}

async fn show(client: &Client, pods: &[Pod], args: &Status) -> anyhow::Result<()> {
    let boosts = vpa::pods::boosts(client, pods).await;
    match args.output {
        Some(Output::Name) => {
            for pod in pods {
                write_out(&format!("pod/{}\n", pod.metadata.name.as_deref().unwrap_or_default()))?;
            }
        }
        Some(output @ (Output::Json | Output::Yaml)) => {
            let read = pods.iter().zip(&boosts).map(|(pod, boosts)| {
                let mut value = reading::to_json(pod, &reading::of(pod)?);
                value["boosts"] = boosts.iter().map(BoostView::json).collect();
                Ok(value)
            });
            let mut read = read.collect::<anyhow::Result<Vec<Value>>>()?;
            match (matches!(args.object, Some(Object::Pod(_))), read.pop()) {
                (true, Some(one)) => print(&one, output)?,
                (_, last) => {
                    read.extend(last);
                    print(&Value::Array(read), output)?;
                }
            }
        }
        None | Some(Output::Wide) => {
            write_out(&text(pods, &boosts, args)?)?;
            if let (Some(Object::Pod(_)), [pod]) = (&args.object, pods) {
                write_out(&explanations::explanations(client, pod).await)?;
            }
        }
    }
    Ok(())
}

/// Pods as a table, and below it why a resize is not applied and how containers are boosted.
fn text(pods: &[Pod], boosts: &[Vec<BoostView>], args: &Status) -> anyhow::Result<String> {
    let table = table(pods, args.all_namespaces, args.output == Some(Output::Wide))?;
    Ok(table + &boost_lines(pods, boosts))
}

/// The boosts of pods, a line for each.
fn boost_lines(pods: &[Pod], boosts: &[Vec<BoostView>]) -> String {
    let mut text = String::new();
    for (pod, boosts) in pods.iter().zip(boosts) {
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

/// Pods as a table, a line for each container and for pod-level resources, and below it why a resize is not applied.
pub(crate) fn table(pods: &[Pod], with_namespace: bool, wide: bool) -> anyhow::Result<String> {
    let Listing { head, mut rows, why } = Listing::of(pods, with_namespace, wide)?;
    rows.insert(0, head);
    let mut text = client::table(&rows);
    text.push_str(&why);
    Ok(text)
}

/// The output about pods.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listing {
    head: Vec<String>,
    /// A row for each container and for pod-level resources.
    rows: Vec<Vec<String>>,
    /// Why resizes are not applied, below an empty line; empty if all are.
    why: String,
}

impl Listing {
    fn of(pods: &[Pod], with_namespace: bool, wide: bool) -> anyhow::Result<Self> {
        let mut head = vec!["POD", "CONTAINER"];
        let columns: &[&str] = if wide { &WIDE } else { &["CPU", "MEMORY", "RESIZE"] };
        head.extend(columns);
        if with_namespace {
            head.insert(0, "NAMESPACE");
        }
        let mut rows = Vec::new();
        let mut why = String::new();
        for pod in pods {
            let reading = reading::of(pod)?;
            let name = pod.metadata.name.clone().unwrap_or_default();
            // A pod that has ended is not resized any more.
            let phase = pods::has_ended(pod).then(|| pods::phase(pod));
            for ((label, values), resize) in reading::values(&reading).zip(reading::words(&reading)) {
                let mut row = vec![name.clone(), label.to_owned()];
                if with_namespace {
                    row.insert(0, pod.metadata.namespace.clone().unwrap_or_default());
                }
                for resource in Resource::ALL {
                    row.extend(cells(values, resource, wide));
                }
                row.push(phase.unwrap_or(resize).to_owned());
                if wide {
                    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
                    row.push(node.unwrap_or_else(|| "-".to_owned()));
                }
                rows.push(row);
            }
            if phase.is_none() && !reading::reason(&reading.stage).is_empty() {
                if why.is_empty() {
                    why.push('\n');
                }
                // Writing to a string does not fail.
                let _ = writeln!(why, "{name}: {}", printable(&reading.stage.to_string()));
            }
        }
        Ok(Self { head: head.into_iter().map(str::to_owned).collect(), rows, why })
    }
}

fn cells(values: &Values, resource: Resource, wide: bool) -> Vec<String> {
    if !wide {
        return vec![reading::change(values, resource)];
    }
    let none = || "-".to_owned();
    vec![
        reading::pair(&values.desired, resource),
        values.allocated.as_ref().map_or_else(none, |allocated| reading::single(allocated, resource)),
        values.actual.as_ref().map_or_else(none, |actual| reading::pair(actual, resource)),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_stage_of_a_resize_is_on_the_rows_of_the_containers_that_it_is_about() {
        let amounts =
            |memory: &str| json!({ "requests": { "memory": memory }, "limits": { "memory": memory } });
        let rows = |actual: [Option<&str>; 2]| -> Vec<String> {
            let names = ["first", "second"];
            let statuses = names.iter().zip(actual).filter_map(|(name, actual)| {
                let actual = actual?;
                Some(json!({
                    "name": name, "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                    "allocatedResources": { "memory": "64Mi" }, "resources": amounts(actual),
                }))
            });
            let condition = json!({ "type": "PodResizeInProgress", "status": "True", "reason": "Error", "message": "no" });
            let pod = json!({
                "metadata": { "name": "mem" },
                "spec": { "containers": names.map(|name| json!({ "name": name, "resources": amounts("64Mi") })) },
                "status": { "conditions": [condition], "containerStatuses": statuses.collect::<Vec<_>>() },
            });
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let rows = Listing::of(&[pod], false, false).unwrap().rows;
            rows.into_iter().map(|row| row.last().unwrap().clone()).collect()
        };
        assert_eq!(rows([Some("64Mi"), Some("128Mi")]), ["-", "Failing"]);
        assert_eq!(rows([Some("128Mi"), Some("64Mi")]), ["Failing", "-"]);
        assert_eq!(rows([Some("128Mi"), Some("128Mi")]), ["Failing", "Failing"]);
        assert_eq!(rows([Some("64Mi"), Some("64Mi")]), ["Failing", "-"]);
        assert_eq!(rows([None, None]), ["Failing", "-"]);
    }

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
