//! An API server in this process, over a store in a folder of its own.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
use plumb_apiserver::admission::Plugins;
use plumb_apiserver::authn::{Authenticator, Tokens, User};
use plumb_apiserver::pki::SystemClock;
use plumb_apiserver::{ApiServer, Config, Limits};
use plumb_resize::rules::Rules;
use plumb_store::{Options, Store};

pub(crate) struct Cluster {
    pub(crate) admin: Client,
    _folder: tempfile::TempDir,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = ApiServer::new(Config {
            store: Store::open(folder.path().join("objects"), Options::default()).unwrap(),
            rules: Rules::v1_36(),
            clock: Arc::new(Timestamp::now),
            limits: Limits::default(),
            authenticator: Authenticator::new(Tokens::default(), Arc::new(SystemClock)),
            nodes: None,
            plugins: Plugins::new("", "ServiceAccount").unwrap(),
            usage: None,
        })
        .unwrap();
        let admin = Client::new(server.inside(User::new("admin", "", ["system:masters"])), "default");
        Self { admin, _folder: folder }
    }
}
