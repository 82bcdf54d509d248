//! `plumb install --apply`: server-side apply of the manifests, after checks of the cluster.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt as _};
use plumb_client::Api;
use plumb_controller_runtime::crds::{self, DEFINITION_ANNOTATION, InstallError, InstallOutcome, KeepReason};
use plumb_rollout::webhook;
use plumb_vpa_admission::registration;
use serde_json::json;

use crate::component::Component;
use crate::manifests::{Options, PART_OF, annotated, definitions, is_of_installation, manifests};
use crate::uninstall::{Registration, registration_of};
use crate::upstream::{self, REPLICAS_ANNOTATION};

/// The manager of the fields that are applied.
pub const FIELD_MANAGER: &str = "plumb-install";

/// The group of VPAs, which upstream has definitions of, too.
const VPA_GROUP: &str = "autoscaling.k8s.io";

/// Why an installation failed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The API server is too old, or its feature gate is off.
    #[error(
        "the API server does not serve pods/resize: in-place resize needs Kubernetes 1.33 or newer with the feature gate InPlacePodVerticalScaling; nothing was installed"
    )]
    NoResize,
    /// Two autoscalers would work against each other.
    #[error(
        "the Vertical Pod Autoscaler of kubernetes/autoscaler runs here ({}); --replace-vpa takes over from it; nothing was installed",
        .0.join(", ")
    )]
    Upstream(Vec<String>),
    /// Two of each component would work against each other.
    #[error(
        "`plumb up` runs {} of this cluster itself; `plumb up --components` can leave that out, or --components here; nothing was installed",
        .0.join(" and ")
    )]
    PlumbUp(Vec<&'static str>),
    /// The roles of the components are cluster-scoped: another installation would rebind them.
    #[error(
        "Plumb is installed in namespace {0}: `plumb install -n {0}` changes that installation, `plumb uninstall -n {0}` removes it; nothing was installed"
    )]
    InstalledElsewhere(String),
    /// A request failed.
    #[error("{doing} {what}")]
    Request {
        /// The operation.
        doing: &'static str,
        /// The object.
        what: String,
        /// The response of the API server.
        #[source]
        source: kube::Error,
    },
    /// A definition cannot be installed.
    #[error(transparent)]
    Definition(#[from] InstallError),
}

/// How the manifests are applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// The API server checks everything and stores nothing.
    pub dry_run: bool,
    /// Upstream's Deployments are scaled to zero.
    pub replace_vpa: bool,
}

/// The change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was created.
    Created,
    /// It was updated.
    Configured,
    /// It is unchanged.
    Unchanged,
    /// It belongs to another installer, and is unchanged.
    Left,
    /// It was scaled to zero.
    ScaledDown,
    /// It was deleted: another component does its work now.
    Deleted,
}

impl Change {
    /// The word that people read.
    pub fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Configured => "configured",
            Self::Unchanged => "unchanged",
            Self::Left => "left as another installer made it",
            Self::ScaledDown => "scaled to 0",
            Self::Deleted => "deleted",
        }
    }
}

/// Installs, and calls `report` with each object.
///
/// It can be repeated: objects of an earlier installation are updated, even if they were edited.
pub async fn apply(
    client: &Client,
    options: &Options,
    mode: Mode,
    report: &mut dyn FnMut(&str, Change),
) -> Result<(), ApplyError> {
    require_resize(client).await?;
    let running = upstream_deployments(client).await?;
    let running: Vec<_> = running.into_iter().filter(|found| upstream::replicas(found) > 0).collect();
    if !running.is_empty() && !mode.replace_vpa {
        let names = running.iter().map(|found| format!("{}/{}", namespace_of(found), found.name_any()));
        return Err(ApplyError::Upstream(names.collect()));
    }
    let own = run_by_plumb_up(client, &options.components).await?;
    if !own.is_empty() {
        return Err(ApplyError::PlumbUp(own));
    }
    if let Some(other) = installed_elsewhere(client, &options.namespace).await? {
        return Err(ApplyError::InstalledElsewhere(other));
    }
    let without_crds = Options { crds: false, ..options.clone() };
    let mut objects = manifests(&without_crds).into_iter().peekable();
    while let Some(namespace) = objects.next_if(|object| kind(object) == "Namespace") {
        apply_one(client, &namespace, mode, report).await?;
    }
    if options.crds {
        apply_definitions(client, options, mode, report).await?;
    }
    // Upstream's stop before ours start: two never write at the same time, and checkpoints are up to date.
    for deployment in running {
        scale_down(client, &deployment, mode, report).await?;
    }
    delete_replaced(client, options, mode, report).await?;
    for object in objects {
        apply_one(client, &object, mode, report).await?;
    }
    Ok(())
}

/// Deletes the Deployments of an earlier installation that the installed components replace: the parts of
/// a component that runs several, or the component that runs them all.
async fn delete_replaced(
    client: &Client,
    options: &Options,
    mode: Mode,
    report: &mut dyn FnMut(&str, Change),
) -> Result<(), ApplyError> {
    let does_the_same = |one: Component, other: Component| {
        one != other && one.parts().iter().any(|part| other.parts().contains(part))
    };
    let replaced = Component::ALL.into_iter().filter(|&component| {
        !options.components.contains(&component)
            && options.components.iter().any(|&chosen| does_the_same(chosen, component))
    });
    let of_replaced = Options { components: replaced.collect(), crds: false, ..options.clone() };
    for object in manifests(&of_replaced) {
        let is_of_process = matches!(kind(&object), "Deployment" | "PodDisruptionBudget" | "ServiceAccount");
        if !is_of_process {
            continue;
        }
        let (api, what) = api_of(client, &object);
        let found = api.get_opt(&object.name_any()).await.map_err(failed("reading", &what))?;
        if found.as_ref().is_some_and(is_of_installation)
            && delete(&api, &object.name_any(), &what, mode.dry_run).await?
        {
            report(&what, Change::Deleted);
        }
    }
    Ok(())
}

/// Deletes an object, and its dependents in the background. Returns whether it existed.
pub(crate) async fn delete(
    api: &Api<DynamicObject>,
    name: &str,
    what: &str,
    dry_run: bool,
) -> Result<bool, ApplyError> {
    match api.delete(name, &DeleteParams { dry_run, ..DeleteParams::background() }).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(false),
        deleted => deleted.map(|()| true).map_err(failed("deleting", what)),
    }
}

/// The components that `plumb up` runs in its own process, found by the webhooks that it has registered.
async fn run_by_plumb_up(client: &Client, components: &[Component]) -> Result<Vec<&'static str>, ApplyError> {
    let mut own = Vec::new();
    let is_rollout = |component: &Component| *component == Component::Rollout;
    if components.iter().any(|component| !is_rollout(component))
        && registration_of(client, registration::NAME, registration::FIELD_MANAGER).await?
            == Registration::OfPlumbUp
    {
        own.push("the autoscaler");
    }
    if components.iter().any(is_rollout)
        && registration_of(client, webhook::NAME, webhook::FIELD_MANAGER).await? == Registration::OfPlumbUp
    {
        own.push("the rollout controllers");
    }
    Ok(own)
}

/// The namespace of an installation in another namespace, found by the service accounts that its bindings name.
pub(crate) async fn installed_elsewhere(
    client: &Client,
    namespace: &str,
) -> Result<Option<String>, ApplyError> {
    let api: kube::Api<ClusterRoleBinding> = kube::Api::all(client.clone());
    let ours = ListParams::default().labels(&format!("{}={}", PART_OF.0, PART_OF.1));
    let bindings = api.list(&ours).await.map_err(failed("listing", "ClusterRoleBindings"))?;
    let subjects = bindings.items.into_iter().flat_map(|binding| binding.subjects.unwrap_or_default());
    let mut namespaces = subjects.filter_map(|subject| subject.namespace);
    Ok(namespaces.find(|other| other != namespace))
}

/// It uses discovery, since the version of the server does not show its feature gates.
async fn require_resize(client: &Client) -> Result<(), ApplyError> {
    let listed = client.list_core_api_resources("v1").await;
    let listed = listed.map_err(failed("listing", "the resources of v1"))?;
    let serves = listed.resources.iter().any(|resource| resource.name == "pods/resize");
    if serves { Ok(()) } else { Err(ApplyError::NoResize) }
}

/// The Deployments of upstream's programs, in every namespace.
pub(crate) async fn upstream_deployments(client: &Client) -> Result<Vec<Deployment>, ApplyError> {
    let api: Api<Deployment> = Api::all(client.clone());
    let all = api.list(&ListParams::default()).await.map_err(failed("listing", "Deployments"))?;
    Ok(all.items.into_iter().filter(upstream::is_upstream).collect())
}

async fn scale_down(
    client: &Client,
    deployment: &Deployment,
    mode: Mode,
    report: &mut dyn FnMut(&str, Change),
) -> Result<(), ApplyError> {
    let namespace = namespace_of(deployment);
    let name = deployment.name_any();
    let patch = json!({
        "metadata": { "annotations": { REPLICAS_ANNOTATION: upstream::replicas(deployment).to_string() } },
        "spec": { "replicas": 0 },
    });
    let api: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    let params = PatchParams { dry_run: mode.dry_run, ..PatchParams::default() };
    let what = format!("deployment.apps/{name} of namespace {namespace}");
    let patched = api.patch(&name, &params, &Patch::Merge(&patch)).await;
    patched.map_err(failed("scaling", &what))?;
    report(&what, Change::ScaledDown);
    Ok(())
}

async fn apply_definitions(
    client: &Client,
    options: &Options,
    mode: Mode,
    report: &mut dyn FnMut(&str, Change),
) -> Result<(), ApplyError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for (manager, definition) in definitions(&options.components) {
        let name = definition.crd.name_any();
        let what = format!("customresourcedefinition.apiextensions.k8s.io/{name}");
        let crd = annotated(&definition);
        let params = PatchParams { dry_run: mode.dry_run, ..PatchParams::apply(manager) };
        let existing = api.get_opt(&name).await.map_err(failed("reading", &what))?;
        let is_ours = |crd: &CustomResourceDefinition| {
            // Applied by another tool, from what `plumb install` prints.
            crd.annotations().contains_key(DEFINITION_ANNOTATION)
        };
        let takes_over = existing
            .as_ref()
            .is_some_and(|existing| is_ours(existing) || (mode.replace_vpa && crd.spec.group == VPA_GROUP));
        let change = if mode.dry_run {
            match (&existing, takes_over) {
                (None, _) => Change::Created,
                (Some(_), true) => Change::Configured,
                (Some(_), false) => Change::Left,
            }
        } else {
            match crds::install_one(client, manager, definition).await? {
                InstallOutcome::Created => Change::Created,
                InstallOutcome::Updated => Change::Configured,
                InstallOutcome::Unchanged => Change::Unchanged,
                InstallOutcome::Kept(KeepReason::Foreign(_)) if takes_over => {
                    let applied = api.patch(&name, &params.force(), &Patch::Apply(&crd)).await;
                    applied.map_err(failed("applying", &what))?;
                    Change::Configured
                }
                InstallOutcome::Kept(_) => Change::Left,
            }
        };
        report(&what, change);
    }
    Ok(())
}

async fn apply_one(
    client: &Client,
    object: &DynamicObject,
    mode: Mode,
    report: &mut dyn FnMut(&str, Change),
) -> Result<(), ApplyError> {
    let (api, what) = api_of(client, object);
    let name = object.name_any();
    let before = api.get_opt(&name).await.map_err(failed("reading", &what))?;
    let params = PatchParams { dry_run: mode.dry_run, ..PatchParams::apply(FIELD_MANAGER) };
    let after = api.patch(&name, &params.force(), &Patch::Apply(object)).await;
    let after = match (after, &before) {
        // A dry run does not store the namespace, so the API server answers 404 for objects in it.
        (Err(kube::Error::Api(status)), None) if mode.dry_run && status.is_not_found() => None,
        (after, _) => Some(after.map_err(failed("applying", &what))?),
    };
    let change = match (before, after) {
        (None, _) | (_, None) => Change::Created,
        (Some(before), Some(after)) if says_the_same(&before, &after) => Change::Unchanged,
        _ => Change::Configured,
    };
    report(&what, change);
    Ok(())
}

/// Whether two versions of an object differ in nothing that is applied.
fn says_the_same(before: &DynamicObject, after: &DynamicObject) -> bool {
    let without_status = |object: &DynamicObject| {
        let mut data = object.data.clone();
        if let Some(fields) = data.as_object_mut() {
            fields.remove("status");
        }
        data
    };
    before.labels() == after.labels()
        && before.annotations() == after.annotations()
        && without_status(before) == without_status(after)
}

/// The API of an object, and its name in messages: `deployment.apps/web`.
pub(crate) fn api_of(client: &Client, object: &DynamicObject) -> (Api<DynamicObject>, String) {
    let types = object.types.clone().unwrap_or_default();
    let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, &types.kind));
    let kind = types.kind.to_lowercase();
    let kind = if group.is_empty() { kind } else { format!("{kind}.{group}") };
    let what = format!("{kind}/{}", object.name_any());
    let api = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    (api, what)
}

pub(crate) fn kind(object: &DynamicObject) -> &str {
    object.types.as_ref().map_or("", |types| types.kind.as_str())
}

pub(crate) fn namespace_of(deployment: &Deployment) -> String {
    deployment.namespace().unwrap_or_default()
}

pub(crate) fn failed(doing: &'static str, what: &str) -> impl FnOnce(kube::Error) -> ApplyError {
    let what = what.to_owned();
    move |source| ApplyError::Request { doing, what, source }
}
