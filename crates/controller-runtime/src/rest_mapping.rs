//! Which resource serves a kind, as discovery lists it: the part of client-go's `RESTMapper` that controllers need.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use kube::core::ApiResource;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::clock::Clock;

/// The resource that serves a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestMapping {
    /// The version that the server prefers; for a kind with a scale subresource, among the versions that have it.
    pub version: String,
    /// The name of the resource.
    pub plural: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Whether it has the scale subresource.
    pub has_scale: bool,
}

impl RestMapping {
    /// The resource, for requests.
    pub fn resource(&self, group: &str, kind: &str) -> ApiResource {
        let Self { version, plural, .. } = self;
        ApiResource {
            group: group.to_owned(),
            version: version.clone(),
            api_version: if group.is_empty() { version.clone() } else { format!("{group}/{version}") },
            kind: kind.to_owned(),
            plural: plural.clone(),
        }
    }
}

/// How long a [`RestMapper`] uses what it has listed.
#[derive(Clone, Debug)]
pub struct RestMapperConfig {
    /// How long the list of a group's resources is used.
    pub known_for: Duration,
    /// How long it counts that a group has no such kind: it may have been installed since.
    pub absent_for: Duration,
    /// When the list of a group is dropped that no kind of is looked up.
    pub forget_after: Duration,
    /// The clock that all of this is measured with.
    pub clock: Clock,
}

impl Default for RestMapperConfig {
    fn default() -> Self {
        Self {
            known_for: Duration::from_mins(5),
            absent_for: Duration::from_secs(10),
            forget_after: Duration::from_hours(1),
            clock: Clock::default(),
        }
    }
}

/// Maps kinds to resources. It lists the resources of one group when a kind of that group is looked up.
#[derive(Debug)]
pub struct RestMapper {
    config: RestMapperConfig,
    /// One request at a time is enough: kinds are seldom installed.
    groups: Mutex<HashMap<String, Group>>,
}

#[derive(Clone, Debug)]
struct Group {
    listed: Instant,
    kinds: Arc<HashMap<String, RestMapping>>,
}

impl RestMapper {
    /// A mapper that has listed nothing yet.
    pub fn new(config: RestMapperConfig) -> Self {
        Self { config, groups: Mutex::default() }
    }

    /// The resource that serves a kind; `None` if the server has no such kind.
    pub async fn mapping(
        &self,
        client: &Client,
        group: &str,
        kind: &str,
    ) -> kube::Result<Option<RestMapping>> {
        let mut groups = self.groups.lock().await;
        let now = self.config.clock.monotonic();
        let age = |known: &Group| now.saturating_duration_since(known.listed);
        let known = groups.get(group).filter(|known| {
            let is_known = known.kinds.contains_key(kind);
            age(known) < if is_known { self.config.known_for } else { self.config.absent_for }
        });
        let kinds = if let Some(known) = known {
            known.kinds.clone()
        } else {
            let kinds = Arc::new(list(client, group).await?);
            groups.retain(|_, known| age(known) < self.config.forget_after);
            groups.insert(group.to_owned(), Group { listed: now, kinds: kinds.clone() });
            kinds
        };
        Ok(kinds.get(kind).cloned())
    }
}

/// The kinds of a group, each in the version that the server prefers among those that have it.
async fn list(client: &Client, group: &str) -> kube::Result<HashMap<String, RestMapping>> {
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

fn add(kinds: &mut HashMap<String, RestMapping>, version: &str, list: APIResourceList) {
    let resources = list.resources;
    for resource in resources.iter().filter(|resource| !resource.name.contains('/')) {
        let scale = format!("{}/scale", resource.name);
        let mapping = RestMapping {
            version: version.to_owned(),
            plural: resource.name.clone(),
            namespaced: resource.namespaced,
            has_scale: resources.iter().any(|other| other.name == scale),
        };
        match kinds.get_mut(&resource.kind) {
            None => _ = kinds.insert(resource.kind.clone(), mapping),
            Some(known) if !known.has_scale && mapping.has_scale => *known = mapping,
            Some(_) => {}
        }
    }
}
