//! Adoption and release as actions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Resource;
use plumb_controller_runtime::Store;
use plumb_controller_runtime::adoption::{self, Claim};

use super::action::Action;
use super::kinds::{Ref, Written};

/// The objects that a workload has to adopt and to release.
pub fn claims<K: Written>(
    owner: &impl Resource,
    selector: Option<&LabelSelector>,
    store: &Store<K>,
) -> Vec<Action> {
    let claims = adoption::claims(owner, selector, store).into_iter();
    let action = |claim| match claim {
        Claim::Adopt(object) => Action::Adopt(Ref::to(&*object)),
        Claim::Release(object) => Action::Release(Ref::to(&*object)),
    };
    claims.map(action).collect()
}
