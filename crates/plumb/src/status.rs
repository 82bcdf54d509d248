//! `plumb status`: what pods have, what they want, and what stands between.

use std::fmt::Write as _;
use std::process::ExitCode;

use clap::Args;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use plumb_client::Api;
use plumb_resize::resource::Resource;
use plumb_resize::status::Values;
use serde_json::Value;

use crate::client::{self, Cluster, Output, block_on, print};
use crate::reading;

/// The columns that tell all four values apart.
const WIDE: [&str; 8] =
    ["CPU DESIRED", "ALLOCATED", "ACTUAL", "MEMORY DESIRED", "ALLOCATED", "ACTUAL", "RESIZE", "NODE"];

/// Show what containers have of cpu and memory (request/limit), what they want, and how their resize stands.
///
/// For one pod it exits as `plumb resize` does: 0 when the resize is applied, 3 deferred, 4 infeasible, 5 in progress.
#[derive(Debug, Args)]
pub(crate) struct Status {
    /// The pod. [default: all of the namespace]
    #[arg(value_name = "POD")]
    pod: Option<String>,
    /// Pods of all namespaces.
    #[arg(short = 'A', long, conflicts_with_all = ["pod", "namespace"])]
    all_namespaces: bool,
    /// Only pods with these labels, such as app=web.
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with = "pod")]
    selector: Option<String>,
    /// How it is printed.
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    output: Option<Output>,
    #[command(flatten)]
    cluster: Cluster,
}

pub(crate) fn run(args: Status) -> anyhow::Result<ExitCode> {
    block_on(status(args))
}

async fn status(args: Status) -> anyhow::Result<ExitCode> {
    let (client, namespace) = args.cluster.connect().await?;
    let api: Api<Pod> =
        if args.all_namespaces { Api::all(client) } else { Api::namespaced(client, &namespace) };
    if let Some(name) = &args.pod {
        let pod = api.get(client::pod_name(name)).await.map_err(client::refusal)?;
        let code = reading::exit_code(&reading::of(&pod)?.stage);
        show(&[pod], &args)?;
        return Ok(code);
    }
    let wanted = ListParams { label_selector: args.selector.clone(), ..ListParams::default() };
    let pods = api.list(&wanted).await.map_err(client::refusal)?.items;
    if pods.is_empty() && args.output.is_none() {
        let place =
            if args.all_namespaces { "the cluster".to_owned() } else { format!("namespace {namespace:?}") };
        eprintln!("no pods in {place}");
    } else {
        show(&pods, &args)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(pods: &[Pod], args: &Status) -> anyhow::Result<()> {
    match args.output {
        Some(Output::Name) => {
            for pod in pods {
                println!("pod/{}", pod.metadata.name.as_deref().unwrap_or_default());
            }
        }
        Some(output @ (Output::Json | Output::Yaml)) => {
            let read = pods.iter().map(|pod| Ok(reading::to_json(pod, &reading::of(pod)?)));
            let mut read = read.collect::<anyhow::Result<Vec<Value>>>()?;
            match (args.pod.is_some(), read.pop()) {
                (true, Some(one)) => print(&one, output)?,
                (_, last) => {
                    read.extend(last);
                    print(&read, output)?;
                }
            }
        }
        Some(Output::Wide) => print!("{}", table(pods, args.all_namespaces, true)?),
        None => print!("{}", table(pods, args.all_namespaces, false)?),
    }
    Ok(())
}

/// Pods as a table, a line for each container, and below it why a resize is not applied.
pub(crate) fn table(pods: &[Pod], with_namespace: bool, wide: bool) -> anyhow::Result<String> {
    let mut head = vec!["POD", "CONTAINER"];
    let columns: &[&str] = if wide { &WIDE } else { &["CPU", "MEMORY", "RESIZE"] };
    head.extend(columns);
    if with_namespace {
        head.insert(0, "NAMESPACE");
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    let mut why = String::new();
    for pod in pods {
        let reading = reading::of(pod)?;
        let name = pod.metadata.name.clone().unwrap_or_default();
        for container in &reading.containers {
            let mut row = vec![name.clone(), container.name.clone()];
            if with_namespace {
                row.insert(0, pod.metadata.namespace.clone().unwrap_or_default());
            }
            for resource in Resource::ALL {
                row.extend(cells(&container.values, resource, wide));
            }
            row.push(reading::word(&reading.stage).to_owned());
            if wide {
                let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
                row.push(node.unwrap_or_else(|| "-".to_owned()));
            }
            rows.push(row);
        }
        let reason = reading::reason(&reading.stage);
        if !reason.is_empty() {
            // Writing to a string does not fail.
            let _ = writeln!(why, "{name}: {}", reading.stage);
        }
    }
    let mut text = client::table(&rows);
    if !why.is_empty() {
        text.push('\n');
        text.push_str(&why);
    }
    Ok(text)
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
