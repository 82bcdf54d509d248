//! Reading objects: one, or a page of them.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Response, StatusCode};
use plumb_store::{Key, List, Object, Revision, RevisionError};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::body::Body;
use crate::error::ApiError;
use crate::kinds::{field_value, supported_fields};
use crate::object::decode;
use crate::present::{ListMetadata, show, show_list};
use crate::selector::{FieldSelector, LabelSelector};
use crate::server::Call;
use crate::target::Query;

/// How many times its own size an object takes in memory that is decoded to be shown: as a row of a table, or in another
/// version.
const DECODED: usize = 8;

/// Which objects of a kind a request wants.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
}

/// What of an object a selector looks at without reading all of it.
#[derive(Deserialize)]
struct Labelled<'a> {
    #[serde(borrow, default)]
    metadata: Labels<'a>,
}

#[derive(Default, Deserialize)]
struct Labels<'a> {
    #[serde(borrow, default)]
    labels: BTreeMap<&'a str, &'a str>,
}

impl Selection {
    /// Reads the selectors of a request; an address that names an object selects it.
    pub(crate) fn of(call: &Call) -> Result<Self, ApiError> {
        let labels = LabelSelector::parse(call.query.get("labelSelector").unwrap_or_default())?;
        let served = call.served.as_ref();
        let row = served.map_or(&call.row, |served| &served.row);
        let own = supported_fields(row.group(), row.kind());
        let custom = call.row.custom();
        let defined = |field: &str| {
            custom.is_some_and(|custom| custom.version.selectable.iter().any(|(own, _)| own == field))
        };
        let supported = |field: &str| own(field) || defined(field);
        let mut text = call.query.get("fieldSelector").unwrap_or_default().to_owned();
        if let Some(name) = &call.target.name {
            text = format!("{text},metadata.name={name}");
        }
        let mut fields = FieldSelector::parse(&text, supported)?;
        if let Some(served) = served {
            fields.rename(|field| served.field(field));
        }
        Ok(Self { labels, fields })
    }

    /// Whether it wants an object. One that cannot be read is not wanted.
    pub(crate) fn wants(&self, object: &Object) -> bool {
        self.wants_labels(&object.value) && self.wants_fields(object)
    }

    fn wants_labels(&self, bytes: &[u8]) -> bool {
        // Labels hold no escapes, so they can be borrowed from the bytes.
        self.labels.is_everything()
            || serde_json::from_slice::<Labelled<'_>>(bytes)
                .is_ok_and(|object| self.labels.matches(&object.metadata.labels))
    }

    fn wants_fields(&self, object: &Object) -> bool {
        let beside = |field: &str| match field {
            "metadata.name" => object.key.segments().last(),
            field => object.attributes.get(field),
        };
        let mut all_known = true;
        for term in self.fields.terms() {
            match beside(&term.field) {
                Some(value) if !term.takes(value) => return false,
                Some(_) => {}
                None => all_known = false,
            }
        }
        all_known
            || decode(&object.value)
                .is_ok_and(|value| self.fields.matches(|field| field_value(&value, field)))
    }
}

/// Answers with one object.
pub(crate) fn get(call: &Call) -> Result<Response<Body>, ApiError> {
    let key = call.row.key(call.namespace(), call.name())?;
    let object = call.server.store().get(&key).ok_or_else(|| call.row.not_found(call.name()))?;
    show(call, StatusCode::OK, &object.value)
}

/// Where a list goes on: the revision that all its pages show, and the last key of the page before.
#[derive(Serialize, Deserialize)]
struct Continue {
    v: String,
    rv: Revision,
    start: String,
}

impl Continue {
    fn parse(text: &str) -> Result<Self, ApiError> {
        let invalid =
            || ApiError::bad_request("continue key is not valid: encoded continue token is malformed");
        let bytes = URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|_| invalid())?;
        serde_json::from_slice(&bytes).map_err(|_| invalid())
    }

    fn token(&self) -> String {
        URL_SAFE_NO_PAD.encode(json!(self).to_string())
    }
}

/// Answers with a page of objects.
pub(crate) fn list(call: &Call) -> Result<Response<Body>, ApiError> {
    let selection = Selection::of(call)?;
    let mut list = List::all(call.row.prefix(call.namespace())?);
    let limit = call.query.number("limit")?.unwrap_or(0);
    list = list.limit(usize::try_from(limit).unwrap_or(usize::MAX));
    if let Some(token) = call.query.get("continue") {
        let at = Continue::parse(token)?;
        let key = Key::new(&at.start).map_err(|_| ApiError::bad_request("continue key is not valid"))?;
        if !list.prefix.covers(&key) {
            return Err(ApiError::bad_request("continue key is not valid: it is of another list"));
        }
        list = list.at(at.rv).after(key);
    } else if let Some(revision) = exact_revision(&call.query, call.server.store().revision())? {
        list = list.at(revision);
    }
    let page = call.server.store().list_where(&list, |object| selection.wants(object)).map_err(gone)?;
    let size = page.objects.iter().map(|object| object.value.len()).sum::<usize>();
    let size = if call.is_copied() { size } else { size.saturating_mul(DECODED) };
    call.place.hold_list(call.server.places().list(call.origin, &call.user, size)?);
    let metadata = ListMetadata {
        revision: page.revision,
        next: page.next.as_ref().map(|key| {
            Continue { v: "meta.k8s.io/v1".into(), rv: page.revision, start: key.as_str().to_owned() }.token()
        }),
        // Upstream does not count what a selector would have to look at first.
        remaining: (page.next.is_some()
            && selection.labels.is_everything()
            && selection.fields.terms().is_empty())
        .then_some(page.remaining),
    };
    let objects: Vec<&Bytes> = page.objects.iter().map(|object| &object.value).collect();
    show_list(call, &objects, &metadata)
}

/// The revision that a list must be of, if the request insists.
fn exact_revision(query: &Query, current: Revision) -> Result<Option<Revision>, ApiError> {
    let exact = query.get("resourceVersionMatch") == Some("Exact");
    let revision = revision(query)?;
    match revision {
        Some(revision) if revision > current => Err(ApiError::too_large_resource_version(revision, current)),
        Some(revision) if exact => Ok(Some(revision)),
        _ => Ok(None),
    }
}

/// The resource version of a request.
pub(crate) fn revision(query: &Query) -> Result<Option<Revision>, ApiError> {
    let Some(text) = query.get("resourceVersion") else { return Ok(None) };
    let invalid = || {
        ApiError::bad_request(format!(
            "resourceVersion: Invalid value: {text:?}: must be an unsigned integer"
        ))
    };
    text.parse().map(Some).map_err(|_| invalid())
}

/// The refusal of a revision that cannot be shown.
pub(crate) fn gone(error: RevisionError) -> ApiError {
    match error {
        RevisionError::Compacted { asked, oldest } => {
            ApiError::expired(format!("too old resource version: {asked} ({oldest})"))
        }
        RevisionError::Future { asked, current } => ApiError::too_large_resource_version(asked, current),
    }
}
