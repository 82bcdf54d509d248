//! What becomes of an object in view of those that own it, and that it owns.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PropagationPolicy;

use super::graph::{FOREGROUND, Graph, ORPHAN, Thing};

/// How an owner stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is there.
    Solid,
    /// It goes as soon as those are gone that it owns.
    Waiting,
    /// It is gone.
    Gone,
}

/// What becomes of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Nothing.
    Leave,
    /// Nobody knows yet: these owners have never been seen.
    Ask(Vec<OwnerReference>),
    /// It waits for these, who are to be looked at.
    After(Vec<String>),
    /// These are to let go of it first.
    Orphan(Vec<String>),
    /// Nothing holds it any more in this way.
    Free(&'static str),
    /// It belongs to these only.
    Keep(Vec<OwnerReference>),
    /// It goes.
    Delete(PropagationPolicy),
}

/// What becomes of an object. Pure.
pub fn judge(graph: &Graph, uid: &str) -> Verdict {
    let Some(thing) = graph.get(uid) else { return Verdict::Leave };
    if thing.going { going(graph, thing) } else { staying(graph, thing) }
}

fn going(graph: &Graph, thing: &Thing) -> Verdict {
    let uid = &thing.uid;
    if thing.is_held_by(ORPHAN) {
        let owned: Vec<String> = graph.owned_by(uid).map(|one| one.uid.clone()).collect();
        return if owned.is_empty() { Verdict::Free(ORPHAN) } else { Verdict::Orphan(owned) };
    }
    if !thing.is_held_by(FOREGROUND) {
        return Verdict::Leave;
    }
    if !graph.owned_by(uid).any(|one| one.blocks(uid)) {
        return Verdict::Free(FOREGROUND);
    }
    // Who goes already is heard of. Who does not block goes at the same time, and is not waited for.
    Verdict::After(graph.owned_by(uid).filter(|one| !one.going).map(|one| one.uid.clone()).collect())
}

fn staying(graph: &Graph, thing: &Thing) -> Verdict {
    let mut unknown = Vec::new();
    let (mut solid, mut waiting, mut gone) = (Vec::new(), 0, 0);
    for owner in &thing.owners {
        match standing(graph, thing, owner) {
            None => unknown.push(owner.clone()),
            Some(Standing::Solid) => solid.push(owner.clone()),
            Some(Standing::Waiting) => waiting += 1,
            Some(Standing::Gone) => gone += 1,
        }
    }
    if !unknown.is_empty() {
        return Verdict::Ask(unknown);
    }
    if waiting + gone == 0 {
        return Verdict::Leave;
    }
    if !solid.is_empty() {
        return Verdict::Keep(solid);
    }
    let owns = graph.owned_by(&thing.uid).next().is_some();
    if waiting > 0 && owns {
        // Two that wait for each other would do so for ever.
        let circle = graph.owned_by(&thing.uid).any(Thing::waits_for_dependents);
        if circle && thing.owners.iter().any(|owner| owner.block_owner_deletion == Some(true)) {
            let free = thing.owners.iter().cloned();
            let free = free.map(|owner| OwnerReference { block_owner_deletion: Some(false), ..owner });
            return Verdict::Keep(free.collect());
        }
        return Verdict::Delete(PropagationPolicy::Foreground);
    }
    let policy = if thing.is_held_by(ORPHAN) {
        PropagationPolicy::Orphan
    } else if thing.is_held_by(FOREGROUND) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    };
    Verdict::Delete(policy)
}

/// How an owner stands; none if it has never been seen.
fn standing(graph: &Graph, thing: &Thing, owner: &OwnerReference) -> Option<Standing> {
    let Some(found) = graph.get(&owner.uid) else {
        let is_gone = graph.is_gone(&owner.uid) || graph.is_absent(owner, &thing.at.namespace);
        return is_gone.then_some(Standing::Gone);
    };
    let (there, here) = (&found.at.namespace, &thing.at.namespace);
    if !there.is_empty() && there != here {
        // Nothing belongs to somebody in another namespace; what is in none cannot say in which it looks.
        return Some(if here.is_empty() { Standing::Solid } else { Standing::Gone });
    }
    Some(if found.waits_for_dependents() { Standing::Waiting } else { Standing::Solid })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use plumb_controller::ObjectRef;

    use super::*;

    /// A thing, of a name that is its uid: `owners` are names, with a `!` if it blocks them; `state` is empty, or `going`,
    /// or what holds it while it goes.
    fn thing(name: &str, owners: &[&str], state: &str) -> Thing {
        let reference = |name: &&str| {
            let (uid, block) = name.strip_suffix('!').map_or((*name, false), |uid| (uid, true));
            let reference = json!({ "apiVersion": "v1", "kind": "X", "name": uid, "uid": uid, "blockOwnerDeletion": block });
            serde_json::from_value(reference).unwrap()
        };
        let finalizers = if state.is_empty() || state == "going" { vec![] } else { vec![state.to_owned()] };
        Thing {
            kind: 0,
            at: ObjectRef::namespaced("n", name),
            uid: name.to_owned(),
            revision: "1".to_owned(),
            owners: owners.iter().map(reference).collect(),
            finalizers,
            going: !state.is_empty(),
        }
    }

    fn graph(things: &[(&str, &[&str], &str)], gone: &[&str]) -> Graph {
        let mut graph = Graph::default();
        for (name, owners, state) in things {
            graph.put(thing(name, owners, state));
        }
        for name in gone {
            graph.note_gone(name);
        }
        graph
    }

    fn said(verdict: Verdict) -> String {
        let names =
            |owners: Vec<OwnerReference>| owners.into_iter().map(|o| o.name).collect::<Vec<_>>().join(" ");
        match verdict {
            Verdict::Leave => "leave".to_owned(),
            Verdict::Ask(owners) => format!("ask {}", names(owners)),
            Verdict::After(uids) => format!("after {}", uids.join(" ")),
            Verdict::Orphan(uids) => format!("orphan {}", uids.join(" ")),
            Verdict::Free(finalizer) => format!("free {finalizer}"),
            Verdict::Keep(owners) => format!("keep {}", names(owners)),
            Verdict::Delete(policy) => format!("delete {policy:?}"),
        }
    }

    type Row<'a> = (&'a str, &'a [(&'a str, &'a [&'a str], &'a str)], &'a [&'a str], &'a str);

    #[test]
    fn an_object_goes_with_its_last_owner() {
        let table: [Row<'_>; 16] = [
            ("belongs to nobody", &[("x", &[], "")], &[], "leave"),
            ("its owner is there", &[("o", &[], ""), ("x", &["o"], "")], &[], "leave"),
            ("its owner is gone", &[("x", &["o"], "")], &["o"], "delete Background"),
            ("its owner was never seen", &[("x", &["o"], "")], &[], "ask o"),
            ("one owner of two is gone", &[("p", &[], ""), ("x", &["o", "p"], "")], &["o"], "keep p"),
            ("goes already", &[("x", &["o"], "going")], &["o"], "leave"),
            ("its owner goes in the background", &[("o", &[], "going"), ("x", &["o"], "")], &[], "leave"),
            (
                "its owner waits for it",
                &[("o", &[], FOREGROUND), ("x", &["o!"], "")],
                &[],
                "delete Background",
            ),
            (
                "its owner waits, and it owns something",
                &[("o", &[], FOREGROUND), ("x", &["o!"], ""), ("y", &["x!"], "")],
                &[],
                "delete Foreground",
            ),
            ("a circle is broken", &[("x", &["o!"], ""), ("o", &["x!"], FOREGROUND)], &[], "keep o"),
            ("waits for one that stays", &[("x", &[], FOREGROUND), ("y", &["x!"], "")], &[], "after y"),
            (
                "waits for one of two that stay",
                &[("x", &[], FOREGROUND), ("y", &["x!"], ""), ("z", &["x"], "")],
                &[],
                "after y z",
            ),
            ("waits for one that goes", &[("x", &[], FOREGROUND), ("y", &["x!"], "going")], &[], "after "),
            (
                "waits for none that blocks it",
                &[("x", &[], FOREGROUND), ("y", &["x"], "")],
                &[],
                "free foregroundDeletion",
            ),
            ("lets its own go", &[("x", &[], ORPHAN), ("y", &["x"], "")], &[], "orphan y"),
            ("has let its own go", &[("x", &[], ORPHAN)], &[], "free orphan"),
        ];
        for (what, things, gone, wanted) in table {
            assert_eq!(said(judge(&graph(things, gone), "x")), wanted, "{what}");
        }
    }

    #[test]
    fn who_is_not_there_under_one_name_may_be_there_under_another() {
        let mut graph = graph(&[("x", &["o"], ""), ("y", &["o"], "")], &[]);
        let mut other = thing("y", &["o"], "");
        other.owners[0].kind = "Y".to_owned();
        graph.put(other);
        graph.note_absent(&thing("x", &["o"], "").owners[0], "n");
        assert_eq!(said(judge(&graph, "x")), "delete Background");
        assert_eq!(said(judge(&graph, "y")), "ask o");
    }

    #[test]
    fn an_owner_in_another_namespace_is_none() {
        let mut graph = graph(&[("o", &[], "")], &[]);
        let mut other = thing("x", &["o"], "");
        other.at.namespace = "m".to_owned();
        graph.put(other.clone());
        assert_eq!(said(judge(&graph, "x")), "delete Background");
        other.at.namespace = String::new();
        graph.put(other);
        assert_eq!(said(judge(&graph, "x")), "leave");
    }

    #[test]
    fn a_change_touches_only_those_that_it_concerns() {
        let mut graph = graph(&[("o", &[], ""), ("x", &["o!"], ""), ("y", &["o"], ""), ("z", &[], "")], &[]);
        let names = |touched: std::collections::BTreeSet<String>| touched.into_iter().collect::<Vec<_>>();
        assert_eq!(names(graph.put(thing("z", &[], ""))), [""; 0]);
        assert_eq!(names(graph.put(thing("x", &["o!"], ""))), [""; 0]);
        assert_eq!(names(graph.put(thing("o", &[], FOREGROUND))), ["o"]);
        // The owner that waits hears of each that is gone.
        assert_eq!(names(graph.remove(0, &ObjectRef::namespaced("n", "x"))), ["o"]);
        assert_eq!(names(graph.remove(0, &ObjectRef::namespaced("n", "o"))), ["y"]);
        assert_eq!(graph.count_within("n"), 2);
    }
}
