//! The flags of a webhook's address, which all webhooks have.

use std::net::{Ipv6Addr, SocketAddr};

use clap::Args;
use plumb_webhook::Endpoint;

/// Where a webhook is served, and where the API server reaches it.
#[derive(Clone, Debug, Args)]
pub(crate) struct EndpointFlags {
    /// The port that the webhook is served on; 0 for any that is free.
    #[arg(long, value_name = "PORT", default_value = "8000")]
    port: u16,
    /// The namespace of the webhook's Service, and of the Secret of certificates. [default: what NAMESPACE says, else kube-system]
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
}

impl EndpointFlags {
    /// The error for flags that are valid by themselves and not together.
    pub(super) fn conflict(&self) -> Option<&'static str> {
        (self.register_by_url && self.webhook_address.is_empty())
            .then_some("--register-by-url needs --webhook-address")
    }

    /// The address that the webhook is served on.
    pub(super) fn listen(&self) -> SocketAddr {
        SocketAddr::from((Ipv6Addr::UNSPECIFIED, self.port))
    }

    /// The namespace of the webhook's Service and Secret.
    pub(super) fn namespace(&self) -> String {
        or_own_namespace(&self.webhook_namespace)
    }

    /// The endpoint that is registered, with the name of the webhook's Service.
    pub(super) fn endpoint(&self, service: &str) -> Endpoint {
        if self.register_by_url {
            return Endpoint::Url { host: self.webhook_address.clone(), port: self.webhook_port };
        }
        let port = self.webhook_port.unwrap_or(443);
        Endpoint::Service { namespace: self.namespace(), name: service.to_owned(), port }
    }
}

/// The namespace that this process runs in.
fn own_namespace() -> String {
    let named = std::env::var("NAMESPACE").ok().filter(|name| !name.is_empty());
    named.unwrap_or_else(|| "kube-system".to_owned())
}

/// The namespace of a flag, or that of this process.
pub(super) fn or_own_namespace(flag: &str) -> String {
    if flag.is_empty() { own_namespace() } else { flag.to_owned() }
}
