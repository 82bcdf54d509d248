//! The DNS configuration of a pod.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Pod, PodDNSConfig, PodSpec};
use plumb_runtime::types::Dns;

use super::{identity, on_host_network};

/// The limits of a resolver.
const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;
const MAX_DOMAIN: usize = 253;

/// The cluster's own name service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDns {
    /// Its addresses; none if the cluster has only a domain, as the kubelet without `clusterDNS`.
    pub servers: Vec<String>,
    /// The domain of all services, such as `cluster.local`.
    pub domain: String,
}

/// The `/etc/resolv.conf` of a pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodDns {
    /// The configuration.
    pub dns: Dns,
    /// The kubelet's messages about omitted entries: events with the reason `DNSConfigForming`.
    pub omitted: Vec<String>,
}

/// The `/etc/resolv.conf` of a pod. `host` is that of the host; `None` leaves pods that do not use the cluster's DNS
/// without any, as the kubelet does with an empty `--resolv-conf`.
pub fn pod_dns(pod: &Pod, cluster: Option<&ClusterDns>, host: Option<&Dns>) -> PodDns {
    let none = PodSpec::default();
    fitting(configured(pod.spec.as_ref().unwrap_or(&none), identity(pod).0, cluster, host))
}

fn configured(spec: &PodSpec, namespace: &str, cluster: Option<&ClusterDns>, host: Option<&Dns>) -> Dns {
    let cluster = cluster.filter(|cluster| !cluster.servers.is_empty());
    let of_cluster = match spec.dns_policy.as_deref() {
        Some("None") => return added(Dns::default(), spec.dns_config.as_ref()),
        Some("Default") => None,
        Some("ClusterFirstWithHostNet") => cluster,
        // A cluster without DNS uses that of the host.
        _ => cluster.filter(|_| !on_host_network(spec)),
    };
    let dns = if let Some(cluster) = of_cluster {
        Dns {
            servers: cluster.servers.clone(),
            searches: searches(cluster, namespace, host.map_or(&[], |host| &host.searches)),
            options: vec!["ndots:5".to_owned()],
        }
    } else {
        host.cloned().unwrap_or_else(|| Dns {
            servers: vec!["127.0.0.1".to_owned()],
            searches: vec![".".to_owned()],
            options: Vec::new(),
        })
    };
    added(dns, spec.dns_config.as_ref())
}

fn searches(cluster: &ClusterDns, namespace: &str, machine: &[String]) -> Vec<String> {
    let domain = &cluster.domain;
    if domain.is_empty() {
        return machine.to_vec();
    }
    let own = [format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()];
    distinct(own.into_iter().chain(machine.iter().cloned()))
}

/// Adds the pod's `dnsConfig`.
fn added(mut dns: Dns, config: Option<&PodDNSConfig>) -> Dns {
    let Some(config) = config else { return dns };
    dns.servers = distinct(dns.servers.into_iter().chain(config.nameservers.iter().flatten().cloned()));
    dns.searches = distinct(dns.searches.into_iter().chain(config.searches.iter().flatten().cloned()));
    for option in config.options.iter().flatten() {
        let name = option.name.as_deref().unwrap_or_default();
        let written = match option.value.as_deref() {
            Some(value) if !value.is_empty() => format!("{name}:{value}"),
            _ => name.to_owned(),
        };
        set_option(&mut dns.options, &written);
    }
    dns
}

/// Sets an option, instead of one of the same name.
fn set_option(options: &mut Vec<String>, written: &str) {
    let name = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
    match options.iter_mut().find(|option| name(option) == name(written)) {
        Some(option) => written.clone_into(option),
        None => options.push(written.to_owned()),
    }
}

/// As much of it as a resolver takes.
fn fitting(mut dns: Dns) -> PodDns {
    let (servers, searches) = (dns.servers.len(), dns.searches.len());
    dns.servers.truncate(MAX_SERVERS);
    dns.searches.truncate(MAX_SEARCHES);
    dns.searches.retain(|search| search.len() <= MAX_DOMAIN);
    let mut length = 0;
    let fits = dns.searches.iter().take_while(|search| {
        length += search.len() + usize::from(length > 0);
        length <= MAX_SEARCH_CHARS
    });
    let fits = fits.count();
    dns.searches.truncate(fits);
    let mut omitted = Vec::new();
    if dns.servers.len() < servers {
        omitted.push(format!(
            "Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: {}",
            dns.servers.join(" ")
        ));
    }
    if dns.searches.len() < searches {
        omitted.push(format!(
            "Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {}",
            dns.searches.join(" ")
        ));
    }
    PodDns { dns, omitted }
}

fn distinct(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut kept = Vec::new();
    for one in all {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept
}

/// The file that is the host's resolver configuration, below a root directory: `/etc/resolv.conf`, or where that names
/// only the stub of systemd-resolved, which pods do not reach, the file with the servers behind it. So does kubeadm.
pub fn usual_resolv_conf(root: &Path) -> PathBuf {
    let (usual, behind) = (root.join("etc/resolv.conf"), root.join("run/systemd/resolve/resolv.conf"));
    let dns = read_resolv_conf(&usual).unwrap_or_default();
    let is_loopback = |server: &String| server.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    let is_stub = !dns.servers.is_empty() && dns.servers.iter().all(is_loopback);
    if is_stub && behind.is_file() { behind } else { usual }
}

/// Reads a file such as `/etc/resolv.conf`; a missing file is empty.
pub fn read_resolv_conf(file: &Path) -> io::Result<Dns> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(resolv_conf(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Dns::default()),
        Err(error) => Err(error),
    }
}

/// Parses a file such as `/etc/resolv.conf`.
fn resolv_conf(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => dns.servers.extend(words.next().map(str::to_owned)),
            // The last one counts.
            Some("search") => {
                let domains = words.filter(|word| *word != ".");
                dns.searches = domains.map(|word| word.trim_end_matches('.').to_owned()).collect();
            }
            Some("options") => words.for_each(|word| set_option(&mut dns.options, word)),
            _ => {}
        }
    }
    dns
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn looked_up(spec: Value, cluster: bool) -> PodDns {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let pod = json!({ "metadata": { "namespace": "ns" }, "spec": spec });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let service = ClusterDns { servers: vec!["10.96.0.10".into()], domain: "cluster.local".into() };
        let machine = resolv_conf(
            "nameserver 1.1.1.1\nsearch old.example\nsearch example.com. .\noptions ndots:1 rotate\n",
        );
        pod_dns(&pod, cluster.then_some(&service), Some(&machine))
    }

    fn lines(dns: &Dns) -> [String; 3] {
        [dns.servers.join(" "), dns.searches.join(" "), dns.options.join(" ")]
    }

    #[test]
    fn the_dns_policy_selects_the_base_config() {
        let cluster =
            ["10.96.0.10", "ns.svc.cluster.local svc.cluster.local cluster.local example.com", "ndots:5"];
        let host = ["1.1.1.1", "example.com", "ndots:1 rotate"];
        let table = [
            (json!({}), true, cluster),
            (json!({ "dnsPolicy": "ClusterFirst" }), true, cluster),
            (json!({ "dnsPolicy": "ClusterFirst", "hostNetwork": true }), true, host),
            (json!({ "dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true }), true, cluster),
            (json!({ "dnsPolicy": "ClusterFirst" }), false, host),
            (json!({ "dnsPolicy": "Default" }), true, host),
            (
                json!({ "dnsPolicy": "None", "dnsConfig": { "nameservers": ["9.9.9.9"] } }),
                true,
                ["9.9.9.9", "", ""],
            ),
        ];
        for (spec, service, expected) in table {
            let found = looked_up(spec.clone(), service);
            assert_eq!(lines(&found.dns), expected.map(str::to_owned), "{spec}");
            assert_eq!(found.omitted, [""; 0], "{spec}");
        }
        // A domain alone is that of host names.
        let domain = ClusterDns { servers: Vec::new(), domain: "cluster.local".into() };
        let host = resolv_conf("nameserver 1.1.1.1\n");
        assert_eq!(lines(&pod_dns(&Pod::default(), Some(&domain), Some(&host)).dns), ["1.1.1.1", "", ""]);
        // The kubelet's empty --resolv-conf.
        let found = pod_dns(&Pod::default(), None, None).dns;
        assert_eq!(lines(&found), ["127.0.0.1", ".", ""]);
    }

    #[test]
    fn the_dns_config_of_the_pod_is_added_to_that_of_its_policy() {
        let wanted = json!({ "dnsPolicy": "Default", "dnsConfig": {
            "nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"],
            "searches": ["example.com", "more.example"],
            "options": [{ "name": "ndots", "value": "3" }, { "name": "edns0" }],
        }});
        let found = looked_up(wanted, true);
        assert_eq!(
            lines(&found.dns),
            ["1.1.1.1 2.2.2.2 3.3.3.3", "example.com more.example", "ndots:3 rotate edns0"]
        );
        let omitted = "Nameserver limits were exceeded, some nameservers have been omitted, \
                       the applied nameserver line is: 1.1.1.1 2.2.2.2 3.3.3.3";
        assert_eq!(found.omitted, [omitted]);
    }

    #[test]
    fn no_more_than_a_resolver_takes() {
        let long = |number: usize| format!("{number}.{}", "d".repeat(200));
        let searches: Vec<String> = (0..40).map(long).chain(["x".repeat(300)]).collect();
        let wanted = json!({ "dnsPolicy": "None", "dnsConfig": { "searches": searches } });
        let found = looked_up(wanted, true);
        assert_eq!(found.dns.searches.len(), 10);
        assert!(
            found.omitted.concat().starts_with("Search Line limits were exceeded, "),
            "{:?}",
            found.omitted
        );
    }

    #[test]
    fn the_stub_of_systemd_is_passed_over_for_the_servers_behind_it() {
        let root = tempfile::tempdir().unwrap();
        let (usual, behind) =
            (root.path().join("etc/resolv.conf"), root.path().join("run/systemd/resolve/resolv.conf"));
        for file in [&usual, &behind] {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        }
        assert_eq!(usual_resolv_conf(root.path()), usual);
        assert_eq!(read_resolv_conf(&usual).unwrap(), Dns::default());
        std::fs::write(&usual, "nameserver 127.0.0.53\noptions edns0\n").unwrap();
        assert_eq!(usual_resolv_conf(root.path()), usual);
        std::fs::write(&behind, "nameserver 192.0.2.1\n").unwrap();
        assert_eq!(usual_resolv_conf(root.path()), behind);
        std::fs::write(&usual, "nameserver 127.0.0.1\nnameserver 192.0.2.2\n").unwrap();
        assert_eq!(usual_resolv_conf(root.path()), usual);
    }
}
