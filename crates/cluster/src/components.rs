//! The components of a cluster: the values of `--components`, the feature gates of each, and how each is started.
//!
//! `TABLE` is the only list of them. All of them run by default; behaviour beyond Kubernetes is behind feature
//! gates.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use kube::Client;
use plumb_apiserver::ApiServer;
use plumb_apiserver::authn::User;
use plumb_apiserver::pki::Pki;
use plumb_controller_runtime::metrics::{CountedService, Metrics};
use plumb_controller_runtime::{Backoff, Exponential};
use plumb_controllers::{GROUPS, user_of};
use plumb_features::Feature;
use plumb_resize::rules::Rules;
use plumb_rollout::webhook;
use plumb_supervise::Supervisor;
use plumb_vpa_admission::registration;
use plumb_webhook::registration::unregister_from_loopback;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::flags::AutoscalerFlags;
use crate::invitation::Binding;
use crate::nodes::DnsSettings;
use crate::pod_network::ClusterNetwork;
use crate::{autoscaler, controllers, rollout, scheduler};

/// Every component that runs.
const ALL: &str = "all";
/// The controllers, by name.
pub(crate) const CONTROLLERS: &str = "controllers";
/// The nodes, by name.
pub(crate) const NODE: &str = "node";
/// The component that holds workloads while it resizes their pods.
const ROLLOUT: &str = "rollout";

/// The components, in the order in which they are started.
static TABLE: &[Component] = &[
    Component {
        name: "apiserver",
        about: "the Kubernetes API; it always runs",
        // Every component reads these through the rules of a resize.
        features: plumb_resize::features::FEATURES,
        webhook: None,
        start: Start::ByItself,
    },
    Component {
        name: CONTROLLERS,
        about: "workload controllers, horizontal autoscaling, garbage collection, quotas, service accounts, certificates",
        features: plumb_controllers::horizontal_pod_autoscaler::features::FEATURES,
        webhook: None,
        start: Start::Tasks(controllers::start),
    },
    Component {
        name: "scheduler",
        about: "assigns pods to nodes",
        features: plumb_scheduler::features::FEATURES,
        webhook: None,
        start: Start::Tasks(scheduler::start),
    },
    Component {
        name: NODE,
        about: "node agents, which run pods; virtual ones where this user may not run containers",
        features: &[],
        webhook: None,
        start: Start::ByItself,
    },
    Component {
        name: "autoscaler",
        about: "the Vertical Pod Autoscaler",
        features: plumb_vpa::features::FEATURES,
        webhook: Some(Webhook {
            name: registration::NAME,
            manager: registration::FIELD_MANAGER,
            account: plumb_roles::ADMISSION_CONTROLLER.account,
        }),
        start: Start::Tasks(autoscaler::start),
    },
    Component {
        name: ROLLOUT,
        about: "CloneSets, and in-place rollout of changed resources in pod templates (feature gate)",
        features: plumb_rollout::features::FEATURES,
        webhook: Some(Webhook {
            name: webhook::NAME,
            manager: webhook::FIELD_MANAGER,
            account: plumb_roles::ROLLOUT.account,
        }),
        start: Start::Tasks(rollout::start),
    },
];

/// A row of the table.
#[derive(Debug)]
struct Component {
    /// The name that users give it.
    name: &'static str,
    /// A short description.
    about: &'static str,
    /// The feature gates that it reads.
    features: &'static [Feature],
    /// The configuration of the webhook that it serves.
    webhook: Option<Webhook>,
    /// How it is started.
    start: Start,
}

/// The webhook configuration of a component.
#[derive(Clone, Copy, Debug)]
struct Webhook {
    /// Its name.
    name: &'static str,
    /// The manager of its fields.
    manager: &'static str,
    /// The service account of the component, which may delete it.
    account: &'static str,
}

/// How a component is started.
#[derive(Clone, Copy, Debug)]
enum Start {
    /// By `plumb up` itself, before or after the others.
    ByItself,
    /// As tasks, which end when what this returns is dropped.
    Tasks(fn(&Context<'_>) -> JoinSet<()>),
}

/// The inputs of a component.
pub(crate) struct Context<'a> {
    /// The API server; each component is a user of it.
    pub(crate) server: &'a ApiServer,
    /// Restarts the tasks of a component.
    pub(crate) supervisor: &'a Supervisor,
    /// The metrics of controllers, reflectors, event recorders and clients, in `/metrics` of the API server.
    pub(crate) metrics: &'a Metrics,
    /// Which rules of a resize bind.
    pub(crate) rules: &'a Rules,
    /// The dialect and feature gates that the rules are made from.
    pub(crate) binding: &'a Binding,
    /// The DNS of the cluster.
    pub(crate) dns: &'a DnsSettings,
    /// The certificate authorities of the cluster.
    pub(crate) pki: &'a Arc<Pki>,
    /// The certificate, in PEM, that clients of the API trust, whenever it changes.
    pub(crate) authority: &'a watch::Receiver<String>,
    /// Where other machines reach the API.
    pub(crate) advertised: SocketAddr,
    /// Where pods reach the API.
    pub(crate) reached_by_pods: SocketAddr,
    /// The network of the pods of all nodes, if they have one.
    pub(crate) network: Option<&'a ClusterNetwork>,
    /// How the autoscaler works.
    pub(crate) autoscaler: &'a AutoscalerFlags,
    /// How often the controller of `HorizontalPodAutoscalers` reads metrics.
    pub(crate) autoscaling_period: Duration,
}

impl Context<'_> {
    /// The way to the API server of a component, which counts its requests.
    pub(crate) fn count<S>(&self, service: S) -> CountedService<S> {
        self.metrics.rest_client("in-process").count(service)
    }
}

/// The feature gates of all components.
pub fn features() -> impl Iterator<Item = &'static Feature> {
    TABLE.iter().flat_map(|component| component.features)
}

/// The components to run.
#[derive(Clone, Debug)]
pub(crate) struct Components(Vec<&'static Component>);

impl Components {
    /// Whether a component is to run.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|component| component.name == name)
    }

    /// Starts those that are started as tasks.
    pub(crate) fn start(&self, context: &Context<'_>) -> Vec<JoinSet<()>> {
        let starts = self.0.iter().filter_map(|component| match component.start {
            Start::Tasks(start) => Some(start(context)),
            Start::ByItself => None,
        });
        let release = (!self.contains(ROLLOUT)).then(|| rollout::release_absent(context));
        starts.chain([self.unregister_absent(context)]).chain(release).collect()
    }

    /// Removes the webhooks that an earlier `plumb up` registered for components that do not run now: the API server would
    /// call them for each pod, and get no answer.
    fn unregister_absent(&self, context: &Context<'_>) -> JoinSet<()> {
        let mut running = JoinSet::new();
        let absent = TABLE.iter().filter(|component| !self.contains(component.name));
        for webhook in absent.filter_map(|component| component.webhook) {
            // The identity of the component that registered it, which may delete this one configuration.
            let user = User::new(user_of(webhook.account), "", GROUPS);
            let client = Client::new(context.count(context.server.inside(user)), "default");
            let unregister = context
                .supervisor
                .finish_one_of("absent-webhooks", move || unregister(client.clone(), webhook));
            running.spawn(unregister);
        }
        running
    }

    fn parse(text: &str) -> Result<Self, UnknownComponent> {
        let names: Vec<&str> = text.split(',').map(str::trim).collect();
        let is_known = |name: &str| name == ALL || TABLE.iter().any(|component| component.name == name);
        if let Some(unknown) = names.iter().find(|name| !is_known(name)) {
            return Err(UnknownComponent((*unknown).to_owned()));
        }
        let chosen = TABLE.iter().filter(|component| names.contains(&component.name) || names.contains(&ALL));
        Ok(Self(chosen.collect()))
    }
}

/// Removes the webhook configuration of a component that does not run, and retries until it has succeeded.
async fn unregister(client: Client, webhook: Webhook) {
    let Webhook { name, manager, .. } = webhook;
    let mut backoff = Backoff::new(Exponential::new(Duration::from_millis(200), Duration::from_secs(30)));
    while let Err(error) = unregister_from_loopback(&client, name, manager).await {
        tracing::warn!(%error, name, "cannot remove the webhook of a component that does not run, will retry");
        backoff.wait().await;
    }
}

/// A component that does not exist.
#[derive(Debug)]
struct UnknownComponent(String);

impl fmt::Display for UnknownComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = TABLE.iter().map(|component| component.name).collect();
        write!(f, "there is no component {:?}; known are {ALL}, {}", self.0, names.join(", "))
    }
}

impl std::error::Error for UnknownComponent {}

/// Reads `--components`.
#[derive(Clone)]
pub(crate) struct ComponentsParser;

impl TypedValueParser for ComponentsParser {
    type Value = Components;

    fn parse_ref(
        &self,
        command: &clap::Command,
        arg: Option<&clap::Arg>,
        value: &std::ffi::OsStr,
    ) -> Result<Self::Value, clap::Error> {
        let parser = StringValueParser::new().try_map(|text| Components::parse(&text));
        parser.parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let each = TABLE.iter().map(|component| PossibleValue::new(component.name).help(component.about));
        Some(Box::new([PossibleValue::new(ALL).help("all of them")].into_iter().chain(each)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(text: &str) -> Result<Vec<&'static str>, String> {
        let chosen = Components::parse(text).map_err(|error| error.to_string())?;
        Ok(chosen.0.iter().map(|component| component.name).collect())
    }

    #[test]
    fn a_list_is_read_in_the_order_of_the_table() {
        let all: Vec<_> = TABLE.iter().map(|component| component.name).collect();
        assert_eq!(names("all"), Ok(all.clone()));
        assert_eq!(names("node,all"), Ok(all));
        assert_eq!(names("node, apiserver,node"), Ok(vec!["apiserver", "node"]));
    }

    #[test]
    fn a_component_that_does_not_exist_is_refused_with_those_that_do() {
        const KNOWN: &str = "known are all, apiserver, controllers, scheduler, node, autoscaler, rollout";
        assert_eq!(names("kubelet"), Err(format!("there is no component \"kubelet\"; {KNOWN}")));
        assert_eq!(names(""), Err(format!("there is no component \"\"; {KNOWN}")));
    }

    #[test]
    fn no_name_of_a_component_or_feature_gate_is_given_twice() {
        let names: BTreeSet<_> = TABLE.iter().map(|component| component.name).collect();
        assert_eq!(names.len(), TABLE.len());
        let all: Vec<_> = TABLE.iter().flat_map(|component| component.features).collect();
        let gates: BTreeSet<_> = all.iter().map(|feature| feature.name).collect();
        assert_eq!(gates.len(), all.len());
    }
}
