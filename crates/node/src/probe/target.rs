//! Targets of probes.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Probe, TCPSocketAction};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use plumb_runtime::types::ContainerId;
use plumb_runtime::{Error, Runtime};
use plumb_validation::addresses::is_global_unicast;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::{Outcome, grpc, http};
use crate::cri_config::expand;

/// How many bytes of a command's output are read.
const MOST_OUTPUT: usize = 10 << 10;

/// A container that runs.
#[derive(Clone)]
pub struct Target {
    /// The runtime that runs it.
    pub runtime: Arc<dyn Runtime>,
    /// Its id.
    pub id: ContainerId,
    /// Its spec.
    pub container: Container,
    /// Its pod's address, according to the runtime.
    pub pod_ip: Option<IpAddr>,
    /// Whether its pod is on the node's network.
    pub on_host_network: bool,
    /// Whether the pod's address is reachable. If it is not, as with the virtual runtime, every probe is sent to the
    /// runtime.
    pub reachable: bool,
    /// For how long it has run already.
    pub running_for: Duration,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Target {
    /// Checks once.
    pub async fn check(&self, probe: &Probe, within: Duration) -> Outcome {
        let dialer = self.dialer();
        if let Some(exec) = &probe.exec {
            self.exec(exec.command.as_deref().unwrap_or_default(), within).await
        } else if !self.reachable {
            self.exec(&[], within).await
        } else if let Some(get) = &probe.http_get {
            match port(&get.port, &self.container) {
                Ok(port) => http::check(get, &dialer, port, within).await,
                Err(error) => Outcome::Error(error.to_string()),
            }
        } else if let Some(socket) = &probe.tcp_socket {
            self.connect(socket, &dialer, within).await
        } else if let Some(grpc) = &probe.grpc {
            match u16::try_from(grpc.port) {
                Ok(port) => {
                    let service = grpc.service.as_deref().unwrap_or_default();
                    grpc::check(&dialer, port, service, within).await
                }
                Err(_) => Outcome::Error(PortError::Invalid(grpc.port).to_string()),
            }
        } else {
            Outcome::Error(format!("missing probe handler for {}", self.container.name))
        }
    }

    /// Runs a lifecycle hook once. Unlike a probe, an HTTP request succeeds whatever the status of the response is.
    pub async fn run_hook(&self, hook: &LifecycleHandler, within: Duration) -> Outcome {
        if let (Some(get), None, true) = (&hook.http_get, &hook.exec, self.reachable) {
            return match port(&get.port, &self.container) {
                Ok(port) => http::call(get, &self.dialer(), port, within).await,
                Err(error) => Outcome::Error(error.to_string()),
            };
        }
        let probe = Probe {
            exec: hook.exec.clone(),
            http_get: hook.http_get.clone(),
            tcp_socket: hook.tcp_socket.clone(),
            ..Probe::default()
        };
        self.check(&probe, within).await
    }

    fn dialer(&self) -> Dialer {
        Dialer { pod_ip: self.pod_ip, on_host_network: self.on_host_network }
    }

    async fn exec(&self, command: &[String], within: Duration) -> Outcome {
        let env = self.container.env.as_deref().unwrap_or_default();
        let value = |name: &str| env.iter().find(|env| env.name == name).and_then(|env| env.value.as_deref());
        let command: Vec<String> = command.iter().map(|word| expand(word, value)).collect();
        match self.runtime.exec_sync(&self.id, &command, Some(within)).await {
            Ok(output) if output.exit_code == 0 => Outcome::Success,
            Ok(output) => {
                let said: Vec<u8> =
                    output.stdout.into_iter().chain(output.stderr).take(MOST_OUTPUT).collect();
                Outcome::Failure(String::from_utf8_lossy(&said).into_owned())
            }
            Err(Error::DeadlineExceeded(why)) => Outcome::Failure(format!("command timed out: {why}")),
            Err(error) => Outcome::Error(error.to_string()),
        }
    }

    async fn connect(&self, socket: &TCPSocketAction, dialer: &Dialer, within: Duration) -> Outcome {
        let host = dialer.host(socket.host.as_deref());
        let port = match port(&socket.port, &self.container) {
            Ok(port) => port,
            Err(error) => return Outcome::Error(error.to_string()),
        };
        match timeout(within, dialer.connect(&host, port)).await {
            Ok(Ok(_)) => Outcome::Success,
            Ok(Err(error)) => Outcome::Failure(dialed(&host, port, &error)),
            Err(_) => Outcome::Failure(format!("dial tcp {}: i/o timeout", place(&host, port))),
        }
    }
}

/// Connects to a pod, or to the host that its probe or hook names.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialer {
    pod_ip: Option<IpAddr>,
    on_host_network: bool,
}

impl Dialer {
    /// The host that a probe names; else the pod.
    pub(super) fn host(&self, named: Option<&str>) -> String {
        let own = || self.pod_ip.map(|ip| ip.to_string()).unwrap_or_default();
        named.filter(|host| !host.is_empty()).map_or_else(own, str::to_owned)
    }

    /// Connects to a host. For a pod with a network of its own the loopback interface and the link of the node are not
    /// reached: a user who may create pods would otherwise learn by a probe what runs there, and reach it by a hook. A name is
    /// resolved once, so that the address that is checked is the one that is connected to.
    pub(super) async fn connect(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let allowed = |address: &SocketAddr| {
            self.on_host_network || self.pod_ip == Some(address.ip()) || is_global_unicast(&address.ip())
        };
        let found: Vec<SocketAddr> = lookup_host((host, port)).await?.filter(allowed).collect();
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "address not allowed"));
        }
        TcpStream::connect(found.as_slice()).await
    }
}

/// A host and a port as one address.
pub(super) fn place(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Why a connection failed, with Go's message.
pub(crate) fn dialed(host: &str, port: u16, error: &io::Error) -> String {
    let why = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        _ => error.to_string(),
    };
    format!("dial tcp {}: {why}", place(host, port))
}

/// Why a probe has no port, with the kubelet's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
enum PortError {
    /// The container has no port of this name, and it is no number.
    #[error("strconv.Atoi: parsing {0:?}: invalid syntax")]
    Unknown(String),
    /// The number is no port.
    #[error("invalid port number: {0}")]
    Invalid(i32),
}

/// A port by number, by the name that the container gives it, or by a number that is written as text.
fn port(port: &IntOrString, container: &Container) -> Result<u16, PortError> {
    let number = match port {
        IntOrString::Int(number) => *number,
        IntOrString::String(name) => {
            let mut ports = container.ports.iter().flatten();
            match ports.find(|port| port.name.as_ref() == Some(name)) {
                Some(port) => port.container_port,
                None => name.parse().map_err(|_| PortError::Unknown(name.clone()))?,
            }
        }
    };
    u16::try_from(number).ok().filter(|port| *port > 0).ok_or(PortError::Invalid(number))
}
