//! `plumb top` on a terminal, and completion of names.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{self, Signal};
use nix::sys::termios::{LocalFlags, tcgetattr};
use nix::unistd::Pid;
use plumb_testkit::TIMEOUT;
use serde_json::json;

use super::super::processes::ended;
use super::{cluster, command, create, printed};

const COLUMNS: usize = 80;
const ROWS: usize = 24;

/// A terminal: what a program has written to it, and its modes.
struct Terminal {
    keys: File,
    output: Receiver<Vec<u8>>,
    written: Vec<u8>,
    slave: OwnedFd,
}

impl Terminal {
    fn start(command: &mut Command) -> (Self, Child) {
        let rows = u16::try_from(ROWS).unwrap();
        let size =
            Winsize { ws_row: rows, ws_col: u16::try_from(COLUMNS).unwrap(), ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(&size, None).unwrap();
        let end = || Stdio::from(pair.slave.try_clone().unwrap());
        let child = command.env("TERM", "xterm").stdin(end()).stdout(end()).spawn().unwrap();
        let mut master = File::from(pair.master);
        let keys = master.try_clone().unwrap();
        let (sender, output) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = master.read(&mut buffer) {
                if sender.send(buffer[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        (Self { keys, output, written: Vec::new(), slave: pair.slave }, child)
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the screen has a text.
    fn until(&mut self, text: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while !screen(&self.written).contains(text) {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(more) = self.output.recv_timeout(left) else {
                panic!("{text:?} is not on the screen:\n{}", screen(&self.written));
            };
            self.written.extend(more);
        }
    }

    /// Whether keys are echoed and lines are edited, as a shell expects it.
    fn is_cooked(&self) -> bool {
        let flags = tcgetattr(&self.slave).unwrap().local_flags;
        flags.contains(LocalFlags::ECHO | LocalFlags::ICANON)
    }
}

/// What a terminal shows after this output: only what `plumb top` uses of its sequences.
fn screen(written: &[u8]) -> String {
    let text = String::from_utf8_lossy(written);
    let mut cells = vec![vec![' '; COLUMNS]; ROWS];
    let (mut row, mut column) = (0, 0);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\u{1b}' {
            if let Some(cell) = cells.get_mut(row).and_then(|row: &mut Vec<char>| row.get_mut(column)) {
                *cell = letter;
            }
            column += 1;
            continue;
        }
        letters.next();
        let mut sequence = String::new();
        let end = letters.find(|letter| {
            sequence.push(*letter);
            letter.is_ascii_alphabetic()
        });
        let numbers = sequence.trim_end_matches(|letter: char| letter.is_ascii_alphabetic()).split(';');
        let numbers: Vec<usize> = numbers.filter_map(|number| number.parse().ok()).collect();
        match (end, &numbers[..]) {
            (Some('H'), [at_row, at_column]) => {
                (row, column) = (at_row.saturating_sub(1), at_column.saturating_sub(1));
            }
            (Some('J'), _) => cells = vec![vec![' '; COLUMNS]; ROWS],
            _ => {}
        }
    }
    cells.into_iter().map(|row| row.into_iter().collect::<String>() + "\n").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_pods_resizes_one_and_leaves_the_terminal_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, pods) = cluster(&folder.path().join("data")).await;
    let container =
        json!({ "name": "app", "image": "plumb/load", "resources": { "requests": { "cpu": "100m" } } });
    create(&pods, "web", json!({ "containers": [container] })).await;
    let (mut terminal, mut top) =
        Terminal::start(command(&cluster, &["top", "--color", "never"]).env("NO_COLOR", "1"));
    terminal.until("web   app");
    assert!(!terminal.is_cooked(), "keys are read one by one");
    terminal.press("r");
    terminal.until("resize pod default/web");
    terminal.press("cpu=200m\r");
    terminal.until("app cpu 100m/- → 200m/-");
    let unchanged = pods.get("web").await.unwrap();
    assert_eq!(request(&unchanged), "100m", "it was a dry run");
    terminal.press("y");
    terminal.until("pod/web asked for");
    terminal.until("200m/-");
    assert_eq!(request(&pods.get("web").await.unwrap()), "200m");
    terminal.press("\r");
    terminal.until("pod default/web");
    terminal.until("DESIRED");
    terminal.press("q");
    assert!(ended(&mut top).success());
    assert!(terminal.is_cooked());

    // A signal leaves the terminal as it was, too.
    let (mut terminal, mut top) = Terminal::start(&mut command(&cluster, &["top", "nodes"]));
    terminal.until("Ready");
    signal::kill(Pid::from_raw(i32::try_from(top.id()).unwrap()), Signal::SIGTERM).unwrap();
    assert!(ended(&mut top).success());
    assert!(terminal.is_cooked());
}

fn request(pod: &Pod) -> String {
    let container = &pod.spec.as_ref().unwrap().containers[0];
    container.resources.as_ref().unwrap().requests.as_ref().unwrap()["cpu"].0.clone()
}

#[test]
fn top_without_a_terminal_names_the_command_for_that() {
    let top = Command::new(env!("CARGO_BIN_EXE_plumb")).arg("top").stdin(Stdio::null()).output().unwrap();
    let expected = "plumb: plumb top needs a terminal; `plumb status --watch` prints what changes\n";
    assert_eq!(printed(&top), (Some(1), expected.to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_objects_are_completed_and_an_unreachable_cluster_is_silent() {
    let folder = tempfile::tempdir().unwrap();
    let (cluster, pods) = cluster(&folder.path().join("data")).await;
    create(&pods, "web-1", json!({ "containers": [{ "name": "app", "image": "plumb/load" }] })).await;
    let complete = |kubeconfig: &str, words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
        let index = words.len() + 2;
        command.env("PLUMB_COMPLETE", "bash").env("_CLAP_COMPLETE_INDEX", index.to_string());
        command.env("_CLAP_IFS", "\n").args(["--", "plumb"]);
        command.arg(words[0]).args(["--kubeconfig", kubeconfig]).args(&words[1..]);
        printed(&command.output().unwrap())
    };
    let file = cluster.kubeconfig();
    let file = file.to_str().unwrap();
    for (words, expected) in [
        (&["resize", "we"][..], "web-1"),
        (&["status", "pod/w"], "pod/web-1"),
        (&["status", "vp"], "vpa\nvpa/"),
        (&["status", "-n", "kube-s"], "kube-system"),
        (&["status", "-n", "kube-system", "we"], ""),
        (&["status", "--context", "pl"], "plumb"),
    ] {
        assert_eq!(complete(file, words), (Some(0), expected.to_owned()), "{words:?}");
    }
    let missing = folder.path().join("missing");
    assert_eq!(complete(missing.to_str().unwrap(), &["resize", "we"]), (Some(0), String::new()));
}
