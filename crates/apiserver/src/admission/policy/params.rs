//! The parameters of a policy: the objects that a binding's `paramRef` names.

use std::sync::Arc;

use plumb_store::{List, Object};
use serde_json::{Value, json};

use super::super::Attributes;
use super::super::matching::labels;
use super::index::{Binding, Policy};
use crate::custom::{all_in_version, has_converter, presented_value};
use crate::kinds::Row;
use crate::selector::LabelSelector;

/// The resource of a policy's `paramKind`, if it has one. The error is a configuration error of the policy.
pub(super) fn resource(policy: &Policy, attributes: &Attributes<'_>) -> Result<Option<Row>, String> {
    let Some((api_version, kind)) = &policy.param_kind else { return Ok(None) };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kinds = attributes.cluster.kinds();
    let mut found = kinds.iter().filter(|row| row.group() == group && row.version() == version);
    let row = found.find(|row| row.kind() == kind && row.resource.allows("list"));
    row.cloned().map(Some).ok_or_else(|| {
        format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'")
    })
}

/// The parameters of the bindings of a policy. Those of bindings with the same reference are collected once.
pub(super) struct Parameters<'a> {
    row: Option<&'a Row>,
    known: Vec<(&'a Value, Arc<[Value]>)>,
}

impl<'a> Parameters<'a> {
    /// An empty collection; `row` is the resource of `paramKind`.
    pub(super) fn of(row: Option<&'a Row>) -> Self {
        Self { row, known: Vec::new() }
    }

    /// The parameters of a binding; none if the binding does not match the write.
    pub(super) async fn of_binding(
        &mut self,
        binding: &'a Binding,
        attributes: &Attributes<'_>,
        new: &Value,
    ) -> Result<Arc<[Value]>, String> {
        let invocation = binding.criteria.as_ref().map(|criteria| criteria.invocation(attributes, new));
        if let Some(None) = invocation.transpose().map_err(|error| error.message)? {
            return Ok(Arc::default());
        }
        if let Some((_, known)) = self.known.iter().find(|(reference, _)| **reference == binding.param_ref) {
            return Ok(known.clone());
        }
        let params: Arc<[Value]> = collect(self.row, binding, attributes).await?.into();
        self.known.push((&binding.param_ref, params.clone()));
        Ok(params)
    }
}

/// The parameters to evaluate a policy with: null if the policy has no `paramKind`, and no element if the binding
/// allows writes without parameters.
async fn collect(
    row: Option<&Row>,
    binding: &Binding,
    attributes: &Attributes<'_>,
) -> Result<Vec<Value>, String> {
    let reference = &binding.param_ref;
    let Some(row) = row.filter(|_| reference.is_object()) else { return Ok(vec![Value::Null]) };
    let text = |field: &str| reference[field].as_str().filter(|text| !text.is_empty());
    let given = text("namespace");
    let namespace = match (row.is_namespaced(), given.or(attributes.namespace)) {
        (true, None) => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .to_owned(),
            );
        }
        (false, _) if given.is_some() => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
        (true, namespace) => namespace,
        (false, _) => None,
    };
    let params = match (text("name"), reference["selector"].is_object()) {
        (Some(_), true) => {
            return Err("paramRef.name and paramRef.selector are mutually exclusive".to_owned());
        }
        (Some(name), false) => named(row, namespace, name, attributes).await?,
        (None, true) => {
            let selector = LabelSelector::of(&reference["selector"]);
            selected(row, namespace, &selector, attributes).await?
        }
        (None, false) => return Err("one of name or selector must be provided".to_owned()),
    };
    if params.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(params)
}

async fn named(
    row: &Row,
    namespace: Option<&str>,
    name: &str,
    attributes: &Attributes<'_>,
) -> Result<Vec<Value>, String> {
    let stored = stored_row(row, attributes);
    // An object with an invalid key does not exist.
    let Ok(key) = stored.key(namespace, name) else { return Ok(Vec::new()) };
    let found = attributes.cluster.store().get(&key);
    shown(row, found.into_iter().collect()).await
}

async fn selected(
    row: &Row,
    namespace: Option<&str>,
    selector: &LabelSelector,
    attributes: &Attributes<'_>,
) -> Result<Vec<Value>, String> {
    let prefix = stored_row(row, attributes).prefix(namespace).map_err(|error| error.message)?;
    let page = attributes.cluster.store().list(&List::all(prefix)).map_err(|error| error.to_string())?;
    let mut objects = page.objects;
    // A conversion webhook may change labels.
    if !has_converter(row) {
        objects.retain(|object| selector.matches_encoded(&object.value));
    }
    let mut params = shown(row, objects).await?;
    params.retain(|param| selector.matches(&labels(param)));
    Ok(params)
}

/// The row that the objects of a row are stored by.
fn stored_row(row: &Row, attributes: &Attributes<'_>) -> Row {
    let stored = row.stored_as.as_ref().and_then(|stored| attributes.cluster.kinds().stored(stored).cloned());
    stored.unwrap_or_else(|| row.clone())
}

/// Stored objects in the version that `paramKind` names.
async fn shown(row: &Row, objects: Vec<Arc<Object>>) -> Result<Vec<Value>, String> {
    let objects = all_in_version(row, objects).await.map_err(|error| error.message)?;
    let mut params = Vec::with_capacity(objects.len());
    for object in &objects {
        let mut param = presented_value(row, &object.value).map_err(|error| error.message)?;
        if let Some(stored_as) = &row.stored_as {
            param =
                crate::kinds::conversion::ServedVersion::new(row.clone(), stored_as.conversion).serve(param);
        }
        param["apiVersion"] = json!(row.api_version());
        param["kind"] = json!(row.kind());
        params.push(param);
    }
    Ok(params)
}
