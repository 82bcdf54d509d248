//! Creates and removes the shared parts of a pod's containers.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use jiff::Timestamp;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use parking_lot::Mutex;

use super::guard::GroupGuard;
use super::namespaces::{self, VethPair};
use super::network::Wire;
use super::source_guard::{PodAddresses, SourceGuard, hardware_address};
use super::state::{SandboxEntry, SandboxRecord, State};
use crate::error::{Error, Result};
use crate::hosts::{host_name, hosts_file};
use crate::shim::{StartReport, is_running, store};
use crate::sysctl;
use crate::types::{Dns, NamespaceMode, SandboxConfig, SandboxId, SandboxState};
use crate::untrusted::remove_tree;

pub(super) const RECORD: &str = "sandbox.json";
pub(super) const FOLDER: &str = "sandboxes";

impl State {
    /// Creates a sandbox. Blocks the thread for a few milliseconds.
    pub(super) fn make_sandbox(&self, config: SandboxConfig) -> Result<SandboxId> {
        let meta = &config.meta;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let now = Timestamp::now();
        let id =
            SandboxId::from(self.naming.id(&format!(
                "{}/{} {} {} {now} {number}",
                meta.namespace, meta.name, meta.uid, meta.attempt
            )));
        if meta.uid.is_empty() || meta.uid.contains(['/', '\0']) || meta.uid.starts_with('.') {
            return Err(Error::InvalidArgument(format!("the uid {:?} cannot name a folder", meta.uid)));
        }
        sysctl::check(&config.sysctls, config.namespaces)?;
        let folder = self.folder.join(FOLDER).join(id.as_str());
        let own_network = config.namespaces.network != NamespaceMode::Node;
        let group = self.tree.pod(config.class, &meta.uid);
        let record = SandboxRecord {
            id: id.clone(),
            created_at: now,
            address: None,
            hardware: None,
            routed: true,
            state: SandboxState::NotReady,
            complete: false,
            pause: None,
            config,
        };
        let entry = Arc::new(SandboxEntry {
            guard: GroupGuard::of(
                self.context(),
                &folder,
                &group,
                (id.clone(), None),
                self.two_notifications(),
                None,
                None,
            ),
            folder,
            group,
            record: Mutex::new(record),
            turn: tokio::sync::Mutex::default(),
        });
        {
            let mut pods = self.pods.lock();
            let meta = entry.record.lock().config.meta.clone();
            if let Some(there) = pods.sandboxes.values().find(|other| other.record.lock().config.meta == meta)
            {
                let id = there.record.lock().id.to_string();
                return Err(Error::AlreadyExists { what: "sandbox", id });
            }
            pods.sandboxes.insert(id.clone(), entry.clone());
        }
        let made = self.fill_sandbox(&entry, own_network);
        if let Err(error) = made {
            // The bridge may have been removed: the next pod checks again.
            *self.bridge.lock() = None;
            // Leftovers of a failure would block the next attempt.
            if let Err(also) = self.tear_down_sandbox(&entry) {
                tracing::warn!(sandbox = %id, error = %also, "what is left of a sandbox could not be removed");
            }
            self.pods.lock().sandboxes.remove(&id);
            return Err(error);
        }
        self.open_gate_for(&entry, false);
        Ok(id)
    }

    fn fill_sandbox(&self, entry: &SandboxEntry, own_network: bool) -> Result<()> {
        let doing = |what: &'static str| move |error: io::Error| Error::io(what, &error);
        fs::create_dir_all(&entry.folder).map_err(doing("making the sandbox's folder"))?;
        let mut record = entry.record.lock().clone();
        if own_network {
            let address = self.addresses.lock().take();
            record.address = Some(address.ok_or_else(|| {
                Error::failed("giving the pod an address", "all addresses of the node are in use")
            })?);
            record.hardware = record.address.map(hardware_address);
            entry.record.lock().address = record.address;
        }
        store(&entry.folder.join(RECORD), &record, false).map_err(doing("writing the sandbox's record"))?;
        entry.group.create()?;
        entry.group.set(&record.config.resources)?;

        let hostname = host_name(&record.config);
        let veth = match record.address {
            Some(address) => Some(self.veth(&record.id, address)?),
            None => None,
        };
        if let Some(VethPair { name, hardware, address, .. }) = &veth {
            self.source_guard.add(name, PodAddresses { hardware: *hardware, address: *address })?;
        }
        namespaces::make(&entry.folder, &record.config, &hostname, veth.as_ref())
            .map_err(doing("making the sandbox's namespaces"))?;
        if let Some(VethPair { name, .. }) = &veth {
            self.source_guard.add_ingress(name)?;
        }
        if let Some(address) = record.address {
            self.forward_ports(&record, address)?;
        }
        write_files(&entry.folder, &record, &hostname).map_err(doing("writing the sandbox's files"))?;
        if record.config.namespaces.pid == NamespaceMode::Pod {
            record.pause = Some(self.hold_processes(&entry.folder)?);
        }
        if let Some(logs) = &record.config.log_directory {
            fs::create_dir_all(logs).map_err(doing("making the folder for logs"))?;
        }
        record.state = SandboxState::Ready;
        record.complete = true;
        store(&entry.folder.join(RECORD), &record, false).map_err(doing("writing the sandbox's record"))?;
        *entry.record.lock() = record;
        Ok(())
    }

    /// Forwards the host ports of a sandbox to it.
    fn forward_ports(&self, record: &SandboxRecord, address: std::net::Ipv4Addr) -> Result<()> {
        if record.config.port_mappings.is_empty() {
            return Ok(());
        }
        self.nat.add(&record.config.port_mappings, address)
    }

    /// Starts the process that holds a process namespace for all containers.
    fn hold_processes(&self, folder: &Path) -> Result<(i32, u64)> {
        let output = self
            .shim
            .command()
            .arg("pause")
            .arg(folder)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .output()
            .map_err(|error| Error::io(format!("running {}", self.shim.path().display()), &error))?;
        match serde_json::from_slice(&output.stdout) {
            Ok(StartReport::Started { started, .. }) => Ok((started.pid, started.pid_start)),
            Ok(StartReport::Failed(why)) => Err(Error::failed("holding a process namespace", why)),
            Err(error) => Err(Error::failed("holding a process namespace", error)),
        }
    }

    /// Releases a sandbox's network and namespaces. Idempotent.
    pub(super) fn release(&self, entry: &SandboxEntry) -> Result<()> {
        let (id, address, pause, ports, meta) = {
            let record = entry.record.lock();
            let config = &record.config;
            let (ports, meta) = (config.port_mappings.clone(), config.meta.clone());
            (record.id.clone(), record.address, record.pause, ports, meta)
        };
        if let Some(pause) = pause.filter(|pause| is_running(*pause)) {
            let _ = kill(Pid::from_raw(pause.0), Signal::SIGKILL);
        }
        namespaces::unmount(&entry.folder)
            .map_err(|error| Error::io("unmounting the sandbox's namespaces", &error))?;
        if let Some(address) = address {
            self.nat.remove(&ports, address);
            if let Some(gate) = self.gate.get() {
                gate.stop(&meta, address);
            }
            remove_veth(self.naming.veth(id.as_str()), self.source_guard.clone());
            self.addresses.lock().release(address);
        }
        Ok(())
    }

    /// Removes all that a sandbox has on the machine.
    pub(super) fn tear_down_sandbox(&self, entry: &SandboxEntry) -> Result<()> {
        self.release(entry)?;
        entry.record.lock().address = None;
        // Another sandbox of the same pod has the same group; it is removed with the last one.
        let (id, uid) = {
            let record = entry.record.lock();
            (record.id.clone(), record.config.meta.uid.clone())
        };
        let shared = self.pods.lock().sandboxes.values().any(|other| {
            let other = other.record.lock();
            other.id != id && other.config.meta.uid == uid
        });
        if !shared {
            entry.group.delete()?;
        }
        remove_tree(&entry.folder)
            .map_err(|error| Error::io(format!("removing {}", entry.folder.display()), &error))
    }
}

/// The kernel takes its time to remove an interface, and this does not wait for it: the namespace of its peer is
/// released, and removes it unless a process still is in there.
fn remove_veth(veth: String, source_guard: Arc<SourceGuard>) {
    let remove = move || {
        if let Err(error) = Wire::open().and_then(|wire| wire.remove(&veth)) {
            tracing::warn!(%error, interface = veth, "a pod's interface could not be removed");
        }
        // A process that is left in the pod must not send before its interface is removed.
        source_guard.remove(&veth);
    };
    let thread = thread::Builder::new().name("veth".into()).stack_size(256 << 10);
    if let Err(error) = thread.spawn(remove) {
        tracing::warn!(%error, "a pod's interface is left to the kernel");
    }
}

/// `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf` of a pod.
fn write_files(folder: &Path, record: &SandboxRecord, hostname: &str) -> io::Result<()> {
    fs::write(folder.join("hostname"), format!("{hostname}\n"))?;
    fs::write(folder.join("hosts"), hosts_file(&record.config, record.address.map(IpAddr::V4)))?;
    let resolv = match &record.config.dns {
        Some(dns) => resolv_conf(dns),
        None => fs::read_to_string("/etc/resolv.conf").unwrap_or_default(),
    };
    fs::write(folder.join("resolv.conf"), resolv)
}

fn resolv_conf(dns: &Dns) -> String {
    let mut text = String::new();
    if !dns.searches.is_empty() {
        let _ = writeln!(text, "search {}", dns.searches.join(" "));
    }
    for server in &dns.servers {
        let _ = writeln!(text, "nameserver {server}");
    }
    if !dns.options.is_empty() {
        let _ = writeln!(text, "options {}", dns.options.join(" "));
    }
    text
}
