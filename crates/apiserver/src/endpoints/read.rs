//! GET and LIST: one object, or a page of objects.

mod converted;

use std::borrow::Cow;
use std::sync::Arc;

use http::{Response, StatusCode};
use plumb_store::{Object, Page, Revision};

use crate::custom::{has_converter, presented_value};
use crate::endpoints::list_options::{Continue, ListOptions, minimum_revision};
use crate::endpoints::response::{ListMetadata, show_list, show_stored};
use crate::error::{ApiError, store_failed};
use crate::kinds::{Row, field_label, field_value};
use crate::object::decode;
use crate::request::{Call, RequestScope};
use crate::response_body::Body;
use crate::selector::{FieldSelector, LabelSelector};
use crate::url::Query;

/// The memory of a decoded object, in multiples of its encoded size. Objects are decoded for tables and for other versions.
const DECODED: usize = 8;

/// The objects of a kind that a request selects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    /// The kind, if it is a custom one: selectors see its defaults, also in objects that were stored without them.
    custom: Option<Row>,
}

impl Selection {
    /// Parses the selectors of a request. A URL that names an object selects it.
    pub(crate) fn of(scope: &RequestScope, query: &Query, name: &str) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default())?;
        let mut text = Cow::Borrowed(query.get("fieldSelector").unwrap_or_default());
        if !name.is_empty() {
            text = Cow::Owned(format!("{text},metadata.name={name}"));
        }
        let mut fields = FieldSelector::parse(&text, |label| field_label(scope.request_row(), label))?;
        if let Some(served) = &scope.served {
            fields.rename(|field| served.field(field));
        }
        let RequestScope { row, .. } = scope;
        Ok(Self { labels, fields, custom: row.custom().map(|_| row.clone()) })
    }

    /// Whether it selects every object.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.terms().is_empty()
    }

    /// Whether it selects an object. An object that cannot be decoded is not selected.
    pub(crate) fn selects(&self, object: &Object) -> bool {
        self.selects_labels(&object.value) && self.selects_fields(object)
    }

    /// Whether it may select an object after a conversion, which changes neither name nor namespace, but labels and all other
    /// fields.
    pub(crate) fn may_select(&self, object: &Object) -> bool {
        let identified = |field: &str| identity(object, field);
        self.fields.terms().iter().all(|term| identified(&term.field).is_none_or(|value| term.takes(value)))
    }

    fn selects_labels(&self, bytes: &[u8]) -> bool {
        self.labels.matches_encoded(bytes)
    }

    fn selects_fields(&self, object: &Object) -> bool {
        let beside = |field: &str| identity(object, field).or_else(|| object.attributes.get(field));
        let mut all_known = true;
        for term in self.fields.terms() {
            match beside(&term.field) {
                Some(value) if !term.takes(value) => return false,
                Some(_) => {}
                None => all_known = false,
            }
        }
        let decoded = || match &self.custom {
            Some(row) => presented_value(row, &object.value),
            None => decode(&object.value),
        };
        all_known || decoded().is_ok_and(|value| self.fields.matches(|field| field_value(&value, field)))
    }
}

/// The name or the namespace of a stored object, which its key has.
fn identity<'a>(object: &'a Object, field: &str) -> Option<&'a str> {
    match field {
        "metadata.name" => object.key.segments().last(),
        // `core/pods/default/web`, `core/nodes/n1`
        "metadata.namespace" => {
            let mut below = object.key.segments().skip(2);
            let first = below.next();
            Some(first.filter(|_| below.next().is_some()).unwrap_or_default())
        }
        _ => None,
    }
}

/// Responds with one object.
pub(crate) async fn get(call: &Call) -> Result<Response<Body>, ApiError> {
    let key = call.key()?;
    let minimum = minimum_revision(&call.query)?;
    bring_up_to_date(call, minimum).await?;
    let current = call.cluster().store().revision();
    if let Some(revision) = minimum.filter(|revision| *revision > current) {
        return Err(ApiError::too_large_resource_version(revision, current));
    }
    let object =
        call.cluster().store().get(&key).ok_or_else(|| call.scope.row.not_found(call.info.name()))?;
    show_stored(call, StatusCode::OK, &object.value).await
}

/// Waits until the store has what a read at a resource version needs: every write that was acknowledged if none is given, also
/// by other API servers, and nothing if it is 0.
pub(crate) async fn bring_up_to_date(call: &Call, asked: Option<Revision>) -> Result<(), ApiError> {
    let store = call.cluster().store();
    let is_ready = match asked {
        None => !store.is_shared(),
        Some(revision) => revision <= store.revision(),
    };
    if is_ready {
        return Ok(());
    }
    store.refresh().await.map_err(|error| store_failed(&error))
}

/// Responds with a page of objects.
pub(crate) async fn list(call: &Call) -> Result<Response<Body>, ApiError> {
    let options = ListOptions::of(&call.query)?;
    let selection = Selection::of(&call.scope, &call.query, call.info.name())?;
    bring_up_to_date(call, options.needed_revision()).await?;
    let page = page(call, &options, &selection).await?;
    show_page(call, &page, &selection).await
}

/// Counts the memory of a list, and of the objects that are being converted, against the limit of bytes of lists.
fn hold(call: &Call, listed: &[Arc<Object>], converting: usize) -> Result<(), ApiError> {
    let size = listed.iter().map(|object| object.value.len()).sum::<usize>();
    let size = if call.is_copied() { size } else { size.saturating_mul(DECODED) };
    let size = size.saturating_add(converting.saturating_mul(DECODED));
    call.server.in_flight().hold_list(&call.state.permit, call.state.origin, &call.info.user, size)
}

/// The page of objects that a request selects, in its version. The request holds the bytes until they are sent.
pub(crate) async fn page(
    call: &Call,
    options: &ListOptions,
    selection: &Selection,
) -> Result<Page, ApiError> {
    if has_converter(&call.scope.row) {
        return converted::page(call, options, selection).await;
    }
    let (snapshot, prefix) =
        (call.cluster().store().snapshot(), call.scope.row.prefix(call.info.namespace())?);
    let page = options.page(&snapshot, prefix, |object| selection.selects(object))?;
    hold(call, &page.objects, 0)?;
    Ok(page)
}

/// The response with a page of objects.
pub(crate) async fn show_page(
    call: &Call,
    page: &Page,
    selection: &Selection,
) -> Result<Response<Body>, ApiError> {
    let metadata = ListMetadata {
        revision: page.revision,
        next: Continue::token(page),
        // Upstream does not count the remaining objects of a list with a selector.
        remaining: (page.next.is_some() && selection.is_everything()).then_some(page.remaining),
    };
    show_list(call, &page.objects, metadata).await
}
