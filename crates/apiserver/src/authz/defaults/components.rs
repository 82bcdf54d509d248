//! The roles and bindings of Plumb's components. On other clusters the manifests of `plumb install` create them.

use std::collections::BTreeMap;

use plumb_roles::{COMPONENTS, Component};

use super::{BindingLine, RoleLine, Rule, SubjectLine};

/// The namespace of the components.
const NAMESPACE: &str = "kube-system";

/// The roles, by plural.
pub(super) fn roles() -> [(&'static str, Vec<RoleLine>); 2] {
    let line = |component: &Component, namespace: Option<&str>, rules: &[plumb_roles::Rule]| RoleLine {
        namespace: namespace.map(str::to_owned),
        name: role(component),
        labels: BTreeMap::new(),
        rules: rules.iter().map(Rule::from).collect(),
        aggregate: Vec::new(),
    };
    let cluster = COMPONENTS
        .iter()
        .map(|component| line(component, None, &[component.cluster, component.registration].concat()));
    let local = with_local().map(|component| line(component, Some(NAMESPACE), component.local));
    [("clusterroles", cluster.collect()), ("roles", local.collect())]
}

/// The bindings, by plural.
pub(super) fn bindings() -> [(&'static str, Vec<BindingLine>); 2] {
    let line = |component: &Component, namespace: Option<&str>| BindingLine {
        namespace: namespace.map(str::to_owned),
        name: role(component),
        role: role(component),
        subjects: vec![SubjectLine {
            kind: "ServiceAccount".to_owned(),
            namespace: Some(NAMESPACE.to_owned()),
            name: component.account.to_owned(),
        }],
    };
    let cluster = COMPONENTS.iter().map(|component| line(component, None));
    let local = with_local().map(|component| line(component, Some(NAMESPACE)));
    [("clusterrolebindings", cluster.collect()), ("rolebindings", local.collect())]
}

fn with_local() -> impl Iterator<Item = &'static Component> {
    COMPONENTS.iter().filter(|component| !component.local.is_empty())
}

fn role(component: &Component) -> String {
    format!("plumb:{}", component.account)
}

impl From<&plumb_roles::Rule> for Rule {
    fn from(rule: &plumb_roles::Rule) -> Self {
        let list = |texts: &[&str]| texts.iter().map(|&text| text.to_owned()).collect();
        Self {
            verbs: list(rule.verbs),
            api_groups: list(rule.groups),
            resources: list(rule.resources),
            resource_names: list(rule.names),
            non_resource_urls: Vec::new(),
        }
    }
}
