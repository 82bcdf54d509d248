//! Attacks on and by the network of pods.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use http::Method;
use serde_json::json;
use tokio::net::TcpListener;

use crate::it::cluster::Cluster;
use crate::it::exec::start_with;
use crate::it::nodes::machine::Machine;
use crate::it::wire::{Speech, soon};

const WEB: &str = "/api/v1/namespaces/default/pods/web";

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_address_in_the_status_does_not_lead_the_pod_proxy_to_the_loopback_of_the_node() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    start_with(&cluster, json!({})).await;
    proxies_to_a_changing_pod_address(&cluster).await;
    drop(cluster);
    machine.clear();
}

/// Asks for the proxy of the pod `web` while its status changes.
pub(super) async fn proxies_to_a_changing_pod_address(cluster: &Cluster) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let reached = tokio::spawn(async move { listener.accept().await });
    let done = Arc::new(AtomicBool::new(false));
    // One client changes the address in the status to that of the loopback interface and back.
    let writer = cluster.wire().connect(Speech::Http1).await;
    let (code, pod) = soon(writer.ask(Method::GET, WEB, "", "")).await.unwrap();
    assert_eq!(code, 200, "{pod}");
    let own = pod["status"]["podIP"].as_str().unwrap().to_owned();
    let patches = tokio::spawn({
        let done = done.clone();
        async move {
            let status = format!("{WEB}/status");
            let mut count = 0;
            while !done.load(Ordering::Relaxed) {
                for ip in ["127.0.0.1", &own] {
                    let patch = json!({ "status": { "podIP": ip, "podIPs": [{ "ip": ip }] } }).to_string();
                    let (code, answer) =
                        soon(writer.ask(Method::PATCH, &status, "application/merge-patch+json", patch))
                            .await
                            .unwrap();
                    assert_eq!(code, 200, "{answer}");
                    count += 1;
                }
            }
            count
        }
    });
    // Three others ask for the port of a server that listens there. Before the fix one request in ten reached it.
    let mut clients = Vec::new();
    for _ in 0..3 {
        let client = cluster.wire().connect(Speech::Http1).await;
        clients.push(tokio::spawn(async move {
            for _ in 0..150 {
                let (code, answer) =
                    soon(client.ask(Method::GET, &format!("{WEB}:{port}/proxy/"), "", "")).await.unwrap();
                assert!(code == 400 || code == 503, "{code} {answer}");
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    assert!(patches.await.unwrap() > 0);
    assert!(!reached.is_finished(), "a request reached the loopback interface of the node");
    reached.abort();
}
