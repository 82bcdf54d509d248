//! Finds the programs a cluster is made of: in `KUBEBUILDER_ASSETS`, in the cache, or on the PATH.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::cache::Cache;
use crate::cluster::Parts;
use crate::error::Error;
use crate::release::Release;

/// Where distributions put CNI plugins.
const CNI_FOLDERS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];

/// The Debian packages that a cluster needs beside Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Package {
    Etcd,
    Containerd,
    Runc,
    CniPlugins,
    Busybox,
}

impl Package {
    pub(crate) const ALL: [Self; 5] =
        [Self::Etcd, Self::Busybox, Self::Runc, Self::CniPlugins, Self::Containerd];

    /// The package's name in Debian.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd-server",
            Self::Containerd => "containerd",
            Self::Runc => "runc",
            Self::CniPlugins => "containernetworking-plugins",
            Self::Busybox => "busybox-static",
        }
    }

    /// The programs of the package that the cluster runs.
    pub(crate) fn programs(self) -> &'static [&'static str] {
        match self {
            Self::Etcd => &["etcd"],
            Self::Containerd => &["containerd", "containerd-shim-runc-v2", "ctr"],
            Self::Runc => &["runc"],
            Self::CniPlugins => &["bridge"],
            Self::Busybox => &["busybox"],
        }
    }

    /// Whether this is the package of plugins and the machine has them in one of the usual folders.
    pub(crate) fn is_library_folder_present(self) -> bool {
        self == Self::CniPlugins && installed_cni_folder().is_some()
    }
}

/// The programs of a control plane, and those of a node if there is to be one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Assets {
    /// etcd.
    pub etcd: PathBuf,
    /// kube-apiserver.
    pub apiserver: PathBuf,
    /// kube-controller-manager; `None` for an API server alone.
    pub controller_manager: Option<PathBuf>,
    /// kubectl.
    pub kubectl: PathBuf,
    /// The programs of a node; `None` for a control plane alone.
    pub node: Option<NodeAssets>,
}

/// The programs of a node (and the scheduler, which has nothing to do without one).
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeAssets {
    /// kube-scheduler.
    pub scheduler: PathBuf,
    /// kubelet.
    pub kubelet: PathBuf,
    /// The programs of its container runtime.
    pub runtime: RuntimeAssets,
    /// metrics-server, if it is to run.
    pub metrics_server: Option<PathBuf>,
}

/// The programs of a container runtime.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RuntimeAssets {
    /// containerd.
    pub containerd: PathBuf,
    /// containerd's client, which imports images.
    pub ctr: PathBuf,
    /// The shim that containerd starts for each pod.
    pub shim: PathBuf,
    /// runc.
    pub runc: PathBuf,
    /// The folder of CNI plugins.
    pub cni: PathBuf,
    /// A static busybox: the content of the images, and the tool for links.
    pub busybox: PathBuf,
}

impl Assets {
    /// Finds the programs of the given parts; the error names a missing one. A folder that has only etcd,
    /// kube-apiserver and kubectl, as the ecosystem's tools fetch it, is enough for [`Parts::ApiServer`].
    pub fn find(cache: &Cache, release: Release, parts: Parts) -> Result<Self, Error> {
        let search = Search { cache, release, given: given_folder() };
        Ok(Self {
            etcd: search.packaged(Package::Etcd, "etcd")?,
            apiserver: search.kubernetes("kube-apiserver")?,
            controller_manager: match parts {
                Parts::ApiServer => None,
                Parts::ControlPlane | Parts::Cluster => Some(search.kubernetes("kube-controller-manager")?),
            },
            kubectl: search.kubernetes("kubectl")?,
            node: if parts == Parts::Cluster { Some(search.node()?) } else { None },
        })
    }
}

impl RuntimeAssets {
    /// Finds them; the error names a missing one.
    pub fn find(cache: &Cache) -> Result<Self, Error> {
        Search { cache, release: Release::default(), given: given_folder() }.runtime()
    }
}

/// What is started: a Kubernetes, or its container runtime alone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Programs {
    Kubernetes(Box<Assets>),
    Containerd(RuntimeAssets),
}

impl Programs {
    /// The container runtime, if there is to be one.
    pub(crate) fn runtime(&self) -> Option<&RuntimeAssets> {
        match self {
            Self::Kubernetes(assets) => assets.node.as_ref().map(|node| &node.runtime),
            Self::Containerd(runtime) => Some(runtime),
        }
    }
}

impl Assets {
    /// The version that kube-apiserver of `KUBEBUILDER_ASSETS` reports, if it differs from that of the release.
    pub(crate) fn other_version(&self, release: Release) -> Option<String> {
        given_folder()?;
        let output = Command::new(&self.apiserver).arg("--version").stdin(Stdio::null()).output().ok()?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        (version != format!("Kubernetes {}", release.version())).then_some(version)
    }
}

struct Search<'a> {
    cache: &'a Cache,
    release: Release,
    given: Option<PathBuf>,
}

impl Search<'_> {
    fn node(&self) -> Result<NodeAssets, Error> {
        Ok(NodeAssets {
            scheduler: self.kubernetes("kube-scheduler")?,
            kubelet: self.kubernetes("kubelet")?,
            runtime: self.runtime()?,
            metrics_server: None,
        })
    }

    fn runtime(&self) -> Result<RuntimeAssets, Error> {
        Ok(RuntimeAssets {
            containerd: self.packaged(Package::Containerd, "containerd")?,
            ctr: self.packaged(Package::Containerd, "ctr")?,
            shim: self.packaged(Package::Containerd, "containerd-shim-runc-v2")?,
            runc: self.packaged(Package::Runc, "runc")?,
            cni: self.cni()?,
            busybox: self.packaged(Package::Busybox, "busybox")?,
        })
    }

    /// Kubernetes' own programs must be of the pinned release, so the PATH is not searched.
    fn kubernetes(&self, program: &str) -> Result<PathBuf, Error> {
        kubernetes_program(self.cache, self.release, program)
    }

    fn packaged(&self, package: Package, program: &str) -> Result<PathBuf, Error> {
        let given = self.given.iter().filter(|_| package == Package::Etcd).cloned();
        let root = self.cache.debian().join(package.name()).join("root");
        let unpacked = ["usr/bin", "usr/sbin", "bin", "sbin"].map(|folder| root.join(folder));
        let folders: Vec<PathBuf> = given.chain(unpacked).collect();
        folders
            .iter()
            .map(|folder| folder.join(program))
            .find(|path| path.is_file())
            .or_else(|| on_path(program))
            .ok_or_else(|| missing(program, &[&root, Path::new("the PATH")]))
    }

    fn cni(&self) -> Result<PathBuf, Error> {
        let root = self.cache.debian().join(Package::CniPlugins.name()).join("root");
        let unpacked = root.join("usr/lib/cni");
        if unpacked.join("bridge").is_file() {
            return Ok(unpacked);
        }
        installed_cni_folder().ok_or_else(|| missing("the CNI plugin bridge", &[&unpacked]))
    }
}

/// One of Kubernetes' own programs.
pub(crate) fn kubernetes_program(cache: &Cache, release: Release, program: &str) -> Result<PathBuf, Error> {
    let folder = given_folder().unwrap_or_else(|| cache.programs(release));
    let path = folder.join(program);
    if path.is_file() { Ok(path) } else { Err(missing(program, &[&folder])) }
}

fn installed_cni_folder() -> Option<PathBuf> {
    CNI_FOLDERS.map(PathBuf::from).into_iter().find(|folder| folder.join("bridge").is_file())
}

fn missing(program: &str, places: &[&Path]) -> Error {
    let places: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    Error::Missing { program: program.to_owned(), places: places.join(", ") }
}

/// The folder that `KUBEBUILDER_ASSETS` names, if it is set.
pub(crate) fn given_folder() -> Option<PathBuf> {
    std::env::var_os("KUBEBUILDER_ASSETS").filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// The first program of that name on the PATH.
pub(crate) fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|candidate| candidate.is_file())
}
