//! The DNS configuration of a pod.

use k8s_openapi::api::core::v1::{PodDNSConfig, PodSpec};
use plumb_runtime::types::Dns;

use super::on_host_network;

/// What a resolver takes at most.
const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;
const MAX_DOMAIN: usize = 253;

/// The cluster's own name service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterDns {
    /// Its addresses.
    pub servers: Vec<String>,
    /// The domain of all services, such as `cluster.local`.
    pub domain: String,
}

/// What a pod's `/etc/resolv.conf` is to say; `None` if it is what the machine's says.
pub(super) fn dns(
    spec: &PodSpec,
    namespace: &str,
    cluster: Option<&ClusterDns>,
    machine: &Dns,
) -> Option<Dns> {
    let of_cluster = match spec.dns_policy.as_deref() {
        Some("None") => return Some(fitting(added(Dns::default(), spec.dns_config.as_ref()))),
        Some("Default") => None,
        Some("ClusterFirstWithHostNet") => cluster,
        // Without a name service of its own a cluster uses the machine's.
        _ => cluster.filter(|_| !on_host_network(spec)),
    };
    let dns = if let Some(cluster) = of_cluster {
        Dns {
            servers: cluster.servers.clone(),
            searches: searches(cluster, namespace, &machine.searches),
            options: vec!["ndots:5".to_owned()],
        }
    } else {
        spec.dns_config.as_ref()?;
        machine.clone()
    };
    Some(fitting(added(dns, spec.dns_config.as_ref())))
}

fn searches(cluster: &ClusterDns, namespace: &str, machine: &[String]) -> Vec<String> {
    let domain = &cluster.domain;
    if domain.is_empty() {
        return machine.to_vec();
    }
    let own = [format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()];
    distinct(own.into_iter().chain(machine.iter().cloned()))
}

/// What the pod wants on top.
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

/// Sets an option, in the place of one of the same name.
fn set_option(options: &mut Vec<String>, written: &str) {
    let name = |option: &str| option.split(':').next().unwrap_or_default().to_owned();
    match options.iter_mut().find(|option| name(option) == name(written)) {
        Some(option) => written.clone_into(option),
        None => options.push(written.to_owned()),
    }
}

/// As much of it as a resolver takes.
fn fitting(mut dns: Dns) -> Dns {
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
    dns
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

/// What a file such as `/etc/resolv.conf` says.
pub fn resolv_conf(text: &str) -> Dns {
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

    fn looked_up(spec: Value, cluster: bool) -> Option<Dns> {
        let mut spec = spec;
        spec["containers"] = json!([]);
        let spec: PodSpec = serde_json::from_value(spec).unwrap();
        let service = ClusterDns { servers: vec!["10.96.0.10".into()], domain: "cluster.local".into() };
        let machine = resolv_conf(
            "nameserver 1.1.1.1\nsearch old.example\nsearch example.com. .\noptions ndots:1 rotate\n",
        );
        dns(&spec, "ns", cluster.then_some(&service), &machine)
    }

    fn lines(dns: &Dns) -> [String; 3] {
        [dns.servers.join(" "), dns.searches.join(" "), dns.options.join(" ")]
    }

    #[test]
    fn the_policy_says_where_to_begin() {
        let cluster =
            ["10.96.0.10", "ns.svc.cluster.local svc.cluster.local cluster.local example.com", "ndots:5"];
        let table = [
            (json!({}), true, Some(cluster)),
            (json!({ "dnsPolicy": "ClusterFirst" }), true, Some(cluster)),
            (json!({ "dnsPolicy": "ClusterFirst", "hostNetwork": true }), true, None),
            (json!({ "dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true }), true, Some(cluster)),
            (json!({ "dnsPolicy": "ClusterFirst" }), false, None),
            (json!({ "dnsPolicy": "Default" }), true, None),
            (
                json!({ "dnsPolicy": "None", "dnsConfig": { "nameservers": ["9.9.9.9"] } }),
                true,
                Some(["9.9.9.9", "", ""]),
            ),
        ];
        for (spec, service, expected) in table {
            let found = looked_up(spec.clone(), service);
            let expected = expected.map(|lines| lines.map(str::to_owned));
            assert_eq!(found.as_ref().map(lines), expected, "{spec}");
        }
    }

    #[test]
    fn what_the_pod_wants_comes_on_top() {
        let wanted = json!({ "dnsPolicy": "Default", "dnsConfig": {
            "nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3", "4.4.4.4"],
            "searches": ["example.com", "more.example"],
            "options": [{ "name": "ndots", "value": "3" }, { "name": "edns0" }],
        }});
        let found = looked_up(wanted, true).unwrap();
        assert_eq!(
            lines(&found),
            ["1.1.1.1 2.2.2.2 3.3.3.3", "example.com more.example", "ndots:3 rotate edns0"]
        );
    }

    #[test]
    fn no_more_than_a_resolver_takes() {
        let long = |number: usize| format!("{number}.{}", "d".repeat(200));
        let searches: Vec<String> = (0..40).map(long).chain(["x".repeat(300)]).collect();
        let wanted = json!({ "dnsPolicy": "None", "dnsConfig": { "searches": searches } });
        let found = looked_up(wanted, true).unwrap();
        assert_eq!(found.searches.len(), 10);
    }
}
