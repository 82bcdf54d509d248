//! Installs the `CustomResourceDefinition`s of [`crate::api::crds`] in a cluster.
//!
//! ```text
//!   absent                              ──▶ created, by server-side apply
//!   an earlier definition of ours       ──▶ updated, by server-side apply without force
//!   ours already                        ──▶ left as it is, without a write
//!   of another installer, edited since,
//!   or of a newer version of ours       ──▶ left as it is
//! ```
//!
//! So an installation of the upstream autoscaler keeps its definitions, and somebody who edits ours keeps the edit: field
//! managers decide, as they do for everything that is applied.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use plumb_client::Api;

use crate::api::crds;

/// The manager of the fields that are applied.
pub const FIELD_MANAGER: &str = "plumb-autoscaler";

/// The annotation that says which definition of ours an object was made from: its [`fingerprint`].
pub const DEFINITION_ANNOTATION: &str = "plumb.dev/crd-definition";

/// The fingerprints of all definitions that were ever released, the present ones last in each list. A definition with an
/// earlier fingerprint is updated; one that is not listed was made by a newer version.
const RELEASED: [(&str, &[&str]); 2] = [
    ("verticalpodautoscalercheckpoints.autoscaling.k8s.io", &["bbf87f64b27e93ef"]),
    ("verticalpodautoscalers.autoscaling.k8s.io", &["d6681032e1c71707"]),
];

/// For how long a definition may take to be established.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);

/// How often a definition is read again because somebody else wrote it in between.
const ATTEMPTS: usize = 5;

/// What became of a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was absent and is there now.
    Created,
    /// It was an earlier one of ours.
    Updated,
    /// It is ours.
    Unchanged,
    /// It is another one, and stays.
    Kept(Kept),
}

/// Why a definition was left as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Kept {
    /// It was not installed by this program.
    #[error("it was installed by {0}")]
    Foreign(String),
    /// It was, but has been edited since.
    #[error("it was edited since it was installed: {0}")]
    Edited(String),
    /// A newer version of this program installed it.
    #[error("a newer version installed it")]
    Newer,
}

/// Why definitions could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The API server did not answer as expected.
    #[error("{operation} CustomResourceDefinition {name}")]
    Request {
        /// What was asked for.
        operation: &'static str,
        /// Of which definition.
        name: String,
        /// What went wrong.
        #[source]
        source: kube::Error,
    },
    /// The definition is being deleted, with all its objects.
    #[error("CustomResourceDefinition {0} is terminating")]
    Terminating(String),
    /// The definition of somebody else does not serve the version that this program uses.
    #[error("CustomResourceDefinition {0} does not serve version v1")]
    NotServed(String),
    /// The API server does not accept the definition.
    #[error("CustomResourceDefinition {name} is not established: {reason}")]
    NotEstablished {
        /// Which definition.
        name: String,
        /// What its conditions say.
        reason: String,
    },
    /// Other writers were always faster.
    #[error("CustomResourceDefinition {0} is written by others again and again")]
    Contended(String),
}

/// Installs both definitions, and returns once they are established.
pub async fn install(client: &Client) -> Result<Vec<(String, Outcome)>, InstallError> {
    let mut outcomes = Vec::new();
    for crd in crds::all() {
        let name = crd.name_any();
        let released = RELEASED.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, released)| released);
        let outcome = install_one(client, crd, released).await?;
        outcomes.push((name, outcome));
    }
    Ok(outcomes)
}

/// Installs a definition whose fingerprints, the earlier ones and last its own, are these.
pub async fn install_one(
    client: &Client,
    crd: CustomResourceDefinition,
    released: &[&str],
) -> Result<Outcome, InstallError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = crd.name_any();
    let failed = |operation| {
        let name = name.clone();
        move |source| InstallError::Request { operation, name, source }
    };
    let own = released.last().copied().unwrap_or_default();
    let mut applied = crd;
    applied.annotations_mut().insert(DEFINITION_ANNOTATION.to_owned(), own.to_owned());
    for _ in 0..ATTEMPTS {
        let existing = api.get_opt(&name).await.map_err(failed("reading"))?;
        if let Some(existing) = &existing {
            check_usable(existing)?;
        }
        let (patch, outcome) = match decide(existing.as_ref(), released) {
            Decision::Keep(outcome) => {
                wait_until_established(&api, &name).await?;
                return Ok(outcome);
            }
            Decision::Apply(outcome) => (Patch::Apply(&applied), outcome),
        };
        match api.patch(&name, &PatchParams::apply(FIELD_MANAGER), &patch).await {
            Ok(_) => {
                wait_until_established(&api, &name).await?;
                return Ok(outcome);
            }
            // Absent before and not ours now: it was created in between.
            Err(kube::Error::Api(status)) if status.is_conflict() && outcome == Outcome::Created => {}
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                wait_until_established(&api, &name).await?;
                return Ok(Outcome::Kept(Kept::Edited(status.message.clone())));
            }
            Err(error) => return Err(failed("applying")(error)),
        }
    }
    Err(InstallError::Contended(name))
}

enum Decision {
    Keep(Outcome),
    Apply(Outcome),
}

fn decide(existing: Option<&CustomResourceDefinition>, released: &[&str]) -> Decision {
    let Some(existing) = existing else { return Decision::Apply(Outcome::Created) };
    let managers = existing.managed_fields();
    if !managers.iter().any(|entry| entry.manager.as_deref() == Some(FIELD_MANAGER)) {
        let installer = managers.iter().find(|entry| entry.subresource.is_none());
        let installer =
            installer.and_then(|entry| entry.manager.clone()).unwrap_or_else(|| "another installer".into());
        return Decision::Keep(Outcome::Kept(Kept::Foreign(installer)));
    }
    let made_from = existing.annotations().get(DEFINITION_ANNOTATION).map(String::as_str);
    let position = released.iter().position(|fingerprint| Some(*fingerprint) == made_from);
    match position {
        None => Decision::Keep(Outcome::Kept(Kept::Newer)),
        Some(at) if at + 1 == released.len() => Decision::Keep(Outcome::Unchanged),
        Some(_) => Decision::Apply(Outcome::Updated),
    }
}

fn check_usable(crd: &CustomResourceDefinition) -> Result<(), InstallError> {
    if crd.metadata.deletion_timestamp.is_some() {
        return Err(InstallError::Terminating(crd.name_any()));
    }
    if !crd.spec.versions.iter().any(|version| version.name == "v1" && version.served) {
        return Err(InstallError::NotServed(crd.name_any()));
    }
    Ok(())
}

/// Waits until objects of the definition can be written.
async fn wait_until_established(api: &Api<CustomResourceDefinition>, name: &str) -> Result<(), InstallError> {
    let failed = |source| InstallError::Request { operation: "watching", name: name.to_owned(), source };
    let mut last = api.get(name).await.map_err(failed)?;
    let wait = async {
        while !is_established(&last) {
            let only = WatchParams::default().fields(&format!("metadata.name={name}"));
            let version = last.resource_version().unwrap_or_default();
            let mut events = std::pin::pin!(api.watch(&only, &version).await.map_err(failed)?);
            while let Some(event) = events.try_next().await.map_err(failed)? {
                match event {
                    WatchEvent::Added(crd) | WatchEvent::Modified(crd) => last = crd,
                    WatchEvent::Deleted(_) => return Err(InstallError::Terminating(name.to_owned())),
                    WatchEvent::Error(_) => break,
                    WatchEvent::Bookmark(_) => {}
                }
                if is_established(&last) {
                    return Ok(());
                }
            }
            last = api.get(name).await.map_err(failed)?;
        }
        Ok(())
    };
    match tokio::time::timeout(ESTABLISHED_WITHIN, wait).await {
        Ok(outcome) => outcome,
        Err(_) => Err(InstallError::NotEstablished { name: name.to_owned(), reason: reason(&last) }),
    }
}

fn is_established(crd: &CustomResourceDefinition) -> bool {
    let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|conditions| {
        conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True")
    })
}

fn reason(crd: &CustomResourceDefinition) -> String {
    let conditions = crd.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let failing = conditions.iter().filter(|condition| condition.status == "False");
    let messages: Vec<&str> = failing.filter_map(|condition| condition.message.as_deref()).collect();
    if messages.is_empty() { "the API server does not say why".to_owned() } else { messages.join("; ") }
}

/// A short text that is another one for every other definition: FNV-1a over the JSON of its `spec`.
pub fn fingerprint(crd: &CustomResourceDefinition) -> String {
    // A definition of ours has no value that JSON lacks.
    let json = serde_json::to_vec(&crd.spec).unwrap_or_default();
    let hash = json.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
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
