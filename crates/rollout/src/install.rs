//! Installs the `CustomResourceDefinition`s of [`crate::api`] in a cluster, see [`plumb_controller_runtime::crds`].

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use plumb_controller_runtime::crds::{self, Definition, InstallError, InstallOutcome};

use crate::api::{cloneset, crds as types};

/// The manager of the fields that are applied.
pub const FIELD_MANAGER: &str = "plumb-rollout";

/// The name of the definition of `CloneSet`.
pub const CLONESETS: &str = "clonesets.apps.kruise.io";

/// The fingerprints of all definitions of `CloneSet` that were ever released, the present one last.
const CLONESET_RELEASED: &[&str] = &["0bea5752311720a8", "433f7b19cbc1fea4", "d56767725c4250a8"];

/// The fingerprints of all definitions of `RolloutPolicy` that were ever released, the present one last.
const ROLLOUT_POLICY_RELEASED: &[&str] =
    &["ae7543114dad5ceb", "d608b6ea3612f21c", "9e255ee7d1337a51", "79963c13934217e8"];

/// The definition of `CloneSet`, with the fingerprints of its releases.
pub fn cloneset_definition() -> Definition {
    definition(cloneset::crd(), "v1beta1", CLONESET_RELEASED)
}

/// The definition of `RolloutPolicy`, with the fingerprints of its releases.
pub fn rollout_policy_definition() -> Definition {
    definition(types::rollout_policy(), "v1alpha1", ROLLOUT_POLICY_RELEASED)
}

/// Installs both definitions, and returns once they are established. The `CloneSet` of OpenKruise is left as it is.
pub async fn install(client: &Client) -> Result<Vec<(String, InstallOutcome)>, InstallError> {
    let definitions = vec![rollout_policy_definition(), cloneset_definition()];
    crds::install(client, FIELD_MANAGER, definitions).await
}

/// Installs the definition of `CloneSet`, and returns once it is established. That of OpenKruise is left as it is.
pub async fn install_cloneset(client: &Client) -> Result<InstallOutcome, InstallError> {
    crds::install_one(client, FIELD_MANAGER, cloneset_definition()).await
}

fn definition(crd: CustomResourceDefinition, version: &'static str, released: &[&str]) -> Definition {
    Definition { crd, version, released: released.iter().map(|&text| text.to_owned()).collect() }
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;
    use plumb_controller_runtime::crds::fingerprint;

    use super::*;

    #[test]
    fn the_last_fingerprint_of_each_definition_is_that_of_the_types() {
        assert_eq!(cloneset::crd().name_any(), CLONESETS);
        for Definition { crd, released, .. } in [cloneset_definition(), rollout_policy_definition()] {
            assert_eq!(
                released.last().cloned().unwrap_or_default(),
                fingerprint(&crd),
                "add the new fingerprint of {} to the end, so that clusters get the definition",
                crd.name_any()
            );
        }
    }
}
