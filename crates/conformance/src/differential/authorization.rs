//! The authorization matrix: who may do what to which kind, asked as `SubjectAccessReview`s.
//!
//! ```text
//!   identities × verbs × kinds and subresources × namespaces × names ─┬─▶ reference ─▶ what is allowed ─┐
//!                                                                     └─▶ subject   ─▶ what is allowed ─┴─▶ compare
//! ```
//!
//! The kinds are those of both servers' discovery, and the resources that only authorization knows ([`VIRTUAL`]). What
//! kube-apiserver allows is recorded in `differential/authorization/allowed.tsv`, so that it can be compared without
//! one; what this project allows besides, on purpose, is in `differential/authorization/kept.tsv`.

mod objects;
mod questions;
mod table;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, future, stream};
use kube::Client;
use serde_json::{Value, json};

use super::response::{Response, send_request};
use crate::error::Error;

pub use objects::objects;
pub use questions::{Question, VIRTUAL, identities, markers, questions};
pub use table::{Table, kept, lines, recorded};

/// Where reviews are sent.
pub const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
/// How many reviews are under way at once.
const AT_ONCE: usize = 24;
/// How often a server is asked whether it has got as far as is awaited, and the time in between.
const ATTEMPTS: usize = 300;
const INTERVAL: Duration = Duration::from_millis(100);

/// The roles that a controller fills from the rules of others.
pub const AGGREGATED: [&str; 3] = ["admin", "edit", "view"];

async fn get(client: &Client, path: &str) -> Result<Value, Error> {
    let response = send_request(client, "GET", path, "application/json", Vec::new()).await?;
    if response.is_success() { Ok(response.body) } else { Err(unprepared(path, &response)) }
}

fn unprepared(path: &str, response: &Response) -> Error {
    Error::Unprepared(format!("{path}: {} {}", response.code, response.body))
}

fn items<'a>(list: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    list[field].as_array().into_iter().flatten()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// A kind or a subresource in discovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// `/api/v1`, `/apis/apps/v1`.
    pub root: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
}

/// Every kind and subresource that a server serves, by API group and `plural` or `plural/subresource`.
pub async fn resources(client: &Client) -> Result<BTreeMap<(String, String), Served>, Error> {
    let mut found = BTreeMap::new();
    let mut roots = vec![(String::new(), "/api/v1".to_owned())];
    for group in items(&get(client, "/apis").await?, "groups") {
        for version in items(group, "versions") {
            let path = format!("/apis/{}", text(version, "groupVersion"));
            roots.push((text(group, "name").to_owned(), path));
        }
    }
    for (group, root) in roots {
        let list = get(client, &root).await?;
        for one in items(&list, "resources") {
            let served = Served { root: root.clone(), namespaced: one["namespaced"] == true };
            found.entry((group.clone(), text(one, "name").to_owned())).or_insert(served);
        }
    }
    Ok(found)
}

/// Asks for objects of a kind outside of its scope, and responses with the paths that are served nevertheless.
pub async fn served_outside_of_scope(
    client: &Client,
    kinds: &BTreeMap<(String, String), Served>,
) -> Result<Vec<String>, Error> {
    let mut wrong = Vec::new();
    for ((_, plural), Served { root, namespaced }) in kinds {
        let paths = match plural.split_once('/') {
            None if *namespaced => vec![format!("{root}/{plural}/x")],
            None => {
                let inside = format!("{root}/namespaces/default/{plural}");
                vec![format!("{inside}/x"), inside]
            }
            Some((plural, below)) if *namespaced => vec![format!("{root}/{plural}/x/{below}")],
            Some((plural, below)) => vec![format!("{root}/namespaces/default/{plural}/x/{below}")],
        };
        for path in paths {
            let response = send_request(client, "GET", &path, "application/json", Vec::new()).await?;
            // An object that is not there has a name in its response; a path that is not there has none.
            if response.code != 404 || !response.body["details"]["name"].is_null() {
                wrong.push(format!("{path}: {} {}", response.code, response.body));
            }
        }
    }
    Ok(wrong)
}

/// Makes the objects that the matrix is about, and waits until authorization knows them.
pub async fn prepare(client: &Client) -> Result<(), Error> {
    for (path, object) in objects() {
        let response =
            send_request(client, "POST", &path, "application/json", object.to_string().into_bytes()).await?;
        if !response.is_success() {
            return Err(unprepared(&path, &response));
        }
    }
    for attempt in 0..ATTEMPTS {
        let known = allowed(client, &markers()).await?.len() == markers().len();
        if known && is_aggregated(client).await? {
            return Ok(());
        }
        if attempt + 1 < ATTEMPTS {
            tokio::time::sleep(INTERVAL).await;
        }
    }
    Err(Error::Unprepared("authorization does not know the roles and pods that were made".to_owned()))
}

/// Whether the aggregated roles have every rule that they are to have.
async fn is_aggregated(client: &Client) -> Result<bool, Error> {
    let list = get(client, "/apis/rbac.authorization.k8s.io/v1/clusterroles").await?;
    let role = |name: &str| items(&list, "items").find(|role| role["metadata"]["name"] == name);
    Ok(AGGREGATED.iter().all(|name| {
        role(name).is_some_and(|role| {
            let wanted = aggregated_rules(&list, role);
            !wanted.is_empty() && wanted.iter().all(|rule| items(role, "rules").any(|own| own == rule))
        })
    }))
}

/// The rules that an aggregated role is to have, given a list of all cluster roles.
pub fn aggregated_rules(list: &Value, role: &Value) -> Vec<Value> {
    let mut rules = Vec::new();
    for selector in items(&role["aggregationRule"], "clusterRoleSelectors") {
        let labels = selector["matchLabels"].as_object();
        let is_selected = |other: &&Value| {
            let has = |(key, value): (&String, &Value)| other["metadata"]["labels"].get(key) == Some(value);
            other["metadata"]["name"] != role["metadata"]["name"]
                && labels.is_some_and(|labels| labels.iter().all(has))
        };
        for other in items(list, "items").filter(is_selected) {
            let gathered = &other["aggregationRule"];
            // A role that aggregates itself may not be filled yet.
            let inner = if gathered.is_null() {
                items(other, "rules").cloned().collect()
            } else {
                aggregated_rules(list, other)
            };
            rules.extend(inner);
        }
    }
    rules
}

/// Which questions a server responses with yes.
pub async fn allowed(client: &Client, questions: &[Question]) -> Result<BTreeSet<Question>, Error> {
    let responses = stream::iter(questions).map(|question| async move {
        let review = question.review().to_string().into_bytes();
        let response = send_request(client, "POST", REVIEWS, "application/json", review).await?;
        match response.body["status"]["allowed"].as_bool() {
            Some(allowed) => Ok(allowed.then(|| question.clone())),
            None => Err(unprepared(REVIEWS, &response)),
        }
    });
    responses.buffer_unordered(AT_ONCE).try_filter_map(|one| future::ready(Ok(one))).try_collect().await
}

/// A review as JSON, for callers that send it by other means.
fn review_of(user: &str, groups: &[String], attributes: (&str, Value)) -> Value {
    let mut spec = json!({ "user": user, "groups": groups });
    spec[attributes.0] = attributes.1;
    json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec })
}
