//! Installs `CustomResourceDefinition`s in a cluster.
//!
//! ```text
//!   absent                              ──▶ created, by server-side apply
//!   an earlier definition of ours       ──▶ updated, by server-side apply without force
//!   ours already                        ──▶ left as it is, without a write
//!   of another installer, edited since,
//!   or of a newer version of ours       ──▶ left as it is
//! ```
//!
//! So an installation of the upstream project retains its definitions, and a user's edit of ours stays: field
//! managers decide, as they do for all server-side apply.

mod schema;

use std::time::Duration;

use futures_util::TryStreamExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams, WatchEvent, WatchParams};
use kube::{Client, ResourceExt as _};
use plumb_client::Api;

pub use schema::normalise;

/// The annotation with the [`fingerprint`] of the definition that an object was made from.
pub const DEFINITION_ANNOTATION: &str = "plumb.dev/crd-definition";

/// For how long a definition may take to be established.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(30);

/// How often a definition is read again because another writer wrote it in between.
const ATTEMPTS: usize = 5;

/// A definition that a component needs.
#[derive(Clone, Debug)]
pub struct Definition {
    /// The definition.
    pub crd: CustomResourceDefinition,
    /// The version of it that the component reads and writes.
    pub version: &'static str,
    /// The fingerprints of all its releases, the present one last. A definition with an earlier fingerprint is updated;
    /// one with a fingerprint that is not listed was made by a newer version.
    pub released: Vec<String>,
}

/// The result of applying a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InstallOutcome {
    /// It was absent and is there now.
    Created,
    /// It was an earlier one of ours.
    Updated,
    /// It is ours.
    Unchanged,
    /// It is another one, and stays.
    Kept(KeepReason),
}

/// Why a definition was left as it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepReason {
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
        /// The request.
        operation: &'static str,
        /// Of which definition.
        name: String,
        /// The error.
        #[source]
        source: kube::Error,
    },
    /// The definition is being deleted, with all its objects.
    #[error("CustomResourceDefinition {0} is terminating")]
    Terminating(String),
    /// The definition of another installer does not serve the version that this program uses.
    #[error("CustomResourceDefinition {name} does not serve version {version}")]
    NotServed {
        /// Which definition.
        name: String,
        /// Which version.
        version: &'static str,
    },
    /// The API server does not accept the definition.
    #[error("CustomResourceDefinition {name} is not established: {reason}")]
    NotEstablished {
        /// Which definition.
        name: String,
        /// Its conditions.
        reason: String,
    },
    /// Other writers were always faster.
    #[error("CustomResourceDefinition {0} is written by others again and again")]
    Contended(String),
}

/// Installs definitions one after the other as a field manager, and returns once they are established.
pub async fn install(
    client: &Client,
    field_manager: &str,
    definitions: Vec<Definition>,
) -> Result<Vec<(String, InstallOutcome)>, InstallError> {
    let mut outcomes = Vec::new();
    for definition in definitions {
        let name = definition.crd.name_any();
        outcomes.push((name, install_one(client, field_manager, definition).await?));
    }
    Ok(outcomes)
}

/// Installs a definition as a field manager, and returns once it is established.
pub async fn install_one(
    client: &Client,
    field_manager: &str,
    definition: Definition,
) -> Result<InstallOutcome, InstallError> {
    let Definition { crd, version, released } = definition;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let name = crd.name_any();
    let failed = |operation| {
        let name = name.clone();
        move |source| InstallError::Request { operation, name, source }
    };
    let own = released.last().cloned().unwrap_or_default();
    let mut applied = crd;
    applied.annotations_mut().insert(DEFINITION_ANNOTATION.to_owned(), own);
    for _ in 0..ATTEMPTS {
        let existing = api.get_opt(&name).await.map_err(failed("reading"))?;
        if let Some(existing) = &existing {
            check_usable(existing, version)?;
        }
        let (patch, outcome) = match decide(existing.as_ref(), field_manager, &released) {
            Decision::Keep(outcome) => {
                wait_until_established(&api, &name).await?;
                return Ok(outcome);
            }
            Decision::Apply(outcome) => (Patch::Apply(&applied), outcome),
        };
        match api.patch(&name, &PatchParams::apply(field_manager), &patch).await {
            Ok(_) => {
                wait_until_established(&api, &name).await?;
                return Ok(outcome);
            }
            // Absent before and not ours now: it was created in between.
            Err(kube::Error::Api(status)) if status.is_conflict() && outcome == InstallOutcome::Created => {}
            Err(kube::Error::Api(status)) if status.is_conflict() => {
                wait_until_established(&api, &name).await?;
                return Ok(InstallOutcome::Kept(KeepReason::Edited(status.message.clone())));
            }
            Err(error) => return Err(failed("applying")(error)),
        }
    }
    Err(InstallError::Contended(name))
}

enum Decision {
    Keep(InstallOutcome),
    Apply(InstallOutcome),
}

fn decide(existing: Option<&CustomResourceDefinition>, field_manager: &str, released: &[String]) -> Decision {
    let Some(existing) = existing else { return Decision::Apply(InstallOutcome::Created) };
    if !is_installed_by(existing, field_manager) {
        let managers = existing.managed_fields();
        let installer = managers.iter().find(|entry| entry.subresource.is_none());
        let installer =
            installer.and_then(|entry| entry.manager.clone()).unwrap_or_else(|| "another installer".into());
        return Decision::Keep(InstallOutcome::Kept(KeepReason::Foreign(installer)));
    }
    let made_from = existing.annotations().get(DEFINITION_ANNOTATION).map(String::as_str);
    let position = released.iter().position(|fingerprint| Some(&**fingerprint) == made_from);
    match position {
        None => Decision::Keep(InstallOutcome::Kept(KeepReason::Newer)),
        Some(at) if at + 1 == released.len() => Decision::Keep(InstallOutcome::Unchanged),
        Some(_) => Decision::Apply(InstallOutcome::Updated),
    }
}

/// Whether a field manager installed a definition.
pub fn is_installed_by(crd: &CustomResourceDefinition, field_manager: &str) -> bool {
    crd.managed_fields().iter().any(|entry| entry.manager.as_deref() == Some(field_manager))
}

fn check_usable(crd: &CustomResourceDefinition, version: &'static str) -> Result<(), InstallError> {
    if crd.metadata.deletion_timestamp.is_some() {
        return Err(InstallError::Terminating(crd.name_any()));
    }
    if !crd.spec.versions.iter().any(|served| served.name == version && served.served) {
        return Err(InstallError::NotServed { name: crd.name_any(), version });
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
