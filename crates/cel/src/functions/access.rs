//! The authorizer library.

use std::sync::Arc;

use super::{Answer, Regexes, fail};
use crate::access::{Access, ResourceCheck, Stage};
use crate::error::EvalError;
use crate::value::Value;

pub(super) fn call<'a>(function: &str, args: &[Value<'a>], _: &Regexes) -> Option<Answer<'a>> {
    if let [Value::Decision(decision)] = args {
        return Some(Ok(match function {
            "allowed" => Value::Bool(decision.allowed),
            "reason" => Value::text(decision.reason.clone()),
            "errored" => Value::Bool(decision.error.is_some()),
            "error" => Value::text(decision.error.clone().unwrap_or_default()),
            _ => return None,
        }));
    }
    let [Value::Access(access), given @ ..] = args else { return None };
    let texts: Option<Vec<&str>> = given.iter().map(Value::as_text).collect();
    let texts = texts?;
    Some(match (function, texts.as_slice()) {
        ("check", [verb]) => match access.check(verb) {
            Some(decision) => Ok(Value::Decision(Arc::new(decision))),
            None => Err(EvalError::no_such_overload()),
        },
        (function, texts) => {
            build_check(access, function, texts).map(|access| Value::Access(Arc::new(access)))
        }
    })
}

/// Adds a step to a check.
fn build_check<'a>(access: &Access<'a>, function: &str, texts: &[&str]) -> Result<Access<'a>, EvalError> {
    let mut access = access.clone();
    match (&mut access.stage, function, texts) {
        (Stage::Authorizer, "path", [path]) => {
            if path.trim().is_empty() {
                return fail("path must not be empty");
            }
            access.stage = Stage::Path((*path).to_owned());
        }
        (Stage::Authorizer, "group", [group]) => access.stage = Stage::Group((*group).to_owned()),
        (Stage::Authorizer, "serviceAccount", [namespace, name]) => {
            if !plumb_validation::names::dns_subdomain(name).is_empty() {
                return fail("Invalid service account name");
            }
            if !plumb_validation::names::dns_label(namespace).is_empty() {
                return fail("Invalid service account namespace");
            }
            access.account = Some(((*namespace).to_owned(), (*name).to_owned()));
        }
        (Stage::Group(group), "resource", [resource]) => {
            if resource.trim().is_empty() {
                return fail("resource must not be empty");
            }
            let check = ResourceCheck {
                group: std::mem::take(group),
                resource: (*resource).to_owned(),
                ..ResourceCheck::default()
            };
            access.stage = Stage::Resource(check);
        }
        (Stage::Resource(check), function, [text]) => {
            let field = match function {
                "subresource" => &mut check.subresource,
                "namespace" => &mut check.namespace,
                "name" => &mut check.name,
                "fieldSelector" => &mut check.field_selector,
                "labelSelector" => &mut check.label_selector,
                _ => return Err(EvalError::no_such_overload()),
            };
            (*text).clone_into(field);
        }
        _ => return Err(EvalError::no_such_overload()),
    }
    Ok(access)
}
