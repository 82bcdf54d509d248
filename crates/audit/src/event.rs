//! An event of `audit.k8s.io/v1`, as the log has it: its fields are in upstream's order, and empty ones are omitted where upstream
//! omits them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::level::{Level, Stage};

/// What every line begins with.
const TYPE_META: &[u8] = br#"{"kind":"Event","apiVersion":"audit.k8s.io/v1""#;
/// The memory that is reserved for a line: that of most events without objects.
const USUAL_LINE: usize = 1024;

/// One stage of a request.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Event<'a> {
    /// The level of the policy for the request.
    pub level: Level,
    /// The ID that all events of the request have.
    #[serde(rename = "auditID")]
    pub audit_id: &'a str,
    /// The stage.
    pub stage: Stage,
    /// The path and the query.
    #[serde(rename = "requestURI")]
    pub request_uri: &'a str,
    /// The verb of the API, or of HTTP in lower case for a path.
    pub verb: &'a str,
    /// The authenticated user.
    pub user: UserInfo<'a>,
    /// The user that the authenticated one impersonates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub impersonated_user: Option<UserInfo<'a>>,
    /// Where the request came from: clients of proxies in front of the server first.
    #[serde(rename = "sourceIPs", skip_serializing_if = "<[_]>::is_empty")]
    pub source_ips: &'a [IpAddr],
    /// The client, as it names itself.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub user_agent: &'a str,
    /// The object; none for a path.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object_ref: Option<&'a ObjectReference>,
    /// The result; none before the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_status: Option<&'a ResponseStatus>,
    /// The object of the request, in JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_object: Option<&'a RawValue>,
    /// The object of the response, in JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_object: Option<&'a RawValue>,
    /// When the server received the request.
    pub request_received_timestamp: MicroTime,
    /// When the stage began.
    pub stage_timestamp: MicroTime,
    /// What authorization and admission add.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: &'a BTreeMap<String, String>,
}

impl Event<'_> {
    /// The event as a line of the log, with its newline.
    pub fn to_line(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = Vec::with_capacity(USUAL_LINE);
        line.extend_from_slice(TYPE_META);
        serde_json::to_writer(&mut line, self)?;
        // The brace that opens the fields continues the object.
        line[TYPE_META.len()] = b',';
        // An object is recorded as the client sent it. Strings in JSON contain no newline, so this is one between its fields.
        line.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
        line.push(b'\n');
        Ok(line)
    }
}

/// A user.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct UserInfo<'a> {
    /// The name.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub username: &'a str,
    /// The uid.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub uid: &'a str,
    /// The groups.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub groups: &'a [String],
    /// Fields of the authenticator.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: &'a BTreeMap<String, Vec<String>>,
}

impl Default for UserInfo<'_> {
    fn default() -> Self {
        static NO_EXTRA: BTreeMap<String, Vec<String>> = BTreeMap::new();
        Self { username: "", uid: "", groups: &[], extra: &NO_EXTRA }
    }
}

/// The object that a request is for. What is unknown is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// The resource, in the plural.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// The namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The uid, if the object of the request has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_group: String,
    /// The version of the API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub api_version: String,
    /// The resource version, if the object of the request has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource_version: String,
    /// The subresource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
}

/// The result of a request: the bounded fields of a `Status`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ResponseStatus {
    /// Go's encoder writes it although it is empty.
    metadata: Empty,
    /// `Success` or `Failure`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// The message.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The reason, in one word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The details, in JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Box<RawValue>>,
    /// The HTTP status code.
    pub code: u16,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Empty {}

impl ResponseStatus {
    /// The result of a request whose response has no `Status`.
    pub fn from_code(code: u16) -> Self {
        Self { code, ..Self::default() }
    }

    /// The result in a body that is a `Status`, for a response with a code.
    pub fn from_body(code: u16, body: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Typed<'a> {
            kind: &'a str,
        }
        let is_status = serde_json::from_slice::<Typed<'_>>(body).is_ok_and(|typed| typed.kind == "Status");
        let status: Self = is_status.then(|| serde_json::from_slice(body).ok())??;
        Some(Self { code, ..status })
    }

    /// The failure of a request.
    pub fn failure(code: u16, reason: &str, message: String) -> Self {
        Self { status: "Failure".to_owned(), message, reason: reason.to_owned(), ..Self::from_code(code) }
    }
}

/// A timestamp in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MicroTime(pub Timestamp);

impl Serialize for MicroTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:.6}", self.0))
    }
}
