//! What the kernel has.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::super::encode;
use super::super::state::State;
use super::super::table::{Change, Table, Touched, changes};

/// The table of the kernel.
#[derive(Debug)]
pub(super) struct Kernel {
    name: String,
    applied: Mutex<Applied>,
    /// Whether the kernel has a table, as far as is known.
    has_table: AtomicBool,
    lost: Notify,
}

#[derive(Debug, Default)]
struct Applied {
    content: Content,
    /// What may differ from it.
    touched: Touched,
}

#[derive(Debug, Default)]
enum Content {
    /// It may be of a former agent, or removed by another program.
    #[default]
    Unknown,
    /// There is no table: no policy selects a pod.
    Absent,
    Known(Table),
}

impl Kernel {
    pub(super) fn new(name: String) -> Self {
        Self { name, applied: Mutex::default(), has_table: AtomicBool::new(false), lost: Notify::new() }
    }

    /// Notices that another program has removed the table.
    pub(super) fn check(&self) {
        if self.has_table.load(Ordering::Relaxed)
            && !plumb_nftables::has_table(&self.name).unwrap_or(true)
            && self.has_table.swap(false, Ordering::Relaxed)
        {
            tracing::warn!("another program had removed the rules of network policies; they are made anew");
            self.applied.lock().content = Content::Unknown;
            self.lost.notify_one();
        }
    }

    /// Waits until [`check`](Self::check) has noticed that.
    pub(super) async fn lost(&self) {
        self.lost.notified().await;
    }

    /// Applies what has changed.
    pub(super) async fn apply(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let batch = {
            let mut applied = self.applied.lock();
            applied.touched.extend(state.take_touched());
            match &applied.content {
                Content::Known(before) => {
                    let changes = changes(state.table(), before, &applied.touched);
                    if changes.is_empty() {
                        applied.touched = Touched::default();
                        return Ok(());
                    }
                    Some(changes)
                }
                Content::Absent if state.table().pods.is_empty() => {
                    applied.touched = Touched::default();
                    return Ok(());
                }
                Content::Absent | Content::Unknown => None,
            }
        };
        if let Some(changes) = batch {
            match self.commit(encode::update(&self.name, &changes)).await {
                Ok(()) => {
                    self.note(changes);
                    return Ok(());
                }
                Err(error) => tracing::debug!(%error, "the table of network policies is made anew"),
            }
        }
        self.replace(state.table()).await
    }

    fn note(&self, changes: Vec<Change>) {
        let mut applied = self.applied.lock();
        applied.touched = Touched::default();
        // Otherwise it was lost meanwhile.
        if let Content::Known(table) = &mut applied.content {
            for change in changes {
                table.apply(change);
            }
        }
    }

    async fn replace(self: &Arc<Self>, table: &Table) -> io::Result<()> {
        self.has_table.store(false, Ordering::Relaxed);
        self.applied.lock().content = Content::Unknown;
        let content = if table.pods.is_empty() {
            match self.commit(encode::removal(&self.name)).await {
                // A kernel without `nf_tables` has no table.
                Err(error) if plumb_nftables::has_table(&self.name).unwrap_or(false) => return Err(error),
                _ => Content::Absent,
            }
        } else {
            self.commit(encode::replacement(&self.name, table)).await?;
            Content::Known(table.clone())
        };
        let has_table = matches!(content, Content::Known(_));
        *self.applied.lock() = Applied { content, touched: Touched::default() };
        self.has_table.store(has_table, Ordering::Relaxed);
        // A removal between the transaction and now has notified too early.
        self.check();
        Ok(())
    }

    async fn commit(&self, batch: plumb_nftables::Batch) -> io::Result<()> {
        let committed = tokio::task::spawn_blocking(move || batch.commit()).await;
        committed.unwrap_or_else(|_| Err(io::Error::other("committing rules broke off")))
    }
}
