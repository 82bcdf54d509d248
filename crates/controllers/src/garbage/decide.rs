//! Decides about an object by its owners and its dependents.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::PropagationPolicy;

use super::graph::{FOREGROUND, Graph, Node, ORPHAN};

/// The state of an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OwnerState {
    /// It exists.
    Solid,
    /// It is being deleted in the foreground.
    Waiting,
    /// It is absent.
    Gone,
}

/// What to do about an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// No action.
    Leave,
    /// Read these owners from the API server: the informers have never observed them.
    Ask(Vec<OwnerReference>),
    /// It waits for these dependents, which are to be reconciled.
    After(Vec<String>),
    /// Remove the references of these dependents to it first.
    Orphan(Vec<String>),
    /// Remove this finalizer.
    Free(&'static str),
    /// Keep only these owner references.
    Keep(Vec<OwnerReference>),
    /// Delete it.
    Delete(PropagationPolicy),
}

/// Decides what to do about an object. Pure.
pub fn decide(graph: &Graph, uid: &str) -> Verdict {
    let Some(node) = graph.get(uid) else { return Verdict::Leave };
    if node.terminating { terminating(graph, node) } else { staying(graph, node) }
}

fn terminating(graph: &Graph, node: &Node) -> Verdict {
    let uid = &node.uid;
    if node.has_finalizer(ORPHAN) {
        let owned: Vec<String> = graph.dependents(uid).map(|one| one.uid.clone()).collect();
        return if owned.is_empty() { Verdict::Free(ORPHAN) } else { Verdict::Orphan(owned) };
    }
    if !node.has_finalizer(FOREGROUND) {
        return Verdict::Leave;
    }
    if !graph.dependents(uid).any(|one| one.blocks(uid)) {
        return Verdict::Free(FOREGROUND);
    }
    // Only dependents that are not terminating yet are enqueued. Those that do not block are deleted as well, but not awaited.
    Verdict::After(graph.dependents(uid).filter(|one| !one.terminating).map(|one| one.uid.clone()).collect())
}

fn staying(graph: &Graph, node: &Node) -> Verdict {
    let mut unknown = Vec::new();
    let mut solid = Vec::new();
    let mut waiting = 0;
    let mut gone = 0;
    for owner in &node.owners {
        match owner_state(graph, node, owner) {
            None => unknown.push(owner.clone()),
            Some(OwnerState::Solid) => solid.push(owner.clone()),
            Some(OwnerState::Waiting) => waiting += 1,
            Some(OwnerState::Gone) => gone += 1,
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
    let owns = graph.dependents(&node.uid).next().is_some();
    if waiting > 0 && owns {
        // A cycle: two objects that block each other's deletion would wait forever.
        let is_cycle = graph.dependents(&node.uid).any(Node::waits_for_dependents);
        if is_cycle && node.owners.iter().any(|owner| owner.block_owner_deletion == Some(true)) {
            let free = node.owners.iter().cloned();
            let free = free.map(|owner| OwnerReference { block_owner_deletion: Some(false), ..owner });
            return Verdict::Keep(free.collect());
        }
        return Verdict::Delete(PropagationPolicy::Foreground);
    }
    let policy = if node.has_finalizer(ORPHAN) {
        PropagationPolicy::Orphan
    } else if node.has_finalizer(FOREGROUND) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    };
    Verdict::Delete(policy)
}

/// The state of an owner; none if it was never observed.
fn owner_state(graph: &Graph, node: &Node, owner: &OwnerReference) -> Option<OwnerState> {
    let Some(found) = graph.get(&owner.uid) else {
        let is_gone = graph.is_gone(&owner.uid) || graph.is_absent(owner, &node.at.namespace);
        return is_gone.then_some(OwnerState::Gone);
    };
    let there = &found.at.namespace;
    let here = &node.at.namespace;
    if !there.is_empty() && there != here {
        // An owner in another namespace is absent; a cluster-scoped object cannot say in which namespace its owner is.
        return Some(if here.is_empty() { OwnerState::Solid } else { OwnerState::Gone });
    }
    Some(if found.waits_for_dependents() { OwnerState::Waiting } else { OwnerState::Solid })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use plumb_controller_runtime::ObjectRef;

    use super::*;

    /// A node, of a name that is its uid: `owners` are names, with a `!` if it blocks them; `state` is empty,
    /// `terminating`, or the finalizer of a terminating object.
    fn node(name: &str, owners: &[&str], state: &str) -> Node {
        let reference = |name: &&str| {
            let (uid, block) = name.strip_suffix('!').map_or((*name, false), |uid| (uid, true));
            let reference = json!({ "apiVersion": "v1", "kind": "X", "name": uid, "uid": uid, "blockOwnerDeletion": block });
            serde_json::from_value(reference).unwrap()
        };
        let finalizers =
            if state.is_empty() || state == "terminating" { vec![] } else { vec![state.to_owned()] };
        Node {
            kind: 0,
            at: ObjectRef::namespaced("n", name),
            uid: name.to_owned(),
            resource_version: "1".to_owned(),
            owners: owners.iter().map(reference).collect(),
            finalizers,
            terminating: !state.is_empty(),
        }
    }

    fn graph(nodes: &[(&str, &[&str], &str)], gone: &[&str]) -> Graph {
        let mut graph = Graph::default();
        for (name, owners, state) in nodes {
            graph.put(node(name, owners, state));
        }
        for name in gone {
            graph.note_gone(name);
        }
        graph
    }

    fn text(verdict: Verdict) -> String {
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
    fn an_object_is_deleted_with_its_last_owner() {
        let table: [Row<'_>; 16] = [
            ("has no owner", &[("x", &[], "")], &[], "leave"),
            ("its owner is there", &[("o", &[], ""), ("x", &["o"], "")], &[], "leave"),
            ("its owner is gone", &[("x", &["o"], "")], &["o"], "delete Background"),
            ("its owner was never seen", &[("x", &["o"], "")], &[], "ask o"),
            ("one owner of two is gone", &[("p", &[], ""), ("x", &["o", "p"], "")], &["o"], "keep p"),
            ("goes already", &[("x", &["o"], "terminating")], &["o"], "leave"),
            (
                "its owner goes in the background",
                &[("o", &[], "terminating"), ("x", &["o"], "")],
                &[],
                "leave",
            ),
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
            (
                "waits for one that goes",
                &[("x", &[], FOREGROUND), ("y", &["x!"], "terminating")],
                &[],
                "after ",
            ),
            (
                "waits for none that blocks it",
                &[("x", &[], FOREGROUND), ("y", &["x"], "")],
                &[],
                "free foregroundDeletion",
            ),
            ("lets its own go", &[("x", &[], ORPHAN), ("y", &["x"], "")], &[], "orphan y"),
            ("has let its own go", &[("x", &[], ORPHAN)], &[], "free orphan"),
        ];
        for (what, nodes, gone, wanted) in table {
            assert_eq!(text(decide(&graph(nodes, gone), "x")), wanted, "{what}");
        }
    }

    #[test]
    fn an_owner_that_is_absent_under_one_name_may_exist_under_another() {
        let mut graph = graph(&[("x", &["o"], ""), ("y", &["o"], "")], &[]);
        let mut other = node("y", &["o"], "");
        other.owners[0].kind = "Y".to_owned();
        graph.put(other);
        graph.note_absent(&node("x", &["o"], "").owners[0], "n");
        assert_eq!(text(decide(&graph, "x")), "delete Background");
        assert_eq!(text(decide(&graph, "y")), "ask o");
    }

    #[test]
    fn an_owner_in_another_namespace_is_absent() {
        let mut graph = graph(&[("o", &[], "")], &[]);
        let mut other = node("x", &["o"], "");
        other.at.namespace = "m".to_owned();
        graph.put(other.clone());
        assert_eq!(text(decide(&graph, "x")), "delete Background");
        other.at.namespace = String::new();
        graph.put(other);
        assert_eq!(text(decide(&graph, "x")), "leave");
    }

    #[test]
    fn a_change_requeues_only_objects_that_it_affects() {
        let mut graph = graph(&[("o", &[], ""), ("x", &["o!"], ""), ("y", &["o"], ""), ("z", &[], "")], &[]);
        let names = |touched: std::collections::BTreeSet<String>| touched.into_iter().collect::<Vec<_>>();
        assert_eq!(names(graph.put(node("z", &[], ""))), [""; 0]);
        assert_eq!(names(graph.put(node("x", &["o!"], ""))), [""; 0]);
        assert_eq!(names(graph.put(node("o", &[], FOREGROUND))), ["o"]);
        // The owner that waits is reconciled after each deletion.
        assert_eq!(names(graph.remove(0, &ObjectRef::namespaced("n", "x"))), ["o"]);
        assert_eq!(names(graph.remove(0, &ObjectRef::namespaced("n", "o"))), ["y"]);
        assert_eq!(graph.count_in_namespace("n"), 2);
    }
}
