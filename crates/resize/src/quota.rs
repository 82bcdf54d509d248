//! The rules of a resource quota.
//!
//! They apply twice. When an object is written, [`admit`] decides whether it fits, and returns the new usage; an
//! update is charged for its growth only. And the quota controller recalculates the usage of all objects with
//! [`measure`], which credits deleted objects and those that use less.

mod counted;
mod scope;

use k8s_openapi::api::core::v1::{ResourceQuota, ScopedResourceSelectorRequirement};

pub use counted::{Counted, Item};

use crate::list::{BadQuantity, ResourceList};
use crate::quantity::Quantity;

/// Why a quota does not admit something, in the words of kube-apiserver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The object requests more than is left.
    #[error("exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}")]
    Exceeded {
        /// The quota.
        quota: String,
        /// The requested amounts that exceed the quota.
        requested: String,
        /// The used amounts.
        used: String,
        /// The limits.
        limited: String,
    },
    /// The object lacks a request or limit that the quota counts.
    #[error("failed quota: {quota}: must specify {missing}")]
    Unspecified {
        /// The quota.
        quota: String,
        /// The missing resources, and the containers that lack them.
        missing: String,
    },
    /// The usage is not known yet.
    #[error("status unknown for quota: {quota}, resources: {resources}")]
    Unknown {
        /// The quota.
        quota: String,
        /// The resources without usage.
        resources: String,
    },
    /// The usage would become negative.
    #[error("quota usage is negative for resource(s): {0}")]
    Negative(String),
    /// A quantity cannot be read.
    #[error(transparent)]
    Unreadable(#[from] BadQuantity),
}

/// Why a quota would refuse an object, or a change of it: the first one that it exceeds. The API server decides finally about
/// quotas: whatever else is wrong with one, such as a usage that is not known yet, is no answer here.
pub fn exceeded<'a>(
    quotas: impl IntoIterator<Item = &'a ResourceQuota>,
    object: &Counted<'_>,
    old: Option<&Counted<'_>>,
) -> Option<Refusal> {
    quotas.into_iter().find_map(|quota| match admit(quota, object, old, false) {
        Err(refusal @ Refusal::Exceeded { .. }) => Some(refusal),
        Err(_) | Ok(_) => None,
    })
}

/// A quota with the usage that remains once an object is deleted. One whose usage cannot be read stays as it is.
pub fn without(quota: &ResourceQuota, deleted: &Counted<'_>) -> ResourceQuota {
    let mut quota = quota.clone();
    let freed = measure(&quota, [*deleted]);
    let status = quota.status.get_or_insert_default();
    if let (Ok(freed), Ok(used)) = (freed, ResourceList::read(status.used.as_ref())) {
        status.used = Some(used.less(&freed).to_wire());
    }
    quota
}

/// The usage of a quota once an object is admitted: none if the quota does not count the object.
///
/// `old` is the stored version of the object, if there is one. Growth of a status is counted but never refused.
pub fn admit(
    quota: &ResourceQuota,
    new: &Counted<'_>,
    old: Option<&Counted<'_>>,
    reported: bool,
) -> Result<Option<ResourceList>, Refusal> {
    let name = || quota.metadata.name.clone().unwrap_or_default();
    let status = quota.status.clone().unwrap_or_default();
    let hard = ResourceList::read(status.hard.as_ref())?;
    let counted = hard.only(|name| new.counts_for(name));
    if counted.is_empty() || !scopes(quota).iter().all(|scope| scope::holds(scope, new)) {
        return Ok(None);
    }
    let missing = new.unspecified(&counted)?;
    if !missing.is_empty() {
        return Err(Refusal::Unspecified { quota: name(), missing });
    }
    let used = ResourceList::read(status.used.as_ref())?;
    if counted.iter().any(|(name, _)| used.get(name).is_none()) {
        let names: Vec<&str> = counted.iter().map(|(name, _)| name).collect();
        return Err(Refusal::Unknown { quota: name(), resources: names.join(",") });
    }
    let usage = new.usage()?;
    let negative: Vec<&str> =
        usage.iter().filter(|(_, amount)| amount.is_negative()).map(|(name, _)| name).collect();
    if !negative.is_empty() {
        return Err(Refusal::Negative(negative.join(",")));
    }
    let before = old.filter(|old| scopes(quota).iter().all(|scope| scope::holds(scope, old)));
    let added = match before {
        Some(before) => usage.less(&before.usage()?),
        None => usage,
    };
    let added = added.only(|name| hard.get(name).is_some());
    if added.iter().all(|(_, amount)| amount.is_zero()) {
        return Ok(None);
    }
    let mut total = used.clone();
    total.add(&added);
    let exceeded = |name: &str| {
        let more = added.get(name).is_some_and(|amount| !amount.is_zero());
        more && matches!((total.get(name), hard.get(name)), (Some(total), Some(hard)) if total > hard)
    };
    let beyond = hard.only(exceeded);
    if !reported && !beyond.is_empty() {
        let of = |list: &ResourceList| pretty(&list.only(exceeded));
        return Err(Refusal::Exceeded {
            quota: name(),
            requested: of(&added),
            used: of(&used),
            limited: of(&hard),
        });
    }
    Ok(Some(total))
}

/// The usage of all objects in the quota's namespace that the quota counts.
pub fn measure<'a>(
    quota: &ResourceQuota,
    items: impl IntoIterator<Item = Counted<'a>>,
) -> Result<ResourceList, BadQuantity> {
    let hard = ResourceList::read(quota.spec.as_ref().and_then(|spec| spec.hard.as_ref()))?;
    let scopes = scopes(quota);
    let mut used = ResourceList::default();
    for (name, _) in hard.iter() {
        used.set(name, Quantity::ZERO);
    }
    for item in items {
        let concerned = hard.iter().any(|(name, _)| item.counts_for(name));
        if concerned && scopes.iter().all(|scope| scope::holds(scope, &item)) {
            used.add(&item.usage()?.only(|name| hard.get(name).is_some() && item.counts_for(name)));
        }
    }
    Ok(used)
}

/// The scopes of a quota, short and long form alike.
fn scopes(quota: &ResourceQuota) -> Vec<ScopedResourceSelectorRequirement> {
    let Some(spec) = &quota.spec else { return Vec::new() };
    let short = spec.scopes.iter().flatten().map(|scope| ScopedResourceSelectorRequirement {
        scope_name: scope.clone(),
        operator: "Exists".to_owned(),
        values: None,
    });
    let long = spec.scope_selector.iter().flat_map(|selector| selector.match_expressions.iter().flatten());
    short.chain(long.cloned()).collect()
}

fn pretty(list: &ResourceList) -> String {
    list.iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(",")
}
