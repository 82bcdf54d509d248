//! What the kernel lacks.

use std::time::Duration;

use plumb_nftables::{
    Batch, CONNECTION_NEW, Chain, ChainKind, Expression, Hook, Register, Rejection, Set, SetOptions, Verdict,
    VerdictMap, types,
};

const FIRST: Register = Register(0);
const SECOND: Register = Register(1);
const FILTER: Chain =
    Chain { name: "probe-filter", kind: ChainKind::Filter, hook: Hook::Prerouting, priority: 0 };
const NAT: Chain = Chain { name: "probe", kind: ChainKind::Nat, hook: Hook::Prerouting, priority: -100 };
const POSTROUTING: Chain =
    Chain { name: "probe", kind: ChainKind::Nat, hook: Hook::Postrouting, priority: 100 };
const MAP: VerdictMap = VerdictMap { name: "probe-map", key_type: types::PROTOCOL_AND_PORT, key_length: 8 };
const CLIENTS: Set = Set { name: "probe-clients", key_type: types::IPV4_ADDR, key_length: 4 };

/// Adds something to the table.
type TryOut = fn(&mut Batch);

/// What is tried, and by what changes. The names are those of the kernel's configuration.
const FEATURES: [(&str, TryOut); 7] = [
    ("nf_tables (CONFIG_NF_TABLES, CONFIG_NF_TABLES_IPV4)", |_| {}),
    ("translation of addresses (CONFIG_NFT_NAT)", |batch| {
        batch.add_chain(&NAT);
        batch.add_rule(
            &NAT,
            &[
                Expression::Value(FIRST, [127, 0, 0, 1]),
                Expression::Value(SECOND, [0, 1, 0, 0]),
                Expression::TranslateDestination { address: FIRST, port: SECOND },
            ],
        );
    }),
    ("masquerading (CONFIG_NFT_MASQ)", |batch| {
        batch.add_chain(&POSTROUTING);
        batch.add_rule(&POSTROUTING, &[Expression::Masquerade]);
    }),
    ("the state of connections (CONFIG_NFT_CT)", |batch| {
        batch.add_chain(&FILTER);
        batch.add_rule(
            &FILTER,
            &[Expression::ConnectionState(FIRST), Expression::Mask(FIRST, CONNECTION_NEW.to_ne_bytes())],
        );
    }),
    ("the kind of an address (CONFIG_NFT_FIB_IPV4)", |batch| {
        batch.add_chain(&FILTER);
        batch.add_rule(&FILTER, &[Expression::DestinationKind(FIRST)]);
    }),
    ("random numbers and sets that rules change (CONFIG_NFT_NUMGEN)", |batch| {
        let options = SetOptions {
            dynamic: true,
            timeout: Some(Duration::from_secs(1)),
            size: Some(1),
            ..SetOptions::default()
        };
        batch.add_set_with(&CLIENTS, &options);
        batch.add_chain(&FILTER);
        batch.add_rule(
            &FILTER,
            &[
                Expression::Random { register: FIRST, modulus: 2 },
                Expression::SourceAddress(FIRST),
                Expression::Update { set: CLIENTS.name.into(), key: FIRST, value: None, timeout: None },
            ],
        );
    }),
    ("rejection before routing (CONFIG_NFT_REJECT, since Linux 5.9)", |batch| {
        batch.add_chain(&FILTER);
        batch.add_verdict_map(&MAP);
        batch.add_regular_chain("probe-reject");
        batch.add_rule_to("probe-reject", &[Expression::Reject(Rejection::PortUnreachable)]);
        batch.add_rule(
            &FILTER,
            &[
                Expression::TransportProtocol(FIRST),
                Expression::DestinationPort(SECOND),
                Expression::LookupVerdict { map: MAP.name.into(), key: FIRST },
            ],
        );
        batch.add_verdicts(
            &MAP,
            [([6, 0, 0, 0, 0, 1, 0, 0].as_slice(), &Verdict::Goto("probe-reject".into()))],
        );
    }),
];

/// What the rules need and the kernel refuses. Each is tried in a transaction that ends without a table.
pub fn missing(table: &str) -> Vec<&'static str> {
    let scratch = format!("{table}-probe");
    let is_refused = |try_out: &TryOut| {
        let mut batch = Batch::new(&scratch);
        batch.remove_table();
        batch.add_table();
        try_out(&mut batch);
        batch.remove_table();
        batch.commit().is_err()
    };
    FEATURES.iter().filter(|(_, try_out)| is_refused(try_out)).map(|(name, _)| *name).collect()
}
