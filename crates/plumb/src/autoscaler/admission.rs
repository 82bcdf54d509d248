//! The admission webhook of a cluster on this machine: the API server calls it over the loopback interface.

use std::net::{Ipv4Addr, SocketAddr};

use plumb_autoscaler::admission::Options;
use plumb_autoscaler::admission::registration::registration;
use plumb_autoscaler::admission::status_lease::StatusLease;
use plumb_autoscaler::admission::vpa::Gates;
use plumb_autoscaler::namespaces::Namespaces;
use plumb_features::FeatureGates;
use plumb_webhook::{Certificates, Endpoint, TlsSettings};

use crate::cli::AutoscalerFlags;

/// The namespace of its Secret and its Lease.
const NAMESPACE: &str = "kube-system";
/// The Secret with its authority.
const SECRET: &str = "vpa-webhook-ca";

/// A webhook on a free port.
pub(super) fn options(flags: &AutoscalerFlags, gates: &FeatureGates) -> Options {
    let endpoint = Endpoint::Url { host: Ipv4Addr::LOCALHOST.to_string(), port: None };
    Options {
        server: plumb_webhook::Options {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            certificates: Certificates::Own {
                namespace: NAMESPACE.to_owned(),
                name: SECRET.to_owned(),
                hosts: endpoint.names(),
            },
            registration: Some(registration(endpoint, &Namespaces::All)),
            tls: TlsSettings::default(),
        },
        status_lease: StatusLease::new(NAMESPACE, "plumb"),
        max_allowed_cpu_boost: flags.max_allowed_cpu_boost,
        gates: Gates::new(gates),
    }
}
