//! The decisions about claims and volumes, as tables.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::local_path::provision::{Expansion, Provision, expand, provision};
use super::local_path::reclaim::{self, Reclaim};
use super::{About, Step, Write, claim, volume};
use crate::workload::Note;

fn merge(into: &mut Value, more: &Value) {
    for (key, value) in more.as_object().unwrap() {
        if value.is_object() && into[key].is_object() {
            merge(&mut into[key], value);
        } else {
            into[key] = value.clone();
        }
    }
}

fn read<K: DeserializeOwned>(mut object: Value, more: &Value) -> Arc<K> {
    merge(&mut object, more);
    Arc::new(serde_json::from_value(object).unwrap())
}

fn a_claim(more: Value) -> Arc<PersistentVolumeClaim> {
    read(
        json!({
            "metadata": { "name": "data", "namespace": "n", "uid": "c1", "annotations": {} },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
                "resources": { "requests": { "storage": "1Gi" } },
            },
            "status": { "phase": "Pending" },
        }),
        &more,
    )
}

fn a_volume(more: Value) -> Arc<PersistentVolume> {
    read(
        json!({
            "metadata": { "name": "v", "uid": "v1", "annotations": {} },
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "capacity": { "storage": "2Gi" },
                "persistentVolumeReclaimPolicy": "Retain",
            },
            "status": { "phase": "Available" },
        }),
        &more,
    )
}

fn a_class(more: Value) -> Arc<StorageClass> {
    read(json!({ "metadata": { "name": "fast" }, "provisioner": "p.example/x" }), &more)
}

const REFERENCE: &str = "/spec/claimRef";

fn reference(uid: &str) -> Value {
    json!({ "spec": { "claimRef": { "namespace": "n", "name": "data", "uid": uid } } })
}

fn both(mut one: Value, other: Value) -> Value {
    merge(&mut one, &other);
    one
}

/// What a step writes and emits, in a line.
fn summary(step: &Step) -> String {
    let events = step.events.iter().map(|(about, Note { warning, reason, .. })| {
        let type_ = if *warning { "Warning" } else { "Normal" };
        format!("{about:?} {type_} {reason}")
    });
    let write = step.write.iter().map(|write| match write {
        Write::Volume(volume) => {
            let claim = serde_json::to_value(volume).unwrap().pointer(REFERENCE).cloned();
            let uid = claim.as_ref().map(|claim| claim["uid"].as_str().unwrap_or("reserved").to_owned());
            format!("volume -> {}", uid.unwrap_or_else(|| "no claim".to_owned()))
        }
        Write::VolumeStatus(volume) => format!("volume {}", super::volume_phase(volume)),
        Write::Claim(claim) => {
            let spec = claim.spec.as_ref().unwrap();
            format!(
                "claim -> {} class {}",
                spec.volume_name.as_deref().unwrap_or("none"),
                spec.storage_class_name.as_deref().unwrap_or("none")
            )
        }
        Write::ClaimStatus(claim) => {
            let status = claim.status.as_ref().unwrap();
            let capacity = status.capacity.as_ref().map_or("", |capacity| &capacity["storage"].0);
            format!("claim {} {capacity}", status.phase.as_deref().unwrap()).trim().to_owned()
        }
    });
    events.chain(write).collect::<Vec<_>>().join("; ")
}

#[test]
fn a_claim_is_bound_in_four_writes_each_of_which_may_be_the_last_before_a_crash() {
    let mut claim = a_claim(json!({}));
    let mut volume = a_volume(json!({}));
    let mut steps = Vec::new();
    loop {
        let named = claim.spec.as_ref().unwrap().volume_name.is_some();
        let state = claim::State {
            claim: claim.clone(),
            volume: named.then(|| volume.clone()),
            candidates: vec![volume.clone()],
            ..claim::State::default()
        };
        let step = claim::decide(&state);
        match step.write.clone() {
            None => break,
            Some(Write::Volume(new) | Write::VolumeStatus(new)) => volume = Arc::from(new),
            Some(Write::Claim(new) | Write::ClaimStatus(new)) => claim = Arc::from(new),
        }
        steps.push(summary(&step));
        // What the decision about the volume would do meanwhile is part of the binding.
        let about_volume =
            volume::decide(&volume::State { volume: volume.clone(), claim: Some(claim.clone()) });
        assert!(
            matches!(&*summary(&about_volume), "" | "volume Bound"),
            "{} after {steps:?}",
            summary(&about_volume)
        );
    }
    assert_eq!(steps, ["volume -> c1", "volume Bound", "claim -> v class fast", "claim Bound 2Gi"]);
    let annotations = claim.metadata.annotations.as_ref().unwrap();
    assert_eq!(annotations["pv.kubernetes.io/bind-completed"], "yes");
    assert_eq!(annotations["pv.kubernetes.io/bound-by-controller"], "yes");
    assert_eq!(volume.metadata.annotations.as_ref().unwrap()["pv.kubernetes.io/bound-by-controller"], "yes");
}

#[test]
fn a_claim_without_a_volume_says_what_it_waits_for() {
    let waits = || Some(a_class(json!({ "volumeBindingMode": "WaitForFirstConsumer" })));
    let node = json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": "a" } } });
    let asked = json!({ "metadata": { "annotations": {
        "volume.kubernetes.io/storage-provisioner": "p.example/x",
        "volume.beta.kubernetes.io/storage-provisioner": "p.example/x",
    } } });
    let without_class = json!({ "spec": { "storageClassName": null } });
    for (claim, class, default, pods, expected) in [
        (json!({}), waits(), None, vec![], "Claim Normal WaitForFirstConsumer"),
        (json!({}), waits(), None, vec!["p"], "Claim Normal WaitForPodScheduled"),
        (node.clone(), waits(), None, vec![], "claim -> none class fast"),
        (both(node, asked.clone()), waits(), None, vec![], "Claim Normal ExternalProvisioning"),
        (json!({}), Some(a_class(json!({}))), None, vec![], "claim -> none class fast"),
        (asked, Some(a_class(json!({}))), None, vec![], "Claim Normal ExternalProvisioning"),
        (json!({}), None, None, vec![], "Claim Warning ProvisioningFailed"),
        (
            json!({}),
            Some(a_class(json!({ "provisioner": "kubernetes.io/no-provisioner" }))),
            None,
            vec![],
            "Claim Warning ProvisioningFailed",
        ),
        (without_class.clone(), None, None, vec![], "Claim Normal FailedBinding"),
        (without_class, None, Some("usual"), vec![], "claim -> none class usual"),
        // The empty name asks for a volume without a class, whatever the default.
        (
            json!({ "spec": { "storageClassName": "" } }),
            None,
            Some("usual"),
            vec![],
            "Claim Normal FailedBinding",
        ),
    ] {
        let state = claim::State {
            claim: a_claim(claim.clone()),
            class,
            default_class: default.map(str::to_owned),
            waiting_pods: pods.into_iter().map(str::to_owned).collect(),
            ..claim::State::default()
        };
        assert_eq!(summary(&claim::decide(&state)), expected, "{claim}");
    }
}

#[test]
fn a_claim_that_names_a_volume_gets_this_one_or_none() {
    for (volume, expected) in [
        (None, ""),
        (Some(json!({})), "volume -> c1"),
        (Some(json!({ "spec": { "storageClassName": "slow" } })), "Claim Warning VolumeMismatch"),
        (Some(reference("other")), "Claim Warning FailedBinding"),
        (Some(reference("c1")), "volume Bound"),
    ] {
        let state = claim::State {
            claim: a_claim(json!({ "spec": { "volumeName": "v" } })),
            volume: volume.clone().map(a_volume),
            ..claim::State::default()
        };
        assert_eq!(summary(&claim::decide(&state)), expected, "{volume:?}");
    }
}

#[test]
fn a_bound_claim_that_loses_its_volume_is_lost() {
    let bound = json!({
        "metadata": { "annotations": { "pv.kubernetes.io/bind-completed": "yes" } },
        "spec": { "volumeName": "v" },
        "status": { "phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "2Gi" } },
    });
    let is_bound = json!({ "status": { "phase": "Bound" } });
    for (claim, volume, expected) in [
        (json!({}), Some(both(reference("c1"), is_bound)), ""),
        (json!({}), None, "Claim Warning ClaimLost; claim Lost"),
        (json!({ "spec": { "volumeName": "" } }), None, "Claim Warning ClaimLost; claim Lost"),
        (json!({}), Some(reference("c0")), "Claim Warning ClaimMisbound; claim Lost"),
        // The volume came unbound, and is bound again.
        (json!({}), Some(json!({})), "volume -> c1"),
        (json!({ "status": { "phase": "Lost", "accessModes": null, "capacity": null } }), None, ""),
    ] {
        let state = claim::State {
            claim: a_claim(both(bound.clone(), claim.clone())),
            volume: volume.clone().map(a_volume),
            ..claim::State::default()
        };
        assert_eq!(summary(&claim::decide(&state)), expected, "{claim} {volume:?}");
    }
}

#[test]
fn a_volume_follows_its_claim() {
    let released = json!({ "status": { "phase": "Released" } });
    let delete = json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } });
    let provisioned =
        json!({ "metadata": { "annotations": { "pv.kubernetes.io/provisioned-by": "p.example/x" } } });
    let by_controller =
        json!({ "metadata": { "annotations": { "pv.kubernetes.io/bound-by-controller": "yes" } } });
    let named = |name: &str| json!({ "spec": { "volumeName": name } });
    let gone = both(reference("c0"), released);
    for (volume, claim, expected) in [
        (json!({ "status": { "phase": "Pending" } }), None, "volume Available"),
        // It is reserved by name.
        (both(reference(""), json!({ "status": { "phase": "Pending" } })), None, "volume Available"),
        (reference("c1"), Some(named("v")), "volume Bound"),
        (reference("c1"), Some(json!({})), ""),
        (
            both(reference("c1"), json!({ "spec": { "volumeMode": "Block" } })),
            Some(json!({})),
            "Volume Warning VolumeMismatch; Claim Warning VolumeMismatch",
        ),
        // The claim is deleted, or another of its name is there.
        (reference("c1"), None, "volume Released"),
        (reference("c0"), Some(named("v")), "volume Released"),
        (gone.clone(), None, ""),
        (both(gone.clone(), delete.clone()), None, "Volume Warning VolumeFailedDelete; volume Failed"),
        (both(both(gone, delete.clone()), provisioned.clone()), None, ""),
        // The claim is bound to another volume.
        (both(reference("c1"), by_controller), Some(named("w")), "volume -> no claim"),
        (reference("c1"), Some(named("w")), "volume -> reserved"),
        (both(both(reference("c1"), delete), provisioned), Some(named("w")), "volume Released"),
    ] {
        let state = volume::State { volume: a_volume(volume.clone()), claim: claim.clone().map(a_claim) };
        assert_eq!(summary(&volume::decide(&state)), expected, "{volume} {claim:?}");
    }
}

fn ours(more: Value) -> Value {
    let annotations = json!({
        "pv.kubernetes.io/provisioned-by": "plumb.dev/local-path", "plumb.dev/selected-node": "a",
    });
    both(json!({ "metadata": { "annotations": annotations } }), more)
}

fn a_node(directory: Option<&str>) -> Node {
    let annotations = directory.map(|directory| json!({ "plumb.dev/local-volumes": directory }));
    let labels = json!({ "kubernetes.io/hostname": "host-a" });
    serde_json::from_value(
        json!({ "metadata": { "name": "a", "labels": labels, "annotations": annotations } }),
    )
    .unwrap()
}

#[test]
fn a_claim_on_a_selected_node_gets_a_directory_there() {
    let class = a_class(json!({ "provisioner": "plumb.dev/local-path", "reclaimPolicy": "Delete" }));
    let asked = json!({ "metadata": { "annotations": {
        "volume.kubernetes.io/storage-provisioner": "plumb.dev/local-path",
        "volume.kubernetes.io/selected-node": "a",
    } } });
    let decided = |claim: Value, node: Option<&Node>| {
        provision(&a_claim(both(asked.clone(), claim)), Some(&class), node)
    };
    let node = a_node(Some("/data/volumes-local"));
    let Provision::Create(made) = decided(json!({}), Some(&node)) else { panic!("no volume") };
    let made = serde_json::to_value(made).unwrap();
    assert_eq!(made["metadata"]["name"], "pvc-c1");
    assert_eq!(made["spec"]["local"]["path"], "/data/volumes-local/pvc-c1");
    assert_eq!(made["spec"]["capacity"]["storage"], "1Gi");
    assert_eq!(made["spec"]["claimRef"]["uid"], "c1");
    assert_eq!(made["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    let term = &made["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"][0]["matchExpressions"][0];
    assert_eq!(term["values"], json!(["host-a"]));
    assert!(made["metadata"]["annotations"].get("pv.kubernetes.io/bound-by-controller").is_none());

    for (claim, why) in [
        (
            json!({ "spec": { "accessModes": ["ReadWriteMany"] } }),
            "access mode ReadWriteMany is not supported",
        ),
        (json!({ "spec": { "volumeMode": "Block" } }), "volumeMode Block is not supported"),
        (json!({ "spec": { "selector": {} } }), "claim.Spec.Selector is not supported"),
        (
            json!({ "metadata": { "annotations": { "volume.kubernetes.io/selected-node": "" } } }),
            "no node was selected",
        ),
    ] {
        let Provision::Fail(message) = decided(claim, Some(&node)) else { panic!("not refused: {why}") };
        assert!(message.contains(why), "{message}");
    }
    // A virtual node has no directory, and the volume is one all the same.
    assert!(matches!(decided(json!({}), Some(&a_node(None))), Provision::Create(_)));
    // The node is gone: the scheduler selects another.
    let given_back = |decision: Provision| {
        let Provision::Reschedule(claim, why) = decision else { panic!("not rescheduled") };
        let annotations = claim.metadata.annotations.as_ref().unwrap();
        assert!(!annotations.contains_key("volume.kubernetes.io/selected-node"));
        why
    };
    assert_eq!(given_back(decided(json!({}), None)), "failed to get target node: node \"a\" not found");
    // So does a node whose whole disk is smaller than the request.
    let with_disk = |size: &str| {
        let mut node = node.clone();
        let annotations = node.metadata.annotations.as_mut().unwrap();
        annotations.insert("plumb.dev/local-volumes-capacity".to_owned(), size.to_owned());
        node
    };
    assert!(matches!(decided(json!({}), Some(&with_disk("1Gi"))), Provision::Create(_)));
    let why = "failed to provision volume with StorageClass \"fast\": 1Gi is requested, and the disk of node \"a\" has 1000Mi";
    assert_eq!(given_back(decided(json!({}), Some(&with_disk("1000Mi")))), why);
    // One that is bound, or that another provisioner is asked for, is left alone.
    assert_eq!(decided(json!({ "spec": { "volumeName": "v" } }), Some(&node)), Provision::Nothing);
    assert_eq!(provision(&a_claim(json!({})), Some(&class), Some(&node)), Provision::Nothing);
}

#[test]
fn a_directory_is_removed_once_no_claim_has_it_and_never_if_it_is_retained() {
    let delete = json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } });
    let deleted = json!({ "metadata": {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"],
    } });
    let in_phase = |phase: &str| json!({ "status": { "phase": phase } });
    let (real, virtual_node) = (a_node(Some("/data")), a_node(None));
    let remove = Reclaim::RemoveFrom("a".to_owned());
    for (volume, node, expected) in [
        (both(delete.clone(), in_phase("Bound")), Some(&real), Reclaim::Nothing),
        (both(delete.clone(), in_phase("Available")), Some(&real), Reclaim::Nothing),
        (both(delete.clone(), in_phase("Released")), Some(&real), remove.clone()),
        (both(delete.clone(), in_phase("Released")), Some(&virtual_node), Reclaim::Finish),
        (both(delete.clone(), in_phase("Released")), None, Reclaim::Finish),
        (in_phase("Released"), Some(&real), Reclaim::Nothing),
        // A user has deleted the volume: while it is bound its data stays.
        (both(both(delete.clone(), deleted.clone()), in_phase("Bound")), Some(&real), Reclaim::Nothing),
        (both(both(delete.clone(), deleted.clone()), in_phase("Available")), Some(&real), remove),
        (both(deleted, in_phase("Released")), Some(&real), Reclaim::RemoveFinalizer),
    ] {
        let decided = reclaim::decide(&a_volume(ours(volume.clone())), node);
        assert_eq!(decided, expected, "{volume}");
    }
    // A volume of another provisioner, whatever its path.
    let others = a_volume(both(delete, in_phase("Released")));
    assert_eq!(reclaim::decide(&others, Some(&real)), Reclaim::Nothing);
}

#[test]
fn a_claim_grows_after_its_volume() {
    let claim = |requested: &str, has: &str| {
        a_claim(json!({
            "spec": { "resources": { "requests": { "storage": requested } }, "volumeName": "v" },
            "status": { "phase": "Bound", "capacity": { "storage": has } },
        }))
    };
    let volume = |size: &str| {
        a_volume(both(ours(reference("c1")), json!({ "spec": { "capacity": { "storage": size } } })))
    };
    let mut node = a_node(Some("/data"));
    let disk = ("plumb.dev/local-volumes-capacity".to_owned(), "9Gi".to_owned());
    node.metadata.annotations.as_mut().unwrap().extend([disk]);
    let expand =
        |claim: &PersistentVolumeClaim, volume: &PersistentVolume| expand(claim, volume, Some(&node));
    assert_eq!(expand(&claim("1Gi", "1Gi"), &volume("1Gi")), Expansion::Nothing);
    let Expansion::Volume(grown) = expand(&claim("3Gi", "1Gi"), &volume("1Gi")) else { panic!("not grown") };
    assert_eq!(grown.spec.as_ref().unwrap().capacity.as_ref().unwrap()["storage"].0, "3Gi");
    let Expansion::Claim(grown) = expand(&claim("3Gi", "1Gi"), &grown) else { panic!("not shown") };
    assert_eq!(grown.status.as_ref().unwrap().capacity.as_ref().unwrap()["storage"].0, "3Gi");
    assert_eq!(expand(&claim("3Gi", "1Gi"), &a_volume(reference("c1"))), Expansion::Nothing);
    // Not beyond the disk of its node.
    let why = "resize volume \"v\" failed: 10Gi is requested, and the disk of node \"a\" has 9Gi";
    assert_eq!(expand(&claim("10Gi", "1Gi"), &volume("1Gi")), Expansion::Fail(why.to_owned()));
}

#[test]
fn events_have_the_words_of_upstream() {
    let message = |state: claim::State| {
        let step = claim::decide(&state);
        assert!(step.events.iter().all(|(about, _)| *about == About::Claim));
        step.events.into_iter().map(|(_, note)| note.message).collect::<Vec<_>>().join("; ")
    };
    let state = |claim: Value| claim::State { claim: a_claim(claim), ..claim::State::default() };
    assert_eq!(message(state(json!({}))), "storageclass.storage.k8s.io \"fast\" not found");
    assert_eq!(
        message(state(json!({ "spec": { "storageClassName": null } }))),
        "no persistent volumes available for this claim and no storage class is set"
    );
    let waits = a_class(json!({ "volumeBindingMode": "WaitForFirstConsumer" }));
    let two = claim::State {
        class: Some(waits),
        waiting_pods: vec!["p".to_owned(), "q".to_owned()],
        ..state(json!({}))
    };
    assert_eq!(message(two), "waiting for pods p,q to be scheduled");
    let mismatch = claim::State {
        volume: Some(a_volume(json!({ "spec": { "capacity": { "storage": "1Mi" } } }))),
        ..state(json!({ "spec": { "volumeName": "v" } }))
    };
    assert_eq!(message(mismatch), "Cannot bind to requested volume \"v\": requested PV is too small");
}
