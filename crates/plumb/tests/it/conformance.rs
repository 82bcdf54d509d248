//! The table of resize cases against `plumb up`: with virtual pods, and with real containers in real cgroups.

use std::path::Path;
use std::sync::Arc;

use plumb_conformance::{Cgroups, Dialect, Inspect, Options, run, table};
use plumb_runtime::builtin::{Builtin, Config};
use plumb_runtime::cgroup::Layout;

use super::cluster::Cluster;

#[tokio::test]
async fn the_table_holds_for_virtual_pods_in_the_dialect_of_the_proposal() {
    holds("virtual", Dialect::Kep, None).await;
}

#[tokio::test]
async fn the_table_holds_for_virtual_pods_in_the_dialect_of_kubernetes() {
    holds("virtual", Dialect::V1_36, None).await;
}

#[tokio::test]
async fn the_table_holds_for_real_containers_in_the_dialect_of_the_proposal() {
    in_real_cgroups(Dialect::Kep).await;
}

#[tokio::test]
async fn the_table_holds_for_real_containers_in_the_dialect_of_kubernetes() {
    in_real_cgroups(Dialect::V1_36).await;
}

async fn in_real_cgroups(dialect: Dialect) {
    if let Some(why) = no_containers() {
        println!("SKIPPED: no real containers: {why}");
        return;
    }
    holds("builtin", dialect, Some(Arc::new(Cgroups::default()))).await;
}

/// Why containers cannot be run and looked at here, if so.
pub(crate) fn no_containers() -> Option<String> {
    if !nix::unistd::geteuid().is_root() {
        return Some("it takes root".to_owned());
    }
    Layout::detect().err().map(|error| error.to_string()).or_else(Cgroups::missing)
}

async fn holds(runtime: &str, dialect: Dialect, inspect: Option<Arc<dyn Inspect>>) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let name = if dialect == Dialect::Kep { "kep" } else { "v1.36" };
    let flags =
        ["--components", "apiserver,controllers,node", "--runtime", runtime, "--resize-dialect", name];
    let room = ["--node-cpu", "64", "--node-memory", "64Gi"];
    let cluster = Cluster::start_with(&data, &[&flags[..], &room[..]].concat());
    let options = Options {
        dialect,
        image: "plumb/load".to_owned(),
        command: Vec::new(),
        node: Some("plumb".to_owned()),
        inspect,
        at_once: 8,
        ..Options::default()
    };
    let cases = table::all();
    let client = cluster.client().await;
    let mut failed = Vec::new();
    let summary = run(client, &cases, &options, |report| {
        println!("{report}");
        if !matches!(report.verdict, plumb_conformance::Verdict::Passed) {
            failed.push(report.to_string());
        }
    })
    .await
    .unwrap();
    let said = cluster.said();
    drop(cluster);
    if runtime == "builtin" {
        clear(&data).await;
    }
    assert_eq!(summary.passed, cases.len(), "{failed:#?}\n{said}");
}

/// Removes what the containers of a data directory left on the machine.
pub(crate) async fn clear(data: &Path) {
    let config = Config {
        data_dir: data.to_owned(),
        cgroups: Layout::detect().unwrap(),
        shim: (env!("CARGO_BIN_EXE_plumb").into(), vec!["shim".to_owned()]),
        pod_network: None,
        settles: plumb_runtime::builtin::SETTLES,
        load: None,
    };
    Builtin::open(config).await.unwrap().clear().await.unwrap();
}
