//! The `StatefulSet` controller as a [`Workload`](crate::workload::Workload).

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use plumb_controller_runtime::ObjectRef;

use super::identity::{name, parts, range};
use super::storage::{belongs_to, wanted};
use super::{Claims, NAME, State, decide, spec};
use crate::workload::claim::claims;
use crate::workload::{Action, Context, Informers, Kind, Note, Verb, Watches, Workload, WriteOutcome};

/// The `StatefulSet` controller.
pub struct StatefulSets;

impl Workload for StatefulSets {
    const NAME: &'static str = NAME;
    type Kind = StatefulSet;
    type State = State;

    fn watch(&self, watches: &Watches<StatefulSet>) {
        watches.owned::<Pod>(selector);
        watches.owned::<ControllerRevision>(selector);
        let queue = watches.queue.clone();
        let sets = watches.informers.stateful_sets.clone();
        watches.informers.claims.add_handler(move |change| {
            let Some(claim) = change.latest() else { return };
            let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
            for set in sets.in_namespace(namespace).iter().filter(|set| belongs_to(claim, set)) {
                queue.add(ObjectRef::of(&**set));
            }
        });
    }

    fn claims(&self, set: &StatefulSet, informers: &Informers) -> Vec<Action> {
        let is_member = |pod: &str| parts(pod).is_some_and(|(parent, _)| parent == name(set));
        let pods = claims(set, selector(set).as_ref(), &informers.pods);
        let revisions = claims(set, selector(set).as_ref(), &informers.revisions);
        let wanted = |action: &Action| match action {
            Action::Adopt(of) if of.kind == Kind::Pod => is_member(&of.name),
            // A revision is never released, even if its labels do not match.
            Action::Release(of) => of.kind == Kind::Pod,
            _ => true,
        };
        pods.into_iter().chain(revisions).filter(wanted).collect()
    }

    fn gather(&self, set: &Arc<StatefulSet>, informers: &Informers) -> State {
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let namespace = set.metadata.namespace.clone().unwrap_or_default();
        let pods = informers.pods.controlled_by(uid);
        let ordinals: BTreeSet<i32> =
            range(set).chain(pods.iter().filter_map(|pod| Some(parts(name(&**pod))?.1))).collect();
        let mut of_pods = Claims::new();
        if spec(set).volume_claim_templates.as_ref().is_some_and(|templates| !templates.is_empty()) {
            let names = ordinals.into_iter().flat_map(|ordinal| wanted(set, ordinal));
            let names = names.filter_map(|claim| claim.metadata.name);
            of_pods = names
                .filter_map(|name| {
                    Some((name.clone(), informers.claims.get(&ObjectRef::namespaced(&*namespace, name))?))
                })
                .collect();
        }
        let taken =
            informers.revisions.in_namespace(&namespace).iter().map(|one| name(&**one).to_owned()).collect();
        State {
            set: set.clone(),
            pods,
            revisions: informers.revisions.controlled_by(uid),
            taken,
            claims: of_pods,
        }
    }

    fn decide(&self, state: &State, context: &Context) -> Vec<Action> {
        decide(state, context.now)
    }

    fn event_for(&self, set: &StatefulSet, outcome: &WriteOutcome<'_>) -> Option<Note> {
        event_for(name(set), outcome)
    }
}

fn selector(set: &StatefulSet) -> Option<LabelSelector> {
    set.spec.as_ref().map(|spec| spec.selector.clone())
}

/// The event about a created, updated or deleted pod or claim.
fn event_for(set: &str, outcome: &WriteOutcome<'_>) -> Option<Note> {
    let (verb, well, badly) = match outcome.verb {
        Verb::Create => ("Create", "SuccessfulCreate", "FailedCreate"),
        Verb::Change => ("Update", "SuccessfulUpdate", "FailedUpdate"),
        Verb::Delete => ("Delete", "SuccessfulDelete", "FailedDelete"),
    };
    let object = &outcome.object.name;
    match (outcome.object.kind, outcome.error) {
        (Kind::Pod, None) => {
            Some(Note::normal(well, format!("{verb} Pod {object} in StatefulSet {set} successful")))
        }
        (Kind::Pod, Some(error)) => Some(Note::warning(
            badly,
            format!("{verb} Pod {object} in StatefulSet {set} failed error: {error}"),
        )),
        (Kind::PersistentVolumeClaim, error) if outcome.verb == Verb::Create => {
            let ordinal = parts(object).map_or(0, |(_, ordinal)| ordinal);
            let pod = format!("{set}-{ordinal}");
            Some(match error {
                None => {
                    let message = format!("Create Claim {object} Pod {pod} in StatefulSet {set} success");
                    Note::normal(well, message)
                }
                Some(error) => {
                    let message = format!(
                        "Create Claim {object} for Pod {pod} in StatefulSet {set} failed error: {error}"
                    );
                    Note::warning(badly, message)
                }
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Ref;

    #[test]
    fn events_report_created_and_deleted_pods_and_claims() {
        let said_of = |kind: Kind, name: &str, verb: Verb, error: Option<&str>| {
            let object = Ref { kind, namespace: String::new(), name: name.to_owned(), uid: String::new() };
            event_for("web", &WriteOutcome { verb, object: &object, error })
                .map(|note| (note.reason, note.message))
        };
        let pod = Kind::Pod;
        let claim = Kind::PersistentVolumeClaim;
        for (said, reason, message) in [
            (
                said_of(pod, "web-0", Verb::Create, None),
                "SuccessfulCreate",
                "Create Pod web-0 in StatefulSet web successful",
            ),
            (
                said_of(pod, "web-1", Verb::Delete, Some("no")),
                "FailedDelete",
                "Delete Pod web-1 in StatefulSet web failed error: no",
            ),
            (
                said_of(claim, "d-web-2", Verb::Create, None),
                "SuccessfulCreate",
                "Create Claim d-web-2 Pod web-2 in StatefulSet web success",
            ),
        ] {
            assert_eq!(said, Some((reason, message.to_owned())));
        }
        assert_eq!(said_of(claim, "d-web-2", Verb::Change, None), None);
    }
}
