//! Live updates: a page is rendered once for all who have it open, and only the sections that changed are sent.
//!
//! ```text
//!   watches ──▶ Changes ──▶ feed of a page: wait, render ──▶ sections ──▶ each open page: those that it does not have
//! ```

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use hyper::body::Frame;
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::page::Fragment;
use crate::pages::page;
use crate::view::View;

/// How long changes are collected before a page is rendered, so that those that come together are shown together.
const COLLECT: Duration = Duration::from_millis(50);
/// The least time from one rendering of a page to the next.
const INTERVAL: Duration = Duration::from_millis(200);
/// The same for pages for which the API server is asked each time.
const INTERVAL_WITH_REQUESTS: Duration = Duration::from_secs(1);
/// A page that takes long to render is rendered less often: rendering takes at most this part of the time.
const SHARE: u32 = 10;
/// A connection without changes gets a comment after this time, which shows whether the browser is still there.
const HEARTBEAT: Duration = Duration::from_secs(20);
/// How many different pages are kept up to date at once.
const FEEDS: usize = 128;

/// The sections of a page; `None` before they were rendered.
type Rendered = Option<Arc<Vec<Fragment>>>;

/// The pages that are open.
pub(crate) struct Feeds {
    cluster: Arc<Cluster>,
    open: Mutex<HashMap<View, Arc<watch::Sender<Rendered>>>>,
    tasks: Mutex<JoinSet<()>>,
}

impl Feeds {
    /// None is open.
    pub(crate) fn new(cluster: Arc<Cluster>) -> Arc<Self> {
        Arc::new(Self { cluster, open: Mutex::default(), tasks: Mutex::default() })
    }

    /// The updates of a page for a browser that has sections with these hashes. `None` if too many pages are open.
    pub(crate) fn subscribe(
        self: &Arc<Self>,
        view: &View,
        have: HashSet<String>,
    ) -> Option<impl Stream<Item = Result<Frame<Bytes>, Infallible>> + use<>> {
        let receiver = self.receiver(view)?;
        Some(updates(receiver, have))
    }

    fn receiver(self: &Arc<Self>, view: &View) -> Option<watch::Receiver<Rendered>> {
        let mut open = self.open.lock();
        if let Some(sender) = open.get(view) {
            return Some(sender.subscribe());
        }
        if open.len() >= FEEDS {
            return None;
        }
        let (sender, receiver) = watch::channel(None);
        let sender = Arc::new(sender);
        open.insert(view.clone(), sender.clone());
        let mut tasks = self.tasks.lock();
        while tasks.try_join_next().is_some() {}
        let (cluster, view) = (self.cluster.clone(), view.clone());
        // The task must not keep its owner alive, which ends it.
        let feeds = Arc::downgrade(self);
        tasks.spawn(async move {
            loop {
                tokio::select! {
                    () = render(&cluster, &view, &sender) => return,
                    () = sender.closed() => {}
                }
                let Some(feeds) = feeds.upgrade() else { return };
                let mut open = feeds.open.lock();
                // Under the lock: a browser that comes now subscribes before or gets a feed of its own.
                if sender.receiver_count() == 0 {
                    open.remove(&view);
                    return;
                }
            }
        });
        Some(receiver)
    }
}

/// Renders a page whenever something has changed, for good.
async fn render(cluster: &Arc<Cluster>, view: &View, sender: &watch::Sender<Rendered>) {
    let mut changes = cluster.changes().subscribe();
    loop {
        let started = Instant::now();
        if let Some(page) = page(cluster, view).await {
            let fragments = page.fragments();
            sender.send_if_modified(|known| {
                let is_new = known.as_ref().is_none_or(|known| **known != fragments);
                if is_new {
                    *known = Some(Arc::new(fragments));
                }
                is_new
            });
        }
        let took = started.elapsed();
        // The owner of the sender keeps the feed alive.
        if changes.changed().await.is_err() {
            return;
        }
        let asks = matches!(view, View::Pod(..) | View::WhatIf(..) | View::Vpa(..));
        let interval = if asks { INTERVAL_WITH_REQUESTS } else { INTERVAL };
        // A change after a quiet time is shown at once.
        let next = started + interval.max(took * SHARE);
        tokio::time::sleep_until(next.max(Instant::now() + COLLECT)).await;
        changes.mark_unchanged();
    }
}

/// What a browser has, and what it gets next.
struct Updates {
    receiver: watch::Receiver<Rendered>,
    have: HashSet<String>,
    sent: HashMap<&'static str, String>,
    is_first: bool,
}

fn updates(
    mut receiver: watch::Receiver<Rendered>,
    have: HashSet<String>,
) -> impl Stream<Item = Result<Frame<Bytes>, Infallible>> {
    // A page that others have open was rendered before.
    receiver.mark_changed();
    let state = Updates { receiver, have, sent: HashMap::new(), is_first: true };
    unfold(state, |mut state| async move {
        let text = state.next().await?;
        Some((Ok(Frame::data(Bytes::from(text))), state))
    })
}

impl Updates {
    /// The next events, or a comment if nothing changes for a while. `None` if the feed has ended.
    async fn next(&mut self) -> Option<String> {
        if std::mem::take(&mut self.is_first) {
            // Also the time in milliseconds after which the browser connects again.
            return Some("retry: 2000\n\n".to_owned());
        }
        loop {
            match tokio::time::timeout(HEARTBEAT, self.receiver.changed()).await {
                Err(_) => return Some(": no change\n\n".to_owned()),
                Ok(Err(_)) => return None,
                Ok(Ok(())) => {}
            }
            let Some(fragments) = self.receiver.borrow_and_update().clone() else { continue };
            let text: String = fragments.iter().filter_map(|fragment| self.event(fragment)).collect();
            // From now on the browser has what was sent.
            self.have.clear();
            if !text.is_empty() {
                return Some(text);
            }
        }
    }

    /// A section as an event; `None` if the browser has it.
    fn event(&mut self, fragment: &Fragment) -> Option<String> {
        let before = self.sent.insert(fragment.id, fragment.hash.clone());
        let has = before.as_ref() == Some(&fragment.hash) || self.have.contains(&fragment.hash);
        let data = json!({ "id": fragment.id, "hash": fragment.hash, "html": fragment.html });
        (!has).then(|| format!("event: fragment\ndata: {data}\n\n"))
    }
}
