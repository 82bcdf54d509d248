//! A CSI driver in this process: its node service, and the registration socket. It mounts directories of its own.

#![expect(clippy::expect_used, reason = "a test that cannot be set up has failed")]

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use plumb_csi::api::{self, Capability};
use prost::Message;
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What a driver says and does.
#[derive(Clone, Debug)]
pub struct DriverBehavior {
    /// What its node service can do.
    pub capabilities: Vec<Capability>,
    /// How many volumes a node can have; zero is no limit.
    pub max_volumes: i64,
    /// Where the node is.
    pub topology: BTreeMap<String, String>,
    /// The call that never returns.
    pub hangs: Option<&'static str>,
    /// The call that fails, with a code of gRPC.
    pub fails: Option<(&'static str, u32)>,
}

impl Default for DriverBehavior {
    fn default() -> Self {
        Self {
            capabilities: vec![Capability::StageUnstageVolume, Capability::ExpandVolume],
            max_volumes: 0,
            topology: BTreeMap::new(),
            hangs: None,
            fails: None,
        }
    }
}

/// A driver. It ends when this is dropped; what it has mounted stays, as with a driver that was killed.
#[derive(Debug)]
pub struct TestDriver {
    registration: PathBuf,
    endpoint: PathBuf,
    state: Arc<State>,
    _tasks: JoinSet<()>,
}

#[derive(Debug)]
struct State {
    name: String,
    endpoint: PathBuf,
    data: PathBuf,
    behavior: watch::Sender<DriverBehavior>,
    calls: Mutex<Vec<(String, Bytes)>>,
}

impl TestDriver {
    /// Starts a driver, which registers with the node whose kubelet directory this is.
    ///
    /// # Panics
    /// If it cannot serve its sockets.
    pub fn start(name: &str, kubelet: &Path, behavior: DriverBehavior) -> Self {
        let (registry, plugin) = (kubelet.join("plugins_registry"), kubelet.join("plugins").join(name));
        for folder in [&registry, &plugin] {
            fs::create_dir_all(folder).expect("the directory of a socket");
        }
        let (endpoint, registration) = (plugin.join("csi.sock"), registry.join(format!("{name}-reg.sock")));
        let state = Arc::new(State {
            name: name.to_owned(),
            endpoint: endpoint.clone(),
            data: plugin.join("data"),
            behavior: watch::Sender::new(behavior),
            calls: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        // The registration socket comes last: the agent calls the other one at once.
        for socket in [&endpoint, &registration] {
            let _ = fs::remove_file(socket);
            let listener = UnixListener::bind(socket).expect("a socket");
            tasks.spawn(serve(listener, state.clone()));
        }
        Self { registration, endpoint, state, _tasks: tasks }
    }

    /// Changes what it does.
    pub fn set(&self, change: impl FnOnce(&mut DriverBehavior)) {
        self.state.behavior.send_modify(change);
    }

    /// The requests of a call, in their order.
    ///
    /// # Panics
    /// If one cannot be decoded.
    pub fn requests<Q: Message + Default>(&self, call: &str) -> Vec<Q> {
        let calls = self.state.calls.lock();
        let of_call = calls.iter().filter(|(name, _)| name == call);
        of_call.map(|(_, body)| Q::decode(body.clone()).expect("a request of the call")).collect()
    }

    /// The names of all calls about volumes, in their order.
    pub fn calls(&self) -> Vec<String> {
        let calls = self.state.calls.lock();
        let about_volumes = calls.iter().map(|(name, _)| name).filter(|name| name.ends_with("Volume"));
        about_volumes.cloned().collect()
    }

    /// The directory with the data of a volume.
    pub fn data(&self, handle: &str) -> PathBuf {
        self.state.data.join(handle)
    }
}

impl Drop for TestDriver {
    fn drop(&mut self) {
        for socket in [&self.registration, &self.endpoint] {
            let _ = fs::remove_file(socket);
        }
    }
}

async fn serve(listener: UnixListener, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let state = state.clone();
        let service = service_fn(move |request| answer(request, state.clone()));
        connections.spawn(async move {
            let connection = http2::Builder::new(TokioExecutor::new());
            let _ = connection.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

type Body = UnsyncBoxBody<Bytes, Infallible>;

async fn answer(request: Request<Incoming>, state: Arc<State>) -> Result<Response<Body>, Infallible> {
    let call = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    let body = body.unwrap_or_default().slice(5..);
    state.calls.lock().push((call.clone(), body.clone()));
    let mut behavior = state.behavior.subscribe();
    let hangs = |behavior: &DriverBehavior| behavior.hangs == Some(call.as_str());
    if behavior.wait_for(|behavior| !hangs(behavior)).await.is_err() {
        std::future::pending::<()>().await;
    }
    let behavior = state.behavior.borrow().clone();
    let (message, status) = match behavior.fails {
        Some((failing, code)) if failing == call => (Vec::new(), code),
        _ => match state.perform(&call, &body, &behavior) {
            Ok(message) => (message, 0),
            // INTERNAL.
            Err(_) => (Vec::new(), 13),
        },
    };
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap_or_default());
    frame.extend_from_slice(&message);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(status));
    trailers.insert("grpc-message", HeaderValue::from_static("the test says so"));
    let data = (status == 0).then(|| Ok(Frame::data(frame.freeze())));
    let frames = data.into_iter().chain([Ok(Frame::trailers(trailers))]);
    Ok(Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()))
}

impl State {
    fn perform(&self, call: &str, body: &Bytes, behavior: &DriverBehavior) -> io::Result<Vec<u8>> {
        match call {
            "GetInfo" => Ok(api::PluginInfo {
                r#type: "CSIPlugin".to_owned(),
                name: self.name.clone(),
                endpoint: self.endpoint.to_string_lossy().into_owned(),
                supported_versions: vec!["1.0.0".to_owned()],
            }
            .encode_to_vec()),
            "NodeGetInfo" => Ok(api::NodeGetInfoResponse {
                node_id: format!("id-of-{}", self.name),
                max_volumes_per_node: behavior.max_volumes,
                accessible_topology: Some(api::Topology { segments: behavior.topology.clone() }),
            }
            .encode_to_vec()),
            "NodeGetCapabilities" => {
                let capability = |one: &Capability| api::NodeServiceCapability {
                    rpc: Some(api::Rpc { r#type: (*one).into() }),
                };
                let capabilities = behavior.capabilities.iter().map(capability).collect();
                Ok(api::NodeGetCapabilitiesResponse { capabilities }.encode_to_vec())
            }
            "NodePublishVolume" => {
                let request =
                    api::NodePublishVolumeRequest::decode(body.clone()).map_err(io::Error::other)?;
                self.publish(&request).map(|()| Vec::new())
            }
            "NodeUnpublishVolume" => {
                let request =
                    api::NodeUnpublishVolumeRequest::decode(body.clone()).map_err(io::Error::other)?;
                take_back(Path::new(&request.target_path)).map(|()| Vec::new())
            }
            _ => Ok(Vec::new()),
        }
    }

    fn publish(&self, request: &api::NodePublishVolumeRequest) -> io::Result<()> {
        let target = Path::new(&request.target_path);
        let data = self.data.join(&request.volume_id);
        fs::create_dir_all(&data)?;
        let is_block = request.volume_capability.as_ref().is_some_and(|one| one.block.is_some());
        if is_block {
            // The first loop device: it is a block device, whether anything is behind it or not.
            match mknodat(CWD, target, FileType::BlockDevice, Mode::RUSR | Mode::WUSR, makedev(7, 0)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
        if target.exists() {
            return Ok(());
        }
        fs::create_dir(target)?;
        Ok(mount_bind(&data, target)?)
    }
}

fn take_back(target: &Path) -> io::Result<()> {
    match unmount(target, UnmountFlags::DETACH) {
        // It is not mounted, or not there.
        Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    match fs::symlink_metadata(target) {
        Ok(found) if found.is_dir() => fs::remove_dir(target),
        Ok(_) => fs::remove_file(target),
        Err(_) => Ok(()),
    }
}
