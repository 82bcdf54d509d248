//! The objects of an installation.

mod crds;
mod deployment;
mod network;
mod rbac;

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::ResourceExt;
use kube::core::DynamicObject;
use serde::Serialize;

use crate::component::Component;
pub use crds::crds;
pub(crate) use crds::{annotated, definitions};

/// The label with which all objects of an installation are found.
pub const PART_OF: (&str, &str) = ("app.kubernetes.io/part-of", "plumb");

/// Whether an object carries the label of an installation.
pub(crate) fn is_of_installation(object: &impl ResourceExt) -> bool {
    let (key, value) = PART_OF;
    object.labels().get(key).is_some_and(|own| own == value)
}

/// The labels of every object.
pub const LABELS: [(&str, &str); 2] = [("app.kubernetes.io/name", "plumb"), PART_OF];

/// The label that distinguishes the components.
const COMPONENT: &str = "app.kubernetes.io/component";

/// Namespaces that every cluster has: they are not the installation's.
const GIVEN_NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The options of an installation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The namespace of the controllers.
    pub namespace: String,
    /// The image of `plumb`.
    pub image: String,
    /// The components.
    pub components: Vec<Component>,
    /// The number of replicas of each component.
    pub replicas: i32,
    /// Whether the definitions of custom resources are among the objects.
    pub crds: bool,
    /// Whether a Prometheus operator is to scrape the components.
    pub service_monitor: bool,
    /// The feature gates of all components, as `--feature-gates` takes them; empty for the defaults.
    pub feature_gates: String,
    /// More flags of a component.
    pub extra_args: BTreeMap<Component, Vec<String>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            namespace: "plumb-system".to_owned(),
            // No registry serves this name: users build and import the image, or name another.
            image: format!("localhost/plumb:{}", env!("CARGO_PKG_VERSION")),
            components: Component::DEFAULT.to_vec(),
            replicas: 2,
            crds: true,
            service_monitor: false,
            feature_gates: String::new(),
            extra_args: BTreeMap::new(),
        }
    }
}

/// The objects, in an order in which they can be created.
pub fn manifests(options: &Options) -> Vec<DynamicObject> {
    let mut objects = Objects::default();
    objects.extend(namespace(options));
    if options.crds {
        objects.extend(crds(&options.components));
    }
    for &component in &options.components {
        of_component(component, options, &mut objects);
    }
    common(options, &mut objects);
    objects.0
}

/// The namespace, unless every cluster has it.
pub(crate) fn namespace(options: &Options) -> Option<Namespace> {
    if GIVEN_NAMESPACES.contains(&options.namespace.as_str()) {
        return None;
    }
    let mut labels = labels();
    // No component needs more than the restricted Pod Security Standard.
    labels.insert("pod-security.kubernetes.io/enforce".to_owned(), "restricted".to_owned());
    let metadata =
        ObjectMeta { name: Some(options.namespace.clone()), labels: Some(labels), ..ObjectMeta::default() };
    Some(Namespace { metadata, ..Namespace::default() })
}

/// The objects of one component.
pub(crate) fn of_component(component: Component, options: &Options, objects: &mut Objects) {
    let account =
        ServiceAccount { metadata: component_metadata(component, options), ..ServiceAccount::default() };
    objects.push(account);
    rbac::add(component, options, objects);
    objects.extend(network::webhook_service(component, options));
    objects.extend(network::webhook_configuration(component));
    objects.push(deployment::deployment(component, options));
    objects.push(deployment::disruption_budget(component, options));
}

/// The objects that all components share.
pub(crate) fn common(options: &Options, objects: &mut Objects) {
    objects.push(network::policy(options));
    if options.service_monitor {
        objects.push(network::metrics_service(options));
        objects.push(network::service_monitor(options));
    }
}

/// Objects of any kind.
#[derive(Debug, Default)]
pub(crate) struct Objects(pub(crate) Vec<DynamicObject>);

impl Objects {
    fn push(&mut self, object: impl Serialize) {
        let object = serde_json::to_value(object).and_then(serde_json::from_value);
        #[expect(clippy::expect_used, reason = "objects are built here, and tests build all of them")]
        self.0.push(object.expect("an object is JSON with a kind"));
    }

    fn extend(&mut self, objects: impl IntoIterator<Item = impl Serialize>) {
        for object in objects {
            self.push(object);
        }
    }
}

fn labels() -> BTreeMap<String, String> {
    LABELS.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

fn component_labels(component: Component) -> BTreeMap<String, String> {
    let mut labels = labels();
    labels.insert(COMPONENT.to_owned(), component.name().to_owned());
    labels
}

/// The selector of the pods of a component, or of all of them.
fn selector(component: Option<Component>) -> LabelSelector {
    let labels = component.map_or_else(labels, component_labels);
    LabelSelector { match_labels: Some(labels), match_expressions: None }
}

/// The metadata of an object of a component in the namespace.
fn component_metadata(component: Component, options: &Options) -> ObjectMeta {
    ObjectMeta {
        name: Some(component.object_name()),
        namespace: Some(options.namespace.clone()),
        labels: Some(component_labels(component)),
        ..ObjectMeta::default()
    }
}

/// The metadata of an object in the namespace that belongs to no component.
fn metadata(name: &str, options: &Options) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(options.namespace.clone()),
        labels: Some(labels()),
        ..ObjectMeta::default()
    }
}
