//! An API server in this process.

#![expect(clippy::expect_used, reason = "a test that cannot be set up has failed")]

use std::io;
use std::sync::Arc;

use http::{Request, Uri};
use jiff::Timestamp;
use kube::Client;
use kube::client::Body;
use plumb_apiserver::accounts::{Accounts, Settings};
use plumb_apiserver::admission::Plugins;
use plumb_apiserver::authn::{Authenticator, Tokens, User};
use plumb_apiserver::pki::{Pki, SystemClock};
use plumb_apiserver::usage::UsageSource;
use plumb_apiserver::{ApiServer, Config, KubeletClient, Limits};
use plumb_kinds::{AdmissionConfiguration, Features, admission_plugins, configured_api_server};
use plumb_resize::rules::Rules;
use plumb_store::Store;
use tower::ServiceExt as _;

/// How the API server is set up.
pub struct Options {
    /// Which rules of a resize bind.
    pub rules: Rules,
    /// What time it is.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// Which admission plugins run. By default all but `ServiceAccount`: no controller makes the accounts.
    pub plugins: Plugins,
    /// The store; in memory by default.
    pub store: Store,
    /// The certificates of the cluster. Without them, which is the default, the API server issues no tokens for service
    /// accounts and reaches no node.
    pub pki: Option<Arc<Pki>>,
    /// What nodes and pods use; unknown by default.
    pub usage: Option<Arc<dyn UsageSource>>,
    /// The features of the API.
    pub features: Features,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rules: Rules::v1_36(),
            clock: Arc::new(Timestamp::now),
            plugins: admission_plugins("", "ServiceAccount").expect("a plugin of this name"),
            store: Store::in_memory(&plumb_store::Options::default()),
            pki: None,
            usage: None,
            features: Features::default(),
        }
    }
}

/// A cluster that consists of an API server. Objects are gone when it is dropped.
pub struct TestCluster {
    server: ApiServer,
    store: Store,
}

impl TestCluster {
    /// A cluster with the default options.
    pub fn start() -> Self {
        Self::with(Options::default())
    }

    /// A cluster with other options.
    ///
    /// # Panics
    /// If the API server cannot be set up.
    pub fn with(options: Options) -> Self {
        let Options { rules, clock, plugins, store, pki, usage, features } = options;
        let mut authenticator = Authenticator::new(Tokens::default(), Arc::new(SystemClock));
        if let Some(pki) = &pki {
            let settings = Settings::at("https://127.0.0.1".to_owned());
            let key = pki.service_account_key();
            let accounts = Accounts::new(key, store.clone(), Arc::new(SystemClock), settings);
            authenticator = authenticator.with_accounts(accounts.expect("service accounts"));
        }
        let config = Config {
            store: store.clone(),
            rules,
            clock,
            limits: Limits::default(),
            authenticator,
            nodes: pki.map(|pki| KubeletClient::new(&pki).expect("a connection to nodes")),
            plugins,
            usage,
            audit: None,
        };
        let server = configured_api_server(config, features, AdmissionConfiguration::default());
        Self { server: server.expect("an API server"), store }
    }

    /// The API server.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// What the API server stores in.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// A client of a user who may do anything.
    pub fn admin(&self) -> Client {
        self.client_as("admin", ["system:masters"])
    }

    /// A client of a user, in no groups but those that every user is in.
    pub fn client(&self, user: &str) -> Client {
        let none: [&str; 0] = [];
        self.client_as(user, none)
    }

    /// A client of a user in groups, with the namespace `default`.
    pub fn client_as<'a>(&self, user: &str, groups: impl IntoIterator<Item = &'a str>) -> Client {
        Client::new(self.server.inside(User::new(user, "", groups)), "default")
    }

    /// The same with a function that is called with the URL of each request before it is sent. It may note it, change it
    /// (to one that is not served, and the request is rejected), fail (the API server is unreachable), or panic.
    pub fn intercepted<'a, I: Intercepted>(
        &self,
        user: &str,
        groups: impl IntoIterator<Item = &'a str>,
        intercept: impl Fn(&mut Uri) -> I + Clone + Send + Sync + 'static,
    ) -> Client {
        let inside = self.server.inside(User::new(user, "", groups));
        let service = tower::service_fn(move |mut request: Request<Body>| {
            let (inside, intercept) = (inside.clone(), intercept.clone());
            // In the future, which the task of the caller polls: a panic is the caller's.
            async move {
                intercept(request.uri_mut()).reached()?;
                let Ok(response) = inside.oneshot(request).await;
                Ok::<_, io::Error>(response)
            }
        });
        Client::new(service, "default")
    }
}

/// What a function answers that intercepts requests: nothing, or whether the API server is reached.
pub trait Intercepted {
    /// An error if it is not.
    ///
    /// # Errors
    /// The one that the client reports.
    fn reached(self) -> io::Result<()>;
}

impl Intercepted for () {
    fn reached(self) -> io::Result<()> {
        Ok(())
    }
}

impl Intercepted for io::Result<()> {
    fn reached(self) -> io::Result<()> {
        self
    }
}
