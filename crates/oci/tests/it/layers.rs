//! Layers: resumed where a download broke off, and never taken for what they are not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use plumb_oci::{PullError, PullLimits, Registry, RegistryConfig, Resolved, no_progress};

use crate::fake::{FakeRegistry, empty, stalled, truncated, with_status};

fn content() -> Bytes {
    (0..200_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<u8>>().into()
}

async fn resolved(fake: &FakeRegistry, limits: PullLimits) -> Resolved {
    let registry = Registry::new(RegistryConfig { limits, ..RegistryConfig::default() });
    registry.resolve(&fake.image("a:1").parse().unwrap(), None).await.unwrap()
}

/// Breaks off the first `times` responses with a layer.
fn break_off(fake: &FakeRegistry, times: usize, how: impl Fn() -> crate::fake::Answer + Send + 'static) {
    let count = AtomicUsize::new(0);
    fake.intercept(move |asked| {
        let is_layer = asked.path.contains("/blobs/");
        (is_layer && count.fetch_add(1, Ordering::Relaxed) < times).then(&how)
    });
}

#[tokio::test]
async fn an_interrupted_download_is_resumed() {
    let fake = FakeRegistry::start().await;
    let layer = content();
    fake.put_image("a", "1", std::slice::from_ref(&layer));
    let resolved = resolved(&fake, PullLimits::default()).await;
    let cut = layer.clone();
    break_off(&fake, 1, move || truncated(&cut, 300_000));
    let folder = tempfile::tempdir().unwrap();
    let positions = Arc::new(Mutex::new(Vec::new()));
    let noted = positions.clone();
    let progress: plumb_oci::Progress = Arc::new(move |received| noted.lock().unwrap().push(received.bytes));
    let path = resolved.layer(&resolved.layers()[0], folder.path(), &progress).await.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), layer);
    let ranges: Vec<Option<String>> =
        fake.asked_for("/blobs/").iter().map(|asked| asked.header("range").map(str::to_owned)).collect();
    assert_eq!(ranges, [None, Some("bytes=300000-".to_owned())]);
    let positions = positions.lock().unwrap().clone();
    assert!(positions.is_sorted() && positions.last() == Some(&(layer.len() as u64)), "{positions:?}");
}

#[tokio::test]
async fn the_next_pull_resumes_even_a_damaged_partial_download() {
    let fake = FakeRegistry::start().await;
    let layer = content();
    fake.put_image("a", "1", std::slice::from_ref(&layer));
    let limits = PullLimits { failures: 0, ..PullLimits::default() };
    let resolved = resolved(&fake, limits).await;
    for damaged in [false, true] {
        let cut = layer.clone();
        break_off(&fake, 1, move || truncated(&cut, 300_000));
        let folder = tempfile::tempdir().unwrap();
        let descriptor = &resolved.layers()[0];
        let error = resolved.layer(descriptor, folder.path(), &no_progress()).await.unwrap_err();
        assert!(error.is_transient(), "{error:?}");
        let part = folder.path().join(format!("{}.partial", descriptor.digest.hex()));
        assert_eq!(std::fs::metadata(&part).unwrap().len(), 300_000);
        if damaged {
            std::fs::write(&part, vec![7; 300_000]).unwrap();
        }
        let before = fake.asked_for("/blobs/").len();
        let path = resolved.layer(descriptor, folder.path(), &no_progress()).await.unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), layer);
        assert!(!part.exists());
        let asked = fake.asked_for("/blobs/");
        assert_eq!(asked[before].header("range"), Some("bytes=300000-"));
        assert_eq!(asked.len() - before, if damaged { 2 } else { 1 });
        // A complete layer is not downloaded again.
        resolved.layer(descriptor, folder.path(), &no_progress()).await.unwrap();
        assert_eq!(fake.asked_for("/blobs/").len(), asked.len());
    }
}

#[tokio::test]
async fn downloads_from_a_registry_without_ranges_or_that_stalls_are_retried() {
    let fake = FakeRegistry::start().await;
    let layer = content();
    fake.put_image("a", "1", std::slice::from_ref(&layer));
    let limits = PullLimits { idle: Duration::from_secs(2), ..PullLimits::default() };
    let resolved = resolved(&fake, limits).await;
    // The second response is the whole layer again, though a range was asked for.
    let (whole, count) = (layer.clone(), AtomicUsize::new(0));
    fake.intercept(move |asked| {
        asked.path.contains("/blobs/").then(|| match count.fetch_add(1, Ordering::Relaxed) {
            0 => stalled(&whole, 1000),
            1 => empty(StatusCode::SERVICE_UNAVAILABLE),
            2 => empty(StatusCode::RANGE_NOT_SATISFIABLE),
            _ => with_status(StatusCode::OK, whole.clone()),
        })
    });
    let folder = tempfile::tempdir().unwrap();
    let path = resolved.layer(&resolved.layers()[0], folder.path(), &no_progress()).await.unwrap();
    assert_eq!(std::fs::read(path).unwrap(), layer);
}

#[tokio::test]
async fn a_layer_that_is_not_what_its_digest_says_is_refused_and_removed() {
    let fake = FakeRegistry::start().await;
    let layer = content();
    fake.put_image("a", "1", std::slice::from_ref(&layer));
    let resolved = resolved(&fake, PullLimits::default()).await;
    let descriptor = &resolved.layers()[0];
    let mut other = layer.to_vec();
    other[1000] ^= 1;
    fake.put_blob_as("a", descriptor.digest, other);
    let folder = tempfile::tempdir().unwrap();
    let error = resolved.layer(descriptor, folder.path(), &no_progress()).await.unwrap_err();
    assert!(matches!(error, PullError::Digest { .. }), "{error:?}");
    // One that goes on and on is not read to its end.
    fake.put_blob_as("a", descriptor.digest, [layer.as_ref(), b"more"].concat());
    let error = resolved.layer(descriptor, folder.path(), &no_progress()).await.unwrap_err();
    assert!(error.to_string().contains("larger than its 800000 bytes"), "{error}");
    fake.intercept(|asked| asked.path.contains("/blobs/").then(|| empty(StatusCode::NOT_FOUND)));
    let folder = tempfile::tempdir().unwrap();
    let error = resolved.layer(descriptor, folder.path(), &no_progress()).await.unwrap_err();
    assert!(matches!(error, PullError::NotFound(_)), "{error:?}");
}

#[tokio::test]
async fn two_downloads_of_one_layer_at_once_do_not_disturb_each_other() {
    let fake = FakeRegistry::start().await;
    let layer = content();
    fake.put_image("a", "1", std::slice::from_ref(&layer));
    let resolved = resolved(&fake, PullLimits::default()).await;
    let folder = tempfile::tempdir().unwrap();
    let one =
        || async { resolved.layer(&resolved.layers()[0], folder.path(), &no_progress()).await.unwrap() };
    let (a, b, c) = tokio::join!(one(), one(), one());
    assert_eq!((&a, &b), (&b, &c));
    assert_eq!(std::fs::read(a).unwrap(), layer);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
