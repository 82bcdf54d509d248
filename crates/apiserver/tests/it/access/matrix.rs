//! Everybody may do exactly what kube-apiserver allows, as it was recorded.

use std::collections::BTreeSet;

use plumb_conformance::differential::authorization::{
    AGGREGATED, Question, REVIEWS, aggregated_rules, kept, lines, markers, objects, questions, recorded,
};
use serde_json::json;

use super::{Cluster, RBAC, admin};

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
async fn everybody_may_do_what_kube_apiserver_allows_and_nothing_else() {
    let cluster = cluster().await;
    assert_eq!(allowed(&cluster, &markers()).await.len(), markers().len());
    let recorded = recorded().unwrap();
    let asked = questions(&recorded.resources);
    let found = allowed(&cluster, &asked).await;
    let expected: BTreeSet<Question> = recorded.allowed.union(&kept().unwrap()).cloned().collect();
    let missing = lines(expected.difference(&found)).join("\n");
    assert!(missing.is_empty(), "not allowed here:\n{missing}");
    let more = lines(found.difference(&expected)).join("\n");
    assert!(more.is_empty(), "allowed only here:\n{more}");
}

#[tokio::test]
async fn every_kind_that_is_served_is_in_the_matrix() {
    let cluster = Cluster::start();
    let recorded = recorded().unwrap();
    let mut roots = vec![(String::new(), "/api/v1".to_owned())];
    for group in cluster.get(&admin(), "/apis").await.ok()["groups"].as_array().unwrap() {
        for version in group["versions"].as_array().unwrap() {
            let path = format!("/apis/{}", version["groupVersion"].as_str().unwrap());
            roots.push((group["name"].as_str().unwrap().to_owned(), path));
        }
    }
    for (group, path) in roots {
        for resource in cluster.get(&admin(), &path).await.ok()["resources"].as_array().unwrap() {
            let kind = (group.clone(), resource["name"].as_str().unwrap().to_owned());
            assert!(recorded.resources.contains(&kind), "{kind:?} has to be recorded");
        }
    }
}
