//! The objects of an installation.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use kube::core::DynamicObject;
use plumb_install::{Component, LABELS, Options, check_parts, manifests, yaml};
use serde_json::Value;

/// The components that are installed by default.
fn all() -> Options {
    Options::default()
}

fn kind(object: &DynamicObject) -> &str {
    &object.types.as_ref().unwrap().kind
}

fn named<'a>(objects: &'a [DynamicObject], of: &str, name: &str) -> &'a DynamicObject {
    let found = objects.iter().find(|object| kind(object) == of && object.name_any() == name);
    found.unwrap_or_else(|| panic!("no {of} {name}"))
}

#[test]
fn every_object_carries_the_labels_and_stands_in_the_namespace() {
    let options = Options { service_monitor: true, ..all() };
    let cluster_scoped = [
        "Namespace",
        "CustomResourceDefinition",
        "ClusterRole",
        "ClusterRoleBinding",
        "MutatingWebhookConfiguration",
    ];
    let objects = manifests(&options);
    let names: BTreeSet<(&str, Option<String>, String)> =
        objects.iter().map(|object| (kind(object), object.namespace(), object.name_any())).collect();
    assert_eq!(names.len(), objects.len(), "an object is there twice");
    for object in &objects {
        let what = format!("{} {}", kind(object), object.name_any());
        let namespace = (!cluster_scoped.contains(&kind(object))).then(|| options.namespace.clone());
        assert_eq!(object.namespace(), namespace, "{what}");
        if kind(object) != "CustomResourceDefinition" {
            for (key, value) in LABELS {
                assert_eq!(object.labels().get(key).map(String::as_str), Some(value), "{what}");
            }
        }
    }
}

#[test]
fn a_namespace_that_every_cluster_has_is_not_among_the_objects() {
    let given = manifests(&Options { namespace: "kube-system".to_owned(), ..Options::default() });
    assert!(given.iter().all(|object| kind(object) != "Namespace"));
    let own = manifests(&all());
    assert_eq!(kind(&own[0]), "Namespace");
}

#[test]
fn every_component_has_replicas_probes_requests_a_budget_and_nothing_that_restricted_pods_may_not() {
    for component in Component::ALL {
        let objects = manifests(&Options { components: vec![component], ..Options::default() });
        let name = component.object_name();
        let deployment = named(&objects, "Deployment", &name);
        let spec = &deployment.data["spec"];
        let is_single = component == Component::Autoscaler;
        assert_eq!(spec["replicas"], if is_single { 1 } else { 2 }, "{name}");
        assert_eq!(spec["strategy"]["type"] == "Recreate", is_single, "{name}");
        let pod = &spec["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], name);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        let container = &pod["containers"][0];
        assert_eq!(container["args"][1], component.command());
        assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez");
        assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
        for resource in ["cpu", "memory"] {
            assert!(container["resources"]["requests"][resource].is_string(), "{name}: {resource}");
        }
        let security = &container["securityContext"];
        assert_eq!(security["allowPrivilegeEscalation"], false);
        assert_eq!(security["readOnlyRootFilesystem"], true);
        assert_eq!(security["capabilities"]["drop"][0], "ALL");
        let budget = named(&objects, "PodDisruptionBudget", &name);
        assert_eq!(budget.data["spec"]["selector"], spec["selector"], "{name}");
        let labels = &spec["template"]["metadata"]["labels"];
        assert_eq!(*labels, spec["selector"]["matchLabels"], "{name}");
    }
    for (service, component) in [
        ("plumb-webhook", Component::Admission),
        ("plumb-webhook", Component::Autoscaler),
        ("plumb-rollout-webhook", Component::Rollout),
    ] {
        let objects = manifests(&Options { components: vec![component], ..Options::default() });
        let served = named(&objects, "Service", service);
        let deployment = named(&objects, "Deployment", &component.object_name());
        assert_eq!(served.data["spec"]["selector"], deployment.data["spec"]["selector"]["matchLabels"]);
        let container = &deployment.data["spec"]["template"]["spec"]["containers"][0];
        let args: Vec<&str> =
            container["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(args.contains(&&*format!("--webhook-service={service}")), "{args:?}");
        assert!(container["ports"].as_array().unwrap().iter().any(|port| port["name"] == "webhook"));
    }
}

/// The verbs that a role gives on a resource of the core group, by resource.
fn on_core(objects: &[DynamicObject], component: Component) -> BTreeMap<String, BTreeSet<String>> {
    let role = named(objects, "ClusterRole", &component.object_name());
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_owned()).collect()
    };
    let mut given: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for rule in role.data["rules"].as_array().unwrap() {
        if texts(&rule["apiGroups"]).contains(&String::new()) {
            for resource in texts(&rule["resources"]) {
                given.entry(resource).or_default().extend(texts(&rule["verbs"]));
            }
        }
    }
    given
}

#[test]
fn the_autoscaler_in_one_process_has_the_roles_of_its_parts_and_no_other() {
    let separate = [Component::Recommender, Component::Updater, Component::Admission];
    let manifests_of = |components: &[Component]| {
        manifests(&Options { components: components.to_vec(), ..Options::default() })
    };
    let roles = |objects: &[DynamicObject]| -> Vec<(String, String, Value)> {
        let roles = objects.iter().filter(|object| kind(object).ends_with("Role"));
        roles.map(|role| (kind(role).to_owned(), role.name_any(), role.data["rules"].clone())).collect()
    };
    let whole = manifests_of(&[Component::Autoscaler]);
    let parts = manifests_of(&separate);
    assert_eq!(roles(&whole), roles(&parts));
    let bindings: Vec<_> = whole.iter().filter(|object| kind(object).ends_with("RoleBinding")).collect();
    assert_eq!(bindings.len(), roles(&whole).len());
    for binding in bindings {
        assert_eq!(binding.data["subjects"][0]["name"], "plumb-autoscaler", "{}", binding.name_any());
        assert_eq!(binding.data["roleRef"]["name"], binding.name_any());
    }
    let names = |of: &[DynamicObject]| {
        let deployments = of.iter().filter(|object| kind(object) == "Deployment");
        deployments.map(ResourceExt::name_any).collect::<Vec<_>>()
    };
    assert_eq!(names(&whole), ["plumb-autoscaler"]);
    assert_eq!(crd_names(&whole), crd_names(&parts));
}

fn crd_names(objects: &[DynamicObject]) -> Vec<String> {
    let crds = objects.iter().filter(|object| kind(object) == "CustomResourceDefinition");
    crds.map(ResourceExt::name_any).collect()
}

#[test]
fn a_component_cannot_be_chosen_besides_one_that_runs_it() {
    assert_eq!(check_parts(&Component::DEFAULT), Ok(()));
    assert_eq!(check_parts(&[Component::Autoscaler, Component::Rollout]), Ok(()));
    let error = check_parts(&[Component::Updater, Component::Autoscaler]).unwrap_err();
    let expected = "component autoscaler runs updater in its own process; choose one of the two";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn each_component_writes_pods_only_as_it_must() {
    let objects = manifests(&all());
    let writes = |component, resource: &str| {
        let given = on_core(&objects, component).remove(resource).unwrap_or_default();
        let given = given.into_iter().filter(|verb| !["get", "list", "watch"].contains(&verb.as_str()));
        given.collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    for component in [Component::Recommender, Component::Admission] {
        for resource in ["pods", "pods/resize", "pods/eviction", "pods/status"] {
            assert_eq!(writes(component, resource), none, "{component}: {resource}");
        }
    }
    assert_eq!(writes(Component::Updater, "pods"), ["patch"]);
    assert_eq!(writes(Component::Updater, "pods/resize"), ["patch"]);
    assert_eq!(writes(Component::Updater, "pods/eviction"), ["create"]);
    assert_eq!(writes(Component::Rollout, "pods"), ["create", "delete", "patch"]);
    assert_eq!(writes(Component::Rollout, "pods/resize"), ["patch"]);
    assert_eq!(writes(Component::Rollout, "pods/eviction"), ["create"]);
    for component in Component::DEFAULT {
        let role = named(&objects, "ClusterRole", &component.object_name());
        for rule in role.data["rules"].as_array().unwrap() {
            let verbs = rule["verbs"].as_array().unwrap();
            assert!(verbs.iter().all(|verb| verb != "*"), "{component}: {rule}");
            let secrets = rule["resources"].as_array().unwrap().iter().any(|resource| resource == "secrets");
            assert!(!secrets, "{component} has Secrets of every namespace");
        }
    }
}

#[test]
fn only_what_is_chosen_is_among_the_objects() {
    let only = Options {
        components: vec![Component::Rollout],
        replicas: 1,
        image: "registry.example.com/plumb:2".to_owned(),
        feature_gates: "InPlace=true".to_owned(),
        extra_args: BTreeMap::from([(Component::Rollout, vec!["--log=debug".to_owned()])]),
        ..Options::default()
    };
    let objects = manifests(&only);
    let deployments: Vec<_> = objects.iter().filter(|object| kind(object) == "Deployment").collect();
    assert_eq!(deployments.len(), 1);
    let container = &deployments[0].data["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "registry.example.com/plumb:2");
    let args: Vec<&str> =
        container["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    assert!(args.ends_with(&["--feature-gates=InPlace=true", "--log=debug"]), "{args:?}");
    let crds = objects.iter().filter(|object| kind(object) == "CustomResourceDefinition");
    let crds: Vec<String> = crds.map(kube::ResourceExt::name_any).collect();
    assert_eq!(crds, ["rolloutpolicies.plumb.dev", "clonesets.apps.kruise.io"]);
    assert!(objects.iter().all(|object| kind(object) != "ServiceMonitor"));
    let services: Vec<String> =
        objects.iter().filter(|object| kind(object) == "Service").map(ResourceExt::name_any).collect();
    assert_eq!(services, ["plumb-rollout-webhook"]);
    let without = manifests(&Options { crds: false, ..only });
    assert!(without.iter().all(|object| kind(object) != "CustomResourceDefinition"));
}

#[test]
fn the_documents_read_back_as_the_objects() {
    let objects = manifests(&Options { service_monitor: true, ..all() });
    let text = yaml(&objects).unwrap();
    let read: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let objects: Vec<Value> = objects.iter().map(|object| serde_json::to_value(object).unwrap()).collect();
    assert_eq!(read, objects);
}

#[test]
fn a_component_changes_its_own_webhook_configuration_and_creates_none() {
    let objects = manifests(&all());
    for (name, component) in
        [("vpa-webhook-config", Component::Admission), ("plumb-rollout-webhook", Component::Rollout)]
    {
        let configuration = named(&objects, "MutatingWebhookConfiguration", name);
        assert_eq!(configuration.data.get("webhooks"), None, "the component adds its own");
        for (_, role) in component.roles() {
            let rules = role.cluster.iter().chain(role.local).chain(role.election);
            for rule in rules.filter(|rule| rule.resources.contains(&"mutatingwebhookconfigurations")) {
                let reads = rule.verbs.iter().all(|verb| ["list", "watch"].contains(verb));
                assert!(reads || rule.names == [name], "{rule:?}");
                assert!(!rule.verbs.contains(&"create"), "{rule:?}");
            }
        }
    }
}
