//! The controllers of a cluster on this machine: each is a user of its own, with the role that upstream gives it.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use plumb_apiserver::ApiServer;
use plumb_apiserver::authn::User;
use plumb_controllers::{Clients, GROUPS, WATCHER, accounts, aggregation, quota, root_ca, taints, user_of};
use plumb_resize::rules::Rules;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Starts the controllers; they end when what is answered is dropped. `authority` is what pods are to trust.
pub(crate) fn start(server: &ApiServer, authority: watch::Receiver<String>, rules: Rules) -> JoinSet<()> {
    let client = |user: User| Client::new(server.inside(user), "default");
    let none: [&str; 0] = [];
    let clients = |name: &str| Clients {
        watch: client(User::new(WATCHER, "", none)),
        write: client(User::new(user_of(name), "", GROUPS)),
    };
    let mut running = JoinSet::new();
    running.spawn(accounts::run(clients(accounts::NAME)));
    running.spawn(root_ca::run(clients(root_ca::NAME), authority));
    running.spawn(aggregation::run(clients(aggregation::NAME)));
    running.spawn(taints::run(clients(taints::NAME)));
    let books = quota::Config { rules, clock: Arc::new(Timestamp::now) };
    running.spawn(quota::run(clients(quota::NAME), books));
    running
}
