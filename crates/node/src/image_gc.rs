//! Image garbage collection: removes images that no container uses when the disk is about to be full, those that were not
//! used for longest first, with the thresholds of the kubelet.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use plumb_runtime::types::{ContainerFilter, Image};
use plumb_runtime::{Error, Runtime};
use tokio::sync::watch;

use crate::node::Node;
use crate::register::NodeHealth;
use crate::server::Pods as _;

/// The interval of image garbage collection, as in the kubelet.
const PERIOD: Duration = Duration::from_mins(5);

/// When images are removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageGcConfig {
    /// A directory of the file system that images are on; `None` takes the one that the container runtime reports.
    pub path: Option<PathBuf>,
    /// The percentage of disk usage from which images are removed; 100 is never.
    pub high_threshold_percent: u8,
    /// The percentage of disk usage that they are removed down to.
    pub low_threshold_percent: u8,
    /// The age that an unused image has at least when it is removed.
    pub minimum_age: SignedDuration,
}

impl ImageGcConfig {
    /// The minimum age of the kubelet.
    const MINIMUM_AGE: SignedDuration = SignedDuration::from_mins(2);

    /// The defaults of the kubelet.
    pub fn new(path: Option<PathBuf>) -> Self {
        Self { path, high_threshold_percent: 85, low_threshold_percent: 80, minimum_age: Self::MINIMUM_AGE }
    }
}

/// The size of a file system, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Disk {
    /// All of it.
    pub capacity: u64,
    /// The available bytes.
    pub available: u64,
}

impl Disk {
    /// How much of it is in use, rounded up.
    fn used_percent(self) -> u64 {
        let used = u128::from(self.capacity.saturating_sub(self.available));
        let percent = (used * 100).div_ceil(u128::from(self.capacity.max(1)));
        u64::try_from(percent).unwrap_or(100)
    }
}

/// Records of images: when each was detected, and when a container last used it.
#[derive(Clone, Debug, Default)]
pub struct ImageUse(BTreeMap<String, Detected>);

#[derive(Clone, Copy, Debug)]
struct Detected {
    first: Timestamp,
    last_used: Option<Timestamp>,
    size: u64,
    pinned: bool,
}

/// The images to remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removals {
    /// Their ids, the first one first, until enough is free.
    pub images: Vec<String>,
    /// How much disk usage exceeds the low threshold, in bytes.
    pub bytes_to_free: u64,
    /// How much of it these images take.
    pub bytes_found: u64,
}

impl ImageUse {
    /// Takes note of the images that exist, and of those that containers use.
    pub fn observe(&mut self, images: &[Image], in_use: &BTreeSet<String>, now: Timestamp) {
        let before = std::mem::take(&mut self.0);
        for image in images {
            let known = before.get(&image.id);
            let used = in_use.contains(&image.id);
            let detected = Detected {
                first: known.map_or(now, |known| known.first),
                last_used: if used { Some(now) } else { known.and_then(|known| known.last_used) },
                size: image.size,
                pinned: image.pinned,
            };
            self.0.insert(image.id.clone(), detected);
        }
    }

    /// Which images to remove. `now` is the time of the last observation.
    pub fn decide(&self, disk: Disk, config: &ImageGcConfig, now: Timestamp) -> Removals {
        let Disk { capacity, available } = disk;
        let available = available.min(capacity);
        let percent = |percent: u8| capacity / 100 * u64::from(100 - percent.min(100));
        let is_full =
            config.high_threshold_percent < 100 && available <= percent(config.high_threshold_percent);
        let bytes_to_free = percent(config.low_threshold_percent).saturating_sub(available);
        if !is_full || bytes_to_free == 0 {
            return Removals::default();
        }
        let mut removals = Removals { bytes_to_free, ..Removals::default() };
        for (id, detected) in self.unused(config.minimum_age, now) {
            if removals.bytes_found >= bytes_to_free {
                break;
            }
            removals.bytes_found = removals.bytes_found.saturating_add(detected.size);
            removals.images.push(id.clone());
        }
        removals
    }

    /// The images that are not in use, those that were not used for longest first. `now` is the time of the last observation.
    fn unused(&self, minimum_age: SignedDuration, now: Timestamp) -> Vec<(&String, &Detected)> {
        let is_old = |detected: &Detected| now.duration_since(detected.first) >= minimum_age;
        let is_unused =
            |detected: &Detected| !detected.pinned && detected.last_used != Some(now) && is_old(detected);
        let mut unused: Vec<_> = self.0.iter().filter(|(_, detected)| is_unused(detected)).collect();
        // One that was never used was not used for longest; ids make the order total.
        unused.sort_by_key(|(id, detected)| (detected.last_used, detected.first, *id));
        unused
    }
}

/// Collects garbage until the future is dropped: periodically, and when the disk is short.
pub(crate) async fn run(node: &Node, mut health: watch::Receiver<NodeHealth>) {
    let Some(config) = node.image_gc.as_ref().filter(|config| config.high_threshold_percent < 100) else {
        return std::future::pending().await;
    };
    loop {
        let began = (node.clock)();
        let mut uses = node.image_use.lock().await;
        if let Err(error) = collect(&*node.runtime, &node.pods(), config, &mut uses, (node.clock)()).await {
            tracing::warn!(%error, "image garbage collection failed");
        }
        drop(uses);
        node.image_pulls.prune(&*node.runtime, began).await;
        let short = async {
            // The sender lives as long as the process; without it the period is all there is.
            if health.wait_for(|health| !health.disk_pressure).await.is_err()
                || health.wait_for(|health| health.disk_pressure).await.is_err()
            {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = tokio::time::sleep(PERIOD) => {}
            () = short => {}
        }
    }
}

/// Collects garbage once, and returns the images that it decided to remove. Images that containers use, or that
/// `pods` have as volumes, stay.
pub async fn collect(
    runtime: &dyn Runtime,
    pods: &[Arc<Pod>],
    config: &ImageGcConfig,
    uses: &mut ImageUse,
    now: Timestamp,
) -> Result<Removals, Error> {
    observe(runtime, pods, uses, now).await?;
    let Some(path) = disk_of(runtime, config.path.as_deref()).await? else { return Ok(Removals::default()) };
    let found = rustix::fs::statvfs(&path)
        .map_err(|errno| Error::io(format!("reading the size of {}", path.display()), &errno.into()))?;
    let disk = Disk {
        capacity: found.f_blocks.saturating_mul(found.f_frsize),
        available: found.f_bavail.saturating_mul(found.f_frsize),
    };
    let removals = uses.decide(disk, config, now);
    if removals.bytes_to_free > removals.bytes_found {
        tracing::warn!(
            disk = %path.display(),
            used_percent = disk.used_percent(),
            threshold_percent = config.high_threshold_percent,
            bytes_to_free = removals.bytes_to_free,
            bytes_of_unused_images = removals.bytes_found,
            "the disk of images is too full, and removing unused images does not free enough: free space on it, or raise \
             --image-gc-high-threshold"
        );
    }
    for id in &removals.images {
        remove(runtime, id).await;
    }
    Ok(removals)
}

/// Removes all images that no container uses, whatever the disk usage: the node is under pressure.
pub(crate) async fn remove_unused(node: &Node) -> Result<(), Error> {
    let now = (node.clock)();
    let mut uses = node.image_use.lock().await;
    observe(&*node.runtime, &node.pods(), &mut uses, now).await?;
    let minimum_age = node.image_gc.as_ref().map_or(ImageGcConfig::MINIMUM_AGE, |config| config.minimum_age);
    for (id, _) in uses.unused(minimum_age, now) {
        remove(&*node.runtime, id).await;
    }
    node.image_pulls.prune(&*node.runtime, now).await;
    Ok(())
}

async fn remove(runtime: &dyn Runtime, id: &str) {
    match runtime.remove_image(id).await {
        Ok(()) => tracing::info!(id, "removed an image that no container uses: the disk is short"),
        // A container uses it by now.
        Err(error) => tracing::warn!(id, %error, "cannot remove an image"),
    }
}

/// Takes note of the images of a runtime, and of those that containers use or that pods have as volumes.
async fn observe(
    runtime: &dyn Runtime,
    pods: &[Arc<Pod>],
    uses: &mut ImageUse,
    now: Timestamp,
) -> Result<(), Error> {
    let images = runtime.list_images().await?;
    let containers = runtime.list_containers(&ContainerFilter::default()).await?;
    let mut in_use: BTreeSet<String> = containers.into_iter().map(|container| container.image_id).collect();
    let volumes = volumes_of(pods);
    let is_mounted =
        |image: &&Image| image.tags.iter().chain(&image.digests).any(|name| volumes.contains(name));
    in_use.extend(images.iter().filter(is_mounted).map(|image| image.id.clone()));
    uses.observe(&images, &in_use, now);
    Ok(())
}

/// A directory of the file system that images are on: the configured one, or else the one that the runtime reports. A runtime
/// without images on a disk has none.
pub(crate) async fn disk_of(
    runtime: &dyn Runtime,
    configured: Option<&Path>,
) -> Result<Option<PathBuf>, Error> {
    if let Some(path) = configured {
        return Ok(Some(path.to_owned()));
    }
    let found = runtime.image_fs_info().await?.into_iter().next();
    Ok(found.map(|images| images.mountpoint).filter(|path| !path.as_os_str().is_empty()))
}

/// The names of the images that pods have as volumes.
fn volumes_of(pods: &[Arc<Pod>]) -> BTreeSet<String> {
    let specs = pods.iter().filter_map(|pod| pod.spec.as_ref());
    let volumes = specs.flat_map(|spec| spec.volumes.iter().flatten());
    let names = volumes.filter_map(|volume| volume.image.as_ref()?.reference.as_deref());
    names.map(plumb_oci::normalise).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GB: u64 = 1 << 30;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn image(id: &str, size: u64) -> Image {
        Image { id: id.to_owned(), size, ..Image::default() }
    }

    fn ids(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn config() -> ImageGcConfig {
        ImageGcConfig::new(Some(PathBuf::from("/")))
    }

    #[test]
    fn images_go_from_85_to_80_percent_the_longest_unused_first_and_never_one_in_use() {
        let mut pinned = image("pinned", 50 * GB);
        pinned.pinned = true;
        let images =
            [image("a", 2 * GB), image("b", 2 * GB), image("c", 2 * GB), image("used", 50 * GB), pinned];
        let mut uses = ImageUse::default();
        uses.observe(&images, &ids(&["a", "used"]), at(0));
        uses.observe(&images, &ids(&["used"]), at(600));
        for (available, expected) in
            [(15 * GB + 1, vec![]), (15 * GB, vec!["b", "c", "a"]), (0, vec!["b", "c", "a"])]
        {
            let removals = uses.decide(Disk { capacity: 100 * GB, available }, &config(), at(600));
            assert_eq!(removals.images, expected, "{available}");
        }
        let removals = uses.decide(Disk { capacity: 10 * GB, available: GB }, &config(), at(600));
        assert_eq!(removals.images, ["b"], "no more than is needed");
        assert_eq!((removals.bytes_to_free, removals.bytes_found), (10 * GB / 100 * 20 - GB, 2 * GB));
    }

    #[test]
    fn an_image_that_was_pulled_a_moment_ago_stays() {
        let mut uses = ImageUse::default();
        uses.observe(&[image("old", GB)], &ids(&[]), at(0));
        uses.observe(&[image("old", GB), image("new", GB)], &ids(&[]), at(100));
        let disk = Disk { capacity: 100 * GB, available: GB };
        assert_eq!(uses.decide(disk, &config(), at(100)).images, [""; 0]);
        assert_eq!(uses.decide(disk, &config(), at(120)).images, ["old"]);
        assert_eq!(uses.decide(disk, &config(), at(220)).images, ["old", "new"]);
    }

    #[test]
    fn a_threshold_of_100_removes_none() {
        let mut uses = ImageUse::default();
        uses.observe(&[image("a", GB)], &ids(&[]), at(0));
        let never = ImageGcConfig { high_threshold_percent: 100, ..config() };
        let full = Disk { capacity: GB, available: 0 };
        assert_eq!(uses.decide(full, &never, at(1000)), Removals::default());
    }

    proptest! {
        #[test]
        fn no_image_in_use_is_removed_and_no_more_than_needed(
            sizes in proptest::collection::vec((1_u64..1000, any::<bool>()), 0..20),
            available in 0_u64..10_000,
        ) {
            let images: Vec<Image> =
                sizes.iter().enumerate().map(|(i, (size, _))| image(&format!("{i}"), *size)).collect();
            let in_use: BTreeSet<String> = sizes
                .iter()
                .enumerate()
                .filter(|(_, (_, used))| *used)
                .map(|(i, _)| format!("{i}"))
                .collect();
            let mut uses = ImageUse::default();
            uses.observe(&images, &BTreeSet::new(), at(0));
            uses.observe(&images, &in_use, at(1000));
            let removals = uses.decide(Disk { capacity: 10_000, available }, &config(), at(1000));
            prop_assert!(removals.images.iter().all(|id| !in_use.contains(id)));
            if let Some(last) = removals.images.last() {
                let size = images.iter().find(|image| image.id == *last).map_or(0, |image| image.size);
                prop_assert!(removals.bytes_found - size < removals.bytes_to_free);
            }
        }
    }
}
