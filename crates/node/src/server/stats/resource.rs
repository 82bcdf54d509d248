//! `/metrics/resource`: resource usage for Prometheus and metrics-server.

use jiff::Timestamp;
use plumb_metrics::{Text, seconds};
use plumb_runtime::Error;

use super::types::{Cpu, Memory, Summary, Swap};

const OF_CONTAINER: [&str; 3] = ["container", "pod", "namespace"];
const OF_POD: [&str; 2] = ["pod", "namespace"];

/// A metric family: its name, its help text, and whether it is a counter.
type Family = (&'static str, &'static str, bool);

const CPU: [Family; 3] = [
    ("node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds", true),
    (
        "container_cpu_usage_seconds_total",
        "Cumulative cpu time consumed by the container in core-seconds",
        true,
    ),
    ("pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds", true),
];
const MEMORY: [Family; 3] = [
    ("node_memory_working_set_bytes", "Current working set of the node in bytes", false),
    ("container_memory_working_set_bytes", "Current working set of the container in bytes", false),
    ("pod_memory_working_set_bytes", "Current working set of the pod in bytes", false),
];
const SWAP: [Family; 3] = [
    (
        "node_swap_usage_bytes",
        "Current swap usage of the node in bytes. Reported only on non-windows systems",
        false,
    ),
    (
        "container_swap_usage_bytes",
        "Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        false,
    ),
    (
        "pod_swap_usage_bytes",
        "Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        false,
    ),
];

/// The metrics in the text format. `scrape_error` is whether they could be read.
pub(in crate::server) fn resource_metrics(summary: Result<&Summary, &Error>) -> String {
    let mut text = Text::default();
    if let Ok(summary) = summary {
        starts(&mut text, summary);
        render_samples(&mut text, summary, CPU, |used| {
            used.cpu.map(|cpu| (seconds(cpu.usage_core_nano_seconds), cpu.time))
        });
        render_samples(&mut text, summary, MEMORY, |used| {
            used.memory.map(|memory| (memory.working_set_bytes.to_string(), memory.time))
        });
        render_samples(&mut text, summary, SWAP, |used| {
            used.swap.map(|swap| (swap.swap_usage_bytes.to_string(), swap.time))
        });
    }
    for name in ["resource_scrape_error", "scrape_error"] {
        text.gauge(name, "1 if there was an error while getting container metrics, 0 otherwise");
        text.sample(name, &[], u8::from(summary.is_err()));
    }
    text.finish()
}

/// The usage of a container, a pod or the node.
#[derive(Clone, Copy)]
struct Used<'a> {
    cpu: Option<&'a Cpu>,
    memory: Option<&'a Memory>,
    swap: Option<&'a Swap>,
}

/// Renders the samples of the node, of containers and of pods, in this order.
fn render_samples(
    text: &mut Text,
    summary: &Summary,
    families: [Family; 3],
    sample: impl Fn(Used<'_>) -> Option<(String, Timestamp)>,
) {
    let begin = |text: &mut Text, (name, help, grows): Family| {
        if grows { text.counter(name, help) } else { text.gauge(name, help) }
    };
    let render = |text: &mut Text, name: &str, labels: &[(&str, &str)], used: Used<'_>| {
        if let Some((value, at)) = sample(used) {
            text.sample_at(name, labels, value, at.as_millisecond());
        }
    };
    let [of_node, of_container, of_pod] = families;
    let node = &summary.node;
    begin(text, of_node);
    let used = Used { cpu: node.cpu.as_ref(), memory: node.memory.as_ref(), swap: node.swap.as_ref() };
    render(text, of_node.0, &[], used);
    begin(text, of_container);
    for pod in &summary.pods {
        for container in &pod.containers {
            let values = [&container.name, &pod.pod_ref.name, &pod.pod_ref.namespace].map(String::as_str);
            let labels: Vec<_> = OF_CONTAINER.into_iter().zip(values).collect();
            let used = Used {
                cpu: container.cpu.as_ref(),
                memory: container.memory.as_ref(),
                swap: container.swap.as_ref(),
            };
            render(text, of_container.0, &labels, used);
        }
    }
    begin(text, of_pod);
    for pod in &summary.pods {
        let values = [&pod.pod_ref.name, &pod.pod_ref.namespace].map(String::as_str);
        let labels: Vec<_> = OF_POD.into_iter().zip(values).collect();
        let used = Used { cpu: pod.cpu.as_ref(), memory: pod.memory.as_ref(), swap: pod.swap.as_ref() };
        render(text, of_pod.0, &labels, used);
    }
}

fn starts(text: &mut Text, summary: &Summary) {
    let name = "container_start_time_seconds";
    text.gauge(name, "Start time of the container since unix epoch in seconds");
    for pod in &summary.pods {
        for container in &pod.containers {
            let values = [&container.name, &pod.pod_ref.name, &pod.pod_ref.namespace].map(String::as_str);
            let labels: Vec<_> = OF_CONTAINER.into_iter().zip(values).collect();
            let Ok(nanos) = u64::try_from(container.start_time.as_nanosecond()) else { continue };
            text.sample(name, &labels, seconds(nanos));
        }
    }
}
