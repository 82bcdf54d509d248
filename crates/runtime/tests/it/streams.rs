//! Clients that are attached to containers, and connections to the ports of pods.

use std::net::{Ipv4Addr, TcpListener};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};
use plumb_runtime::types::{ContainerConfig, ContainerId};
use plumb_runtime::{AttachRequest, Error, Execution, Runtime as _, TerminalSize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};

use crate::node::{Node, TIMEOUT};

const ALL: AttachRequest = AttachRequest { stdin: true, stdout: true, stderr: true, tty: false };
const OUTPUT: AttachRequest = AttachRequest { stdin: false, ..ALL };

async fn attach(node: &Node, id: &ContainerId, request: AttachRequest) -> Execution {
    node.runtime.attach(id, request).await.unwrap().streams().unwrap()
}

/// Reads until this has come.
async fn reads(from: &mut (impl AsyncRead + Unpin), expected: &str) {
    let mut text = Vec::new();
    let reading = async {
        while !String::from_utf8_lossy(&text).contains(expected) {
            let mut piece = [0; 1024];
            let length = from.read(&mut piece).await.unwrap();
            assert!(length > 0, "ended with {:?}", String::from_utf8_lossy(&text));
            text.extend_from_slice(&piece[..length]);
        }
    };
    let read = tokio::time::timeout(TIMEOUT, reading).await;
    assert!(read.is_ok(), "{expected:?} did not come, but {:?}", String::from_utf8_lossy(&text));
}

/// A container that answers what is typed.
fn answers(once: bool) -> ContainerConfig {
    let script = "echo up; while read line; do echo got $line; echo lost $line >&2; done; echo end";
    ContainerConfig { stdin: true, stdin_once: once, ..Node::shell("c", script) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_types_and_reads_and_the_container_ends_with_it_if_its_input_is_once() {
    let test = "a_client_types_and_reads_and_the_container_ends_with_it_if_its_input_is_once";
    let Some(node) = Node::new(test).await else { return };
    let sandbox = node.sandbox("attach").await;
    let id = node.start(&sandbox, answers(true)).await;
    node.says(&id, "up").await;
    let Execution { mut stdin, mut stdout, mut stderr, ended, resize } = attach(&node, &id, ALL).await;
    let running = tokio::spawn(ended);
    // A second client sees the same and types nothing.
    let mut other = attach(&node, &id, OUTPUT).await;
    let (mut seen, other_ended) = (other.stdout.take().unwrap(), tokio::spawn(other.ended));
    assert!(resize.is_none() && other.stdin.is_none());
    let mut typing = stdin.take().unwrap();
    typing.write_all(b"a\n").await.unwrap();
    let (stdout, stderr) = (stdout.as_mut().unwrap(), stderr.as_mut().unwrap());
    reads(stdout, "got a\n").await;
    reads(stderr, "lost a\n").await;
    reads(&mut seen, "got a\n").await;
    typing.write_all(b"b").await.unwrap();
    typing.shutdown().await.unwrap();
    drop(typing);
    let mut rest = String::new();
    tokio::time::timeout(TIMEOUT, stdout.read_to_string(&mut rest)).await.unwrap().unwrap();
    assert_eq!(rest, "end\n");
    assert_eq!(tokio::time::timeout(TIMEOUT, running).await.unwrap().unwrap().unwrap(), 0);
    assert_eq!(tokio::time::timeout(TIMEOUT, other_ended).await.unwrap().unwrap().unwrap(), 0);
    node.says(&id, "got a").await;
    node.says(&id, "end").await;
    let late = node.runtime.attach(&id, ALL).await.unwrap_err();
    // It has ended, or is about to.
    assert!(matches!(late, Error::FailedPrecondition(_) | Error::Unavailable(_)), "{late:?}");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_leaves_leaves_the_container_and_its_input_as_they_were() {
    let test = "a_client_that_leaves_leaves_the_container_and_its_input_as_they_were";
    let Some(node) = Node::new(test).await else { return };
    let sandbox = node.sandbox("attach-again").await;
    let id = node.start(&sandbox, answers(false)).await;
    node.says(&id, "up").await;
    for round in ["a", "b", "c"] {
        let Execution { mut stdin, mut stdout, ended, .. } = attach(&node, &id, ALL).await;
        let running = tokio::spawn(ended);
        stdin.as_mut().unwrap().write_all(format!("{round}\n").as_bytes()).await.unwrap();
        reads(stdout.as_mut().unwrap(), &format!("got {round}\n")).await;
        if round == "a" {
            // Killed in the middle.
            running.abort();
        } else {
            // Types no more, which detaches it.
            stdin.take().unwrap().shutdown().await.unwrap();
            assert_eq!(tokio::time::timeout(TIMEOUT, running).await.unwrap().unwrap().unwrap(), 0);
        }
    }
    node.says(&id, "got c").await;
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_output_arrives_though_the_client_reads_slowly() {
    let Some(node) = Node::new("all_output_arrives_though_the_client_reads_slowly").await else { return };
    let sandbox = node.sandbox("attach-much").await;
    let script = "echo up; read go; dd if=/dev/zero bs=1024 count=3000 2>/dev/null";
    let config = ContainerConfig { stdin: true, stdin_once: true, ..Node::shell("c", script) };
    let id = node.start(&sandbox, config).await;
    node.says(&id, "up").await;
    let Execution { mut stdin, mut stdout, ended, .. } = attach(&node, &id, ALL).await;
    let running = tokio::spawn(ended);
    stdin.as_mut().unwrap().write_all(b"go\n").await.unwrap();
    let (mut total, mut piece, mut stdout) = (0, vec![0; 512], stdout.take().unwrap());
    while let length @ 1.. = tokio::time::timeout(TIMEOUT, stdout.read(&mut piece)).await.unwrap().unwrap() {
        total += length;
        tokio::task::yield_now().await;
    }
    let outcome = tokio::time::timeout(TIMEOUT, running).await.unwrap().unwrap();
    assert_eq!((total, outcome), (3000 * 1024, Ok(0)));
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_terminal_has_the_size_of_the_clients() {
    let Some(node) = Node::new("a_terminal_has_the_size_of_the_clients").await else { return };
    let sandbox = node.sandbox("attach-tty").await;
    let config = ContainerConfig {
        stdin: true,
        tty: true,
        ..Node::shell("c", "echo up; while read line; do stty size; done")
    };
    let id = node.start(&sandbox, config).await;
    let request = AttachRequest { tty: true, stderr: false, ..ALL };
    let Execution { mut stdin, mut stdout, resize, ended, .. } = attach(&node, &id, request).await;
    let running = tokio::spawn(ended);
    resize.as_ref().unwrap()(TerminalSize { columns: 99, rows: 40 }).unwrap();
    // The size and what is typed are two things: each line asks again.
    let typing = async {
        loop {
            stdin.as_mut().unwrap().write_all(b"\n").await.unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = typing => {}
        () = reads(stdout.as_mut().unwrap(), "40 99") => {}
    }
    running.abort();
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_is_connected_to_inside_of_the_pod() {
    let Some(node) = Node::new("a_port_is_connected_to_inside_of_the_pod").await else { return };
    let sandbox = node.sandbox("ports").await;
    let namespace = node.folder.path().join("data/runtime/sandboxes").join(sandbox.as_str()).join("net");
    let listener = std::thread::spawn(move || {
        setns(std::fs::File::open(namespace).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
    });
    let listener = listener.join().unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    let echo = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut from, mut to) = stream.split();
        tokio::io::copy(&mut from, &mut to).await.unwrap();
    });
    let mut connection = node.runtime.port_forward(&sandbox, port).await.unwrap().streams().unwrap();
    connection.write_all(b"hello").await.unwrap();
    connection.shutdown().await.unwrap();
    let mut received = String::new();
    tokio::time::timeout(TIMEOUT, connection.read_to_string(&mut received)).await.unwrap().unwrap();
    assert_eq!(received, "hello");
    echo.await.unwrap();
    let Err(refused) = node.runtime.port_forward(&sandbox, port).await else {
        panic!("nothing listens there")
    };
    let expected =
        format!("connecting to localhost:{port} inside the network namespace of sandbox {sandbox}");
    assert!(refused.to_string().starts_with(&expected), "{refused}");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_container_sees_the_processes_of_its_target() {
    let Some(node) = Node::new("a_container_sees_the_processes_of_its_target").await else { return };
    let sandbox = node.sandbox("target").await;
    let target = node.start(&sandbox, Node::shell("web", "echo up; exec sleep 86398")).await;
    node.says(&target, "up").await;
    // The shell of the target says that it is up before it executes `sleep`.
    let script = "until grep -aq ^sleep /proc/1/cmdline; do sleep 0.01; done; \
                  cat /proc/1/cmdline; echo; cat /proc/1/root/greeting; exec sleep 1000";
    let config = ContainerConfig { pid_target: Some(target.clone()), ..Node::shell("debugger", script) };
    let debugger = node.start(&sandbox, config.clone()).await;
    node.says(&debugger, "sleep\086398\0").await;
    // It ends alone.
    node.runtime.stop_container(&debugger, Duration::ZERO).await.unwrap();
    assert!(node.runtime.container_status(&target).await.unwrap().finished_at.is_none());
    node.runtime.stop_container(&target, Duration::ZERO).await.unwrap();
    let mut late = config;
    late.meta.name = "late".into();
    let late = node.runtime.create_container(&sandbox, late).await.unwrap_err();
    assert!(matches!(late, Error::FailedPrecondition(_)), "{late:?}");
    node.end().await;
}
