//! The operations of a path: parameters, request bodies and responses.

use serde_json::{Map, Value, json};

use super::components::{Components, status_reference};
use crate::schema::{Resource, Subresource};

/// The action of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    List,
    Create,
    DeleteCollection,
    Get,
    Replace,
    Patch,
    Delete,
    ConnectGet,
    ConnectPost,
}

impl Action {
    /// The HTTP method: the key of the operation in its path.
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::List | Self::Get | Self::ConnectGet => "get",
            Self::Create | Self::ConnectPost => "post",
            Self::Replace => "put",
            Self::Patch => "patch",
            Self::Delete | Self::DeleteCollection => "delete",
        }
    }

    /// The API verb of the action.
    pub(super) fn verb(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Get | Self::ConnectGet => "get",
            Self::Create | Self::ConnectPost => "create",
            Self::Replace => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// The value of `x-kubernetes-action`.
    fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Create => "post",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::Replace => "put",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::ConnectGet | Self::ConnectPost => "connect",
        }
    }

    /// The first word of the operation's id.
    fn begins(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Create => "create",
            Self::DeleteCollection | Self::Delete => "delete",
            Self::Get => "read",
            Self::Replace => "replace",
            Self::Patch => "patch",
            Self::ConnectGet | Self::ConnectPost => "connect",
        }
    }

    /// The query parameters of the action, with their types.
    fn queries(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::List => &[
                ("allowWatchBookmarks", "boolean"),
                ("continue", "string"),
                ("fieldSelector", "string"),
                ("labelSelector", "string"),
                ("limit", "integer"),
                ("resourceVersion", "string"),
                ("resourceVersionMatch", "string"),
                ("sendInitialEvents", "boolean"),
                ("timeoutSeconds", "integer"),
                ("watch", "boolean"),
            ],
            Self::Create | Self::Replace => {
                &[("dryRun", "string"), ("fieldManager", "string"), ("fieldValidation", "string")]
            }
            Self::Patch => &[
                ("dryRun", "string"),
                ("fieldManager", "string"),
                ("fieldValidation", "string"),
                ("force", "boolean"),
            ],
            Self::Delete => &[
                ("dryRun", "string"),
                ("gracePeriodSeconds", "integer"),
                ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
                ("orphanDependents", "boolean"),
                ("propagationPolicy", "string"),
            ],
            Self::DeleteCollection => &[
                ("continue", "string"),
                ("dryRun", "string"),
                ("fieldSelector", "string"),
                ("gracePeriodSeconds", "integer"),
                ("ignoreStoreReadErrorWithClusterBreakingPotential", "boolean"),
                ("labelSelector", "string"),
                ("limit", "integer"),
                ("orphanDependents", "boolean"),
                ("propagationPolicy", "string"),
                ("resourceVersion", "string"),
                ("resourceVersionMatch", "string"),
                ("sendInitialEvents", "boolean"),
                ("timeoutSeconds", "integer"),
            ],
            Self::Get | Self::ConnectGet | Self::ConnectPost => &[],
        }
    }
}

/// The resource and the scope of an operation.
pub(super) struct Operation<'r> {
    pub(super) resource: &'r Resource,
    pub(super) subresource: Option<&'r Subresource>,
    /// Whether the operation is for all namespaces.
    pub(super) everywhere: bool,
}

impl Operation<'_> {
    /// The group, version and kind of the request and response bodies.
    fn exchanged(&self) -> (&'static str, &'static str, &'static str) {
        match self.subresource {
            Some(part) => (part.group, part.version, part.kind),
            None => (self.resource.group, self.resource.version, self.resource.kind),
        }
    }

    pub(super) fn describe(&self, action: Action, components: &mut Components<'_>) -> Value {
        let (group, version, kind) = self.exchanged();
        let mut operation = Map::new();
        let mut add = |name: &str, value: Value| drop(operation.insert(name.to_owned(), value));
        add("operationId", self.name(action).into());
        add("tags", json!([self.tag()]));
        add("x-kubernetes-action", action.name().into());
        let kind_of = json!({ "group": group, "version": version, "kind": kind });
        add("x-kubernetes-group-version-kind", kind_of);

        let mut parameters: Vec<Value> = action.queries().iter().map(|(name, ty)| query(name, ty)).collect();
        if matches!(action, Action::ConnectGet | Action::ConnectPost) {
            parameters = self.options(components);
        }
        if !parameters.is_empty() {
            add("parameters", parameters.into());
        }
        let body = components.kind(group, version, kind);
        match action {
            Action::Create | Action::Replace => {
                let content = json!({ "*/*": { "schema": body } });
                add("requestBody", json!({ "content": content, "required": true }));
            }
            Action::Patch => {
                let patch = components.patch();
                let content: Map<String, Value> = PATCHES
                    .iter()
                    .map(|content_type| ((*content_type).to_owned(), json!({ "schema": patch })))
                    .collect();
                add("requestBody", json!({ "content": content, "required": true }));
            }
            Action::Delete | Action::DeleteCollection => {
                let options = components.kind(self.resource.group, self.resource.version, "DeleteOptions");
                add("requestBody", json!({ "content": { "*/*": { "schema": options } } }));
            }
            _ => {}
        }
        add("responses", self.responses(action, body, components));
        Value::Object(operation)
    }

    fn responses(&self, action: Action, body: Option<Value>, components: &mut Components<'_>) -> Value {
        let answered = match action {
            Action::List => {
                let list = format!("{}List", self.resource.kind);
                components.kind(self.resource.group, self.resource.version, &list)
            }
            Action::Delete | Action::DeleteCollection => {
                // Adds `Status` to the schemas.
                components.kind("", "v1", "Status").map(|_| status_reference())
            }
            Action::ConnectGet | Action::ConnectPost => None,
            Action::Get if self.subresource.is_some_and(|part| part.name == "log") => None,
            _ => body,
        };
        let content = match answered {
            Some(schema) => json!({ "application/json": { "schema": schema } }),
            None => json!({ "*/*": { "schema": { "type": "string" } } }),
        };
        let mut responses = Map::new();
        let mut add = |code: &str, description: &str| {
            responses.insert(code.to_owned(), json!({ "description": description, "content": content }));
        };
        add("200", "OK");
        if matches!(action, Action::Create | Action::Replace | Action::Patch) {
            add("201", "Created");
        }
        if matches!(action, Action::Create | Action::Delete) {
            add("202", "Accepted");
        }
        responses.insert("401".to_owned(), json!({ "description": "Unauthorized" }));
        Value::Object(responses)
    }

    /// The fields of an options kind, such as `PodExecOptions`, as query parameters.
    fn options(&self, components: &mut Components<'_>) -> Vec<Value> {
        let (group, version, kind) = self.exchanged();
        components.scalars(group, version, kind).into_iter().map(|(name, ty)| query(name, ty)).collect()
    }

    fn tag(&self) -> String {
        let group = match self.resource.group {
            "" => "core".to_owned(),
            group => joined(group, false),
        };
        format!("{group}_{}", self.resource.version)
    }

    /// The operation's id, which is unique and formed as upstream's: `readCoreV1NamespacedPodResize`.
    fn name(&self, action: Action) -> String {
        let group = match self.resource.group {
            "" => "Core".to_owned(),
            group => joined(group, true),
        };
        let version = capitalised(self.resource.version);
        let manner = match action {
            Action::DeleteCollection => "Collection",
            Action::ConnectGet => "Get",
            Action::ConnectPost => "Post",
            _ => "",
        };
        let namespaced = super::paths::is_namespaced(self.resource);
        let scope = if namespaced && !self.everywhere { "Namespaced" } else { "" };
        let end = if self.everywhere { "ForAllNamespaces" } else { "" };
        let part = self.subresource.map_or_else(String::new, |part| capitalised(part.name));
        let kind = self.resource.kind;
        format!("{}{group}{version}{manner}{scope}{kind}{part}{end}", action.begins())
    }
}

const PATCHES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

pub(super) fn query(name: &str, ty: &str) -> Value {
    json!({ "in": "query", "name": name, "schema": { "type": ty } })
}

/// The name of a group in ids and tags: `rbac.authorization.k8s.io` becomes `rbacAuthorization`.
fn joined(group: &str, first: bool) -> String {
    let words = group.strip_suffix(".k8s.io").unwrap_or(group).split('.');
    words
        .enumerate()
        .map(|(index, word)| if index > 0 || first { capitalised(word) } else { word.to_owned() })
        .collect()
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
