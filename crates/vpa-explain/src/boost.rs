//! The CPU start-up boosts of a pod: how much, and until when.

use std::fmt;

use k8s_openapi::api::core::v1::Pod;
use plumb_resize::Quantity;
use plumb_vpa::boost::annotation::{boosted_containers, read_boosts, unboosted};
use plumb_vpa::boost::{Cpu, Due, due};
use plumb_vpa_api::VerticalPodAutoscaler;
use serde_json::{Value, json};

use crate::printable;

/// The boost of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoostView {
    /// Its name.
    pub container: String,
    /// Its CPU with the boost.
    pub boosted: Cpu,
    /// Its CPU without the boost; none if the annotations of the pod lack it.
    pub unboosted: Option<Cpu>,
    /// When it ends. A pod that is not ready is waited for.
    pub ends: Due,
    /// For how many seconds after the pod became ready it lasts.
    pub seconds: u64,
}

impl BoostView {
    /// The boosts of a pod, whose VPA may be gone.
    pub fn all(pod: &Pod, vpa: Option<&VerticalPodAutoscaler>) -> Vec<Self> {
        let recorded = read_boosts(pod);
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let boosted = boosted_containers(pod);
        let view = |container: &k8s_openapi::api::core::v1::Container| {
            let name = &container.name;
            Self {
                container: name.clone(),
                boosted: Cpu::of(container),
                unboosted: unboosted(pod, name, &recorded),
                ends: due(pod, name, vpa.map(|vpa| &vpa.spec), None),
                seconds: vpa.map_or(0, |vpa| vpa.spec.startup_boost_duration(name).as_secs()),
            }
        };
        containers.filter(|container| boosted.contains(&container.name)).map(view).collect()
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let cpu = |cpu: Cpu| {
            let text = |amount: Option<Quantity>| amount.map(|amount| amount.to_string());
            json!({ "request": text(cpu.request), "limit": text(cpu.limit) })
        };
        json!({
            "container": self.container,
            "boosted": cpu(self.boosted),
            "unboosted": self.unboosted.map(cpu),
            "until": self.ends.at().map(|at| at.to_string()),
            "durationSeconds": self.seconds,
        })
    }
}

impl fmt::Display for BoostView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pair = |cpu: Cpu| {
            let text = |amount: Option<Quantity>| amount.map_or("-".to_owned(), |amount| amount.to_string());
            format!("{}/{}", text(cpu.request), text(cpu.limit))
        };
        write!(f, "CPU start-up boost of container {}: {}", printable(&self.container), pair(self.boosted))?;
        if let Some(unboosted) = self.unboosted {
            write!(f, " instead of {}", pair(unboosted))?;
        }
        match self.ends.at() {
            Some(at) => write!(f, " until {at}"),
            None => write!(f, " until the pod has been ready for {} s", self.seconds),
        }
    }
}
