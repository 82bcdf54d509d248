//! How `--feature-gates` is read.

use plumb_features::{ALL_ALPHA, Feature, FeatureError, FeatureGates, KnownFeatures, Stage};
use proptest::prelude::*;

const fn feature(name: &'static str, stage: Stage, default: bool, locked: bool) -> Feature {
    Feature { name, stage, default, locked, since: "Kubernetes 1.36", doc: "is for tests" }
}

const ALPHA: Feature = feature("AnAlpha", Stage::Alpha, false, false);
const OTHER_ALPHA: Feature = feature("OtherAlpha", Stage::Alpha, false, false);
const BETA: Feature = feature("ABeta", Stage::Beta, true, false);
const GA: Feature = feature("Stable", Stage::Ga, true, false);
const LOCKED: Feature = feature("Locked", Stage::Ga, true, true);
const OLD: Feature = feature("Old", Stage::Deprecated, false, true);
const ALL: [&Feature; 6] = [&ALPHA, &OTHER_ALPHA, &BETA, &GA, &LOCKED, &OLD];

fn known() -> KnownFeatures {
    KnownFeatures::new(ALL)
}

/// The gates that are on, but for `AllAlpha` and `AllBeta`.
fn on(gates: &FeatureGates) -> Vec<&'static str> {
    let on: Vec<_> =
        known().iter().filter(|feature| gates.enabled(feature)).map(|feature| feature.name).collect();
    on.into_iter().filter(|name| !name.starts_with("All")).collect()
}

#[test]
fn a_list_overrides_the_defaults() {
    let table: [(&str, &[&str]); 10] = [
        ("", &["ABeta", "Locked", "Stable"]),
        (" , ,", &["ABeta", "Locked", "Stable"]),
        ("AnAlpha=true", &["ABeta", "AnAlpha", "Locked", "Stable"]),
        (" AnAlpha = T , ABeta=0 ", &["AnAlpha", "Locked", "Stable"]),
        ("Stable=false,Stable=true", &["ABeta", "Locked", "Stable"]),
        ("Locked=true,Old=false", &["ABeta", "Locked", "Stable"]),
        ("AllAlpha=true", &["ABeta", "AnAlpha", "Locked", "OtherAlpha", "Stable"]),
        // A gate that is named itself has precedence, in whichever order.
        ("AnAlpha=false,AllAlpha=true", &["ABeta", "Locked", "OtherAlpha", "Stable"]),
        ("AllAlpha=true,AnAlpha=false", &["ABeta", "Locked", "OtherAlpha", "Stable"]),
        ("AllBeta=false", &["Locked", "Stable"]),
    ];
    for (text, expected) in table {
        let gates = known().parse(text).unwrap();
        assert_eq!(on(&gates), expected, "{text:?}");
        let again = known().parse(&known().list(&gates)).unwrap();
        assert_eq!(on(&again), expected, "{text:?} written and read again");
    }
}

#[test]
fn an_invalid_list_is_rejected_with_the_message_of_component_base() {
    for (text, expected) in [
        (
            "Nope=true",
            "unrecognized feature gate: Nope; known are ABeta, AllAlpha, AllBeta, AnAlpha, Locked, Old, OtherAlpha, Stable",
        ),
        ("AnAlpha", "missing bool value for AnAlpha"),
        ("AnAlpha=", "invalid value of AnAlpha=, err: strconv.ParseBool: parsing \"\": invalid syntax"),
        ("ABeta=yes", "invalid value of ABeta=yes, err: strconv.ParseBool: parsing \"yes\": invalid syntax"),
        ("Locked=false", "cannot set feature gate Locked to false, feature is locked to true"),
        ("Old=true", "cannot set feature gate Old to true, feature is locked to false"),
    ] {
        assert_eq!(known().parse(text).unwrap_err().to_string(), expected);
    }
}

#[test]
fn gates_of_another_version_are_parsed_leniently() {
    let (gates, refused) =
        known().parse_lenient("ABeta=false,NewerGate=true,Locked=false,AnAlpha=maybe,AllAlpha=true");
    assert_eq!(on(&gates), ["AnAlpha", "Locked", "OtherAlpha", "Stable"]);
    assert_eq!(refused.len(), 3, "{refused:?}");
    assert!(matches!(&refused[0], FeatureError::InvalidValue { name, .. } if name == "AnAlpha"));
}

#[test]
fn a_flag_overrides_gate_by_gate() {
    let cluster = known().parse("ABeta=false,AnAlpha=true").unwrap();
    let flag = known().parse("AnAlpha=false").unwrap();
    assert_eq!(on(&cluster.overridden_by(&flag)), ["Locked", "Stable"]);
}

#[test]
fn a_gate_is_listed_as_component_base_does() {
    assert_eq!(ALL_ALPHA.to_string(), "AllAlpha=true|false (ALPHA - default=false)");
    assert_eq!(GA.to_string(), "Stable=true|false (GA - default=true)");
    assert_eq!((Stage::Ga.label(), Stage::Deprecated.label()), ("", "DEPRECATED"));
}

proptest! {
    #[test]
    fn no_text_panics_and_parsed_gates_survive_formatting(text in "[A-Za-z=,01 ]{0,40}") {
        if let Ok(gates) = known().parse(&text) {
            prop_assert_eq!(on(&known().parse(&known().list(&gates)).unwrap()), on(&gates));
        }
        known().parse_lenient(&text);
    }

    #[test]
    fn a_locked_gate_never_leaves_its_default(values in proptest::collection::vec((0..8_usize, any::<bool>()), 0..8)) {
        let names: Vec<&str> = known().iter().map(|feature| feature.name).collect();
        let text: Vec<String> = values.iter().map(|(i, on)| format!("{}={on}", names[*i])).collect();
        let (gates, _) = known().parse_lenient(&text.join(","));
        prop_assert!(gates.enabled(&LOCKED) && !gates.enabled(&OLD));
        prop_assert!(gates.with(&LOCKED, false).enabled(&LOCKED));
    }
}
