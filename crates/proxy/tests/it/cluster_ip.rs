//! Connections to the addresses of Services within the cluster.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};

use serde_json::json;

use crate::cluster::{apply, deleted, endpoints, programmer, ready, service, vip};
use crate::machine::{
    GATEWAY, Host, Reply, TIMEOUT, connect, connect_within, exchange, on_own_machine, udp_client,
};

fn at(pod: &Host, port: u16) -> SocketAddrV4 {
    SocketAddrV4::new(pod.address, port)
}

/// The endpoints that answer so many connections.
fn answers(client: &Host, to: SocketAddrV4, connections: usize) -> BTreeSet<SocketAddrV4> {
    (0..connections).map(|_| client.connect(to).unwrap().from).collect()
}

#[test]
fn a_pod_reaches_every_endpoint_with_its_own_address() {
    on_own_machine(|| {
        let Some(mut proxy) = programmer() else { return };
        let [client, one, two] = [2, 3, 4].map(Host::pod);
        one.serve_tcp(8080);
        two.serve_tcp(8080);
        let both = [ready(one.address), ready(two.address)];
        apply(&mut proxy, [service(1, json!({})), endpoints(1, "TCP", 8080, &both)]);
        let reply = client.connect(vip(1, 80)).unwrap();
        assert_eq!(reply.client, client.address);
        // That one of two is never chosen has a probability of 2^-63.
        assert_eq!(answers(&client, vip(1, 80), 64), [at(&one, 8080), at(&two, 8080)].into());
        // The machine reaches it without a default route.
        assert_eq!(connect(vip(1, 80)).unwrap().client, GATEWAY);
    });
}

#[test]
fn an_address_or_port_that_no_service_has_is_refused_at_once() {
    on_own_machine(|| {
        let Some(mut proxy) = programmer() else { return };
        let pod = Host::pod(2);
        pod.serve_tcp(8080);
        let is_refused = |to: SocketAddrV4| {
            for refused in [pod.connect(to), connect(to)] {
                assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused, "{to}");
            }
            let refused = pod.within(|| exchange(&udp_client(to))).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{to}");
        };
        is_refused(vip(1, 80));
        apply(&mut proxy, [service(1, json!({})), endpoints(1, "TCP", 8080, &[ready(pod.address)])]);
        pod.connect(vip(1, 80)).unwrap();
        is_refused(vip(1, 81));
        apply(&mut proxy, [deleted(1)]);
        is_refused(vip(1, 80));
        // What the machine serves there itself is reached.
        crate::machine::ip(&format!("addr add {}/32 dev lo", vip(9, 80).ip()));
        let own = std::net::TcpListener::bind(vip(9, 80)).unwrap();
        for client in [
            pod.within(|| TcpStream::connect_timeout(&vip(9, 80).into(), TIMEOUT)),
            TcpStream::connect(vip(9, 80)),
        ] {
            client.unwrap();
            own.accept().unwrap();
        }
    });
}

#[test]
fn a_pod_reaches_itself_by_its_service() {
    on_own_machine(|| {
        let Some(mut proxy) = programmer() else { return };
        let pod = Host::pod(2);
        pod.serve_tcp(8080);
        apply(&mut proxy, [service(1, json!({})), endpoints(1, "TCP", 8080, &[ready(pod.address)])]);
        let reply = pod.connect(vip(1, 80)).unwrap();
        assert_eq!(reply, Reply { from: at(&pod, 8080), client: GATEWAY });
    });
}

#[test]
fn a_service_without_endpoints_is_refused_at_once() {
    on_own_machine(|| {
        let Some(mut proxy) = programmer() else { return };
        let client = Host::pod(2);
        let udp = json!({ "ports": [{ "port": 53, "protocol": "UDP" }] });
        apply(&mut proxy, [service(1, json!({})), service(2, udp)]);
        for refused in [client.connect(vip(1, 80)), connect(vip(1, 80))] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
        let refused = client.within(|| exchange(&udp_client(vip(2, 53)))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        // It is served as soon as it has one.
        client.serve_tcp(8080);
        apply(&mut proxy, [endpoints(1, "TCP", 8080, &[ready(client.address)])]);
        client.connect(vip(1, 80)).unwrap();
        apply(&mut proxy, [endpoints(1, "TCP", 8080, &[])]);
        assert_eq!(client.connect(vip(1, 80)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_client_stays_with_its_endpoint_while_that_is_there() {
    on_own_machine(|| {
        let Some(mut proxy) = programmer() else { return };
        let [client, one, two, three] = [2, 3, 4, 5].map(Host::pod);
        for pod in [&one, &two, &three] {
            pod.serve_tcp(8080);
        }
        let affinity = json!({
            "sessionAffinity": "ClientIP",
            "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 3600 } }
        });
        let of = |pods: &[&Host]| {
            let ready: Vec<_> = pods.iter().map(|pod| ready(pod.address)).collect();
            endpoints(1, "TCP", 8080, &ready)
        };
        apply(&mut proxy, [service(1, affinity), of(&[&one, &two, &three])]);
        let first = answers(&client, vip(1, 80), 40);
        assert_eq!(first.len(), 1, "{first:?}");
        // Another client may have another one, and a changed list of endpoints keeps this one's.
        let others: Vec<&Host> =
            [&one, &two, &three].into_iter().filter(|pod| !first.contains(&at(pod, 8080))).collect();
        let chosen = [&one, &two, &three].into_iter().find(|pod| first.contains(&at(pod, 8080))).unwrap();
        apply(&mut proxy, [of(&[chosen, others[0]])]);
        assert_eq!(answers(&client, vip(1, 80), 40), first);
        // When its endpoint is gone it gets another, and stays there after the first is back.
        apply(&mut proxy, [of(&others)]);
        let second = answers(&client, vip(1, 80), 40);
        assert_eq!(second.len(), 1, "{second:?}");
        assert_ne!(second, first);
        apply(&mut proxy, [of(&[&one, &two, &three])]);
        assert_eq!(answers(&client, vip(1, 80), 40), second);
        // Without affinity it goes to all of them again: 2^-40 of one alone.
        apply(&mut proxy, [service(1, json!({}))]);
        assert!(answers(&client, vip(1, 80), 64).len() > 1);
    });
}

#[test]
fn connections_survive_changes_of_other_services_and_of_the_own_one() {
    on_own_machine(|| {
        let Some(mut proxy) = programmer() else { return };
        let [client, one, two] = [2, 3, 4].map(Host::pod);
        one.serve_tcp(8080);
        two.serve_tcp(8080);
        apply(&mut proxy, [service(1, json!({})), endpoints(1, "TCP", 8080, &[ready(one.address)])]);
        let (reply, mut stream) = client.within(|| connect_within(vip(1, 80), TIMEOUT)).unwrap();
        assert_eq!(reply.from, at(&one, 8080));
        let mut is_alive = || {
            stream.write_all(b"?").unwrap();
            let mut buffer = [0; 11];
            stream.read_exact(&mut buffer).unwrap();
            assert_eq!(&buffer, b"still here\n");
        };
        apply(&mut proxy, [service(2, json!({})), endpoints(2, "TCP", 8080, &[ready(two.address)])]);
        is_alive();
        apply(&mut proxy, [endpoints(1, "TCP", 8080, &[ready(two.address)])]);
        is_alive();
        assert_eq!(client.connect(vip(1, 80)).unwrap().from, at(&two, 8080));
        // Another agent starts, and replaces the table.
        drop(proxy);
        let Some(mut proxy) = programmer() else { return };
        apply(&mut proxy, [service(1, json!({})), endpoints(1, "TCP", 8080, &[ready(two.address)])]);
        is_alive();
    });
}

#[test]
fn a_udp_client_leaves_an_endpoint_that_is_gone() {
    on_own_machine(|| {
        let Some(mut proxy) = programmer() else { return };
        let [client, one, two] = [2, 3, 4].map(Host::pod);
        one.serve_udp(5353);
        two.serve_udp(5353);
        let udp = json!({ "ports": [{ "port": 53, "protocol": "UDP" }] });
        apply(&mut proxy, [service(1, udp), endpoints(1, "UDP", 5353, &[ready(one.address)])]);
        let socket = client.within(|| udp_client(vip(1, 53)));
        assert_eq!(exchange(&socket).unwrap(), Reply { from: at(&one, 5353), client: client.address });
        // While its endpoint is there, it stays.
        let both = [ready(one.address), ready(two.address)];
        apply(&mut proxy, [endpoints(1, "UDP", 5353, &both)]);
        assert_eq!(exchange(&socket).unwrap().from, at(&one, 5353));
        apply(&mut proxy, [endpoints(1, "UDP", 5353, &[ready(two.address)])]);
        assert_eq!(exchange(&socket).unwrap().from, at(&two, 5353));
    });
}

#[test]
fn the_internal_policy_local_uses_endpoints_of_the_node_alone() {
    on_own_machine(|| {
        let Some(mut proxy) = programmer() else { return };
        let [client, one, two] = [2, 3, 4].map(Host::pod);
        one.serve_tcp(8080);
        two.serve_tcp(8080);
        let elsewhere =
            |address: Ipv4Addr| json!({ "addresses": [address.to_string()], "nodeName": "there" });
        let local = json!({ "internalTrafficPolicy": "Local" });
        let mixed = [ready(one.address), elsewhere(two.address)];
        apply(&mut proxy, [service(1, local), endpoints(1, "TCP", 8080, &mixed)]);
        assert_eq!(answers(&client, vip(1, 80), 40), [at(&one, 8080)].into());
        // Elsewhere there is one: it is dropped, as kube-proxy does, and not refused.
        apply(&mut proxy, [endpoints(1, "TCP", 8080, &[elsewhere(two.address)])]);
        let dropped = client.within(|| connect_within(vip(1, 80), crate::machine::DROPPED)).map(drop);
        assert_eq!(dropped.unwrap_err().kind(), ErrorKind::TimedOut);
    });
}
