//! The labels of requests.

use std::borrow::Cow;

use http::Method;
use http::header::CONTENT_TYPE;
use http::request::Parts;

use super::Labels;
use crate::kinds::Row;
use crate::url::{Query, Target, Verb};

/// The non-resource paths with a series of their own.
const PATHS: [&str; 6] = ["/healthz", "/livez", "/readyz", "/metrics", "/version", "/openapi/v3"];

impl<'a> Labels<'a> {
    /// The labels of a request for objects; `None` if there is no such resource.
    pub(crate) fn of_request(
        target: &'a Target,
        row: &Row,
        verb: Verb,
        head: &Parts,
        query: &Query,
    ) -> Option<Self> {
        let subresource = target.subresource.as_deref().unwrap_or_default();
        if !subresource.is_empty() && !row.has(subresource) {
            return None;
        }
        let scope = match (&target.name, &target.namespace) {
            (Some(_), _) => "resource",
            _ if verb == Verb::Create => "resource",
            (None, Some(_)) => "namespace",
            (None, None) => "cluster",
        };
        let verb = match verb {
            _ if target.is_connect() => "CONNECT",
            Verb::Get => "GET",
            Verb::List => "LIST",
            Verb::Watch => "WATCH",
            Verb::Create => "POST",
            Verb::Update => "PUT",
            Verb::Patch if is_apply(head) => "APPLY",
            Verb::Patch => "PATCH",
            Verb::Delete | Verb::DeleteCollection => "DELETE",
        };
        let dry_run = match query.get("dryRun") {
            None => "",
            Some("All") => "All",
            Some(_) => "invalid",
        };
        Some(Self {
            verb: Cow::Borrowed(verb),
            dry_run: Cow::Borrowed(dry_run),
            group: Cow::Borrowed(&target.group),
            version: Cow::Borrowed(&target.version),
            resource: Cow::Borrowed(&target.resource),
            subresource: Cow::Borrowed(subresource),
            scope: Cow::Borrowed(scope),
            component: Cow::Borrowed("apiserver"),
        })
    }

    /// The labels of any other request.
    pub(crate) fn of_path(path: &'a str) -> Option<Self> {
        let known = PATHS.iter().find(|known| path.starts_with(**known))?;
        let verb = Cow::Borrowed("GET");
        Some(Self { verb, subresource: Cow::Borrowed(known), ..Self::default() })
    }
}

fn is_apply(head: &Parts) -> bool {
    head.method == Method::PATCH
        && head.headers.get(CONTENT_TYPE).is_some_and(|kind| kind == "application/apply-patch+yaml")
}
