//! Where pods ask for room: one book for all of them, and a journal that has every answer before it is given.
//!
//! Answers are decided and handed to the journal under one lock, so that the journal has them in the order of the
//! book; whoever asked waits for the disk outside of it, so that many answers share one sync.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use plumb_resize::pod::PodResources;
use plumb_store::{Event, Ticket};
use tokio::sync::{mpsc, watch};

use crate::Clock;
use crate::book::{Answer, Book, Guest, Turned};
use crate::cpus::CpuSet;
use crate::journal::{Entry, Journal, JournalError};
use crate::worker::Message;

/// What made a pod that waits for room ask again, in the words of the kubelet's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trigger {
    /// A pod is gone.
    PodsRemoved,
    /// A pod has ended.
    PodTerminated,
    /// A pod has become smaller.
    PodResized,
}

impl Trigger {
    /// The value of the label `retry_trigger`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::PodsRemoved => "pods_removed",
            Self::PodTerminated => "pod_terminated",
            Self::PodResized => "pod_resized",
        }
    }
}

/// Where pods ask for room.
pub(crate) struct Desk {
    pages: Mutex<Pages>,
    /// What the Burstable pods are promised of cpu together, once all pods are known.
    burstable: watch::Sender<Option<i64>>,
    journal: Journal,
    clock: Clock,
}

struct Pages {
    book: Book,
    /// What the journal did not take; it is offered again with the next question.
    unwritten: BTreeSet<String>,
    /// Who is told when there is a new answer without a question.
    waiting: BTreeMap<String, mpsc::UnboundedSender<Message>>,
    /// The cpus that pods share, as they were told.
    shared: Option<Arc<CpuSet>>,
}

impl Pages {
    /// Hands the page of a pod to the journal.
    fn write(&mut self, journal: &Journal, uid: &str) -> Result<Option<Ticket<Arc<Event>>>, JournalError> {
        let Some(entry) = self.book.entry(uid) else { return Ok(None) };
        let written = journal.record(uid, entry);
        match &written {
            Ok(_) => self.unwritten.remove(uid),
            Err(_) => self.unwritten.insert(uid.to_owned()),
        };
        written.map(Some)
    }
}

impl Desk {
    pub(crate) fn new(book: Book, journal: Journal, clock: Clock) -> Self {
        let shared = book.shared_cpus().map(Arc::new);
        let pages = Pages { book, unwritten: BTreeSet::new(), waiting: BTreeMap::new(), shared };
        Self { pages: Mutex::new(pages), burstable: watch::Sender::new(None), journal, clock }
    }

    /// The cpus of those who have none for themselves; none where the kernel decides who runs on which.
    pub(crate) fn shared_cpus(&self) -> Option<Arc<CpuSet>> {
        self.pages.lock().shared.clone()
    }

    /// Follows what the Burstable pods are promised of cpu together, from when all pods are known.
    pub(crate) fn burstable_cpu(&self) -> watch::Receiver<Option<i64>> {
        self.burstable.subscribe()
    }

    /// Notes that all pods of the node are known.
    pub(crate) fn all_are_known(&self) {
        self.burstable.send_replace(Some(self.pages.lock().book.burstable_cpu()));
    }

    /// Tells what a change in the book means for all pods.
    fn tell_all(&self, pages: &mut Pages) {
        let sum = pages.book.burstable_cpu();
        self.burstable.send_if_modified(|told| told.is_some() && told.replace(sum) != Some(sum));
        let shared = pages.book.shared_cpus();
        if shared.as_ref() == pages.shared.as_deref() {
            return;
        }
        pages.shared = shared.map(Arc::new);
        for tell in pages.waiting.values() {
            // A worker that has ended runs nowhere.
            let _ = tell.send(Message::Happened);
        }
    }

    /// Who is told of answers that come without a question.
    pub(crate) fn listen(&self, uid: &str, tell: mpsc::UnboundedSender<Message>) {
        self.pages.lock().waiting.insert(uid.to_owned(), tell);
    }

    /// What a pod is allocated, if it was admitted.
    pub(crate) fn entry(&self, uid: &str) -> Option<Entry> {
        self.pages.lock().book.entry(uid).cloned()
    }

    /// Takes a pod in that has never run here, if there is room. What the journal does not keep is not promised.
    pub(crate) async fn admit(&self, uid: &str, guest: Guest) -> Result<Result<Entry, Turned>, JournalError> {
        let (entry, ticket) = {
            let mut pages = self.pages.lock();
            match pages.book.admit(uid, guest) {
                Ok(entry) => {
                    self.tell_all(&mut pages);
                    (entry, pages.write(&self.journal, uid))
                }
                Err(turned) => return Ok(Err(turned)),
            }
        };
        let written = match ticket {
            Ok(ticket) => self.await_disk(uid, ticket).await,
            Err(error) => Err(error),
        };
        if written.is_err() {
            let mut pages = self.pages.lock();
            pages.unwritten.remove(uid);
            pages.book.release(uid);
            self.tell_all(&mut pages);
        }
        written.map(|()| Ok(entry))
    }

    /// Takes a pod in that ran here before, at what it was promised then; answers what is kept of it.
    pub(crate) fn readmit(&self, uid: &str, guest: Guest, entry: Entry) -> Entry {
        let mut pages = self.pages.lock();
        let entry = pages.book.readmit(uid, guest, entry);
        self.tell_all(&mut pages);
        entry
    }

    /// Has the journal keep what is in the book of a pod, after it was made anew.
    pub(crate) async fn write(&self, uid: &str) -> Result<(), JournalError> {
        let ticket = self.pages.lock().write(&self.journal, uid)?;
        self.await_disk(uid, ticket).await
    }

    /// Answers what a pod's spec wants; what is answered is durable.
    pub(crate) async fn ask(
        &self,
        uid: &str,
        desired: PodResources,
        generation: i64,
    ) -> Result<Option<Answer>, JournalError> {
        let now = (self.clock)().as_millisecond();
        let (answer, ticket) = {
            let mut pages = self.pages.lock();
            let before = pages.book.entry(uid).cloned();
            let Some(answer) = pages.book.ask(uid, desired, generation, now) else { return Ok(None) };
            self.tell_all(&mut pages);
            let news = before.as_ref() != Some(&answer.entry) || pages.unwritten.contains(uid);
            let ticket = if news { pages.write(&self.journal, uid)? } else { None };
            (answer, ticket)
        };
        self.await_disk(uid, ticket).await?;
        Ok(Some(answer))
    }

    /// Changes what is kept of a pod apart from what it is promised. It is durable when this returns.
    pub(crate) async fn note(
        &self,
        uid: &str,
        change: impl FnOnce(&mut Entry),
    ) -> Result<Option<Entry>, JournalError> {
        let (entry, ticket) = {
            let mut pages = self.pages.lock();
            let Some(entry) = pages.book.note(uid, change) else { return Ok(None) };
            (entry, pages.write(&self.journal, uid)?)
        };
        self.await_disk(uid, ticket).await?;
        Ok(Some(entry))
    }

    /// Notes what is in force for a pod, and answers those who waited for what that frees.
    pub(crate) async fn report(&self, uid: &str, actual: PodResources) {
        let freed = {
            let mut pages = self.pages.lock();
            let freed = pages.book.report(uid, actual);
            if freed {
                self.tell_all(&mut pages);
            }
            freed
        };
        if freed {
            self.room_was_freed(Trigger::PodResized).await;
        }
    }

    /// Takes a pod's room back: it has ended, or is gone.
    pub(crate) async fn release(&self, uid: &str, why: Trigger) {
        let held = {
            let mut pages = self.pages.lock();
            pages.waiting.remove(uid);
            pages.unwritten.remove(uid);
            let held = pages.book.release(uid);
            self.tell_all(&mut pages);
            held
        };
        if let Err(error) = self.journal.forget(uid).await {
            // It is forgotten at the next start: no pod goes by that uid any more.
            tracing::warn!(%error, uid, "a pod's entry stays in the journal");
        }
        if held {
            self.room_was_freed(why).await;
        }
    }

    /// Asks again for those who wait, and tells them what is new.
    async fn room_was_freed(&self, trigger: Trigger) {
        let now = (self.clock)().as_millisecond();
        let answers: Vec<_> = {
            let mut pages = self.pages.lock();
            let answers = pages.book.retry(now);
            self.tell_all(&mut pages);
            answers
                .into_iter()
                .map(|(uid, answer)| {
                    let ticket = pages.write(&self.journal, &uid);
                    (pages.waiting.get(&uid).cloned(), uid, answer, ticket)
                })
                .collect()
        };
        for (tell, uid, answer, ticket) in answers {
            let durable = match ticket {
                Ok(ticket) => self.await_disk(&uid, ticket).await,
                Err(error) => Err(error),
            };
            let message = match durable {
                Ok(()) => Message::Answer(Box::new(answer), trigger),
                // The worker asks by itself then, and waits as it does after any failure to write.
                Err(_) => Message::Again,
            };
            if let Some(tell) = tell {
                // A worker that has ended wants no answer.
                let _ = tell.send(message);
            }
        }
    }

    /// Waits for what was handed to the journal.
    async fn await_disk(&self, uid: &str, ticket: Option<Ticket<Arc<Event>>>) -> Result<(), JournalError> {
        let Some(ticket) = ticket else { return Ok(()) };
        match ticket.await {
            Ok(_) => Ok(()),
            Err(error) => {
                self.pages.lock().unwritten.insert(uid.to_owned());
                Err(error.into())
            }
        }
    }
}
