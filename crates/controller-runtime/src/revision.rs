//! The history of a workload: its templates, in the order in which they were rolled out.
//!
//! A [`ControllerRevision`] holds a template as the patch that restores it, which is what `kubectl rollout undo`
//! applies. A template that the history holds already is the same revision, with a higher number.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde_json::json;

/// How long a prefix of a name may be.
const LONGEST_PREFIX: usize = 223;
/// The alphabet of hashes: no vowels, so that they are no words.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// The workload of the template.
pub struct Subject<'a> {
    /// The metadata of the workload.
    pub metadata: &'a ObjectMeta,
    /// The owner reference of its revisions.
    pub owner: OwnerReference,
    /// Its template now.
    pub template: &'a PodTemplateSpec,
    /// The label of a revision that has its hash.
    pub label: &'static str,
    /// How often names collided so far.
    pub collisions: Option<i32>,
}

/// The revision that a template is.
#[derive(Debug)]
pub enum Settled {
    /// It exists, and is the latest.
    There(Arc<ControllerRevision>),
    /// It has to be created first.
    Missing(Box<ControllerRevision>),
    /// It exists, and has to be updated to become the latest first.
    Former(Box<ControllerRevision>),
}

impl Settled {
    /// The revision, as it is or would be.
    pub fn revision(self) -> Arc<ControllerRevision> {
        match self {
            Self::There(revision) => revision,
            Self::Missing(revision) | Self::Former(revision) => Arc::new(*revision),
        }
    }
}

/// The name of a revision.
pub fn name(revision: &ControllerRevision) -> &str {
    revision.metadata.name.as_deref().unwrap_or_default()
}

/// The template of a revision.
pub fn template(revision: &ControllerRevision) -> Option<PodTemplateSpec> {
    let template = revision.data.as_ref()?.0.get("spec")?.get("template")?;
    plumb_client::decode_template(template.clone()).ok().map(plain)
}

/// A template without the metadata that templates cannot have, and without empty maps.
fn plain(mut template: PodTemplateSpec) -> PodTemplateSpec {
    if let Some(said) = &mut template.metadata {
        said.creation_timestamp = None;
        said.labels.take_if(|labels| labels.is_empty());
        said.annotations.take_if(|annotations| annotations.is_empty());
    }
    template.metadata = template.metadata.filter(|said| *said != ObjectMeta::default());
    template
}

/// Puts revisions in the order in which they were rolled out.
pub fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    revisions.sort_by_cached_key(|one| {
        (one.revision, one.metadata.creation_timestamp.clone(), name(one).to_owned())
    });
}

/// Finds the revision that a template is among those of its workload, which are sorted. `taken` are the names that
/// revisions of the namespace have.
pub fn settle(of: &Subject<'_>, revisions: &[Arc<ControllerRevision>], taken: &BTreeSet<String>) -> Settled {
    let wanted = plain(of.template.clone());
    let next = revisions.last().map_or(1, |last| last.revision + 1);
    // A terminating revision is not reused.
    let stays = |one: &&Arc<ControllerRevision>| one.metadata.deletion_timestamp.is_none();
    let same = revisions.iter().rev().filter(stays).find(|one| template(one).as_ref() == Some(&wanted));
    match same {
        Some(same) if same.revision + 1 == next => Settled::There(same.clone()),
        Some(same) => {
            let renumbered = ControllerRevision { revision: next, ..ControllerRevision::clone(same) };
            Settled::Former(Box::new(renumbered))
        }
        None => Settled::Missing(Box::new(new(of, next, taken))),
    }
}

/// A new revision, of a name that is free.
fn new(of: &Subject<'_>, number: i64, taken: &BTreeSet<String>) -> ControllerRevision {
    let mut template = plumb_client::encode_template(of.template);
    template["$patch"] = json!("replace");
    let data = json!({ "spec": { "template": template } });
    let text = data.to_string();
    let prefix: String =
        of.owner.name.char_indices().take_while(|(at, _)| *at < LONGEST_PREFIX).map(|(_, c)| c).collect();
    let mut collisions = of.collisions.unwrap_or(0);
    let (name, hash) = loop {
        let hash = hash(&text, collisions);
        let name = format!("{prefix}-{hash}");
        if !taken.contains(&name) {
            break (name, hash);
        }
        collisions += 1;
    };
    let labels = of.template.metadata.as_ref().and_then(|said| said.labels.clone());
    let mut labels = labels.unwrap_or_default();
    labels.insert(of.label.to_owned(), hash);
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: of.metadata.namespace.clone(),
            labels: Some(labels),
            annotations: of.metadata.annotations.clone(),
            owner_references: Some(vec![of.owner.clone()]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(data)),
        revision: number,
    }
}

/// A name for a text: short, and the same on every machine (FNV-1).
fn hash(text: &str, collisions: i32) -> String {
    let mut hash: u32 = 0x811c_9dc5;
    for byte in text.bytes().chain(collisions.to_string().bytes()) {
        hash = hash.wrapping_mul(0x0100_0193) ^ u32::from(byte);
    }
    spelled(hash)
}

/// A hash in letters that make no words.
pub fn spelled(hash: u32) -> String {
    hash.to_string().bytes().map(|digit| char::from(LETTERS[usize::from(digit) % LETTERS.len()])).collect()
}

/// The revisions to delete, the oldest first: of those that are past, as many as exceed the history limit, but none that
/// is still used.
pub fn expired(
    revisions: &[Arc<ControllerRevision>],
    is_past: impl Fn(&ControllerRevision) -> bool,
    is_used: impl Fn(&ControllerRevision) -> bool,
    limit: i32,
) -> Vec<Arc<ControllerRevision>> {
    let Ok(limit) = usize::try_from(limit) else { return Vec::new() };
    let past: Vec<&Arc<ControllerRevision>> = revisions.iter().filter(|one| is_past(one)).collect();
    let beyond = past.len().saturating_sub(limit);
    let unused = past.into_iter().filter(|one| !is_used(one));
    unused.take(beyond).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject<'a>(metadata: &'a ObjectMeta, template: &'a PodTemplateSpec) -> Subject<'a> {
        let owner =
            OwnerReference { name: "web".to_owned(), uid: "u".to_owned(), ..OwnerReference::default() };
        Subject { metadata, owner, template, label: "hash", collisions: None }
    }

    fn mk_template(image: &str) -> PodTemplateSpec {
        serde_json::from_value(json!({ "spec": { "containers": [{ "name": "c", "image": image }] } }))
            .unwrap()
    }

    fn written(
        of: &Subject<'_>,
        revisions: &[Arc<ControllerRevision>],
        taken: &[&str],
    ) -> ControllerRevision {
        let taken = taken.iter().map(|name| (*name).to_owned()).collect();
        match settle(of, revisions, &taken) {
            Settled::Missing(one) | Settled::Former(one) => *one,
            Settled::There(one) => panic!("{one:?}"),
        }
    }

    #[test]
    fn a_template_is_a_revision_and_one_that_comes_back_is_the_same() {
        let metadata = ObjectMeta::default();
        let (one, two) = (mk_template("one"), mk_template("two"));
        let first = Arc::new(written(&subject(&metadata, &one), &[], &[]));
        assert_eq!((first.revision, template(&first)), (1, Some(one.clone())));
        assert_eq!(first.data.as_ref().unwrap().0["spec"]["template"]["$patch"], "replace");
        let there = settle(&subject(&metadata, &one), std::slice::from_ref(&first), &BTreeSet::new());
        assert!(matches!(there, Settled::There(found) if found == first));

        let second = Arc::new(written(&subject(&metadata, &two), std::slice::from_ref(&first), &[]));
        assert_eq!(second.revision, 2);
        assert_ne!(name(&second), name(&first));
        let back = written(&subject(&metadata, &one), &[first.clone(), second], &[]);
        assert_eq!((back.revision, name(&back)), (3, name(&first)));
    }

    #[test]
    fn a_name_that_is_taken_is_not_taken_again() {
        let (metadata, template) = (ObjectMeta::default(), mk_template("one"));
        let first = written(&subject(&metadata, &template), &[], &[]);
        let other = written(&subject(&metadata, &template), &[], &[name(&first)]);
        assert_ne!(name(&other), name(&first));
    }

    #[test]
    fn revisions_beyond_the_limit_expire_from_the_oldest() {
        let metadata = ObjectMeta::default();
        let mut revisions = Vec::new();
        for image in ["a", "b", "c", "d"] {
            revisions.push(Arc::new(written(&subject(&metadata, &mk_template(image)), &revisions, &[])));
        }
        let gone = |past: &[i64], used: &[i64], limit: i32| -> Vec<i64> {
            let is_past = |one: &ControllerRevision| past.contains(&one.revision);
            let is_used = |one: &ControllerRevision| used.contains(&one.revision);
            expired(&revisions, is_past, is_used, limit).iter().map(|one| one.revision).collect()
        };
        assert_eq!(gone(&[1, 3, 4], &[], 1), [1, 3]);
        assert_eq!(gone(&[1, 3, 4], &[], 3), [0; 0]);
        assert_eq!(gone(&[1, 3, 4], &[], 0), [1, 3, 4]);
        // One that is used counts, and stays.
        assert_eq!(gone(&[1, 2, 3], &[1], 2), [2]);
        assert_eq!(gone(&[1, 2, 3], &[1, 3], 0), [2]);
    }
}
