//! Whether a container that has ended is started again.

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, PodSpec};

/// The actions of rules.
const RESTART: &str = "Restart";
const RESTART_ALL: &str = "RestartAllContainers";

/// Whether a container that has ended with this code is started again: by its own rules, its own policy, else by
/// its pod's.
pub fn restarts_after(spec: &PodSpec, container: &Container, code: i32) -> bool {
    if let Some(action) = rule_action(container, code) {
        return matches!(action, RESTART | RESTART_ALL);
    }
    let policy = container.restart_policy.as_deref().or(spec.restart_policy.as_deref());
    match policy {
        Some("Never") => false,
        Some("OnFailure") => code != 0,
        _ => true,
    }
}

/// Whether an exit with this code has all containers of the pod restarted.
pub(super) fn restarts_all_after(container: &Container, code: i32) -> bool {
    rule_action(container, code) == Some(RESTART_ALL)
}

/// Whether some exit of a container has all containers of the pod restarted.
pub(super) fn may_restart_all(container: &Container) -> bool {
    container.restart_policy_rules.iter().flatten().any(|rule| rule.action == RESTART_ALL)
}

/// The action of the first rule that applies to an exit with this code.
fn rule_action(container: &Container, code: i32) -> Option<&str> {
    let rules = container.restart_policy_rules.iter().flatten();
    rules.into_iter().find(|rule| applies(rule, code)).map(|rule| rule.action.as_str())
}

fn applies(rule: &ContainerRestartRule, code: i32) -> bool {
    let Some(codes) = &rule.exit_codes else { return false };
    let named = codes.values.iter().flatten().any(|value| *value == code);
    match codes.operator.as_str() {
        "In" => named,
        "NotIn" => !named,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ContainerRestartRuleOnExitCodes;

    use super::*;

    #[test]
    fn the_rules_come_before_the_policy_and_the_containers_before_the_pods() {
        let pod = |policy: &str| PodSpec { restart_policy: Some(policy.into()), ..PodSpec::default() };
        let container = |policy: Option<&str>, restart_on: Option<i32>| Container {
            restart_policy: policy.map(str::to_owned),
            restart_policy_rules: restart_on.map(|code| {
                vec![ContainerRestartRule {
                    action: "Restart".into(),
                    exit_codes: Some(ContainerRestartRuleOnExitCodes {
                        operator: "In".into(),
                        values: Some(vec![code]),
                    }),
                }]
            }),
            ..Container::default()
        };
        let table = [
            ("Always", None, None, 0, true),
            ("OnFailure", None, None, 0, false),
            ("OnFailure", None, None, 1, true),
            ("Never", None, None, 1, false),
            ("Never", Some("OnFailure"), None, 1, true),
            ("Always", Some("Never"), None, 1, false),
            ("Never", Some("Never"), Some(42), 42, true),
            ("Never", Some("Never"), Some(42), 41, false),
        ];
        for (of_pod, own, rule, code, expected) in table {
            let restarts = restarts_after(&pod(of_pod), &container(own, rule), code);
            assert_eq!(restarts, expected, "{of_pod} {own:?} {rule:?} {code}");
        }
    }
}
