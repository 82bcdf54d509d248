//! Tables of requests and the responses to expect. Tests put them to our API server, and to a kube-apiserver.

use http::Request;
use serde::Deserialize;
use serde_json::Value;

/// One request, and the response to expect. `{ns}` stands for the namespace.
#[derive(Clone, Debug, Deserialize)]
pub struct Step {
    /// The HTTP method; `STRATEGIC` and `MERGE` are patches.
    pub method: String,
    /// The path, with the query.
    pub path: String,
    /// The body; none if it is null.
    pub body: Value,
    /// The HTTP status.
    pub code: u16,
    /// The message of a refusal, where the table has it.
    pub message: Option<String>,
    /// The texts of the `Warning` headers, where the table has them.
    pub warnings: Option<Vec<String>>,
}

/// Steps in a namespace of their own.
#[derive(Clone, Debug, Deserialize)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// One after the other.
    pub steps: Vec<Step>,
}

impl Step {
    /// The request in a namespace.
    pub fn request(&self, namespace: &str) -> http::Result<Request<Vec<u8>>> {
        let here = |text: &str| text.replace("{ns}", namespace);
        let body = (!self.body.is_null()).then(|| here(&self.body.to_string()));
        request(&self.method, &here(&self.path), body)
    }
}

/// A request with a JSON body; `STRATEGIC` and `MERGE` are patches.
pub fn request(method: &str, path: &str, body: Option<String>) -> http::Result<Request<Vec<u8>>> {
    let (method, media) = match method {
        "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
        "MERGE" => ("PATCH", "application/merge-patch+json"),
        method => (method, "application/json"),
    };
    let request = Request::builder().method(method).uri(path).header("content-type", media);
    request.body(body.unwrap_or_default().into_bytes())
}
