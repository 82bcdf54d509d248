use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use plumb_resize::resource::Resource;
use plumb_resize::rules::Rules;
use plumb_rollout::engine::{Change, Desired, Reason, Vertical, compare, compare_desired};
use plumb_testkit::object;
use plumb_vpa_api::startup_boost::{self, Boost, Cpu, Original};
use serde_json::json;

use crate::objects::{patched, pod, resized, sized, template, template_of};

fn vertical(change: Change) -> Vertical {
    match change {
        Change::Vertical(vertical) => *vertical,
        other => panic!("no resize: {other:?}"),
    }
}

fn codes(change: Change) -> Vec<&'static str> {
    match change {
        Change::Other(reasons) => reasons.iter().map(Reason::code).collect(),
        other => panic!("a resize: {other:?}"),
    }
}

#[test]
fn a_pod_that_has_the_resources_of_its_template_does_not_change() {
    let (template, rules) = (sized("100m", "64Mi"), Rules::v1_36());
    assert_eq!(compare(&template, &pod(&template), &rules), Change::None);
    // By value, not by spelling.
    assert_eq!(compare(&sized("0.1", "65536Ki"), &pod(&template), &rules), Change::None);
}

#[test]
fn only_the_quantities_that_differ_are_in_the_patch() {
    let pod = pod(&sized("100m", "64Mi"));
    let change = vertical(compare(&sized("200m", "64Mi"), &pod, &Rules::v1_36()));
    assert_eq!(
        change.patch(),
        json!({ "spec": { "containers": [{ "name": "app", "resources": { "requests": { "cpu": "200m" } } }] } })
    );
    let previous = &change.previous().containers["app"];
    assert_eq!(json!(previous), json!({ "requests": { "cpu": "100m" } }));
    assert!(change.grows && !change.restarts);
}

#[test]
fn resources_that_the_template_does_not_declare_are_not_changed() {
    // A LimitRange has set a limit, a webhook has added a container.
    let mut live = pod(&sized("100m", "64Mi"));
    let spec = live.spec.as_mut().unwrap();
    spec.containers[0].resources.as_mut().unwrap().limits = Some(object(json!({ "cpu": "1" })));
    spec.containers.push(object(json!({ "name": "mesh", "resources": { "requests": { "cpu": "10m" } } })));
    assert_eq!(compare(&sized("100m", "64Mi"), &live, &Rules::v1_36()), Change::None);
    let change = vertical(compare(&sized("200m", "64Mi"), &live, &Rules::v1_36()));
    let after = resized(&live, &change.patch());
    let limits = after.spec.unwrap().containers[0].resources.clone().unwrap().limits;
    assert_eq!(json!(limits), json!({ "cpu": "1" }));
}

#[test]
fn the_qos_class_is_that_of_the_live_pod() {
    let small = json!({ "cpu": "100m", "memory": "64Mi" });
    let large = json!({ "cpu": "200m", "memory": "64Mi" });
    let rules = Rules::v1_36();
    let (burstable, guaranteed) =
        (template(small.clone(), json!({})), template(small.clone(), small.clone()));
    let change = compare(&template(large.clone(), large.clone()), &pod(&burstable), &rules);
    assert_eq!(codes(change), ["QOSClassChanged"]);
    let change = compare(&template(large.clone(), large), &pod(&guaranteed), &rules);
    assert!(vertical(change).grows);
    // The template alone becomes guaranteed, but a container that a webhook added keeps the pod burstable.
    let mut injected = pod(&burstable);
    injected.spec.as_mut().unwrap().containers.push(object(json!({ "name": "mesh" })));
    let change = vertical(compare(&template(small.clone(), small), &injected, &rules));
    assert_eq!(change.added(), [(Some("app"), "limits.cpu".into()), (Some("app"), "limits.memory".into())]);
}

#[test]
fn whether_a_pod_grows_is_a_matter_of_what_it_requests() {
    // Old and new requests and limits, and whether the pod grows.
    let table = [
        (("100m", "1"), ("200m", "1"), true),
        (("200m", "1"), ("100m", "1"), false),
        (("100m", "1"), ("100m", "2"), false),
    ];
    for ((old, old_limit), (new, new_limit), grows) in table {
        let pod = pod(&template(json!({ "cpu": old }), json!({ "cpu": old_limit })));
        let new = template(json!({ "cpu": new }), json!({ "cpu": new_limit }));
        assert_eq!(vertical(compare(&new, &pod, &Rules::v1_36())).grows, grows, "{old}/{old_limit}");
    }
}

#[test]
fn a_restart_is_expected_only_if_a_changed_resource_has_that_resize_policy() {
    let template = |cpu: &str, memory: &str| {
        template_of(json!([{ "name": "app",
            "resizePolicy": [{ "resourceName": "memory", "restartPolicy": "RestartContainer" }],
            "resources": { "requests": { "cpu": cpu, "memory": memory } } }]))
    };
    let pod = pod(&template("100m", "64Mi"));
    for (cpu, memory, restarts) in [("200m", "64Mi", false), ("100m", "32Mi", true), ("200m", "32Mi", true)] {
        let change = vertical(compare(&template(cpu, memory), &pod, &Rules::v1_36()));
        assert_eq!((change.restarts, change.containers[0].restarts), (restarts, restarts), "{cpu} {memory}");
    }
}

#[test]
fn a_sidecar_is_patched_among_the_init_containers() {
    let template = |cpu: &str| {
        object(json!({ "spec": {
            "initContainers": [{ "name": "proxy", "restartPolicy": "Always",
                "resources": { "requests": { "cpu": cpu } } }],
            "containers": [{ "name": "app" }],
        } }))
    };
    let pod = pod(&template("10m"));
    let change = vertical(compare(&template("20m"), &pod, &Rules::kep()));
    assert_eq!(
        change.patch(),
        json!({ "spec": { "initContainers":
            [{ "name": "proxy", "resources": { "requests": { "cpu": "20m" } } }] } })
    );
}

#[test]
fn pod_level_resources_are_resized_where_the_api_server_allows_it() {
    let template = |cpu: &str| {
        object(json!({ "spec": {
            "resources": { "requests": { "cpu": cpu }, "limits": { "cpu": "2" } },
            "containers": [{ "name": "app" }],
        } }))
    };
    let pod: Pod = pod(&template("500m"));
    let change = vertical(compare(&template("1"), &pod, &Rules::v1_36()));
    assert_eq!(change.patch(), json!({ "spec": { "resources": { "requests": { "cpu": "1" } } } }));
    assert!(change.grows);
    let rules = Rules { resize_pod_level: false, ..Rules::v1_36() };
    assert_eq!(codes(compare(&template("1"), &pod, &rules)), ["PodLevelResourcesChanged"]);
}

#[test]
fn a_resize_that_the_api_server_would_reject_is_found_before_it_is_sent() {
    let rules = Rules::v1_36();
    let mut mirror = pod(&sized("100m", "64Mi"));
    mirror.metadata.annotations = Some(object(json!({ "kubernetes.io/config.mirror": "x" })));
    let Change::Other(reasons) = compare(&sized("200m", "64Mi"), &mirror, &rules) else { panic!("a resize") };
    assert!(reasons[0].to_string().contains("static pods cannot be resized"), "{reasons:?}");
    let mut without = pod(&sized("100m", "64Mi"));
    without.spec.as_mut().unwrap().containers[0].name = "other".to_owned();
    assert_eq!(codes(compare(&sized("200m", "64Mi"), &without, &rules)), ["OtherFieldsChanged"]);
}

/// A pod of a template whose container `app` has a CPU start-up boost, which this annotation and upstream's describe.
fn boosted(template: &PodTemplateSpec, cpu: Cpu) -> Pod {
    let mut pod = pod(template);
    let container = &mut pod.spec.as_mut().unwrap().containers[0];
    let boost = Boost { unboosted: Cpu::of(container), boosted: cpu, restarted: None, rolled_out: false };
    let original = Original::of(container).to_text();
    cpu.write_to(container);
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(startup_boost::BOOSTS.to_owned(), startup_boost::boosts_text([("app", boost)]));
    annotations.insert(startup_boost::key("app"), original);
    pod
}

fn cpu(request: &str, limit: Option<&str>) -> Cpu {
    let read = |text: &str| text.parse().unwrap();
    Cpu { request: Some(read(request)), limit: limit.map(read) }
}

/// A pod after the writes of a change.
fn changed(pod: &Pod, change: &Vertical) -> Pod {
    let pod = if change.is_sent() { resized(pod, &change.patch()) } else { pod.clone() };
    patched(&pod, &json!({ "metadata": { "annotations": change.annotations } }))
}

/// The CPU that container `app` gets back to, by our own annotation and by upstream's.
fn gets_back_to(pod: &Pod) -> (Cpu, Cpu) {
    let ours = startup_boost::read_boosts(pod)["app"].unboosted;
    (ours, Original::read(pod, "app").unwrap().cpu().unwrap())
}

#[test]
fn a_cpu_start_up_boost_is_no_difference() {
    let (template, rules) = (sized("100m", "64Mi"), Rules::v1_36());
    assert_eq!(compare(&template, &boosted(&template, cpu("300m", None)), &rules), Change::None);
    // The updater has ended it, and the node has yet to apply that.
    let mut ending = boosted(&template, cpu("300m", None));
    cpu("100m", None).write_to(&mut ending.spec.as_mut().unwrap().containers[0]);
    assert_eq!(compare(&template, &ending, &rules), Change::None);
}

#[test]
fn a_boosted_container_keeps_its_boost_and_gets_back_to_the_new_cpu() {
    let rules = Rules::v1_36();
    let of = |request: &str, limit: Option<&str>| {
        let list = |amount: Option<&str>| amount.map_or(json!({}), |amount| json!({ "cpu": amount }));
        template(list(Some(request)), list(limit))
    };
    // The CPU of the old template, of the boost and of the new template; what the container has until its boost ends.
    let table = [
        (("100m", None), ("300m", None), ("200m", None), ("300m", None)),
        (("100m", None), ("300m", None), ("50m", None), ("300m", None)),
        (("100m", None), ("300m", None), ("400m", None), ("400m", None)),
        (("100m", Some("200m")), ("300m", Some("600m")), ("50m", Some("100m")), ("300m", Some("600m"))),
        (("100m", Some("200m")), ("300m", Some("600m")), ("400m", Some("800m")), ("400m", Some("800m"))),
        // Under RequestsOnly the boost stays below the limit.
        (("100m", Some("200m")), ("199m", Some("200m")), ("150m", Some("160m")), ("199m", Some("200m"))),
        (("100m", Some("200m")), ("199m", Some("200m")), ("100m", Some("300m")), ("199m", Some("300m"))),
    ];
    for (old, boost, new, meanwhile) in table {
        let pod = boosted(&of(old.0, old.1), cpu(boost.0, boost.1));
        let new_template = of(new.0, new.1);
        let change = vertical(compare(&new_template, &pod, &rules));
        assert_eq!(change.is_sent(), boost != meanwhile, "{new:?}");
        let after = changed(&pod, &change);
        assert_eq!(
            Cpu::of(&after.spec.as_ref().unwrap().containers[0]),
            cpu(meanwhile.0, meanwhile.1),
            "{new:?}"
        );
        let new = cpu(new.0, new.1);
        assert_eq!(gets_back_to(&after), (new, new));
        assert_eq!(compare(&new_template, &after, &rules), Change::None, "{new:?}");
        // An undo sets what the container had without its boost, and leaves the boost.
        let desired = Desired { containers: change.previous().containers, pod: None };
        let undo = vertical(compare_desired(&desired, &after, &rules));
        let undone = changed(&after, &undo);
        let old = cpu(old.0, old.1);
        assert_eq!(gets_back_to(&undone), (old, old));
        assert_eq!(Cpu::of(&undone.spec.unwrap().containers[0]), cpu(boost.0, boost.1), "{new:?}");
    }
}

#[test]
fn a_change_of_memory_alone_leaves_the_cpu_of_a_boosted_container() {
    let pod = boosted(&sized("100m", "64Mi"), cpu("300m", None));
    let change = vertical(compare(&sized("100m", "128Mi"), &pod, &Rules::v1_36()));
    let sent = json!({ "name": "app", "resources": { "requests": { "memory": "128Mi" } } });
    assert_eq!(change.patch(), json!({ "spec": { "containers": [sent] } }));
    let after = changed(&pod, &change);
    assert_eq!(gets_back_to(&after).0, cpu("100m", None));
    assert!(!startup_boost::read_boosts(&after)["app"].rolled_out, "its CPU is as before");
    // Upstream's updater sets the memory of its annotation, too.
    let original = Original::read(&after, "app").unwrap();
    assert_eq!(json!(original.requests), json!({ "cpu": "100m", "memory": "128Mi" }));
}

#[test]
fn the_cpu_that_an_autoscaler_owns_is_left_alone_while_its_boost_ends() {
    let mut pod = boosted(&sized("100m", "64Mi"), cpu("300m", None));
    // The updater has applied a recommendation that is lower than what admission wrote down.
    cpu("50m", None).write_to(&mut pod.spec.as_mut().unwrap().containers[0]);
    let rules = Rules::v1_36();
    let desired = Desired::of(&sized("200m", "64Mi"), &rules).unwrap();
    let memory_only = desired.without(|_, _, resource| resource == Resource::Cpu);
    assert_eq!(compare_desired(&memory_only, &pod, &rules), Change::None);
}
