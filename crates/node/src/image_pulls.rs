//! Which pods may use an image that is on the node without pulling it (KEP-2535): an image that was pulled with a secret is not
//! given to pods that lack it.
//!
//! ```text
//!   pull ──▶ intent (pulling/) ──▶ runtime ──▶ record (pulled/): image, repository, secrets that opened it
//!                                                  │
//!   image is on the node ──▶ policy ──▶ verify ────┴──▶ use it, or pull it with the credentials of the pod
//! ```
//!
//! The records are files in the kubelet's format below `image_manager`, so they survive restarts, also of a kubelet that takes
//! the directory over. They have hashes of credentials and no credentials. What cannot be read counts as an image that has to
//! be verified.

mod access;
mod policy;
mod records;

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use plumb_oci::{Reference, normalise};
use plumb_runtime::Runtime;

pub use access::ImagePullSecret;
pub use policy::{Allowlist, InvalidPattern, VerificationPolicy};

use crate::Clock;
use access::{Access, Credentials, Record, access};
use records::Records;

/// The configuration of the verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePullsConfig {
    /// Of which images the credentials are verified.
    pub policy: VerificationPolicy,
    /// The directory of the records: `image_manager` in that of the kubelet.
    pub directory: PathBuf,
}

/// The records of pulls, and the policy. Clones share them.
#[derive(Clone)]
pub(crate) struct ImagePulls(Arc<Shared>);

struct Shared {
    /// None verifies nothing and records nothing.
    config: Option<(VerificationPolicy, Records)>,
    clock: Clock,
    /// How many pulls of an image are under way. Held while the files are read and changed.
    under_way: Mutex<HashMap<String, usize>>,
}

/// How an image was pulled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PulledWith {
    /// Without credentials.
    Nothing,
    /// With those of this secret.
    Secret(ImagePullSecret),
}

impl ImagePulls {
    /// The records of a directory; none verifies nothing.
    pub(crate) fn new(config: Option<ImagePullsConfig>, clock: Clock) -> Self {
        let config = config.map(|config| (config.policy, Records::new(config.directory)));
        Self(Arc::new(Shared { config, clock, under_way: Mutex::default() }))
    }

    /// Whether a pod may use an image with this id that is on the node. `secrets` reads the pull secrets of the pod for it, and is
    /// only awaited if that depends on them.
    pub(crate) async fn is_accessible(
        &self,
        image: &Reference,
        id: &str,
        secrets: impl Future<Output = Vec<ImagePullSecret>>,
    ) -> bool {
        let Some((policy, records)) = &self.0.config else { return true };
        let name = image.to_string();
        let found = {
            let under_way = self.0.under_way.lock();
            records.pulled(id).and_then(|record| {
                let is_known = record.is_some() || under_way.contains_key(&name);
                Ok((is_known || records.has_intent(&name)?, record))
            })
        };
        let (is_pulled, record) = match found {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(image = name, %error, "cannot read the records of image pulls");
                return false;
            }
        };
        if !policy.verifies(image, is_pulled) {
            return true;
        }
        let repository = image.name();
        match access(record.as_ref(), &repository) {
            Access::AllPods => true,
            Access::NoPod => false,
            Access::Secrets(known) => {
                let Some((secret, is_new)) = known.find(&secrets.await) else { return false };
                if is_new {
                    // Only a cache of what was found: the pod may use the image also if it cannot be written.
                    self.merge(&repository, id, Some(PulledWith::Secret(secret)));
                }
                true
            }
        }
    }

    /// Records that an image is about to be pulled.
    pub(crate) fn begin(&self, image: &Reference) -> io::Result<()> {
        let Some((_, records)) = &self.0.config else { return Ok(()) };
        let name = image.to_string();
        let mut under_way = self.0.under_way.lock();
        records.write_intent(&name)?;
        *under_way.entry(name).or_default() += 1;
        Ok(())
    }

    /// Records the end of a pull that began: the id of the image and how it was pulled, or none if it failed.
    ///
    /// A pull that is abandoned keeps its intent: the image may be on the node, and whose it is was not recorded.
    pub(crate) fn end(&self, image: &Reference, pulled: Option<(&str, PulledWith)>) {
        let Some((_, records)) = &self.0.config else { return };
        let name = image.to_string();
        if let Some((id, with)) = pulled
            && !self.merge(&image.name(), id, Some(with))
        {
            return;
        }
        let mut under_way = self.0.under_way.lock();
        let others = under_way.get(&name).copied().unwrap_or_default().saturating_sub(1);
        if others > 0 {
            under_way.insert(name, others);
            return;
        }
        match records.remove_intent(&name) {
            Ok(()) => {
                under_way.remove(&name);
            }
            Err(error) => tracing::warn!(image = name, %error, "cannot remove the record of an image pull"),
        }
    }

    /// Adds to the record of an image; none adds nothing, so that credentials have to be verified. False if it is not written.
    fn merge(&self, repository: &str, id: &str, with: Option<PulledWith>) -> bool {
        let Some((_, records)) = &self.0.config else { return true };
        let _alone = self.0.under_way.lock();
        // One that is damaged is replaced: all that is lost is whose it was.
        let known = records.pulled(id).ok().flatten();
        let is_new = known.is_none();
        let mut record = known.unwrap_or_else(|| Record::new(id));
        let with = with.map(|with| match with {
            PulledWith::Nothing => Credentials::everyone(),
            PulledWith::Secret(secret) => Credentials::secret(secret),
        });
        let is_changed = with.is_some_and(|with| record.add(repository, with));
        if !is_changed && !is_new {
            return true;
        }
        // Whole seconds, as the kubelet writes them.
        record.last_updated_time = Timestamp::from_second((self.0.clock)().as_second()).ok();
        let written = records.write_pulled(&record);
        if let Err(error) = &written {
            tracing::warn!(image = repository, %error, "cannot record an image pull");
        }
        written.is_ok()
    }

    /// Turns the intents of pulls that an earlier agent did not finish into records without credentials, of images that are on
    /// the node.
    pub(crate) async fn recover(&self, runtime: &dyn Runtime) {
        let Some((_, records)) = &self.0.config else { return };
        let intents: Vec<String> = match records.intents() {
            Ok(intents) => intents,
            Err(error) => {
                tracing::warn!(%error, "cannot read the records of image pulls");
                return;
            }
        };
        let is_under_way = |name: &String| self.0.under_way.lock().contains_key(name);
        let intents: Vec<String> = intents.into_iter().filter(|name| !is_under_way(name)).collect();
        if intents.is_empty() {
            return;
        }
        let images = match runtime.list_images().await {
            Ok(images) => images,
            // The intents stay, and their images are verified.
            Err(error) => {
                tracing::warn!(%error, "cannot list images");
                return;
            }
        };
        for name in intents {
            let mut names = images.iter().map(|image| (image, image.tags.iter().chain(&image.digests)));
            let found = names.find(|(_, names)| names.clone().any(|own| normalise(own) == name));
            let (Some((image, _)), Ok(reference)) = (found, name.parse::<Reference>()) else { continue };
            if self.merge(&reference.name(), &image.id, None)
                && let Err(error) = records.remove_intent(&name)
            {
                tracing::warn!(image = name, %error, "cannot remove the record of an image pull");
            }
        }
    }

    /// Removes the records of images that are not on the node any more, and were not written since `until`.
    pub(crate) async fn prune(&self, runtime: &dyn Runtime, until: Timestamp) {
        let Some((_, records)) = &self.0.config else { return };
        let images = match runtime.list_images().await {
            Ok(images) => images,
            Err(error) => {
                tracing::warn!(%error, "cannot list images");
                return;
            }
        };
        let present: BTreeSet<&str> = images.iter().map(|image| image.id.as_str()).collect();
        let _alone = self.0.under_way.lock();
        if let Err(error) = records.prune(&present, until) {
            tracing::warn!(%error, "cannot remove the records of image pulls");
        }
    }
}

#[cfg(test)]
mod tests {
    use plumb_runtime::{Virtual, VirtualConfig};

    use super::*;

    struct Bed {
        pulls: ImagePulls,
        runtime: Virtual,
        directory: tempfile::TempDir,
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    impl Bed {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let config = VirtualConfig { now: at(0), pod_network: [10, 0, 0, 0].into() };
            Self { pulls: Self::pulls(&directory), runtime: Virtual::new(config), directory }
        }

        fn pulls(directory: &tempfile::TempDir) -> ImagePulls {
            let policy = VerificationPolicy::default();
            let config = ImagePullsConfig { policy, directory: directory.path().join("image_manager") };
            ImagePulls::new(Some(config), Arc::new(|| at(100)))
        }

        /// The same after a restart of the agent.
        fn restarted(self) -> Self {
            Self { pulls: Self::pulls(&self.directory), ..self }
        }

        async fn id(&self, image: &Reference) -> String {
            self.runtime.image_status(&image.to_string()).await.unwrap().unwrap().id
        }

        async fn pull(&self, image: &Reference, with: PulledWith) {
            self.pulls.begin(image).unwrap();
            self.runtime.pull_image(&image.to_string(), None).await.unwrap();
            self.pulls.end(image, Some((&self.id(image).await, with)));
        }

        async fn is_accessible(&self, image: &Reference, secrets: &[ImagePullSecret]) -> bool {
            self.pulls.is_accessible(image, &self.id(image).await, async { secrets.to_vec() }).await
        }
    }

    fn image() -> Reference {
        "r.example.com/a:1".parse().unwrap()
    }

    fn secret(hash: &str) -> ImagePullSecret {
        let text = |text: &str| text.to_owned();
        ImagePullSecret { uid: text("u"), namespace: text("n"), name: text("s"), credential_hash: text(hash) }
    }

    #[tokio::test]
    async fn an_image_that_was_pulled_with_a_secret_is_for_pods_with_it_also_after_a_restart() {
        let bed = Bed::new();
        bed.pull(&image(), PulledWith::Secret(secret("1"))).await;
        let bed = bed.restarted();
        assert!(!bed.is_accessible(&image(), &[]).await);
        assert!(bed.is_accessible(&image(), &[secret("1")]).await);
        // Another name of the same image is not what the secret opened.
        let id = bed.id(&image()).await;
        let other: Reference = "r.example.com/b:1".parse().unwrap();
        assert!(!bed.pulls.is_accessible(&other, &id, async { vec![secret("1")] }).await);
        // Who pulls it without credentials shows that it needs none.
        bed.pull(&image(), PulledWith::Nothing).await;
        assert!(bed.is_accessible(&image(), &[]).await);
    }

    #[tokio::test]
    async fn an_image_that_the_node_did_not_pull_is_for_all() {
        let bed = Bed::new();
        bed.runtime.pull_image(&image().to_string(), None).await.unwrap();
        assert!(bed.is_accessible(&image(), &[]).await);
    }

    #[tokio::test]
    async fn an_image_whose_pull_was_not_recorded_is_verified() {
        let bed = Bed::new();
        bed.pulls.begin(&image()).unwrap();
        bed.runtime.pull_image(&image().to_string(), None).await.unwrap();
        assert!(!bed.is_accessible(&image(), &[]).await, "while it is pulled");
        let bed = bed.restarted();
        assert!(!bed.is_accessible(&image(), &[]).await, "by the intent");
        bed.pulls.recover(&bed.runtime).await;
        let intents = std::fs::read_dir(bed.directory.path().join("image_manager/pulling")).unwrap();
        assert_eq!(intents.count(), 0);
        assert!(!bed.is_accessible(&image(), &[secret("1")]).await, "by a record without credentials");
    }

    #[tokio::test]
    async fn a_failed_pull_leaves_nothing_once_no_other_is_under_way() {
        let bed = Bed::new();
        bed.pulls.begin(&image()).unwrap();
        bed.pulls.begin(&image()).unwrap();
        bed.runtime.pull_image(&image().to_string(), None).await.unwrap();
        bed.pulls.end(&image(), None);
        assert!(!bed.is_accessible(&image(), &[]).await);
        bed.pulls.end(&image(), None);
        assert!(bed.is_accessible(&image(), &[]).await);
    }

    #[tokio::test]
    async fn a_damaged_record_gives_an_image_to_no_pod() {
        let bed = Bed::new();
        bed.pull(&image(), PulledWith::Nothing).await;
        let pulled = bed.directory.path().join("image_manager/pulled");
        let file = std::fs::read_dir(pulled).unwrap().next().unwrap().unwrap().path();
        std::fs::write(file, "{").unwrap();
        assert!(!bed.is_accessible(&image(), &[]).await);
        bed.pull(&image(), PulledWith::Nothing).await;
        assert!(bed.is_accessible(&image(), &[]).await, "the next pull replaces it");
    }

    #[tokio::test]
    async fn records_are_removed_with_their_images() {
        let bed = Bed::new();
        let other: Reference = "r.example.com/b:1".parse().unwrap();
        for image in [&image(), &other] {
            bed.pull(image, PulledWith::Nothing).await;
        }
        bed.runtime.remove_image(&other.to_string()).await.unwrap();
        let records = || {
            let pulled = bed.directory.path().join("image_manager/pulled");
            std::fs::read_dir(pulled).unwrap().count()
        };
        bed.pulls.prune(&bed.runtime, at(100)).await;
        assert_eq!(records(), 2, "one that was written meanwhile may be of an image that is listed later");
        bed.pulls.prune(&bed.runtime, at(101)).await;
        assert_eq!(records(), 1);
        assert!(bed.is_accessible(&image(), &[]).await);
    }
}
