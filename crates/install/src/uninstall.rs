//! `plumb uninstall`: removes what `plumb install` created, and scales a replaced Vertical Pod Autoscaler up again.
//!
//! ```text
//!   roles ─▶ webhook configurations ─▶ Deployments and the rest ─▶ workloads that a rollout holds ─▶ upstream
//! ```
//!
//! Roles come first: without them a component that still runs cannot create again what was removed.

mod release;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use plumb_client::Api;
use plumb_controller_runtime::crds::DEFINITION_ANNOTATION;
use plumb_recommender::shards::DEFAULT_LEASE;
use plumb_rollout::webhook;
use plumb_vpa::boost::annotation::is_boosted;
use plumb_vpa_admission::registration;
use plumb_vpa_api::VerticalPodAutoscaler;
use plumb_webhook::registration::{is_managed_by, is_on_loopback};
use serde_json::json;

use crate::apply::{
    ApplyError, api_of, delete, failed, installed_elsewhere, kind, namespace_of, upstream_deployments,
};
use crate::component::Component;
use crate::manifests::{Options, crds, is_of_installation, manifests};
use crate::upstream::{self, REPLICAS_ANNOTATION};

const NOT_FOUND: u16 = 404;
/// The page size of lists of pods.
const PAGE: u32 = 500;

/// The options of an uninstallation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// The namespace of the installation.
    pub namespace: String,
    /// Remove it even if VPAs use what upstream refuses.
    pub force: bool,
    /// Also remove our CustomResourceDefinitions, and with them every VPA, checkpoint, policy and CloneSet.
    pub delete_crds: bool,
    /// Only report what would be removed.
    pub dry_run: bool,
}

/// A VPA that upstream would not admit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedVpa {
    /// Its namespace and name.
    pub name: String,
    /// The fields that upstream refuses.
    pub reasons: Vec<&'static str>,
}

/// Why an uninstallation failed.
#[derive(Debug, thiserror::Error)]
pub enum UninstallError {
    /// VPAs use features that only Plumb enables by default.
    #[error("{}", list(.0))]
    Refused(Vec<RefusedVpa>),
    /// Workloads that an in-place rollout holds could not be released in time.
    #[error(
        "an in-place rollout still holds {}; repeat `plumb uninstall`, the controllers are gone",
        .0.join(", ")
    )]
    StillHeld(Vec<String>),
    /// The installation is in another namespace.
    #[error("Plumb is installed in namespace {0}: `plumb uninstall -n {0}` removes it; nothing was removed")]
    InstalledElsewhere(String),
    /// A request failed.
    #[error(transparent)]
    Request(#[from] ApplyError),
}

fn list(vpas: &[RefusedVpa]) -> String {
    let mut text = String::from(
        "these VPAs use what the Vertical Pod Autoscaler of kubernetes/autoscaler refuses unless its feature gates are on:\n",
    );
    for RefusedVpa { name, reasons } in vpas {
        // Writing to a string does not fail.
        let _ = writeln!(text, "  {name}: {}", reasons.join(", "));
    }
    text.push_str("edit them, or uninstall with --force; nothing was removed");
    text
}

/// The outcome of an uninstallation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UninstallOutcome {
    /// The installation is removed, or would be.
    Removed,
    /// There was nothing to remove.
    NotInstalled,
}

/// Removes the installation, and calls `report` with what is done to which object. No pod is evicted, and no VPA changed.
/// A workload that an in-place rollout holds is released, and its own controller recreates the pods that were not resized.
pub async fn uninstall(
    client: &Client,
    removal: &Removal,
    report: &mut dyn FnMut(&str, &str),
) -> Result<UninstallOutcome, UninstallError> {
    let upstream = upstream_deployments(client).await?;
    let replaced: Vec<&Deployment> =
        upstream.iter().filter(|found| upstream::replaced(found).is_some()).collect();
    let options = Options {
        namespace: removal.namespace.clone(),
        components: Component::ALL.to_vec(),
        crds: false,
        service_monitor: true,
        ..Options::default()
    };
    let mut objects = manifests(&options);
    // A component and one that contains it have objects in common.
    let mut seen = BTreeSet::new();
    objects.retain(|object| seen.insert((kind(object).to_owned(), object.name_any())));
    // Labels do not tell who owns a webhook configuration: the program that registered a webhook in it does.
    objects.retain(|object| kind(object) != "MutatingWebhookConfiguration");
    if let Some(other) = installed_elsewhere(client, &removal.namespace).await? {
        return Err(UninstallError::InstalledElsewhere(other));
    }
    let mut remover = Remover { client, removal, report, removed: false };
    let refused = refused_vpas(client, &upstream::feature_gates(replaced.iter().copied())).await?;
    if !refused.is_empty()
        && !removal.force
        && (removal.delete_crds || remover.finds_installation(&objects).await?)
    {
        return Err(UninstallError::Refused(refused));
    }
    // Without its role a webhook that still runs cannot register again.
    objects.sort_by_key(|object| match kind(object) {
        "ClusterRoleBinding" | "RoleBinding" => 0,
        "Deployment" => 2,
        "Namespace" => 4,
        _ => 3,
    });
    let (bindings, others): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|object| kind(object).ends_with("Binding"));
    for object in &bindings {
        remover.remove(object).await?;
    }
    let autoscaler = remover.remove_registration(registration::NAME, registration::FIELD_MANAGER).await?;
    let rollouts = remover.remove_registration(webhook::NAME, webhook::FIELD_MANAGER).await?;
    for object in &others {
        if kind(object) == "Namespace" {
            // It is deleted below, with the objects that the components wrote into it.
            continue;
        }
        remover.remove(object).await?;
    }
    // The rollout controller of `plumb up` continues with the workloads that it holds.
    if rollouts != Registration::OfPlumbUp {
        remover.release().await?;
    }
    remover.remove_state().await?;
    for object in others.iter().filter(|object| kind(object) == "Namespace") {
        remover.remove(object).await?;
    }
    for deployment in replaced {
        remover.give_back(deployment).await?;
    }
    if removal.delete_crds {
        remover.remove_definitions().await?;
    }
    if remover.removed && autoscaler != Registration::OfPlumbUp {
        remover.report_boosted().await?;
    }
    Ok(if remover.removed { UninstallOutcome::Removed } else { UninstallOutcome::NotInstalled })
}

/// The VPAs that upstream would not admit with these feature gates.
async fn refused_vpas(client: &Client, gates: &BTreeSet<String>) -> Result<Vec<RefusedVpa>, ApplyError> {
    let api: Api<VerticalPodAutoscaler> = Api::all(client.clone());
    let vpas = match api.list(&ListParams::default()).await {
        // There is no CustomResourceDefinition, and so no VPA.
        Err(kube::Error::Api(status)) if status.code == NOT_FOUND => return Ok(Vec::new()),
        listed => listed.map_err(failed("listing", "VerticalPodAutoscalers"))?,
    };
    let refused = vpas.items.iter().map(|vpa| RefusedVpa {
        name: format!("{}/{}", vpa.namespace().unwrap_or_default(), vpa.name_any()),
        reasons: upstream::refused(vpa, gates),
    });
    Ok(refused.filter(|vpa| !vpa.reasons.is_empty()).collect())
}

/// The name of a webhook configuration in reports.
fn webhook_configuration(name: &str) -> String {
    format!("mutatingwebhookconfiguration.admissionregistration.k8s.io/{name}")
}

/// Who registered a webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Registration {
    /// The webhook is not registered.
    Missing,
    /// A webhook of an installation.
    OfInstallation,
    /// `plumb up`, for its own webhook.
    OfPlumbUp,
    /// Another program.
    Foreign,
}

/// Finds out who registered a webhook.
pub(crate) async fn registration_of(
    client: &Client,
    name: &str,
    manager: &str,
) -> Result<Registration, ApplyError> {
    let api: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let found = api.get_opt(name).await.map_err(failed("reading", &webhook_configuration(name)))?;
    let Some(found) = found else { return Ok(Registration::Missing) };
    // The webhook of this installation has not registered yet.
    let is_unused = found.webhooks.iter().all(Vec::is_empty) && is_of_installation(&found);
    Ok(if is_unused {
        Registration::OfInstallation
    } else if !is_managed_by(&found, manager) {
        Registration::Foreign
    } else if is_on_loopback(&found) {
        Registration::OfPlumbUp
    } else {
        Registration::OfInstallation
    })
}

/// Removes objects one by one.
struct Remover<'a> {
    client: &'a Client,
    removal: &'a Removal,
    report: &'a mut dyn FnMut(&str, &str),
    /// Whether anything was removed, released or scaled.
    removed: bool,
}

impl Remover<'_> {
    /// Whether an object or a webhook of an installation exists.
    async fn finds_installation(&self, objects: &[DynamicObject]) -> Result<bool, ApplyError> {
        for (name, manager) in
            [(registration::NAME, registration::FIELD_MANAGER), (webhook::NAME, webhook::FIELD_MANAGER)]
        {
            if registration_of(self.client, name, manager).await? == Registration::OfInstallation {
                return Ok(true);
            }
        }
        for object in objects {
            if self.find(object).await?.is_some_and(|found| is_of_installation(&found)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads an object of the manifests.
    async fn find(&self, object: &DynamicObject) -> Result<Option<DynamicObject>, ApplyError> {
        let (api, what) = api_of(self.client, object);
        match api.get_opt(&object.name_any()).await {
            // The cluster does not serve the kind, such as ServiceMonitor. That 404 has no reason.
            Err(kube::Error::Api(status)) if status.code == NOT_FOUND => Ok(None),
            found => found.map_err(failed("reading", &what)),
        }
    }

    /// Removes an object that carries our label.
    async fn remove(&mut self, object: &DynamicObject) -> Result<(), ApplyError> {
        let (api, what) = api_of(self.client, object);
        match self.find(object).await? {
            Some(found) if is_of_installation(&found) => self.delete(&api, &object.name_any(), &what).await,
            Some(_) => {
                (self.report)(&what, "left: it does not carry the label of an installation");
                Ok(())
            }
            None => Ok(()),
        }
    }

    async fn delete(&mut self, api: &Api<DynamicObject>, name: &str, what: &str) -> Result<(), ApplyError> {
        if delete(api, name, what, self.removal.dry_run).await? {
            self.did(what, "deleted");
        }
        Ok(())
    }

    /// Reports the pods that have a CPU start-up boost, since no updater is left to end it.
    async fn report_boosted(&mut self) -> Result<(), ApplyError> {
        let api: Api<Pod> = Api::all(self.client.clone());
        let mut page = ListParams::default().limit(PAGE);
        loop {
            let pods = api.list(&page).await.map_err(failed("listing", "Pods"))?;
            for pod in pods.items.iter().filter(|pod| is_boosted(pod)) {
                let what =
                    format!("pod/{} of namespace {}", pod.name_any(), pod.namespace().unwrap_or_default());
                (self.report)(&what, "left with its CPU start-up boost: resize or recreate it");
            }
            match pods.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    /// Reports a change of an object.
    fn did(&mut self, what: &str, done: &str) {
        self.removed = true;
        (self.report)(what, done);
    }

    /// Removes a webhook configuration if our webhook registered it. Upstream's registers itself again when it starts.
    async fn remove_registration(&mut self, name: &str, manager: &str) -> Result<Registration, ApplyError> {
        let what = webhook_configuration(name);
        let registration = registration_of(self.client, name, manager).await?;
        match registration {
            Registration::Missing => {}
            Registration::Foreign => (self.report)(&what, "left: another webhook registered it"),
            Registration::OfPlumbUp => (self.report)(&what, "left: `plumb up` registered it for itself"),
            Registration::OfInstallation => {
                let kind = GroupVersionKind::gvk(
                    "admissionregistration.k8s.io",
                    "v1",
                    "MutatingWebhookConfiguration",
                );
                let api = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
                self.delete(&api, name, &what).await?;
            }
        }
        Ok(registration)
    }

    /// Releases the workloads that an in-place rollout holds.
    async fn release(&mut self) -> Result<(), UninstallError> {
        let held = release::held(self.client).await?;
        if held.is_empty() {
            return Ok(());
        }
        if !self.removal.dry_run {
            release::release(self.client).await?;
        }
        for what in &held {
            self.did(what, "released");
        }
        Ok(())
    }

    /// Removes what the components wrote: Leases and the authorities of the webhooks. The names are those of their roles.
    async fn remove_state(&mut self) -> Result<(), ApplyError> {
        let rules = Component::ALL
            .iter()
            .flat_map(|component| component.roles())
            .flat_map(|(_, role)| role.local_with_election());
        let names: BTreeSet<(&str, &str)> = rules
            .flat_map(|rule| {
                rule.names.iter().map(move |&name| (rule.resources.first().copied().unwrap_or(""), name))
            })
            // The Leases of the recommender may have any name.
            .chain([("leases", DEFAULT_LEASE)])
            .collect();
        for (resource, name) in names {
            let kind = match resource {
                "leases" => GroupVersionKind::gvk("coordination.k8s.io", "v1", "Lease"),
                "secrets" => GroupVersionKind::gvk("", "v1", "Secret"),
                _ => continue,
            };
            let what = format!("{}/{name}", kind.kind.to_lowercase());
            let resource = ApiResource::from_gvk(&kind);
            let api = Api::namespaced_with(self.client.clone(), &self.removal.namespace, &resource);
            self.delete(&api, name, &what).await?;
        }
        Ok(())
    }

    /// Scales a Deployment of upstream to its former replicas.
    async fn give_back(&mut self, deployment: &Deployment) -> Result<(), ApplyError> {
        let namespace = namespace_of(deployment);
        let name = deployment.name_any();
        let what = format!("deployment.apps/{name} of namespace {namespace}");
        let replicas = upstream::replaced(deployment);
        let patch = json!({
            "metadata": { "annotations": { REPLICAS_ANNOTATION: null } },
            "spec": { "replicas": replicas },
        });
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), &namespace);
        let params = PatchParams { dry_run: self.removal.dry_run, ..PatchParams::default() };
        let patched = api.patch(&name, &params, &Patch::Merge(&patch)).await;
        patched.map_err(failed("scaling", &what))?;
        self.did(&what, &format!("scaled to {}", replicas.unwrap_or_default()));
        Ok(())
    }

    /// Removes the CustomResourceDefinitions that carry our annotation.
    async fn remove_definitions(&mut self) -> Result<(), ApplyError> {
        let typed: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let api = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
        for crd in crds(&Component::ALL) {
            let name = crd.name_any();
            let what = format!("customresourcedefinition.apiextensions.k8s.io/{name}");
            let Some(found) = typed.get_opt(&name).await.map_err(failed("reading", &what))? else { continue };
            if found.annotations().contains_key(DEFINITION_ANNOTATION) {
                self.delete(&api, &name, &what).await?;
            } else {
                (self.report)(&what, "left: another installer made it");
            }
        }
        Ok(())
    }
}
