//! Events of containers: those of the runtime if it sends any, else the differences between two lists.

mod relist;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use jiff::Timestamp;
use plumb_runtime::Result;
use plumb_runtime::types::{ContainerChange, ContainerFilter, Event, SandboxFilter};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::error::is_unimplemented;
use crate::names::CLUSTER;
use crate::{State, api, convert};
use plumb_grpc::Messages;
use relist::{Change, Listing};

/// The interval between two lists of a runtime without events, as that of the kubelet's PLEG.
const RELIST: Duration = Duration::from_secs(1);
/// The interval between two lists of a runtime with events, in case an event is lost.
const RELIST_WITH_EVENTS: Duration = Duration::from_mins(1);

/// Sends the events of the runtime's containers until the task is aborted.
pub(crate) async fn follow(state: Arc<State>) {
    let mut events = subscribe(&state).await;
    let mut before: Option<Listing> = None;
    let mut reachable = true;
    let mut tick = interval(RELIST);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = Instant::now();
    loop {
        tokio::select! {
            event = next(&mut events) => match event {
                Some(event) => {
                    forward(&state, event);
                    continue;
                }
                // The connection ended, so events may be lost until the next list.
                None => events = None,
            },
            _ = tick.tick() => {
                if events.is_some() && before.is_some() && last.elapsed() < RELIST_WITH_EVENTS {
                    continue;
                }
            }
        }
        last = Instant::now();
        match state.listing().await {
            Ok(now) => {
                let changes = before.as_ref().map(|before| relist::changes(before, &now)).unwrap_or_default();
                for change in changes {
                    state.emit(change);
                }
                before = Some(now);
                if !std::mem::replace(&mut reachable, true) {
                    tracing::info!("the container runtime responds again");
                    // Calls of pod workers have failed meanwhile; this event makes them retry.
                    state.send(Event::Missed(1));
                    events = subscribe(&state).await;
                }
            }
            Err(error) => {
                if std::mem::replace(&mut reachable, false) {
                    tracing::warn!(%error, "the container runtime does not respond");
                }
            }
        }
    }
}

/// The next event; `None` at the end of the stream. Without a stream, it never resolves.
async fn next(events: &mut Option<Messages>) -> Option<api::ContainerEventResponse> {
    match events {
        Some(events) => events.next().await.ok().flatten(),
        None => std::future::pending().await,
    }
}

/// Subscribes to the events of the runtime, if it sends any.
async fn subscribe(state: &State) -> Option<Messages> {
    let call = state.runtime.subscribe("/runtime.v1.RuntimeService/GetContainerEvents", api::Empty {});
    // A runtime may send the headers of the response with the first event only.
    let events = match tokio::time::timeout(RELIST, call).await {
        Ok(Ok(events)) => Some(events),
        Ok(Err(status)) => {
            if !is_unimplemented(&status) {
                tracing::debug!(%status, "no events from the container runtime");
            }
            None
        }
        Err(_) => None,
    };
    state.has_events.store(events.is_some(), Ordering::Relaxed);
    events
}

/// Forwards an event of the runtime, if its container belongs to this cluster.
fn forward(state: &State, event: api::ContainerEventResponse) {
    let change = match event.container_event_type() {
        api::ContainerEventType::Created => ContainerChange::Created,
        api::ContainerEventType::Started => ContainerChange::Started,
        api::ContainerEventType::Stopped => ContainerChange::Stopped,
        api::ContainerEventType::Deleted => ContainerChange::Deleted,
    };
    let sandbox = event.pod_sandbox_status.unwrap_or_default();
    if sandbox.labels.get(CLUSTER) != Some(&state.cluster) {
        return;
    }
    state.send(Event::Container {
        id: event.container_id.into(),
        sandbox: sandbox.id.into(),
        change,
        at: convert::time(event.created_at).unwrap_or_else(Timestamp::now),
    });
}

impl State {
    pub(crate) fn send(&self, event: Event) {
        // Sending fails only if nothing is subscribed.
        let _ = self.events.send(event);
    }

    fn emit(&self, change: Change) {
        self.send(match change {
            Change::Container { id, sandbox, change } => {
                Event::Container { id, sandbox, change, at: Timestamp::now() }
            }
            Change::SandboxNotReady => Event::Missed(1),
        });
    }

    /// Lists the states of the containers and sandboxes of this cluster.
    async fn listing(&self) -> Result<Listing> {
        let containers = self.containers(&ContainerFilter::default()).await?;
        let sandboxes = self.pod_sandboxes(&SandboxFilter::default()).await?;
        let containers = containers.into_iter().map(|container| {
            let container = convert::container(container);
            (container.id, (container.sandbox, container.state))
        });
        let sandboxes = sandboxes.into_iter().map(|sandbox| {
            let sandbox = convert::sandbox(sandbox);
            (sandbox.id, sandbox.state)
        });
        Ok(Listing { containers: containers.collect::<BTreeMap<_, _>>(), sandboxes: sandboxes.collect() })
    }
}
