//! The admission webhook of a cluster on this machine: the API server calls it over the loopback interface.

use plumb_features::FeatureGates;
use plumb_vpa::namespaces::Namespaces;
use plumb_vpa_admission::Options;
use plumb_vpa_admission::registration::registration;
use plumb_vpa_admission::status_lease::StatusLease;
use plumb_vpa_admission::vpa::Gates;

use crate::flags::AutoscalerFlags;

/// The namespace of its Secret and its Lease.
const NAMESPACE: &str = "kube-system";
/// The Secret with its authority.
const SECRET: &str = "vpa-webhook-ca";

/// A webhook on a free port.
pub(super) fn options(flags: &AutoscalerFlags, gates: &FeatureGates) -> Options {
    let register = |endpoint| registration(endpoint, &Namespaces::All);
    Options {
        server: plumb_webhook::Options::on_loopback(NAMESPACE, SECRET, register),
        status_lease: StatusLease::new(NAMESPACE, "plumb"),
        max_allowed_cpu_boost: flags.max_allowed_cpu_boost,
        gates: Gates::new(gates),
        node_selectors: flags.node_selectors,
    }
}
