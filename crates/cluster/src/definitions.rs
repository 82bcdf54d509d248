//! The definitions of custom resources that components of a cluster on this machine install.

use std::time::Duration;

use plumb_controller_runtime::crds::{InstallError, InstallOutcome};
use plumb_controller_runtime::{Backoff, Exponential};

/// The user that installs them.
pub(crate) const USER: &str = plumb_roles::DEFINITIONS.account;

/// Installs definitions, however often that has to be tried.
pub(crate) async fn define<F>(of: &str, install: impl Fn() -> F)
where
    F: Future<Output = Result<Vec<(String, InstallOutcome)>, InstallError>>,
{
    let mut backoff = Backoff::new(Exponential::new(Duration::from_millis(200), Duration::from_secs(30)));
    loop {
        match install().await {
            Ok(outcomes) => {
                for (name, outcome) in outcomes {
                    if let InstallOutcome::Kept(reason) = outcome {
                        tracing::info!(name, %reason, "left a CustomResourceDefinition as it is");
                    }
                }
                return;
            }
            Err(error) => {
                let error = anyhow::Error::new(error);
                tracing::warn!(error = format!("{error:#}"), "cannot install the definitions of {of}");
                backoff.wait().await;
            }
        }
    }
}
