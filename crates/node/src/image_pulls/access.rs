//! What a record says about who may use its image. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// How many secrets a record gets from pods that only use its image, so that a turnover of namespaces does not fill it. Upstream's
/// `writeRecordWhileMatchingLimit`.
const MOST_MATCHED: usize = 100;

/// A pull secret of a pod, with the hash of its credentials for one image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImagePullSecret {
    /// Its uid.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The SHA-256 of the credentials.
    pub credential_hash: String,
}

impl ImagePullSecret {
    fn is_same_object(&self, other: &Self) -> bool {
        (&self.uid, &self.namespace, &self.name) == (&other.uid, &other.namespace, &other.name)
    }
}

/// An image that the node has pulled: the kubelet's `ImagePulledRecord`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Record {
    kind: String,
    api_version: String,
    pub(super) last_updated_time: Option<Timestamp>,
    /// The id of the image.
    pub(super) image_ref: String,
    /// Who may use it, by the name that it was pulled by, without tag and digest.
    credential_mapping: BTreeMap<String, Credentials>,
}

/// The credentials that an image was pulled with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Credentials {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kubernetes_secrets: Vec<ImagePullSecret>,
    /// None were needed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    node_pods_accessible: bool,
}

/// Who may use an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Access {
    AllPods,
    NoPod,
    /// Pods with one of these secrets.
    Secrets(KnownSecrets),
}

/// Secrets that an image was pulled with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownSecrets(Vec<ImagePullSecret>);

impl Credentials {
    pub(super) fn everyone() -> Self {
        Self { node_pods_accessible: true, ..Self::default() }
    }

    pub(super) fn secret(secret: ImagePullSecret) -> Self {
        Self { kubernetes_secrets: vec![secret], ..Self::default() }
    }
}

impl Record {
    pub(super) fn new(id: &str) -> Self {
        Self {
            kind: "ImagePulledRecord".to_owned(),
            api_version: "kubelet.config.k8s.io/v1beta1".to_owned(),
            image_ref: id.to_owned(),
            ..Self::default()
        }
    }

    /// Adds credentials of a repository; false if that changes nothing.
    pub(super) fn add(&mut self, repository: &str, new: Credentials) -> bool {
        let before = self.credential_mapping.get(repository).cloned();
        let own = self.credential_mapping.entry(repository.to_owned()).or_default();
        if own.node_pods_accessible || new.node_pods_accessible {
            *own = Credentials::everyone();
        } else {
            for secret in new.kubernetes_secrets {
                own.kubernetes_secrets.retain(|known| !known.is_same_object(&secret));
                own.kubernetes_secrets.push(secret);
            }
            let key = |secret: &ImagePullSecret| {
                (secret.namespace.clone(), secret.name.clone(), secret.uid.clone())
            };
            own.kubernetes_secrets.sort_by_key(key);
        }
        before.as_ref() != Some(own)
    }
}

/// Who may use an image by a repository, as its record has it.
pub(super) fn access(record: Option<&Record>, repository: &str) -> Access {
    match record.and_then(|record| record.credential_mapping.get(repository)) {
        None => Access::NoPod,
        Some(credentials) if credentials.node_pods_accessible => Access::AllPods,
        Some(credentials) if credentials.kubernetes_secrets.is_empty() => Access::NoPod,
        Some(credentials) => Access::Secrets(KnownSecrets(credentials.kubernetes_secrets.clone())),
    }
}

impl KnownSecrets {
    /// The first secret of a pod that opens the image, and whether the record is to get it. A secret with the same credentials
    /// does, and so does the same object with other credentials: those it had were accepted, and who may read it now could then.
    pub(super) fn find(&self, secrets: &[ImagePullSecret]) -> Option<(ImagePullSecret, bool)> {
        let pairs = secrets.iter().flat_map(|own| self.0.iter().map(move |known| (own, known)));
        let mut matches = pairs.filter_map(|(own, known)| {
            let same_hash = !known.credential_hash.is_empty() && own.credential_hash == known.credential_hash;
            let same_object = own.is_same_object(known);
            let has_space = self.0.len() < MOST_MATCHED;
            // As upstream: in a full record a changed secret does not count.
            let opens = same_hash || (same_object && has_space);
            opens.then(|| (own.clone(), has_space && !(same_hash && same_object)))
        });
        matches.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(namespace: &str, name: &str, hash: &str) -> ImagePullSecret {
        ImagePullSecret {
            uid: format!("uid-{namespace}-{name}"),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            credential_hash: hash.to_owned(),
        }
    }

    #[test]
    fn an_image_is_for_those_who_could_pull_it() {
        let mut record = Record::new("sha256:a");
        assert_eq!(access(None, "r/a"), Access::NoPod);
        assert_eq!(access(Some(&record), "r/a"), Access::NoPod);
        assert!(record.add("r/a", Credentials::secret(secret("n", "s", "1"))));
        assert!(!record.add("r/a", Credentials::secret(secret("n", "s", "1"))));
        assert_eq!(access(Some(&record), "r/b"), Access::NoPod, "by another name");
        let Access::Secrets(known) = access(Some(&record), "r/a") else { panic!("{record:?}") };
        for (own, expected) in [
            (secret("n", "s", "1"), Some(false)),
            (secret("n", "s", "2"), Some(true)),
            (secret("other", "t", "1"), Some(true)),
            (secret("other", "s", "2"), None),
        ] {
            let found = known.find(&[secret("x", "y", "9"), own.clone()]);
            assert_eq!(found, expected.map(|is_new| (own, is_new)));
        }
        assert_eq!(known.find(&[]), None);
        assert!(record.add("r/a", Credentials::everyone()));
        assert!(!record.add("r/a", Credentials::secret(secret("n", "t", "3"))));
        assert_eq!(access(Some(&record), "r/a"), Access::AllPods);
    }

    #[test]
    fn a_changed_secret_replaces_the_hash_that_it_had() {
        let mut record = Record::new("sha256:a");
        record.add("r/a", Credentials::secret(secret("n", "b", "1")));
        record.add("r/a", Credentials::secret(secret("n", "a", "1")));
        assert!(record.add("r/a", Credentials::secret(secret("n", "b", "2"))));
        let Access::Secrets(KnownSecrets(known)) = access(Some(&record), "r/a") else { panic!("{record:?}") };
        assert_eq!(known, [secret("n", "a", "1"), secret("n", "b", "2")]);
    }

    #[test]
    fn a_hash_that_is_missing_opens_nothing() {
        let mut record = Record::new("sha256:a");
        record.add("r/a", Credentials::secret(secret("n", "s", "")));
        let Access::Secrets(known) = access(Some(&record), "r/a") else { panic!("{record:?}") };
        assert_eq!(known.find(&[secret("other", "s", "")]), None);
    }

    #[test]
    fn a_full_record_gets_no_further_secrets() {
        let mut record = Record::new("sha256:a");
        for number in 0..MOST_MATCHED {
            record.add("r/a", Credentials::secret(secret("n", &number.to_string(), "1")));
        }
        let Access::Secrets(known) = access(Some(&record), "r/a") else { panic!("{record:?}") };
        assert_eq!(known.find(&[secret("m", "s", "1")]).map(|(_, is_new)| is_new), Some(false));
        assert_eq!(known.find(&[secret("n", "0", "2")]), None);
    }

    #[test]
    fn records_have_the_kubelets_format() {
        let mut record = Record::new("sha256:a");
        record.last_updated_time = Some("2026-01-02T03:04:05Z".parse().unwrap());
        record.add("docker.io/library/a", Credentials::everyone());
        record.add("r/a", Credentials::secret(secret("n", "s", "1")));
        let expected = serde_json::json!({
            "kind": "ImagePulledRecord", "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "lastUpdatedTime": "2026-01-02T03:04:05Z", "imageRef": "sha256:a",
            "credentialMapping": {
                "docker.io/library/a": { "nodePodsAccessible": true },
                "r/a": { "kubernetesSecrets": [
                    { "uid": "uid-n-s", "namespace": "n", "name": "s", "credentialHash": "1" },
                ] },
            },
        });
        assert_eq!(serde_json::to_value(&record).unwrap(), expected);
        assert_eq!(serde_json::from_value::<Record>(expected).unwrap(), record);
    }
}
