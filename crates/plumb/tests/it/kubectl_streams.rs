//! `kubectl` attach, port-forward, cp, logs and debug, with real containers.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::process::Stdio;

use serde_json::json;

use super::exec::{runs, start_with};
use super::kubectl::{command, kubectl};
use super::nodes::machine::{Machine, pods, soon, until};
use super::processes::{Lines, kill};
use super::streams::listen;

/// Which protocol kubectl is to speak: `WebSocket`s as by default, or SPDY as older ones do.
const PROTOCOLS: [&str; 2] = ["true", "false"];

/// The first line that a program prints which begins like this.
fn line_of(printed: &mut Lines, begins: &str) -> String {
    let found = printed.find(|line| line.starts_with(begins));
    found.unwrap_or_else(|| panic!("nothing begins with {begins:?}"))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
async fn kubectl_attaches_and_follows_logs() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let script = "while read line; do echo got $line; done; echo end; exit 0";
    let fields = json!({ "command": ["sh", "-c", script], "stdin": true });
    start_with(&cluster, fields).await;
    let mut follow = command(&cluster, &["logs", "-f", "web"])
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut followed = Lines::of(follow.stdout.take().unwrap());
    for websockets in PROTOCOLS {
        let mut attach = command(&cluster, &["attach", "-i", "web"])
            .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut typing = attach.stdin.take().unwrap();
        typing.write_all(format!("line-{websockets}\n").as_bytes()).unwrap();
        let mut printed = Lines::of(attach.stdout.take().unwrap());
        assert_eq!(line_of(&mut printed, "got"), format!("got line-{websockets}"));
        assert_eq!(line_of(&mut followed, "got"), format!("got line-{websockets}"));
        kill(&mut attach);
    }
    // A command over SPDY.
    let run = |args: &[&str]| {
        command(&cluster, args).env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false").output().unwrap()
    };
    let done = run(&["exec", "web", "--", "sh", "-c", "head -c 5000000 /dev/zero; exit 7"]);
    assert_eq!((done.status.code(), done.stdout.len()), (Some(7), 5_000_000));
    let mut sleeping = command(&cluster, &["exec", "web", "--", "sh", "-c", "echo on; exec sleep 86396"])
        .env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    line_of(&mut Lines::of(sleeping.stdout.take().unwrap()), "on");
    kill(&mut sleeping);
    soon("ended", || !runs("86396")).await;
    kill(&mut follow);
    drop(cluster);
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
async fn kubectl_forwards_ports() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    start_with(&cluster, json!({})).await;
    let listener = listen(&machine, Ipv4Addr::LOCALHOST);
    let port = listener.local_addr().unwrap().port();
    let (gone, mut ended) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let gone = gone.clone();
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                // It may be cut off.
                let _ = tokio::io::copy(&mut from, &mut to).await;
                gone.send(()).unwrap();
            });
        }
    });
    for websockets in PROTOCOLS {
        let mut forward = command(&cluster, &["port-forward", "pod/web", &format!(":{port}")])
            .env("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It prints a line for each connection, and ends when it can't.
        let mut printed = Lines::of(forward.stdout.take().unwrap());
        let line = line_of(&mut printed, "Forwarding from 127.0.0.1:");
        let local: u16 = line.split([':', ' ']).nth(3).unwrap().parse().unwrap();
        let large: Vec<u8> = (0..3_000_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        for _ in 0..2 {
            let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, local)).unwrap();
            let mut reading = connection.try_clone().unwrap();
            let length = large.len();
            let received = std::thread::spawn(move || {
                let mut received = vec![0; length];
                reading.read_exact(&mut received).unwrap();
                received
            });
            connection.write_all(&large).unwrap();
            assert!(received.join().unwrap() == large);
            drop(connection);
            ended.recv().await.unwrap();
        }
        let mut open = TcpStream::connect((Ipv4Addr::LOCALHOST, local)).unwrap();
        open.write_all(b"x").unwrap();
        open.read_exact(&mut [0]).unwrap();
        kill(&mut forward);
        ended.recv().await.unwrap();
    }
    drop(cluster);
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
async fn kubectl_copies_large_files_both_ways_and_debugs() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    start_with(&cluster, json!({ "resources": {} })).await;
    let folder = tempfile::tempdir().unwrap();
    let (there, back) = (folder.path().join("there"), folder.path().join("back"));
    let mut state = 1_u64;
    let large: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    })
    .take(40 << 20)
    .collect();
    std::fs::write(&there, &large).unwrap();
    for round in 0..2 {
        let to = format!("web:/copied-{round}");
        kubectl(&cluster, &["cp", there.to_str().unwrap(), &to], "");
        kubectl(&cluster, &["cp", &to, back.to_str().unwrap()], "");
        assert!(std::fs::read(&back).unwrap() == large);
    }
    let debug = [
        "debug",
        "web",
        "--image=plumb/load",
        "--target=main",
        "-c",
        "dbg",
        "--profile=general",
        "--attach=false",
    ];
    kubectl(&cluster, &debug, "");
    let api = pods(&cluster).await;
    let status = until(&api, "web", "debugged", |pod| {
        let statuses = pod.status.as_ref().and_then(|status| status.ephemeral_container_statuses.as_ref());
        let state = statuses.and_then(|all| all.first()?.state.clone());
        state.is_some_and(|state| state.running.is_some())
    })
    .await;
    assert_eq!(status.status.unwrap().phase.as_deref(), Some("Running"));
    assert!(kubectl(&cluster, &["describe", "pod", "web"], "").contains("Ephemeral Containers:"));
    drop(cluster);
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs the testbed's kubectl; .ci/kubernetes runs it"]
async fn kubectl_filters_logs() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let script = "for n in 1 2 3; do echo line $n; done; exec sleep 1000";
    start_with(&cluster, json!({ "command": ["sh", "-c", script] })).await;
    let logs = |more: &[&str]| kubectl(&cluster, &[&["logs", "web"], more].concat(), "");
    soon("printed", || logs(&[]).lines().count() == 3).await;
    assert_eq!(logs(&["--tail=1"]), "line 3\n");
    assert_eq!(logs(&["--limit-bytes=1"]), "l");
    let stamped = logs(&["--tail=1", "--timestamps"]);
    let (time, text) = stamped.split_once(' ').unwrap();
    assert_eq!((text, time.parse::<jiff::Timestamp>().is_ok()), ("line 3\n", true), "{stamped}");
    assert_eq!(logs(&["--since=24h"]).lines().count(), 3);
    assert_eq!(
        logs(&[&format!("--since-time={}", jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1))]),
        ""
    );
    drop(cluster);
    machine.clear();
}
