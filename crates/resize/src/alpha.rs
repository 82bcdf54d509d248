//! The alpha spellings of KEP-1287, for clients and manifests of that time.
//!
//! The alpha API called the entry of a resize policy `policy`, and its values `RestartNotRequired`,
//! `Restart` and `RestartRequired`; the allocated resources of a container were `resourcesAllocated`. The API server
//! accepts them on input if the rules allow it, and never returns them.

use crate::pod::RestartPolicy;
use crate::rules::Rules;

/// The alpha name of the field `restartPolicy` in a resize policy.
pub const POLICY_FIELD: &str = "policy";

/// The alpha name of the field `allocatedResources` in a container's status.
pub const ALLOCATED_FIELD: &str = "resourcesAllocated";

/// Reads the value of a resize policy, in today's spelling or, if the rules allow it, in that of the alpha.
///
/// ```
/// use plumb_resize::alpha::restart_policy;
/// use plumb_resize::pod::RestartPolicy;
/// use plumb_resize::rules::Rules;
///
/// assert_eq!(restart_policy("Restart", &Rules::kep()), Some(RestartPolicy::RestartContainer));
/// assert_eq!(restart_policy("Restart", &Rules::v1_36()), None);
/// ```
pub fn restart_policy(text: &str, rules: &Rules) -> Option<RestartPolicy> {
    match text {
        "NotRequired" => Some(RestartPolicy::NotRequired),
        "RestartContainer" => Some(RestartPolicy::RestartContainer),
        "RestartNotRequired" if rules.alpha_spellings => Some(RestartPolicy::NotRequired),
        "Restart" | "RestartRequired" if rules.alpha_spellings => Some(RestartPolicy::RestartContainer),
        _ => None,
    }
}
