//! A node whose containers run in a runtime with a CRI socket.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use plumb_cri::{CgroupDriver, Config, Cri};
use plumb_node::register::NodeHealth;
use plumb_runtime::Runtime;
use plumb_runtime::builtin::cgroup_of;
use plumb_runtime::cgroup::Layout;
use plumb_runtime::image::Load;
use plumb_runtime::service_nat::ServiceNat;
use plumb_runtime::types::{RuntimeStatus, SandboxFilter};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::data_dir::CRI;
use crate::flags::{CriFlags, DriverKind};

/// The interval and the timeout of health checks of the runtime.
const ASK: Duration = Duration::from_secs(2);
const ANSWER: Duration = Duration::from_secs(10);

/// Where the pods of a data directory run.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Endpoint {
    endpoint: String,
    /// The cgroup driver of a runtime that does not say which it has.
    #[serde(default)]
    cgroup_driver: DriverKind,
}

fn endpoint_file(data: &Path) -> PathBuf {
    data.join(CRI).join("endpoint.json")
}

/// Connects to the runtime of a data directory's pods.
pub(super) async fn open(data: &Path, flags: &CriFlags) -> anyhow::Result<Cri> {
    let endpoint = &flags.container_runtime_endpoint;
    let config = Config {
        image_endpoint: flags.image_service_endpoint.clone(),
        request_timeout: flags.runtime_request_timeout,
        ..config(data, endpoint, flags.cgroup_driver)?
    };
    let folder = data.join(CRI);
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let opened = Cri::open(config, plumb_supervise::process()).await;
    let runtime = opened.map_err(|error| unopened(error, endpoint))?;
    // Before the first pod runs, so that `plumb down` finds it.
    let file = endpoint_file(data);
    let record = Endpoint { endpoint: endpoint.clone(), cgroup_driver: flags.cgroup_driver };
    let record = serde_json::to_vec(&record)?;
    fs::write(&file, record).with_context(|| format!("writing {}", file.display()))?;
    let load = Load::of_this_program().context("making the image plumb/load")?;
    match runtime.import_load(&load).await {
        Ok(true) => {}
        Ok(false) => {
            tracing::warn!(image = load.name, "the container runtime imports no images, it only pulls them");
        }
        Err(error) => tracing::warn!(%error, image = load.name, "cannot import an image"),
    }
    Ok(runtime)
}

/// Why the runtime at a socket cannot be used. The error of one that cannot be reached names the socket already.
fn unopened(error: plumb_runtime::Error, endpoint: &str) -> anyhow::Error {
    match error {
        plumb_runtime::Error::Unavailable(message) => {
            anyhow::anyhow!("{message}; does containerd run? --container-runtime-endpoint names its socket")
        }
        other => {
            anyhow::Error::new(other).context(format!("connecting to the container runtime at {endpoint}"))
        }
    }
}

fn config(data: &Path, endpoint: &str, driver: DriverKind) -> anyhow::Result<Config> {
    Ok(Config {
        endpoint: endpoint.to_owned(),
        image_endpoint: None,
        cluster: cgroup_of(data).context("finding the data directory")?,
        folder: data.join(CRI),
        cgroups: Layout::detect().context("finding the cgroups of this machine")?,
        cgroup_driver: match driver {
            DriverKind::Cgroupfs => CgroupDriver::Cgroupfs,
            DriverKind::Systemd => CgroupDriver::Systemd,
        },
        request_timeout: plumb_cri::REQUEST_TIMEOUT,
    })
}

/// Removes the pods of a data directory from the runtime that they were run in, if there is one, and returns how many
/// there were.
pub(crate) async fn remove(data: &Path) -> anyhow::Result<usize> {
    let file = endpoint_file(data);
    let record = match fs::read(&file) {
        Ok(record) => record,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(error).with_context(|| format!("reading {}", file.display())),
    };
    let Endpoint { endpoint, cgroup_driver } =
        serde_json::from_slice(&record).with_context(|| format!("reading {}", file.display()))?;
    let opened = Cri::open(config(data, &endpoint, cgroup_driver)?, plumb_supervise::process()).await;
    let runtime = opened.map_err(|error| unopened(error, &endpoint))?;
    let pods = runtime.list_sandboxes(&SandboxFilter::default()).await;
    let pods = pods.with_context(|| format!("listing the pods at {endpoint}"))?.len();
    runtime.clear().await.with_context(|| format!("removing the pods at {endpoint}"))?;
    ServiceNat::clear(data).context("removing the rules by which pods reached the API server")?;
    super::service_proxy::remove(data)?;
    // Its directory is that of the files of pods, which may be gone with them.
    match fs::remove_file(&file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", file.display()))
        }
        _ => Ok(pods),
    }
}

/// Reports whether the runtime can run pods, in the kubelet's words.
pub(super) async fn watch_health(runtime: Arc<Cri>, health: Arc<watch::Sender<NodeHealth>>) {
    let mut tick = interval(ASK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let not_ready = match timeout(ANSWER, runtime.status()).await {
            Ok(Ok(status)) => unready(&status),
            Ok(Err(error)) => Some(format!("container runtime is down: {error}")),
            Err(_) => Some(format!("container runtime is down: no response in {ANSWER:?}")),
        };
        health.send_if_modified(|health| {
            let changed = health.not_ready != not_ready;
            if changed {
                if let Some(why) = &not_ready {
                    tracing::warn!(why, "the node is not ready");
                } else {
                    tracing::info!("the node is ready");
                }
                health.not_ready = not_ready;
            }
            changed
        });
    }
}

/// Why a runtime cannot run pods, if it cannot.
fn unready(status: &RuntimeStatus) -> Option<String> {
    let table = [
        ("container runtime not ready", "RuntimeReady", &status.ready),
        ("container runtime network not ready", "NetworkReady", &status.network_ready),
    ];
    let reasons: Vec<String> = table
        .into_iter()
        .filter(|(_, _, condition)| !condition.ok)
        .map(|(what, name, condition)| {
            format!("{what}: {name}=false reason:{} message:{}", condition.reason, condition.message)
        })
        .collect();
    match reasons.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use plumb_runtime::types::Condition;

    use super::*;

    #[test]
    fn a_record_from_before_there_was_a_driver_is_one_of_cgroupfs() {
        let read = |text| serde_json::from_str::<Endpoint>(text).unwrap().cgroup_driver;
        assert_eq!(read(r#"{"endpoint":"unix:///a"}"#), DriverKind::Cgroupfs);
        assert_eq!(read(r#"{"endpoint":"unix:///a","cgroupDriver":"systemd"}"#), DriverKind::Systemd);
    }

    #[test]
    fn the_reason_is_in_the_kubelets_words() {
        let status = |ready, network_ready| RuntimeStatus { ready, network_ready, has_events: false };
        let network = Condition::failed("NetworkPluginNotReady", "cni plugin not initialized");
        assert_eq!(unready(&status(Condition::ok(), Condition::ok())), None);
        let one = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady \
            message:cni plugin not initialized";
        assert_eq!(unready(&status(Condition::ok(), network.clone())).as_deref(), Some(one));
        let down = Condition::failed("Down", "it is");
        let both =
            format!("[container runtime not ready: RuntimeReady=false reason:Down message:it is, {one}]");
        assert_eq!(unready(&status(down, network)), Some(both));
    }
}
