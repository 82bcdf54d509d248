//! Responses of a server.

use http::Request;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::error::Error;

/// A response, as far as clients act on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The HTTP status; zero if there was no response.
    pub code: u16,
    /// The warnings, in order.
    pub warnings: Vec<String>,
    /// The body.
    pub body: Value,
}

impl Response {
    /// Whether the request succeeded.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.code)
    }

    /// A text of the body; empty if there is none.
    pub(super) fn text(&self, field: &str) -> &str {
        self.body[field].as_str().unwrap_or_default()
    }

    /// The resulting object, if the response is one.
    pub(super) fn object(&self) -> Option<&Value> {
        Some(&self.body).filter(|body| self.is_success() && body["kind"] != "Status")
    }
}

/// Sends a request to a server.
pub(super) async fn send_request(
    client: &Client,
    method: &str,
    path: &str,
    media_type: &str,
    body: Vec<u8>,
) -> Result<Response, Error> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("accept", "application/json")
        .header("content-type", media_type)
        .body(Body::from(body))
        .map_err(|source| Error::Request { path: path.to_owned(), source })?;
    let answered = async {
        let (head, body) = client.send(request).await?.into_parts();
        Ok::<_, kube::Error>((head, body.collect().await?.to_bytes()))
    };
    let (head, bytes) = match answered.await {
        Ok(answered) => answered,
        // A server that panics closes the connection without a response.
        Err(error) => {
            let body = json!({"message": error.to_string()});
            return Ok(Response { code: 0, warnings: Vec::new(), body });
        }
    };
    let warnings = head.headers.get_all("warning").iter().filter_map(|value| value.to_str().ok());
    Ok(Response {
        code: head.status.as_u16(),
        warnings: warnings.map(str::to_owned).collect(),
        body: serde_json::from_slice(&bytes).unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes))),
    })
}
