//! A process that is killed in the midst of a thousand writes, again and again.
//!
//! ```text
//! 1,000 writers ── create, update, patch, delete ──▶ plumb up ──▶ data directory
//!      │ acknowledged, or in doubt                     ✂ kill -9        │
//!      ▼                                                                ▼
//!   what must be there  ◀──────────── compared ─────────────  what the next start finds
//! ```
//!
//! Every answer, every list and every event goes into one ledger by its revision: a revision that ever stands for
//! two things fails the test wherever it turns up again.

mod follower;
mod ledger;
mod writer;

use std::process::Stdio;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use self::follower::Follower;
use self::ledger::Ledger;
use self::writer::Writer;
use super::cluster::{Cluster, up};
use super::dice::Dice;
use super::wire::{Connection, Speech, Wire, soon};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const WRITERS: usize = 1_000;
/// Over how many connections the writers write.
const CONNECTIONS: usize = 16;
/// How many objects they write to together.
const SHARED: usize = 8;

/// How often to kill; `PLUMB_KILLS` asks for more.
fn rounds() -> u64 {
    std::env::var("PLUMB_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

fn map(name: &str, data: &Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_in_the_midst_of_a_thousand_writes_lose_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let ledger = Arc::new(Ledger::default());
    let mut writers: Vec<Writer> = (0..WRITERS).map(Writer::new).collect();
    let mut dice = Dice::new(1);

    let cluster = Cluster::start_alone(&data);
    let connection = cluster.wire().connect(Speech::Http2).await;
    for shared in 0..SHARED {
        let body = map(&writer::shared(shared), &json!({})).to_string();
        assert_eq!(connection.ask(Method::POST, MAPS, "application/json", body).await.unwrap().0, 201);
    }
    let mut follower = Follower::new(list(&connection, &ledger).await.revision);
    let mut standing = cluster;

    let rounds = rounds();
    for round in 0..rounds {
        let wire = standing.wire();
        let following =
            tokio::spawn(follower.follow(wire.connect(Speech::Http2).await, None, ledger.clone()));
        writers = write_and_kill(standing, &wire, writers, round, 100 + dice.next() % 1_400, &ledger).await;
        follower = soon(following).await.unwrap();

        // Now and then the start is killed as well, at any moment of it.
        if round % 4 == 3 {
            let mut start = up(&data).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            for _ in 0..dice.next() % 5_000 {
                std::hint::spin_loop();
            }
            start.kill().unwrap();
            start.wait().unwrap();
        }

        standing = Cluster::start_alone(&data);
        let found = list(&standing.wire().connect(Speech::Http2).await, &ledger).await;
        // No revision that was ever returned is beyond the present one.
        let newest = ledger.newest();
        assert!(found.revision >= newest, "revision {} after {newest} was returned", found.revision);
        ledger.nothing_more_before(found.revision);
        for writer in &mut writers {
            writer.compare(&found.maps);
        }
    }

    let connection = standing.wire().connect(Speech::Http2).await;
    let body = map("the-end", &json!({})).to_string();
    assert_eq!(connection.ask(Method::POST, MAPS, "application/json", body).await.unwrap().0, 201);
    let follower = soon(follower.follow(connection.clone(), Some("the-end"), ledger.clone())).await;
    let found = list(&connection, &ledger).await;
    follower.compare(&found.maps, &ledger);
    let (acknowledged, doubted) = (ledger.acknowledged(), writers.iter().map(|w| w.doubts).sum::<usize>());
    println!(
        "{rounds} kills: {acknowledged} acknowledged writes are there; of {doubted} without an answer, {} are; \
         the watch resumed {} times and listed again {} times",
        writers.iter().map(|w| w.came_true).sum::<usize>(),
        follower.resumed,
        follower.gaps.len(),
    );
    assert!(doubted > 0, "no write was under way at any kill");
}

/// Has all writers write until so many writes were acknowledged, and then kills the process.
async fn write_and_kill(
    cluster: Cluster,
    wire: &Wire,
    writers: Vec<Writer>,
    round: u64,
    acknowledgements: u64,
    ledger: &Arc<Ledger>,
) -> Vec<Writer> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(wire.connect(Speech::Http2).await);
    }
    let (acknowledged, mut receiver) = mpsc::unbounded_channel();
    let tasks: Vec<_> = writers
        .into_iter()
        .enumerate()
        .map(|(i, writer)| {
            let connection = connections[i % CONNECTIONS].clone();
            tokio::spawn(writer.write(connection, round, acknowledged.clone(), ledger.clone()))
        })
        .collect();
    drop(acknowledged);
    for _ in 0..acknowledgements {
        soon(receiver.recv()).await.expect("they write until it is killed");
    }
    cluster.kill();
    let mut writers = Vec::new();
    for task in tasks {
        writers.push(soon(task).await.unwrap());
    }
    writers
}

/// What is there: by name, its revision and its data.
struct Found {
    revision: u64,
    maps: std::collections::BTreeMap<String, (u64, Value)>,
}

/// Lists all, page by page.
async fn list(connection: &Connection, ledger: &Ledger) -> Found {
    let mut found = Found { revision: 0, maps: std::collections::BTreeMap::new() };
    let mut next = String::new();
    loop {
        let path = format!("{MAPS}?limit=300&continue={next}");
        let (status, page) = soon(connection.ask(Method::GET, &path, "", "")).await.unwrap();
        assert_eq!(status, 200, "{page}");
        found.revision = page["metadata"]["resourceVersion"].as_str().unwrap().parse().unwrap();
        for map in page["items"].as_array().unwrap() {
            let (name, revision) = ledger.seen(map);
            found.maps.insert(name, (revision, map["data"].clone()));
        }
        match page["metadata"]["continue"].as_str() {
            Some(token) => token.clone_into(&mut next),
            None => return found,
        }
    }
}
