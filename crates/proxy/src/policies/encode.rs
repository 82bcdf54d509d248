//! A table, and changes of it, as transactions of the kernel.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use plumb_nftables::{
    Batch, CONNECTION_INVALID, CONNECTION_UNTRACKED, Chain as BaseChain, ChainKind,
    Direction as PacketDirection, Expression, Hook, Interval, Register, Set, SetOptions, Verdict, VerdictMap,
    types,
};

use super::table::{
    Allow, Chain, Change, Direction, Element, SELF, SetContent, SetKey, Table, Touched, changes,
};

const INGRESS_PODS: VerdictMap<'static> =
    VerdictMap { name: "ingress-pods", key_type: types::IPV4_ADDR, key_length: 4 };
const EGRESS_PODS: VerdictMap<'static> =
    VerdictMap { name: "egress-pods", key_type: types::IPV4_ADDR, key_length: 4 };

/// Destinations are translated before.
const FORWARD_EGRESS: BaseChain<'static> =
    BaseChain { name: "forward-egress", kind: ChainKind::Filter, hook: Hook::Forward, priority: 0 };
/// Chains of their own: what one accepts the other has yet to accept.
const FORWARD_INGRESS: BaseChain<'static> =
    BaseChain { name: "forward-ingress", kind: ChainKind::Filter, hook: Hook::Forward, priority: 1 };
const INPUT_EGRESS: BaseChain<'static> =
    BaseChain { name: "input-egress", kind: ChainKind::Filter, hook: Hook::Input, priority: 0 };

const FIRST: Register = Register(0);
const SECOND: Register = Register(1);
const THIRD: Register = Register(2);
const ACCEPT: Expression = Expression::Verdict(Verdict::Accept);

/// Replaces the kernel's table, whatever it is.
pub fn replacement(name: &str, table: &Table) -> Batch {
    let mut batch = Batch::new(name);
    batch.remove_table();
    batch.add_table();
    for map in [INGRESS_PODS, EGRESS_PODS] {
        batch.add_verdict_map(&map);
    }
    for change in &changes(table, &Table::default(), &Touched::all(table)) {
        encode(&mut batch, change);
    }
    for (chain, direction) in [
        (FORWARD_EGRESS, Direction::Egress),
        (FORWARD_INGRESS, Direction::Ingress),
        (INPUT_EGRESS, Direction::Egress),
    ] {
        batch.add_chain(&chain);
        for rule in base_rules(direction) {
            batch.add_rule(&chain, &rule);
        }
    }
    batch
}

/// Removes the kernel's table.
pub fn removal(name: &str) -> Batch {
    let mut batch = Batch::new(name);
    batch.remove_table();
    batch
}

/// Changes the kernel's table.
pub fn update(name: &str, changes: &[Change]) -> Batch {
    let mut batch = Batch::new(name);
    for change in changes {
        encode(&mut batch, change);
    }
    batch
}

fn encode(batch: &mut Batch, change: &Change) {
    match change {
        Change::AddSet(SetContent { key, elements }) => {
            let name = key.name();
            batch.add_set_with(&set(key, &name), &options(key));
            let elements: Vec<_> = elements.iter().copied().collect();
            change_elements(batch, key, &elements, true);
        }
        Change::AddElements(key, elements) => change_elements(batch, key, elements, true),
        Change::DeleteElements(key, elements) => change_elements(batch, key, elements, false),
        Change::AddChain(chain) => {
            let name = chain.name();
            batch.add_regular_chain(&name);
            for allow in &chain.allows {
                batch.add_rule_to(&name, &rule(chain, allow));
            }
            batch.add_rule_to(&name, &[Expression::Verdict(Verdict::Drop)]);
        }
        Change::SetPods { direction, removed, added } => {
            let map = pods(*direction);
            let removed: Vec<_> = removed.iter().map(Ipv4Addr::octets).collect();
            batch.delete_verdicts(&map, removed.iter().map(<[u8; 4]>::as_slice));
            let added: Vec<_> = added
                .iter()
                .map(|(address, chain)| (address.octets(), Verdict::Goto(Cow::Owned(chain.clone()))))
                .collect();
            batch.add_verdicts(&map, added.iter().map(|(address, verdict)| (address.as_slice(), verdict)));
        }
        Change::DeleteChain(name) => batch.delete_chain(name),
        Change::DeleteSet(name) => batch.delete_set(name),
    }
}

fn pods(direction: Direction) -> VerdictMap<'static> {
    match direction {
        Direction::Ingress => INGRESS_PODS,
        Direction::Egress => EGRESS_PODS,
    }
}

/// The rules of a base chain.
fn base_rules(direction: Direction) -> [Vec<Expression>; 3] {
    let pods = || Expression::LookupVerdict { map: pods(direction).name.into(), key: FIRST };
    let to_itself = vec![
        connection_source(FIRST),
        connection_destination(SECOND),
        Expression::Contained { set: SELF.into(), key: FIRST },
        ACCEPT,
    ];
    let of_pods = match direction {
        Direction::Ingress => vec![connection_destination(FIRST), pods()],
        Direction::Egress => vec![connection_source(FIRST), pods()],
    };
    // In the chains no rule matches these, and the last one drops them.
    let without_connection = vec![
        Expression::ConnectionState(FIRST),
        Expression::Mask(FIRST, (CONNECTION_INVALID | CONNECTION_UNTRACKED).to_ne_bytes()),
        Expression::Differs(FIRST, vec![0; 4]),
        match direction {
            Direction::Ingress => Expression::DestinationAddress(FIRST),
            Direction::Egress => Expression::SourceAddress(FIRST),
        },
        pods(),
    ];
    [to_itself, of_pods, without_connection]
}

/// The address that has begun the connection.
fn connection_source(register: Register) -> Expression {
    Expression::ConnectionSource(register, PacketDirection::Original)
}

/// The address that the connection is to, after translations: answers come from it.
fn connection_destination(register: Register) -> Expression {
    Expression::ConnectionSource(register, PacketDirection::Reply)
}

fn rule(chain: &Chain, allow: &Allow) -> Vec<Expression> {
    let (peers, ports) = allow.sets();
    let mut rule = Vec::new();
    if let Some(peers) = peers {
        rule.push(match chain.direction {
            Direction::Ingress => connection_source(FIRST),
            Direction::Egress => connection_destination(FIRST),
        });
        rule.push(Expression::Contained { set: peers.name().into(), key: FIRST });
    }
    if let Some(ports) = ports {
        let port = |register| Expression::ConnectionSourcePort(register, PacketDirection::Reply);
        if matches!(ports, SetKey::Named(_)) {
            rule.extend([connection_destination(FIRST), Expression::ConnectionProtocol(SECOND), port(THIRD)]);
        } else {
            rule.extend([Expression::ConnectionProtocol(FIRST), port(SECOND)]);
        }
        rule.push(Expression::Contained { set: ports.name().into(), key: FIRST });
    }
    rule.push(ACCEPT);
    rule
}

fn set<'a>(key: &SetKey, name: &'a str) -> Set<'a> {
    let (key_type, key_length) = match key {
        SetKey::Selves => ((types::IPV4_ADDR << 6) | types::IPV4_ADDR, 8),
        SetKey::Pods(_) | SetKey::Blocks(_) => (types::IPV4_ADDR, 4),
        SetKey::Ports(_) => (types::PROTOCOL_AND_PORT, 8),
        SetKey::Named(_) => ((types::IPV4_ADDR << 12) | (types::INET_PROTO << 6) | types::INET_SERVICE, 12),
    };
    Set { name, key_type, key_length }
}

fn options(key: &SetKey) -> SetOptions {
    match key {
        SetKey::Selves | SetKey::Pods(_) | SetKey::Named(_) => SetOptions::default(),
        SetKey::Blocks(_) => SetOptions { intervals: true, ..SetOptions::default() },
        SetKey::Ports(_) => SetOptions { intervals: true, fields: vec![1, 2], ..SetOptions::default() },
    }
}

fn change_elements(batch: &mut Batch, key: &SetKey, elements: &[Element], is_added: bool) {
    if elements.is_empty() {
        return;
    }
    let name = key.name();
    let set = set(key, &name);
    match key {
        SetKey::Blocks(_) => {
            let intervals: Vec<_> = elements.iter().filter_map(|element| interval(*element)).collect();
            if is_added {
                batch.add_intervals(&set, &intervals);
            } else {
                batch.delete_intervals(&set, &intervals);
            }
        }
        SetKey::Ports(_) => {
            let intervals: Vec<_> = elements.iter().filter_map(|element| interval(*element)).collect();
            if is_added {
                batch.add_concatenated_intervals(&set, &intervals);
            } else {
                batch.delete_concatenated_intervals(&set, &intervals);
            }
        }
        SetKey::Selves | SetKey::Pods(_) | SetKey::Named(_) => {
            let keys: Vec<_> = elements.iter().filter_map(|element| element_key(*element, key)).collect();
            if is_added {
                batch.add_keys(&set, &keys);
            } else {
                batch.delete_keys(&set, &keys);
            }
        }
    }
}

fn interval(element: Element) -> Option<Interval> {
    match element {
        Element::Block(first, last) => {
            Some(Interval { first: first.to_be_bytes().to_vec(), last: last.to_be_bytes().to_vec() })
        }
        Element::Ports(protocol, first, last) => Some(Interval {
            first: protocol_and_port(protocol, first),
            last: protocol_and_port(protocol, last),
        }),
        Element::Address(_) | Element::Named(..) => None,
    }
}

fn element_key(element: Element, set: &SetKey) -> Option<Vec<u8>> {
    match element {
        Element::Address(address) if *set == SetKey::Selves => {
            Some([address.octets(), address.octets()].concat())
        }
        Element::Address(address) => Some(address.octets().to_vec()),
        Element::Named(address, protocol, port) => {
            let mut key = address.octets().to_vec();
            key.extend(protocol_and_port(protocol, port));
            Some(key)
        }
        Element::Block(..) | Element::Ports(..) => None,
    }
}

/// As they are in the registers: each part fills four bytes.
fn protocol_and_port(protocol: u8, port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    vec![protocol, 0, 0, 0, high, low, 0, 0]
}
