//! The pod failure policy and the success policy of a Job.

use k8s_openapi::api::batch::v1::{
    PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
    SuccessPolicy,
};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodCondition};
use kube::ResourceExt as _;

use super::indexes::Indexes;

/// The action of the pod failure policy for a failed pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The failure counts toward the backoff limit.
    Counts,
    /// The failure counts, and its index has failed.
    FailsIndex,
    /// The failure does not count.
    Ignored,
    /// The Job fails, with this message.
    FailsJob(String),
}

/// The action of the first matching rule of a policy for a failed pod.
pub fn meaning(policy: Option<&PodFailurePolicy>, pod: &Pod) -> Meaning {
    let rules = policy.into_iter().flat_map(|policy| &policy.rules).enumerate();
    for (at, rule) in rules {
        let matched = match (&rule.on_exit_codes, &rule.on_pod_conditions) {
            (Some(wanted), _) => exited(pod, wanted).map(|(container, code)| {
                let name = pod.name_any();
                let namespace = pod.namespace().unwrap_or_default();
                let container = &container.name;
                format!("Container {container} for pod {namespace}/{name} failed with exit code {code}")
            }),
            (None, Some(wanted)) => condition(pod, wanted).map(|condition| {
                let name = pod.name_any();
                let namespace = pod.namespace().unwrap_or_default();
                format!("Pod {namespace}/{name} has condition {}", condition.type_)
            }),
            (None, None) => None,
        };
        let Some(what) = matched else { continue };
        match &*rule.action {
            "Ignore" => return Meaning::Ignored,
            "FailIndex" => return Meaning::FailsIndex,
            "Count" => return Meaning::Counts,
            "FailJob" => return Meaning::FailsJob(format!("{what} matching FailJob rule at index {at}")),
            _ => {}
        }
    }
    Meaning::Counts
}

/// The container whose exit code matches a rule, and the code.
fn exited<'a>(
    pod: &'a Pod,
    wanted: &PodFailurePolicyOnExitCodesRequirement,
) -> Option<(&'a ContainerStatus, i32)> {
    let status = pod.status.as_ref()?;
    let containers = status.container_statuses.iter().chain(&status.init_container_statuses).flatten();
    let named = containers.filter(|one| wanted.container_name.as_ref().is_none_or(|name| *name == one.name));
    let mut failed = named.filter_map(|one| {
        let code = one.state.as_ref()?.terminated.as_ref()?.exit_code;
        (code != 0).then_some((one, code))
    });
    failed.find(|(_, code)| match &*wanted.operator {
        "In" => wanted.values.contains(code),
        "NotIn" => !wanted.values.contains(code),
        _ => false,
    })
}

/// The first condition of a pod that matches a rule.
fn condition<'a>(
    pod: &'a Pod,
    wanted: &[PodFailurePolicyOnPodConditionsPattern],
) -> Option<&'a PodCondition> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| {
        let is = |one: &PodFailurePolicyOnPodConditionsPattern| {
            condition.type_ == one.type_ && condition.status == one.status.as_deref().unwrap_or("True")
        };
        wanted.iter().any(is)
    })
}

/// The rule of the success policy that is met, if any.
pub fn enough(policy: Option<&SuccessPolicy>, completions: i32, succeeded: &Indexes) -> Option<String> {
    if succeeded.is_empty() {
        return None;
    }
    let rules = &policy?.rules;
    let met = rules.iter().position(|rule| match &rule.succeeded_indexes {
        Some(wanted) => {
            let wanted = Indexes::parse(wanted, completions);
            let shared = wanted.shared(succeeded);
            let all = shared == wanted.total();
            !wanted.is_empty() && (all || rule.succeeded_count.is_some_and(|count| shared >= count))
        }
        None => rule.succeeded_count.is_some_and(|count| succeeded.total() >= count),
    })?;
    Some(format!("Matched rules at index {met}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn evaluate(rules: Value, status: Value) -> Meaning {
        let policy: PodFailurePolicy = serde_json::from_value(json!({ "rules": rules })).unwrap();
        let pod: Pod = serde_json::from_value(
            json!({ "metadata": { "name": "p", "namespace": "n" }, "status": status }),
        )
        .unwrap();
        meaning(Some(&policy), &pod)
    }

    fn codes(action: &str, operator: &str, values: &[i32], container: Option<&str>) -> Value {
        let wanted = json!({ "operator": operator, "values": values, "containerName": container });
        json!({ "action": action, "onExitCodes": wanted })
    }

    fn exits(codes: &[(&str, i32)]) -> Value {
        let one = |(name, code): &(&str, i32)| {
            json!({ "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": { "terminated": { "exitCode": code } } })
        };
        json!({ "containerStatuses": codes.iter().map(one).collect::<Vec<_>>() })
    }

    #[test]
    fn the_first_matching_rule_of_a_pod_failure_policy_applies() {
        let message = "Container b for pod n/p failed with exit code 3 matching FailJob rule at index 1";
        let failed = |rules: Value| evaluate(rules, exits(&[("a", 0), ("b", 3)]));
        for (rules, wanted) in [
            (json!([]), Meaning::Counts),
            (json!([codes("Ignore", "In", &[3], None)]), Meaning::Ignored),
            (json!([codes("Ignore", "In", &[3], Some("a"))]), Meaning::Counts),
            // A container that did not fail matches no rule about exit codes.
            (json!([codes("Ignore", "NotIn", &[3], None)]), Meaning::Counts),
            (json!([codes("FailIndex", "NotIn", &[4], None)]), Meaning::FailsIndex),
            (
                json!([codes("Ignore", "In", &[4], None), codes("FailJob", "In", &[3, 4], None)]),
                Meaning::FailsJob(message.to_owned()),
            ),
            (json!([codes("Count", "In", &[3], None), codes("FailJob", "In", &[3], None)]), Meaning::Counts),
        ] {
            assert_eq!(failed(rules.clone()), wanted, "{rules}");
        }
    }

    #[test]
    fn conditions_are_matched_by_type_and_status() {
        let rule = json!([{ "action": "FailJob", "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }] }]);
        let status = |value: &str| json!({ "conditions": [{ "type": "DisruptionTarget", "status": value }] });
        let message = "Pod n/p has condition DisruptionTarget matching FailJob rule at index 0";
        assert_eq!(evaluate(rule.clone(), status("True")), Meaning::FailsJob(message.to_owned()));
        assert_eq!(evaluate(rule, status("False")), Meaning::Counts);
    }

    #[test]
    fn successes_are_enough_when_a_rule_is_met() {
        let policy =
            |rules: Value| -> SuccessPolicy { serde_json::from_value(json!({ "rules": rules })).unwrap() };
        let both = policy(
            json!([{ "succeededIndexes": "0,2-4" }, { "succeededIndexes": "5-9", "succeededCount": 2 }]),
        );
        let any = policy(json!([{ "succeededCount": 3 }]));
        for (policy, succeeded, wanted) in [
            (&both, "", None),
            (&both, "0,2,3", None),
            (&both, "0-4", Some("Matched rules at index 0")),
            (&both, "0,5", None),
            (&both, "0,6,9", Some("Matched rules at index 1")),
            (&any, "0,1", None),
            (&any, "0,1,7", Some("Matched rules at index 0")),
        ] {
            let met = enough(Some(policy), 10, &Indexes::parse(succeeded, 10));
            assert_eq!(met.as_deref(), wanted, "{succeeded}");
        }
        assert_eq!(enough(None, 10, &Indexes::parse("0-9", 10)), None);
    }
}
