//! Encryption at rest: the providers of `--encryption-provider-config` as the transformer of the store.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use plumb_apiserver::pki::read_private;
use plumb_encryption::{
    EncryptionConfiguration, GroupResource, NoRandomBytes, ResourceTransformer, Transformers,
};
use plumb_metrics::{CounterVec, Text};
use plumb_store::{FromStorage, Key, Transformer, TransformerError};
use ring::rand::{SecureRandom as _, SystemRandom};

/// The group of the core resources in the keys of the store.
const CORE: &str = "core";

/// Encrypts and decrypts the values of objects by their resources.
///
/// A cluster without a configuration has one, too: it recognizes encrypted values, which would be served as broken objects.
#[derive(Debug)]
pub(crate) struct Encryption {
    transformers: Transformers,
    /// By resource, status, transformation type and transformer prefix.
    operations: CounterVec<4>,
}

impl Encryption {
    /// Reads the configuration, if there is one.
    pub(crate) fn open(file: Option<&Path>) -> anyhow::Result<Arc<Self>> {
        let transformers = match file {
            None => Transformers::identity(),
            Some(file) => read(file).context("--encryption-provider-config")?,
        };
        Ok(Arc::new(Self { transformers, operations: CounterVec::default() }))
    }

    /// Writes the metrics, under upstream's names.
    pub(crate) fn render(&self, text: &mut Text) {
        let name = "apiserver_storage_transformation_operations_total";
        let labels = ["resource", "status", "transformation_type", "transformer_prefix"];
        self.operations.render(text, name, "Total number of transformations.", labels);
    }

    /// The transformer for an object, which the first two segments of its key determine.
    fn for_key<'s, 'k>(&'s self, key: &'k Key) -> (&'s ResourceTransformer, &'k str, &'k str) {
        let mut segments = key.segments();
        let group = segments.next().filter(|group| *group != CORE).unwrap_or_default();
        let resource = segments.next().unwrap_or_default();
        (self.transformers.for_resource(group, resource), group, resource)
    }

    fn count(&self, group: &str, resource: &str, direction: &'static str, prefix: &'static str, is_ok: bool) {
        let resource = GroupResource { group: group.to_owned(), resource: resource.to_owned() };
        // Upstream's other statuses are of the calls to a KMS.
        let status = if is_ok { "OK" } else { "unknown-non-grpc" };
        self.operations.inc([resource.to_string().into(), status.into(), direction.into(), prefix.into()]);
    }
}

fn read(file: &Path) -> anyhow::Result<Transformers> {
    let bytes = read_private(file)?.with_context(|| format!("there is no file {}", file.display()))?;
    let text = String::from_utf8(bytes).ok().with_context(|| format!("{} is not text", file.display()))?;
    let configuration =
        EncryptionConfiguration::parse(&text).with_context(|| format!("{} is invalid", file.display()))?;
    let random = SystemRandom::new();
    Ok(configuration.transformers(move |bytes: &mut [u8]| random.fill(bytes).map_err(|_| NoRandomBytes)))
}

impl Transformer for Encryption {
    fn transform_to_storage<'v>(
        &self,
        key: &Key,
        value: &'v [u8],
    ) -> Result<Cow<'v, [u8]>, TransformerError> {
        let (transformer, group, resource) = self.for_key(key);
        let stored = transformer.transform_to_storage(value, key.as_str().as_bytes());
        if transformer.is_configured() {
            self.count(group, resource, "to_storage", transformer.prefix(), stored.is_ok());
        }
        Ok(stored?)
    }

    fn transform_from_storage<'s>(
        &self,
        key: &Key,
        stored: &'s [u8],
    ) -> Result<FromStorage<'s>, TransformerError> {
        let (transformer, group, resource) = self.for_key(key);
        // A failure is not counted, since it fails the start.
        let read = transformer.transform_from_storage(stored, key.as_str().as_bytes())?;
        if transformer.is_configured() {
            self.count(group, resource, "from_storage", read.prefix, true);
        }
        Ok(FromStorage { value: read.value, is_stale: read.is_stale })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const SECRETS_AND_APPS: &str = r"
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets, '*.apps']
  providers:
  - aesgcm: {keys: [{name: key1, secret: QEFCQ0RFRkdISUpLTE1OTw==}]}
  - identity: {}
";

    fn encryption(text: &str) -> (Arc<Encryption>, tempfile::TempDir) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("encryption.yaml");
        fs::write(&file, text).unwrap();
        (Encryption::open(Some(&file)).unwrap(), folder)
    }

    fn stored(encryption: &Encryption, key: &str) -> Vec<u8> {
        encryption.transform_to_storage(&Key::new(key).unwrap(), b"{}").unwrap().into_owned()
    }

    #[test]
    fn the_resource_is_that_of_the_key_and_is_counted() {
        let (encryption, _folder) = encryption(SECRETS_AND_APPS);
        for key in ["core/secrets/default/a", "apps/deployments/default/a"] {
            let stored = stored(&encryption, key);
            assert!(stored.starts_with(b"k8s:enc:aesgcm:v1:key1:"), "{key}");
            let read = encryption.transform_from_storage(&Key::new(key).unwrap(), &stored).unwrap();
            assert_eq!(read, FromStorage { value: b"{}".into(), is_stale: false });
        }
        for key in ["core/configmaps/default/a", "example.com/secrets/default/a", "core/nodes/secrets"] {
            assert_eq!(stored(&encryption, key), b"{}", "{key}");
        }
        let plain = encryption.transform_from_storage(&Key::new("core/secrets/default/a").unwrap(), b"{}");
        assert_eq!(plain.unwrap(), FromStorage { value: b"{}".into(), is_stale: true });

        let mut text = Text::default();
        encryption.render(&mut text);
        let text = text.finish();
        for (resource, direction, prefix) in [
            ("deployments.apps", "from_storage", "k8s:enc:aesgcm:v1:"),
            ("deployments.apps", "to_storage", "k8s:enc:aesgcm:v1:"),
            ("secrets", "from_storage", "identity"),
            ("secrets", "from_storage", "k8s:enc:aesgcm:v1:"),
            ("secrets", "to_storage", "k8s:enc:aesgcm:v1:"),
        ] {
            let sample = format!(
                "apiserver_storage_transformation_operations_total{{resource=\"{resource}\",status=\"OK\",\
                 transformation_type=\"{direction}\",transformer_prefix=\"{prefix}\"}} 1\n"
            );
            assert!(text.contains(&sample), "{sample}{text}");
        }
        assert!(!text.contains("configmaps"), "{text}");
    }

    #[test]
    fn a_value_cannot_be_moved_to_another_object() {
        let (encryption, _folder) = encryption(SECRETS_AND_APPS);
        let stored = stored(&encryption, "core/secrets/default/a");
        let other = Key::new("core/secrets/other/a").unwrap();
        assert!(encryption.transform_from_storage(&other, &stored).is_err());
    }

    #[test]
    fn other_users_lose_access_to_the_file() {
        let (_encryption, folder) = encryption(SECRETS_AND_APPS);
        let mode = fs::metadata(folder.path().join("encryption.yaml")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn an_error_names_the_flag_and_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("encryption.yaml");
        let error = || format!("{:#}", Encryption::open(Some(&file)).unwrap_err());
        let name = file.display();
        assert_eq!(error(), format!("--encryption-provider-config: there is no file {name}"));
        fs::write(&file, SECRETS_AND_APPS.replace("secrets,", "secrets, '*.',")).unwrap();
        let expected = format!(
            "--encryption-provider-config: {name} is invalid: resources[0].resources: Invalid value: \
             [\"secrets\",\"*.\",\"*.apps\"]: using overlapping resources"
        );
        assert!(error().starts_with(&expected), "{}", error());
    }

    #[test]
    fn without_a_configuration_an_encrypted_value_is_refused() {
        let none = Encryption::open(None).unwrap();
        let key = Key::new("core/secrets/default/a").unwrap();
        assert_eq!(stored(&none, "core/secrets/default/a"), b"{}");
        let error = none.transform_from_storage(&key, b"k8s:enc:aesgcm:v1:key1:...").unwrap_err();
        assert!(
            error.to_string().starts_with("identity transformer tried to read encrypted data"),
            "{error}"
        );
    }
}
