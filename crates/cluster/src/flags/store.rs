//! Where the objects are stored.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use plumb_etcd::{Config, DEFAULT_PREFIX, TlsFiles};

use super::values::interval;

/// The store of the objects, and the flags of etcd with the names of kube-apiserver's.
#[derive(Clone, Debug, Args)]
pub(crate) struct StoreFlags {
    /// Where objects are stored: `embedded`, in the data directory, or `etcd=URL,URL`, on the members of an etcd cluster, such as
    /// `etcd=https://etcd-1:2379,https://etcd-2:2379`.
    #[arg(long, default_value = "embedded", value_name = "STORE", value_parser = store)]
    store: Store,
    /// The certificate authority of the members of etcd.
    #[arg(long, value_name = "FILE")]
    etcd_cafile: Option<PathBuf>,
    /// The certificate with which this server authenticates itself to etcd.
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    etcd_certfile: Option<PathBuf>,
    /// The key of that certificate.
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
    /// The prefix of all keys in etcd.
    #[arg(long, default_value = DEFAULT_PREFIX, value_name = "PREFIX")]
    etcd_prefix: String,
    /// How often old revisions in etcd are compacted; `0` leaves it to others.
    #[arg(long, default_value = "5m", value_name = "TIME", value_parser = compaction_interval)]
    etcd_compaction_interval: Duration,
}

/// Where the objects are.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Store {
    Embedded,
    Etcd(Vec<String>),
}

fn store(text: &str) -> Result<Store, String> {
    let Some(urls) = text.strip_prefix("etcd=") else {
        return match text {
            "embedded" => Ok(Store::Embedded),
            _ => Err("write `embedded`, or `etcd=` and the URLs of its members, such as `etcd=https://etcd-1:2379`".to_owned()),
        };
    };
    let urls: Vec<String> = urls.split(',').map(|url| url.trim().to_owned()).collect();
    for url in &urls {
        let address = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        if address.is_none_or(|address| !address.contains(':')) {
            return Err(format!("{url:?} is not the URL of a member of etcd, such as https://etcd-1:2379"));
        }
    }
    Ok(Store::Etcd(urls))
}

fn compaction_interval(text: &str) -> Result<Duration, String> {
    if text == "0" { Ok(Duration::ZERO) } else { interval(text).map_err(|error| error.to_string()) }
}

impl StoreFlags {
    /// The error for flags that are valid by themselves and not together.
    pub(crate) fn conflict(&self) -> Option<&'static str> {
        let is_certified = self.etcd_cafile.is_some() || self.etcd_certfile.is_some();
        match &self.store {
            Store::Embedded if is_certified => {
                Some("--etcd-cafile and --etcd-certfile need --store etcd=URL")
            }
            Store::Etcd(urls)
                if self.etcd_cafile.is_none() && urls.iter().any(|url| url.starts_with("https:")) =>
            {
                Some("--store etcd=https://... needs --etcd-cafile, the certificate authority of its members")
            }
            _ => None,
        }
    }

    /// The configuration of etcd; `None` if the objects are in the data directory.
    pub(crate) fn etcd(&self) -> Option<Config> {
        let Store::Etcd(endpoints) = &self.store else { return None };
        Some(Config {
            endpoints: endpoints.clone(),
            tls: TlsFiles {
                authorities: self.etcd_cafile.clone(),
                certificate: self.etcd_certfile.clone(),
                key: self.etcd_keyfile.clone(),
            },
            prefix: self.etcd_prefix.clone(),
            compaction_interval: Some(self.etcd_compaction_interval).filter(|interval| !interval.is_zero()),
            reliable_progress: None,
            stamp: plumb_apiserver::kinds::restamp,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_store_is_embedded_or_etcd_with_urls() {
        assert_eq!(store("embedded"), Ok(Store::Embedded));
        let urls = vec!["https://a:2379".to_owned(), "http://b:2379".to_owned()];
        assert_eq!(store("etcd=https://a:2379,http://b:2379"), Ok(Store::Etcd(urls)));
        for wrong in ["", "etcd", "etcd=", "etcd=a:2379", "etcd=https://a", "redb", "etcd=https://a:1,,"] {
            assert!(store(wrong).is_err(), "{wrong}");
        }
    }
}
