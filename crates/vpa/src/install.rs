//! Installs the `CustomResourceDefinition`s of [`plumb_vpa_api::crds`] in a cluster, see [`plumb_controller_runtime::crds`]: those of
//! an upstream installation are left as they are.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Client, ResourceExt as _};
use plumb_controller_runtime::crds::{self as installer, Definition};
pub use plumb_controller_runtime::crds::{
    DEFINITION_ANNOTATION, InstallError, InstallOutcome, KeepReason, fingerprint,
};

use plumb_vpa_api::crds;

/// The manager of the fields that are applied.
pub const FIELD_MANAGER: &str = "plumb-autoscaler";

/// The fingerprints of all definitions that were ever released, the present ones last in each list.
const RELEASED: [(&str, &[&str]); 2] = [
    ("verticalpodautoscalercheckpoints.autoscaling.k8s.io", &["bbf87f64b27e93ef", "0002ef03fa688309"]),
    (
        "verticalpodautoscalers.autoscaling.k8s.io",
        &["d6681032e1c71707", "1e2dd5f1a41f419f", "cd2581de006f0cb5"],
    ),
];

/// Both definitions, with the fingerprints of their releases.
pub fn definitions() -> Vec<Definition> {
    let definitions = crds::all().map(|crd| {
        let name = crd.name_any();
        let released = RELEASED.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, released)| released);
        definition(crd, released)
    });
    definitions.into()
}

/// Installs both definitions, and returns once they are established.
pub async fn install(client: &Client) -> Result<Vec<(String, InstallOutcome)>, InstallError> {
    installer::install(client, FIELD_MANAGER, definitions()).await
}

/// Installs a definition whose fingerprints, the earlier ones and last its own, are these.
pub async fn install_one(
    client: &Client,
    crd: CustomResourceDefinition,
    released: &[&str],
) -> Result<InstallOutcome, InstallError> {
    installer::install_one(client, FIELD_MANAGER, definition(crd, released)).await
}

fn definition(crd: CustomResourceDefinition, released: &[&str]) -> Definition {
    Definition { crd, version: "v1", released: released.iter().map(|&text| text.to_owned()).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_fingerprint_of_each_definition_is_that_of_the_types() {
        let present = crds::all().map(|crd| (crd.name_any(), fingerprint(&crd)));
        let released = RELEASED.map(|(name, released)| {
            (name.to_owned(), released.last().copied().unwrap_or_default().to_owned())
        });
        assert_eq!(
            released, present,
            "add new fingerprints to the end of RELEASED, so that clusters get the definitions"
        );
    }
}
