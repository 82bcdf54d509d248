//! What one user has open: the objects that this user may read, and the pages made from them.

use std::sync::Arc;

use tokio::task::JoinSet;

use crate::Config;
use crate::cluster::Cluster;
use crate::live::Feeds;

/// The objects as one user may read them, kept up to date until this is dropped.
pub(crate) struct Session {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) feeds: Arc<Feeds>,
    /// Dropping them ends the watches.
    _readers: JoinSet<()>,
}

impl Session {
    /// Begins to read the objects.
    pub(crate) fn start(config: &Config) -> Arc<Self> {
        let cluster = Arc::new(Cluster::new(config));
        let mut readers = JoinSet::new();
        for reader in cluster.readers(config.recheck, config.usage_interval) {
            readers.spawn(reader);
        }
        Arc::new(Self { feeds: Feeds::new(cluster.clone()), cluster, _readers: readers })
    }
}
