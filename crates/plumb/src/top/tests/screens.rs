//! What the terminal shows.

use std::path::Path;

use plumb_controller_runtime::WatchEvent;
use serde_json::json;

use super::super::Tab;
use super::super::event::Event;
use super::super::model::Model;
use super::super::update::update;
use super::clusters::{model, pod};
use super::{press, screen};

/// Compares a screen with a file beside this one; `PLUMB_UPDATE=1` writes the files anew.
#[track_caller]
fn assert_screen(model: &mut Model, columns: u16, rows: u16, name: &str) {
    let shown = screen(model, columns, rows) + "\n";
    assert!(shown.lines().all(|line| line.chars().count() <= usize::from(columns)), "{shown}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/top/tests/screens/{name}.txt"));
    if std::env::var_os("PLUMB_UPDATE").is_some() {
        std::fs::write(&path, &shown).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(shown == expected, "{name}.txt has\n{expected}\nand the screen shows\n{shown}");
}

#[test]
fn pods_at_80_columns() {
    assert_screen(&mut model(Some("shop")), 80, 8, "pods");
}

#[test]
fn pods_of_all_namespaces_with_all_values() {
    assert_screen(&mut model(None), 160, 8, "pods-wide");
}

#[test]
fn pods_on_a_narrow_terminal() {
    assert_screen(&mut model(None), 40, 8, "pods-narrow");
}

#[test]
fn nodes_at_80_columns() {
    let mut model = model(Some("shop"));
    press(&mut model, "1");
    assert_screen(&mut model, 80, 8, "nodes");
}

#[test]
fn vpas_at_80_columns() {
    let mut model = model(Some("shop"));
    press(&mut model, "3");
    assert_screen(&mut model, 80, 8, "vpas");
}

#[test]
fn rollouts_at_80_columns() {
    let mut model = model(Some("shop"));
    press(&mut model, "4");
    assert_screen(&mut model, 80, 8, "rollouts");
}

#[test]
fn the_details_of_a_pod() {
    let mut model = model(Some("shop"));
    press(&mut model, "<Enter>");
    let event = json!({
        "metadata": { "namespace": "shop", "name": "db.1" }, "involvedObject": {}, "reason": "ResizeWaits",
        "message": "other holds 3 cpu", "lastTimestamp": "2026-01-01T00:04:00Z",
    });
    update(&mut model, Event::OfPod(WatchEvent::Restarted(vec![serde_json::from_value(event).unwrap()])));
    assert_screen(&mut model, 80, 20, "pod-details");
}

#[test]
fn the_details_of_a_node() {
    let mut model = model(Some("shop"));
    press(&mut model, "1<Enter>");
    assert_screen(&mut model, 80, 20, "node-details");
}

#[test]
fn the_details_of_a_rollout() {
    let mut model = model(Some("shop"));
    press(&mut model, "4<Enter>");
    assert_screen(&mut model, 80, 8, "rollout-details");
}

#[test]
fn the_help_over_the_table() {
    let mut model = model(Some("shop"));
    press(&mut model, "?");
    assert_screen(&mut model, 80, 24, "help");
}

#[test]
fn the_dialog_of_a_resize() {
    let mut model = model(Some("shop"));
    press(&mut model, "rcpu=1");
    assert_screen(&mut model, 60, 12, "resize");
}

#[test]
fn a_terminal_that_is_too_small_says_so() {
    for (columns, rows) in [(19, 24), (80, 5), (1, 1)] {
        let shown = screen(&mut model(None), columns, rows);
        assert!("terminal too small".starts_with(&shown), "{shown}");
    }
    // Every other size shows something, whatever is open.
    for (columns, rows) in [(20, 6), (21, 7), (300, 100)] {
        for keys in ["", "?", "r", "<Enter>", "1<Enter>", "/x"] {
            let mut model = model(None);
            press(&mut model, keys);
            assert!(!screen(&mut model, columns, rows).is_empty(), "{columns}x{rows} {keys}");
        }
    }
}

#[test]
fn a_view_without_objects_says_why() {
    let mut model = Model::new(Tab::Pods, Some("shop".to_owned()), true, (80, 24));
    assert!(screen(&mut model, 80, 8).contains("reading …"));
    update(&mut model, Event::Pods(WatchEvent::Restarted(Vec::new())));
    assert!(screen(&mut model, 80, 8).contains("no pods in namespace shop; plumb top -A shows all"));
    press(&mut model, "3");
    update(&mut model, Event::Unreadable(Tab::Vpas, "not installed".to_owned()));
    assert!(screen(&mut model, 80, 8).contains("not installed"));
    update(&mut model, Event::Vpas(WatchEvent::Restarted(Vec::new())));
    assert!(screen(&mut model, 80, 8).contains("no VPAs in namespace shop"));
    let mut model = super::clusters::model(Some("shop"));
    press(&mut model, "/nothing");
    assert!(screen(&mut model, 80, 8).contains("nothing matches \"nothing\"; Esc removes the filter"));
}

#[test]
fn names_and_messages_of_others_cannot_act_on_the_terminal() {
    let hostile = "a\u{1b}[2J\u{1b}]0;x\u{7}\u{202e}\u{9b}31mb\r\nc";
    let mut model = model(Some("shop"));
    let message =
        json!([{ "type": "PodResizePending", "status": "True", "reason": "Deferred", "message": hostile }]);
    let mut odd = pod("aaa", ["2", "1"], message);
    odd.metadata.name = Some(hostile.to_owned());
    odd.spec.as_mut().unwrap().containers[0].name = hostile.to_owned();
    odd.spec.as_mut().unwrap().node_name = Some(hostile.to_owned());
    update(&mut model, Event::Pods(WatchEvent::Restarted(vec![odd])));
    let now = model.now;
    update(&mut model, Event::Tick { now, notice: Some(hostile.to_owned()) });
    for keys in ["", "<Enter>", "r", "<Esc><Esc>/\u{7}x"] {
        press(&mut model, keys);
        for columns in [40, 80, 200] {
            let shown = screen(&mut model, columns, 24);
            let acts = |letter: char| letter.is_control() && letter != '\n' || letter == '\u{202e}';
            assert!(!shown.contains(acts), "{keys:?}: {shown:?}");
            assert!(shown.contains("\\u{1b}"), "{keys:?}: {shown}");
        }
    }
}
