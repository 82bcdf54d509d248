//! A short way to write and print what containers have: cpu in thousandths of a core and memory in MiB,
//! each as `request/limit`.
//!
//! `20/30 35/45` requests 20m and 35Mi and is limited to 30m and 45Mi; `30 45` has requests equal to limits;
//! `20/- -` requests cpu and nothing else.

use k8s_openapi::api::core::v1::{Container, Pod, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use plumb_resize::list::{WireList, quantity_of};
use plumb_resize::plan::Step;
use plumb_resize::pod::{PodCgroup, PodResources};
use plumb_resize::resource::{Declared, Requirements, Resource};

use super::pods::{container, list};

pub(crate) const MIB: i64 = 1 << 20;

/// Requests and limits from their short form.
#[track_caller]
pub(crate) fn size(text: &str) -> Requirements {
    let parts: Vec<_> = text.split_whitespace().map(pair).collect();
    let [(cpu_request, cpu_limit), (memory_request, memory_limit)] = parts[..] else {
        panic!("{text:?} is not \"cpu memory\"");
    };
    let mib = |amount: Option<i64>| amount.map(|amount| amount * MIB);
    Requirements {
        requests: Declared::new(cpu_request, mib(memory_request)),
        limits: Declared::new(cpu_limit, mib(memory_limit)),
    }
}

/// The containers of a pod from their short forms, `|` between them.
#[track_caller]
pub(crate) fn sizes(text: &str) -> Vec<Requirements> {
    text.split('|').map(size).collect()
}

/// The resources of a pod without resources of its own.
#[track_caller]
pub(crate) fn resources(text: &str) -> PodResources {
    PodResources { containers: sizes(text), pod: None }
}

/// Requests and limits as the API carries them.
pub(crate) fn wire(size: Requirements) -> ResourceRequirements {
    let list = |declared: Declared| {
        let entries = Resource::ALL.into_iter().filter_map(|resource| {
            let quantity = quantity_of(resource, declared[resource]?);
            Some((resource.name().to_owned(), WireQuantity(quantity.to_string())))
        });
        Some(entries.collect::<WireList>()).filter(|list| !list.is_empty())
    };
    ResourceRequirements { claims: None, limits: list(size.limits), requests: list(size.requests) }
}

/// Containers `c1`, `c2`, … from their short forms, `|` between them.
#[track_caller]
pub(crate) fn containers(text: &str) -> Vec<Container> {
    let named =
        |(i, size)| Container { resources: Some(wire(size)), ..container(&format!("c{}", i + 1), "", "") };
    sizes(text).into_iter().enumerate().map(named).collect()
}

/// What a pod has beyond its containers.
pub(crate) trait PodSizes {
    /// The same pod with resources of its own, in their short form.
    fn level(self, text: &str) -> Self;
    /// The same pod with an overhead, as [`list`] takes it.
    fn overhead(self, text: &str) -> Self;
}

impl PodSizes for Pod {
    #[track_caller]
    fn level(mut self, text: &str) -> Self {
        self.spec.get_or_insert_default().resources = Some(wire(size(text)));
        self
    }

    fn overhead(mut self, text: &str) -> Self {
        self.spec.get_or_insert_default().overhead = list(text);
        self
    }
}

/// Requests and limits in their short form.
pub(crate) fn show(size: Requirements) -> String {
    let one = |resource: Resource, unit: i64| {
        let (request, limit) = size.of(resource);
        if request == limit {
            return amount(request, unit);
        }
        format!("{}/{}", amount(request, unit), amount(limit, unit))
    };
    format!("{} {}", one(Resource::Cpu, 1), one(Resource::Memory, MIB))
}

/// A step as a line: what is touched, and what it is set to. Of the pod's cgroup that is the limits and the
/// cpu request behind its weight.
pub(crate) fn show_step(step: &Step) -> String {
    let name = |container: usize| format!("c{}", container + 1);
    match *step {
        Step::Pod(PodCgroup { cpu_request, limits }) => {
            format!("pod {} {} weight {cpu_request}", amount(limits.cpu, 1), amount(limits.memory, MIB))
        }
        Step::Update { container, to } => format!("set {} {}", name(container), show(to)),
        Step::Stop { container } => format!("stop {}", name(container)),
        Step::Start { container, to } => format!("start {} {}", name(container), show(to)),
    }
}

fn pair(text: &str) -> (Option<i64>, Option<i64>) {
    let number = |text: &str| (text != "-").then(|| text.parse().expect("a number or -"));
    let (request, limit) = text.split_once('/').unwrap_or((text, text));
    (number(request), number(limit))
}

fn amount(amount: Option<i64>, unit: i64) -> String {
    amount.map_or_else(|| "-".to_owned(), |amount| (amount / unit).to_string())
}
