//! Whether quotas admit a pod that takes the place of another.
//!
//! A dry run asks for one more pod. A pod that is recreated is deleted first, so what counts is the usage without it. The status of
//! a quota still has the usage of pods that were deleted a moment ago, so the usage is [measured] from the pods that are there.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use plumb_resize::list::ResourceList;
use plumb_resize::quota::{Counted, Item, exceeded, measure, without};
use plumb_resize::rules::Rules;

/// The words of the API server about a quota that a pod exceeds. Those about a pod without a request that a quota counts, or about a
/// quota without a known usage, are others.
const EXCEEDED: &str = "exceeded quota: ";

/// Whether an API server refuses a pod because it exceeds a quota.
pub(super) fn is_exceeded(message: &str) -> bool {
    message.contains(EXCEEDED)
}

/// Quotas and their usage.
pub(super) struct Quotas<'a> {
    pub(super) all: &'a [ResourceQuota],
    pub(super) rules: &'a Rules,
    pub(super) now: Timestamp,
}

impl Quotas<'_> {
    /// Why a quota would refuse a new pod; none if all admit it. The pod whose place it takes does not count. What the API server
    /// has replied to a dry run has the requests that limit ranges and webhooks give the pod, for the quota that it names.
    pub(super) fn refusal(&self, new: &Pod, old: Option<&Pod>, replied: Option<&str>) -> Option<String> {
        let replied = replied.and_then(Exceeded::read);
        if let Some(exceeded) = &replied
            && !self.all.iter().any(|quota| name(quota) == exceeded.quota)
        {
            return Some(format!("{EXCEEDED}{}, whose usage is unknown", exceeded.quota));
        }
        self.all.iter().find_map(|quota| {
            let remaining = old.map(|old| without(quota, &counted(old, self.rules, self.now)));
            let quota = remaining.as_ref().unwrap_or(quota);
            // Of what cannot be computed here, such as the requests that a limit range sets, the reply tells.
            let refusal = exceeded([quota], &counted(new, self.rules, self.now), None);
            if let Some(refusal) = refusal {
                return Some(refusal.to_string());
            }
            replied.as_ref().filter(|exceeded| exceeded.quota == name(quota))?.refusal(quota)
        })
    }
}

/// Quotas with the usage of these pods, which are all those of their namespace.
pub(super) fn measured(
    quotas: &[Arc<ResourceQuota>],
    pods: &[Arc<Pod>],
    rules: &Rules,
    now: Timestamp,
) -> Vec<ResourceQuota> {
    let empty = Pod::default();
    let any = counted(&empty, rules, now);
    let measured = |quota: &Arc<ResourceQuota>| {
        let mut quota = ResourceQuota::clone(quota);
        let usage = measure(&quota, pods.iter().map(|pod| counted(pod, rules, now)));
        let status = quota.status.get_or_insert_default();
        if let (Ok(usage), Ok(mut used)) = (usage, ResourceList::read(status.used.as_ref())) {
            for (name, amount) in usage.iter().filter(|(name, _)| any.counts_for(name)) {
                used.set(name, amount);
            }
            status.used = Some(used.to_wire());
        }
        quota
    };
    quotas.iter().map(measured).collect()
}

fn counted<'a>(pod: &'a Pod, rules: &'a Rules, now: Timestamp) -> Counted<'a> {
    Counted { group: "", plural: "pods", item: Item::Pod(pod), now, rules }
}

fn name(quota: &ResourceQuota) -> &str {
    quota.metadata.name.as_deref().unwrap_or_default()
}

/// What an API server replies about a pod that exceeds a quota.
#[derive(Debug, PartialEq)]
struct Exceeded<'a> {
    quota: &'a str,
    /// The requests that exceed it.
    requested: ResourceList,
}

impl<'a> Exceeded<'a> {
    fn read(message: &'a str) -> Option<Self> {
        let (_, message) = message.split_once(EXCEEDED)?;
        let (quota, message) = message.split_once(", requested: ")?;
        let (requested, _) = message.split_once(", used: ")?;
        let requested = requested.split(',').map(|one| {
            let (name, amount) = one.split_once('=')?;
            Some((name.to_owned(), Quantity(amount.to_owned())))
        });
        let requested = requested.collect::<Option<_>>()?;
        Some(Self { quota, requested: ResourceList::read(Some(&requested)).ok()? })
    }

    /// Why a quota refuses these requests.
    fn refusal(&self, quota: &ResourceQuota) -> Option<String> {
        let status = quota.status.as_ref()?;
        let hard = ResourceList::read(status.hard.as_ref()).ok()?;
        let used = ResourceList::read(status.used.as_ref()).ok()?;
        let mut total = used.clone();
        total.add(&self.requested);
        let (resource, requested) = self.requested.iter().find(|(resource, _)| {
            hard.get(resource).zip(total.get(resource)).is_some_and(|(hard, total)| total > hard)
        })?;
        let of =
            |list: &ResourceList| list.get(resource).map(|amount| amount.to_string()).unwrap_or_default();
        Some(format!(
            "{EXCEEDED}{}, requested: {resource}={requested}, used: {resource}={}, limited: {resource}={}",
            self.quota,
            of(&used),
            of(&hard)
        ))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn pod(name: &str, memory: &str) -> Pod {
        let resources =
            if memory.is_empty() { json!({}) } else { json!({ "requests": { "memory": memory } }) };
        let containers = json!([{ "name": "c", "resources": resources }]);
        from_value(json!({ "metadata": { "name": name }, "spec": { "containers": containers } })).unwrap()
    }

    fn quota(hard: Value, used: Value) -> Arc<ResourceQuota> {
        let status = json!({ "hard": hard, "used": used });
        from_value(json!({ "metadata": { "name": "team" }, "spec": { "hard": hard }, "status": status }))
            .unwrap()
    }

    #[test]
    fn a_replacement_fits_if_it_does_once_the_pod_is_gone() {
        // The limit, the memory of two pods and of the replacement of one of them, what the API server has replied; whether it fits.
        let replied = |memory: &str| {
            format!(
                "pods \"web\" is forbidden: exceeded quota: team, requested: memory={memory}, used: memory=128Mi, limited: memory=1"
            )
        };
        let table = [
            ("128Mi", "64Mi", "64Mi", replied("64Mi"), true),
            ("128Mi", "64Mi", "65Mi", replied("65Mi"), false),
            ("10Gi", "64Mi", "64Gi", replied("64Gi"), false),
            // The limit was lowered: what runs would not be admitted again, at a smaller size neither.
            ("100Mi", "64Mi", "64Mi", replied("64Mi"), false),
            ("100Mi", "64Mi", "37Mi", replied("37Mi"), false),
            ("100Mi", "64Mi", "36Mi", replied("36Mi"), true),
            // A limit range sets the request.
            ("128Mi", "64Mi", "", replied("64Mi"), true),
            ("128Mi", "64Mi", "", replied("1Gi"), false),
            // The quota is not known here.
            ("128Mi", "64Mi", "64Mi", replied("64Mi").replace("team", "other"), false),
        ];
        for (hard, memory, new, replied, expected) in table {
            let pods = [Arc::new(pod("a", memory)), Arc::new(pod("b", memory))];
            // The status is not up to date: there were more pods.
            let quotas = [quota(
                json!({ "memory": hard, "services": "1" }),
                json!({ "memory": "9Gi", "services": "1" }),
            )];
            let (rules, now) = (Rules::v1_36(), Timestamp::UNIX_EPOCH);
            let all = measured(&quotas, &pods, &rules, now);
            assert_eq!(all[0].status.as_ref().unwrap().used.as_ref().unwrap()["services"].0, "1");
            let quotas = Quotas { all: &all, rules: &rules, now };
            let refusal = quotas.refusal(&pod("c", new), Some(&pods[0]), Some(&replied));
            assert_eq!(refusal.is_none(), expected, "{hard} {memory} {new}: {refusal:?}");
        }
    }

    #[test]
    fn only_an_exceeded_quota_may_admit_a_replacement() {
        assert!(is_exceeded(
            "pods \"web\" is forbidden: exceeded quota: team, requested: pods=1, used: pods=2, limited: pods=2"
        ));
        assert!(!is_exceeded("pods \"web\" is forbidden: failed quota: team: must specify memory for: c"));
        assert!(!is_exceeded("pods \"web\" is forbidden: status unknown for quota: team, resources: memory"));
    }
}
