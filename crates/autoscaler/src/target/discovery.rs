//! Which resources have a `/scale` subresource, by group and kind.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::TargetConfig;

/// A resource whose objects can be scaled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scalable {
    /// The version to read it in.
    pub(super) version: String,
    /// The name of the resource.
    pub(super) plural: String,
}

/// The resources of groups, as they were listed last.
#[derive(Default)]
pub(super) struct Discovery {
    /// One request at a time is enough: kinds come rarely.
    groups: Mutex<HashMap<String, Group>>,
}

#[derive(Clone)]
struct Group {
    listed: Instant,
    /// By kind; none for one that has no `/scale`.
    kinds: Arc<HashMap<String, Option<Scalable>>>,
}

/// What discovery says about a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Discovered {
    /// It can be scaled.
    Scalable(Scalable),
    /// It exists, and cannot.
    NotScalable,
    /// There is no such kind.
    NoMatch,
}

impl Discovery {
    pub(super) async fn kind(
        &self,
        client: &Client,
        config: &TargetConfig,
        group: &str,
        kind: &str,
    ) -> kube::Result<Discovered> {
        let mut groups = self.groups.lock().await;
        let now = config.clock.monotonic();
        let age = |known: &Group| now.saturating_duration_since(known.listed);
        let known = groups.get(group).filter(|known| {
            // A kind that is not there may have been installed since.
            let for_how_long =
                if known.kinds.contains_key(kind) { config.discovery_for } else { config.absent_for };
            age(known) < for_how_long
        });
        let kinds = if let Some(known) = known {
            known.kinds.clone()
        } else {
            let kinds = Arc::new(list(client, group).await?);
            groups.retain(|_, known| age(known) < config.stale_for);
            groups.insert(group.to_owned(), Group { listed: now, kinds: kinds.clone() });
            kinds
        };
        Ok(match kinds.get(kind) {
            Some(Some(scalable)) => Discovered::Scalable(scalable.clone()),
            Some(None) => Discovered::NotScalable,
            None => Discovered::NoMatch,
        })
    }
}

/// The namespaced kinds of a group, each in the version that the server prefers among those that have it.
async fn list(client: &Client, group: &str) -> kube::Result<HashMap<String, Option<Scalable>>> {
    let mut kinds = HashMap::new();
    if group.is_empty() {
        for version in client.list_core_api_versions().await?.versions {
            add(&mut kinds, &version, client.list_core_api_resources(&version).await?);
        }
        return Ok(kinds);
    }
    let groups = client.list_api_groups().await?.groups;
    let Some(found) = groups.into_iter().find(|found| found.name == group) else { return Ok(kinds) };
    let mut versions: Vec<_> = found.versions.into_iter().map(|version| version.version).collect();
    if let Some(preferred) = found.preferred_version {
        versions.sort_by_key(|version| *version != preferred.version);
    }
    for version in versions {
        let resources = client.list_api_group_resources(&format!("{group}/{version}")).await?;
        add(&mut kinds, &version, resources);
    }
    Ok(kinds)
}

fn add(kinds: &mut HashMap<String, Option<Scalable>>, version: &str, list: APIResourceList) {
    let resources = list.resources;
    let of_objects = resources.iter().filter(|resource| !resource.name.contains('/') && resource.namespaced);
    for resource in of_objects {
        let scale = format!("{}/scale", resource.name);
        let is_scalable = resources.iter().any(|other| other.name == scale);
        let scalable = || Scalable { version: version.to_owned(), plural: resource.name.clone() };
        let known = kinds.entry(resource.kind.clone()).or_insert(None);
        if known.is_none() && is_scalable {
            *known = Some(scalable());
        }
    }
}
