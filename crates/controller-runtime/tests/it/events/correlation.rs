//! The decisions alone.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use plumb_controller_runtime::events::{Action, Correlator, Emitted, EventType, NewEvent};
use proptest::prelude::*;
use tokio::time::Instant;

use super::pod;

const COMBINED: &str = "(combined from similar events): ";

/// A correlator and its clocks.
struct World {
    correlator: Correlator,
    start: Instant,
}

impl World {
    fn new() -> Self {
        Self { correlator: Correlator::default(), start: Instant::now() }
    }

    /// Emits an event this many seconds after the start, by the monotonic clock; the wall clock does not advance.
    fn emit(&mut self, seconds: u64, regarding: &ObjectReference, event: NewEvent) -> String {
        let emitted = Emitted { regarding: regarding.clone(), event, at: Timestamp::UNIX_EPOCH };
        match self.correlator.correlate(&emitted, self.start + Duration::from_secs(seconds)) {
            Action::Create(new) => {
                assert_eq!(new.count, 1);
                format!("create {} {}", new.name, new.message)
            }
            Action::Patch(known) => format!("patch {} x{} {}", known.name, known.count, known.message),
            Action::Filter => "filter".to_owned(),
        }
    }

    fn normal(&mut self, seconds: u64, reason: &'static str, message: impl Into<String>) -> String {
        self.emit(seconds, &pod("p"), NewEvent::normal(reason, message))
    }
}

#[test]
fn an_event_that_is_repeated_is_counted() {
    let mut world = World::new();
    assert_eq!(world.normal(0, "R", "a"), "create p.1 a");
    assert_eq!(world.normal(0, "R", "a"), "patch p.1 x2 a");
    assert_eq!(world.normal(3600, "R", "a"), "patch p.1 x3 a");
}

#[test]
fn an_event_that_differs_in_anything_but_the_version_of_its_object_is_another() {
    let mut world = World::new();
    let event = || NewEvent::normal("R", "a");
    assert_eq!(world.emit(0, &pod("p"), event()), "create p.1 a");
    let version = ObjectReference { resource_version: Some("8".into()), ..pod("p") };
    assert_eq!(world.emit(0, &version, event()), "patch p.1 x2 a");
    let others = [
        ObjectReference { field_path: Some("spec.containers{c}".into()), ..pod("p") },
        ObjectReference { uid: Some("another".into()), ..pod("p") },
        ObjectReference { kind: Some("Job".into()), ..pod("p") },
        ObjectReference { api_version: Some("v2".into()), ..pod("p") },
        ObjectReference { namespace: Some("m".into()), ..pod("p") },
    ];
    for (other, name) in others.into_iter().zip(["p.2", "p.3", "p.4", "p.5", "p.6"]) {
        assert_eq!(world.emit(0, &other, event()), format!("create {name} a"));
    }
    let others = [
        NewEvent::warning("R", "a"),
        NewEvent::normal("S", "a"),
        event().with_action("Binding"),
        event().with_related(pod("q")),
        event().with_related(pod("r")),
    ];
    for (other, name) in others.into_iter().zip(["p.7", "p.8", "p.9", "p.a", "p.b"]) {
        assert_eq!(world.emit(0, &pod("p"), other), format!("create {name} a"));
    }
}

#[test]
fn the_tenth_similar_event_and_all_further_ones_share_one() {
    let mut world = World::new();
    for number in 1..=9 {
        assert_eq!(world.normal(0, "R", number.to_string()), format!("create p.{number} {number}"));
    }
    assert_eq!(world.normal(0, "R", "10"), format!("create p.a {COMBINED}10"));
    assert_eq!(world.normal(0, "R", "11"), format!("patch p.a x2 {COMBINED}11"));
    assert_eq!(world.normal(0, "R", "3"), "patch p.3 x2 3", "it has one of its own already");
    assert_eq!(world.normal(0, "other", "12"), "create p.b 12");
    assert_eq!(
        world.normal(600, "R", "13"),
        format!("patch p.a x3 {COMBINED}13"),
        "ten minutes are not over"
    );
    assert_eq!(world.normal(1201, "R", "14"), "create p.c 14");
}

#[test]
fn an_object_causes_25_events_at_once_and_one_more_every_5_minutes() {
    let mut world = World::new();
    for count in 1..=25 {
        let written = world.normal(0, "R", "a");
        assert_eq!(written == "create p.1 a", count == 1, "{written}");
    }
    assert_eq!(world.normal(299, "R", "a"), "filter");
    assert_eq!(world.normal(299, "other", "b"), "filter", "whatever it is");
    assert_eq!(
        world.emit(299, &pod("q"), NewEvent::normal("R", "a")),
        "create q.3 a",
        "others are not filtered"
    );
    assert_eq!(world.normal(300, "R", "a"), "patch p.1 x27 a", "what was filtered counts");
    assert_eq!(world.normal(300, "R", "a"), "filter");
    let burst = (0..30).filter(|_| world.normal(100_000, "R", "a") != "filter").count();
    assert_eq!(burst, 25, "no more than that is saved up");
}

#[test]
fn no_event_is_written_about_an_object_whose_namespace_terminates() {
    let mut world = World::new();
    assert_eq!(world.normal(0, "R", "a"), "create p.1 a");
    world.correlator.namespace_terminates("uid of p");
    assert_eq!(world.normal(0, "R", "a"), "filter");
    let later = ObjectReference { uid: Some("a later one of the same name".into()), ..pod("p") };
    assert_eq!(world.emit(0, &later, NewEvent::normal("R", "a")), "create p.2 a");
}

#[test]
fn an_event_about_an_object_with_the_longest_name_has_a_valid_one() {
    let mut world = World::new();
    let long = ObjectReference { name: Some("x".repeat(253)), ..pod("p") };
    assert_eq!(world.emit(0, &long, NewEvent::normal("R", "a")), "create uid of p.1 a");
}

#[test]
fn events_that_were_emitted_long_ago_are_forgotten() {
    let mut world = World::new();
    let emit =
        |world: &mut World, number: u32| world.emit(0, &pod(&number.to_string()), NewEvent::normal("R", "a"));
    for number in 0..2048 {
        assert!(emit(&mut world, number).starts_with("create"));
    }
    assert!(emit(&mut world, 0).starts_with("patch"), "2048 are remembered at least");
    for number in 2048..6144 {
        emit(&mut world, number);
    }
    assert!(emit(&mut world, 1).starts_with("create"), "4096 are remembered at most");
    assert!(emit(&mut world, 6143).starts_with("patch"));
}

proptest! {
    /// However events come, an object causes no more writes than its bucket has tokens, a patch is of an event that was created or
    /// filtered, and its count never falls.
    #[test]
    fn no_object_floods_the_api(
        events in prop::collection::vec((0_u64..400, 0_u8..2, 0_u8..3, 0_u8..15), 1..200),
    ) {
        let mut world = World::new();
        let (mut now, mut written) = (0, [0_u64; 2]);
        let mut counts = std::collections::HashMap::new();
        for (passed, object, reason, message) in events {
            now += passed;
            let type_ = if reason == 0 { EventType::Warning } else { EventType::Normal };
            let event = NewEvent::new(type_, ["A", "B", "C"][usize::from(reason)], message.to_string());
            let emitted = Emitted { regarding: pod(&object.to_string()), event, at: Timestamp::UNIX_EPOCH };
            let action = world.correlator.correlate(&emitted, world.start + Duration::from_secs(now));
            if let Action::Create(observed) | Action::Patch(observed) = action {
                written[usize::from(object)] += 1;
                let before = counts.insert(observed.name.clone(), observed.count).unwrap_or(0);
                prop_assert!(observed.count > before, "{observed:?} after {before}");
            }
            prop_assert!(written.iter().all(|written| *written <= 25 + now / 300), "{written:?} after {now} s");
        }
    }
}
