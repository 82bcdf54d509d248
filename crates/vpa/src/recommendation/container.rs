//! What one container gets, once the pod as a whole fits.

use plumb_resize::Quantity;
use plumb_resize::resource::Resource;
use plumb_vpa_api::{ContainerResourcePolicy, Resources, read_resources};

use super::proportion::{Round, largest, proportional_limit, scale};
use super::{Bound, Cap, ContainerRecommendation, LimitBounds, Note, Scaled};

impl Scaled<'_> {
    /// Caps the bounds, and adds the limits that go with the target.
    pub(super) fn finish(mut self, index: usize, range: &LimitBounds) -> ContainerRecommendation {
        let allowed = |list: fn(&ContainerResourcePolicy) -> &plumb_vpa_api::ResourceList| {
            self.policy.map(|policy| read_resources(list(policy))).unwrap_or_default()
        };
        let policy = Allowed {
            min: allowed(|policy| &policy.min_allowed),
            max: allowed(|policy| &policy.max_allowed),
        };
        for bound in Bound::ALL {
            let mut notes = Vec::new();
            self.cap(bound, range, &policy, &mut notes);
            if bound == Bound::Target {
                self.notes.extend(notes);
            }
        }
        let limits = self.limits(range);
        ContainerRecommendation {
            index,
            name: self.name.to_owned(),
            target: self.bounds.target,
            lower_bound: self.bounds.lower,
            upper_bound: self.bounds.upper,
            limits,
            notes: self.notes,
        }
    }

    /// Caps one bound: by the limit ranges, by the policy, then by the container's own limit. The notes are in that
    /// order too.
    fn cap(&mut self, bound: Bound, range: &LimitBounds, policy: &Allowed, notes: &mut Vec<Note>) {
        let mut capped = *self.bounds.of(bound);
        let mut fit =
            |resource: Resource, at_least: Option<Quantity>, at_most: Option<Quantity>, caps: [Cap; 2]| {
                let Some(amount) = &mut capped[resource] else { return };
                if let Some(min) = at_least.filter(|min| min.is_positive() && *amount < *min) {
                    *amount = min;
                    notes.push(Note::Capped(resource, caps[0]));
                }
                if let Some(max) = at_most.filter(|max| max.is_positive() && *amount > *max) {
                    *amount = max;
                    notes.push(Note::Capped(resource, caps[1]));
                }
            };
        for resource in Resource::ALL {
            fit(resource, self.ratio_minimum(resource, range), None, [Cap::ContainerRatio; 2]);
            let max = self.largest_request(resource, range);
            fit(resource, range.min[resource], max, [Cap::ContainerMin, Cap::ContainerMax]);
        }
        for resource in Resource::ALL {
            fit(resource, policy.min[resource], policy.max[resource], [Cap::MinAllowed, Cap::MaxAllowed]);
        }
        if !self.scales_limits() {
            for resource in Resource::ALL {
                fit(resource, None, self.own.limits[resource], [Cap::ContainerLimit; 2]);
            }
        }
        *self.bounds.of_mut(bound) = capped;
    }

    /// The request at which the limit that goes with it reaches the Max of the limit ranges.
    fn largest_request(&self, resource: Resource, range: &LimitBounds) -> Option<Quantity> {
        let max = range.max[resource]?;
        if !self.scales_limits() {
            return Some(max);
        }
        let positive = |quantity: &Quantity| quantity.is_positive();
        let limit = self.limit_or_default(resource, range);
        match (self.own.requests[resource].filter(positive), limit.filter(positive)) {
            (Some(request), Some(limit)) => scale(resource, request, max, limit, Round::Down),
            _ => Some(max),
        }
    }

    /// The smallest request that is not too far below a limit that does not change.
    fn ratio_minimum(&self, resource: Resource, range: &LimitBounds) -> Option<Quantity> {
        let ratio = range.max_limit_request_ratio[resource].filter(|_| !self.scales_limits())?;
        let limit = self.own.limits[resource]?;
        // A ratio is a plain number; in thousandths it divides memory too.
        let amount = match resource {
            Resource::Cpu => limit.milli().ok()?,
            Resource::Memory => limit.units().ok()?,
        };
        let least = (i128::from(amount) * 1_000).checked_div(i128::from(ratio.saturating_milli()))?;
        let exact = least * i128::from(ratio.saturating_milli()) == i128::from(amount) * 1_000;
        let least = i64::try_from(if exact { least } else { least + 1 }).ok()?;
        Some(plumb_resize::list::quantity_of(resource, least).with_format(limit.format()))
    }

    fn limits(&mut self, range: &LimitBounds) -> Resources {
        let mut limits = Resources::default();
        if !self.scales_limits() {
            return limits;
        }
        let mut notes = Vec::new();
        for resource in Resource::ALL {
            let own = self.limit_or_default(resource, range);
            let request = self.bounds.target[resource];
            match proportional_limit(resource, own, self.own.requests[resource], request) {
                Ok(limit) => limits[resource] = Some(limit),
                Err(note) => {
                    if note == Note::LimitOverflow(resource) {
                        limits[resource] = own.map(|own| largest(resource, own));
                    }
                    notes.push(note);
                }
            }
        }
        // Upstream is silent about a container that has no limits at all.
        if limits.any(|_, limit| limit.is_some()) {
            self.notes.extend(notes);
        }
        limits
    }

    fn limit_or_default(&self, resource: Resource, range: &LimitBounds) -> Option<Quantity> {
        let own = self.own.limits[resource].filter(|limit| limit.is_positive());
        own.or(range.default[resource])
    }
}

/// `minAllowed` and `maxAllowed`.
struct Allowed {
    min: Resources,
    max: Resources,
}
