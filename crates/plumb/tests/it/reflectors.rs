//! `kube::runtime`'s watchers and reflectors when the API server restarts or compacts revisions.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::runtime::reflector::Store as Cache;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt as _, reflector};
use plumb_resize::rules::Rules;
use plumb_store::{Options, Store, WatchBuffer};
use plumb_testkit::{TIMEOUT, TestCluster, free_port};
use tokio::sync::Notify;

use super::cluster::Cluster;

fn map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    ConfigMap { metadata, ..ConfigMap::default() }
}

/// The names in a cache, but for what controllers of the cluster make.
fn names(cache: &Cache<ConfigMap>) -> Vec<String> {
    let mut names: Vec<String> = cache.state().iter().filter_map(|map| map.metadata.name.clone()).collect();
    names.retain(|name| name != "kube-root-ca.crt");
    names.sort();
    names
}

/// Waits until a cache holds these; it is looked at whenever something happened to it.
async fn until(cache: &Cache<ConfigMap>, happened: &Notify, wanted: &[&str]) {
    let holds = async {
        while names(cache) != wanted {
            happened.notified().await;
        }
    };
    let done = tokio::time::timeout(TIMEOUT, holds).await;
    assert!(done.is_ok(), "{:?} instead of {wanted:?}", names(cache));
}

#[tokio::test]
async fn a_reflector_is_right_again_after_the_cluster_was_killed() {
    let folder = tempfile::tempdir().unwrap();
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let cluster = Cluster::start_at(&folder.path().join("data"), address, &[]);
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client().await);
    let (cache, writer) = reflector::store();
    let happened = Arc::new(Notify::new());
    let notify = happened.clone();
    let watched = watcher::watcher(maps.clone(), watcher::Config::default()).default_backoff();
    let following = tokio::spawn(reflector(writer, watched).for_each(move |_| {
        notify.notify_one();
        std::future::ready(())
    }));
    let post = PostParams::default();
    for name in ["a", "b"] {
        maps.create(&post, &map(name)).await.unwrap();
    }
    until(&cache, &happened, &["a", "b"]).await;

    let cluster = cluster.restart();
    // Another connection: what becomes of the old one is the reflector's business.
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.client().await);
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    maps.create(&post, &map("c")).await.unwrap();
    until(&cache, &happened, &["b", "c"]).await;
    following.abort();
}

/// The number of changes while no client reads: more than the server retains.
const LATER: usize = 200;

/// A server in this process that retains a few events, and ends the watch of a client that is two behind.
fn forgetful(folder: &std::path::Path) -> TestCluster {
    let watch_buffer = WatchBuffer { events: 2, bytes: 1 << 20 };
    let options = Options { history: 16 << 10, watch_buffer, ..Options::default() };
    let store = Store::open(folder.join("objects"), options).unwrap();
    TestCluster::with(plumb_testkit::Options { rules: Rules::kep(), store, ..Default::default() })
}

#[tokio::test]
async fn a_watcher_that_fell_behind_gets_410_gone_and_lists_again() {
    let folder = tempfile::tempdir().unwrap();
    let server = forgetful(folder.path());
    let maps: Api<ConfigMap> = Api::default_namespaced(server.admin());
    let post = PostParams::default();
    maps.create(&post, &map("first")).await.unwrap();
    let (cache, mut writer) = reflector::store();
    let mut events = watcher::watcher(maps.clone(), watcher::Config::default()).boxed();
    let mut listed = 0;
    while listed == 0 {
        let event = events.try_next().await.unwrap().unwrap();
        listed += usize::from(matches!(event, Event::InitDone));
        writer.apply_watcher_event(&event);
    }
    // The watch is open. While the test does not read it, more events happen than the server keeps.
    maps.create(&post, &map("seen")).await.unwrap();
    writer.apply_watcher_event(&events.try_next().await.unwrap().unwrap());
    assert_eq!(names(&cache), ["first", "seen"]);
    for i in 0..LATER {
        maps.create(&post, &map(&format!("later-{i:03}"))).await.unwrap();
    }
    maps.delete("first", &DeleteParams::default()).await.unwrap();

    let mut gone = 0;
    let again = async {
        while listed == 1 {
            match events.next().await.expect("a watcher never ends") {
                Ok(event) => {
                    listed += usize::from(matches!(event, Event::InitDone));
                    writer.apply_watcher_event(&event);
                }
                Err(watcher::Error::WatchError(status)) if status.code == 410 => gone += 1,
                Err(watcher::Error::WatchStartFailed(kube::Error::Api(status))) if status.code == 410 => {
                    gone += 1;
                }
                Err(other) => panic!("{other:?}"),
            }
        }
    };
    tokio::time::timeout(TIMEOUT, again).await.unwrap();
    assert!(gone > 0, "no watch ended with 410 Gone");
    let mut wanted: Vec<String> = (0..LATER).map(|i| format!("later-{i:03}")).collect();
    wanted.push("seen".to_owned());
    assert_eq!(names(&cache), wanted);
}
