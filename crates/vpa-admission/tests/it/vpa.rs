//! What is wrong with VPAs: upstream's table, with upstream's texts.

use plumb_vpa_admission::vpa::{Gates, Verdict};
use plumb_vpa_api::VerticalPodAutoscalerSpec;
use serde_json::{Value, json};

const ON: Gates = Gates { startup_boost: true, in_place: true, per_vpa_config: true };
const OFF: Gates = Gates { startup_boost: false, in_place: false, per_vpa_config: false };

fn spec(spec: &Value) -> VerticalPodAutoscalerSpec {
    let mut spec = spec.clone();
    spec["targetRef"] = json!({ "kind": "Deployment", "name": "web" });
    serde_json::from_value(spec).unwrap()
}

fn errors(of: &Value, old: Option<&Value>, gates: Gates) -> Vec<String> {
    let old = old.map(spec);
    Verdict::new(&spec(of), old.as_ref(), gates).errors.iter().map(ToString::to_string).collect()
}

fn policy(policy: Value) -> Value {
    let mut policy = policy;
    policy.as_object_mut().unwrap().entry("containerName").or_insert(json!("loot box"));
    json!({ "resourcePolicy": { "containerPolicies": [policy] } })
}

fn boost(cpu: Value) -> Value {
    json!({ "startupBoost": { "cpu": cpu } })
}

#[test]
fn invalid_vpas_are_refused_with_upstreams_messages() {
    let at = "spec.resourcePolicy.containerPolicies[0]";
    let startup_boost_off = "Forbidden: in order to use startupBoost, you must enable feature gate CPUStartupBoost in the \
                             admission-controller args";
    let mode = |mode: &str| json!({ "updatePolicy": { "updateMode": mode } });
    for (spec, gates, expected) in [
        (
            json!({ "updatePolicy": { "minReplicas": 1 } }),
            ON,
            "spec.updatePolicy.updateMode: Required value: updateMode is required if UpdatePolicy is used".to_owned(),
        ),
        (
            mode("bad"),
            ON,
            "spec.updatePolicy.updateMode: Unsupported value: \"bad\": supported values: \"InPlace\", \
             \"InPlaceOrRecreate\", \"Initial\", \"Off\", \"Recreate\""
                .to_owned(),
        ),
        (
            mode("InPlace"),
            OFF,
            "spec.updatePolicy.updateMode: Forbidden: in order to use UpdateMode InPlace, you must enable feature gate \
             InPlace in the admission-controller args"
                .to_owned(),
        ),
        (
            json!({ "updatePolicy": { "updateMode": "Off", "minReplicas": 0 } }),
            ON,
            "spec.updatePolicy.minReplicas: Invalid value: 0: minReplicas has to be positive".to_owned(),
        ),
        (
            json!({ "updatePolicy": { "updateMode": "Off", "evictAfterOOMSeconds": 0 } }),
            ON,
            "spec.updatePolicy.evictAfterOOMSeconds: Invalid value: 0: must be greater than or equal to 1".to_owned(),
        ),
        (
            json!({ "updatePolicy": { "updateMode": "Off", "evictAfterOOMSeconds": 5 } }),
            OFF,
            "spec.updatePolicy.evictAfterOOMSeconds: Forbidden: not supported when feature flag PerVPAConfig is disabled"
                .to_owned(),
        ),
        (policy(json!({ "containerName": "" })), ON, format!("{at}.containerName: Required value")),
        (
            policy(json!({ "mode": "bad" })),
            ON,
            format!("{at}.mode: Unsupported value: \"bad\": supported values: \"Auto\", \"Off\""),
        ),
        (
            json!({ "recommenders": [{ "name": "a" }, { "name": "b" }] }),
            ON,
            "spec.recommenders: Too many: 2: must have at most 1 item".to_owned(),
        ),
        (
            policy(json!({ "minAllowed": { "cpu": "100" }, "maxAllowed": { "cpu": "10" } })),
            ON,
            format!("{at}.maxAllowed[cpu]: Invalid value: \"10\": max resource for cpu is lower than min of \"100\""),
        ),
        (
            policy(json!({ "minAllowed": { "cpu": "187500u" } })),
            ON,
            format!("{at}.minAllowed[cpu]: Invalid value: \"187500u\": must be a whole number of milli CPUs"),
        ),
        (
            policy(json!({ "minAllowed": { "memory": "100m" } })),
            ON,
            format!("{at}.minAllowed[memory]: Invalid value: \"100m\": must be a whole number of bytes"),
        ),
        (
            policy(json!({ "maxAllowed": { "memory": "500m" } })),
            ON,
            format!("{at}.maxAllowed[memory]: Invalid value: \"500m\": must be a whole number of bytes"),
        ),
        (
            policy(json!({ "mode": "Off", "controlledValues": "RequestsAndLimits" })),
            ON,
            format!("{at}.controlledValues: Forbidden: controlledValues shouldn't be specified if container scaling mode is off"),
        ),
        (
            policy(json!({ "controlledResources": ["cpu", "broken"] })),
            ON,
            format!("{at}.controlledResources[1]: Unsupported value: \"broken\": supported values: \"cpu\", \"memory\""),
        ),
        (
            policy(json!({ "oomBumpUpRatio": "-1" })),
            ON,
            format!("{at}.oomBumpUpRatio: Invalid value: -1: must be greater than or equal to 1.0"),
        ),
        (
            policy(json!({ "oomBumpUpRatio": "0.5" })),
            ON,
            format!("{at}.oomBumpUpRatio: Invalid value: 0.5: must be greater than or equal to 1.0"),
        ),
        (
            policy(json!({ "oomBumpUpRatio": "2" })),
            OFF,
            format!("{at}.oomBumpUpRatio: Forbidden: not supported when feature flag PerVPAConfig is disabled"),
        ),
        (
            policy(json!({ "oomMinBumpUp": "-1" })),
            ON,
            format!("{at}.oomMinBumpUp: Invalid value: -1: must be greater than or equal to 0"),
        ),
        (
            policy(json!({ "memoryAggregationIntervalSeconds": -5 })),
            ON,
            format!("{at}.memoryAggregationIntervalSeconds: Invalid value: -5: must be greater than or equal to 1"),
        ),
        (
            policy(json!({ "memoryAggregationIntervalCount": 3 })),
            OFF,
            format!("{at}.memoryAggregationIntervalCount: Forbidden: not supported when feature flag PerVPAConfig is disabled"),
        ),
        (boost(json!({ "type": "Factor", "factor": 2 })), OFF, format!("spec.startupBoost: {startup_boost_off}")),
        (
            policy(json!({ "startupBoost": {} })),
            OFF,
            format!("{at}.startupBoost: {startup_boost_off}"),
        ),
        (
            boost(json!({ "type": "Factor", "factor": 0 })),
            ON,
            "spec.startupBoost.cpu.factor: Invalid value: 0: must be >= 1 for type Factor".to_owned(),
        ),
        (
            policy(json!({ "startupBoost": { "cpu": { "type": "Factor", "factor": -1 } } })),
            ON,
            format!("{at}.startupBoost.cpu.factor: Invalid value: -1: must be >= 1 for type Factor"),
        ),
        (
            boost(json!({ "type": "Factor" })),
            ON,
            "spec.startupBoost.cpu.factor: Required value: required when type is Factor".to_owned(),
        ),
        (
            boost(json!({ "type": "Quantity" })),
            ON,
            "spec.startupBoost.cpu.quantity: Required value: required when type is Quantity".to_owned(),
        ),
        (
            boost(json!({ "type": "Quantity", "quantity": "500u" })),
            ON,
            "spec.startupBoost.cpu.quantity: Invalid value: \"500u\": must be a whole number of milli CPUs".to_owned(),
        ),
        (
            boost(json!({ "type": "Quantity", "quantity": 0 })),
            ON,
            "spec.startupBoost.cpu.quantity: Invalid value: \"0\": must be greater than 0".to_owned(),
        ),
        (
            boost(json!({ "type": "Quantity", "quantity": "-1" })),
            ON,
            "spec.startupBoost.cpu.quantity: Invalid value: \"-1\": must be greater than 0".to_owned(),
        ),
        (
            boost(json!({ "type": "bad", "factor": 2 })),
            ON,
            "spec.startupBoost.cpu.type: Unsupported value: \"bad\": supported values: \"Factor\", \"Quantity\"".to_owned(),
        ),
        (
            boost(json!({ "type": "" })),
            ON,
            "spec.startupBoost.cpu.type: Required value: must be either Factor or Quantity".to_owned(),
        ),
        (
            boost(json!({ "type": "Factor", "factor": 2, "durationSeconds": -1 })),
            ON,
            "spec.startupBoost.cpu.durationSeconds: Invalid value: -1: must be greater than or equal to 0".to_owned(),
        ),
    ] {
        assert_eq!(errors(&spec, None, gates), [expected]);
    }
}

#[test]
fn valid_objects_are_taken_and_what_an_old_one_has_stays_allowed() {
    let full = json!({
        "updatePolicy": { "updateMode": "InPlace", "minReplicas": 1, "evictAfterOOMSeconds": 300 },
        "resourcePolicy": { "containerPolicies": [{
            "containerName": "*", "mode": "Auto", "minAllowed": { "cpu": "10m" }, "maxAllowed": { "cpu": "10", "other": "1m" },
            "controlledValues": "RequestsAndLimits", "oomBumpUpRatio": "1.5", "oomMinBumpUp": 0,
            "startupBoost": { "cpu": { "type": "Quantity", "quantity": "500m" } },
        }] },
        "startupBoost": { "cpu": { "type": "Factor", "factor": 1 } },
    });
    assert_eq!(errors(&full, None, ON), [""; 0]);
    assert_eq!(errors(&full, Some(&full), OFF), [""; 0]);
    assert_eq!(errors(&full, Some(&json!({})), OFF).len(), 6);
    assert_eq!(errors(&json!({ "startupBoost": {} }), None, ON), [""; 0]);
}

#[test]
fn a_user_is_warned_of_what_is_deprecated() {
    let auto = spec(&json!({ "updatePolicy": { "updateMode": "Auto" } }));
    assert_eq!(
        Verdict::new(&auto, None, ON).warnings,
        [
            "spec.updatePolicy: \"Auto\" mode is deprecated and will be removed in a future API version. Use explicit update \
          modes like: [InPlace InPlaceOrRecreate Initial Off Recreate]. See \
          https://github.com/kubernetes/autoscaler/issues/8424 for more details."
        ]
    );
    let broken = policy(json!({ "controlledResources": ["cpu", "broken"] }));
    let verdict = Verdict::new(&spec(&broken), Some(&spec(&broken)), ON);
    assert_eq!(verdict.errors, []);
    assert_eq!(
        verdict.warnings,
        [
            "spec.resourcePolicy.containerPolicies[0].controlledResources[1]: unsupported value \"broken\" is allowed only \
          because it is present in the existing VPA object; supported values: \"cpu\", \"memory\""
        ]
    );
}

#[test]
fn the_default_update_mode_is_filled_in() {
    let operations = |spec_json: &Value| {
        serde_json::to_value(Verdict::new(&spec(spec_json), None, ON).operations).unwrap()
    };
    assert_eq!(
        operations(&json!({})),
        json!([{ "op": "add", "path": "/spec/updatePolicy", "value": { "updateMode": "Recreate" } }])
    );
    assert_eq!(operations(&json!({ "updatePolicy": { "updateMode": "Off" } })), json!([]));
    assert_eq!(operations(&policy(json!({ "mode": "bad" }))), json!([]), "nothing of what is refused");
}
