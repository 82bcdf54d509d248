//! The hostname of a pod, and its `/etc/hosts`.

use std::fmt::Write as _;
use std::fs;
use std::net::IpAddr;

use crate::types::{NamespaceMode, SandboxConfig};

/// The hostname of a sandbox's containers. Not read back from their `/etc/hostname`, which they may write.
pub(crate) fn host_name(config: &SandboxConfig) -> String {
    if config.namespaces.network == NamespaceMode::Node {
        nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or_default()
    } else if config.hostname.is_empty() {
        config.meta.name.clone()
    } else {
        config.hostname.clone()
    }
}

/// The text of a pod's `/etc/hosts`: its address under its hostname, or the host's file without one, and its
/// `hostAliases`.
pub fn hosts_file(config: &SandboxConfig, address: Option<IpAddr>) -> String {
    let mut hosts = match address {
        None => {
            let own = fs::read_to_string("/etc/hosts").unwrap_or_default();
            format!("# Kubernetes-managed hosts file (host network).\n{own}")
        }
        Some(address) => {
            let mut hosts = String::from(
                "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n\
                 ::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\n\
                 fe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n",
            );
            let name = host_name(config);
            // The hostname may be the full name (`setHostnameAsFQDN`).
            let short = name.strip_suffix(&*config.domain).and_then(|name| name.strip_suffix('.'));
            let short = short.filter(|_| !config.domain.is_empty()).unwrap_or(&name);
            let _ = match &*config.domain {
                "" => writeln!(hosts, "{address}\t{short}"),
                domain => writeln!(hosts, "{address}\t{short}.{domain}\t{short}"),
            };
            hosts
        }
    };
    if !config.host_aliases.is_empty() {
        hosts.push_str("\n# Entries added by HostAliases.\n");
    }
    for (address, names) in &config.host_aliases {
        let _ = writeln!(hosts, "{address}\t{}", names.join("\t"));
    }
    hosts
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use plumb_resize::qos::QosClass;

    use super::*;
    use crate::types::PodMeta;

    #[test]
    fn a_pod_with_a_subdomain_has_its_full_name() {
        let meta = PodMeta { name: "web-0".to_owned(), ..PodMeta::default() };
        let config = |hostname: &str, domain: &str| {
            let config = SandboxConfig::new(meta.clone(), QosClass::BestEffort);
            SandboxConfig { hostname: hostname.to_owned(), domain: domain.to_owned(), ..config }
        };
        let domain = "db.shop.svc.cluster.local";
        for (config, line) in [
            (config("", ""), "10.0.0.1\tweb-0".to_owned()),
            (config("", domain), format!("10.0.0.1\tweb-0.{domain}\tweb-0")),
            (config("h", domain), format!("10.0.0.1\th.{domain}\th")),
            (config(&format!("h.{domain}"), domain), format!("10.0.0.1\th.{domain}\th")),
        ] {
            let hosts = hosts_file(&config, Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))));
            assert_eq!(hosts.lines().last(), Some(&*line));
        }
    }
}
