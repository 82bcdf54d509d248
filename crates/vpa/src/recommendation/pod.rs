//! The containers of a pod together, within the pod limit ranges.
//!
//! A pod limit range bounds the sum of requests and the sum of limits. What the VPA does not change of a pod is taken
//! as it is; the requests that it does change are scaled, all by one factor, so that the sums fit. If the rest of the
//! pod leaves nothing of Max, containers stay at their own requests.
//!
//! A pod that Max does not allow as it is, and that leaves nothing of it, would be refused whatever the VPA gives the others:
//! then all containers are scaled, as upstream does in every case, those without a recommendation from their own requests.

use plumb_resize::Quantity;
use plumb_resize::resource::Resource;

use super::proportion::{Round, proportional_limit, scale};
use super::{Bound, Cap, LimitBounds, Note, Scaled};

/// Scales requests so that their sum, and that of the limits that go with them, is within the pod limit ranges.
pub(super) fn cap(containers: &mut [Scaled<'_>], range: &LimitBounds) {
    let own = scale_from_own(containers, range);
    for bound in Bound::ALL {
        for resource in Resource::ALL {
            let mut of = OneResource { containers, bound, resource };
            if let Some(min) = range.min[resource] {
                of.raise_to(min);
            }
            if let Some(max) = range.max[resource] {
                of.lower_to(max);
            }
        }
    }
    for (index, resource) in own {
        // There is no range that a request without a recommendation should be in, and one that fits stays as it is.
        let Scaled { own, bounds, .. } = &mut containers[index];
        bounds.lower[resource] = None;
        bounds.upper[resource] = None;
        bounds.target[resource] =
            bounds.target[resource].filter(|target| Some(*target) != own.requests[resource]);
    }
}

/// Has containers without a recommendation scaled from their own requests, if the pod would be refused otherwise. Returns
/// which containers, by index, and which of their resources.
fn scale_from_own(containers: &mut [Scaled<'_>], range: &LimitBounds) -> Vec<(usize, Resource)> {
    let exceeded: Vec<Resource> = Resource::ALL
        .into_iter()
        .filter(|&resource| {
            let of = OneResource { containers: &mut *containers, bound: Bound::Target, resource };
            range.max[resource].is_some_and(|max| of.leaves_nothing_of(max))
        })
        .collect();
    if exceeded.is_empty() {
        return Vec::new();
    }
    let mut own = Vec::new();
    for (index, container) in containers.iter_mut().enumerate() {
        let is_recommended = container.has_target();
        for resource in Resource::ALL {
            let request = container.own.requests[resource].filter(|request| request.is_positive());
            // A resource that the VPA does not control is scaled only where nothing else helps.
            if container.bounds.target[resource].is_some()
                || request.is_none()
                || (is_recommended && !exceeded.contains(&resource))
            {
                continue;
            }
            for bound in Bound::ALL {
                container.bounds.of_mut(bound)[resource] = request;
            }
            own.push((index, resource));
        }
    }
    own
}

/// One resource and one bound of all containers.
struct OneResource<'a, 'b> {
    containers: &'a mut [Scaled<'b>],
    bound: Bound,
    resource: Resource,
}

/// What is added up.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sum {
    Requests,
    Limits,
}

impl OneResource<'_, '_> {
    /// Whether Max does not allow the pod as it is, and what is not recommended reaches Max already.
    fn leaves_nothing_of(&self, max: Quantity) -> bool {
        [Sum::Requests, Sum::Limits].into_iter().any(|sum| {
            let (fixed, moving) = self.sums(sum);
            let own = self.containers.iter().map(|container| match sum {
                Sum::Requests => container.own.requests[self.resource],
                Sum::Limits => container.own.limits[self.resource],
            });
            let own = own.flatten().fold(Quantity::ZERO, Quantity::saturating_add);
            moving.is_positive() && fixed >= max && own > max
        })
    }

    fn raise_to(&mut self, min: Quantity) {
        for sum in [Sum::Requests, Sum::Limits] {
            let (fixed, moving) = self.sums(sum);
            // Without any limit there is nothing that has to reach Min.
            if fixed.saturating_add(moving) < min && moving.is_positive() {
                let rest = min.checked_sub(fixed).unwrap_or(min);
                self.scale(sum, rest, moving, Round::Up, Cap::PodMin);
            }
        }
    }

    fn lower_to(&mut self, max: Quantity) {
        for sum in [Sum::Limits, Sum::Requests] {
            let (fixed, moving) = self.sums(sum);
            if fixed.saturating_add(moving) > max && moving.is_positive() {
                let rest = max.checked_sub(fixed).unwrap_or(Quantity::ZERO);
                self.scale(sum, rest, moving, Round::Down, Cap::PodMax);
            }
        }
    }

    /// What stays as it is, and what scaling requests would change.
    fn sums(&self, sum: Sum) -> (Quantity, Quantity) {
        let (mut fixed, mut moving) = (Quantity::ZERO, Quantity::ZERO);
        for container in &*self.containers {
            let recommended = container.bounds.of(self.bound)[self.resource];
            let own = &container.own;
            let (own, scaled) = match sum {
                Sum::Requests => (own.requests[self.resource], recommended),
                Sum::Limits => (own.limits[self.resource], self.limit(container)),
            };
            match scaled {
                Some(amount) => moving = moving.saturating_add(amount),
                None => fixed = fixed.saturating_add(own.unwrap_or(Quantity::ZERO)),
            }
        }
        (fixed, moving)
    }

    /// The limit that goes with the recommended request, where one does.
    fn limit(&self, container: &Scaled<'_>) -> Option<Quantity> {
        let recommended =
            container.bounds.of(self.bound)[self.resource].filter(|_| container.scales_limits());
        let own = &container.own;
        proportional_limit(self.resource, own.limits[self.resource], own.requests[self.resource], recommended)
            .ok()
    }

    /// Scales the requests that the sum is about, so that it becomes `to` instead of `from`.
    fn scale(&mut self, sum: Sum, to: Quantity, from: Quantity, round: Round, cap: Cap) {
        let moves: Vec<bool> = self
            .containers
            .iter()
            .map(|container| match sum {
                Sum::Requests => true,
                Sum::Limits => self.limit(container).is_some(),
            })
            .collect();
        for (container, _) in self.containers.iter_mut().zip(moves).filter(|(_, moves)| *moves) {
            let own = container.own.requests[self.resource];
            let Some(amount) = &mut container.bounds.of_mut(self.bound)[self.resource] else { continue };
            let scaled = if to.is_positive() { scale(self.resource, *amount, to, from, round) } else { own };
            let Some(scaled) = scaled.filter(|scaled| scaled.is_positive() && scaled != amount) else {
                continue;
            };
            *amount = scaled;
            let note = Note::Capped(self.resource, cap);
            if self.bound == Bound::Target && !container.notes.contains(&note) {
                container.notes.push(note);
            }
        }
    }
}
