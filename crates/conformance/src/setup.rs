//! Setup of cases: namespaces with their rules, and a node with a given amount of free CPU.

use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::core::v1::{LimitRange, Namespace, Node, Pod, ResourceQuota, ServiceAccount};
use k8s_openapi::api::node::v1::RuntimeClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use plumb_resize::Quantity;
use plumb_resize::list::ResourceList;
use serde_json::json;

use crate::case::{Amounts, Case, Container, Rule};
use crate::error::{Error, api};
use crate::failure::Failure;
use crate::pod::{self, Placement};
use crate::runner::Options;
use crate::wait::{Objection, until, until_gone};

/// How long the service account controller may take for a new namespace.
const NAMESPACE_TIMEOUT: Duration = Duration::from_mins(3);

/// The handler in containerd of pods without a `RuntimeClass`.
const HANDLER: &str = "runc";

/// A node for cases.
pub(crate) struct ReadyNode {
    pub(crate) name: String,
    /// Its allocatable cpu, in thousandths of a core.
    pub(crate) cpu: i64,
}

/// A node that is ready, if there is one.
pub(crate) async fn ready_node(client: &Client) -> Result<Option<ReadyNode>, Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await.map_err(api("list the nodes"))?;
    let is_ready = |node: &&Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref());
        conditions.unwrap_or_default().iter().any(|one| one.type_ == "Ready" && one.status == "True")
    };
    let found = nodes.iter().find(is_ready).map(|node| {
        let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
        let cpu = allocatable.and_then(|all| all.get("cpu")?.0.parse::<Quantity>().ok());
        ReadyNode { name: node.name_any(), cpu: cpu.unwrap_or_default().saturating_milli() }
    });
    Ok(found)
}

/// Creates a namespace, and waits for the service account that pods need.
pub(crate) async fn namespace(client: &Client) -> Result<String, Error> {
    let mut namespace = Namespace::default();
    namespace.metadata.generate_name = Some(String::from("plumb-conformance-"));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let created = namespaces.create(&PostParams::default(), &namespace).await;
    let created = created.map_err(api("create a namespace"))?.name_any();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &created);
    match until(&accounts, "default", NAMESPACE_TIMEOUT, |_| Ok(())).await {
        Ok(_) => Ok(created),
        Err(_) => Err(Error::NoServiceAccount(created)),
    }
}

/// Deletes a namespace, and does not wait for it.
pub(crate) async fn delete_namespace(client: &Client, name: &str) -> Result<(), Error> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let deleted = namespaces.delete(name, &DeleteParams::default()).await;
    deleted.map(|_| ()).map_err(api("delete the namespace"))
}

/// Waits until the webhook that holds workloads is registered, and policies are defined.
pub(crate) async fn until_rollouts_are_held(client: &Client, timeout: Duration) -> Result<(), Failure> {
    let webhooks: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let webhook = until(&webhooks, "plumb-rollout-webhook", timeout, |_| Ok(())).await;
    webhook.map_err(|failure| failure.during("the webhook that holds workloads is not registered"))?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = until(&definitions, "rolloutpolicies.plumb.dev", timeout, is_established).await;
    definition.map(drop).map_err(|failure| failure.during("RolloutPolicies are not defined"))
}

/// Whether a kind is served.
pub(crate) fn is_established(definition: &CustomResourceDefinition) -> Result<(), Objection> {
    let conditions = definition.status.as_ref().and_then(|status| status.conditions.as_deref());
    let mut conditions = conditions.unwrap_or_default().iter();
    if conditions.any(|one| one.type_ == "Established" && one.status == "True") {
        return Ok(());
    }
    Objection::not_yet("it is not established")
}

/// Creates a rule in a namespace, and waits until it is enforced.
pub(crate) async fn rule(
    client: &Client,
    namespace: &str,
    rule: Rule,
    timeout: Duration,
) -> Result<(), Failure> {
    match rule {
        Rule::Quota { cpu, memory } => {
            let quota = json!({
                "metadata": { "name": "quota" }, "spec": { "hard": { "cpu": cpu, "memory": memory } },
            });
            let quota: ResourceQuota = serde_json::from_value(quota).map_err(Failure::json("a rule"))?;
            let quotas: Api<ResourceQuota> = Api::namespaced(client.clone(), namespace);
            quotas.create(&PostParams::default(), &quota).await?;
            // The API server enforces a quota once its status has the usage.
            let counted = |quota: &ResourceQuota| {
                let used = quota.status.as_ref().and_then(|status| status.used.as_ref());
                if used.is_some() { Ok(()) } else { Objection::not_yet("the quota has no usage yet") }
            };
            until(&quotas, "quota", timeout, counted).await.map(|_| ())
        }
        Rule::Range { cpu, memory } => {
            let range = json!({
                "metadata": { "name": "range" },
                "spec": { "limits": [{
                    "type": "Container",
                    "min": { "cpu": cpu.0, "memory": memory.0 }, "max": { "cpu": cpu.1, "memory": memory.1 },
                }] },
            });
            let range: LimitRange = serde_json::from_value(range).map_err(Failure::json("a rule"))?;
            let ranges: Api<LimitRange> = Api::namespaced(client.clone(), namespace);
            ranges.create(&PostParams::default(), &range).await?;
            Ok(())
        }
        Rule::Overhead { cpu } => {
            let class = json!({
                "metadata": { "name": namespace }, "handler": HANDLER, "overhead": { "podFixed": { "cpu": cpu } },
            });
            let class: RuntimeClass = serde_json::from_value(class).map_err(Failure::json("a rule"))?;
            let classes: Api<RuntimeClass> = Api::all(client.clone());
            classes.create(&PostParams::default(), &class).await?;
            Ok(())
        }
    }
}

/// Deletes the cluster-scoped objects of a namespace's rules.
pub(crate) async fn remove_rules(client: &Client, namespace: &str, rules: &[Rule]) -> Result<(), Failure> {
    if has_class(rules) {
        let classes: Api<RuntimeClass> = Api::all(client.clone());
        let removed = classes.delete(namespace, &DeleteParams::default()).await;
        removed?;
    }
    Ok(())
}

/// Whether the pods have a `RuntimeClass`, which has the name of their namespace.
pub(crate) fn has_class(rules: &[Rule]) -> bool {
    rules.iter().any(|rule| matches!(rule, Rule::Overhead { .. }))
}

/// A pod that requests all CPU of a node except the amount that the case needs. It runs before the case creates
/// anything else.
pub(crate) async fn filler(
    client: &Client,
    case: &Case,
    node: &str,
    cpu: i64,
    options: &Options,
) -> Result<Pod, Failure> {
    let free = free_cpu(client, node).await?;
    if free < cpu {
        return Err(Failure::Unmet(format!(
            "the node has {free}m of cpu to spare and the case wants {cpu}m"
        )));
    }
    let containers = [Container::new("main", Amounts::NONE)];
    let name = case.pod("filler");
    let mut filler = pod::new(
        (case.name, &name),
        &containers,
        Placement { node: Some(node), ..Placement::default() },
        options,
    );
    let amount = Quantity::from_milli(free - cpu).into();
    let resources = filler.spec.as_mut().and_then(|spec| spec.containers[0].resources.as_mut());
    if let Some(resources) = resources {
        resources.requests = Some([("cpu".to_owned(), amount)].into());
    }
    Ok(filler)
}

/// The cpu of a node that no pod on it requests, in thousandths of a core.
async fn free_cpu(client: &Client, node: &str) -> Result<i64, Failure> {
    let nodes: Api<Node> = Api::all(client.clone());
    let status = nodes.get(node).await?.status.unwrap_or_default();
    let allocatable = ResourceList::read(status.allocatable.as_ref())?;
    let pods: Api<Pod> = Api::all(client.clone());
    let here = pods.list(&ListParams::default().fields(&format!("spec.nodeName={node}"))).await?;
    let is_over = |pod: &&Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let cpu = |list: &ResourceList| list.get("cpu").unwrap_or_default().saturating_milli();
    let mut free = cpu(&allocatable);
    for pod in here.iter().filter(|pod| !is_over(pod)) {
        free -= cpu(&plumb_resize::accounting::requested(pod)?);
    }
    Ok(free)
}

/// Deletes the pods of a case, and does not wait for them.
pub(crate) async fn delete_pods(pods: &Api<Pod>, case: &Case) -> Result<(), Failure> {
    let of_case = ListParams::default().labels(&format!("{}={}", pod::LABEL, pod::label(case.name)));
    let there = pods.list(&of_case).await?;
    for pod in &there {
        match pods.delete(&pod.name_any(), &DeleteParams::default()).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Waits until the pods of deleted cases are gone.
pub(crate) async fn until_cleared(client: &Client, timeout: Duration) -> Result<(), Failure> {
    let pods: Api<Pod> = Api::all(client.clone());
    let of_cases = ListParams::default().labels(pod::LABEL);
    let there = pods.list(&of_cases).await?;
    for pod in there.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
        let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
        until_gone(&pods, &pod.name_any(), &pod.uid().unwrap_or_default(), timeout).await?;
    }
    Ok(())
}
