//! Random changes, each compared with a model of who answers by real connections.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddrV4};

use plumb_proxy::services::Programmer;
use serde_json::json;

use crate::cluster::{apply, deleted, endpoints, programmer, ready, service, vip};
use crate::machine::{Host, connect, on_own_machine};

const SERVICES: u8 = 6;
const PODS: u8 = 5;

/// A generator of numbers that gives the same ones for the same seed (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

/// Who answers at a Service.
#[derive(Clone, Debug, Default)]
struct Model {
    exists: bool,
    node_port: bool,
    endpoints: BTreeSet<u8>,
}

struct World {
    random: Random,
    proxy: Programmer,
    pods: BTreeMap<u8, Host>,
    services: BTreeMap<u8, Model>,
}

impl World {
    fn change(&mut self) {
        for _ in 0..=self.random.below(3) {
            let number = 1 + u8::try_from(self.random.below(SERVICES.into())).unwrap();
            let kind = self.random.below(5);
            let model = self.services.entry(number).or_default();
            if kind == 0 {
                model.exists = false;
                self.proxy.observe(deleted(number));
            } else if kind == 1 {
                model.exists = true;
                model.node_port = self.random.below(2) == 0;
                let affinity = if self.random.below(2) == 0 { "ClientIP" } else { "None" };
                let spec = if model.node_port {
                    json!({
                        "type": "NodePort",
                        "sessionAffinity": affinity,
                        "ports": [{ "port": 80, "nodePort": node_port(number).port() }]
                    })
                } else {
                    json!({ "sessionAffinity": affinity })
                };
                self.proxy.observe(service(number, spec));
            } else {
                model.endpoints = (2..2 + PODS).filter(|_| self.random.below(3) == 0).collect();
                let ready: Vec<_> = model.endpoints.iter().map(|pod| ready(self.pods[pod].address)).collect();
                self.proxy.observe(endpoints(number, "TCP", 8080, &ready));
            }
        }
        self.proxy.apply().unwrap();
    }

    fn check(&mut self, round: usize) {
        for (number, model) in &self.services {
            let client = 2 + u8::try_from(self.random.below(PODS.into())).unwrap();
            let mut replies = Vec::new();
            if model.exists {
                replies.push(("pod", self.pods[&client].connect(vip(*number, 80))));
                replies.push(("machine", connect(vip(*number, 80))));
            }
            if model.exists && model.node_port {
                replies.push(("localhost", connect(node_port(*number))));
            } else {
                let refused = connect(node_port(*number)).unwrap_err();
                assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "round {round}: {number}");
            }
            let expected: BTreeSet<Ipv4Addr> =
                model.endpoints.iter().map(|pod| self.pods[pod].address).collect();
            for (from, reply) in replies {
                match reply {
                    Ok(reply) => assert!(
                        expected.contains(reply.from.ip()),
                        "round {round}: {number} from {from}: {reply:?}, expected {expected:?}"
                    ),
                    Err(error) => assert!(
                        expected.is_empty() && error.kind() == ErrorKind::ConnectionRefused,
                        "round {round}: {number} from {from}: {error}, expected {expected:?}"
                    ),
                }
            }
        }
    }
}

fn node_port(number: u8) -> SocketAddrV4 {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, 30_000 + u16::from(number))
}

fn rounds(count: usize, seed: u64) {
    on_own_machine(move || {
        let Some(mut proxy) = programmer() else { return };
        let pods: BTreeMap<u8, Host> = (2..2 + PODS).map(|number| (number, Host::pod(number))).collect();
        for pod in pods.values() {
            pod.serve_tcp(8080);
        }
        apply(&mut proxy, []);
        let mut world = World { random: Random(seed), proxy, pods, services: BTreeMap::new() };
        for round in 0..count {
            world.change();
            world.check(round);
        }
    });
}

#[test]
fn after_every_change_those_answer_that_the_model_says() {
    rounds(100, 0x9e37_79b9_7f4a_7c15);
}

#[test]
#[ignore = "takes a minute"]
fn after_thousands_of_changes_those_answer_that_the_model_says() {
    for seed in 1..=20 {
        rounds(100, seed);
    }
}
