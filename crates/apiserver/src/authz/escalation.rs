//! Privilege escalation: the user who writes a role or a binding must have all rights that it grants, unless the user may
//! `escalate` the role or `bind` it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::rbac::{RoleRef, Unresolved};
use super::rule::{Rule, covers_path, has, has_or_all};
use super::{Ask, Authorizer, MASTERS, Objects, RBAC_GROUP};
use crate::error::ApiError;
use crate::object::meta;
use crate::user::User;

/// A write of a role or a binding.
pub(crate) struct Grant<'a> {
    /// The user.
    pub(crate) user: &'a User,
    /// The resource of the RBAC group, such as `roles`.
    pub(crate) plural: &'a str,
    /// The namespace of the object, if it has one. For a cluster-scoped kind it does not count: see
    /// [`Grant::namespace`].
    pub(crate) namespace: Option<&'a str>,
    /// The name in the URL; empty for a new object.
    pub(crate) name: &'a str,
    /// The stored object.
    pub(crate) old: Option<&'a Value>,
    /// The new object.
    pub(crate) new: &'a Value,
}

impl<'a> Grant<'a> {
    /// The namespace in which the user must have the rights; empty for the cluster.
    ///
    /// The kind decides whether there is one: a cluster-scoped object grants its rights in all namespaces, so that rights in
    /// one namespace are not enough to write it.
    fn namespace(&self) -> &'a str {
        let is_namespaced = matches!(self.plural, "roles" | "rolebindings");
        self.namespace.filter(|_| is_namespaced).unwrap_or_default()
    }
}

impl Authorizer {
    /// Refuses a role or a binding that grants rights that the user does not have.
    pub(crate) fn no_escalation(&self, grant: &Grant<'_>) -> Result<(), ApiError> {
        if grant.user.is_in(MASTERS) {
            return Ok(());
        }
        let is_role = matches!(grant.plural, "roles" | "clusterroles");
        if is_role && self.may_escalate(grant) {
            return Ok(());
        }
        if grant.old.is_some_and(|old| only_for_the_collector(old, grant.new)) {
            return Ok(());
        }
        if is_role { self.no_more_rules(grant) } else { self.no_more_bound(grant) }
    }

    fn may_escalate(&self, grant: &Grant<'_>) -> bool {
        let objects = Objects {
            group: RBAC_GROUP,
            resource: grant.plural,
            namespace: grant.namespace(),
            name: grant.name,
            ..Objects::default()
        };
        self.decide(&Ask::about_objects(grant.user, "escalate", objects)).is_allowed()
    }

    fn no_more_rules(&self, grant: &Grant<'_>) -> Result<(), ApiError> {
        let refuse = |why: &str| ApiError::forbidden(RBAC_GROUP, grant.plural, meta(grant.new, "name"), why);
        self.holds(grant, &Rule::all_of(grant.new)).map_err(|missing| refuse(&missing.to_string()))?;
        if aggregates(grant.new) || grant.old.is_some_and(aggregates) {
            let all = vec!["*".to_owned()];
            let everything = [
                Rule {
                    verbs: all.clone(),
                    api_groups: all.clone(),
                    resources: all.clone(),
                    ..Rule::default()
                },
                Rule { verbs: all.clone(), non_resource_urls: all, ..Rule::default() },
            ];
            self.holds(grant, &everything)
                .map_err(|_| refuse("must have cluster-admin privileges to use the aggregationRule"))?;
        }
        Ok(())
    }

    fn no_more_bound(&self, grant: &Grant<'_>) -> Result<(), ApiError> {
        let role = RoleRef::of(grant.new);
        let plural = match role.kind.as_str() {
            "ClusterRole" => "clusterroles",
            "Role" => "roles",
            // There is no role to look up; validation refuses it.
            _ => return Ok(()),
        };
        let objects = Objects {
            group: RBAC_GROUP,
            resource: plural,
            namespace: grant.namespace(),
            name: &role.name,
            ..Objects::default()
        };
        if self.decide(&Ask::about_objects(grant.user, "bind", objects)).is_allowed() {
            return Ok(());
        }
        let rules = self.rules_of(&role, grant.namespace()).map_err(|error| match error {
            // Upstream names the kind that is written and not the one that is missing.
            Unresolved::Missing(role) => ApiError::not_found(RBAC_GROUP, grant.plural, &role.name),
            Unresolved::Unsupported(_) => ApiError::internal(error.to_string()),
        })?;
        self.holds(grant, &rules).map_err(|missing| {
            let name = meta(grant.new, "name");
            ApiError::forbidden(RBAC_GROUP, grant.plural, name, &missing.to_string())
        })
    }

    /// Whether the user has all these rights.
    fn holds(&self, grant: &Grant<'_>, rules: &[Rule]) -> Result<(), NotHeld> {
        let (own, unresolved) = self.rules_for(grant.user, grant.namespace());
        let missing = uncovered(&own, rules);
        if missing.is_empty() {
            return Ok(());
        }
        let missing: BTreeSet<String> = compact(missing).iter().map(describe).collect();
        Err(NotHeld {
            user: grant.user.name().to_owned(),
            groups: quoted(grant.user.groups()),
            missing: missing.into_iter().collect::<Vec<_>>().join("\n"),
            unresolved: unresolved
                .map(|errors| format!("; resolution errors: [{errors}]"))
                .unwrap_or_default(),
        })
    }
}

/// Rights that a user would grant and does not have.
#[derive(Debug, thiserror::Error)]
#[error(
    "user {user:?} (groups={groups}) is attempting to grant RBAC permissions not currently held:\n{missing}{unresolved}"
)]
struct NotHeld {
    user: String,
    groups: String,
    missing: String,
    /// Which roles of the user could not be read, if any.
    unresolved: String,
}

fn aggregates(role: &Value) -> bool {
    role.pointer("/aggregationRule/clusterRoleSelectors")
        .and_then(Value::as_array)
        .is_some_and(|selectors| !selectors.is_empty())
}

/// Whether only those fields differ that the garbage collector writes.
fn only_for_the_collector(old: &Value, new: &Value) -> bool {
    let rest = |object: &Value| {
        let mut rest = object.clone();
        if let Some(fields) = rest.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "managedFields"] {
                fields.remove(field);
            }
        }
        rest
    };
    rest(old) == rest(new)
}

/// The atoms of `wanted` that no rule of `owned` covers: each has one verb, one group and one resource, or one path.
pub(crate) fn uncovered(owned: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let atoms = wanted.iter().flat_map(atoms);
    atoms.filter(|atom| !owned.iter().any(|rule| covers(rule, atom))).collect()
}

fn atoms(rule: &Rule) -> Vec<Rule> {
    let mut all = Vec::new();
    let one = |text: &String| vec![text.clone()];
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                let atom = Rule {
                    verbs: one(verb),
                    api_groups: one(group),
                    resources: one(resource),
                    ..Rule::default()
                };
                if rule.resource_names.is_empty() {
                    all.push(atom);
                    continue;
                }
                let named = |name| Rule { resource_names: one(name), ..atom.clone() };
                all.extend(rule.resource_names.iter().map(named));
            }
        }
    }
    for url in &rule.non_resource_urls {
        let atom = |verb| Rule { verbs: one(verb), non_resource_urls: one(url), ..Rule::default() };
        all.extend(rule.verbs.iter().map(atom));
    }
    all
}

fn covers(rule: &Rule, atom: &Rule) -> bool {
    let all_in = |set: &[String], wanted: &[String]| wanted.iter().all(|wanted| has_or_all(set, wanted));
    all_in(&rule.verbs, &atom.verbs)
        && all_in(&rule.api_groups, &atom.api_groups)
        && atom.resources.iter().all(|resource| covers_resource(&rule.resources, resource))
        && atom
            .non_resource_urls
            .iter()
            .all(|url| rule.non_resource_urls.iter().any(|own| covers_path(own, url)))
        && (rule.resource_names.is_empty()
            || (!atom.resource_names.is_empty()
                && atom.resource_names.iter().all(|name| has(&rule.resource_names, name))))
}

fn covers_resource(set: &[String], resource: &str) -> bool {
    has_or_all(set, resource)
        || resource.split_once('/').is_some_and(|(_, subresource)| has(set, &format!("*/{subresource}")))
}

/// Merges the verbs of atoms about the same resource.
fn compact(atoms: Vec<Rule>) -> Vec<Rule> {
    let mut all: Vec<Rule> = Vec::new();
    for atom in atoms {
        let same = |other: &&mut Rule| {
            other.non_resource_urls.is_empty()
                && other.api_groups == atom.api_groups
                && other.resources == atom.resources
                && other.resource_names == atom.resource_names
        };
        match all.iter_mut().find(same).filter(|_| atom.non_resource_urls.is_empty()) {
            Some(other) => other.verbs.extend(atom.verbs),
            None => all.push(atom),
        }
    }
    all
}

/// A rule as the message has it.
fn describe(rule: &Rule) -> String {
    let parts = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let parts = parts.into_iter().filter(|(_, list)| !list.is_empty());
    let parts: Vec<String> = parts.map(|(name, list)| format!("{name}:{}", quoted(list))).collect();
    format!("{{{}}}", parts.join(", "))
}

/// `["a" "b"]`, as upstream prints lists of texts.
fn quoted(texts: &[String]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| json!(text).to_string()).collect();
    format!("[{}]", quoted.join(" "))
}

#[cfg(test)]
mod tests {
    use plumb_store::{Key, Options, Store, Write};

    use super::*;

    fn rules(value: Value) -> Vec<Rule> {
        Rule::all_of(&json!({ "rules": value }))
    }

    /// An authorizer of a cluster in which `ann` is bound to a role that allows everything, in the namespace `ns1`.
    fn with_admin_of_one_namespace(directory: &std::path::Path) -> Authorizer {
        let store = Store::open(directory, Options::default()).unwrap();
        let everything = json!([
            { "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] },
            { "nonResourceURLs": ["*"], "verbs": ["*"] },
        ]);
        let role = json!({ "metadata": { "name": "cluster-admin" }, "rules": everything });
        let binding = json!({
            "metadata": { "namespace": "ns1", "name": "ann" },
            "roleRef": { "apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "cluster-admin" },
            "subjects": [{ "apiGroup": RBAC_GROUP, "kind": "User", "name": "ann" }],
        });
        let write = |path: &str, object: &Value| {
            Write::create(Key::new(format!("{RBAC_GROUP}/{path}")).unwrap(), object.to_string())
        };
        let writes =
            vec![write("clusterroles/cluster-admin", &role), write("rolebindings/ns1/ann", &binding)];
        store.transact(writes).wait().unwrap();
        Authorizer::new(&store)
    }

    #[test]
    fn rights_in_one_namespace_do_not_count_for_a_cluster_scoped_object_whatever_namespace_is_given() {
        let directory = tempfile::tempdir().unwrap();
        let authorizer = with_admin_of_one_namespace(directory.path());
        let user = User::new("ann", "", ["staff"]);
        let rules = json!([{ "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] }]);
        let role = json!({ "metadata": { "name": "new" }, "rules": rules });
        let aggregates = json!({
            "metadata": { "name": "new" },
            "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "a": "b" } }] },
        });
        let binding = json!({
            "metadata": { "name": "new" },
            "roleRef": { "apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "cluster-admin" },
        });
        let table = [
            ("roles", &role, true),
            ("rolebindings", &binding, true),
            ("clusterroles", &role, false),
            ("clusterroles", &aggregates, false),
            ("clusterrolebindings", &binding, false),
        ];
        for (plural, new, allowed) in table {
            for old in [None, Some(&json!({ "metadata": { "name": "new" } }))] {
                let grant = Grant { user: &user, plural, namespace: Some("ns1"), name: "new", old, new };
                assert_eq!(authorizer.no_escalation(&grant).is_ok(), allowed, "{plural} {new}");
            }
        }
    }

    #[test]
    fn the_error_lists_each_missing_permission() {
        let own = rules(json!([
            { "apiGroups": [""], "resources": ["pods", "*/scale"], "verbs": ["get", "list"] },
            { "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a"], "verbs": ["*"] },
            { "nonResourceURLs": ["/logs/*"], "verbs": ["get"] },
        ]));
        let table = [
            (json!([{ "apiGroups": [""], "resources": ["pods"], "verbs": ["get"] }]), vec![]),
            (json!([{ "apiGroups": [""], "resources": ["things/scale"], "verbs": ["get"] }]), vec![]),
            (
                json!([{ "apiGroups": [""], "resources": ["pods", "pods/resize"], "verbs": ["get", "patch"] }]),
                vec![
                    r#"{APIGroups:[""], Resources:["pods"], Verbs:["patch"]}"#,
                    r#"{APIGroups:[""], Resources:["pods/resize"], Verbs:["get" "patch"]}"#,
                ],
            ),
            (
                json!([{ "apiGroups": [""], "resources": ["secrets"], "verbs": ["get"] }]),
                vec![r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}"#],
            ),
            (
                json!([{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["a", "b"], "verbs": ["get"] }]),
                vec![r#"{APIGroups:[""], Resources:["secrets"], ResourceNames:["b"], Verbs:["get"]}"#],
            ),
            (
                json!([{ "nonResourceURLs": ["/logs/x", "/metrics"], "verbs": ["get"] }]),
                vec![r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#],
            ),
            (
                json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }]),
                vec![r#"{APIGroups:["*"], Resources:["*"], Verbs:["*"]}"#],
            ),
        ];
        for (wanted, missing) in table {
            let found: BTreeSet<String> =
                compact(uncovered(&own, &rules(wanted.clone()))).iter().map(describe).collect();
            assert_eq!(found.into_iter().collect::<Vec<_>>(), missing, "{wanted}");
        }
    }
}
