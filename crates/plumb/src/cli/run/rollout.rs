//! The flags of the rollout.

use std::net::{Ipv6Addr, SocketAddr};

use clap::Args;
use plumb_rollout::webhook;
use plumb_webhook::{Certificates, Endpoint, TlsSettings};

use super::admission::or_own_namespace;

/// The webhook that holds workloads.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Webhook")]
pub(crate) struct RolloutFlags {
    /// The port that the webhook is served on; 0 for any that is free.
    #[arg(long, value_name = "PORT", default_value = "8000")]
    port: u16,
    /// The Service by which the API server reaches the webhook.
    #[arg(long, value_name = "NAME", default_value = "plumb-rollout-webhook")]
    webhook_service: String,
    /// The namespace of that Service, and of the Secret of certificates. [default: what NAMESPACE says, else kube-system]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    webhook_namespace: String,
    /// Register the webhook by a URL instead of the Service: `https://ADDRESS:PORT/` of the two flags below.
    #[arg(long, value_name = "true|false", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    register_by_url: bool,
    /// The host name or IP address of that URL.
    #[arg(long, value_name = "HOST", default_value = "", hide_default_value = true)]
    webhook_address: String,
    /// The port of the Service or of the URL. [default: 443, and of the URL that of --port]
    #[arg(long, value_name = "PORT")]
    webhook_port: Option<u16>,
    /// The Secret with the certificate authority that all processes share; it is created.
    #[arg(long, value_name = "NAME", default_value = webhook::SECRET)]
    webhook_secret: String,
}

impl RolloutFlags {
    /// The error for flags that are valid by themselves and not together.
    pub(crate) fn conflict(&self) -> Option<&'static str> {
        (self.register_by_url && self.webhook_address.is_empty())
            .then_some("--register-by-url needs --webhook-address")
    }

    /// The server of these flags.
    pub(crate) fn server(&self) -> plumb_webhook::Options {
        let namespace = or_own_namespace(&self.webhook_namespace);
        let endpoint = if self.register_by_url {
            Endpoint::Url { host: self.webhook_address.clone(), port: self.webhook_port }
        } else {
            let port = self.webhook_port.unwrap_or(443);
            Endpoint::Service { namespace: namespace.clone(), name: self.webhook_service.clone(), port }
        };
        plumb_webhook::Options {
            listen: SocketAddr::from((Ipv6Addr::UNSPECIFIED, self.port)),
            certificates: Certificates::Own {
                namespace,
                name: self.webhook_secret.clone(),
                hosts: endpoint.names(),
            },
            registration: Some(webhook::registration(endpoint)),
            tls: TlsSettings::default(),
        }
    }
}
