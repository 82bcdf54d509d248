//! Who is restarted.

use k8s_openapi::api::core::v1::Container;
use plumb_resize::alpha::restart_policy;
use plumb_resize::qos::QosClass::Guaranteed;
use plumb_resize::rules::Rules;

use super::super::pods::{ContainerExt, pod};
use super::super::sizes::containers;
use super::walk::walk;

/// A container with the policies that the KEP writes as `cpu: RestartNotRequired, memory: Restart`.
fn with_policies(container: Container, policies: &str) -> Container {
    let today = policies.split(", ").filter(|text| !text.is_empty()).map(|entry| {
        let (resource, policy) = entry.split_once(": ").unwrap();
        let policy = restart_policy(policy, &Rules::kep()).unwrap();
        format!("{resource}={}", policy.name())
    });
    container.policy(&today.collect::<Vec<_>>().join(" "))
}

#[test]
fn guaranteed_with_two_containers() {
    type Row = (&'static str, [&'static str; 2], &'static str, &'static [usize]);
    const FROM: &str = "100 200 | 100 200";
    const IN_PLACE: &str = "cpu: RestartNotRequired, memory: RestartNotRequired";
    const RESTARTS: &str = "cpu: Restart, memory: Restart";
    const FOR_MEMORY: &str = "cpu: RestartNotRequired, memory: Restart";
    let rows: [Row; 6] = [
        ("no policy: no restarts", ["", ""], "150 250 | 50 150", &[]),
        ("c1 in place, c2 by a restart", [IN_PLACE, RESTARTS], "150 250 | 150 250", &[1]),
        ("c1 in place, c2 unchanged and left alone", [IN_PLACE, RESTARTS], "150 250 | 100 200", &[]),
        ("c1 restarts for memory, and its cpu changes", [FOR_MEMORY, ""], "150 200 | 100 200", &[]),
        ("c1 restarts for memory, and it changes", [FOR_MEMORY, ""], "100 250 | 100 200", &[0]),
        ("c1 restarts for memory, and both change", [FOR_MEMORY, ""], "150 250 | 100 200", &[0]),
    ];
    for (name, policies, to, restarts) in rows {
        let containers = containers(FROM).into_iter().zip(policies).map(|(c, p)| with_policies(c, p));
        walk(name, Guaranteed, &pod(containers), FROM, to, restarts);
    }
}
