//! The flags of the admission webhook, under the names that VPA's admission controller has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use plumb_cluster::flags::values::positive_quantity;
use plumb_features::FeatureGates;
use plumb_resize::Quantity;
use plumb_vpa::namespaces::Namespaces;
use plumb_vpa_admission::Options;
use plumb_vpa_admission::registration::registration;
use plumb_vpa_admission::status_lease::StatusLease;
use plumb_vpa_admission::vpa::Gates;
use plumb_webhook::{Certificates, Endpoint, MinTls, Registration, TlsSettings};

use super::endpoint::{EndpointFlags, or_own_namespace};
use crate::recommender_flags::positive_time;

/// Where upstream's Deployment mounts certificates.
const MOUNTED: &str = "/etc/tls-certs";

/// What the admission webhook does.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Admission webhook")]
pub(crate) struct AdmissionFlags {
    #[command(flatten)]
    pub(crate) endpoint: EndpointFlags,
    /// The Service by which the API server reaches the webhook.
    #[arg(long, value_name = "NAME", default_value = "vpa-webhook")]
    pub(crate) webhook_service: String,
    /// Create and repair the MutatingWebhookConfiguration `vpa-webhook-config`. Turn it off where a chart has it.
    #[arg(long, value_name = "true|false", default_value = "true", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) register_webhook: bool,
    /// How long the API server waits for a response. (Upstream has 30: a webhook that hangs would delay every pod by
    /// that.)
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = clap::value_parser!(i32).range(1..=30))]
    pub(crate) webhook_timeout_seconds: i32,
    /// Reject pods and VPAs while the webhook is unavailable.
    #[arg(long, value_name = "true|false", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(crate) webhook_failure_policy_fail: bool,
    /// Labels of the MutatingWebhookConfiguration.
    #[arg(long, value_name = "K:V,K:V", default_value = "", hide_default_value = true, value_parser = labels)]
    pub(crate) webhook_labels: Labels,
    /// The Secret with the certificate authority that all processes share; it is created.
    #[arg(long, value_name = "NAME", default_value = "vpa-webhook-ca")]
    pub(crate) webhook_secret: String,
    /// A file with the certificate authorities that the API server trusts, instead of the Secret; with the two below.
    /// [default: /etc/tls-certs/caCert.pem where it exists]
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// The certificate of the server. [default: /etc/tls-certs/serverCert.pem]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_cert_file: Option<PathBuf>,
    /// Its private key. [default: /etc/tls-certs/serverKey.pem]
    #[arg(long, value_name = "FILE")]
    pub(crate) tls_private_key: Option<PathBuf>,
    /// The minimum version of TLS.
    #[arg(long, value_name = "VERSION", default_value = "tls1_2", value_enum)]
    pub(crate) min_tls_version: MinTlsFlag,
    /// The cipher suites of TLS 1.2, by their IANA names, separated by commas. [default: all that are secure]
    #[arg(long, value_name = "A,B", default_value = "", hide_default_value = true, value_parser = ciphers)]
    pub(crate) tls_ciphers: Ciphers,
    /// The lease that the webhook renews while it is registered. The updater evicts only while it does.
    #[arg(long, value_name = "NAME", default_value = "vpa-admission-controller")]
    pub(crate) status_lease_name: String,
    /// The namespace of that lease. [default: what NAMESPACE says, else kube-system]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) status_lease_namespace: String,
    /// How often it is renewed.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = positive_time)]
    pub(crate) status_lease_update_interval: Duration,
    /// The most CPU that a container gets by a start-up boost. [default: any amount]
    #[arg(long, value_name = "QUANTITY", value_parser = positive_quantity)]
    pub(crate) max_allowed_cpu_boost: Option<Quantity>,
    /// Accepted because upstream has it: the webhook always reloads certificate files.
    #[arg(long, value_name = "true|false", default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true", hide = true)]
    reload_cert: bool,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MinTlsFlag {
    /// TLS 1.2.
    #[value(name = "tls1_2")]
    V1_2,
    /// TLS 1.3.
    #[value(name = "tls1_3")]
    V1_3,
}

/// Labels of an object.
pub(crate) type Labels = BTreeMap<String, String>;

/// Names of cipher suites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ciphers(Vec<String>);

impl AdmissionFlags {
    /// The error for flags that are valid by themselves and not together.
    pub(crate) fn conflict(&self) -> Option<&'static str> {
        if let Some(conflict) = self.endpoint.conflict() {
            return Some(conflict);
        }
        let given = [&self.client_ca_file, &self.tls_cert_file, &self.tls_private_key];
        let given = given.iter().filter(|file| file.is_some()).count();
        (given > 0 && given < 3)
            .then_some("--client-ca-file, --tls-cert-file and --tls-private-key need each other")
    }

    /// The options of these flags, for a process of this name.
    pub(crate) fn options(&self, namespaces: &Namespaces, gates: &FeatureGates, holder: &str) -> Options {
        let endpoint = self.endpoint.endpoint(&self.webhook_service);
        Options {
            server: plumb_webhook::Options {
                listen: self.endpoint.listen(),
                certificates: self.certificates(&endpoint),
                registration: self.register_webhook.then(|| Registration {
                    fail: self.webhook_failure_policy_fail,
                    timeout_seconds: self.webhook_timeout_seconds,
                    labels: self.webhook_labels.clone(),
                    ..registration(endpoint, namespaces)
                }),
                tls: TlsSettings {
                    oldest: match self.min_tls_version {
                        MinTlsFlag::V1_2 => MinTls::V1_2,
                        MinTlsFlag::V1_3 => MinTls::V1_3,
                    },
                    ciphers: self.tls_ciphers.0.clone(),
                },
            },
            status_lease: StatusLease {
                name: self.status_lease_name.clone(),
                interval: self.status_lease_update_interval,
                ..StatusLease::new(or_own_namespace(&self.status_lease_namespace), holder)
            },
            max_allowed_cpu_boost: self.max_allowed_cpu_boost,
            gates: Gates::new(gates),
            node_selectors: false,
        }
    }

    /// Files that are named, else those that upstream's Deployment mounts, else the Secret.
    fn certificates(&self, endpoint: &Endpoint) -> Certificates {
        let mounted = |name: &str| Path::new(MOUNTED).join(name);
        match (&self.client_ca_file, &self.tls_cert_file, &self.tls_private_key) {
            (Some(authority), Some(certificate), Some(key)) => Certificates::Files {
                authority: authority.clone(),
                certificate: certificate.clone(),
                key: key.clone(),
            },
            _ if mounted("serverKey.pem").exists() => Certificates::Files {
                authority: mounted("caCert.pem"),
                certificate: mounted("serverCert.pem"),
                key: mounted("serverKey.pem"),
            },
            _ => Certificates::Own {
                namespace: self.endpoint.namespace(),
                name: self.webhook_secret.clone(),
                hosts: endpoint.names(),
            },
        }
    }
}

fn labels(text: &str) -> anyhow::Result<Labels> {
    let pairs = text.split(',').map(str::trim).filter(|pair| !pair.is_empty());
    let pair = |pair: &str| {
        let split = pair.split_once(':').map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned()));
        split.with_context(|| format!("{pair:?} is not KEY:VALUE"))
    };
    pairs.map(pair).collect()
}

/// Upstream takes commas and colons.
fn ciphers(text: &str) -> anyhow::Result<Ciphers> {
    let names = text.split([',', ':']).map(str::trim).filter(|name| !name.is_empty());
    let names: Vec<String> = names.map(str::to_owned).collect();
    match names.iter().find(|name| !name.starts_with("TLS_")) {
        Some(wrong) => bail!(
            "{wrong:?} is not the name of a cipher suite, such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
        ),
        None => Ok(Ciphers(names)),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        admission: AdmissionFlags,
    }

    fn flags(given: &[&str]) -> AdmissionFlags {
        let flags = Flags::try_parse_from([&["plumb"], given].concat());
        flags.unwrap_or_else(|error| panic!("{error}")).admission
    }

    fn options(given: &[&str]) -> Options {
        flags(given).options(&Namespaces::All, &FeatureGates::default(), "me")
    }

    #[test]
    fn without_flags_it_is_registered_by_its_service_and_has_its_own_certificates() {
        let options = options(&["--webhook-namespace=vpa", "--status-lease-namespace=vpa"]);
        let registration = options.server.registration.unwrap_or_else(|| panic!("it is registered"));
        let service =
            Endpoint::Service { namespace: "vpa".to_owned(), name: "vpa-webhook".to_owned(), port: 443 };
        assert_eq!(registration.endpoint, service);
        assert!(!registration.fail && registration.timeout_seconds == 5 && registration.labels.is_empty());
        assert_eq!(options.server.listen.port(), 8000);
        let own = Certificates::Own {
            namespace: "vpa".to_owned(),
            name: "vpa-webhook-ca".to_owned(),
            hosts: vec!["vpa-webhook.vpa.svc".to_owned(), "vpa-webhook.vpa.svc.cluster.local".to_owned()],
        };
        assert_eq!(options.server.certificates, own);
        assert_eq!(options.status_lease, StatusLease::new("vpa", "me"));
    }

    #[test]
    fn each_flag_reaches_its_option() {
        let options = options(&[
            "--register-by-url",
            "--webhook-address=192.0.2.7",
            "--webhook-port=9443",
            "--webhook-failure-policy-fail",
            "--webhook-timeout-seconds=7",
            "--webhook-labels=a:b, c:d",
            "--client-ca-file=/ca",
            "--tls-cert-file=/crt",
            "--tls-private-key=/key",
            "--min-tls-version=tls1_3",
            "--tls-ciphers=TLS_A:TLS_B,TLS_C",
            "--status-lease-update-interval=3s",
        ]);
        let registration = options.server.registration.unwrap_or_else(|| panic!("it is registered"));
        assert_eq!(registration.endpoint, Endpoint::Url { host: "192.0.2.7".to_owned(), port: Some(9443) });
        assert!(registration.fail && registration.timeout_seconds == 7 && registration.labels["c"] == "d");
        assert!(matches!(options.server.certificates, Certificates::Files { .. }));
        let tls = options.server.tls;
        assert_eq!((tls.oldest, tls.ciphers.len()), (MinTls::V1_3, 3));
        assert_eq!(options.status_lease.interval, Duration::from_secs(3));
        let off = flags(&["--register-webhook=false"]);
        let off = off.options(&Namespaces::All, &FeatureGates::default(), "me");
        assert!(off.server.registration.is_none());
    }

    #[test]
    fn flags_that_need_each_other_are_named() {
        assert!(flags(&["--register-by-url"]).conflict().is_some());
        assert!(flags(&["--tls-cert-file=/crt"]).conflict().is_some());
        assert!(flags(&[]).conflict().is_none());
        for wrong in ["--webhook-labels=a", "--tls-ciphers=RC4", "--webhook-timeout-seconds=31"] {
            assert!(Flags::try_parse_from(["plumb", wrong]).is_err(), "{wrong}");
        }
    }
}
