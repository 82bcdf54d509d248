//! `/metrics/cadvisor`: the usage of containers under cAdvisor's names, which most dashboards and alerts read.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use plumb_metrics::{Text, seconds};

use super::super::MachineSize;
use super::types::{ContainerStats, Summary};
use crate::cri_config::identity;
use crate::lifecycle::containers;

/// A metric family: its name, its help text, whether it is a counter, and its value.
type Family = (&'static str, &'static str, bool, fn(&ContainerStats) -> Option<String>);

const FAMILIES: [Family; 8] = [
    ("container_cpu_usage_seconds_total", "Cumulative cpu time consumed in seconds.", true, |container| {
        container.cpu.as_ref().map(|cpu| seconds(cpu.usage_core_nano_seconds))
    }),
    (
        "container_memory_usage_bytes",
        "Current memory usage in bytes, including all memory.",
        false,
        |container| container.memory.as_ref().map(|memory| memory.usage_bytes.to_string()),
    ),
    ("container_memory_working_set_bytes", "Current working set in bytes.", false, |container| {
        container.memory.as_ref().map(|memory| memory.working_set_bytes.to_string())
    }),
    ("container_memory_rss", "Size of RSS in bytes.", false, |container| {
        container.memory.as_ref().map(|memory| memory.rss_bytes.to_string())
    }),
    ("container_memory_swap", "Container swap usage in bytes.", false, |container| {
        container.swap.as_ref().map(|swap| swap.swap_usage_bytes.to_string())
    }),
    (
        "container_fs_usage_bytes",
        "Number of bytes that are consumed by the container on this filesystem.",
        false,
        |container| container.rootfs.as_ref().map(|fs| fs.used_bytes.to_string()),
    ),
    (
        "container_start_time_seconds",
        "Start time of the container since unix epoch in seconds.",
        false,
        |container| u64::try_from(container.start_time.as_nanosecond()).ok().map(seconds),
    ),
    ("container_last_seen", "Last time a container was seen by the exporter.", false, |container| {
        container.cpu.as_ref().map(|cpu| cpu.time.as_second().to_string())
    }),
];

/// The metrics in the text format.
pub(in crate::server) fn cadvisor_metrics(
    summary: &Summary,
    pods: &[Arc<Pod>],
    machine: MachineSize,
) -> String {
    let mut text = Text::default();
    for (name, help, grows, value) in FAMILIES {
        if grows {
            text.counter(name, help);
        } else {
            text.gauge(name, help);
        }
        for stats in &summary.pods {
            let pod = pods.iter().find(|pod| identity(pod).2 == stats.pod_ref.uid);
            for container in &stats.containers {
                let Some(value) = value(container) else { continue };
                let (id, image) = pod.map(|pod| described(pod, &container.name)).unwrap_or_default();
                let labels: [(&str, &str); 6] = [
                    ("container", container.name.as_str()),
                    ("id", &format!("/{id}")),
                    ("image", &image),
                    ("name", &id),
                    ("namespace", &stats.pod_ref.namespace),
                    ("pod", &stats.pod_ref.name),
                ];
                text.sample(name, &labels, value);
            }
        }
    }
    text.gauge("machine_cpu_cores", "Number of logical CPU cores.");
    text.sample("machine_cpu_cores", &[], machine.cpus);
    text.gauge("machine_memory_bytes", "Amount of memory installed on the machine.");
    text.sample("machine_memory_bytes", &[], machine.memory);
    text.finish()
}

/// The id and the image of a container.
fn described(pod: &Pod, name: &str) -> (String, String) {
    let status = pod.status.as_ref();
    let all = status.map(|status| {
        [&status.container_statuses, &status.init_container_statuses, &status.ephemeral_container_statuses]
    });
    let own = all.into_iter().flatten().flatten().flatten().find(|status| status.name == name);
    let id = own.and_then(|status| status.container_id.as_deref()).unwrap_or_default();
    let id = id.split_once("://").map_or(id, |(_, id)| id).to_owned();
    let declared =
        pod.spec.as_ref().and_then(|spec| containers(spec).find(|container| container.name == name));
    let declared = declared.and_then(|container| container.image.clone());
    let image = own.map(|status| status.image.clone()).filter(|image| !image.is_empty()).or(declared);
    (id, image.unwrap_or_default())
}
