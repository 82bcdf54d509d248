//! Objects as they are shown: in the version of the address, and in the form that the client wants.
//!
//! An object that is wanted as it is, in the version that it is stored in, is never read: its bytes are the answer.

use std::borrow::Cow;

use bytes::{BufMut, Bytes, BytesMut};
use http::{Response, StatusCode};
use plumb_store::Revision;
use serde_json::{Value, json};

use crate::body::Body;
use crate::conversion::Shown;
use crate::custom::{self, Presenter, presented};
use crate::error::ApiError;
use crate::exchange::{answer, answer_value};
use crate::kinds::Row;
use crate::negotiation::{Accepted, Form};
use crate::object::{decode, head_before_metadata, meta};
use crate::server::{ApiServer, Call};
use crate::table;
use crate::target::Query;

/// How much of an object comes with its row of a table.
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

/// How the objects of a request are shown.
#[derive(Clone, Debug)]
pub(crate) struct View {
    server: ApiServer,
    /// The row that they are stored by.
    row: Row,
    /// The version that they are asked for in, if it is another.
    served: Option<Shown>,
    accepted: Accepted,
    included: Included,
    /// The group and kind of what is shown, if it is not what is stored.
    other: Option<(&'static str, &'static str)>,
}

impl View {
    pub(crate) fn of(call: &Call) -> Result<Self, ApiError> {
        let included = match call.accepted.form {
            Form::Table => Included::of(&call.query)?,
            _ => Included::Metadata,
        };
        Ok(Self {
            server: call.server.clone(),
            row: call.row.clone(),
            served: call.served.clone(),
            accepted: call.accepted,
            included,
            other: None,
        })
    }

    /// The row that clients know the objects by.
    fn shown(&self) -> &Row {
        self.served.as_ref().map_or(&self.row, |served| &served.row)
    }

    /// Whether stored bytes are what the client wants.
    fn is_plain(&self) -> bool {
        self.accepted.form == Form::Whole && self.served.is_none()
    }

    /// A stored object in the version of the address.
    fn convert(&self, object: Value) -> Value {
        match &self.served {
            Some(served) => served.serve(object),
            None => object,
        }
    }

    /// An object alone; `columns` says whether a table describes them.
    pub(crate) fn one(&self, object: Value, columns: bool) -> Result<Value, ApiError> {
        match self.accepted.form {
            Form::Whole => Ok(self.convert(object)),
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

    /// A bookmark: nothing of an object but a resource version.
    pub(crate) fn bookmark(&self, metadata: Value, columns: bool) -> Value {
        let (kind, version) = (self.shown().kind(), self.shown().api_version());
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
            Included::Whole => self.convert(object),
        };
        let now = self.server.now();
        let (group, kind) = self.other.unwrap_or((self.row.group(), self.row.kind()));
        let mut table = match self.row.custom().filter(|_| self.other.is_none()) {
            Some(custom) => custom::table(&custom.version, objects, included, now, columns),
            None => table::table(group, kind, objects, included, now, columns),
        };
        table["apiVersion"] = json!(self.accepted.meta_version);
        table["metadata"] = metadata;
        table
    }

    /// What Go calls the type of an object, which upstream tells whoever asks for the wrong form.
    fn go_type(&self, suffix: &str) -> String {
        let package = self.row.group().split('.').next().filter(|name| !name.is_empty()).unwrap_or("core");
        format!("*{package}.{}{suffix}", self.row.kind())
    }

    /// A line of a watch.
    pub(crate) fn line(&self, kind: &str, bytes: &Bytes, columns: bool) -> Option<Bytes> {
        if !self.is_plain() {
            let object = self.one(decode(bytes).ok()?, columns).ok()?;
            return Some(line(kind, object.to_string().as_bytes()));
        }
        Some(line(kind, bytes))
    }

    fn list(&self, objects: &[Cow<'_, Bytes>], metadata: &ListMetadata) -> Result<Bytes, ApiError> {
        if self.is_plain() {
            return Ok(encode_list(&self.row, objects, &metadata.to_json()));
        }
        let values = objects.iter().map(|bytes| decode(bytes)).collect::<Result<Vec<Value>, ApiError>>()?;
        Ok(self.list_of(values, metadata.to_json())?.to_string().into())
    }

    fn list_of(&self, values: Vec<Value>, metadata: Value) -> Result<Value, ApiError> {
        Ok(match self.accepted.form {
            Form::Whole => {
                let items: Vec<Value> = values
                    .into_iter()
                    .map(|object| {
                        let mut item = self.convert(object);
                        if let Some(fields) = item.as_object_mut() {
                            fields.remove("kind");
                            fields.remove("apiVersion");
                        }
                        item
                    })
                    .collect();
                json!({
                    "kind": self.shown().resource.list_kind, "apiVersion": self.shown().api_version(),
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

fn line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + 40);
    line.put_slice(b"{\"type\":\"");
    line.put_slice(kind.as_bytes());
    line.put_slice(b"\",\"object\":");
    line.put_slice(object);
    line.put_slice(b"}\n");
    line.freeze()
}

/// Answers with a stored object.
pub(crate) fn show(call: &Call, status: StatusCode, bytes: &Bytes) -> Result<Response<Body>, ApiError> {
    let bytes = presented(&call.row, bytes);
    if call.accepted.form == Form::Whole && call.served.is_none() {
        return Ok(answer(status, bytes.into_owned()));
    }
    show_value(call, status, decode(&bytes)?)
}

/// Answers with an object that was not stored.
pub(crate) fn show_value(call: &Call, status: StatusCode, object: Value) -> Result<Response<Body>, ApiError> {
    Ok(answer_value(status, &View::of(call)?.one(object, true)?))
}

/// Answers with an object of another kind than the address's, named by group and name: a scale.
pub(crate) fn show_other(
    call: &Call,
    kind: (&'static str, &'static str),
    status: StatusCode,
    object: Value,
) -> Result<Response<Body>, ApiError> {
    let view = View { other: Some(kind), served: None, ..View::of(call)? };
    Ok(answer_value(status, &view.one(object, true)?))
}

/// What a list says of itself.
pub(crate) struct ListMetadata {
    pub(crate) revision: Revision,
    pub(crate) next: Option<String>,
    pub(crate) remaining: Option<usize>,
}

impl ListMetadata {
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

/// Answers with a list in the form that the client wants.
pub(crate) fn show_list(
    call: &Call,
    objects: &[&Bytes],
    metadata: &ListMetadata,
) -> Result<Response<Body>, ApiError> {
    let presenter = Presenter::of(&call.row);
    let shown: Vec<Cow<'_, Bytes>> = objects.iter().map(|bytes| presenter.show(bytes)).collect();
    Ok(answer(StatusCode::OK, View::of(call)?.list(&shown, metadata)?))
}

/// Answers with a list of objects that are not stored, in the form that the client wants.
pub(crate) fn show_values(call: &Call, objects: Vec<Value>) -> Result<Response<Body>, ApiError> {
    Ok(answer_value(StatusCode::OK, &View::of(call)?.list_of(objects, json!({}))?))
}

/// A list made of encoded objects, which are copied and not read.
fn encode_list(row: &Row, objects: &[Cow<'_, Bytes>], metadata: &Value) -> Bytes {
    let size: usize = objects.iter().map(|bytes| bytes.len()).sum();
    let mut out = BytesMut::with_capacity(size + 256);
    let (kind, version) = (&row.resource.list_kind, row.api_version());
    out.put_slice(
        format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":[")
            .as_bytes(),
    );
    // Items of custom kinds say what they are, those of built-in ones don't.
    let said = if row.custom().is_some() { 0 } else { head_before_metadata(row) };
    for (i, bytes) in objects.iter().enumerate() {
        if i > 0 {
            out.put_u8(b',');
        }
        if said > 0 {
            out.put_u8(b'{');
        }
        out.put_slice(bytes.get(said..).unwrap_or_default());
    }
    out.put_slice(b"]}");
    out.freeze()
}
