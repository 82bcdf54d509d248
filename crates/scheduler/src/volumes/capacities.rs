//! The space that CSI drivers have for new volumes (KEP-1472): a driver with `storageCapacity: true` publishes it in
//! `CSIStorageCapacity` objects, one for each class and topology segment.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::api::storage::v1::{CSIDriver, CSIStorageCapacity, StorageClass};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;
use plumb_controller_runtime::ObjectRef;
use plumb_placement::volumes::requested;
use plumb_placement::{Labels, Selector};
use plumb_resize::Quantity;

/// The drivers that publish their capacity, and what they publish.
#[derive(Clone, Debug, Default)]
pub(crate) struct StorageCapacities {
    drivers: BTreeSet<String>,
    objects: HashMap<ObjectRef, Capacity>,
    /// The objects of each class.
    by_class: HashMap<String, BTreeSet<ObjectRef>>,
}

/// What one object says.
#[derive(Clone, Debug, PartialEq)]
struct Capacity {
    class: String,
    /// The nodes that reach it. None do without a topology, as upstream.
    nodes: Selector,
    /// The size of the largest volume, if it is known.
    largest: Option<Quantity>,
    /// The size of all new volumes, if it is known.
    total: Option<Quantity>,
}

impl Capacity {
    fn read(object: &CSIStorageCapacity) -> Self {
        let size = |field: &Option<WireQuantity>| field.as_ref().and_then(|size| size.0.parse().ok());
        let total = size(&object.capacity);
        Self {
            class: object.storage_class_name.clone(),
            nodes: Selector::read(object.node_topology.as_ref()),
            // The capacity may be in several parts, of which no volume can have more than one.
            largest: size(&object.maximum_volume_size).or(total),
            total,
        }
    }
}

impl StorageCapacities {
    /// Updates a driver; returns whether that differs.
    pub(crate) fn update_driver(&mut self, driver: &CSIDriver) -> bool {
        let name = ObjectRef::of(driver).name;
        if driver.spec.storage_capacity == Some(true) {
            self.drivers.insert(name)
        } else {
            self.drivers.remove(&name)
        }
    }

    pub(crate) fn remove_driver(&mut self, name: &str) -> bool {
        self.drivers.remove(name)
    }

    /// The drivers that publish their capacity.
    pub(crate) fn drivers(&self) -> impl Iterator<Item = &String> {
        self.drivers.iter()
    }

    /// Updates an object; returns whether it says something else than before.
    pub(crate) fn update(&mut self, object: &CSIStorageCapacity) -> bool {
        let (key, capacity) = (ObjectRef::of(object), Capacity::read(object));
        if self.objects.get(&key) == Some(&capacity) {
            return false;
        }
        self.remove(&key);
        self.by_class.entry(capacity.class.clone()).or_default().insert(key.clone());
        self.objects.insert(key, capacity);
        true
    }

    pub(crate) fn remove(&mut self, key: &ObjectRef) -> bool {
        let Some(removed) = self.objects.remove(key) else { return false };
        if let Some(keys) = self.by_class.get_mut(&removed.class) {
            keys.remove(key);
            if keys.is_empty() {
                self.by_class.remove(&removed.class);
            }
        }
        true
    }

    pub(crate) fn objects(&self) -> impl Iterator<Item = &ObjectRef> {
        self.objects.keys()
    }

    /// Whether the provisioner of a class can create the volume of a claim for a node with these labels. One that does not
    /// publish its capacity is asked for it.
    pub(super) fn has_enough(
        &self,
        class: &StorageClass,
        claim: &PersistentVolumeClaim,
        labels: &Labels,
    ) -> bool {
        !self.drivers.contains(&class.provisioner) || self.sufficient(class, claim, labels).is_some()
    }

    /// The space that the provisioner of a class has for a node with these labels, if it publishes enough for a claim.
    pub(super) fn of_node(
        &self,
        class: &StorageClass,
        claim: &PersistentVolumeClaim,
        labels: &Labels,
    ) -> Option<Quantity> {
        let publishes = self.drivers.contains(&class.provisioner);
        let found = self.sufficient(class, claim, labels).filter(|_| publishes)?;
        found.total.or(found.largest)
    }

    /// The first object that has enough space for a claim on a node with these labels.
    fn sufficient(
        &self,
        class: &StorageClass,
        claim: &PersistentVolumeClaim,
        labels: &Labels,
    ) -> Option<&Capacity> {
        let wanted = requested(claim);
        let keys = class.metadata.name.as_ref().and_then(|class| self.by_class.get(class));
        let mut capacities = keys.into_iter().flatten().filter_map(|key| self.objects.get(key));
        capacities.find(|capacity| {
            capacity.largest.is_some_and(|largest| largest >= wanted) && capacity.nodes.matches(labels)
        })
    }
}
