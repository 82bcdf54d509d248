//! The table of requests that are refused.

use std::fmt::Write as _;

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::{JSON, MAPS};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON_PATCH: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// A request that is refused, and how.
pub(super) struct Bad {
    pub(super) what: &'static str,
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(super) body: Bytes,
    pub(super) status: u16,
    pub(super) reason: &'static str,
    /// A part of the response's message.
    pub(super) says: &'static str,
}

fn post(what: &'static str, path: &str, media: &'static str, body: impl Into<Bytes>) -> Bad {
    Bad {
        what,
        method: Method::POST,
        path: path.to_owned(),
        headers: vec![("content-type", media)],
        body: body.into(),
        status: 400,
        reason: "BadRequest",
        says: "",
    }
}

fn patch(what: &'static str, media: &'static str, body: impl Into<Bytes>) -> Bad {
    Bad { method: Method::PATCH, ..post(what, &format!("{MAPS}/target"), media, body) }
}

fn get(what: &'static str, path: impl Into<String>) -> Bad {
    Bad { method: Method::GET, headers: Vec::new(), path: path.into(), ..post(what, "", "", "") }
}

impl Bad {
    fn refused(mut self, status: u16, reason: &'static str, says: &'static str) -> Self {
        (self.status, self.reason, self.says) = (status, reason, says);
        self
    }

    fn saying(mut self, says: &'static str) -> Self {
        self.says = says;
        self
    }
}

/// A field of a protobuf message that holds bytes.
fn field(number: u8, inside: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = inside.len();
    while length > 0x7f {
        out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap());
    out.extend_from_slice(inside);
    out
}

/// A message in the envelope that says what it is.
fn sealed(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let meta = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
    [&b"k8s\0"[..], &field(1, &meta), &field(2, message)].concat()
}

/// Field 28 of a schema (`not`) in itself, so deep, below the version of a definition.
fn deep_schema(depth: usize) -> Vec<u8> {
    let tag = [0xe2, 0x01];
    let mut message = Vec::new();
    for _ in 0..depth {
        let inside = field(0, &message);
        message = [&tag[..], &inside[1..]].concat();
    }
    [1, 4, 7, 2].into_iter().fold(message, |inside, number| field(number, &inside))
}

fn operations(each: impl Fn(usize) -> Value, many: usize) -> String {
    Value::from((0..many).map(each).collect::<Vec<_>>()).to_string()
}

pub(super) fn requests() -> Vec<Bad> {
    let mut all = too_large();
    all.extend(unreadable());
    all.extend(bad_patches());
    all.extend(bad_addresses());
    all
}

fn too_large() -> Vec<Bad> {
    let large = |bytes: usize| {
        json!({ "metadata": { "name": "large" }, "data": { "k": "x".repeat(bytes) } }).to_string()
    };
    let empties = |many: usize| "{},".repeat(many) + "{}";
    vec![
        post("a body over the limit", MAPS, JSON, large(3 << 20)).refused(
            413,
            "RequestEntityTooLarge",
            "limit is 3145728",
        ),
        post("one well over it", MAPS, JSON, large(8 << 20)).refused(
            413,
            "RequestEntityTooLarge",
            "limit is 3145728",
        ),
        patch("a patch over the limit", MERGE, large(3 << 20)).refused(
            413,
            "RequestEntityTooLarge",
            "limit is 3145728",
        ),
        post("more data than a config map holds", MAPS, JSON, large(2 << 20)).refused(
            422,
            "Invalid",
            "Too long: may not be more than 1048576 bytes",
        ),
        post(
            "more containers than fit in memory",
            PODS,
            JSON,
            format!(r#"{{"metadata":{{"name":"p"}},"spec":{{"containers":[{}]}}}}"#, empties(400_000)),
        ),
        post(
            "as many in protobuf",
            PODS,
            PROTOBUF,
            sealed("v1", "Pod", &field(2, &[0x12, 0].repeat(1_000_000))),
        ),
        post("a list of a million numbers", MAPS, JSON, format!("[{}0]", "0,".repeat(1_000_000))),
        post("nesting without end", MAPS, JSON, "{\"data\":".repeat(100_000)),
        post("nested lists", MAPS, JSON, format!("{}{}", "[".repeat(100_000), "]".repeat(100_000))),
        post(
            "nesting where anything goes",
            MAPS,
            JSON,
            format!(
                r#"{{"metadata":{{"name":"deep","managedFields":[{{"fieldsV1":{}1{}}}]}}}}"#,
                "{\"a\":".repeat(5_000),
                "}".repeat(5_000)
            ),
        ),
        post(
            "schemas in schemas",
            DEFINITIONS,
            PROTOBUF,
            sealed("apiextensions.k8s.io/v1", "CustomResourceDefinition", &deep_schema(5_000)),
        ),
        Bad {
            headers: vec![("content-type", JSON), ("content-encoding", "gzip")],
            ..post("a body that unfolds", MAPS, JSON, gzip_of_zeros())
        }
        .refused(415, "UnsupportedMediaType", "Content-Encoding"),
    ]
}

/// A gzip stream of stored-then-repeated zeros: small, and what it holds is beside the point.
fn gzip_of_zeros() -> Vec<u8> {
    let mut stream = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    stream.extend([0xed, 0xc1, 0x01, 0x0d, 0, 0, 0, 0xc2, 0xa0, 0xf7, 0x4f, 0x6d].repeat(1_000));
    stream
}

fn unreadable() -> Vec<Bad> {
    let whole = sealed("v1", "ConfigMap", &field(1, &field(1, b"named")));
    let mut all = vec![
        post("text that is not UTF-8", MAPS, JSON, &b"{\"metadata\":{\"name\":\"\xff\xfe\"}}"[..]),
        post(
            "the same in protobuf",
            MAPS,
            PROTOBUF,
            sealed("v1", "ConfigMap", &field(1, &field(1, b"\xff"))),
        )
        .saying("not valid UTF-8"),
        post("half a surrogate", MAPS, JSON, r#"{"metadata":{"name":"\ud800"}}"#),
        post("no body", MAPS, JSON, ""),
        post("no body in protobuf", MAPS, PROTOBUF, ""),
        post("protobuf that says it is JSON", MAPS, JSON, whole.clone()),
        post("JSON that says it is protobuf", MAPS, PROTOBUF, "{}")
            .saying("does not appear to be a protobuf message"),
        post("another kind", MAPS, JSON, r#"{"kind":"Pod","apiVersion":"v1"}"#).saying("does not match"),
        post("another kind in protobuf", MAPS, PROTOBUF, sealed("v1", "Pod", &[])),
        post("an unknown kind", MAPS, PROTOBUF, sealed("v7", "Nothing", &[])),
        post("a number that is none", MAPS, JSON, r#"{"data":{"a":1e999999}}"#),
        post(
            "a length of two gigabytes",
            PODS,
            PROTOBUF,
            sealed("v1", "Pod", &[0x12, 0xff, 0xff, 0xff, 0xff, 0x07, 1]),
        )
        .saying("unexpected end of input"),
        post("an integer that goes on", PODS, PROTOBUF, sealed("v1", "Pod", &[0x80; 40])),
        post("a group that never ends", PODS, PROTOBUF, sealed("v1", "Pod", &[0x0b].repeat(4_000))),
        post("a web page", MAPS, "text/html", "<html>").refused(
            415,
            "UnsupportedMediaType",
            "unknown format",
        ),
        post("a form", MAPS, "application/x-www-form-urlencoded", "a=b").refused(
            415,
            "UnsupportedMediaType",
            "unknown format",
        ),
        post("a type that is none", MAPS, "x/y/z", "{}").refused(
            415,
            "UnsupportedMediaType",
            "unknown format",
        ),
        Bad {
            method: Method::DELETE,
            ..post("options that are none", &format!("{MAPS}/target"), JSON, "[1]")
        },
    ];
    for json in [
        "[]",
        "1",
        "\"x\"",
        "true",
        "{",
        "{}{}",
        "{\"data\":[]}",
        "{\"data\":{\"a\":{}}}",
        "{\"metadata\":1}",
    ] {
        all.push(post("no object", MAPS, JSON, json));
    }
    for length in [5, 8, whole.len() - 1] {
        all.push(post("protobuf that is cut short", MAPS, PROTOBUF, whole[..length].to_vec()));
    }
    all
}

fn bad_patches() -> Vec<Bad> {
    let copying = operations(
        |step| json!({ "op": "copy", "from": "/data", "path": format!("/metadata/x{step}") }),
        5_000,
    );
    let mut doubling = format!(r#"[{{"op":"add","path":"/x","value":{{"k":"{}"}}}}"#, "v".repeat(1_000));
    for step in 0..64 {
        write!(doubling, ",{{\"op\":\"copy\",\"from\":\"/x\",\"path\":\"/x/{step}\"}}").unwrap();
    }
    doubling.push(']');
    let digging =
        operations(|depth| json!({ "op": "add", "path": "/a".repeat(depth + 1), "value": {} }), 500);
    let invalid = |bad: Bad, says| bad.refused(422, "Invalid", says);
    vec![
        invalid(patch("copies of copies", JSON_PATCH, doubling), "exceeding the limit"),
        invalid(patch("many copies", JSON_PATCH, copying), "exceeding the limit"),
        patch(
            "too many operations",
            JSON_PATCH,
            operations(|_| json!({ "op": "test", "path": "/kind", "value": "ConfigMap" }), 10_001),
        )
        .refused(
            413,
            "RequestEntityTooLarge",
            "The allowed maximum operations in a JSON patch is 10000, got 10001",
        ),
        invalid(patch("a patch that digs", JSON_PATCH, digging), "exceeded max depth"),
        invalid(patch("an operation that is none", JSON_PATCH, r#"[{"op":"burn","path":"/"}]"#), "burn"),
        patch("no list of operations", JSON_PATCH, "{}"),
        patch("a list to merge", MERGE, "[]").refused(400, "BadRequest", "name must be provided"),
        patch("nesting to merge", MERGE, "{\"a\":".repeat(10_000)),
        // Upstream counts this one as its own mistake.
        patch("a directive that is none", STRATEGIC, r#"{"data":{"$patch":"burn"}}"#).refused(
            500,
            "",
            "unknown patch type: burn",
        ),
        patch("a list where none is", STRATEGIC, r#"{"data":["a"]}"#).refused(
            422,
            "Invalid",
            "cannot unmarshal array",
        ),
        patch("a patch that is not UTF-8", MERGE, &b"{\"data\":{\"a\":\"\xff\"}}"[..]),
        patch("an object for a patch", JSON, "{}").refused(
            415,
            "UnsupportedMediaType",
            "Unsupported Media Type",
        ),
    ]
}

fn bad_addresses() -> Vec<Bad> {
    let parameter = |what, query: &str| get(what, format!("{MAPS}?{query}"));
    let missing = |what, path: &str| get(what, path).refused(404, "NotFound", "");
    let mut all = vec![
        parameter("an open parenthesis", "labelSelector=((((").saying("unable to parse requirement"),
        parameter("half a selector", "labelSelector=a%20in%20(b").saying("unable to parse requirement"),
        parameter("a selector of noise", "labelSelector=%00%01%7f").saying("unable to parse requirement"),
        parameter("a field without a selector", "fieldSelector=data.k%3Dv")
            .saying("is not a known field selector: only"),
        parameter("a field selector of noise", "fieldSelector=%5C%5C%2C%2C%3D"),
        parameter("a token of noise", "continue=%21%21%21").saying("continue key is not valid"),
        parameter("a token that is no JSON", "continue=AAAA").saying("continue key is not valid"),
        // {"v":"meta.k8s.io/v1","rv":1,"start":"core/secrets/default/a"}
        parameter(
            "a token for others' objects",
            "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJjb3JlL3NlY3JldHMvZGVmYXVsdC9hIn0",
        )
        .saying("continue key is not valid"),
        parameter("a limit below nothing", "limit=-1"),
        parameter("a limit beyond counting", "limit=99999999999999999999999"),
        parameter("a revision that is none", "resourceVersion=now").saying("resourceVersion"),
        parameter("a revision beyond counting", "resourceVersion=99999999999999999999999")
            .saying("resourceVersion"),
        parameter("a revision to come", "resourceVersion=18446744073709551615").refused(
            504,
            "Timeout",
            "Too large resource version",
        ),
        parameter("a watch of another time", "watch=1&timeoutSeconds=1e30"),
        parameter("a query that is not UTF-8", "labelSelector=%ff"),
        get("a path that is not UTF-8", "/api/v1/namespaces/%ff/configmaps"),
        missing("a slash in a name", &format!("{MAPS}/target%2Fstatus")),
        missing("a slash in a namespace", "/api/v1/namespaces/default%2Fx/configmaps/target"),
        missing("a path that goes on", &format!("{MAPS}/target/a/b/c/d/e")),
        missing("a path that goes back", "/api/v1/../../etc/passwd"),
        missing("an unknown group", "/apis/unknown.example.com/v9/things"),
        missing("nowhere", "/nowhere/at/all"),
        Bad { method: Method::DELETE, ..missing("a name of noise", &format!("{MAPS}/%00%0a%0d")) },
        Bad { method: Method::from_bytes(b"BURN").unwrap(), ..get("a method of its own", MAPS) }.refused(
            405,
            "MethodNotAllowed",
            "",
        ),
        Bad { method: Method::PUT, ..post("a write to discovery", "/apis", JSON, "{}") }.refused(
            405,
            "MethodNotAllowed",
            "",
        ),
    ];
    let long = format!("{MAPS}/{}", "x".repeat(8_000));
    all.push(Bad { method: Method::GET, ..missing("a name without end", &long) }.refused(
        400,
        "BadRequest",
        "longer than",
    ));
    for query in ["dryRun=Some", "fieldValidation=Loose"] {
        all.push(
            post("an option that is none", &format!("{MAPS}?{query}"), JSON, r#"{"metadata":{"name":"n"}}"#)
                .refused(422, "Invalid", "supported values"),
        );
    }
    let delete = |query: &str| {
        let path = format!("{MAPS}/target?{query}");
        Bad { method: Method::DELETE, ..get("an option that is none", path) }
    };
    all.push(delete("gracePeriodSeconds=soon"));
    all.push(delete("propagationPolicy=Sideways").refused(422, "Invalid", "supported values"));
    all
}
