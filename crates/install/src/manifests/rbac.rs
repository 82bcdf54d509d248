//! The roles of the components, and their bindings.

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{Objects, Options, component_labels, component_metadata};
use crate::component::Component;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Adds the roles and bindings of a component.
pub(super) fn add(component: Component, options: &Options, objects: &mut Objects) {
    for (name, role) in component.roles() {
        add_role(component, &name, &role, options, objects);
    }
}

/// Adds a role of a component, by its name, and binds the component's service account to it.
fn add_role(
    component: Component,
    name: &str,
    role: &plumb_roles::Component,
    options: &Options,
    objects: &mut Objects,
) {
    let subjects = Some(vec![Subject {
        kind: "ServiceAccount".to_owned(),
        name: component.object_name(),
        namespace: Some(options.namespace.clone()),
        api_group: None,
    }]);
    let role_ref = |kind: &str| RoleRef {
        api_group: Some(GROUP.to_owned()),
        kind: kind.to_owned(),
        name: name.to_owned(),
    };
    let cluster_metadata = ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(component_labels(component)),
        ..ObjectMeta::default()
    };
    objects.push(ClusterRole {
        metadata: cluster_metadata.clone(),
        rules: Some(role.cluster.iter().map(policy_rule).collect()),
        aggregation_rule: None,
    });
    objects.push(ClusterRoleBinding {
        metadata: cluster_metadata,
        role_ref: role_ref("ClusterRole"),
        subjects: subjects.clone(),
    });
    let local: Vec<PolicyRule> = role.local_with_election().iter().map(policy_rule).collect();
    if !local.is_empty() {
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..component_metadata(component, options) };
        objects.push(Role { metadata: metadata.clone(), rules: Some(local) });
        objects.push(RoleBinding { metadata, role_ref: role_ref("Role"), subjects });
    }
}

fn policy_rule(rule: &plumb_roles::Rule) -> PolicyRule {
    let list = |texts: &[&str]| -> Vec<String> { texts.iter().map(|&text| text.to_owned()).collect() };
    PolicyRule {
        api_groups: Some(list(rule.groups)),
        resources: Some(list(rule.resources)),
        resource_names: Some(list(rule.names)).filter(|names| !names.is_empty()),
        verbs: list(rule.verbs),
        non_resource_urls: None,
    }
}
