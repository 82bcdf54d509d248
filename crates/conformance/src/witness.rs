//! A workload besides the cases whose VPA shows what the autoscaler has observed.
//!
//! The autoscaler has one watch of all VPAs, and handles what it observes in that order. Once the VPA of the witness has had
//! its effect, what happened to other VPAs before was observed, too: whatever they should not have led to has not come.

use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::Mutex;

use crate::case::{Amounts, Container};
use crate::failure::Failure;
use crate::follow::{Followed, live};
use crate::play::PAUSE;
use crate::pod::{self, Placement};
use crate::request::{Verb, send};
use crate::runner::Options;
use crate::setup::is_established;
use crate::vpa;
use crate::wait::{Objection, until};

const NAME: &str = "witness";
const MEBIBYTE: u64 = 1 << 20;
/// What it requests at first, in mebibytes. It requests no CPU, of which some cases count every thousandth.
const LEAST: u64 = 16;
/// After how many mebibytes more it begins anew.
const STEPS: u64 = 64;

/// The witness.
pub(crate) struct Witness {
    client: Client,
    namespace: String,
    timeout: Duration,
    /// None where no case asks for it.
    state: Option<Mutex<State>>,
}

struct State {
    pods: Followed,
    mebibytes: u64,
}

impl Witness {
    /// Waits until the autoscaler is ready, and makes the workload if any case asks for it.
    pub(crate) async fn start(
        client: &Client,
        namespace: &str,
        options: &Options,
        is_asked: bool,
    ) -> Result<Self, Failure> {
        let timeout = options.timeout;
        until_ready(client, namespace, timeout).await?;
        let (client, namespace) = (client.clone(), namespace.to_owned());
        if !is_asked {
            return Ok(Self { client, namespace, timeout, state: None });
        }
        let pods = deploy(&client, &namespace, options).await?;
        let state = Some(Mutex::new(State { pods, mebibytes: LEAST }));
        let witness = Self { client, namespace, timeout, state };
        witness.observe().await?;
        Ok(witness)
    }

    /// Waits until the autoscaler has observed everything up to here.
    pub(crate) async fn observe(&self) -> Result<(), Failure> {
        let state = self.state.as_ref().ok_or("there is no witness")?;
        let mut state = state.lock().await;
        state.mebibytes = LEAST + (state.mebibytes + 1 - LEAST) % STEPS;
        let wanted = state.mebibytes * MEBIBYTE;
        let recommended = vpa::recommendation(&[("main", "", &format!("{}Mi", state.mebibytes))]);
        let path = format!("{}/status", vpa::path(&self.namespace, NAME));
        send(&self.client, Verb::Merge, &path, Some(&recommended), None).await?.accepted()?;
        let has = |pod: &Pod| {
            let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
            let requests = container.and_then(|container| container.resources.as_ref()?.requests.as_ref());
            let memory = requests.and_then(|requests| requests.get("memory"));
            memory
                .and_then(|memory| memory.0.parse::<plumb_resize::Quantity>().ok())
                .map(plumb_resize::Quantity::saturating_units)
        };
        let holds = |lives: &_| {
            let found: Vec<_> = live(lives).filter_map(|(_, life)| has(life.last()?)).collect();
            if found.iter().any(|found| u64::try_from(*found) == Ok(wanted)) {
                return Ok(());
            }
            Objection::not_yet(format!("the witness has {found:?} and not {wanted}"))
        };
        let observed = state.pods.until(self.timeout, holds).await;
        observed.map_err(|failure| failure.during("the autoscaler does not react"))
    }
}

/// Makes the workload and its VPA.
async fn deploy(client: &Client, namespace: &str, options: &Options) -> Result<Followed, Failure> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let selector = format!("{}={NAME}", pod::WORKLOAD);
    let pods = Followed::start(pods, &selector).await;
    let containers = [Container::new("main", Amounts::new(("", ""), ("16Mi", "")))];
    let template = pod::new((NAME, NAME), &containers, Placement::default(), options);
    let labels = json!({ pod::WORKLOAD: NAME });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": NAME },
        "spec": {
            "replicas": 1, "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": template.spec },
        },
    });
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments");
    send(client, Verb::Post, &path, Some(&deployment), None).await?.accepted()?;
    let spec = json!({
        "updatePolicy": { "updateMode": "InPlace" },
        "resourcePolicy": { "containerPolicies": [{ "containerName": "*", "controlledResources": ["memory"] }] },
    });
    let made = vpa::new(NAME, spec);
    send(client, Verb::Post, &vpa::path(namespace, ""), Some(&made), None).await?.accepted()?;
    Ok(pods)
}

/// Waits until VPAs are defined, the webhook is registered, and the updater knows that it lives.
async fn until_ready(client: &Client, namespace: &str, timeout: Duration) -> Result<(), Failure> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition =
        until(&definitions, "verticalpodautoscalers.autoscaling.k8s.io", timeout, is_established).await;
    definition.map_err(|failure| failure.during("VPAs are not defined"))?;
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let webhook = until(&webhooks, "vpa-webhook-config", timeout, |_| Ok(())).await;
    webhook.map_err(|failure| failure.during("the webhook is not registered"))?;
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let lease = until(&leases, "vpa-admission-controller", timeout, |_| Ok(())).await;
    lease.map_err(|failure| failure.during("the webhook has no lease"))?;
    until_called(client, namespace, timeout).await
}

/// Waits until the API server calls the webhook. It learns of a registration by watching itself, and ignores a webhook of
/// which it knows an earlier address. No object shows that it has observed the new one.
async fn until_called(client: &Client, namespace: &str, timeout: Duration) -> Result<(), Failure> {
    let invalid = vpa::new("invalid", json!({ "updatePolicy": { "minReplicas": 0 } }));
    let path = format!("{}?dryRun=All", vpa::path(namespace, ""));
    let begun = Instant::now();
    while send(client, Verb::Post, &path, Some(&invalid), None).await?.accepted().is_ok() {
        if begun.elapsed() > timeout {
            return Err(Failure::from("the API server does not call the webhook"));
        }
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}
