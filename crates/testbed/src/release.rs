//! Which Kubernetes, and what beside it, this crate obtains and starts.

use std::fmt::Write as _;
use std::path::PathBuf;

use clap::ValueEnum;

use crate::cache::Cache;
use crate::error::Error;

/// The release that tests run with: that of the Go module in `kubernetes/`.
pub const VERSION: &str = "v1.36.4";

/// The variable that names the release of a cluster for those tests that run on any release.
const VARIABLE: &str = "PLUMB_TESTBED_RELEASE";

/// A minor release of Kubernetes that a cluster can be of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Release {
    /// 1.33, the first in which pods are resized in place by default.
    #[value(name = "1.33")]
    V1_33,
    /// 1.34.
    #[value(name = "1.34")]
    V1_34,
    /// 1.35.
    #[value(name = "1.35")]
    V1_35,
    /// 1.36, which tests run with.
    #[default]
    #[value(name = "1.36")]
    V1_36,
}

impl Release {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::V1_33, Self::V1_34, Self::V1_35, Self::V1_36];

    /// The release that `PLUMB_TESTBED_RELEASE` names, such as `1.33`; the default if it names none.
    pub fn from_environment() -> Result<Self, Error> {
        let name = std::env::var(VARIABLE).unwrap_or_default();
        if name.is_empty() { Ok(Self::default()) } else { Self::named(&name) }
    }

    fn named(name: &str) -> Result<Self, Error> {
        Self::from_str(name, false).map_err(|_| Error::NoRelease { name: name.to_owned() })
    }

    /// The patch release that its Go module pins.
    pub const fn version(self) -> &'static str {
        match self {
            Self::V1_33 => "v1.33.13",
            Self::V1_34 => "v1.34.4",
            Self::V1_35 => "v1.35.4",
            Self::V1_36 => VERSION,
        }
    }

    /// The Go module that pins it: its `tool` lines are the programs, its `replace` lines the staging modules.
    pub(crate) const fn go_mod(self) -> &'static str {
        match self {
            Self::V1_33 => include_str!("../kubernetes/1.33/go.mod"),
            Self::V1_34 => include_str!("../kubernetes/1.34/go.mod"),
            Self::V1_35 => include_str!("../kubernetes/1.35/go.mod"),
            Self::V1_36 => include_str!("../kubernetes/go.mod"),
        }
    }

    /// The checksums of everything that module needs.
    pub(crate) const fn go_sum(self) -> &'static str {
        match self {
            Self::V1_33 => include_str!("../kubernetes/1.33/go.sum"),
            Self::V1_34 => include_str!("../kubernetes/1.34/go.sum"),
            Self::V1_35 => include_str!("../kubernetes/1.35/go.sum"),
            Self::V1_36 => include_str!("../kubernetes/go.sum"),
        }
    }

    /// The programs built from that module: metrics-server is built with one release and serves clusters of all.
    pub(crate) fn programs(self) -> &'static [(&'static str, &'static str)] {
        if self == Self::default() { &PROGRAMS } else { &PROGRAMS[..PROGRAMS.len() - 1] }
    }
}

/// The programs built from the Go module in `kubernetes/` and the package of each, in the order they are built: the first two
/// are enough for `--control-plane-only`, so they come first; metrics-server is the last.
pub(crate) const PROGRAMS: [(&str, &str); 6] = [
    ("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    ("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    ("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    ("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    ("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    (METRICS_SERVER, "sigs.k8s.io/metrics-server/cmd/metrics-server"),
];

/// The release of the Vertical Pod Autoscaler that the Go module in `autoscaler/` pins.
pub const AUTOSCALER_VERSION: &str = "1.8.1";

/// The programs of the Vertical Pod Autoscaler, each called as its image, and the package of each.
pub(crate) const AUTOSCALER_PROGRAMS: [(&str, &str); 3] = [
    ("vpa-recommender", "recommender"),
    ("vpa-updater", "updater"),
    ("vpa-admission-controller", "admission-controller"),
];

/// The module that they are in.
pub(crate) const AUTOSCALER_MODULE: &str = "k8s.io/autoscaler/vertical-pod-autoscaler";

/// The release of Helm that the Go module in `helm/` pins.
pub const HELM_VERSION: &str = "v3.22.0";

/// The name that Helm has in the cache.
pub(crate) const HELM: &str = "helm";

/// Upstream's end-to-end tests.
pub(crate) const E2E: &str = "e2e.test";

/// What the Go module in `e2e/` builds, and the package of each: the tests, and the programs of the images that they use.
pub(crate) const E2E_PROGRAMS: [(&str, &str); 4] = [
    ("agnhost", "k8s.io/kubernetes/test/images/agnhost"),
    ("nonewprivs", "k8s.io/kubernetes/test/images/nonewprivs"),
    ("sample-apiserver", "k8s.io/sample-apiserver"),
    (E2E, "k8s.io/kubernetes/test/e2e"),
];

/// The module that the tests are in.
pub(crate) const KUBERNETES_MODULE: &str = "k8s.io/kubernetes";

/// The release of metrics-server that the same module pins. Its `replace` lines are the versions that Kubernetes is built
/// from, whatever metrics-server asks for: nearly all of it is compiled for kube-apiserver already.
pub const METRICS_SERVER_VERSION: &str = "v0.9.0";

/// The name that metrics-server has in the cache.
pub(crate) const METRICS_SERVER: &str = "metrics-server";

/// A Go module, and what is built from it.
pub(crate) struct GoModule {
    /// What it is, for people.
    pub(crate) title: String,
    pub(crate) go_mod: &'static str,
    pub(crate) go_sum: &'static str,
    /// The folder that it is laid out in before it is built.
    pub(crate) module: PathBuf,
    /// The folder of the programs.
    pub(crate) programs: PathBuf,
    /// The programs, and the package of each.
    pub(crate) packages: Vec<(&'static str, String)>,
    pub(crate) linker_flags: String,
}

impl GoModule {
    /// Kubernetes.
    pub(crate) fn kubernetes(cache: &Cache, release: Release) -> Self {
        let package = |(program, package): &(&'static str, &str)| (*program, (*package).to_owned());
        Self {
            title: format!("Kubernetes {}", release.version()),
            go_mod: release.go_mod(),
            go_sum: release.go_sum(),
            module: cache.module(release),
            programs: cache.programs(release),
            packages: release.programs().iter().map(package).collect(),
            linker_flags: linker_flags(release.version()),
        }
    }

    /// Helm, for charts that ask for the Kubernetes that is started.
    pub(crate) fn helm(cache: &Cache) -> Self {
        let (major, minor) = major_minor(VERSION);
        let mut linker_flags = format!("-s -w -X helm.sh/helm/v3/internal/version.version={HELM_VERSION}");
        for package in ["helm.sh/helm/v3/pkg/lint/rules", "helm.sh/helm/v3/pkg/chartutil"] {
            for (name, value) in [("k8sVersionMajor", major), ("k8sVersionMinor", minor)] {
                // Writing to a string does not fail.
                let _ = write!(linker_flags, " -X {package}.{name}={value}");
            }
        }
        Self {
            title: format!("Helm {HELM_VERSION}"),
            go_mod: include_str!("../helm/go.mod"),
            go_sum: include_str!("../helm/go.sum"),
            module: cache.helm_folder().join("module"),
            programs: cache.helm_folder().join("bin"),
            packages: vec![(HELM, "helm.sh/helm/v3/cmd/helm".to_owned())],
            linker_flags,
        }
    }

    /// Upstream's end-to-end tests, and the programs of their images.
    pub(crate) fn e2e(cache: &Cache) -> Self {
        Self {
            title: format!("e2e.test {VERSION}"),
            go_mod: include_str!("../e2e/go.mod"),
            go_sum: include_str!("../e2e/go.sum"),
            module: cache.e2e_folder().join("module"),
            programs: cache.e2e_folder().join("bin"),
            packages: E2E_PROGRAMS.map(|(program, package)| (program, package.to_owned())).to_vec(),
            linker_flags: linker_flags(VERSION),
        }
    }

    /// The Vertical Pod Autoscaler.
    pub(crate) fn autoscaler(cache: &Cache) -> Self {
        let package = |(program, package): (&'static str, &str)| {
            (program, format!("{AUTOSCALER_MODULE}/pkg/{package}"))
        };
        Self {
            title: format!("Vertical Pod Autoscaler {AUTOSCALER_VERSION}"),
            go_mod: include_str!("../autoscaler/go.mod"),
            go_sum: include_str!("../autoscaler/go.sum"),
            module: cache.autoscaler().join("module"),
            programs: cache.autoscaler().join("bin"),
            packages: AUTOSCALER_PROGRAMS.map(package).to_vec(),
            linker_flags: "-s -w".to_owned(),
        }
    }
}

/// Linker flags that make the programs report their version: a plain build reports a development version, and
/// clients then refuse or warn about skew.
fn linker_flags(version: &str) -> String {
    let (major, minor) = major_minor(version);
    let mut flags = String::from("-s -w");
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (name, value) in [("gitVersion", version), ("gitMajor", major), ("gitMinor", minor)] {
            flags.push_str(" -X ");
            flags.push_str(package);
            flags.push('.');
            flags.push_str(name);
            flags.push('=');
            flags.push_str(value);
        }
    }
    flags
}

fn major_minor(version: &str) -> (&str, &str) {
    let mut parts = version.trim_start_matches('v').split('.');
    (parts.next().unwrap_or(""), parts.next().unwrap_or(""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_of_each_release_pins_it_and_every_program() {
        for release in Release::ALL {
            let (version, go_mod) = (release.version(), release.go_mod());
            assert!(go_mod.contains(&format!("k8s.io/kubernetes {version}")), "{version}");
            let staging = version.replacen("v1.", "v0.", 1);
            assert!(go_mod.contains(&format!("k8s.io/kubelet => k8s.io/kubelet {staging}\n")), "{version}");
            for (program, package) in release.programs() {
                assert!(go_mod.contains(&format!("\t{package}\n")), "{version}: {program}");
            }
            assert!(release.go_sum().contains(&format!("k8s.io/kubernetes {version} h1:")), "{version}");
        }
        let last = Release::default();
        assert_eq!(last.version(), VERSION);
        assert!(last.go_mod().contains(&format!("sigs.k8s.io/metrics-server {METRICS_SERVER_VERSION}")));
    }

    #[test]
    fn a_release_is_named_by_its_minor_version() {
        assert_eq!(Release::named("1.33").unwrap(), Release::V1_33);
        for name in ["v1.33", "1.33.13", "1.32"] {
            let error = Release::named(name).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("PLUMB_TESTBED_RELEASE is {name:?}, and not one of 1.33, 1.34, 1.35 and 1.36")
            );
        }
    }

    #[test]
    fn the_module_of_the_autoscaler_pins_its_release() {
        let module = GoModule::autoscaler(&Cache::at(PathBuf::new()));
        assert!(module.go_mod.contains(&format!("{AUTOSCALER_MODULE} v{AUTOSCALER_VERSION}")));
        assert!(module.go_sum.contains(&format!("{AUTOSCALER_MODULE} v{AUTOSCALER_VERSION} h1:")));
        for (program, package) in &module.packages {
            assert!(module.go_mod.contains(&format!("\t{package}\n")), "{program}");
        }
    }

    #[test]
    fn the_module_of_helm_pins_its_release() {
        let module = GoModule::helm(&Cache::at(PathBuf::new()));
        assert!(module.go_mod.contains(&format!("helm.sh/helm/v3 {HELM_VERSION}")));
        assert!(module.go_sum.contains(&format!("helm.sh/helm/v3 {HELM_VERSION} h1:")));
        assert!(module.go_mod.contains(&format!("tool {}\n", module.packages[0].1)));
        assert!(module.linker_flags.contains("chartutil.k8sVersionMinor=36"));
    }

    #[test]
    fn the_module_of_the_end_to_end_tests_pins_the_release_and_the_programs_of_images() {
        let module = GoModule::e2e(&Cache::at(PathBuf::new()));
        assert!(module.go_mod.contains(&format!("{KUBERNETES_MODULE} {VERSION}")));
        assert!(module.go_sum.contains(&format!("{KUBERNETES_MODULE} {VERSION} h1:")));
        for (program, package) in module.packages.iter().filter(|(program, _)| *program != E2E) {
            assert!(module.go_mod.contains(&format!("\t{package}\n")), "{program}");
        }
    }

    #[test]
    fn the_linker_flags_carry_the_version_to_both_packages() {
        let flags = linker_flags(VERSION);
        assert!(flags.contains("-X k8s.io/component-base/version.gitVersion=v1.36.4"));
        assert!(flags.contains("-X k8s.io/client-go/pkg/version.gitMinor=36"));
    }
}
