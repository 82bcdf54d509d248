//! Which resize policies a container may have.

use k8s_openapi::api::core::v1::{Container, EphemeralContainer, Pod};
use plumb_resize::validate;

use super::pods::{ContainerExt, PodExt, container, pod, resources};

fn texts(pod: &Pod, stored: Option<&Pod>) -> Vec<String> {
    validate::pod(pod, stored).iter().map(ToString::to_string).collect()
}

fn with(policy: &str) -> Container {
    container("a", "cpu=100m", "cpu=200m").policy(policy)
}

#[test]
fn resize_policies_are_for_cpu_and_memory_once_each_with_known_values() {
    const NEVER: &str = "spec.containers[0].resizePolicy: Invalid value: \"RestartContainer\": must be 'NotRequired' \
                         when pod `restartPolicy` is 'Never'";
    const REQUIRED: &str = "spec.containers[0].resizePolicy: Required value";
    let table: [(&str, &str, &str, &[&str]); 17] = [
        ("none", "Always", "", &[]),
        ("both", "Always", "cpu=NotRequired memory=RestartContainer", &[]),
        ("cpu alone", "Always", "cpu=RestartContainer", &[]),
        ("memory alone", "OnFailure", "memory=NotRequired", &[]),
        (
            "twice",
            "Always",
            "cpu=NotRequired memory=RestartContainer cpu=RestartContainer",
            &["spec.containers[0].resizePolicy[2]: Duplicate value: \"cpu\""],
        ),
        (
            "three times",
            "Always",
            "cpu=NotRequired cpu=NotRequired cpu=NotRequired",
            &[
                "spec.containers[0].resizePolicy[1]: Duplicate value: \"cpu\"",
                "spec.containers[0].resizePolicy[2]: Duplicate value: \"cpu\"",
            ],
        ),
        ("no resource", "Always", "=NotRequired", &[REQUIRED]),
        (
            "another resource",
            "Always",
            "ephemeral-storage=NotRequired",
            &[
                "spec.containers[0].resizePolicy: Unsupported value: \"ephemeral-storage\": supported values: \"cpu\", \
               \"memory\"",
            ],
        ),
        ("no policy", "Always", "memory=", &[REQUIRED]),
        (
            "another policy for cpu",
            "Always",
            "cpu=RestartNotRequired memory=RestartContainer",
            &[
                "spec.containers[0].resizePolicy: Unsupported value: \"RestartNotRequired\": supported values: \
               \"NotRequired\", \"RestartContainer\"",
            ],
        ),
        (
            "another policy for memory",
            "Always",
            "cpu=NotRequired memory=Restart",
            &[
                "spec.containers[0].resizePolicy: Unsupported value: \"Restart\": supported values: \"NotRequired\", \
               \"RestartContainer\"",
            ],
        ),
        ("nothing at all", "Always", "=", &[REQUIRED, REQUIRED]),
        ("never restarted", "Never", "cpu=NotRequired memory=NotRequired", &[]),
        ("never restarted, but for memory", "Never", "cpu=NotRequired memory=RestartContainer", &[NEVER]),
        ("never restarted, but for cpu", "Never", "cpu=RestartContainer memory=NotRequired", &[NEVER]),
        (
            "never restarted, but for both",
            "Never",
            "cpu=RestartContainer memory=RestartContainer",
            &[NEVER, NEVER],
        ),
        (
            "never restarted, and no policy",
            "Never",
            "cpu=",
            &[
                REQUIRED,
                "spec.containers[0].resizePolicy: Invalid value: \"\": must be 'NotRequired' when pod `restartPolicy` \
                 is 'Never'",
            ],
        ),
    ];
    for (name, restart, policy, expected) in table {
        let pod = pod([with(policy)]).with(|spec| spec.restart_policy = Some(restart.to_owned()));
        assert_eq!(texts(&pod, None), expected, "{name}");
    }
}

#[test]
fn plain_init_containers_ask_for_no_restart() {
    let main = || container("main", "cpu=100m", "");
    let plain = |policy: &str| pod([main()]).init([with(policy)]);
    let rule = "must not be set to 'RestartContainer' for non-sidecar initContainers";
    let restart = |i: usize| {
        format!(
            "spec.initContainers[0].resizePolicy[{i}].restartPolicy: Invalid value: \"RestartContainer\": {rule}"
        )
    };
    assert_eq!(
        texts(&plain("cpu=NotRequired memory=NotRequired"), None),
        [] as [&str; 0],
        "without a restart"
    );
    let new = plain("cpu=NotRequired memory=RestartContainer");
    assert_eq!(texts(&new, None), [restart(1)], "with a restart");
    let new = plain("cpu=RestartContainer memory=RestartContainer");
    assert_eq!(texts(&new, None), [restart(0), restart(1)], "with two");
    let sidecar = pod([main()]).init([with("memory=RestartContainer").sidecar()]);
    assert_eq!(texts(&sidecar, None), [] as [&str; 0], "a sidecar");

    // What a pod already had, it keeps; another kind of container having it does not count.
    assert_eq!(texts(&new, Some(&plain("cpu=RestartContainer"))), [] as [&str; 0], "a stored restart");
    assert_eq!(texts(&new, Some(&plain("cpu=NotRequired"))), [restart(0), restart(1)], "a stored policy");
    assert_eq!(texts(&new, Some(&sidecar)), [restart(0), restart(1)], "a stored sidecar");
    let stored = pod([with("cpu=RestartContainer")]);
    assert_eq!(texts(&new, Some(&stored)), [restart(0), restart(1)], "a stored main container");
}

#[test]
fn every_kind_of_container_keeps_the_rules() {
    let bad = || with("disk=NotRequired");
    let detail = "Unsupported value: \"disk\": supported values: \"cpu\", \"memory\"";
    let mut second = bad();
    second.name = "b".to_owned();
    let pod = pod([with(""), second]).init([bad().sidecar(), bad()]);
    assert_eq!(
        texts(&pod, None),
        ["containers[1]", "initContainers[0]", "initContainers[1]"]
            .map(|path| format!("spec.{path}.resizePolicy: {detail}"))
    );
}

#[test]
fn ephemeral_containers_have_neither_resources_nor_policies() {
    let debug = |change: fn(&mut EphemeralContainer)| {
        let mut debug = EphemeralContainer { name: "debug".to_owned(), ..EphemeralContainer::default() };
        change(&mut debug);
        pod([with("")]).with(|spec| spec.ephemeral_containers = Some(vec![debug]))
    };
    let forbidden = |field: &str| {
        format!("spec.ephemeralContainers[0].{field}: Forbidden: cannot be set for an Ephemeral Container")
    };
    let none: [String; 0] = [];
    assert_eq!(texts(&debug(|_| {}), None), none, "plain");
    assert_eq!(
        texts(&debug(|debug| debug.resources = Some(resources("", ""))), None),
        none,
        "empty resources"
    );
    assert_eq!(
        texts(&debug(|debug| debug.resize_policy = Some(vec![])), None),
        [forbidden("resizePolicy")],
        "empty policies are policies"
    );
    assert_eq!(
        texts(&debug(|debug| debug.resources = Some(resources("cpu=1", ""))), None),
        [forbidden("resources")],
        "resources"
    );
    assert_eq!(
        texts(&debug(|debug| debug.resize_policy = with("cpu=NotRequired").resize_policy), None),
        [forbidden("resizePolicy")],
        "policies"
    );
}
