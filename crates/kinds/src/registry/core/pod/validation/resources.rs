//! Validation of the resource claims of a pod. `plumb-resize` validates the resources of containers.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::PodResourceClaim;
use plumb_validation::field::{BadValue, FieldError, Path};

use plumb_apiserver::validation::json::{internal, raw};
use plumb_apiserver::validation::{Errors, add_invalid, format};

/// Validates `spec.resourceClaims`.
pub(super) fn validate_pod_resource_claims(
    claims: &[PodResourceClaim],
    path: &Path<'_>,
    errors: &mut Errors,
) {
    let mut names = BTreeSet::new();
    for (i, claim) in claims.iter().enumerate() {
        let path = path.index(i);
        if claim.name.is_empty() {
            errors.push(FieldError::required(path.child("name"), ""));
        } else if !names.insert(&claim.name) {
            errors.push(FieldError::duplicate(path.child("name"), &claim.name));
        } else {
            add_invalid(errors, &path.child("name"), &claim.name, format::dns_label(&claim.name));
        }
        let (name, template) = (&claim.resource_claim_name, &claim.resource_claim_template_name);
        let rule = match (name, template) {
            (Some(_), Some(_)) => {
                Some("at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified")
            }
            (None, None) => Some("must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"),
            _ => None,
        };
        errors.extend(rule.map(|rule| FieldError::invalid(path, shown_claim(claim), rule)));
        for (field, name) in [("resourceClaimName", name), ("resourceClaimTemplateName", template)] {
            if let Some(name) = name {
                add_invalid(errors, &path.child(field), name, format::dns_subdomain(name));
            }
        }
    }
}

fn shown_claim(claim: &PodResourceClaim) -> BadValue {
    BadValue::Bare(internal(&[
        ("Name", raw(&claim.name)),
        ("ResourceClaimName", raw(&claim.resource_claim_name)),
        ("ResourceClaimTemplateName", raw(&claim.resource_claim_template_name)),
    ]))
}
