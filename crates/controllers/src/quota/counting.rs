//! Which kinds the resources of a quota count.

use kube::Client;
use kube::discovery::{self, ApiResource};

/// A kind that quotas count, by its group and plural.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Kind {
    group: String,
    plural: String,
}

impl Kind {
    /// The kind that a resource of a quota counts; none if the resource is unknown.
    pub(super) fn for_resource(resource: &str) -> Option<Self> {
        let core = |plural: &str| Some(Self { group: String::new(), plural: plural.to_owned() });
        if let Some(rest) = resource.strip_prefix("count/") {
            let (plural, group) = rest.split_once('.').unwrap_or((rest, ""));
            return Some(Self { group: group.to_owned(), plural: plural.to_owned() });
        }
        let of_class =
            resource.rsplit_once(".storageclass.storage.k8s.io/").map_or(resource, |(_, name)| name);
        match of_class {
            "persistentvolumeclaims" | "requests.storage" => return core("persistentvolumeclaims"),
            _ => {}
        }
        match resource {
            "services" | "services.nodeports" | "services.loadbalancers" => core("services"),
            "configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas" => core(resource),
            "pods" | "cpu" | "memory" | "ephemeral-storage" => core("pods"),
            name if name.starts_with("requests.") || name.starts_with("limits.") => core("pods"),
            name if name.starts_with("hugepages-") => core("pods"),
            _ => None,
        }
    }

    /// Its group and plural.
    pub(super) fn name(&self) -> (&str, &str) {
        (&self.group, &self.plural)
    }

    /// How the API serves it, if it does.
    pub(super) async fn resolve(&self, client: &Client) -> Option<ApiResource> {
        let found = match self.group.as_str() {
            "" => discovery::pinned_group(client, &kube::core::GroupVersion::gv("", "v1")).await,
            group => discovery::group(client, group).await,
        };
        let found = found.inspect_err(|error| tracing::debug!(%error, kind = ?self, "not served")).ok()?;
        found
            .recommended_resources()
            .into_iter()
            .map(|(resource, _)| resource)
            .find(|own| own.plural == self.plural)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_resource_of_a_quota_counts_one_kind() {
        let table = [
            ("requests.cpu", Some(("", "pods"))),
            ("hugepages-2Mi", Some(("", "pods"))),
            ("requests.example.com/gpu", Some(("", "pods"))),
            ("requests.storage", Some(("", "persistentvolumeclaims"))),
            ("gold.storageclass.storage.k8s.io/requests.storage", Some(("", "persistentvolumeclaims"))),
            ("services.nodeports", Some(("", "services"))),
            ("secrets", Some(("", "secrets"))),
            ("count/deployments.apps", Some(("apps", "deployments"))),
            ("count/widgets.a.example.com", Some(("a.example.com", "widgets"))),
            ("nonsense", None),
        ];
        for (resource, kind) in table {
            assert_eq!(Kind::for_resource(resource).as_ref().map(Kind::name), kind, "{resource}");
        }
    }
}
