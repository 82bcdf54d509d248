//! The flags of the rollout.

use clap::Args;
use plumb_rollout::webhook;
use plumb_webhook::{Certificates, TlsSettings};

use super::endpoint::EndpointFlags;

/// The webhook that holds workloads.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Webhook")]
pub(crate) struct RolloutFlags {
    #[command(flatten)]
    endpoint: EndpointFlags,
    /// The Service by which the API server reaches the webhook.
    #[arg(long, value_name = "NAME", default_value = "plumb-rollout-webhook")]
    webhook_service: String,
    /// The Secret with the certificate authority that all processes share; it is created.
    #[arg(long, value_name = "NAME", default_value = webhook::SECRET)]
    webhook_secret: String,
}

impl RolloutFlags {
    /// The error for flags that are valid by themselves and not together.
    pub(crate) fn conflict(&self) -> Option<&'static str> {
        self.endpoint.conflict()
    }

    /// The server of these flags.
    pub(crate) fn server(&self) -> plumb_webhook::Options {
        let endpoint = self.endpoint.endpoint(&self.webhook_service);
        plumb_webhook::Options {
            listen: self.endpoint.listen(),
            certificates: Certificates::Own {
                namespace: self.endpoint.namespace(),
                name: self.webhook_secret.clone(),
                hosts: endpoint.names(),
            },
            registration: Some(webhook::registration(endpoint)),
            tls: TlsSettings::default(),
        }
    }
}
