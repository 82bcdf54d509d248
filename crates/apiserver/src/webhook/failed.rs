//! Responses of webhooks that are no success, in the words of client-go.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use serde_json::Value;

/// How much is read of such a response: a `Status` with all its causes.
const MAX_READ: usize = 64 << 10;
/// How much of a text is reported, as client-go.
const MAX_TEXT: usize = 2048;

/// What is read of the body, which may go on for as long as its sender likes.
pub(super) async fn read<B>(mut body: B) -> Result<Vec<u8>, B::Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let mut read = Vec::new();
    while read.len() < MAX_READ {
        let Some(frame) = body.frame().await else { break };
        if let Some(data) = frame?.data_ref() {
            read.extend_from_slice(&data[..data.len().min(MAX_READ - read.len())]);
        }
    }
    Ok(read)
}

/// What such a response means.
pub(super) fn explain(code: StatusCode, headers: &HeaderMap, body: &[u8]) -> String {
    let status = serde_json::from_slice::<Value>(body).ok().filter(|status| status["kind"] == "Status");
    if let Some(message) = status.as_ref().and_then(|status| status["message"].as_str()) {
        return message.to_owned();
    }
    let text = if is_text(headers) {
        String::from_utf8_lossy(&body[..body.len().min(MAX_TEXT)]).trim().to_owned()
    } else {
        "unknown".to_owned()
    };
    match code.as_u16() {
        400 => "the server rejected our request for an unknown reason".to_owned(),
        401 => "the server has asked for the client to provide credentials".to_owned(),
        404 => "the server could not find the requested resource".to_owned(),
        405 => "the server does not allow this method on the requested resource".to_owned(),
        406 if text.is_empty() || text == "unknown" => {
            "the server was unable to respond with a content type that the client supports".to_owned()
        }
        403 | 406 | 415 => text,
        409 => "the server reported a conflict".to_owned(),
        422 => "the server rejected our request due to an error in our request".to_owned(),
        429 => "the server has received too many requests and has asked us to try again later".to_owned(),
        503 => "the server is currently unable to handle the request".to_owned(),
        504 => "the server was unable to return a response in the time allotted, but may still be \
                processing the request"
            .to_owned(),
        500.. => {
            let text = plumb_go::quote(&text);
            format!("an error on the server ({text}) has prevented the request from succeeding")
        }
        code => {
            format!("the server responded with the status code {code} but did not return more information")
        }
    }
}

/// Whether a body is a text, as far as its sender says.
fn is_text(headers: &HeaderMap) -> bool {
    let Some(given) = headers.get(CONTENT_TYPE).filter(|given| !given.is_empty()) else { return true };
    given.to_str().is_ok_and(|given| given.trim_start().to_ascii_lowercase().starts_with("text/"))
}

#[cfg(test)]
mod tests {
    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::*;

    fn headers(content_type: &'static str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
        headers
    }

    #[test]
    fn a_failure_has_the_message_of_client_go() {
        let error = |text: &str| {
            format!("an error on the server ({text:?}) has prevented the request from succeeding")
        };
        let none = HeaderMap::new();
        let table = [
            (500, &none, " on fire\n".to_owned(), error("on fire")),
            (500, &headers("text/plain; charset=utf-8"), "on fire".to_owned(), error("on fire")),
            (500, &headers("application/json"), "{}".to_owned(), error("unknown")),
            (500, &none, "x".repeat(5_000), error(&"x".repeat(2_048))),
            (500, &none, r#"{"kind":"Status","message":"because"}"#.to_owned(), "because".to_owned()),
            (
                503,
                &none,
                "later".to_owned(),
                "the server is currently unable to handle the request".to_owned(),
            ),
            (403, &none, "x".repeat(5_000), "x".repeat(2_048)),
            (
                418,
                &none,
                "short and stout".to_owned(),
                "the server responded with the status code 418 but did not return more information"
                    .to_owned(),
            ),
        ];
        for (code, headers, body, expected) in table {
            let code = StatusCode::from_u16(code).unwrap();
            assert_eq!(explain(code, headers, body.as_bytes()), expected);
        }
    }

    #[tokio::test]
    async fn a_body_without_an_end_is_read_up_to_a_limit() {
        let endless = futures_util::stream::repeat_with(|| {
            Ok::<_, std::convert::Infallible>(Frame::data(Bytes::from_static(&[b'x'; 1_000])))
        });
        assert_eq!(read(StreamBody::new(endless)).await.unwrap().len(), MAX_READ);
        assert_eq!(read(Full::from("short")).await.unwrap(), b"short");
    }
}
