//! Authorization as recorded from kube-apiserver.

use std::collections::BTreeSet;
use std::sync::Arc;

use http::Method;
use plumb_apiserver::authn::User;
use plumb_conformance::differential::authorization::{
    AGGREGATED, Question, REVIEWS, aggregated_rules, identities, kept, lines, markers, objects, questions,
    recorded,
};
use serde_json::json;

use super::scope::{Kind, kinds};
use super::{As, Cluster, RBAC, admin};

/// A cluster with the objects that the matrix is about, and with what a controller writes into aggregated roles.
async fn cluster() -> Cluster {
    let cluster = Cluster::start();
    for (path, object) in objects() {
        cluster.make(&path, &object).await;
    }
    for name in AGGREGATED {
        let list = cluster.get(&admin(), &format!("{RBAC}/clusterroles")).await.ok();
        let mut roles = list["items"].as_array().unwrap().iter();
        let role = roles.find(|role| role["metadata"]["name"] == name).unwrap();
        let rules = json!({ "rules": aggregated_rules(&list, role) });
        cluster.patch(&admin(), &format!("{RBAC}/clusterroles/{name}"), &rules).await.ok();
    }
    cluster
}

async fn allowed(cluster: &Cluster, questions: &[Question]) -> BTreeSet<Question> {
    let mut allowed = BTreeSet::new();
    for question in questions {
        let answer = cluster.post(&admin(), REVIEWS, &question.review()).await.ok();
        if answer["status"]["allowed"].as_bool().unwrap() {
            allowed.insert(question.clone());
        }
    }
    allowed
}

#[tokio::test]
async fn users_may_do_what_kube_apiserver_permits_and_nothing_else() {
    let cluster = cluster().await;
    assert_eq!(allowed(&cluster, &markers()).await.len(), markers().len());
    let recorded = recorded().unwrap();
    let questions = questions(&recorded.resources);
    let found = allowed(&cluster, &questions).await;
    let expected: BTreeSet<Question> = recorded.allowed.union(&kept().unwrap()).cloned().collect();
    let missing = lines(expected.difference(&found)).join("\n");
    assert!(missing.is_empty(), "not allowed here:\n{missing}");
    let more = lines(found.difference(&expected)).join("\n");
    assert!(more.is_empty(), "allowed only here:\n{more}");
}

#[tokio::test]
async fn every_kind_that_is_served_is_in_the_matrix() {
    let recorded = recorded().unwrap();
    for kind in kinds(&Cluster::start()).await {
        let below = kind.subresources.iter().map(|below| format!("{}/{below}", kind.plural));
        for resource in [kind.plural.clone()].into_iter().chain(below) {
            let key = (kind.group().to_owned(), resource);
            assert!(recorded.resources.contains(&key), "{key:?} has to be recorded");
        }
    }
}

/// The requests that a kind takes in a namespace, or at cluster scope, and the question that authorization answers for
/// each.
fn requests(kind: &Kind, namespace: &str) -> Vec<(Method, String, Question)> {
    // A Namespace is authorized in itself.
    let is_namespace = kind.group().is_empty() && kind.plural == "namespaces";
    let all = kind.path(Some(namespace).filter(|_| kind.namespaced));
    let name = if is_namespace { "matrix-one" } else { "matrix-node" };
    let question = |verb: &str, below: &str, name: &str| Question {
        verb: verb.to_owned(),
        group: kind.group().to_owned(),
        resource: format!("{}{below}", kind.plural),
        namespace: if is_namespace { name.to_owned() } else { namespace.to_owned() },
        name: name.to_owned(),
        ..Question::default()
    };
    let of_all = [
        (Method::GET, "list", ""),
        (Method::GET, "watch", "&watch=1"),
        (Method::POST, "create", ""),
        (Method::DELETE, "deletecollection", ""),
    ];
    let of_one = [
        (Method::GET, "get"),
        (Method::PUT, "update"),
        (Method::PATCH, "patch"),
        (Method::DELETE, "delete"),
        (Method::POST, "create"),
    ];
    let mut requests: Vec<(Method, String, Question)> = of_all
        .into_iter()
        .map(|(method, verb, more)| (method, format!("{all}?dryRun=All{more}"), question(verb, "", "")))
        .collect();
    let below = kind.subresources.iter().map(|below| format!("/{below}"));
    for below in [String::new()].into_iter().chain(below) {
        for (method, verb) in &of_one {
            if below.is_empty() && *verb == "create" {
                continue;
            }
            let path = format!("{all}/{name}{below}?dryRun=All");
            requests.push((method.clone(), path, question(verb, &below, name)));
        }
    }
    requests
}

#[tokio::test]
async fn requests_are_authorized_as_reviews_say() {
    let cluster = cluster().await;
    let (mut wrong, mut forbidden, mut passed) = (Vec::new(), 0, 0);
    for kind in kinds(&cluster).await {
        let namespaces: &[&str] = if kind.namespaced { &["matrix-one", "matrix-two"] } else { &[""] };
        for (method, path, question) in namespaces.iter().flat_map(|namespace| requests(&kind, namespace)) {
            for (identity, name, groups) in identities() {
                let review = Question { identity: identity.to_owned(), ..question.clone() }.review();
                let answer = cluster.post(&admin(), REVIEWS, &review).await.ok();
                let allowed = answer["status"]["allowed"].as_bool().unwrap();
                let who = As::User(Arc::new(User::exactly(name, "", groups)));
                let answer = cluster.request(&who, method.clone(), &path, &json!({})).await;
                // Admission refuses with the same code, and in other words. A watch is not read here.
                let text = answer.body["message"].as_str();
                let refused = answer.code == 403
                    && text.is_none_or(|text| text.contains(&format!(" cannot {} resource ", question.verb)));
                *(if refused { &mut forbidden } else { &mut passed }) += 1;
                if refused == allowed {
                    wrong.push(format!("{identity}: {method} {path}: {} {}", answer.code, answer.body));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(forbidden > 1_000 && passed > 500, "{forbidden} refused, {passed} passed");
}
