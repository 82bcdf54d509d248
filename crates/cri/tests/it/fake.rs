//! A CRI runtime that answers as a test wants, for what no containerd here does: Windows, events, newer calls.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use plumb_cri::api;
use plumb_cri::{CgroupDriver, Config, Cri, REQUEST_TIMEOUT};
use plumb_runtime::Result;
use plumb_runtime::cgroup::Layout;
use prost::Message;
use tempfile::TempDir;
use tokio::net::UnixListener;

const INVALID_ARGUMENT: &str = "3";
const UNIMPLEMENTED: &str = "12";
const UNAVAILABLE: &str = "14";

/// The response to a call: messages and a status, and whether the stream ends then.
#[derive(Clone)]
struct Answer {
    messages: Vec<Bytes>,
    status: &'static str,
    ends: bool,
}

/// A fake runtime, and what it was asked.
pub(crate) struct Fake {
    folder: TempDir,
    answers: Arc<Mutex<BTreeMap<String, Answer>>>,
    asked: Arc<Mutex<Vec<(String, Bytes)>>>,
}

impl Fake {
    /// One that has only `Version`, and nothing to list.
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for controller in ["cpu", "memory"] {
            std::fs::create_dir(folder.path().join(controller)).unwrap();
        }
        let fake = Self { folder, answers: Arc::default(), asked: Arc::default() };
        fake.answer("Version", &api::VersionResponse { runtime_name: "fake".into(), ..Default::default() });
        fake.answer("ListContainers", &api::ListContainersResponse::default());
        fake.answer("ListPodSandbox", &api::ListPodSandboxResponse::default());
        let listener = UnixListener::bind(fake.folder.path().join("cri.sock")).unwrap();
        let answers = fake.answers.clone();
        let asked = fake.asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answers = answers.clone();
                let asked = asked.clone();
                let service = service_fn(move |request| serve(request, answers.clone(), asked.clone()));
                tokio::spawn(
                    http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service),
                );
            }
        });
        fake
    }

    /// Answers a call with a message.
    pub(crate) fn answer(&self, call: &str, message: &impl Message) {
        let answer = Answer { messages: vec![framed(message)], status: "0", ends: true };
        self.answers.lock().unwrap().insert(call.to_owned(), answer);
    }

    /// Refuses a call, as invalid.
    pub(crate) fn refuse(&self, call: &str) {
        let answer = Answer { messages: Vec::new(), status: INVALID_ARGUMENT, ends: true };
        self.answers.lock().unwrap().insert(call.to_owned(), answer);
    }

    /// Fails a call in a way that leaves open whether it took effect.
    pub(crate) fn lose(&self, call: &str) {
        let answer = Answer { messages: Vec::new(), status: UNAVAILABLE, ends: true };
        self.answers.lock().unwrap().insert(call.to_owned(), answer);
    }

    /// Answers a call with messages, after which the stream goes on.
    pub(crate) fn stream(&self, call: &str, messages: &[impl Message]) {
        let answer = Answer { messages: messages.iter().map(framed).collect(), status: "0", ends: false };
        self.answers.lock().unwrap().insert(call.to_owned(), answer);
    }

    /// What a call was asked with, each time.
    pub(crate) fn asked<Q: Message + Default>(&self, call: &str) -> Vec<Q> {
        let asked = self.asked.lock().unwrap();
        let of_call = asked.iter().filter(|(name, _)| name == call);
        of_call.map(|(_, body)| Q::decode(body.slice(5..)).unwrap()).collect()
    }

    /// Its cgroups, which are plain files.
    pub(crate) fn cgroups(&self) -> &Path {
        self.folder.path()
    }

    /// A client on a machine with cgroup v1.
    pub(crate) async fn client(&self) -> Result<Cri> {
        let line = |controller: &str| {
            let point = self.folder.path().join(controller);
            format!("30 24 0:26 / {} rw - cgroup cgroup rw,{controller}\n", point.display())
        };
        self.client_with(Layout::of_mountinfo(&(line("cpu") + &line("memory"))).unwrap()).await
    }

    /// A client on a machine with these cgroups.
    pub(crate) async fn client_with(&self, cgroups: Layout) -> Result<Cri> {
        Cri::open(self.config(cgroups), plumb_supervise::process()).await
    }

    /// The configuration of such a client.
    pub(crate) fn config(&self, cgroups: Layout) -> Config {
        Config {
            endpoint: format!("unix://{}", self.folder.path().join("cri.sock").display()),
            image_endpoint: None,
            cluster: "plumb-fake".into(),
            folder: self.folder.path().join("files"),
            cgroups,
            cgroup_driver: CgroupDriver::Cgroupfs,
            request_timeout: REQUEST_TIMEOUT,
        }
    }
}

fn framed(message: &impl Message) -> Bytes {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.encoded_len()).unwrap());
    message.encode(&mut frame).unwrap();
    frame.freeze()
}

async fn serve(
    request: Request<Incoming>,
    answers: Arc<Mutex<BTreeMap<String, Answer>>>,
    asked: Arc<Mutex<Vec<(String, Bytes)>>>,
) -> Result<Response<UnsyncBoxBody<Bytes, Infallible>>, Infallible> {
    let call = request.uri().path().rsplit('/').next().unwrap().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    asked.lock().unwrap().push((call.clone(), body));
    let missing = Answer { messages: Vec::new(), status: UNIMPLEMENTED, ends: true };
    let answer = answers.lock().unwrap().get(&call).cloned().unwrap_or(missing);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static(answer.status));
    let mut frames: Vec<_> = answer.messages.into_iter().map(|message| Ok(Frame::data(message))).collect();
    if answer.ends {
        frames.push(Ok(Frame::trailers(trailers)));
        return Ok(Response::new(StreamBody::new(stream::iter(frames)).boxed_unsync()));
    }
    let on = stream::StreamExt::chain(stream::iter(frames), stream::pending());
    Ok(Response::new(StreamBody::new(on).boxed_unsync()))
}
