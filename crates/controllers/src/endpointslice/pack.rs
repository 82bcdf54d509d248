//! Packs endpoints into slices, with few writes.
//!
//! Endpoints stay in the slice that they are in. What is left goes into slices that are written anyway, the fullest first;
//! then, if all the rest fits into one that would stay as it is, into the one that it fills best; then into new ones. So a
//! change of one endpoint is one write, and slices are not packed anew to have fewer of them (KEP-752).

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};

use super::endpoint::{EndpointKey, EndpointSet, is_same};

/// Slices of the same ports and address type after they were packed.
#[derive(Debug, Default)]
pub(crate) struct Packed {
    pub(crate) create: Vec<EndpointSlice>,
    pub(crate) update: Vec<EndpointSlice>,
    pub(crate) delete: Vec<Arc<EndpointSlice>>,
}

type Labels = BTreeMap<String, String>;

/// What to do about the slices of one group of ports.
pub(crate) struct Packing<'a> {
    /// The largest number of endpoints in a slice.
    pub(crate) max: usize,
    /// An empty slice.
    pub(crate) new_slice: &'a dyn Fn() -> EndpointSlice,
    /// The labels of a slice, and whether it has other ones.
    pub(crate) labels: &'a dyn Fn(&EndpointSlice) -> (Labels, bool),
}

impl Packing<'_> {
    /// Packs the desired endpoints.
    pub(crate) fn pack(&self, existing: &[Arc<EndpointSlice>], mut desired: EndpointSet) -> Packed {
        let mut packed = Packed::default();
        let mut unchanged: Vec<Arc<EndpointSlice>> = Vec::new();
        for slice in existing {
            self.retain(slice, &mut desired, &mut packed, &mut unchanged);
        }
        // The fullest first, so that slices become full and others empty.
        packed.update.sort_by_key(|slice| Reverse(len(slice)));
        for slice in &mut packed.update {
            self.fill(slice, &mut desired);
        }
        while !desired.is_empty() {
            let free = |slice: &Arc<EndpointSlice>| self.max.checked_sub(desired.len() + len(slice));
            let best = (0..unchanged.len()).filter_map(|index| Some((free(&unchanged[index])?, index))).min();
            // A remainder that is a whole slice is a new one.
            let fits = best.filter(|_| desired.len() < self.max);
            let mut slice = match fits {
                Some((_, index)) => EndpointSlice::clone(&unchanged.remove(index)),
                None => (self.new_slice)(),
            };
            self.fill(&mut slice, &mut desired);
            if fits.is_some() { packed.update.push(slice) } else { packed.create.push(slice) }
        }
        packed
    }

    /// Keeps of a slice the endpoints that are desired, and takes them out of the desired ones.
    fn retain(
        &self,
        slice: &Arc<EndpointSlice>,
        desired: &mut EndpointSet,
        packed: &mut Packed,
        unchanged: &mut Vec<Arc<EndpointSlice>>,
    ) {
        let current = slice.endpoints.as_deref().unwrap_or_default();
        let mut kept: Vec<Endpoint> = Vec::with_capacity(current.len());
        let mut differs = false;
        for endpoint in current {
            // An endpoint that is in two slices is not desired any more where it is found the second time.
            if let Some(wanted) = desired.remove(&EndpointKey::new(endpoint)) {
                differs |= !is_same(&wanted, endpoint);
                kept.push(wanted);
            }
        }
        let lost = kept.len() != current.len();
        let (labels, relabelled) = (self.labels)(slice);
        if (differs || lost) && kept.is_empty() {
            packed.delete.push(slice.clone());
        } else if differs || lost || relabelled {
            let mut updated = EndpointSlice::clone(slice);
            if differs || lost {
                updated.endpoints = Some(kept);
            }
            updated.metadata.labels = Some(labels);
            packed.update.push(updated);
        } else {
            unchanged.push(slice.clone());
        }
    }

    fn fill(&self, slice: &mut EndpointSlice, desired: &mut EndpointSet) {
        let endpoints = slice.endpoints.get_or_insert_default();
        while endpoints.len() < self.max
            && let Some((_, endpoint)) = desired.pop_first()
        {
            endpoints.push(endpoint);
        }
    }
}

fn len(slice: &EndpointSlice) -> usize {
    slice.endpoints.as_ref().map_or(0, Vec::len)
}
