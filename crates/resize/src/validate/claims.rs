//! The rules for the names of resource claims.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PodSpec, ResourceClaim};
use plumb_validation::field::FieldError;
use plumb_validation::names::dns_label;

/// The names of the claims that a pod declares and its containers refer to.
pub(super) struct ClaimNames<'a>(BTreeSet<&'a str>);

impl<'a> ClaimNames<'a> {
    pub(super) fn of(spec: &'a PodSpec) -> Self {
        let names = spec.resource_claims.iter().flatten().map(|claim| claim.name.as_str());
        Self(names.filter(|name| !name.is_empty()).collect())
    }

    /// Checks that the claims of a container are claims of the pod, without duplicates.
    pub(super) fn check(&self, claims: &[ResourceClaim], path: &str, errors: &mut Vec<FieldError>) {
        // What the container has claimed so far: claims as a whole, and single requests of claims.
        let (mut whole, mut parts) = (BTreeSet::new(), BTreeSet::new());
        for (i, claim) in claims.iter().enumerate() {
            let path = format!("{path}[{i}]");
            let name = claim.name.as_str();
            if name.is_empty() {
                errors.push(FieldError::required(path, ""));
                continue;
            }
            if whole.contains(name) {
                errors.push(FieldError::duplicate(&path, name));
            } else if let Some(request) = claim.request.as_deref().filter(|request| !request.is_empty()) {
                let invalid = |rule| FieldError::invalid(format!("{path}.request"), request, rule);
                errors.extend(dns_label(request).into_iter().map(invalid));
                if !parts.insert((name, request)) {
                    errors.push(FieldError::duplicate(&path, format!("{name}/{request}")));
                }
            } else {
                if parts.range((name, "")..).next().is_some_and(|(of, _)| *of == name) {
                    errors.push(FieldError::duplicate(&path, name));
                }
                whole.insert(name);
            }
            if !self.0.contains(name) {
                errors.push(FieldError::not_found(path, name).because(self.explanation()));
            }
        }
    }

    fn explanation(&self) -> String {
        let names = self.0.iter().copied().collect::<Vec<_>>().join(", ");
        let rule = "must be one of the names in pod.spec.resourceClaims";
        if names.is_empty() { format!("{rule} which is empty") } else { format!("{rule}: {names}") }
    }
}
