//! Which Kubernetes this crate obtains and starts.

/// The release that the Go module in `kubernetes/` pins.
pub const VERSION: &str = "v1.36.4";

/// The Go module that pins it: its `tool` lines are the programs, its `replace` lines the staging modules.
pub(crate) const GO_MOD: &str = include_str!("../kubernetes/go.mod");
/// The checksums of everything that module needs.
pub(crate) const GO_SUM: &str = include_str!("../kubernetes/go.sum");

/// The programs built from that module, in the order they are built: the first two are enough for
/// `--control-plane-only`, so they come first.
pub(crate) const PROGRAMS: [&str; 5] =
    ["kube-apiserver", "kubectl", "kube-controller-manager", "kube-scheduler", "kubelet"];

/// Linker flags that make the programs say [`VERSION`]: a plain build reports a development version, and
/// clients then refuse or warn about skew.
pub(crate) fn linker_flags() -> String {
    let (major, minor) = major_minor(VERSION);
    let mut flags = String::from("-s -w");
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        for (name, value) in [("gitVersion", VERSION), ("gitMajor", major), ("gitMinor", minor)] {
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
    fn the_module_pins_the_release_and_every_program() {
        assert!(GO_MOD.contains(&format!("k8s.io/kubernetes {VERSION}")));
        let staging = VERSION.replacen("v1.", "v0.", 1);
        assert!(GO_MOD.contains(&format!("k8s.io/kubelet => k8s.io/kubelet {staging}")));
        for program in PROGRAMS {
            assert!(GO_MOD.contains(&format!("\tk8s.io/kubernetes/cmd/{program}\n")), "{program}");
        }
        assert!(GO_SUM.contains(&format!("k8s.io/kubernetes {VERSION} h1:")));
    }

    #[test]
    fn the_linker_flags_carry_the_version_to_both_packages() {
        let flags = linker_flags();
        assert!(flags.contains("-X k8s.io/component-base/version.gitVersion=v1.36.4"));
        assert!(flags.contains("-X k8s.io/client-go/pkg/version.gitMinor=36"));
    }
}
