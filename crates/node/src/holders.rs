//! Who holds the capacity that a resize waits for.
//!
//! Events are read by the users of a namespace, so pods of other namespaces are counted and not named.

use std::fmt;

use plumb_resize::list::quantity_of;
use plumb_resize::resource::Resource;

use crate::allocator::PodInfo;

/// How many pods an event names.
const NAMED: usize = 3;

/// The pods for which most of a resource counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holders {
    resource: Resource,
    /// Those of the namespace, the largest first.
    named: Vec<(String, i64)>,
    /// The sums of the other pods of the namespace, and of those of other namespaces.
    others: i64,
    elsewhere: i64,
}

impl Holders {
    /// The holders among these pods, for a pod of this namespace.
    pub(crate) fn new<'a>(
        namespace: &str,
        resource: Resource,
        pods: impl Iterator<Item = (&'a PodInfo, i64)>,
    ) -> Self {
        let (own, foreign): (Vec<_>, Vec<_>) =
            pods.filter(|(_, amount)| *amount > 0).partition(|(info, _)| info.namespace == namespace);
        let mut named: Vec<(String, i64)> =
            own.into_iter().map(|(info, amount)| (format!("{namespace}/{}", info.name), amount)).collect();
        named.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let others = named.split_off(named.len().min(NAMED));
        let sum = |amounts: &mut dyn Iterator<Item = i64>| amounts.fold(0, i64::saturating_add);
        Self {
            resource,
            named,
            others: sum(&mut others.iter().map(|(_, amount)| *amount)),
            elsewhere: sum(&mut foreign.iter().map(|(_, amount)| *amount)),
        }
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quantity = |amount| quantity_of(self.resource, amount);
        let mut parts: Vec<String> =
            self.named.iter().map(|(pod, amount)| format!("{pod} ({})", quantity(*amount))).collect();
        for (what, sum) in
            [("other pods of the namespace", self.others), ("other namespaces", self.elsewhere)]
        {
            if sum > 0 {
                parts.push(format!("{what} ({})", quantity(sum)));
            }
        }
        f.write_str(&parts.join(", "))
    }
}

/// What a deferred resize waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The first resource that is missing, and how much of it.
    pub resource: Resource,
    /// How much is missing.
    pub missing: i64,
    /// Who holds it.
    pub holders: Holders,
    /// What can end the wait.
    pub outlook: Outlook,
}

/// What can end the wait of a deferred resize. The first of these that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// Nothing: it does not fit the empty node.
    Never,
    /// Nothing while the critical pods of the node are as they are: it does not fit beside them alone.
    NeverBesideCriticalPods,
    /// The resizes of other pods that are in progress.
    ResizesInProgress,
    /// Only pods of the same or a higher priority: those of lower priority do not hold enough, so that preemption does not help.
    NotPreemption,
    /// Any pod that ends or shrinks.
    OtherPods,
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let missing = quantity_of(self.resource, self.missing);
        write!(
            f,
            "Pod resize waits for {missing} more of {}, which is held by {}",
            self.resource, self.holders
        )?;
        f.write_str(match self.outlook {
            Outlook::Never => ". It can never fit this node, whatever other pods free",
            Outlook::NeverBesideCriticalPods => {
                ". It can never fit this node beside the static and critical pods there, whatever other pods free"
            }
            Outlook::ResizesInProgress => ". It fits once resizes that are in progress are completed",
            Outlook::NotPreemption => {
                ". Pods of lower priority do not hold enough: it fits only if pods of the same or a higher priority end or shrink"
            }
            Outlook::OtherPods => "",
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_of_the_namespace_are_named_and_others_are_counted() {
        let info = |namespace: &str, name: &str| {
            let pod =
                json!({ "metadata": { "namespace": namespace, "name": name }, "spec": { "containers": [] } });
            PodInfo::of(&serde_json::from_value::<Pod>(pod).unwrap()).unwrap()
        };
        let pods = [
            (info("a", "small"), 1 << 20),
            (info("a", "large"), 5 << 20),
            (info("b", "secret"), 9 << 20),
            (info("a", "third"), 2 << 20),
            (info("a", "second"), 3 << 20),
            (info("a", "none"), 0),
        ];
        let holders = Holders::new("a", Resource::Memory, pods.iter().map(|(info, amount)| (info, *amount)));
        assert_eq!(
            holders.to_string(),
            "a/large (5Mi), a/second (3Mi), a/third (2Mi), other pods of the namespace (1Mi), other namespaces (9Mi)"
        );
    }
}
