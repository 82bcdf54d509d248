//! The kernel accepts what the crate encodes: an attribute of a wrong kind or length is refused.

use std::net::Ipv4Addr;
use std::time::Duration;

use plumb_nftables::{
    Batch, CONNECTION_NEW, Chain, ChainKind, Direction, Element, Expression, Family, Hook, Interval, Map,
    Register, Rejection, Set, SetOptions, Verdict, VerdictMap, address_and_port, has_table, has_table_of,
    types,
};

use crate::{commit, on_own_machine};

const R0: Register = Register(0);
const R1: Register = Register(1);
const R2: Register = Register(2);
const R4: Register = Register(4);
const SERVICES: VerdictMap =
    VerdictMap { name: "services", key_type: types::PROTOCOL_ADDRESS_AND_PORT, key_length: 12 };
const AFFINITY: Map = Map {
    name: "affinity/default/web",
    key_type: types::IPV4_ADDR,
    key_length: 4,
    value_type: types::ADDRESS_AND_PORT,
    value_length: 8,
};

fn nat(name: &str, hook: Hook) -> Chain<'_> {
    Chain { name, kind: ChainKind::Nat, hook, priority: -100 }
}

fn filter(name: &str, hook: Hook) -> Chain<'_> {
    Chain { name, kind: ChainKind::Filter, hook, priority: -110 }
}

fn key(port: u16) -> Vec<u8> {
    [&[6, 0, 0, 0][..], &address_and_port(Ipv4Addr::new(10, 96, 0, 7), port)].concat()
}

/// A table in which a Service has two endpoints and session affinity.
fn service_table() -> Batch {
    let prerouting = nat("prerouting", Hook::Prerouting);
    let mut batch = Batch::new("t");
    batch.remove_table();
    batch.add_table();
    batch.add_verdict_map(&SERVICES);
    batch.add_chain(&prerouting);
    batch.add_chain(&nat("output", Hook::Output));
    let lookup = [
        Expression::TransportProtocol(R0),
        Expression::DestinationAddress(R1),
        Expression::DestinationPort(R2),
        Expression::LookupVerdict { map: SERVICES.name.into(), key: R0 },
    ];
    batch.add_rule(&prerouting, &lookup);
    batch.add_rule_to("output", &lookup);
    batch.add_regular_chain("service/default/web");
    let options = SetOptions {
        dynamic: true,
        timeout: Some(Duration::from_hours(3)),
        size: Some(65_536),
        ..SetOptions::default()
    };
    batch.add_map_with(&AFFINITY, &options);
    let integer = Map { name: "", key_type: types::INTEGER, key_length: 4, ..AFFINITY };
    let elements: Vec<Element> = (0..2_u32)
        .map(|index| Element {
            key: index.to_ne_bytes().to_vec(),
            value: address_and_port(Ipv4Addr::new(10, 64, 0, 2), 8080),
        })
        .collect();
    let endpoints = batch.add_anonymous_map(&integer, &elements);
    batch.add_rule_to(
        "service/default/web",
        &[
            Expression::SourceAddress(R4),
            Expression::Random { register: R0, modulus: 2 },
            Expression::Lookup { map: endpoints, key: R0, value: R0 },
            Expression::Remove { set: AFFINITY.name.into(), key: R4, value: Some(R0) },
            Expression::Update {
                set: AFFINITY.name.into(),
                key: R4,
                value: Some(R0),
                timeout: Some(Duration::from_secs(10)),
            },
            Expression::TranslateDestination { address: R0, port: R1 },
        ],
    );
    let goto = Verdict::Goto("service/default/web".into());
    batch.add_verdicts(&SERVICES, [(key(80).as_slice(), &goto)]);
    batch
}

#[test]
fn a_verdict_map_sends_packets_to_a_chain_with_a_random_endpoint() {
    on_own_machine(|| {
        if !commit(service_table()) {
            return;
        }
        assert!(has_table("t").unwrap());
        // A chain is not deleted while an element refers to it, and no part of the batch is applied then.
        let mut refused = Batch::new("t");
        refused.add_regular_chain("other");
        refused.delete_chain("service/default/web");
        let error = refused.commit().unwrap_err().to_string();
        assert!(error.starts_with("nf_tables: delete the chain service/default/web: "), "{error}");
        let mut change = Batch::new("t");
        change.flush_chain("service/default/web");
        change.delete_verdicts(&SERVICES, [key(80).as_slice()]);
        change.delete_chain("service/default/web");
        change.delete_set(AFFINITY.name);
        change.flush_set(SERVICES.name);
        change.commit().unwrap();
        // As an anonymous map is deleted with its rule, nothing is in the way of the table.
        let mut remove = Batch::new("t");
        remove.remove_table();
        remove.commit().unwrap();
        assert!(!has_table("t").unwrap());
    });
}

#[test]
fn a_batch_of_many_elements_is_applied_as_one() {
    on_own_machine(|| {
        let mut batch = service_table();
        let goto = Verdict::Goto("service/default/web".into());
        let keys: Vec<Vec<u8>> = (1000..60_000).map(key).collect();
        batch.add_verdicts(&SERVICES, keys.iter().map(|key| (key.as_slice(), &goto)));
        if !commit(batch) {
            return;
        }
        let mut again = Batch::new("t");
        again.delete_verdicts(&SERVICES, keys.iter().map(Vec::as_slice));
        again.commit().unwrap();
        // They are deleted: a second deletion fails.
        let mut twice = Batch::new("t");
        twice.delete_verdicts(&SERVICES, keys.iter().map(Vec::as_slice));
        twice.commit().unwrap_err();
    });
}

#[test]
fn every_expression_is_accepted_where_it_belongs() {
    on_own_machine(|| {
        let forward = filter("forward", Hook::Forward);
        let prerouting = filter("filter-prerouting", Hook::Prerouting);
        let mut batch = Batch::new("t");
        batch.add_table();
        for chain in [prerouting, filter("input", Hook::Input), forward, filter("output", Hook::Output)] {
            batch.add_chain(&chain);
        }
        batch.add_chain(&nat("postrouting", Hook::Postrouting));
        batch.add_regular_chain("reject");
        batch.add_regular_chain("later");
        let is_tcp = [Expression::TransportProtocol(R0), Expression::Equals(R0, vec![6])];
        batch.add_rule_to("reject", &[&is_tcp[..], &[Expression::Reject(Rejection::TcpReset)]].concat());
        batch.add_rule_to("reject", &[Expression::Reject(Rejection::PortUnreachable)]);
        batch.add_rule_to("later", &[Expression::Verdict(Verdict::Return)]);
        let new = [
            Expression::ConnectionState(R0),
            Expression::Mask(R0, CONNECTION_NEW.to_ne_bytes()),
            Expression::Differs(R0, vec![0; 4]),
        ];
        for verdict in [Verdict::Jump("later".into()), Verdict::Goto("reject".into())] {
            let rule = [&new[..], &[Expression::Verdict(verdict)]].concat();
            batch.add_rule(&prerouting, &rule);
            batch.add_rule(&forward, &rule);
        }
        batch.add_rule(
            &forward,
            &[
                Expression::NetworkFamily(R0),
                Expression::Equals(R0, vec![2]),
                Expression::ConnectionDirection(R0),
                Expression::Equals(R0, vec![Direction::Original as u8]),
                Expression::ConnectionSource(R0, Direction::Original),
                Expression::ConnectionDestination(R1, Direction::Original),
                Expression::ConnectionDestinationPort(R2, Direction::Original),
                Expression::InRange(R2, vec![0, 80], vec![0, 90]),
                Expression::ConnectionMark(R0),
                Expression::MaskAndXor(R0, (!0x4000_u32).to_ne_bytes(), 0x4000_u32.to_ne_bytes()),
                Expression::SetConnectionMark(R0),
                Expression::PacketMark(R0),
                Expression::SetPacketMark(R0),
                Expression::SourcePort(R0),
                Expression::SourceAddress(R0),
                Expression::Hash { source: R0, length: 8, register: R4, modulus: 16, seed: 1 },
                Expression::Equals(R4, 3_u32.to_ne_bytes().to_vec()),
                Expression::Verdict(Verdict::Accept),
            ],
        );
        batch.add_rule_to("postrouting", &[Expression::Masquerade]);
        commit(batch);
    });
}

#[test]
fn sets_of_intervals_are_changed_by_whole_intervals() {
    on_own_machine(|| {
        let networks = Set { name: "networks", key_type: types::IPV4_ADDR, key_length: 4 };
        let pairs = Set { name: "pairs", key_type: types::PROTOCOL_ADDRESS_AND_PORT, key_length: 12 };
        let verdicts = VerdictMap { name: "verdicts", ..SERVICES };
        let concatenated = || SetOptions { intervals: true, fields: vec![1, 4, 2], ..SetOptions::default() };
        let ports = Interval { first: key(1000), last: key(2000) };
        let mut batch = Batch::for_family(Family::Inet, "t");
        batch.add_table();
        batch.add_set_with(&networks, &SetOptions { intervals: true, ..SetOptions::default() });
        batch.add_set_with(&pairs, &concatenated());
        batch.add_verdict_map_with(&verdicts, &concatenated());
        let network = |third, prefix| Interval::for_network(Ipv4Addr::new(10, 1, third, 0), prefix);
        batch.add_intervals(&networks, &[network(0, 24), network(1, 24), network(4, 22), network(5, 24)]);
        batch.add_concatenated_intervals(&pairs, std::slice::from_ref(&ports));
        batch.add_interval_verdicts(&verdicts, [(&ports, &Verdict::Drop)]);
        let forward = filter("forward", Hook::Forward);
        batch.add_chain(&forward);
        let anonymous = batch.add_anonymous_intervals(&networks, &[network(0, 8), network(0, 24)]);
        batch.add_rule(
            &forward,
            &[
                Expression::NetworkFamily(R0),
                Expression::Equals(R0, vec![2]),
                Expression::SourceAddress(R0),
                Expression::NotContained { set: anonymous, key: R0 },
                Expression::Contained { set: networks.name.to_owned().into(), key: R0 },
                Expression::TransportProtocol(R0),
                Expression::DestinationAddress(R1),
                Expression::DestinationPort(R2),
                Expression::Contained { set: "pairs".into(), key: R0 },
                Expression::LookupVerdict { map: "verdicts".into(), key: R0 },
            ],
        );
        if !commit(batch) {
            return;
        }
        assert!(has_table_of(Family::Inet, "t").unwrap());
        let mut change = Batch::for_family(Family::Inet, "t");
        change.delete_intervals(&networks, &[network(4, 22)]);
        change.delete_concatenated_intervals(&pairs, std::slice::from_ref(&ports));
        change.commit().unwrap();
    });
}
