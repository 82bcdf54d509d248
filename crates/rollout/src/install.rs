//! Installs the `CustomResourceDefinition`s of [`crate::api`] in a cluster, see [`plumb_controller::crds`].

use kube::Client;
use plumb_controller::crds::{self, Definition, InstallError, Outcome};

use crate::api::cloneset;

/// The manager of the fields that are applied.
pub const FIELD_MANAGER: &str = "plumb-rollout";

/// The name of the definition of `CloneSet`.
pub const CLONESETS: &str = "clonesets.apps.kruise.io";

/// The fingerprints of all definitions of `CloneSet` that were ever released, the present one last.
const CLONESET_RELEASED: &[&str] = &["0bea5752311720a8"];

/// Installs the definition of `CloneSet`, and returns once it is established. That of OpenKruise is left as it is.
pub async fn install_cloneset(client: &Client) -> Result<Outcome, InstallError> {
    let released = CLONESET_RELEASED.iter().map(|&text| text.to_owned()).collect();
    let definition = Definition { crd: cloneset::crd(), version: "v1beta1", released };
    crds::install_one(client, FIELD_MANAGER, definition).await
}

#[cfg(test)]
mod tests {
    use kube::ResourceExt as _;
    use plumb_controller::crds::fingerprint;

    use super::*;

    #[test]
    fn the_last_fingerprint_of_each_definition_is_that_of_the_types() {
        let crd = cloneset::crd();
        assert_eq!(crd.name_any(), CLONESETS);
        assert_eq!(
            CLONESET_RELEASED.last().copied().unwrap_or_default(),
            fingerprint(&crd),
            "add the new fingerprint to the end, so that clusters get the definition"
        );
    }
}
