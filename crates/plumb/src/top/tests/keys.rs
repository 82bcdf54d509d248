//! What keys do.

use k8s_openapi::api::core::v1::Pod;
use plumb_controller_runtime::{ObjectRef, WatchEvent};
use plumb_resize::status::Stage;
use serde_json::json;

use super::super::Tab;
use super::super::dialog::Step;
use super::super::event::{Effect, Event, ResizeRequest};
use super::super::model::{Front, Model};
use super::super::update::update;
use super::clusters::{model, pod};
use super::{press, screen};

/// The name of the selected object.
fn selected(model: &mut Model) -> String {
    model.refresh();
    model.selected().map(|row| row.key.object.name.clone()).unwrap_or_default()
}

fn names(model: &mut Model) -> String {
    model.refresh();
    let names: Vec<&str> = model.table.rows.iter().map(|row| row.key.object.name.as_str()).collect();
    names.join(" ")
}

#[test]
fn numbers_and_tab_choose_the_view() {
    for (keys, expected) in [
        ("1", Tab::Nodes),
        ("3", Tab::Vpas),
        ("4", Tab::Rollouts),
        ("4<Tab>", Tab::Nodes),
        ("1<BackTab>", Tab::Rollouts),
        ("<Tab><Tab>2", Tab::Pods),
    ] {
        let mut model = model(None);
        assert!(press(&mut model, keys).is_empty());
        assert_eq!(model.tab, expected, "{keys}");
    }
}

#[test]
fn arrows_select_a_row_and_stay_within_the_table() {
    for (keys, expected) in [
        ("", "other"),
        ("j", "db"),
        ("<Down><Down>", "web"),
        ("jjjjjj", "web"),
        ("jjk", "db"),
        ("kkk", "other"),
        ("G", "web"),
        ("<End>g", "other"),
        ("<PgDn>", "web"),
    ] {
        let mut model = model(None);
        press(&mut model, keys);
        assert_eq!(selected(&mut model), expected, "{keys}");
    }
}

#[test]
fn a_filter_is_written_kept_and_removed() {
    for (keys, expected, is_filtering) in [
        ("/we", "web", true),
        ("/we<Enter>", "web", false),
        ("/we<Enter><Esc>", "other db web", false),
        ("/we<Esc>", "other db web", false),
        ("/wx<Backspace>", "web", true),
        ("/xx<Ctrl-U>db", "db", true),
        ("/shop<Enter>", "db web", false),
        ("/deferred<Enter>", "db", false),
    ] {
        let mut model = model(None);
        assert!(press(&mut model, keys).is_empty(), "{keys}");
        assert_eq!(
            (names(&mut model).as_str(), model.front == Front::Filter),
            (expected, is_filtering),
            "{keys}"
        );
    }
}

#[test]
fn s_sorts_by_one_column_after_the_other_and_capital_s_reverses() {
    // NAMESPACE, POD, CONTAINER, CPU, USED, …
    for (keys, expected) in [
        ("", "other db web"),
        ("S", "web db other"),
        ("ss", "db other web"),
        ("ssS", "web other db"),
        ("ssss", "other db web"),
        ("sssss", "web other db"),
        ("sssssS", "web other db"),
        ("ssssssssss", "other db web"),
    ] {
        let mut model = model(None);
        press(&mut model, keys);
        assert_eq!(names(&mut model), expected, "{keys}");
    }
}

#[test]
fn the_selected_object_stays_selected_wherever_its_row_is() {
    let mut model = model(None);
    press(&mut model, "j");
    let earlier = pod("aaa", ["1", "1"], json!([]));
    update(&mut model, Event::Pods(WatchEvent::Applied(Box::new(earlier))));
    assert_eq!((names(&mut model).as_str(), selected(&mut model).as_str()), ("other aaa db web", "db"));
    // The next row takes its place when it is deleted.
    update(&mut model, Event::Pods(WatchEvent::Deleted(ObjectRef::namespaced("shop", "db"))));
    assert_eq!(selected(&mut model), "web");
    // The first row stays selected as long as no other was.
    let mut model = super::clusters::model(Some("shop"));
    let earlier = pod("aaa", ["1", "1"], json!([]));
    update(&mut model, Event::Pods(WatchEvent::Applied(Box::new(earlier))));
    assert_eq!(selected(&mut model), "aaa");
}

#[test]
fn q_quits_and_ctrl_c_quits_wherever_it_is_pressed() {
    for keys in ["q", "<Enter>q", "<Ctrl-C>", "/<Ctrl-C>", "r<Ctrl-C>", "?<Ctrl-C>"] {
        assert_eq!(press(&mut model(None), keys).last(), Some(&Effect::Quit), "{keys}");
    }
    // In a text it is a letter; over the help it closes the help.
    for keys in ["/q", "rq", "?q"] {
        assert!(press(&mut model(None), keys).is_empty(), "{keys}");
    }
    assert_eq!(update(&mut model(None), Event::Terminate), [Effect::Quit]);
}

#[test]
fn the_events_about_a_pod_are_watched_while_its_details_are_shown() {
    let mut model = model(Some("shop"));
    let effects = press(&mut model, "<Enter>");
    assert!(
        matches!(&effects[..], [Effect::WatchEvents(pod)] if pod.metadata.uid.as_deref() == Some("uid-db")),
        "{effects:?}"
    );
    // An update of the pod changes nothing about that, another pod of the same name does.
    let mut again = pod("db", ["2", "2"], json!([]));
    assert!(update(&mut model, Event::Pods(WatchEvent::Applied(Box::new(again.clone())))).is_empty());
    again.metadata.uid = Some("other".to_owned());
    let effects = update(&mut model, Event::Pods(WatchEvent::Applied(Box::new(again))));
    assert!(matches!(&effects[..], [Effect::WatchEvents(_)]), "{effects:?}");
    assert_eq!(press(&mut model, "<Esc>"), [Effect::Unwatch]);
    assert!(model.detail.is_none());
}

#[test]
fn the_pods_of_a_vpa_are_read_once_and_then_once_a_second_if_something_has_changed() {
    let mut model = model(Some("shop"));
    let effects = press(&mut model, "3<Enter>");
    assert!(matches!(&effects[..], [Effect::ReadVpa(_)]), "{effects:?}");
    let tick = |model: &mut Model| update(model, Event::Tick { now: model.now, notice: None });
    assert!(tick(&mut model).is_empty());
    let mut other = pod("other", ["1", "1"], json!([]));
    other.metadata.namespace = Some("back".to_owned());
    update(&mut model, Event::Pods(WatchEvent::Applied(Box::new(other))));
    assert!(tick(&mut model).is_empty(), "it is a pod of another namespace");
    for _ in 0..3 {
        let changed = pod("web", ["1", "1"], json!([]));
        assert!(update(&mut model, Event::Pods(WatchEvent::Applied(Box::new(changed)))).is_empty());
    }
    assert!(matches!(&tick(&mut model)[..], [Effect::ReadVpa(_)]));
    assert!(tick(&mut model).is_empty());
}

/// The pod as the API server returns it from a resize.
fn resized(cpu: &str) -> Box<Pod> {
    Box::new(pod("web", [cpu, "100m"], json!([])))
}

#[test]
fn a_resize_is_checked_by_a_dry_run_and_requested_only_when_it_is_confirmed() {
    let mut model = model(Some("shop"));
    let effects = press(&mut model, "jrcpu=300m<Enter>");
    let [Effect::Resize(dry)] = &effects[..] else { panic!("{effects:?}") };
    let amounts = json!({ "cpu": "300m" });
    let container = json!({ "name": "app", "resources": { "requests": amounts, "limits": amounts } });
    let patch = json!({ "metadata": { "uid": "uid-web" }, "spec": { "containers": [container] } });
    let pod = ObjectRef::namespaced("shop", "web");
    assert_eq!(*dry, ResizeRequest { pod, patch, is_dry_run: true });
    // Nothing is confirmed before there is an answer.
    assert!(press(&mut model, "y<Enter>").is_empty());
    let answer = Event::Resized { request: dry.clone(), response: Ok(resized("300m")) };
    assert!(update(&mut model, answer).is_empty());
    let shown = screen(&mut model, 80, 24);
    for line in ["app cpu 100m/100m → 300m/300m", "free on node n1: cpu 0m, memory 7.81Gi", "Resize? y/n"] {
        assert!(shown.contains(line), "{shown}");
    }
    assert!(press(&mut model, "x<Enter>").is_empty(), "only y confirms");
    let request = ResizeRequest { is_dry_run: false, ..dry.clone() };
    assert_eq!(press(&mut model, "y"), [Effect::Resize(request.clone())]);
    assert!(press(&mut model, "y").is_empty(), "once");
    update(&mut model, Event::Resized { request, response: Ok(resized("300m")) });
    assert!(model.dialog.is_none());
    let message = model.message.clone().unwrap();
    assert_eq!(message, format!("pod/web asked for: {}", Stage::Proposed));
}

#[test]
fn a_resize_that_is_refused_or_declined_can_be_written_again() {
    let mut model = model(Some("shop"));
    assert!(press(&mut model, "jrmemory=64<Enter>").is_empty(), "it is refused here");
    assert!(screen(&mut model, 80, 24).contains("that is less than 1Mi"));
    let effects = press(&mut model, "<Backspace><Backspace>1Gi<Enter>");
    let [Effect::Resize(dry)] = &effects[..] else { panic!("{effects:?}") };
    let refusal = Err("exceeded quota".to_owned());
    update(&mut model, Event::Resized { request: dry.clone(), response: refusal });
    assert!(screen(&mut model, 80, 24).contains("exceeded quota"));
    let effects = press(&mut model, "<Enter>");
    let [Effect::Resize(dry)] = &effects[..] else { panic!("{effects:?}") };
    update(&mut model, Event::Resized { request: dry.clone(), response: Ok(resized("100m")) });
    assert!(press(&mut model, "n").is_empty());
    assert!(model.dialog.as_ref().is_some_and(|dialog| dialog.step == Step::Editing { error: None }));
    press(&mut model, "<Esc>");
    assert!(model.dialog.is_none());
    // A late answer is of no interest any more.
    update(&mut model, Event::Resized { request: dry.clone(), response: Ok(resized("100m")) });
    assert!(model.dialog.is_none() && model.message.is_none());
}

#[test]
fn only_pods_are_resized() {
    let mut model = model(Some("shop"));
    press(&mut model, "1r");
    assert!(model.dialog.is_none());
    assert_eq!(model.message.as_deref(), Some("r resizes a pod: 2 shows pods"));
    press(&mut model, "2<Enter>r");
    assert!(model.dialog.is_some(), "from its details, too");
}
