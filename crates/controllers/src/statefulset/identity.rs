//! The identity of a `StatefulSet`'s pods: the ordinal, and the name and labels that follow from it.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume};

use super::storage::claim_name;
use super::{REVISION, spec};
use crate::workload::pods;
use plumb_controller_runtime::controller_reference;

const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// The name of a workload or a pod.
pub(super) fn name(of: &impl kube::Resource) -> &str {
    of.meta().name.as_deref().unwrap_or_default()
}

/// The name of the set and the ordinal, parsed from the name of a pod.
pub(super) fn parts(pod: &str) -> Option<(&str, i32)> {
    let (set, number) = pod.rsplit_once('-')?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| is_number).map(|number| (set, number))
}

/// The ordinal of a pod of a set.
pub(super) fn ordinal(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    parts(name(pod)).filter(|(parent, _)| *parent == name(set)).map(|(_, ordinal)| ordinal)
}

/// The desired ordinals of a set.
pub(super) fn range(set: &StatefulSet) -> std::ops::Range<i32> {
    let start = start(set);
    start..start.saturating_add(spec(set).replicas.unwrap_or(1))
}

/// The first ordinal.
pub(super) fn start(set: &StatefulSet) -> i32 {
    spec(set).ordinals.as_ref().and_then(|ordinals| ordinals.start).unwrap_or(0)
}

/// The identity labels of a pod.
pub(super) fn labels(name: &str, ordinal: i32) -> [(String, String); 2] {
    [(POD_NAME.to_owned(), name.to_owned()), (POD_INDEX.to_owned(), ordinal.to_string())]
}

/// Whether a pod has its identity labels.
pub(super) fn says_its_name(pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(POD_NAME)).map(String::as_str) == Some(name(pod))
}

/// The pod of an ordinal, from the template of a revision.
pub(super) fn new_pod(set: &StatefulSet, ordinal: i32, template: &PodTemplateSpec, revision: &str) -> Pod {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let mut pod = pods::from_template(template, namespace, name(set), controller_reference(set));
    let own = format!("{}-{ordinal}", name(set));
    let all = pod.metadata.labels.get_or_insert_default();
    all.extend(labels(&own, ordinal));
    all.insert(REVISION.to_owned(), revision.to_owned());
    pod.metadata.name = Some(own.clone());
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(own);
        spec.subdomain = super::spec(set).service_name.clone().filter(|service| !service.is_empty());
        let claimed = super::spec(set).volume_claim_templates.iter().flatten();
        let mut volumes: Vec<Volume> = claimed
            .map(|template| Volume {
                name: name(template).to_owned(),
                persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                    claim_name: claim_name(set, template, ordinal),
                    read_only: None,
                }),
                ..Volume::default()
            })
            .collect();
        // The volume of a claim template replaces a volume of the same name.
        let others = spec.volumes.take().unwrap_or_default();
        let others = others.into_iter().filter(|one| !volumes.iter().any(|claimed| claimed.name == one.name));
        let others: Vec<Volume> = others.collect();
        volumes.extend(others);
        spec.volumes = Some(volumes).filter(|volumes| !volumes.is_empty());
    }
    pod
}
