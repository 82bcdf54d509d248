//! What rules do to packets, on the loopback interface.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use plumb_nftables::{
    Batch, Chain, ChainKind, Element, Expression, Hook, Map, Register, Rejection, SetOptions, Verdict,
    VerdictMap, address_and_port, types,
};

use crate::{commit, on_own_machine};

const TIMEOUT: Duration = Duration::from_secs(10);
const R0: Register = Register(0);
const R1: Register = Register(1);
const R4: Register = Register(4);
const PORTS: VerdictMap = VerdictMap { name: "ports", key_type: types::PROTOCOL_AND_PORT, key_length: 8 };
const AFFINITY: Map = Map {
    name: "affinity",
    key_type: types::IPV4_ADDR,
    key_length: 4,
    value_type: types::ADDRESS_AND_PORT,
    value_length: 8,
};

fn key(protocol: u8, port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    vec![protocol, 0, 0, 0, high, low, 0, 0]
}

fn lookup() -> [Expression; 3] {
    [
        Expression::TransportProtocol(R0),
        Expression::DestinationPort(R1),
        Expression::LookupVerdict { map: PORTS.name.into(), key: R0 },
    ]
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

#[test]
fn a_rejected_port_is_refused_at_once_over_tcp_and_udp() {
    on_own_machine(|| {
        let output = Chain { name: "output", kind: ChainKind::Filter, hook: Hook::Output, priority: -110 };
        let mut batch = Batch::new("t");
        batch.add_table();
        batch.add_verdict_map(&PORTS);
        batch.add_chain(&output);
        batch.add_regular_chain("reset");
        batch.add_regular_chain("unreachable");
        batch.add_rule(&output, &lookup());
        batch.add_rule_to("reset", &[Expression::Reject(Rejection::PortUnreachable)]);
        batch.flush_chain("reset");
        let is_tcp = [Expression::TransportProtocol(R0), Expression::Equals(R0, vec![6])];
        batch.add_rule_to("reset", &[&is_tcp[..], &[Expression::Reject(Rejection::TcpReset)]].concat());
        batch.add_rule_to("unreachable", &[Expression::Reject(Rejection::PortUnreachable)]);
        let (reset, unreachable) = (Verdict::Goto("reset".into()), Verdict::Goto("unreachable".into()));
        let keys = [key(6, 80), key(6, 81), key(17, 80)];
        let verdicts = [&reset, &unreachable, &unreachable];
        batch.add_verdicts(&PORTS, keys.iter().map(Vec::as_slice).zip(verdicts));
        if !commit(batch) {
            return;
        }
        for port in [80, 81] {
            let _listener = TcpListener::bind(local(port)).unwrap();
            let refused = TcpStream::connect_timeout(&local(port), TIMEOUT).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{port}");
        }
        let client = UdpSocket::bind(local(0)).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        client.connect(local(80)).unwrap();
        // The kernel tells the sender of a packet of the machine itself that it was dropped (EPERM), and then why.
        client.send(b"x").unwrap_err();
        let error = client.recv(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    });
}

/// A port with affinity, whose connections go to the port of `endpoint`; a second rule keeps a client where it was.
fn affine(batch: &mut Batch, endpoint: u16) {
    batch.flush_chain("port");
    batch.add_rule_to(
        "port",
        &[
            Expression::SourceAddress(R4),
            Expression::Lookup { map: AFFINITY.name.into(), key: R4, value: R0 },
            Expression::TranslateDestination { address: R0, port: R1 },
        ],
    );
    let integer = Map { name: "", key_type: types::INTEGER, key_length: 4, ..AFFINITY };
    let value = address_and_port(Ipv4Addr::LOCALHOST, endpoint);
    let map = batch.add_anonymous_map(&integer, &[Element { key: vec![0; 4], value }]);
    batch.add_rule_to(
        "port",
        &[
            Expression::SourceAddress(R4),
            Expression::Random { register: R0, modulus: 1 },
            Expression::Lookup { map, key: R0, value: R0 },
            Expression::Remove { set: AFFINITY.name.into(), key: R4, value: Some(R0) },
            Expression::Update { set: AFFINITY.name.into(), key: R4, value: Some(R0), timeout: None },
            Expression::TranslateDestination { address: R0, port: R1 },
        ],
    );
}

#[test]
fn a_rule_remembers_where_a_client_was_sent() {
    on_own_machine(|| {
        let output = Chain { name: "output", kind: ChainKind::Nat, hook: Hook::Output, priority: -100 };
        let mut batch = Batch::new("t");
        batch.add_table();
        batch.add_verdict_map(&PORTS);
        let options = SetOptions {
            dynamic: true,
            timeout: Some(Duration::from_hours(1)),
            size: Some(16),
            ..SetOptions::default()
        };
        batch.add_map_with(&AFFINITY, &options);
        batch.add_chain(&output);
        batch.add_regular_chain("port");
        batch.add_rule(&output, &lookup());
        affine(&mut batch, 9001);
        batch.add_verdicts(&PORTS, [(key(6, 80).as_slice(), &Verdict::Goto("port".into()))]);
        if !commit(batch) {
            return;
        }
        let (first, second) =
            (TcpListener::bind(local(9001)).unwrap(), TcpListener::bind(local(9002)).unwrap());
        let connect = || TcpStream::connect_timeout(&local(80), TIMEOUT).unwrap();
        let _one = connect();
        first.accept().unwrap();
        let mut change = Batch::new("t");
        affine(&mut change, 9002);
        change.commit().unwrap();
        let _two = connect();
        first.accept().unwrap();
        let mut change = Batch::new("t");
        change.flush_set(AFFINITY.name);
        change.commit().unwrap();
        let _three = connect();
        second.accept().unwrap();
    });
}
