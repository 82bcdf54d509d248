//! Which sysctls a pod may set: the kubelet's safe ones, and those that `--allowed-unsafe-sysctls` names.
//!
//! A pod with another sysctl is rejected with the reason `SysctlForbidden`. The runtime refuses sysctls that are not
//! of the pod's own namespaces, whatever is allowed here.

use std::fmt;
use std::str::FromStr;

use k8s_openapi::api::core::v1::PodSpec;
use plumb_runtime::sysctl::{LONGEST_NAME, SysctlNamespace, normalized};

/// The reason in the status of a pod with a sysctl that is not allowed.
pub const FORBIDDEN: &str = "SysctlForbidden";

/// The sysctls that are always allowed, each with the minimal kernel version that the kubelet requires: they are
/// namespaced, so one pod cannot change them for another.
const SAFE: [(&str, Option<KernelVersion>); 12] = [
    ("kernel.shm_rmid_forced", None),
    ("net.ipv4.ip_local_port_range", None),
    ("net.ipv4.tcp_syncookies", None),
    ("net.ipv4.ping_group_range", None),
    ("net.ipv4.ip_unprivileged_port_start", None),
    ("net.ipv4.ip_local_reserved_ports", Some((3, 16))),
    ("net.ipv4.tcp_keepalive_time", Some((4, 5))),
    ("net.ipv4.tcp_fin_timeout", Some((4, 6))),
    ("net.ipv4.tcp_keepalive_intvl", Some((4, 5))),
    ("net.ipv4.tcp_keepalive_probes", Some((4, 5))),
    ("net.ipv4.tcp_rmem", Some((4, 15))),
    ("net.ipv4.tcp_wmem", Some((4, 15))),
];

/// Major and minor.
type KernelVersion = (u32, u32);

/// The value of `--allowed-unsafe-sysctls`: names, and prefixes that end with `*`, separated by commas. All of them are
/// known to be namespaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnsafeSysctls(Vec<Pattern>);

/// A name, or the beginning of several.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    /// With dots between its parts.
    name: String,
    is_prefix: bool,
    namespace: SysctlNamespace,
}

/// Why a sysctl cannot be allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// It is neither a name nor a prefix.
    #[error(
        "sysctl {0:?} must have at most {LONGEST_NAME} characters, of a-z, 0-9, - and _ in parts separated by . or /, with * only at its end"
    )]
    Invalid(String),
    /// It may be one of the whole machine.
    #[error("the sysctls {0:?} are not known to be namespaced")]
    NotNamespaced(String),
}

impl FromStr for UnsafeSysctls {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(Pattern::read).collect::<Result<_, _>>().map(Self)
    }
}

impl Pattern {
    fn read(text: &str) -> Result<Self, PatternError> {
        let invalid = || PatternError::Invalid(text.to_owned());
        let (body, is_prefix) = text.strip_suffix('*').map_or((text, false), |body| (body, true));
        // A prefix may end within a part, or after a separator: with one more letter it is a name.
        let name = if is_prefix { format!("{body}x") } else { body.to_owned() };
        let name = normalized(&name).filter(|_| !text.contains(char::is_uppercase)).ok_or_else(invalid)?;
        let name = if is_prefix { name[..name.len() - 1].to_owned() } else { name };
        let namespace = namespace_of(&name).ok_or_else(|| PatternError::NotNamespaced(text.to_owned()))?;
        Ok(Self { name, is_prefix, namespace })
    }

    fn covers(&self, name: &str) -> bool {
        if self.is_prefix { name.starts_with(&self.name) } else { name == self.name }
    }
}

/// The namespace of a sysctl, or of all that begin so; `None` if some of them may be the machine's.
fn namespace_of(name: &str) -> Option<SysctlNamespace> {
    const PREFIXES: [(&str, SysctlNamespace); 4] = [
        ("kernel.shm", SysctlNamespace::Ipc),
        ("kernel.msg", SysctlNamespace::Ipc),
        ("fs.mqueue.", SysctlNamespace::Ipc),
        ("net.", SysctlNamespace::Net),
    ];
    if name == "kernel.sem" {
        return Some(SysctlNamespace::Ipc);
    }
    PREFIXES.iter().find(|(prefix, _)| name.starts_with(prefix)).map(|(_, namespace)| *namespace)
}

/// Which sysctls pods of a node may set.
#[derive(Clone, Debug)]
pub struct Allowlist(Vec<Pattern>);

/// A pod has a sysctl that it may not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forbidden(String);

impl fmt::Display for Forbidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "forbidden sysctl: {}", self.0)
    }
}

impl Allowlist {
    /// Those of a node with this kernel, as `uname -r` prints its version.
    pub fn new(kernel: &str, allowed: UnsafeSysctls) -> Self {
        let kernel = version(kernel);
        if kernel.is_none() {
            tracing::warn!(
                "the kernel's version is not known; sysctls that need a certain one are not safe here"
            );
        }
        let is_here = |since: Option<KernelVersion>| {
            since.is_none_or(|since| kernel.is_some_and(|kernel| kernel >= since))
        };
        let safe = SAFE.iter().filter(|(_, since)| is_here(*since));
        let mut patterns: Vec<Pattern> = safe
            .filter_map(|(name, _)| {
                let namespace = namespace_of(name)?;
                Some(Pattern { name: (*name).to_owned(), is_prefix: false, namespace })
            })
            .collect();
        patterns.extend(allowed.0);
        // A name counts before a prefix that covers it.
        patterns.sort_by_key(|pattern| pattern.is_prefix);
        Self(patterns)
    }

    /// Whether all sysctls of a pod are allowed.
    pub fn admit(&self, spec: &PodSpec) -> Result<(), Forbidden> {
        let security = spec.security_context.as_ref();
        for sysctl in security.and_then(|security| security.sysctls.as_ref()).into_iter().flatten() {
            let name = normalized(&sysctl.name).unwrap_or_else(|| sysctl.name.clone());
            let Some(pattern) = self.0.iter().find(|pattern| pattern.covers(&name)) else {
                return Err(Forbidden(format!("{name:?} not allowlisted")));
            };
            let of_host = match pattern.namespace {
                SysctlNamespace::Ipc => spec.host_ipc,
                SysctlNamespace::Net => spec.host_network,
            };
            if of_host == Some(true) {
                let namespace = pattern.namespace.name();
                return Err(Forbidden(format!("{name:?} not allowed with host {namespace} enabled")));
            }
        }
        Ok(())
    }
}

/// The version of a kernel, as `6.1.0-18-amd64`.
fn version(text: &str) -> Option<KernelVersion> {
    let mut numbers = text.split(|char: char| !char.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn admit(allowlist: &Allowlist, name: &str, host: &str) -> Result<(), String> {
        let mut spec =
            json!({ "containers": [], "securityContext": { "sysctls": [{ "name": name, "value": "1" }] } });
        spec[host] = json!(true);
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        allowlist.admit(&spec).map_err(|forbidden| forbidden.to_string())
    }

    #[test]
    fn safe_sysctls_are_allowed_and_others_are_not() {
        let allowlist = Allowlist::new("6.1.0-18-amd64", UnsafeSysctls::default());
        for (name, _) in SAFE {
            assert_eq!(admit(&allowlist, name, "hostPID"), Ok(()), "{name}");
            assert_eq!(admit(&allowlist, &name.replace('.', "/"), "hostPID"), Ok(()), "{name}");
        }
        for name in ["kernel.core_pattern", "kernel/core_pattern"] {
            let expected = r#"forbidden sysctl: "kernel.core_pattern" not allowlisted"#;
            assert_eq!(admit(&allowlist, name, "hostPID"), Err(expected.to_owned()));
        }
        for name in ["net.core.somaxconn", "kernel.sem", "vm.swappiness", "net.ipv4.tcp_rmem.x"] {
            assert!(admit(&allowlist, name, "hostPID").is_err(), "{name}");
        }
    }

    #[test]
    fn a_sysctl_is_safe_from_the_kernel_on_that_keeps_it_per_namespace() {
        for (kernel, name, safe) in [
            ("3.10.0-957.el7", "net.ipv4.ip_local_reserved_ports", false),
            ("3.16.0", "net.ipv4.ip_local_reserved_ports", true),
            ("4.4.0", "net.ipv4.tcp_keepalive_time", false),
            ("4.5.0", "net.ipv4.tcp_keepalive_time", true),
            ("4.5.0", "net.ipv4.tcp_fin_timeout", false),
            ("4.6", "net.ipv4.tcp_fin_timeout", true),
            ("4.14.300", "net.ipv4.tcp_rmem", false),
            ("4.15.0", "net.ipv4.tcp_wmem", true),
            ("3.10.0", "net.ipv4.tcp_syncookies", true),
            ("nonsense", "net.ipv4.tcp_rmem", false),
            ("", "kernel.shm_rmid_forced", true),
        ] {
            let allowlist = Allowlist::new(kernel, UnsafeSysctls::default());
            assert_eq!(admit(&allowlist, name, "hostPID").is_ok(), safe, "{kernel} {name}");
        }
    }

    #[test]
    fn an_allowed_sysctl_is_rejected_in_a_namespace_of_the_host() {
        let allowed = "net.core.*,kernel/msg*".parse().unwrap();
        let allowlist = Allowlist::new("6.1", allowed);
        for (name, host, expected) in [
            ("net.core.somaxconn", "hostIPC", None),
            ("net.core.somaxconn", "hostNetwork", Some("net")),
            ("net.ipv4.tcp_syncookies", "hostNetwork", Some("net")),
            ("kernel.msgmax", "hostNetwork", None),
            ("kernel/msgmax", "hostIPC", Some("ipc")),
            ("kernel.shm_rmid_forced", "hostIPC", Some("ipc")),
        ] {
            let refused = expected.map(|namespace| {
                let name = name.replace('/', ".");
                format!("forbidden sysctl: {name:?} not allowed with host {namespace} enabled")
            });
            assert_eq!(admit(&allowlist, name, host).err(), refused, "{name} {host}");
        }
        assert!(admit(&allowlist, "net.ipv4.ip_forward", "hostPID").is_err());
    }

    #[test]
    fn only_namespaced_sysctls_can_be_allowed() {
        for text in [
            "",
            "kernel.shm*",
            "kernel.msgmax",
            "kernel.sem",
            "kernel.sem*",
            "fs.mqueue.*",
            "net.*, net/core/*",
        ] {
            assert!(text.parse::<UnsafeSysctls>().is_ok(), "{text}");
        }
        for text in [
            "*",
            "kernel.*",
            "kernel.core_pattern",
            "net*",
            "fs.*",
            "vm.swappiness",
            "net.*.x",
            "net..*",
            "net.A",
            "../x",
        ] {
            assert!(text.parse::<UnsafeSysctls>().is_err(), "{text}");
        }
    }
}
