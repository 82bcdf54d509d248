//! What tests share. Only tests depend on this crate.
//!
//! - [`skip`] names a test that cannot run on a machine, and fails where it must run.
//! - [`total_order`] checks a comparison.
//! - With the feature `etcd`: a real etcd.
//! - [`assert_documented`] compares exported metrics with their pages.
//! - With the feature `cluster`: an API server in this process, nodes, CSI drivers, clocks that tests move, and waiting for
//!   objects.
//!
//! ```text
//!   test ──▶ TestCluster: API server (store in memory) ◀── kube::Client of any user ── controller under test
//!     │                                                ◀── … ── agent of a TestNode ──▶ runtime
//!     └── until(&api, "web", |pod| …): watches, never sleeps
//! ```
//!
//! The feature keeps the API server out of the tests of the crates below it, such as `cel` and `nftables`.
#![cfg_attr(
    feature = "cluster",
    doc = r#"
```
# use k8s_openapi::api::core::v1::ConfigMap;
# use kube::Api;
# use plumb_testkit::{TestCluster, until};
# #[tokio::main(flavor = "current_thread")] async fn main() {
let cluster = TestCluster::start();
let maps: Api<ConfigMap> = Api::default_namespaced(cluster.admin());
let map = plumb_testkit::object(serde_json::json!({ "metadata": { "name": "settings" } }));
maps.create(&Default::default(), &map).await.unwrap();
until(&maps, "settings", |map: &ConfigMap| map.data.is_none()).await;
# }
```
"#
)]

#[cfg(feature = "etcd")]
mod etcd;
mod metrics_page;
mod order;
mod skip;

#[cfg(feature = "etcd")]
pub use etcd::Etcd;
pub use metrics_page::assert_documented;
pub use order::total_order;
pub use skip::{CONTAINERS, DATA, ETCD, MACHINE, POSTGRESQL, PROMETHEUS, ROOT, SYSTEMD, skip};

#[cfg(feature = "cluster")]
mod clock;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "cluster")]
mod csi_driver;
#[cfg(feature = "cluster")]
mod node;
#[cfg(feature = "cluster")]
mod object;
#[cfg(feature = "cluster")]
mod port;
#[cfg(feature = "cluster")]
mod wait;

#[cfg(feature = "cluster")]
pub use clock::{ManualClock, virtual_clock};
#[cfg(feature = "cluster")]
pub use cluster::{Intercepted, Options, TestCluster};
#[cfg(feature = "cluster")]
pub use csi_driver::{DriverBehavior, TestDriver};
#[cfg(feature = "cluster")]
pub use node::TestNode;
#[cfg(feature = "cluster")]
pub use object::object;
#[cfg(feature = "cluster")]
pub use plumb_kinds::Features;
#[cfg(feature = "cluster")]
pub use port::free_port;
#[cfg(feature = "cluster")]
pub use wait::{TIMEOUT, event, eventually, in_time, until, until_all, until_gone};
