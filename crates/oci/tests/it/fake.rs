//! A registry in the test's process, which can be made to fail in ways that a real one cannot.

#![allow(dead_code, reason = "tests of several crates include this file, and none uses all of it")]

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use plumb_oci::{Digest, architecture};
use serde_json::{Value, json};
use tokio::net::TcpListener;

pub(crate) type Answer = Response<BoxBody<Bytes, io::Error>>;
type Intercept = Box<dyn FnMut(&Asked) -> Option<Answer> + Send>;

/// A request that the registry has received.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) headers: HeaderMap,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

#[derive(Default)]
struct State {
    /// By `repository/manifests/reference` and `repository/blobs/digest`.
    content: HashMap<String, (String, Bytes)>,
    asked: Vec<Asked>,
    intercept: Option<Intercept>,
}

/// The registry. It ends with the test.
#[derive(Clone)]
pub(crate) struct FakeRegistry {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl FakeRegistry {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let registry = Self { address, state };
        let serving = registry.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let registry = serving.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request: Request<Incoming>| {
                        let answer = registry.answer(&request);
                        async move { Ok::<_, Infallible>(answer) }
                    });
                    // A client that goes away, or a response that breaks off on purpose.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        registry
    }

    /// The name of an image in it.
    pub(crate) fn image(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    /// Answers requests before the registry does.
    pub(crate) fn intercept(&self, intercept: impl FnMut(&Asked) -> Option<Answer> + Send + 'static) {
        self.state.lock().unwrap().intercept = Some(Box::new(intercept));
    }

    /// What was asked for, without the probe for the scheme.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        let asked = self.state.lock().unwrap().asked.clone();
        asked.into_iter().filter(|asked| asked.path != "/v2/").collect()
    }

    pub(crate) fn asked_for(&self, part: &str) -> Vec<Asked> {
        self.asked().into_iter().filter(|asked| asked.path.contains(part)).collect()
    }

    pub(crate) fn put_blob(&self, repository: &str, content: impl Into<Bytes>) -> Digest {
        let content = content.into();
        let digest = Digest::of(&content);
        self.put_blob_as(repository, digest, content);
        digest
    }

    /// Content under a digest that need not be its own.
    pub(crate) fn put_blob_as(&self, repository: &str, digest: Digest, content: impl Into<Bytes>) {
        let key = format!("{repository}/blobs/{digest}");
        let media = "application/octet-stream".to_owned();
        self.state.lock().unwrap().content.insert(key, (media, content.into()));
    }

    /// A manifest or an index, under its digest and under a tag.
    pub(crate) fn put_manifest(&self, repository: &str, tag: Option<&str>, document: &Value) -> Digest {
        let text = Bytes::from(document.to_string());
        let digest = Digest::of(&text);
        let media = document["mediaType"].as_str().unwrap_or_default().to_owned();
        let mut state = self.state.lock().unwrap();
        for reference in [Some(digest.to_string()), tag.map(str::to_owned)].into_iter().flatten() {
            let key = format!("{repository}/manifests/{reference}");
            state.content.insert(key, (media.clone(), text.clone()));
        }
        digest
    }

    /// An image of layers that are plain tar files; returns the digest of its manifest.
    pub(crate) fn put_image(&self, repository: &str, tag: &str, layers: &[Bytes]) -> Digest {
        let diffs: Vec<String> = layers.iter().map(|layer| Digest::of(layer).to_string()).collect();
        let config = json!({
            "architecture": architecture(), "os": "linux",
            "config": { "Entrypoint": ["/run"] },
            "rootfs": { "type": "layers", "diff_ids": diffs },
        });
        let config = Bytes::from(config.to_string());
        let size = config.len();
        let config = self.put_blob(repository, config);
        let described: Vec<Value> = layers
            .iter()
            .map(|layer| {
                let digest = self.put_blob(repository, layer.clone());
                json!({ "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": digest, "size": layer.len() })
            })
            .collect();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": { "mediaType": "application/vnd.oci.image.config.v1+json", "digest": config, "size": size },
            "layers": described,
        });
        self.put_manifest(repository, Some(tag), &manifest)
    }

    fn answer(&self, request: &Request<Incoming>) -> Answer {
        let asked = Asked {
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            headers: request.headers().clone(),
        };
        let mut state = self.state.lock().unwrap();
        state.asked.push(asked.clone());
        if asked.path == "/v2/" {
            return empty(StatusCode::OK);
        }
        if let Some(mut intercept) = state.intercept.take() {
            let answer = intercept(&asked);
            state.intercept = Some(intercept);
            if let Some(answer) = answer {
                return answer;
            }
        }
        let Some((media, content)) = state.content.get(asked.path.trim_start_matches("/v2/")) else {
            let text = json!({ "errors": [{ "code": "MANIFEST_UNKNOWN", "message": "manifest unknown" }] });
            return with_status(StatusCode::NOT_FOUND, text.to_string());
        };
        let from = asked.header("range").and_then(|range| range.strip_prefix("bytes=")?.strip_suffix('-'));
        match from.and_then(|from| from.parse::<usize>().ok()) {
            Some(from) if from < content.len() => {
                let mut answer = with_status(StatusCode::PARTIAL_CONTENT, content.slice(from..));
                let range = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
                answer.headers_mut().insert(CONTENT_RANGE, range.parse().unwrap());
                answer
            }
            Some(_) => empty(StatusCode::RANGE_NOT_SATISFIABLE),
            None => {
                let mut answer = with_status(StatusCode::OK, content.clone());
                answer.headers_mut().insert(CONTENT_TYPE, media.parse().unwrap());
                answer
            }
        }
    }
}

pub(crate) fn with_status(status: StatusCode, body: impl Into<Bytes>) -> Answer {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed();
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    answer
}

pub(crate) fn empty(status: StatusCode) -> Answer {
    let mut answer = Response::new(Empty::new().map_err(|never| match never {}).boxed());
    *answer.status_mut() = status;
    answer
}

/// A redirect.
pub(crate) fn redirect(to: &str) -> Answer {
    let mut answer = empty(StatusCode::TEMPORARY_REDIRECT);
    answer.headers_mut().insert("location", to.parse().unwrap());
    answer
}

/// Asks for credentials.
pub(crate) fn challenge(header: &str) -> Answer {
    let text = json!({ "errors": [{ "code": "UNAUTHORIZED", "message": "authentication required" }] });
    let mut answer = with_status(StatusCode::UNAUTHORIZED, text.to_string());
    answer.headers_mut().insert("www-authenticate", header.parse().unwrap());
    answer
}

/// A response that has a length, and ends before.
pub(crate) fn truncated(content: &Bytes, sent: usize) -> Answer {
    let body = Broken {
        parts: vec![Err(io::Error::other("broken on purpose")), Ok(content.slice(..sent))],
        flushed: false,
    };
    let mut answer = Response::new(body.boxed());
    answer.headers_mut().insert(CONTENT_LENGTH, content.len().into());
    answer
}

/// A response that sends something, and then nothing any more.
pub(crate) fn stalled(content: &Bytes, sent: usize) -> Answer {
    let mut answer = Response::new(Stalled { first: Some(content.slice(..sent)) }.boxed());
    answer.headers_mut().insert(CONTENT_LENGTH, content.len().into());
    answer
}

struct Broken {
    /// The last one comes first.
    parts: Vec<io::Result<Bytes>>,
    flushed: bool,
}

impl Body for Broken {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        // What comes before the error is sent first.
        if self.parts.len() == 1 && !self.flushed {
            self.flushed = true;
            context.waker().wake_by_ref();
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(self.parts.pop().map(|part| part.map(Frame::data)))
    }
}

struct Stalled {
    first: Option<Bytes>,
}

impl Body for Stalled {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.first.take() {
            Some(first) => std::task::Poll::Ready(Some(Ok(Frame::data(first)))),
            None => std::task::Poll::Pending,
        }
    }
}
