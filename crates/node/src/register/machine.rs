//! The machine that a node is on.

use std::fs;
use std::io;
use std::path::Path;

use crate::kernel_files::{memory_figure, task_limit};

/// Facts about the machine. Read once; all nodes of a process share them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// How many cpus it has.
    pub cpus: u32,
    /// Its memory in bytes.
    pub memory: u64,
    /// The size of the disk that pods use, in bytes; 0 if unknown.
    pub disk: u64,
    /// How many tasks (processes and threads) its kernel can have; 0 if unknown.
    pub pids: u64,
    /// The boot id.
    pub boot_id: String,
    /// Which installation it is.
    pub machine_id: String,
    /// The hardware's UUID; the machine id if that is unknown.
    pub system_uuid: String,
    /// Versions of the system, as text.
    pub os_image: String,
    /// The kernel's version.
    pub kernel_version: String,
}

impl Machine {
    /// Reads it from the files of the kernel and the installation, found below `root`.
    pub fn read(root: &Path) -> io::Result<Self> {
        let text = |path: &str| fs::read_to_string(root.join(path));
        let word =
            |path: &str| text(path).map(|text| text.trim().to_owned()).ok().filter(|text| !text.is_empty());
        let processors = text("proc/cpuinfo")?.lines().filter(|line| line.starts_with("processor")).count();
        let memory = memory_figure(&text("proc/meminfo")?, "MemTotal");
        let machine_id =
            word("etc/machine-id").or_else(|| word("var/lib/dbus/machine-id")).unwrap_or_default();
        let release = text("etc/os-release").or_else(|_| text("usr/lib/os-release")).unwrap_or_default();
        Ok(Self {
            cpus: u32::try_from(processors.max(1)).unwrap_or(u32::MAX),
            memory: memory.ok_or_else(|| io::Error::other("/proc/meminfo does not say MemTotal"))?,
            disk: 0,
            pids: task_limit(root).unwrap_or_default(),
            boot_id: word("proc/sys/kernel/random/boot_id").unwrap_or_default(),
            system_uuid: word("sys/class/dmi/id/product_uuid").unwrap_or_else(|| machine_id.clone()),
            machine_id,
            os_image: pretty_name(&release).unwrap_or_else(|| "Linux".to_owned()),
            kernel_version: word("proc/sys/kernel/osrelease").unwrap_or_default(),
        })
    }

    /// The same, with pods on the disk that a folder is on.
    pub fn with_disk_of(mut self, folder: &Path) -> io::Result<Self> {
        let disk = rustix::fs::statvfs(folder)?;
        self.disk = disk.f_blocks.saturating_mul(disk.f_frsize);
        Ok(self)
    }
}

fn pretty_name(release: &str) -> Option<String> {
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim().trim_matches(['"', '\'']).to_owned()).filter(|name| !name.is_empty())
}
