//! The limits of requests in flight.
//!
//! | requests | limit | of one user |
//! |---|---|---|
//! | reads, writes | [`Limits::reading`], [`Limits::writing`] | 3 times what is free |
//! | watches | [`Limits::watches`] | as many as are free |
//! | logs, commands, proxies | [`Limits::streams`] | as many as are free |
//! | watches that send what is there | [`Limits::initial_lists`], until it is sent | 3 times what is free |
//! | bytes of lists | [`Limits::lists`], until they are sent | 3 times what is free |
//!
//! A request from outside that finds no place is refused with 429 and `Retry-After`. Nodes on other machines have
//! places of their own, so that they go on while users take all of theirs.
//!
//! The parts of this process are known and ask for a bounded number of things at once, so they wait in line, where a
//! refusal would only make them ask again. That they have lines of their own keeps a thousand nodes that start together
//! from having everybody else refused, and from having those wait who decide what nodes are to do.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use http::request::Parts;
use parking_lot::Mutex;
use plumb_metrics::Text;

use crate::authn::InProcess;
use crate::authz::NODES;
use crate::error::ApiError;
use crate::share::{Exhausted, Held, Pool};
use crate::target::{Target, Verb};
use crate::user::User;

/// How many times what is free one user may hold, of short requests and of long-running ones.
const OF_SHORT: usize = 3;
const OF_LONG: usize = 1;
/// What bytes of lists are counted in.
const UNIT: usize = 1 << 10;

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
    /// Bytes of request bodies in memory.
    pub bodies: usize,
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
            bodies: 256 << 20,
            body: Duration::from_mins(1),
        }
    }
}

/// All places.
pub(crate) struct Places {
    outside: Class,
    remote_nodes: Class,
    parts: Class,
    nodes: Class,
    watches: Arc<Pool>,
    streams: Arc<Pool>,
    initial_lists: Arc<Pool>,
    lists: Arc<Pool>,
}

/// The places of short requests of one class of clients.
struct Class {
    reading: Arc<Pool>,
    writing: Arc<Pool>,
}

impl Class {
    fn new(limits: Limits) -> Self {
        Self { reading: Pool::new(limits.reading, OF_SHORT), writing: Pool::new(limits.writing, OF_SHORT) }
    }
}

/// Where a request comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A connection.
    Outside,
    /// A connection of a node on another machine.
    RemoteNode,
    /// A part of this process that is there once.
    Part,
    /// A node that is a part of this process, of which there may be thousands.
    Node,
}

impl Origin {
    /// The origin of a request of a user.
    pub(crate) fn of(request: &Parts, user: &User) -> Self {
        match request.extensions.get::<InProcess>() {
            None if user.is_in(NODES) => Self::RemoteNode,
            None => Self::Outside,
            Some(InProcess(user)) if user.is_in(NODES) => Self::Node,
            Some(_) => Self::Part,
        }
    }

    /// Whether the request came over a socket, so that a client decides how long the response takes.
    pub(crate) fn is_socket(self) -> bool {
        matches!(self, Self::Outside | Self::RemoteNode)
    }
}

impl From<Exhausted> for ApiError {
    fn from(_: Exhausted) -> Self {
        Self::too_many_requests()
    }
}

impl Places {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            outside: Class::new(limits),
            remote_nodes: Class::new(limits),
            parts: Class::new(limits),
            nodes: Class::new(limits),
            watches: Pool::new(limits.watches, OF_LONG),
            streams: Pool::new(limits.streams, OF_LONG),
            initial_lists: Pool::new(limits.initial_lists, OF_SHORT),
            lists: Pool::new(limits.lists / UNIT, OF_SHORT),
        }
    }

    fn class(&self, origin: Origin) -> &Class {
        match origin {
            Origin::Outside => &self.outside,
            Origin::RemoteNode => &self.remote_nodes,
            Origin::Part => &self.parts,
            Origin::Node => &self.nodes,
        }
    }

    /// A place for a request for objects.
    pub(crate) async fn take(
        &self,
        origin: Origin,
        user: &User,
        verb: Verb,
        target: &Target,
    ) -> Result<Place, ApiError> {
        let pool = match verb {
            _ if verb == Verb::Watch || target.is_connect() => {
                let pool = if verb == Verb::Watch { &self.watches } else { &self.streams };
                if !origin.is_socket() {
                    return Ok(Place::default());
                }
                pool
            }
            Verb::Get | Verb::List => &self.class(origin).reading,
            _ => &self.class(origin).writing,
        };
        Place::of(pool, origin, user).await
    }

    /// A place for a request for something that is no object: discovery, documents, figures.
    pub(crate) async fn take_for_path(&self, origin: Origin, user: &User) -> Result<Place, ApiError> {
        Place::of(&self.class(origin).reading, origin, user).await
    }

    /// What a watch holds while it sends the objects that are there.
    pub(crate) fn initial_list(&self, origin: Origin, user: &User) -> Result<Held, ApiError> {
        if !origin.is_socket() {
            return Ok(Held::default());
        }
        Ok(self.initial_lists.try_take(user.name(), 1)?)
    }

    /// Has a request hold about so many bytes for its list until they are sent, if it does not hold as many yet. A list
    /// that is larger than half of the limit counts as half of it, so that it can be had at all.
    pub(crate) fn hold_list(
        &self,
        place: &Place,
        origin: Origin,
        user: &User,
        bytes: usize,
    ) -> Result<(), ApiError> {
        let mut kept = place.held.lock();
        let list = kept.list.get_or_insert_default();
        if origin.is_socket() {
            let units = bytes.div_ceil(UNIT).min(self.lists.all() / 2).max(1);
            let missing = units.saturating_sub(list.many());
            if missing > 0 {
                list.merge(self.lists.try_take(user.name(), missing)?);
            }
        }
        Ok(())
    }

    /// Writes what is taken, and how often a request was refused.
    pub(crate) fn render(&self, text: &mut Text) {
        let (outside, nodes) = (&self.outside, &self.remote_nodes);
        let name = "apiserver_current_inflight_requests";
        text.gauge(name, "requests under way that count against a limit");
        for (kind, taken) in [
            ("mutating", outside.writing.taken() + nodes.writing.taken()),
            ("readOnly", outside.reading.taken() + nodes.reading.taken()),
        ] {
            text.sample(name, &[("request_kind", kind)], taken);
        }
        let levels = [
            ("mutating", "users", &outside.writing),
            ("readOnly", "users", &outside.reading),
            ("mutating", "system-nodes", &nodes.writing),
            ("readOnly", "system-nodes", &nodes.reading),
            ("watch", "all", &self.watches),
            ("connect", "all", &self.streams),
            ("watch-initial-list", "all", &self.initial_lists),
            ("list-kibibytes", "all", &self.lists),
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

/// The place of one request, if it needs one, and the bytes of the list that it is answered with.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pool: Option<Arc<Pool>>,
    held: Mutex<Kept>,
}

/// What a request holds.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    place: Option<Held>,
    list: Option<Held>,
}

impl Place {
    async fn of(pool: &Arc<Pool>, origin: Origin, user: &User) -> Result<Self, ApiError> {
        let held = match origin {
            Origin::Outside | Origin::RemoteNode => pool.try_take(user.name(), 1)?,
            Origin::Part | Origin::Node => pool.take_in_line().await?,
        };
        let kept = Kept { place: Some(held), list: None };
        Ok(Self { pool: Some(Arc::clone(pool)), held: Mutex::new(kept) })
    }

    /// Waits for what another request is to do, which may need the place for it. Afterwards the request has a place
    /// again: it stands in line for one, before all who come new.
    pub(crate) async fn left_for<T>(&self, waiting: impl Future<Output = T>) -> T {
        let had = self.held.lock().place.as_mut().is_some_and(Held::release_permit);
        let outcome = waiting.await;
        if let Some(pool) = self.pool.as_ref().filter(|_| had) {
            let permit = Held::take_again(pool).await;
            if let Some(held) = &mut self.held.lock().place {
                held.restore_permit(permit);
            }
        }
        outcome
    }

    /// The list is of so many bytes, now that it is written. True if there is a list.
    pub(crate) fn settle_list(&self, bytes: usize) -> bool {
        match &mut self.held.lock().list {
            Some(list) => {
                list.shrink(bytes.div_ceil(UNIT));
                true
            }
            None => false,
        }
    }

    /// What the request holds, for what goes on after its response.
    pub(crate) fn keep(&self) -> Kept {
        std::mem::take(&mut self.held.lock())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Address;

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
    async fn requests_from_outside_are_rejected_and_those_of_this_process_wait() {
        let places = Places::new(Limits { writing: 1, ..Limits::default() });
        let (target, user) = (pods(), User::new("u", "", Vec::<String>::new()));
        let take = |origin| places.take(origin, &user, Verb::Create, &target);

        let _outside = take(Origin::Outside).await.unwrap();
        assert_eq!(take(Origin::Outside).await.err().map(|refused| refused.code.as_u16()), Some(429));

        // The others' place does not count, and the second of them gets the first one's.
        let first = take(Origin::Part).await.unwrap();
        let (second, ()) = tokio::join!(biased; take(Origin::Part), async { drop(first) });
        assert!(second.is_ok());
        assert_eq!((places.outside.reading.taken(), places.outside.writing.taken()), (0, 1));
    }

    #[tokio::test]
    async fn a_user_has_no_more_watches_than_are_free_and_nodes_have_places_of_their_own() {
        let places = Places::new(Limits { watches: 4, reading: 1, ..Limits::default() });
        let (one, two) = (User::new("one", "", Vec::<String>::new()), User::new("two", "", ["system:nodes"]));
        let target = pods();
        let mut held = Vec::new();
        let mut watch =
            async |user: &User| match places.take(Origin::Outside, user, Verb::Watch, &target).await {
                Ok(place) => {
                    held.push(place);
                    200
                }
                refused => code(refused),
            };
        let codes = [watch(&one).await, watch(&one).await, watch(&one).await, watch(&two).await];
        assert_eq!(codes, [200, 200, 429, 200]);

        let _reads = places.take(Origin::Outside, &one, Verb::Get, &target).await.unwrap();
        assert_eq!(code(places.take(Origin::Outside, &two, Verb::Get, &target).await), 429);
        assert_eq!(code(places.take(Origin::RemoteNode, &two, Verb::Get, &target).await), 200);
    }

    #[tokio::test]
    async fn a_command_counts_until_it_ends_and_not_only_until_its_response() {
        let places = Places::new(Limits { streams: 2, ..Limits::default() });
        let user = User::new("u", "", Vec::<String>::new());
        let exec = Target { name: Some("web".into()), subresource: Some("exec".into()), ..pods() };
        let take = || places.take(Origin::Outside, &user, Verb::Create, &exec);
        let place = take().await.unwrap();
        assert_eq!(code(take().await), 429, "one of two for one user");
        let kept = place.keep();
        drop(place);
        assert_eq!(code(take().await), 429);
        drop(kept);
        assert_eq!(code(take().await), 200);
        assert_eq!((places.streams.taken(), places.outside.writing.taken()), (0, 0));
        // A node of this process is not limited.
        let _inside = (places.take(Origin::Node, &user, Verb::Watch, &pods()).await.unwrap(), take().await);
        assert_eq!(places.watches.taken(), 0);
    }

    #[test]
    fn a_list_larger_than_the_limit_can_be_had_and_counts_as_what_it_is_in_the_end() {
        let places = Places::new(Limits { lists: 100 << 10, ..Limits::default() });
        let user = User::new("u", "", Vec::<String>::new());
        let place = Place::default();
        let hold = |bytes| places.hold_list(&place, Origin::Outside, &user, bytes);
        for (bytes, taken) in [(10 << 10, 10), (20 << 10, 20), (10 << 10, 20), (usize::MAX, 50)] {
            hold(bytes).unwrap();
            assert_eq!(places.lists.taken(), taken, "{bytes}");
        }
        assert!(place.settle_list(2 << 10));
        assert_eq!(places.lists.taken(), 2);
        drop(place);
        assert_eq!(places.lists.taken(), 0);
    }
}
