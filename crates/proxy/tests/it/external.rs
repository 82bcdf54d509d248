//! Connections to ports of the machine, and to addresses outside of the cluster.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4};

use serde_json::{Value, json};

use crate::cluster::{apply, deleted, endpoints, programmer, ready, service};
use crate::machine::{
    DROPPED, GATEWAY, Host, MACHINE, NEIGHBOUR, connect, connect_within, exchange, on_own_machine, udp_client,
};

const NODE_PORT: u16 = 30_080;

fn node_port(more: Value) -> Value {
    let mut spec = json!({ "type": "NodePort", "ports": [{ "port": 80, "nodePort": NODE_PORT }] });
    for (key, value) in more.as_object().unwrap() {
        spec[key] = value.clone();
    }
    spec
}

fn at(address: Ipv4Addr) -> SocketAddrV4 {
    SocketAddrV4::new(address, NODE_PORT)
}

fn is_dropped(client: &Host, to: SocketAddrV4) {
    let dropped = client.within(|| connect_within(to, DROPPED)).map(|(reply, _)| reply);
    assert_eq!(dropped.unwrap_err().kind(), ErrorKind::TimedOut);
}

#[test]
fn a_node_port_is_reached_from_everywhere() {
    on_own_machine(|| {
        let Some(mut proxy) = programmer() else { return };
        let [client, web] = [2, 3].map(Host::pod);
        let neighbour = Host::neighbour();
        web.serve_tcp(8080);
        let spec = node_port(json!({}));
        apply(&mut proxy, [service(1, spec.clone()), endpoints(1, "TCP", 8080, &[ready(web.address)])]);
        for (from, reply) in [
            ("outside", neighbour.connect(at(MACHINE))),
            ("a pod", client.connect(at(GATEWAY))),
            ("a pod, at the other address", client.connect(at(MACHINE))),
            ("itself", web.connect(at(GATEWAY))),
            ("the machine", connect(at(MACHINE))),
            ("localhost", connect(at(Ipv4Addr::LOCALHOST))),
            ("another address of localhost", connect(at(Ipv4Addr::new(127, 0, 0, 9)))),
        ] {
            // The policy `Cluster` masquerades.
            assert_eq!(
                reply.unwrap_or_else(|error| panic!("from {from}: {error}")).client,
                GATEWAY,
                "{from}"
            );
        }
        // Without endpoints it is refused, on localhost too.
        apply(&mut proxy, [endpoints(1, "TCP", 8080, &[])]);
        for refused in
            [neighbour.connect(at(MACHINE)), connect(at(MACHINE)), connect(at(Ipv4Addr::LOCALHOST))]
        {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        }
        // A port that is no Service's any more is the machine's.
        apply(&mut proxy, [deleted(1)]);
        let own = std::net::TcpListener::bind(at(MACHINE)).unwrap();
        neighbour.within(|| std::net::TcpStream::connect(at(MACHINE)).unwrap());
        own.accept().unwrap();
    });
}

#[test]
fn the_external_policy_local_keeps_the_address_of_the_client() {
    on_own_machine(|| {
        let Some(mut proxy) = programmer() else { return };
        let [client, here, there] = [2, 3, 4].map(Host::pod);
        let neighbour = Host::neighbour();
        here.serve_tcp(8080);
        there.serve_tcp(8080);
        let elsewhere = json!({ "addresses": [there.address.to_string()], "nodeName": "there" });
        let spec = node_port(json!({ "externalTrafficPolicy": "Local" }));
        let mixed = [ready(here.address), elsewhere.clone()];
        apply(&mut proxy, [service(1, spec), endpoints(1, "TCP", 8080, &mixed)]);
        for _ in 0..20 {
            let reply = neighbour.connect(at(MACHINE)).unwrap();
            assert_eq!((*reply.from.ip(), reply.client), (here.address, NEIGHBOUR));
        }
        // With none on this node, connections from outside are dropped; those of pods and the machine go to any endpoint.
        apply(&mut proxy, [endpoints(1, "TCP", 8080, std::slice::from_ref(&elsewhere))]);
        is_dropped(&neighbour, at(MACHINE));
        let reply = client.connect(at(MACHINE)).unwrap();
        assert_eq!((*reply.from.ip(), reply.client), (there.address, client.address));
        assert_eq!(*connect(at(Ipv4Addr::LOCALHOST)).unwrap().from.ip(), there.address);
        // With none at all they are refused.
        apply(&mut proxy, [endpoints(1, "TCP", 8080, &[])]);
        assert_eq!(neighbour.connect(at(MACHINE)).unwrap_err().kind(), ErrorKind::ConnectionRefused);
    });
}

#[test]
fn a_load_balancer_serves_the_clients_that_it_is_for() {
    on_own_machine(|| {
        let Some(mut proxy) = programmer() else { return };
        let web = Host::pod(2);
        let neighbour = Host::neighbour();
        web.serve_tcp(8080);
        let external = Ipv4Addr::new(203, 0, 113, 7);
        let spec = |ranges: &[&str], mode: &str| {
            node_port(json!({
                "type": "LoadBalancer",
                "externalIPs": ["203.0.113.8"],
                "loadBalancerSourceRanges": ranges,
                "status": { "loadBalancer": { "ingress": [{ "ip": external.to_string(), "ipMode": mode }] } }
            }))
        };
        let balancer = SocketAddrV4::new(external, 80);
        let web_at = endpoints(1, "TCP", 8080, &[ready(web.address)]);
        apply(&mut proxy, [service(1, spec(&["192.0.2.0/24", "10.0.0.0/8"], "VIP")), web_at]);
        neighbour.connect(balancer).unwrap();
        apply(&mut proxy, [service(1, spec(&["198.51.100.0/24"], "VIP"))]);
        is_dropped(&neighbour, balancer);
        // Its other addresses are for everyone.
        neighbour.connect(at(MACHINE)).unwrap();
        neighbour.connect(SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 8), 80)).unwrap();
        // An address of the mode Proxy is not the node's to serve.
        apply(&mut proxy, [service(1, spec(&[], "Proxy"))]);
        assert!(neighbour.within(|| connect_within(balancer, DROPPED)).is_err());
    });
}

#[test]
fn a_node_port_of_udp_answers_from_the_address_that_was_called() {
    on_own_machine(|| {
        let Some(mut proxy) = programmer() else { return };
        let [one, two] = [2, 3].map(Host::pod);
        let neighbour = Host::neighbour();
        one.serve_udp(5353);
        two.serve_udp(5353);
        let spec = json!({
            "type": "NodePort",
            "ports": [{ "port": 53, "nodePort": NODE_PORT, "protocol": "UDP" }]
        });
        apply(&mut proxy, [service(1, spec), endpoints(1, "UDP", 5353, &[ready(one.address)])]);
        let socket = neighbour.within(|| udp_client(at(MACHINE)));
        assert_eq!(*exchange(&socket).unwrap().from.ip(), one.address);
        apply(&mut proxy, [endpoints(1, "UDP", 5353, &[ready(two.address)])]);
        assert_eq!(*exchange(&socket).unwrap().from.ip(), two.address);
        let local = udp_client(at(Ipv4Addr::LOCALHOST));
        assert_eq!(*exchange(&local).unwrap().from.ip(), two.address);
    });
}
