//! Which records the names of a cluster have.

use std::net::Ipv4Addr;

use plumb_dns::{Answer, LookupName, RecordType, Zone};
use serde_json::json;

use crate::fixture::{SERVER, domain, service, services, slice, slices, zone};

const A: RecordType = RecordType::A;
const SRV: RecordType = RecordType::SRV;

/// The records of a name as text: one word each, sorted.
fn lookup(zone: &Zone, name: &str, record_type: RecordType) -> String {
    let mut words: Vec<String> = match zone.lookup(&LookupName::from_text(name).unwrap(), record_type) {
        Answer::Elsewhere => return "elsewhere".to_owned(),
        Answer::NotReady => return "not-ready".to_owned(),
        Answer::NameError(_) => return "no-name".to_owned(),
        Answer::NoData(_) => return "no-data".to_owned(),
        Answer::Version => return "version".to_owned(),
        Answer::Authority => return "authority".to_owned(),
        Answer::NameServer(address) => return format!("ns:{address}"),
        Answer::Alias(target) => return format!("alias:{target}"),
        Answer::Addresses(addresses) => addresses.iter().map(Ipv4Addr::to_string).collect(),
        Answer::Pointers(names) => names.iter().map(ToString::to_string).collect(),
        Answer::Services { records, .. } => {
            let host = |host: Option<&[u8]>| String::from_utf8_lossy(host.unwrap_or_default()).into_owned();
            records
                .iter()
                .map(|one| format!("{}:{}:{:?}", host(one.host.as_deref()), one.port, one.addresses))
                .collect()
        }
    };
    words.sort();
    words.join(" ")
}

#[test]
fn names_of_the_cluster_have_the_records_of_the_specification() {
    let zone = zone();
    let table = [
        // 2.2: the version.
        ("dns-version", RecordType::TXT, "version"),
        ("dns-version", A, "no-data"),
        // 2.3: Services with a cluster IP.
        ("web.shop.svc", A, "10.96.1.1"),
        ("WEB.Shop.SVC", A, "10.96.1.1"),
        ("web.shop.svc", RecordType::AAAA, "no-data"),
        ("web.shop.svc", RecordType::MX, "no-data"),
        ("web.shop.svc", SRV, ":80:[10.96.1.1] :9100:[10.96.1.1]"),
        ("_http._tcp.web.shop.svc", SRV, ":80:[10.96.1.1]"),
        ("_HTTP._TCP.web.shop.svc", SRV, ":80:[10.96.1.1]"),
        ("_metrics._udp.web.shop.svc", SRV, ":9100:[10.96.1.1]"),
        ("_http._tcp.web.shop.svc", A, "10.96.1.1"),
        ("_metrics._tcp.web.shop.svc", SRV, "no-name"),
        ("_tcp.web.shop.svc", SRV, "no-data"),
        ("_sctp.web.shop.svc", SRV, "no-name"),
        ("_tcp.unnamed.shop.svc", SRV, "no-name"),
        ("http.tcp.web.shop.svc", SRV, "no-name"),
        ("a._http._tcp.web.shop.svc", SRV, "no-name"),
        ("10-64-0-2.web.shop.svc", A, "10.64.0.2"),
        ("unknown.shop.svc", A, "no-name"),
        ("web.other.svc", A, "no-name"),
        // 2.4: headless Services. Endpoints that are not ready have no records, and without any there is no name.
        ("db.shop.svc", A, "10.64.0.10 10.64.0.12"),
        ("db.shop.svc", RecordType::AAAA, "no-data"),
        ("db-0.db.shop.svc", A, "10.64.0.10"),
        ("db-0.db.shop.svc", RecordType::AAAA, "no-data"),
        ("db-1.db.shop.svc", A, "no-name"),
        ("10-64-0-10.db.shop.svc", A, "no-name"),
        ("10-64-0-12.db.shop.svc", A, "10.64.0.12"),
        ("_http._tcp.db.shop.svc", SRV, "10-64-0-12:8080:[10.64.0.12] db-0:8080:[10.64.0.10]"),
        ("db-0.db.shop.svc", SRV, "db-0:7000:[10.64.0.10] db-0:8080:[10.64.0.10]"),
        ("_other._tcp.db.shop.svc", SRV, "no-name"),
        ("empty.shop.svc", A, "no-name"),
        ("portless.shop.svc", A, "10.64.0.30"),
        ("portless.shop.svc", SRV, "no-data"),
        ("one.portless.shop.svc", A, "10.64.0.30"),
        // 2.5: ExternalName. An address is no name.
        ("outside.shop.svc", A, "alias:www.example.com."),
        ("outside.shop.svc", RecordType::CNAME, "alias:www.example.com."),
        ("_http._tcp.outside.shop.svc", SRV, "no-name"),
        ("address.shop.svc", A, "no-name"),
        // 2.6: pods, whether they are there or not.
        ("10-1-2-3.shop.pod", A, "10.1.2.3"),
        ("10-1-2-3.nowhere.pod", A, "10.1.2.3"),
        ("10-1-2-3.shop.pod", RecordType::AAAA, "no-data"),
        ("10-1-2.shop.pod", A, "no-name"),
        ("10-1-2-256.shop.pod", A, "no-name"),
        ("a.10-1-2-3.shop.pod", A, "no-name"),
        // Names above others have no records, but they are there.
        ("svc", A, "no-data"),
        ("shop.svc", A, "no-data"),
        ("other.svc", A, "no-name"),
        ("pod", A, "no-data"),
        ("shop.pod", A, "no-data"),
        ("dns", A, "no-data"),
        ("ns.dns", A, "10.96.0.10"),
        ("x.dns", A, "no-name"),
        ("example", A, "no-name"),
    ];
    for (name, record_type, expected) in table {
        let name = format!("{name}.cluster.local");
        assert_eq!(lookup(&zone, &name, record_type), expected, "{name} {record_type:?}");
    }
    assert_eq!(lookup(&zone, "cluster.local", RecordType::SOA), "authority");
    assert_eq!(lookup(&zone, "cluster.local", RecordType::NS), format!("ns:{SERVER}"));
    assert_eq!(lookup(&zone, "cluster.local", A), "no-data");
    for other in ["example.com", "local", "xcluster.local", "."] {
        assert_eq!(lookup(&zone, other, A), "elsewhere", "{other}");
    }
}

#[test]
fn addresses_of_services_and_endpoints_have_names() {
    let zone = zone();
    let table = [
        ("1.1.96.10", "web.shop.svc.cluster.local."),
        ("10.0.64.10", "db-0.db.shop.svc.cluster.local."),
        ("12.0.64.10", "10-64-0-12.db.shop.svc.cluster.local."),
        // An endpoint that is not ready, and an unknown address: other servers may have a name of it.
        ("11.0.64.10", "elsewhere"),
        ("9.9.9.9", "elsewhere"),
        ("1.96.10", "elsewhere"),
        ("x.1.96.10", "elsewhere"),
    ];
    for (name, expected) in table {
        assert_eq!(lookup(&zone, &format!("{name}.in-addr.arpa"), RecordType::PTR), expected, "{name}");
    }
    assert_eq!(lookup(&zone, "1.1.96.10.in-addr.arpa", A), "no-data");
}

#[test]
fn names_of_the_cluster_are_unknown_until_all_objects_are_listed() {
    let mut zone = Zone::new(domain(), SERVER);
    let web = "web.shop.svc.cluster.local";
    assert_eq!(lookup(&zone, web, A), "not-ready");
    assert_eq!(lookup(&zone, "example.com", A), "elsewhere");
    zone.replace_slices(&slices());
    assert_eq!(lookup(&zone, web, A), "not-ready");
    zone.replace_services(&services());
    assert_eq!(lookup(&zone, web, A), "10.96.1.1");
    assert!(zone.has_synced());
}

#[test]
fn a_changed_object_is_visible_in_the_next_lookup() {
    let mut zone = zone();
    let web = "web.shop.svc.cluster.local";
    // Another cluster IP, as after the Service was deleted and created.
    zone.apply_service(&service(
        "shop",
        "web",
        json!({ "clusterIP": "10.96.7.7", "ports": [{ "port": 1 }] }),
    ));
    assert_eq!(lookup(&zone, web, A), "10.96.7.7");
    assert_eq!(lookup(&zone, "1.1.96.10.in-addr.arpa", RecordType::PTR), "elsewhere");
    assert_eq!(lookup(&zone, "7.7.96.10.in-addr.arpa", RecordType::PTR), format!("{web}."));
    // Headless instead.
    zone.apply_service(&service("shop", "web", json!({ "clusterIP": "None" })));
    assert_eq!(lookup(&zone, web, A), "10.64.0.2");
    zone.apply_slice(&slice(
        "shop",
        "web",
        "a",
        json!([]),
        json!([{ "addresses": ["10.64.0.3", "10.64.0.4"] }]),
    ));
    assert_eq!(lookup(&zone, web, A), "10.64.0.3 10.64.0.4");
    assert_eq!(lookup(&zone, "2.0.64.10.in-addr.arpa", RecordType::PTR), "elsewhere");
    // The slice of another Service by now.
    let mut moved = slice("shop", "web", "a", json!([]), json!([{ "addresses": ["10.64.0.3"] }]));
    moved.metadata.labels = Some([("kubernetes.io/service-name".to_owned(), "empty".to_owned())].into());
    zone.apply_slice(&moved);
    assert_eq!(lookup(&zone, web, A), "no-name");
    assert_eq!(lookup(&zone, "empty.shop.svc.cluster.local", A), "10.64.0.3");
    zone.delete_slice("shop", "web-a");
    assert_eq!(lookup(&zone, "empty.shop.svc.cluster.local", A), "no-name");
    zone.delete_service("shop", "web");
    assert_eq!(lookup(&zone, web, A), "no-name");
    zone.replace_services(&[]);
    assert_eq!(lookup(&zone, "shop.svc.cluster.local", A), "no-name");
    assert_eq!(lookup(&zone, "10.0.64.10.in-addr.arpa", RecordType::PTR), "elsewhere");
    zone.replace_services(&services());
    assert_eq!(lookup(&zone, "db.shop.svc.cluster.local", A), "10.64.0.10 10.64.0.12");
}

#[test]
fn an_address_of_two_slices_keeps_its_name_until_both_are_deleted() {
    let mut zone = zone();
    let pointer = |zone: &Zone| lookup(zone, "10.0.64.10.in-addr.arpa", RecordType::PTR);
    assert_eq!(pointer(&zone), "db-0.db.shop.svc.cluster.local.");
    zone.delete_slice("shop", "db-a");
    assert_eq!(pointer(&zone), "db-0.db.shop.svc.cluster.local.");
    zone.delete_slice("shop", "db-b");
    assert_eq!(pointer(&zone), "elsewhere");
}

#[test]
fn a_slice_may_arrive_before_its_service_and_slices_of_ipv6_are_ignored() {
    let mut zone = Zone::new(domain(), SERVER);
    zone.replace_services(&[]);
    zone.replace_slices(&[]);
    zone.apply_slice(&slice("a", "b", "x", json!([]), json!([{ "addresses": ["10.64.0.5"] }])));
    let mut six = slice("a", "b", "y", json!([]), json!([{ "addresses": ["fd00::5"] }]));
    six.address_type = "IPv6".to_owned();
    zone.apply_slice(&six);
    assert_eq!(lookup(&zone, "b.a.svc.cluster.local", A), "no-name");
    zone.apply_service(&service("a", "b", json!({ "clusterIP": "None" })));
    assert_eq!(lookup(&zone, "b.a.svc.cluster.local", A), "10.64.0.5");
}
