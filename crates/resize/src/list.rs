//! Whole resource lists: every resource a container names, not only the two that can be resized.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as WireQuantity;

use crate::quantity::{Quantity, QuantityError};
use crate::resource::{Declared, Resource};

/// The map that Kubernetes calls a `ResourceList`, as the API types carry it.
pub type WireList = BTreeMap<String, WireQuantity>;

/// A quantity in a resource list that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("quantity {text:?} of resource {resource:?}: {source}")]
pub struct BadQuantity {
    /// The resource whose quantity it is.
    pub resource: String,
    /// The quantity as written.
    pub text: String,
    /// The error.
    pub source: QuantityError,
}

/// Amounts of resources by name, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceList(Vec<(String, Quantity)>);

impl ResourceList {
    /// Reads a list as the API carries it; an absent one is empty.
    pub fn read(wire: Option<&WireList>) -> Result<Self, BadQuantity> {
        // A `BTreeMap` iterates in the order of its keys, so the list is sorted as it is made.
        wire.into_iter()
            .flatten()
            .map(|(name, quantity)| Ok((name.clone(), read_quantity(name, quantity)?)))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The amount of a resource, if the list names it.
    pub fn get(&self, name: &str) -> Option<Quantity> {
        self.position(name).ok().map(|at| self.0[at].1)
    }

    /// Sets the amount of a resource.
    pub fn set(&mut self, name: &str, quantity: Quantity) {
        match self.position(name) {
            Ok(at) => self.0[at].1 = quantity,
            Err(at) => self.0.insert(at, (name.to_owned(), quantity)),
        }
    }

    /// The names and amounts, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Quantity)> {
        self.0.iter().map(|(name, quantity)| (name.as_str(), *quantity))
    }

    /// Whether it names no resource.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the amounts of `other`, name by name. A sum too large to represent stays at the largest
    /// quantity, which no node holds and no quota allows.
    pub fn add(&mut self, other: &Self) {
        self.combine(other, Quantity::saturating_add);
    }

    /// Takes the larger amount, name by name.
    pub fn raise_to(&mut self, other: &Self) {
        self.combine(other, Ord::max);
    }

    /// Only the resources for which the filter returns true.
    #[must_use]
    pub fn only(&self, mut wanted: impl FnMut(&str) -> bool) -> Self {
        Self(self.0.iter().filter(|(name, _)| wanted(name)).cloned().collect())
    }

    /// The difference to `other` for each name, but never less than zero.
    #[must_use]
    pub fn less(&self, other: &Self) -> Self {
        let left = |name: &str, quantity: Quantity| {
            let taken = other.get(name).map_or(Ok(quantity), |taken| quantity.checked_sub(taken));
            // A difference that overflows was charged in full.
            taken.unwrap_or(quantity).max(Quantity::ZERO)
        };
        Self(self.iter().map(|(name, quantity)| (name.to_owned(), left(name, quantity))).collect())
    }

    /// The list as the API carries it, in canonical form.
    pub fn to_wire(&self) -> WireList {
        self.0.iter().map(|(name, quantity)| (name.clone(), WireQuantity(quantity.to_string()))).collect()
    }

    fn combine(&mut self, other: &Self, with: impl Fn(Quantity, Quantity) -> Quantity) {
        for (name, quantity) in other.iter() {
            match self.position(name) {
                Ok(at) => self.0[at].1 = with(self.0[at].1, quantity),
                Err(at) => self.0.insert(at, (name.to_owned(), quantity)),
            }
        }
    }

    fn position(&self, name: &str) -> Result<usize, usize> {
        self.0.binary_search_by(|(held, _)| held.as_str().cmp(name))
    }
}

/// Reads one quantity of a list, naming its resource when it is bad.
pub(crate) fn read_quantity(name: &str, quantity: &WireQuantity) -> Result<Quantity, BadQuantity> {
    Quantity::try_from(quantity).map_err(|source| BadQuantity {
        resource: name.to_owned(),
        text: quantity.0.clone(),
        source,
    })
}

/// Reads the resizable part of a list: cpu in thousandths of a core, memory in bytes, rounded up.
pub fn declared(wire: Option<&WireList>) -> Result<Declared, BadQuantity> {
    let Some(wire) = wire else { return Ok(Declared::NONE) };
    let amount = |resource: Resource| {
        let Some(quantity) = wire.get(resource.name()) else { return Ok(None) };
        let read = read_quantity(resource.name(), quantity)?;
        amount_of(resource, read).map(Some).map_err(|source| BadQuantity {
            resource: resource.name().to_owned(),
            text: quantity.0.clone(),
            source,
        })
    };
    Ok(Declared::new(amount(Resource::Cpu)?, amount(Resource::Memory)?))
}

/// An amount of a resource as a quantity in the form that users expect to read: `650m`, `256Mi`.
pub fn quantity_of(resource: Resource, amount: i64) -> Quantity {
    match resource {
        Resource::Cpu => Quantity::from_milli(amount),
        Resource::Memory => Quantity::from_bytes(amount),
    }
}

/// A quantity of a resource as an amount: thousandths of a core, or bytes, rounded up.
pub fn amount_of(resource: Resource, quantity: Quantity) -> Result<i64, QuantityError> {
    match resource {
        Resource::Cpu => quantity.milli(),
        Resource::Memory => quantity.units(),
    }
}
