//! What tests of controllers and of the node agent share: an API server in this process, nodes, clocks that tests move, and
//! waiting for objects.
//!
//! ```text
//!   test ──▶ TestCluster: API server (store in memory) ◀── kube::Client of any user ── controller under test
//!     │                                                ◀── … ── agent of a TestNode ──▶ runtime
//!     └── until(&api, "web", |pod| …): watches, never sleeps
//! ```
//!
//! Only tests depend on this crate: nothing but `plumb` and tests may depend on the API server.
//!
//! ```
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use kube::Api;
//! # use plumb_harness::{TestCluster, until};
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let cluster = TestCluster::start();
//! let maps: Api<ConfigMap> = Api::default_namespaced(cluster.admin());
//! let map = plumb_harness::object(serde_json::json!({ "metadata": { "name": "settings" } }));
//! maps.create(&Default::default(), &map).await.unwrap();
//! until(&maps, "settings", |map: &ConfigMap| map.data.is_none()).await;
//! # }
//! ```

#![expect(clippy::expect_used, reason = "a test that cannot be set up has failed")]

mod clock;
mod cluster;
mod node;
mod port;
mod wait;

pub use clock::{ManualClock, virtual_clock};
pub use cluster::{Intercepted, Options, TestCluster};
pub use node::TestNode;
pub use port::free_port;
pub use wait::{TIMEOUT, event, eventually, in_time, until, until_all, until_gone};

/// An object by its JSON.
///
/// # Panics
/// If it is none of its kind.
pub fn object<K: serde::de::DeserializeOwned>(json: serde_json::Value) -> K {
    serde_json::from_value(json).expect("an object of the kind")
}
