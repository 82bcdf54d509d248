//! Objects in responses: in the version of the path, and in the form that the client accepts.
//!
//! An object in its stored version and whole form is not decoded: the response is a copy of its bytes.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use http::{Response, StatusCode};
use plumb_store::{Object, Revision};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::codec::{answer_object, answer_value};
use crate::custom::{self, Presenter, in_version, presented};
use crate::encoders::LARGE;
use crate::error::ApiError;
use crate::fragments;
use crate::in_process::WithoutManagers;
use crate::kinds::head_before_metadata;
use crate::negotiation::{Accepted, Form};
use crate::object::{decode, meta};
use crate::ordered::encode_ordered;
use crate::request::{Call, RequestScope};
use crate::response_body::Body;
use crate::table::{self, PrintColumns};
use crate::url::Query;

/// The most bytes of a line of a watch besides its object.
const LINE: usize = 96;

/// How much of an object a row of a table contains (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Included {
    /// Nothing.
    Nothing,
    /// Its metadata.
    Metadata,
    /// All of it.
    Whole,
}

impl Included {
    /// Reads the parameter of a request.
    pub(crate) fn of(query: &Query) -> Result<Self, ApiError> {
        match query.get("includeObject") {
            None | Some("Metadata") => Ok(Self::Metadata),
            Some("None") => Ok(Self::Nothing),
            Some("Object") => Ok(Self::Whole),
            Some(other) => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be \
                 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

/// The version and the form of the objects in a response.
#[derive(Clone, Debug)]
pub(crate) struct View {
    cluster: Arc<Cluster>,
    /// The kind.
    scope: RequestScope,
    accepted: Accepted,
    included: Included,
    /// Whether lists and watches include `managedFields`.
    managers: bool,
    /// The print columns, if the response is of another kind than the stored one.
    other: Option<&'static PrintColumns>,
}

impl View {
    pub(crate) fn of(call: &Call) -> Result<Self, ApiError> {
        let included = match call.accepted.form {
            Form::Table => Included::of(&call.query)?,
            _ => Included::Metadata,
        };
        Ok(Self {
            cluster: Arc::clone(call.cluster()),
            scope: call.scope.clone(),
            accepted: call.accepted,
            included,
            managers: call.http.head.extensions.get::<WithoutManagers>().is_none(),
            other: None,
        })
    }

    /// Whether the response is a copy of the stored bytes.
    fn is_plain(&self) -> bool {
        self.accepted.form == Form::Whole && self.scope.served.is_none()
    }

    /// A single object; `columns` says whether a table has column definitions.
    pub(crate) fn one(&self, object: Value, columns: bool) -> Result<Value, ApiError> {
        match self.accepted.form {
            Form::Whole => Ok(self.scope.serve(object)),
            Form::Metadata => Ok(self.metadata_only(&object)),
            Form::MetadataList => {
                let why = "you requested PartialObjectMetadataList, but the requested object is not a list";
                Err(ApiError::unacceptable(format!("{why} ({})", self.go_type(""))))
            }
            Form::Table => {
                let metadata = json!({ "resourceVersion": meta(&object, "resourceVersion") });
                Ok(self.table(vec![object], metadata, columns))
            }
        }
    }

    /// A bookmark: an object with a resource version only.
    pub(crate) fn bookmark(&self, metadata: Value, columns: bool) -> Value {
        let (kind, version) = (self.scope.request_row().kind(), self.scope.request_row().api_version());
        let object = json!({ "kind": kind, "apiVersion": version, "metadata": metadata });
        match self.accepted.form {
            Form::Whole => object,
            Form::Metadata | Form::MetadataList => self.metadata_only(&object),
            Form::Table => {
                let metadata = json!({ "resourceVersion": object["metadata"]["resourceVersion"] });
                self.table(vec![object], metadata, columns)
            }
        }
    }

    fn metadata_only(&self, object: &Value) -> Value {
        json!({
            "kind": "PartialObjectMetadata", "apiVersion": self.accepted.meta_version,
            "metadata": object["metadata"],
        })
    }

    fn table(&self, objects: Vec<Value>, metadata: Value, columns: bool) -> Value {
        let included = |object: Value| match self.included {
            Included::Nothing => Value::Null,
            Included::Metadata => self.metadata_only(&object),
            Included::Whole => self.scope.serve(object),
        };
        let now = self.cluster.now();
        let print = self.other.unwrap_or_else(|| self.scope.row.strategy().print_columns());
        let mut table = match self.scope.row.custom().filter(|_| self.other.is_none()) {
            Some(custom) => custom::table(&custom.version, objects, included, now, columns),
            None => table::table(print, objects, included, now, columns),
        };
        table["apiVersion"] = json!(self.accepted.meta_version);
        table["metadata"] = metadata;
        table
    }

    /// The Go type of an object, which is part of upstream's message for a wrong form.
    fn go_type(&self, suffix: &str) -> String {
        let package =
            self.scope.row.group().split('.').next().filter(|name| !name.is_empty()).unwrap_or("core");
        format!("*{package}.{}{suffix}", self.scope.row.kind())
    }

    /// What a line of a watch depends on besides its object and its kind. `None` for tables, whose ages change with time.
    pub(crate) fn shared_form(&self) -> Option<String> {
        let form = match self.accepted.form {
            Form::Whole => "",
            Form::Metadata => self.accepted.meta_version,
            Form::Table | Form::MetadataList => return None,
        };
        let row = self.scope.request_row();
        Some(format!("{} {} {form} {}", row.api_version(), row.kind(), self.managers))
    }

    /// A line of a watch.
    pub(crate) fn line(&self, kind: &str, bytes: &Bytes, columns: bool) -> Option<Bytes> {
        let mut line = BytesMut::with_capacity(bytes.len() + LINE);
        line.put_slice(b"{\"type\":\"");
        line.put_slice(kind.as_bytes());
        line.put_slice(b"\",\"object\":");
        match self.accepted.form {
            Form::Whole if self.is_plain() => self.copy(bytes, 0..length(bytes), &mut line),
            Form::Metadata => self.copy_metadata(bytes, &mut line)?,
            _ => {
                let object = self.one(decode(bytes).ok()?, columns).ok()?;
                let mut encoded = Vec::with_capacity(bytes.len());
                encode_ordered(&object, &mut encoded);
                line.put_slice(&encoded);
            }
        }
        line.put_slice(b"}\n");
        Some(line.freeze())
    }

    /// Copies a range of an object that contains its metadata.
    fn copy(&self, object: &[u8], part: Range<usize>, out: &mut BytesMut) {
        match (!self.managers).then(|| fragments::managed_fields(object)).flatten() {
            Some(cut) => {
                out.put_slice(&object[part.start..cut.start.max(part.start)]);
                out.put_slice(&object[cut.end.min(part.end)..part.end]);
            }
            None => out.put_slice(&object[part]),
        }
    }

    /// Appends the `PartialObjectMetadata` of an object; none if it has no metadata.
    fn copy_metadata(&self, object: &[u8], out: &mut BytesMut) -> Option<()> {
        let metadata = fragments::metadata(object)?;
        out.put_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"");
        out.put_slice(self.accepted.meta_version.as_bytes());
        out.put_slice(b"\",\"metadata\":");
        self.copy(object, metadata, out);
        out.put_u8(b'}');
        Some(())
    }

    /// Whether objects of a list are copied and not decoded, which costs little.
    fn copies_lists(&self) -> bool {
        self.is_plain() || self.accepted.form == Form::MetadataList
    }

    fn list(&self, objects: &[Arc<Object>], size: usize, metadata: &ListMetadata) -> Result<Bytes, ApiError> {
        // Each object is defaulted and pruned right before it is copied, while it is in the CPU's cache.
        let presenter = Presenter::of(&self.scope.row);
        match self.accepted.form {
            Form::Whole if self.is_plain() => {
                // Items of custom resources have kind and version, those of built-in kinds do not.
                let said =
                    if self.scope.row.custom().is_some() { 0 } else { head_before_metadata(&self.scope.row) };
                let (kind, version) = (&*self.scope.row.resource.list_kind, &*self.scope.row.api_version());
                Ok(join((kind, version), metadata, size, objects, |object, out| {
                    if said > 0 {
                        out.put_u8(b'{');
                    }
                    let object = presenter.show(object);
                    let end = length(&object);
                    self.copy(&object, said.min(end)..end, out);
                }))
            }
            Form::MetadataList => {
                let list = ("PartialObjectMetadataList", self.accepted.meta_version);
                Ok(join(list, metadata, size, objects, |object, out| {
                    // Every stored object has metadata.
                    self.copy_metadata(&presenter.show(object), out).unwrap_or_else(|| out.put_slice(b"{}"));
                }))
            }
            _ => {
                let values = objects.iter().map(|object| decode(&presenter.show(&object.value)));
                let values = values.collect::<Result<_, ApiError>>()?;
                let mut encoded = Vec::with_capacity(size);
                encode_ordered(&self.list_of(values, metadata.to_json())?, &mut encoded);
                Ok(encoded.into())
            }
        }
    }

    fn list_of(&self, values: Vec<Value>, metadata: Value) -> Result<Value, ApiError> {
        Ok(match self.accepted.form {
            Form::Whole => {
                let items: Vec<Value> = values
                    .into_iter()
                    .map(|object| {
                        let mut item = self.scope.serve(object);
                        if let Some(fields) = item.as_object_mut() {
                            fields.remove("kind");
                            fields.remove("apiVersion");
                        }
                        item
                    })
                    .collect();
                json!({
                    "kind": self.scope.request_row().resource.list_kind, "apiVersion": self.scope.request_row().api_version(),
                    "metadata": metadata, "items": items,
                })
            }
            Form::Metadata => {
                let why = "you requested PartialObjectMetadata, but the requested object is a list";
                return Err(ApiError::unacceptable(format!("{why} ({})", self.go_type("List"))));
            }
            Form::MetadataList => {
                let items: Vec<Value> = values.iter().map(|object| self.metadata_only(object)).collect();
                json!({
                    "kind": "PartialObjectMetadataList", "apiVersion": self.accepted.meta_version,
                    "metadata": metadata, "items": items,
                })
            }
            Form::Table => self.table(values, metadata, true),
        })
    }
}

/// The length of a stored object without the newline at its end, which those of earlier versions do not have.
fn length(object: &[u8]) -> usize {
    object.len() - usize::from(object.ends_with(b"\n"))
}

/// Responds with a stored object that is in the version of the path.
fn show(call: &Call, status: StatusCode, bytes: &Bytes) -> Result<Response<Body>, ApiError> {
    let bytes = presented(&call.scope.row, bytes);
    if call.accepted.form == Form::Whole && call.scope.served.is_none() {
        return Ok(answer_object(status, bytes.into_owned()));
    }
    show_value(call, status, decode(&bytes)?)
}

/// The same for an object that may be stored in another version than that of the path.
pub(crate) async fn show_stored(
    call: &Call,
    status: StatusCode,
    bytes: &Bytes,
) -> Result<Response<Body>, ApiError> {
    show(call, status, &in_version(&call.scope.row, bytes).await?)
}

/// Responds with an object that is not stored.
pub(crate) fn show_value(call: &Call, status: StatusCode, object: Value) -> Result<Response<Body>, ApiError> {
    Ok(answer_value(status, &View::of(call)?.one(object, true)?))
}

/// Responds with an object of another kind than the stored one: a Scale.
pub(crate) fn show_other(
    call: &Call,
    columns: &'static PrintColumns,
    status: StatusCode,
    object: Value,
) -> Result<Response<Body>, ApiError> {
    let mut view = View::of(call)?;
    (view.other, view.scope.served) = (Some(columns), None);
    Ok(answer_value(status, &view.one(object, true)?))
}

/// The metadata of a list.
pub(crate) struct ListMetadata {
    pub(crate) revision: Revision,
    pub(crate) next: Option<String>,
    pub(crate) remaining: Option<usize>,
}

impl ListMetadata {
    /// The metadata in the field order of Go's `ListMeta`.
    fn encode(&self) -> String {
        // Writing to a string cannot fail.
        let mut text = format!("{{\"resourceVersion\":\"{}\"", self.revision);
        if let Some(next) = &self.next {
            let _ = write!(text, ",\"continue\":{}", json!(next));
        }
        if let Some(remaining) = self.remaining {
            let _ = write!(text, ",\"remainingItemCount\":{remaining}");
        }
        text.push('}');
        text
    }

    fn to_json(&self) -> Value {
        let mut metadata = json!({ "resourceVersion": self.revision.to_string() });
        if let Some(next) = &self.next {
            metadata["continue"] = json!(next);
        }
        if let Some(remaining) = self.remaining {
            metadata["remainingItemCount"] = json!(remaining);
        }
        metadata
    }
}

/// Responds with a list in the form that the client accepts.
pub(crate) async fn show_list(
    call: &Call,
    objects: &[Arc<Object>],
    metadata: ListMetadata,
) -> Result<Response<Body>, ApiError> {
    let view = View::of(call)?;
    let size = objects.iter().map(|object| object.value.len()).sum::<usize>();
    let list = if size <= LARGE || view.copies_lists() {
        view.list(objects, size, &metadata)
    } else {
        let objects = objects.to_vec();
        let encoders = call.server.encoders();
        let encoded = encoders.run(call.info.user.name(), move || view.list(&objects, size, &metadata));
        encoded.await.unwrap_or_else(|| Err(ApiError::internal("cannot encode the list")))
    };
    Ok(answer_object(StatusCode::OK, list?))
}

/// Responds with a list of objects that are not stored, in the form that the client accepts.
pub(crate) fn show_values(call: &Call, objects: Vec<Value>) -> Result<Response<Body>, ApiError> {
    Ok(answer_value(StatusCode::OK, &View::of(call)?.list_of(objects, json!({}))?))
}

/// A list of a kind and version from encoded objects, which are copied and not decoded.
fn join(
    (kind, version): (&str, &str),
    metadata: &ListMetadata,
    size: usize,
    objects: &[Arc<Object>],
    copy: impl Fn(&Bytes, &mut BytesMut),
) -> Bytes {
    let mut out = BytesMut::with_capacity(size + 256);
    let metadata = metadata.encode();
    let head =
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":[");
    out.put_slice(head.as_bytes());
    for (i, object) in objects.iter().enumerate() {
        if i > 0 {
            out.put_u8(b',');
        }
        copy(&object.value, &mut out);
    }
    out.put_slice(b"]}\n");
    out.freeze()
}
