//! Pods as a table.

use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use plumb_apiserver::table::human_duration;
use plumb_controller_runtime::pods;
use plumb_resize::resource::Resource;
use plumb_resize::status::{Reading, Stage, Values};
use plumb_vpa_explain::printable;

use super::usage::Usage;
use crate::{client, reading};

/// Why a container waits while its pod starts; of no further interest.
const STARTS: [&str; 2] = ["ContainerCreating", "PodInitializing"];

/// Which columns pods have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// Whether the namespace is a column.
    pub(crate) with_namespace: bool,
    /// Whether all values have a column.
    pub(crate) wide: bool,
}

/// What changes by itself: usage and ages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Live<'a> {
    pub(crate) usage: &'a Usage,
    pub(crate) now: Timestamp,
}

/// The output about pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listing {
    pub(super) head: Vec<String>,
    /// A row for each container and for pod-level resources.
    pub(super) rows: Vec<Vec<String>>,
    /// Why pods do not run and resizes are not applied, below an empty line; empty if there is nothing to say.
    pub(super) why: String,
}

impl Listing {
    pub(crate) fn of<'a>(
        pods: impl IntoIterator<Item = &'a Pod>,
        form: Form,
        live: Option<Live<'_>>,
    ) -> anyhow::Result<Self> {
        let mut rows = Vec::new();
        let mut why = Vec::new();
        for pod in pods {
            let reading = reading::of(pod)?;
            let name = pod.metadata.name.as_deref().unwrap_or_default();
            rows.extend(self::rows(pod, &reading, form, live));
            why.extend(self::why(pod, &reading).into_iter().map(|why| format!("{name}: {why}")));
        }
        let mut text = String::new();
        for why in why {
            let begin = if text.is_empty() { "\n" } else { "" };
            // Writing to a string does not fail.
            let _ = writeln!(text, "{begin}{}", printable(&why));
        }
        Ok(Self { head: head(form, live.is_some()), rows, why: text })
    }

    /// The table, and why resizes are not applied.
    pub(crate) fn text(mut self) -> String {
        self.rows.insert(0, self.head);
        client::table(&self.rows) + &self.why
    }
}

/// The rows of a pod: one for each of its [`reading::values`].
pub(crate) fn rows(pod: &Pod, reading: &Reading, form: Form, live: Option<Live<'_>>) -> Vec<Vec<String>> {
    let state = State::of(pod);
    let row = |((label, values), resize): ((&str, &Values), &'static str)| {
        let mut row = vec![pod.metadata.name.clone().unwrap_or_default(), label.to_owned()];
        if form.with_namespace {
            row.insert(0, pod.metadata.namespace.clone().unwrap_or_default());
        }
        for resource in Resource::ALL {
            row.extend(cells(values, resource, form.wide, state.runs()));
            row.extend(live.map(|live| {
                let used = live.usage.of(pod, label);
                used.map_or_else(none, |used| reading::short(&used, resource))
            }));
        }
        row.push(state.cell(pod, label, resize).to_owned());
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        row.extend(live.map(|live| age(created, live.now)));
        if form.wide {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
            row.push(node.unwrap_or_else(none));
        }
        row
    };
    reading::values(reading).zip(reading::words(reading)).map(row).collect()
}

/// Why a pod does not run, or its resize is not applied.
pub(crate) fn why(pod: &Pod, reading: &Reading) -> Vec<String> {
    State::of(pod).why(pod, reading)
}

/// The names of the columns.
pub(crate) fn head(form: Form, is_live: bool) -> Vec<String> {
    let namespace = form.with_namespace.then_some("NAMESPACE");
    let mut head: Vec<&str> = namespace.into_iter().chain(["POD", "CONTAINER"]).collect();
    for (plain, desired) in [("CPU", "CPU DESIRED"), ("MEMORY", "MEMORY DESIRED")] {
        if form.wide {
            head.extend([desired, "ALLOCATED", "ACTUAL"]);
        } else {
            head.push(plain);
        }
        head.extend(is_live.then_some("USED"));
    }
    head.push("RESIZE");
    head.extend(is_live.then_some("AGE"));
    head.extend(form.wide.then_some("NODE"));
    head.into_iter().map(str::to_owned).collect()
}

/// Whether a pod runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State<'a> {
    /// It has ended in this phase, and is not resized any more.
    Ended(&'a str),
    /// It is being deleted.
    Terminating,
    /// It has no node.
    Unscheduled,
    /// It has a node, and another phase than `Running`.
    Starting(&'a str),
    Running,
}

impl<'a> State<'a> {
    fn of(pod: &'a Pod) -> Self {
        match pods::phase(pod) {
            phase if pods::has_ended(pod) => Self::Ended(phase),
            _ if pod.metadata.deletion_timestamp.is_some() => Self::Terminating,
            "Running" => Self::Running,
            _ if pods::node_of(pod).is_none() => Self::Unscheduled,
            phase => Self::Starting(phase),
        }
    }

    /// Whether resources that the status does not have are taken to be the desired ones. Kubelets without in-place resize
    /// report none.
    fn runs(self) -> bool {
        !matches!(self, Self::Unscheduled | Self::Starting(_))
    }

    /// The cell of a container: the stage of its resize, or why it does not run.
    fn cell(self, pod: &'a Pod, container: &str, resize: &'static str) -> &'a str {
        match self {
            Self::Ended(phase) => phase,
            Self::Terminating => "Terminating",
            Self::Unscheduled => "Pending",
            _ if resize != reading::word(&Stage::Applied) => resize,
            Self::Starting(phase) => waiting(pod, container).map_or(phase, |(reason, _)| reason),
            Self::Running => waiting(pod, container).map_or(resize, |(reason, _)| reason),
        }
    }

    /// Why the resize of a pod is not applied, or the pod does not run.
    fn why(self, pod: &'a Pod, reading: &Reading) -> Vec<String> {
        match self {
            Self::Ended(_) | Self::Terminating => Vec::new(),
            Self::Unscheduled => {
                unschedulable(pod).map(|why| format!("pending: {why}")).into_iter().collect()
            }
            Self::Starting(_) | Self::Running => {
                let stage = &reading.stage;
                let resize = (!reading::reason(stage).is_empty()).then(|| stage.to_string());
                let containers = reading.containers.iter().filter_map(|container| {
                    let (reason, message) = waiting(pod, &container.name)?;
                    let why = format!("container {} waits: {reason}", container.name);
                    let message = message.filter(|message| !message.is_empty());
                    (!STARTS.contains(&reason))
                        .then(|| message.map_or_else(|| why.clone(), |message| format!("{why}: {message}")))
                });
                containers.chain(resize).collect()
            }
        }
    }
}

/// Why a container waits, and the message if there is one.
fn waiting<'a>(pod: &'a Pod, container: &str) -> Option<(&'a str, Option<&'a str>)> {
    let status = pod.status.as_ref()?;
    let init = status.init_container_statuses.iter().flatten();
    let mut all = status.container_statuses.iter().flatten().chain(init);
    let of: &ContainerStatus = all.find(|status| status.name == container)?;
    let waiting = of.state.as_ref()?.waiting.as_ref()?;
    Some((waiting.reason.as_deref()?, waiting.message.as_deref()))
}

/// Why the scheduler has found no node for a pod.
fn unschedulable(pod: &Pod) -> Option<&str> {
    let mut conditions = pod.status.as_ref()?.conditions.iter().flatten();
    let scheduled =
        conditions.find(|condition| condition.type_ == "PodScheduled" && condition.status == "False")?;
    scheduled.message.as_deref().filter(|message| !message.is_empty())
}

/// The cells of a resource. A pod that does not run has nothing yet: its requests are what it is to get.
fn cells(values: &Values, resource: Resource, wide: bool, runs: bool) -> Vec<String> {
    if wide {
        return vec![
            reading::pair(&values.desired, resource),
            values.allocated.as_ref().map_or_else(none, |allocated| reading::single(allocated, resource)),
            values.actual.as_ref().map_or_else(none, |actual| reading::pair(actual, resource)),
        ];
    }
    let wanted = reading::pair(&values.desired, resource);
    let wants_none = values.desired.requests[resource].or(values.desired.limits[resource]).is_none();
    vec![match values.actual {
        None if !runs && !wants_none => format!("- → {wanted}"),
        _ => reading::change(values, resource),
    }]
}

fn none() -> String {
    "-".to_owned()
}

/// How long ago a time was, as kubectl writes ages.
pub(crate) fn age(at: Option<Timestamp>, now: Timestamp) -> String {
    at.map_or_else(none, |at| human_duration(now.duration_since(at).as_secs()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NOW: i64 = 1_767_225_600;

    fn rows(pod: &Value, form: Form) -> Vec<Vec<String>> {
        listing(pod, form).rows
    }

    fn listing(pod: &Value, form: Form) -> Listing {
        let pod: Pod = serde_json::from_value(pod.clone()).unwrap();
        let live = Live { usage: &Usage::default(), now: Timestamp::from_second(NOW).unwrap() };
        Listing::of([&pod], form, Some(live)).unwrap()
    }

    const PLAIN: Form = Form { with_namespace: false, wide: false };

    #[test]
    fn the_stage_of_a_resize_is_on_the_rows_of_the_containers_that_it_is_about() {
        let amounts =
            |memory: &str| json!({ "requests": { "memory": memory }, "limits": { "memory": memory } });
        let cells = |actual: [Option<&str>; 2]| -> Vec<String> {
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
                "status": { "phase": "Running", "conditions": [condition], "containerStatuses": statuses.collect::<Vec<_>>() },
            });
            rows(&pod, PLAIN).into_iter().map(|row| row[6].clone()).collect()
        };
        assert_eq!(cells([Some("64Mi"), Some("128Mi")]), ["-", "Failing"]);
        assert_eq!(cells([Some("128Mi"), Some("64Mi")]), ["Failing", "-"]);
        assert_eq!(cells([Some("128Mi"), Some("128Mi")]), ["Failing", "Failing"]);
        assert_eq!(cells([Some("64Mi"), Some("64Mi")]), ["Failing", "-"]);
        assert_eq!(cells([None, None]), ["Failing", "-"]);
    }

    /// A pod that requests 64 CPUs.
    fn pod(spec: &Value, status: &Value) -> Value {
        let container = json!({ "name": "app", "resources": { "requests": { "cpu": "64" } } });
        let mut pod = json!({
            "metadata": { "name": "web", "creationTimestamp": "2025-12-31T23:00:00Z" },
            "spec": { "containers": [container] },
            "status": status,
        });
        pod["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        pod
    }

    #[test]
    fn a_pod_that_does_not_run_has_none_of_what_it_requests_and_shows_its_phase() {
        let waiting = |reason: &str, message: &str| {
            let state = json!({ "waiting": { "reason": reason, "message": message } });
            json!([{ "name": "app", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state }])
        };
        let condition = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/1 nodes are available: 1 Insufficient cpu." });
        let none = json!({});
        let bound = json!({ "nodeName": "n" });
        let table = [
            (&none, json!({ "phase": "Pending" }), "- → 64/-", "Pending", ""),
            (
                &none,
                json!({ "phase": "Pending", "conditions": [condition] }),
                "- → 64/-",
                "Pending",
                "\nweb: pending: 0/1 nodes are available: 1 Insufficient cpu.\n",
            ),
            (&bound, json!({ "phase": "Pending" }), "- → 64/-", "Pending", ""),
            (
                &bound,
                json!({ "phase": "Pending", "containerStatuses": waiting("ContainerCreating", "") }),
                "- → 64/-",
                "ContainerCreating",
                "",
            ),
            (
                &bound,
                json!({ "phase": "Pending", "containerStatuses": waiting("ImagePullBackOff", "no such image") }),
                "- → 64/-",
                "ImagePullBackOff",
                "\nweb: container app waits: ImagePullBackOff: no such image\n",
            ),
            (&bound, json!({ "phase": "Running" }), "64/-", "-", ""),
            (
                &bound,
                json!({ "phase": "Running", "containerStatuses": waiting("CrashLoopBackOff", "") }),
                "64/-",
                "CrashLoopBackOff",
                "\nweb: container app waits: CrashLoopBackOff\n",
            ),
            (&bound, json!({ "phase": "Succeeded" }), "64/-", "Succeeded", ""),
        ];
        for (spec, status, cpu, state, why) in table {
            let listing = listing(&pod(spec, &status), PLAIN);
            assert_eq!(listing.rows, [["web", "app", cpu, "-", "-/-", "-", state, "60m"]], "{status}");
            assert_eq!(listing.why, why, "{status}");
        }
        let mut deleted = pod(&bound, &json!({ "phase": "Running" }));
        deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(rows(&deleted, PLAIN)[0][6], "Terminating");
    }

    #[test]
    fn without_usage_and_ages_their_columns_are_missing() {
        let running: Pod = serde_json::from_value(pod(&json!({}), &json!({ "phase": "Running" }))).unwrap();
        let form = Form { with_namespace: true, wide: true };
        let listing = Listing::of([&running], form, None).unwrap();
        let head = "NAMESPACE|POD|CONTAINER|CPU DESIRED|ALLOCATED|ACTUAL|MEMORY DESIRED|ALLOCATED|ACTUAL|RESIZE|NODE";
        assert_eq!(listing.head.join("|"), head);
        assert_eq!(listing.rows[0].join("|"), "|web|app|64/-|-|-|-/-|-|-|-|-");
    }
}
