use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::services::decide::{EndpointWithClients, SharedMap};

/// The table of a kernel, which refuses what a real one refuses.
#[derive(Clone, Debug, Default, PartialEq)]
struct Kernel {
    chains: BTreeMap<String, Option<ChainRules>>,
    affinities: BTreeMap<String, Duration>,
    entries: BTreeMap<Entry, Target>,
    hairpins: BTreeSet<Ipv4Addr>,
}

impl Kernel {
    fn apply(&mut self, transaction: &Transaction) {
        for entry in &transaction.remove_entries {
            assert!(self.entries.remove(entry).is_some(), "{entry:?} is not there");
        }
        for (map, timeout) in &transaction.add_affinities {
            assert_eq!(self.affinities.insert(map.clone(), *timeout), None, "{map}");
        }
        for chain in &transaction.add_chains {
            assert_eq!(self.chains.insert(chain.clone(), None), None, "{chain}");
        }
        for chain in &transaction.flush_chains {
            *self.chains.get_mut(chain).unwrap() = None;
        }
        for (chain, rules) in &transaction.fill_chains {
            let content = self.chains.get_mut(chain).unwrap();
            assert_eq!(*content, None, "{chain} has rules already");
            *content = Some(rules.clone());
        }
        for (entry, target) in &transaction.add_entries {
            assert_eq!(self.entries.insert(*entry, target.clone()), None, "{entry:?}");
        }
        for chain in &transaction.remove_chains {
            assert_eq!(self.chains.remove(chain), Some(None), "{chain}");
        }
        for map in &transaction.remove_affinities {
            assert!(self.affinities.remove(map).is_some(), "{map}");
        }
        for address in &transaction.remove_hairpins {
            assert!(self.hairpins.remove(address));
        }
        for address in &transaction.add_hairpins {
            assert!(self.hairpins.insert(*address));
        }
        self.check();
    }

    /// Nothing refers to what is not there.
    fn check(&self) {
        for target in self.entries.values() {
            if let Target::Chain(chain) = target {
                assert!(self.chains.contains_key(chain), "an entry refers to {chain}");
            }
        }
        for rules in self.chains.values() {
            match rules {
                Some(ChainRules::Affinity(endpoints)) => {
                    for EndpointWithClients { chain, clients } in endpoints {
                        assert!(self.chains.contains_key(chain), "a chain refers to {chain}");
                        assert!(self.affinities.contains_key(clients), "a chain refers to {clients}");
                    }
                }
                Some(ChainRules::Endpoint { clients, .. }) => {
                    assert!(self.affinities.contains_key(clients), "a chain refers to {clients}");
                }
                Some(ChainRules::Masqueraded { to }) => assert!(self.chains.contains_key(to)),
                Some(ChainRules::OnNode { cluster, local }) => {
                    for chain in cluster.iter().chain(local) {
                        assert!(self.chains.contains_key(chain), "a chain refers to {chain}");
                    }
                }
                _ => {}
            }
        }
    }
}

fn name(service: u8, port: u8) -> ServicePortName {
    let protocol = if port == 0 { Protocol::Tcp } else { Protocol::Udp };
    ServicePortName {
        service: ServiceName::new("default", &format!("s{service}")),
        protocol,
        port: port.to_string().into(),
    }
}

/// Rules of a port: endpoints, whether it has affinity, the address that it claims among few, whether it is on the machine's
/// ports as well.
fn rules(name: &ServicePortName, endpoints: &[u8], affinity: u8, address: u8, external: bool) -> PortRules {
    let chain = format!("service/{name}");
    let mut rules = PortRules::default();
    let entry = |map, address, port| Entry { map, protocol: name.protocol, address, port };
    let claimed = entry(SharedMap::External, Some(Ipv4Addr::new(203, 0, 113, address)), 80);
    if endpoints.is_empty() {
        rules.entries.insert(claimed, Target::Reject);
        return rules;
    }
    let addresses: Vec<SocketAddrV4> = endpoints
        .iter()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|number| SocketAddrV4::new(Ipv4Addr::new(10, 64, 0, *number), 80))
        .collect();
    rules.hairpins = addresses.iter().map(|address| *address.ip()).collect();
    rules.reachable = addresses.iter().copied().collect();
    let content = if affinity > 0 {
        rules.add_affinity(name, Duration::from_secs(affinity.into()), addresses)
    } else {
        ChainRules::Endpoints(addresses)
    };
    rules.chains.insert(chain.clone(), content);
    rules.entries.insert(claimed, Target::Chain(chain.clone()));
    if external {
        let outer = format!("external/{name}");
        rules.entries.insert(entry(SharedMap::NodePorts, None, 30_080), Target::Chain(outer.clone()));
        rules.chains.insert(outer, ChainRules::Masqueraded { to: chain });
    }
    rules
}

type Port = (u8, Vec<u8>, u8, u8, bool);

fn changes() -> impl Strategy<Value = Vec<Vec<(u8, Vec<Port>)>>> {
    let port = (0..2_u8, vec(2..6_u8, 0..4), 0..3_u8, 0..3_u8, any::<bool>());
    let service = (0..4_u8, vec(port, 0..3));
    vec(vec(service, 1..4), 1..30)
}

fn apply(table: &mut Table, batch: &[(u8, Vec<Port>)]) -> Transaction {
    let changes = batch.iter().map(|(service, ports)| {
        let ports = ports.iter().map(|(port, endpoints, affinity, address, external)| {
            let name = name(*service, *port);
            let rules = rules(&name, endpoints, *affinity, *address, *external);
            (name, rules)
        });
        (name(*service, 0).service, ports.collect())
    });
    table.update(changes.collect())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn changes_one_after_the_other_give_the_same_rules_as_a_new_table(batches in changes()) {
        let mut table = Table::default();
        let mut kernel = Kernel::default();
        for batch in &batches {
            kernel.apply(&apply(&mut table, batch));
            let mut fresh = Kernel::default();
            fresh.apply(&table.whole());
            prop_assert_eq!(&kernel, &fresh);
        }
        // Once all are gone nothing is left.
        let all: Vec<_> = (0..4).map(|service| (service, Vec::new())).collect();
        kernel.apply(&apply(&mut table, &all));
        prop_assert_eq!(kernel, Kernel::default());
        prop_assert_eq!(table, Table::default());
    }
}

#[test]
fn a_change_of_one_service_touches_no_other() {
    let mut table = Table::default();
    let port = |endpoints: &[u8], address| vec![(0, endpoints.to_vec(), 0, address, false)];
    apply(&mut table, &[(0, port(&[2], 0)), (1, port(&[2, 3], 1)), (2, port(&[2], 2))]);
    let change = apply(&mut table, &[(1, port(&[3], 1))]);
    let chain = "service/default/s1/tcp/0".to_owned();
    assert_eq!(change.flush_chains, [chain.clone()].into());
    assert_eq!(change.fill_chains.keys().collect::<Vec<_>>(), [&chain]);
    assert!(change.add_entries.is_empty() && change.remove_entries.is_empty(), "{change:?}");
    assert!(change.remove_hairpins.is_empty(), "others have the endpoint: {change:?}");
    assert!(apply(&mut table, &[(1, port(&[3], 1))]).is_empty());
}

#[test]
fn of_two_services_with_the_same_address_the_first_by_name_gets_it() {
    let mut table = Table::default();
    let port = |endpoints: &[u8]| vec![(0, endpoints.to_vec(), 0, 0, false)];
    let of = |transaction: &Transaction| transaction.add_entries.values().cloned().collect::<Vec<_>>();
    let chain = |number| Target::Chain(format!("service/default/s{number}/tcp/0"));
    assert_eq!(of(&apply(&mut table, &[(2, port(&[2]))])), [chain(2)]);
    assert_eq!(of(&apply(&mut table, &[(1, port(&[3]))])), [chain(1)]);
    assert_eq!(of(&apply(&mut table, &[(3, port(&[3]))])), []);
    assert_eq!(of(&apply(&mut table, &[(1, Vec::new())])), [chain(2)]);
}
