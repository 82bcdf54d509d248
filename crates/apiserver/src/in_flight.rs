//! The limits of requests in flight.
//!
//! | requests | limit | of one user |
//! |---|---|---|
//! | reads, writes | [`Limits::reading`], [`Limits::writing`] | 3 times what is free |
//! | watches | [`Limits::watches`] | as many as are free |
//! | logs, commands, proxies | [`Limits::streams`] | as many as are free |
//! | watches that send their initial events | [`Limits::initial_lists`], until these are sent | 3 times what is free |
//! | bytes of lists | [`Limits::lists`], until they are sent | 3 times what is free |
//! | bytes of large events of watches | [`Limits::events`], until they are read; beyond it [the oldest are dropped](crate::watch_lines) | 3 times what is free |
//! | requests whose body has not arrived yet | [`Limits::receiving`], until it has | 3 times what is free |
//! | bytes of such heads, and of what has arrived of their bodies | [`Limits::arriving`], until the body has | 3 times what is free |
//! | bytes of bodies | [`Limits::bodies`], until the response | 3 times what is free |
//! | refused requests whose body is discarded | [`Limits::discards`]; beyond it the response does not wait | 3 times what is free, also for one source address |
//!
//! A request that comes over a socket and finds a limit reached is rejected with 429 and `Retry-After`. Nodes on other
//! machines have limits of their own, so that users who reach theirs do not hold up nodes.
//!
//! The components of this process send a bounded number of requests at once, so they wait in a queue: a rejection would only
//! make them retry. The nodes of this process have a queue of their own, so that a thousand nodes that start together delay
//! neither users nor the scheduler and the controllers.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::request::Parts;
use parking_lot::Mutex;
use plumb_metrics::Text;

use crate::authn::InProcess;
use crate::authz::NODES;
use crate::error::ApiError;
use crate::fair_share::{Exhausted, Held, Pool, UNIT};
use crate::url::{Target, Verb};
use crate::user::User;
use crate::watch_lines::Lines;

/// How many times the free permits one user may hold: of short requests, and of long-running ones.
const OF_SHORT: usize = 3;
const OF_LONG: usize = 1;

/// The limits of requests in flight. Watches, logs and exec do not count as requests in flight, and have limits of their own.
/// The defaults are upstream's, where it has any.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that read, until their response is sent.
    pub reading: usize,
    /// Requests that write.
    pub writing: usize,
    /// Watches.
    pub watches: usize,
    /// Logs, commands and proxies. Each has a connection to a node.
    pub streams: usize,
    /// Watches that are sending their initial events.
    pub initial_lists: usize,
    /// Bytes of lists that are being sent.
    pub lists: usize,
    /// Bytes of encoded events that watches hold until their clients read them; as much again for nodes.
    pub events: usize,
    /// Requests whose body has not arrived yet.
    pub receiving: usize,
    /// Bytes of request bodies in memory.
    pub bodies: usize,
    /// Bytes of requests whose body has not arrived yet: of their heads, and of the parts that have. These count as bodies, too.
    pub arriving: usize,
    /// Refused requests whose body the server awaits in order to discard it.
    pub discards: usize,
    /// The timeout to receive a body.
    pub body: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            reading: 400,
            writing: 200,
            watches: 10_000,
            streams: 1_000,
            initial_lists: 400,
            lists: 512 << 20,
            events: 128 << 20,
            receiving: 400,
            bodies: 256 << 20,
            arriving: 64 << 20,
            discards: 256,
            body: Duration::from_mins(1),
        }
    }
}

/// The requests in flight, and their limits.
pub(crate) struct InFlight {
    clients: Class,
    remote_nodes: Class,
    components: Class,
    local_nodes: Class,
    watches: Arc<Pool>,
    streams: Arc<Pool>,
    initial_lists: Arc<Pool>,
    lists: Arc<Pool>,
    /// In kibibytes, as those of nodes.
    events: Arc<Lines>,
    events_of_nodes: Arc<Lines>,
    pub(crate) receiving: Arc<Pool>,
    /// In kibibytes.
    pub(crate) bodies: Arc<Pool>,
    /// In kibibytes.
    pub(crate) arriving: Arc<Pool>,
    pub(crate) discards: Arc<Pool>,
}

/// The limits of short requests of one class of clients.
struct Class {
    reading: Arc<Pool>,
    writing: Arc<Pool>,
}

impl Class {
    fn new(limits: Limits) -> Self {
        Self { reading: Pool::new(limits.reading, OF_SHORT), writing: Pool::new(limits.writing, OF_SHORT) }
    }
}

/// The origin of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A connection.
    Client,
    /// A connection of a node on another machine.
    RemoteNode,
    /// A component of this process, such as the scheduler.
    Component,
    /// A node of this process, of which there may be thousands.
    LocalNode,
}

impl Origin {
    /// The origin of a request of a user.
    pub(crate) fn of(request: &Parts, user: &User) -> Self {
        match request.extensions.get::<InProcess>() {
            None if user.is_in(NODES) => Self::RemoteNode,
            None => Self::Client,
            Some(InProcess(user)) if user.is_in(NODES) => Self::LocalNode,
            Some(_) => Self::Component,
        }
    }

    /// Whether the request came over a socket, so that a client decides how long the response takes.
    pub(crate) fn is_socket(self) -> bool {
        matches!(self, Self::Client | Self::RemoteNode)
    }
}

impl From<Exhausted> for ApiError {
    fn from(_: Exhausted) -> Self {
        Self::too_many_requests()
    }
}

impl InFlight {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            clients: Class::new(limits),
            remote_nodes: Class::new(limits),
            components: Class::new(limits),
            local_nodes: Class::new(limits),
            watches: Pool::new(limits.watches, OF_LONG),
            streams: Pool::new(limits.streams, OF_LONG),
            initial_lists: Pool::new(limits.initial_lists, OF_SHORT),
            lists: Pool::new(limits.lists / UNIT, OF_SHORT),
            events: Lines::new(Pool::new(limits.events / UNIT, OF_SHORT)),
            events_of_nodes: Lines::new(Pool::new(limits.events / UNIT, OF_SHORT)),
            receiving: Pool::new(limits.receiving, OF_SHORT),
            bodies: Pool::new(limits.bodies / UNIT, OF_SHORT),
            arriving: Pool::new(limits.arriving / UNIT, OF_SHORT),
            discards: Pool::new(limits.discards, OF_SHORT),
        }
    }

    fn class(&self, origin: Origin) -> &Class {
        match origin {
            Origin::Client => &self.clients,
            Origin::RemoteNode => &self.remote_nodes,
            Origin::Component => &self.components,
            Origin::LocalNode => &self.local_nodes,
        }
    }

    /// A permit for a request for objects.
    pub(crate) async fn acquire(
        &self,
        origin: Origin,
        user: &User,
        verb: Verb,
        target: &Target,
    ) -> Result<Permit, ApiError> {
        let pool = match verb {
            _ if verb == Verb::Watch || target.is_connect() => {
                let pool = if verb == Verb::Watch { &self.watches } else { &self.streams };
                if !origin.is_socket() {
                    return Ok(Permit::default());
                }
                pool
            }
            Verb::Get | Verb::List => &self.class(origin).reading,
            _ => &self.class(origin).writing,
        };
        Permit::of(pool, origin, user).await
    }

    /// A permit for a request for a non-resource path: discovery, OpenAPI, metrics.
    pub(crate) async fn acquire_for_path(&self, origin: Origin, user: &User) -> Result<Permit, ApiError> {
        Permit::of(&self.class(origin).reading, origin, user).await
    }

    /// What a watch holds while it sends its initial events.
    pub(crate) fn initial_list(&self, origin: Origin, user: &User) -> Result<Held, ApiError> {
        if !origin.is_socket() {
            return Ok(Held::default());
        }
        Ok(self.initial_lists.try_take(user.name(), 1)?)
    }

    /// The encoded events of watches of the same class; `None` for watches of this process, whose readers are its components.
    pub(crate) fn events(&self, origin: Origin) -> Option<&Arc<Lines>> {
        match origin {
            Origin::Client => Some(&self.events),
            Origin::RemoteNode => Some(&self.events_of_nodes),
            Origin::Component | Origin::LocalNode => None,
        }
    }

    /// Adds to what a request holds until it holds this number of bytes for its list, until the list is sent. A list that is
    /// larger than half of the limit counts as half of it, so that it can be sent at all.
    pub(crate) fn hold_list(
        &self,
        permit: &Permit,
        origin: Origin,
        user: &User,
        bytes: usize,
    ) -> Result<(), ApiError> {
        let mut held = permit.held.lock();
        let list = held.list.get_or_insert_default();
        if origin.is_socket() {
            let units = bytes.div_ceil(UNIT).min(self.lists.all() / 2).max(1);
            let missing = units.saturating_sub(list.many());
            if missing > 0 {
                list.merge(self.lists.try_take(user.name(), missing)?);
            }
        }
        Ok(())
    }

    /// Renders the metrics: the limits, what of them is in use, and the rejected requests.
    pub(crate) fn render(&self, text: &mut Text) {
        let (clients, nodes) = (&self.clients, &self.remote_nodes);
        let name = "apiserver_current_inflight_requests";
        text.gauge(name, "requests under way that count against a limit");
        for (kind, taken) in [
            ("mutating", clients.writing.taken() + nodes.writing.taken()),
            ("readOnly", clients.reading.taken() + nodes.reading.taken()),
        ] {
            text.sample(name, &[("request_kind", kind)], taken);
        }
        let levels = [
            ("mutating", "users", &clients.writing),
            ("readOnly", "users", &clients.reading),
            ("mutating", "system-nodes", &nodes.writing),
            ("readOnly", "system-nodes", &nodes.reading),
            ("watch", "all", &self.watches),
            ("connect", "all", &self.streams),
            ("watch-initial-list", "all", &self.initial_lists),
            ("list-kibibytes", "all", &self.lists),
            ("watch-event-kibibytes", "users", self.events.pool()),
            ("watch-event-kibibytes", "system-nodes", self.events_of_nodes.pool()),
            ("request-body", "all", &self.receiving),
            ("request-body-kibibytes", "all", &self.bodies),
            ("request-body-arriving-kibibytes", "all", &self.arriving),
            ("request-body-discard", "all", &self.discards),
        ];
        let name = "apiserver_flowcontrol_nominal_limit_seats";
        text.gauge(name, "the limits of requests from outside");
        for (level, schema, pool) in levels {
            text.sample(name, &[("flow_schema", schema), ("priority_level", level)], pool.all());
        }
        let name = "apiserver_flowcontrol_current_executing_seats";
        text.gauge(name, "what of the limits is taken");
        for (level, schema, pool) in levels {
            text.sample(name, &[("flow_schema", schema), ("priority_level", level)], pool.taken());
        }
        let name = "apiserver_flowcontrol_rejected_requests_total";
        text.counter(
            name,
            "requests that were refused with 429, because a limit or the share of the user was reached",
        );
        for (level, schema, pool) in levels {
            let rejected = pool.rejected();
            for (reason, count) in [("concurrency-limit", &rejected.full), ("user-limit", &rejected.user)] {
                let labels = [("flow_schema", schema), ("priority_level", level), ("reason", reason)];
                text.sample(name, &labels, count.load(Relaxed));
            }
        }
    }
}

/// The permit of one request, if it needs one, and the bytes of the list in its response.
#[derive(Debug, Default)]
pub(crate) struct Permit {
    pool: Option<Arc<Pool>>,
    held: Mutex<Holdings>,
}

/// What a request holds of the limits.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    permit: Option<Held>,
    list: Option<Held>,
}

impl Permit {
    async fn of(pool: &Arc<Pool>, origin: Origin, user: &User) -> Result<Self, ApiError> {
        let held = match origin {
            Origin::Client | Origin::RemoteNode => pool.try_take(user.name(), 1)?,
            Origin::Component | Origin::LocalNode => pool.take_in_line().await?,
        };
        let holdings = Holdings { permit: Some(held), list: None };
        Ok(Self { pool: Some(Arc::clone(pool)), held: Mutex::new(holdings) })
    }

    /// Waits for the effect of another request, which may need the permit of this one. Afterwards this request has a permit
    /// again: it is queued for one before all new requests.
    pub(crate) async fn released_while<T>(&self, waiting: impl Future<Output = T>) -> T {
        let had = self.held.lock().permit.as_mut().is_some_and(Held::release_permit);
        let outcome = waiting.await;
        if let Some(pool) = self.pool.as_ref().filter(|_| had) {
            let permit = Held::take_again(pool).await;
            if let Some(held) = &mut self.held.lock().permit {
                held.restore_permit(permit);
            }
        }
        outcome
    }

    /// Sets the number of bytes of the list, once it is encoded. Returns whether there is a list.
    pub(crate) fn set_list_size(&self, bytes: usize) -> bool {
        match &mut self.held.lock().list {
            Some(list) => {
                list.shrink(bytes.div_ceil(UNIT));
                true
            }
            None => false,
        }
    }

    /// Moves what the request holds to a stream that outlives its response.
    pub(crate) fn detach(&self) -> Holdings {
        std::mem::take(&mut self.held.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::Address;

    fn pods() -> Target {
        match Address::parse("/api/v1/namespaces/default/pods") {
            Ok(Address::Objects(target)) => target,
            other => unreachable!("it is the address of objects: {other:?}"),
        }
    }

    fn code<T>(result: Result<T, ApiError>) -> u16 {
        result.err().map_or(200, |refused| refused.code.as_u16())
    }

    #[tokio::test]
    async fn requests_of_clients_are_rejected_and_those_of_this_process_wait() {
        let in_flight = InFlight::new(Limits { writing: 1, ..Limits::default() });
        let (target, user) = (pods(), User::new("u", "", Vec::<String>::new()));
        let acquire = |origin| in_flight.acquire(origin, &user, Verb::Create, &target);

        let _client = acquire(Origin::Client).await.unwrap();
        assert_eq!(acquire(Origin::Client).await.err().map(|refused| refused.code.as_u16()), Some(429));

        // Requests of clients do not count here, and the second request gets the permit of the first.
        let first = acquire(Origin::Component).await.unwrap();
        let (second, ()) = tokio::join!(biased; acquire(Origin::Component), async { drop(first) });
        assert!(second.is_ok());
        assert_eq!((in_flight.clients.reading.taken(), in_flight.clients.writing.taken()), (0, 1));
    }

    #[tokio::test]
    async fn a_user_has_no_more_watches_than_are_free_and_nodes_have_limits_of_their_own() {
        let in_flight = InFlight::new(Limits { watches: 4, reading: 1, ..Limits::default() });
        let (one, two) = (User::new("one", "", Vec::<String>::new()), User::new("two", "", ["system:nodes"]));
        let target = pods();
        let mut held = Vec::new();
        let mut watch =
            async |user: &User| match in_flight.acquire(Origin::Client, user, Verb::Watch, &target).await {
                Ok(permit) => {
                    held.push(permit);
                    200
                }
                refused => code(refused),
            };
        let codes = [watch(&one).await, watch(&one).await, watch(&one).await, watch(&two).await];
        assert_eq!(codes, [200, 200, 429, 200]);

        let _reads = in_flight.acquire(Origin::Client, &one, Verb::Get, &target).await.unwrap();
        assert_eq!(code(in_flight.acquire(Origin::Client, &two, Verb::Get, &target).await), 429);
        assert_eq!(code(in_flight.acquire(Origin::RemoteNode, &two, Verb::Get, &target).await), 200);
    }

    #[tokio::test]
    async fn a_command_counts_until_it_ends_and_not_only_until_its_response() {
        let in_flight = InFlight::new(Limits { streams: 2, ..Limits::default() });
        let user = User::new("u", "", Vec::<String>::new());
        let exec = Target { name: Some("web".into()), subresource: Some("exec".into()), ..pods() };
        let acquire = || in_flight.acquire(Origin::Client, &user, Verb::Create, &exec);
        let permit = acquire().await.unwrap();
        assert_eq!(code(acquire().await), 429, "one of two for one user");
        let held = permit.detach();
        drop(permit);
        assert_eq!(code(acquire().await), 429);
        drop(held);
        assert_eq!(code(acquire().await), 200);
        assert_eq!((in_flight.streams.taken(), in_flight.clients.writing.taken()), (0, 0));
        // A node of this process is not limited.
        let _inside = (
            in_flight.acquire(Origin::LocalNode, &user, Verb::Watch, &pods()).await.unwrap(),
            acquire().await,
        );
        assert_eq!(in_flight.watches.taken(), 0);
    }

    #[test]
    fn a_list_larger_than_the_limit_can_be_had_and_counts_as_what_it_is_in_the_end() {
        let in_flight = InFlight::new(Limits { lists: 100 << 10, ..Limits::default() });
        let user = User::new("u", "", Vec::<String>::new());
        let permit = Permit::default();
        let hold = |bytes| in_flight.hold_list(&permit, Origin::Client, &user, bytes);
        for (bytes, taken) in [(10 << 10, 10), (20 << 10, 20), (10 << 10, 20), (usize::MAX, 50)] {
            hold(bytes).unwrap();
            assert_eq!(in_flight.lists.taken(), taken, "{bytes}");
        }
        assert!(permit.set_list_size(2 << 10));
        assert_eq!(in_flight.lists.taken(), 2);
        drop(permit);
        assert_eq!(in_flight.lists.taken(), 0);
    }
}
