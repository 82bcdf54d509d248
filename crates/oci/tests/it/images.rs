//! From a name to what an image consists of.

use bytes::Bytes;
use http::StatusCode;
use plumb_oci::{
    Digest, Mirror, PullError, PullLimits, Reference, Registry, RegistryConfig, architecture, no_progress,
};
use serde_json::json;

use crate::fake::{FakeRegistry, empty, with_status};

fn reference(name: &str) -> Reference {
    name.parse().unwrap()
}

#[tokio::test]
async fn of_an_index_the_image_for_this_machine_is_pulled_and_named_by_the_index() {
    let fake = FakeRegistry::start().await;
    let layer = Bytes::from_static(b"content");
    let manifest = fake.put_image("a/b", "only-this-machine", std::slice::from_ref(&layer));
    let other = |os: &str, architecture: &str, variant: &str| {
        json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": Digest::of(os.as_bytes()), "size": 1,
            "platform": { "os": os, "architecture": architecture, "variant": variant },
        })
    };
    for (tag, media_type) in [
        ("oci", "application/vnd.oci.image.index.v1+json"),
        ("docker", "application/vnd.docker.distribution.manifest.list.v2+json"),
    ] {
        let own = json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": manifest, "size": 1,
            "platform": { "os": "linux", "architecture": architecture() },
        });
        let index = fake.put_manifest(
            "a/b",
            Some(tag),
            &json!({ "schemaVersion": 2, "mediaType": media_type, "manifests": [
                other("linux", "s390x", ""), other("windows", architecture(), ""),
                other("linux", architecture(), "v99"), other("unknown", "unknown", ""), own,
            ]}),
        );
        let registry = Registry::new(RegistryConfig::default());
        for name in [fake.image(&format!("a/b:{tag}")), fake.image(&format!("a/b@{index}"))] {
            let resolved = registry.resolve(&reference(&name), None).await.unwrap();
            assert_eq!(resolved.digest(), index);
            assert_eq!(resolved.layers().len(), 1);
            let config = resolved.config().await.unwrap();
            assert_eq!(Digest::of(&config), resolved.config_digest());
            let folder = tempfile::tempdir().unwrap();
            let path = resolved.layer(&resolved.layers()[0], folder.path(), &no_progress()).await.unwrap();
            assert_eq!(std::fs::read(path).unwrap(), layer);
        }
    }
    let none = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [other("linux", "s390x", ""), other("windows", "amd64", "")] });
    fake.put_manifest("a/b", Some("none"), &none);
    let error = Registry::new(RegistryConfig::default())
        .resolve(&reference(&fake.image("a/b:none")), None)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("among those for linux/s390x, windows/amd64"), "{error}");
}

#[tokio::test]
async fn a_missing_image_is_reported_with_the_requested_name() {
    let fake = FakeRegistry::start().await;
    let registry = Registry::new(RegistryConfig::default());
    let name = fake.image("a/b:missing");
    let error = registry.resolve(&reference(&name), None).await.unwrap_err();
    assert!(matches!(error, PullError::NotFound(_)), "{error:?}");
    assert_eq!(error.to_string(), format!("{name}: not found"));
}

#[tokio::test]
async fn documents_are_what_their_digests_say() {
    let fake = FakeRegistry::start().await;
    let digest = fake.put_image("a", "1", &[Bytes::from_static(b"layer")]);
    let registry = Registry::new(RegistryConfig::default());
    let by_digest = reference(&fake.image(&format!("a@{digest}")));
    registry.resolve(&by_digest, None).await.unwrap();
    // Another manifest under the same digest, then another configuration.
    fake.intercept(|asked| {
        asked.path.contains("/manifests/").then(|| with_status(StatusCode::OK, r#"{"schemaVersion":2}"#))
    });
    let error = registry.resolve(&by_digest, None).await.unwrap_err();
    assert!(matches!(error, PullError::Digest { .. }), "{error:?}");
    fake.intercept(|asked| asked.path.contains("/blobs/").then(|| with_status(StatusCode::OK, "{}")));
    let resolved = registry.resolve(&by_digest, None).await.unwrap();
    let error = resolved.config().await.unwrap_err();
    assert!(matches!(error, PullError::Digest { .. }), "{error:?}");
}

#[tokio::test]
async fn sizes_and_counts_are_limited() {
    let fake = FakeRegistry::start().await;
    fake.put_image("a", "1", &[Bytes::from_static(b"layer"), Bytes::from_static(b"another")]);
    let image = reference(&fake.image("a:1"));
    let usual = PullLimits::default();
    for (limits, expected) in [
        (PullLimits { layers: 1, ..usual }, "more than 1 layers"),
        (PullLimits { bytes: 11, ..usual }, "its layers take 12 bytes, more than 11"),
        (PullLimits { document_bytes: 20, ..usual }, "larger than 20 bytes"),
    ] {
        let registry = Registry::new(RegistryConfig { limits, ..RegistryConfig::default() });
        let error = registry.resolve(&image, None).await.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let old = json!({ "schemaVersion": 1, "fsLayers": [] });
    fake.put_manifest("a", Some("old"), &old);
    let registry = Registry::new(RegistryConfig::default());
    let error = registry.resolve(&reference(&fake.image("a:old")), None).await.unwrap_err().to_string();
    assert!(error.contains("schema version 1"), "{error}");
}

#[tokio::test]
async fn mirrors_are_tried_first_without_credentials_and_then_the_registry() {
    let (mirror, fake) = (FakeRegistry::start().await, FakeRegistry::start().await);
    let on_both = mirror.put_image("a", "both", &[Bytes::from_static(b"of the mirror")]);
    fake.put_image("a", "both", &[Bytes::from_static(b"of the registry")]);
    let on_registry = fake.put_image("a", "one", &[Bytes::from_static(b"another")]);
    let registry = Registry::new(RegistryConfig {
        mirrors: vec![
            Mirror { registry: fake.address.to_string(), host: mirror.address.to_string() },
            Mirror { registry: "docker.io".to_owned(), host: "127.0.0.1:1".to_owned() },
        ],
        ..RegistryConfig::default()
    });
    let credentials = plumb_oci::Credentials::basic("u", "p");
    let resolved = registry.resolve(&reference(&fake.image("a:both")), Some(&credentials)).await.unwrap();
    assert_eq!(resolved.digest(), on_both);
    assert!(fake.asked().is_empty());
    let resolved = registry.resolve(&reference(&fake.image("a:one")), Some(&credentials)).await.unwrap();
    assert_eq!(resolved.digest(), on_registry);
    // Not even if the mirror asks for them.
    mirror.intercept(|_| Some(crate::fake::challenge("Basic")));
    registry.resolve(&reference(&fake.image("a:one")), Some(&credentials)).await.unwrap();
    assert!(mirror.asked().iter().all(|asked| asked.header("authorization").is_none()));
    mirror.intercept(|_| Some(empty(StatusCode::INTERNAL_SERVER_ERROR)));
    registry.resolve(&reference(&fake.image("a:one")), None).await.unwrap();
}
