//! The score of a node by the storage that a pod would use there (upstream: the plugin `VolumeBinding` with the gate
//! `StorageCapacityScoring`).

use std::collections::BTreeMap;

use plumb_placement::volumes::{class_of_volume, requested};
use plumb_resize::Quantity;

use super::{PodVolumes, VolumeBinding};
use crate::cache::NodeProperties;

/// The highest score of a plugin, and the whole of a capacity.
const WHOLE: i128 = 100;

/// What the claims of a class request on a node, and the capacity that there is for them.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    requested: i64,
    capacity: i64,
}

impl Use {
    /// 100 if nothing is used, 0 if all is: upstream's default shape. A pod goes where most is free.
    fn score(self) -> i128 {
        if self.capacity <= 0 || self.requested > self.capacity {
            return 0;
        }
        WHOLE - i128::from(self.requested) * WHOLE / i128::from(self.capacity)
    }
}

impl PodVolumes<'_> {
    /// Whether nodes have scores: a claim is bound once a node is selected.
    pub(crate) fn has_scores(&self) -> bool {
        !self.unbound.is_empty()
    }

    /// The mean of the scores of all classes. Volumes that exist count; only without any the capacity for new ones does.
    pub(crate) fn score(&self, node: &str, properties: &NodeProperties) -> i64 {
        let bindings = self.bind(node, properties).unwrap_or_default();
        let mut classes: BTreeMap<&str, Use> = BTreeMap::new();
        for binding in &bindings {
            let VolumeBinding::Static { volume, claim } = binding else { continue };
            let own = classes.entry(class_of_volume(volume)).or_default();
            let size = volume.spec.as_ref().and_then(|spec| spec.capacity.as_ref()?.get("storage"));
            let size: Quantity = size.and_then(|size| size.0.parse().ok()).unwrap_or(Quantity::ZERO);
            own.requested = own.requested.saturating_add(requested(claim).saturating_units());
            own.capacity = own.capacity.saturating_add(size.saturating_units());
        }
        if classes.is_empty()
            && let Some(cache) = self.cache
        {
            for unbound in &self.unbound {
                let capacity = cache.capacities.of_node(unbound.class, unbound.claim, &properties.labels);
                let Some(capacity) = capacity else { continue };
                let own =
                    classes.entry(unbound.class.metadata.name.as_deref().unwrap_or_default()).or_default();
                own.requested = own.requested.saturating_add(requested(unbound.claim).saturating_units());
                // The claims of a class share its capacity.
                own.capacity = capacity.saturating_units();
            }
        }
        let Some(count) = i128::try_from(classes.len()).ok().filter(|count| *count > 0) else { return 0 };
        let sum: i128 = classes.values().map(|own| own.score()).sum();
        // Rounded half up, as upstream; a mean of scores is between 0 and 100.
        i64::try_from((2 * sum + count) / (2 * count)).unwrap_or(0)
    }
}
