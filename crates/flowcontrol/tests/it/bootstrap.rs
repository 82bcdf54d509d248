use plumb_flowcontrol::bootstrap::{
    AUTOUPDATE, BootstrapObject, is_obsolete, levels, mandatory_levels, mandatory_schemas, mandatory_spec,
    revised, schemas,
};
use plumb_flowcontrol::level::Level;
use plumb_flowcontrol::schema::Schema;
use serde_json::{Value, json};

fn find(all: Vec<BootstrapObject>, name: &str) -> BootstrapObject {
    all.into_iter().find(|boot| boot.object["metadata"]["name"] == name).unwrap()
}

fn stored(boot: &BootstrapObject) -> Value {
    let mut object = boot.object.clone();
    object["metadata"]["generation"] = json!(1);
    object
}

#[test]
fn every_schema_refers_to_a_level_and_all_are_valid() {
    let names: Vec<String> = levels()
        .into_iter()
        .map(|boot| Level::new(&serde_json::from_value(boot.object).unwrap()).unwrap().name)
        .collect();
    assert_eq!(names.len(), 8);
    for boot in schemas() {
        let schema = Schema::new(&serde_json::from_value(boot.object).unwrap()).unwrap();
        assert!(names.contains(&schema.level), "{}", schema.name);
    }
    assert_eq!(schemas().len(), 11);
    assert_eq!((mandatory_levels().len(), mandatory_schemas().len()), (2, 2));
    assert!(mandatory_spec("FlowSchema", "exempt").is_some());
    assert!(mandatory_spec("FlowSchema", "global-default").is_none());
}

#[test]
fn a_mandatory_spec_is_always_restored() {
    let boot = find(levels(), "catch-all");
    let mut object = stored(&boot);
    assert_eq!(revised(&object, &boot), None);
    object["spec"]["limited"]["nominalConcurrencyShares"] = json!(50);
    object["metadata"]["annotations"][AUTOUPDATE] = json!("false");
    let revised = revised(&object, &boot).unwrap();
    assert_eq!(revised["spec"], boot.object["spec"]);
    assert_eq!(revised["metadata"]["annotations"][AUTOUPDATE], "true");
    assert_eq!(revised["metadata"]["generation"], 2);
}

#[test]
fn the_shares_of_the_exempt_level_are_up_to_the_administrator() {
    let boot = find(levels(), "exempt");
    let mut object = stored(&boot);
    object["spec"]["exempt"]["nominalConcurrencyShares"] = json!(7);
    assert_eq!(revised(&object, &boot), None);
}

#[test]
fn a_suggested_spec_is_restored_unless_a_user_has_taken_it_over() {
    let boot = find(levels(), "system");
    let changed = |generation: i64, annotation: Option<&str>| {
        let mut object = stored(&boot);
        object["spec"]["limited"]["nominalConcurrencyShares"] = json!(50);
        object["metadata"]["generation"] = json!(generation);
        match annotation {
            Some(annotation) => object["metadata"]["annotations"][AUTOUPDATE] = json!(annotation),
            None => {
                object["metadata"].as_object_mut().unwrap().remove("annotations");
            }
        }
        object
    };
    let shares = |object: &Value| object["spec"]["limited"]["nominalConcurrencyShares"].clone();
    for (generation, annotation, expected, expected_annotation) in [
        (3, Some("true"), Some(30), "true"),
        (3, Some("false"), None, "false"),
        (1, None, Some(30), "true"),
        (1, Some("what"), Some(30), "true"),
        (2, None, Some(50), "false"),
    ] {
        let revised = revised(&changed(generation, annotation), &boot);
        assert_eq!(revised.as_ref().map(shares), expected.map(|shares| json!(shares)), "{annotation:?}");
        if let Some(revised) = revised {
            assert_eq!(revised["metadata"]["annotations"][AUTOUPDATE], expected_annotation);
        }
    }
}

#[test]
fn only_objects_that_an_earlier_server_maintained_are_obsolete() {
    let wanted = levels();
    let named = |name: &str, annotation: &str| json!({ "metadata": { "name": name, "annotations": { AUTOUPDATE: annotation } } });
    assert!(is_obsolete(&named("old", "true"), &wanted));
    assert!(!is_obsolete(&named("old", "false"), &wanted));
    assert!(!is_obsolete(&named("old", "what"), &wanted));
    assert!(!is_obsolete(&named("system", "true"), &wanted));
    assert!(!is_obsolete(&json!({ "metadata": { "name": "mine" } }), &wanted));
}
