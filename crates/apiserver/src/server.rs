//! The API server: it handles every request, whether it comes over a socket or from this process.

use std::borrow::Cow;
use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use jiff::Timestamp;
use plumb_apischema::json::Decoded;
use plumb_resize::rules::Rules;
use plumb_store::Store;
use plumb_supervise::Supervisor;
use serde_json::{Value, json};

use crate::accounts::Accounts;
use crate::admission::{self, Chain, Plugins};
use crate::allocation::{self, Allocations};
use crate::authn::Authenticator;
use crate::authz::{About, Ask, Authorizer, Selectors, impersonate};
use crate::body::Body;
use crate::completion::{Completed, Effects, Tasks, without_panic};
use crate::custom::{self, Definitions};
use crate::error::ApiError;
use crate::exchange::{answer_value, refuse, warn};
use crate::kinds::conversion::Shown;
use crate::kinds::{Context as StrategyContext, Kinds, METRICS_GROUP, Requester, Row};
use crate::metrics::{self, Labels, Metrics, Present, Series};
use crate::negotiation::{Accepted, Form, Format};
use crate::nodes::NodeLink;
use crate::openapi::Documents;
use crate::outgoing::ResponseEncoding;
use crate::place::{Origin, Place, Places};
use crate::request_body::{Received, RequestBodies, RequestBody};
use crate::serve::{ConnectionMetrics, Interactive};
use crate::shutdown::Shutdown;
use crate::target::{Address, Query, Target, Verb};
use crate::usage::{self, UsageSource};
use crate::user::User;
use crate::warnings::Warnings;
use crate::{
    bootstrap_roles, defaults, delete, discovery, exchange, health, read, registry, reviews, scope,
    subresource, version, watch, write,
};

/// The configuration of an API server.
pub struct Config {
    /// The store of all objects.
    pub store: Store,
    /// The rules for resizes.
    pub rules: Rules,
    /// The clock.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// The limits of requests in flight.
    pub limits: Limits,
    /// How clients are authenticated.
    pub authenticator: Authenticator,
    /// The connection to nodes, for logs, exec and proxies; without it these requests fail.
    pub nodes: Option<NodeLink>,
    /// The admission plugins.
    pub plugins: Plugins,
    /// What measures nodes and pods, for `metrics.k8s.io`; without it that group answers 503.
    pub usage: Option<Arc<dyn UsageSource>>,
}

/// The timeout of a request that is neither a watch nor a connection: upstream's default for `--request-timeout`.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

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

/// The API server. Clones share all state.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").finish_non_exhaustive()
    }
}

struct Shared {
    config: Config,
    /// Replaced as a whole when a kind is added or removed.
    kinds: ArcSwap<Kinds>,
    definitions: Definitions,
    admission: Chain,
    allocations: Arc<Allocations>,
    authorizer: Authorizer,
    documents: Documents,
    request_bodies: RequestBodies,
    places: Places,
    metrics: Metrics,
    /// Tasks that complete writes after their client has disconnected.
    tasks: Arc<Tasks>,
    /// The long-lived tasks of this process, for the health checks.
    supervisor: OnceLock<Supervisor>,
}

/// What the server knows of a request before its response, successful or not.
struct Noted {
    encoding: ResponseEncoding,
    series: Option<Arc<Series>>,
    /// Its share of the limit of requests in flight, until the response is sent.
    place: Option<Place>,
}

/// A request for objects: the user, the kind, the body and the options.
pub(crate) struct Call {
    pub(crate) server: ApiServer,
    /// The kind in its stored version.
    pub(crate) row: Row,
    /// The kind in the version of the path, if it differs from the stored one.
    pub(crate) served: Option<Shown>,
    /// The form and format of the response.
    pub(crate) accepted: Accepted,
    pub(crate) target: Target,
    pub(crate) verb: Verb,
    pub(crate) query: Query,
    pub(crate) user: Arc<User>,
    pub(crate) head: http::request::Parts,
    pub(crate) body: Bytes,
    /// When it times out.
    pub(crate) deadline: Instant,
    /// Warnings for the client.
    pub(crate) warnings: Warnings,
    /// Whether an admission webhook was called for it.
    pub(crate) called_webhooks: AtomicBool,
    /// Its origin, for the limits of requests in flight.
    pub(crate) origin: Origin,
    /// Its share of the limit of requests in flight.
    pub(crate) place: Place,
    /// Whether it has had effects, and so is completed even if its client disconnects.
    pub(crate) effects: Effects,
}

impl ApiServer {
    /// An API server over a store. Creates the objects that every cluster has, if they are missing.
    pub fn new(config: Config) -> Result<Self, ApiError> {
        let limits = config.limits;
        let chain = Chain::new(&config.plugins, &config.store);
        let kinds = Kinds::builtin(registry::strategy_of).under(&config.rules);
        let shared = Shared {
            authorizer: Authorizer::new(&config.store),
            allocations: Arc::new(Allocations::of(config.store.clone())),
            config,
            kinds: ArcSwap::from_pointee(kinds),
            definitions: Definitions::default(),
            admission: chain,
            documents: Documents::default(),
            request_bodies: RequestBodies::new(limits.bodies, limits.body),
            places: Places::new(limits),
            metrics: Metrics::default(),
            tasks: Arc::new(Tasks::new()),
            supervisor: OnceLock::new(),
        };
        let server = Self { shared: Arc::new(shared) };
        write::create_system_objects(&server)?;
        bootstrap_roles::ensure(&server)?;
        server.load_definitions()?;
        Ok(server)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.shared.config.store
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.shared.config.rules
    }

    /// What the strategy of a kind can use for an object that the server itself creates.
    pub(crate) fn context<'a>(&'a self, row: &'a Row) -> StrategyContext<'a> {
        StrategyContext {
            row,
            store: self.store(),
            rules: self.rules(),
            allocations: self.allocations(),
            clock: &*self.shared.config.clock,
            requester: None,
        }
    }

    /// The kinds as they are served now.
    pub(crate) fn kinds(&self) -> Guard<Arc<Kinds>> {
        self.shared.kinds.load()
    }

    /// Replaces the table of kinds.
    pub(crate) fn set_kinds(&self, kinds: Kinds) {
        self.shared.kinds.store(Arc::new(kinds));
    }

    pub(crate) fn definitions(&self) -> &Definitions {
        &self.shared.definitions
    }

    pub(crate) fn admission(&self) -> &Chain {
        &self.shared.admission
    }

    pub(crate) fn allocations(&self) -> &Arc<Allocations> {
        &self.shared.allocations
    }

    pub(crate) fn authenticator(&self) -> &Authenticator {
        &self.shared.config.authenticator
    }

    pub(crate) fn accounts(&self) -> Option<&Accounts> {
        self.authenticator().accounts()
    }

    pub(crate) fn authorizer(&self) -> &Authorizer {
        &self.shared.authorizer
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.shared.config.clock)()
    }

    /// Handles a request.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let Ok(response) = self.clone().handle_received(request.map(Received::of)).await;
        response
    }

    /// Handles a request. Neither generic nor `async`, so that the handlers are compiled with this crate and not with each
    /// crate that calls it.
    fn handle_received(
        self,
        request: Request<Received>,
    ) -> BoxFuture<'static, Result<Response<Body>, Infallible>> {
        Box::pin(async move { Ok(self.timed(request).await) })
    }

    async fn timed(&self, request: Request<Received>) -> Response<Body> {
        let began = Instant::now();
        let mut noted =
            Noted { encoding: ResponseEncoding::of(request.headers()), series: None, place: None };
        let response = match self.respond(request, &mut noted).await {
            Ok(response) => response,
            Err(error) => refuse(&error),
        };
        let response = noted.encoding.encode(response).await;
        let response = match noted.place {
            Some(place) if response.status().is_success() => response.map(|body| body.placed(place)),
            _ => response,
        };
        let Some(series) = noted.series else { return response };
        let (code, size) = (response.status(), response.body().whole().map(Bytes::len));
        if series.is_long_running() && size.is_none() {
            return response.map(|body| body.holding(series.run(code, began)));
        }
        series.count(code, began.elapsed(), size);
        response
    }

    /// Runs the controllers that are part of the API server until the shutdown: the one that establishes, serves and
    /// finalizes custom resource definitions, the one that repairs allocations, every `repair_interval`, and the one that
    /// checks the types of policies.
    pub fn run_controllers(&self, repair_interval: Duration, shutdown: Shutdown) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let definitions = custom::run(self, shutdown.clone());
            let policies = admission::policy::run(self, shutdown.clone());
            tokio::join!(definitions, policies, allocation::run(self, repair_interval, shutdown));
        })
    }

    /// Waits until all writes are completed whose clients have disconnected.
    pub async fn writes_completed(&self) {
        self.shared.tasks.finished().await;
    }

    /// The metrics of connections, for [`Listener::counting`](crate::serve::Listener::counting).
    pub fn connection_metrics(&self) -> Arc<ConnectionMetrics> {
        self.shared.metrics.connections()
    }

    /// Adds the metrics of another component of this process to `/metrics`.
    pub fn also_show(&self, figures: impl Fn(&mut plumb_metrics::Text) + Send + 'static) {
        self.shared.metrics.also_show(figures);
    }

    /// Shows the long-lived tasks of this process under `/readyz`, `/livez` and `/metrics`. Only the first call counts.
    pub fn show_tasks(&self, supervisor: &Supervisor) {
        if self.shared.supervisor.set(supervisor.clone()).is_ok() {
            let supervisor = supervisor.clone();
            self.also_show(move |text| supervisor.render(text));
        }
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// The connection to nodes.
    pub(crate) fn nodes(&self) -> Result<&NodeLink, ApiError> {
        let nodes = self.shared.config.nodes.as_ref();
        nodes.ok_or_else(|| ApiError::unavailable("this server has no way to its nodes"))
    }

    /// What measures nodes and pods.
    pub(crate) fn usage(&self) -> Result<&dyn UsageSource, ApiError> {
        let source = self.shared.config.usage.as_deref();
        source.ok_or_else(|| ApiError::unavailable("nothing here measures what nodes and pods use"))
    }

    async fn respond(
        &self,
        request: Request<Received>,
        noted: &mut Noted,
    ) -> Result<Response<Body>, ApiError> {
        let (mut head, body) = request.into_parts();
        let user = self.shared.config.authenticator.authenticate(&mut head).map_err(|why| {
            tracing::debug!(%why, path = head.uri.path(), "refused a request");
            ApiError::unauthorized()
        })?;
        let target = match Address::parse(head.uri.path())? {
            Address::Objects(target) => target,
            address => {
                let method = head.method.as_str().to_ascii_lowercase();
                let about = About::Path(head.uri.path());
                let user = self.admit(user, &mut head.headers, &method, &about)?;
                // Probes are exempt from the limit of requests in flight, as in upstream's `exempt` priority level.
                if !matches!(&address, Address::Other(path) if health::is_health(path)) {
                    let origin = Origin::of(&head, &user);
                    noted.place = Some(self.shared.places.take_for_path(origin, &user).await?);
                    custom::serve_current(self)?;
                }
                return self.answer_path(address, &head, noted);
            }
        };
        // The whole request uses one snapshot of the kinds: a kind that is redefined meanwhile must not be authorized in
        // one scope and served in another.
        let mut row = self.kinds().row(&target).cloned();
        if row.as_ref().is_none_or(|row| row.custom().is_some()) {
            custom::serve_current(self)?;
            row = self.kinds().row(&target).cloned();
        }
        if let Some(row) = &row {
            scope::check(row, &target, &head.method)?;
        }
        let query = Query::parse(&head.uri)?;
        let verb = target.verb(&head.method, query.is_on("watch")?)?;
        let selectors = Selectors::of(&query, verb);
        let user = self.admit(user, &mut head.headers, verb.name(), &selectors.about(verb, &target))?;
        let (row, served) = self.stored(row.ok_or_else(ApiError::no_such_path)?)?;
        let labels = Labels::of_request(&target, &row, verb, &head, &query);
        noted.series = labels.map(|labels| self.shared.metrics.series(&labels));
        let accepted = match verb {
            Verb::Watch => Accepted::of_watch(&head.headers)?,
            Verb::Create if reviews::question(&row).is_some() => Accepted::without_tables(&head.headers)?,
            _ => Accepted::of(&head.headers)?,
        };
        noted.encoding.format = accepted.format;
        let request_body = self.shared.request_bodies.read(&head.headers, body, user.name()).await?;
        let origin = Origin::of(&head, &user);
        let place = self.shared.places.take(origin, &user, verb, &target).await?;
        let body = request_body.bytes.clone();
        let (server, warnings) = (self.clone(), Warnings::default());
        let call = Call {
            server,
            row,
            served,
            accepted,
            target,
            verb,
            query,
            user,
            head,
            body,
            deadline: Instant::now() + REQUEST_TIMEOUT,
            warnings,
            called_webhooks: AtomicBool::new(false),
            origin,
            place,
            effects: Effects::default(),
        };
        let (response, place) = if call.is_write() {
            let (effects, tasks) = (call.effects.clone(), Arc::clone(&self.shared.tasks));
            Completed::new(Box::pin(call.respond(request_body)), effects, tasks).await
        } else {
            call.respond(request_body).await
        };
        noted.place = Some(place);
        Ok(response)
    }

    /// The limits of requests in flight.
    pub(crate) fn places(&self) -> &Places {
        &self.shared.places
    }

    fn figures(&self) -> Response<Body> {
        let Shared { config, metrics, places, .. } = &*self.shared;
        let present = Present { store: &config.store, kinds: &self.kinds(), places };
        let mut response = Response::new(Body::from(metrics.render(&present)));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
        response
    }

    /// The row of the stored version of a kind, and the row of the requested version if it differs.
    fn stored(&self, row: Row) -> Result<(Row, Option<Shown>), ApiError> {
        let Some(stored_as) = &row.stored_as else { return Ok((row, None)) };
        let stored = self.kinds().stored(stored_as).ok_or_else(ApiError::no_such_path)?.clone();
        let conversion = stored_as.conversion;
        Ok((stored, Some(Shown::new(row, conversion))))
    }

    /// The user of a request after impersonation, if authorization allows the request.
    fn admit(
        &self,
        user: Arc<User>,
        headers: &mut HeaderMap,
        verb: &str,
        about: &About<'_>,
    ) -> Result<Arc<User>, ApiError> {
        let user = impersonate(user, headers, self.authorizer(), verb, about)?;
        self.authorizer().authorize(&Ask { user: &user, verb, about: about.clone() })?;
        Ok(user)
    }

    /// Handles a request for a non-resource path.
    fn answer_path(
        &self,
        address: Address,
        head: &http::request::Parts,
        noted: &mut Noted,
    ) -> Result<Response<Body>, ApiError> {
        match address {
            _ if head.method != Method::GET => Err(ApiError::method_not_allowed()),
            Address::Other(path) => {
                noted.series = Labels::of_path(&path).map(|labels| self.shared.metrics.series(&labels));
                self.other(&path, head)
            }
            address => discovery::answer(self, &address, &head.headers),
        }
    }

    fn other(&self, path: &str, head: &http::request::Parts) -> Result<Response<Body>, ApiError> {
        let patient = health::Patient {
            store: self.store(),
            tasks: self.shared.supervisor.get(),
            shutdown: head.extensions.get::<Shutdown>(),
        };
        if let Some(answer) = health::answer(path, &Query::parse(&head.uri)?, &patient) {
            return Ok(answer);
        }
        match path {
            "/metrics" => Ok(self.figures()),
            "/version" => Ok(answer_value(StatusCode::OK, &version::document())),
            "/openapi/v2" => self.shared.documents.swagger(&self.kinds(), &head.headers),
            path if path.starts_with("/openapi/v3") => {
                self.shared.documents.answer(&self.kinds(), path.trim_start_matches("/openapi/v3"))
            }
            "/" => Ok(answer_value(StatusCode::OK, &json!({ "paths": discovery::paths(self) }))),
            path => {
                let document = self.accounts().and_then(|accounts| accounts.document(path));
                document.ok_or_else(ApiError::no_such_path)
            }
        }
    }
}

impl Call {
    /// Authorizes another verb on the same object, besides that of the request.
    pub(crate) fn authorize(&self, verb: Verb) -> Result<(), ApiError> {
        let selectors = Selectors::default();
        let about = selectors.about(verb, &self.target);
        self.server.authorizer().authorize(&Ask { user: &self.user, verb: verb.name(), about })
    }

    /// What the strategy of the kind can use for this request.
    pub(crate) fn context(&self) -> StrategyContext<'_> {
        let requester = Requester { user: &self.user, extensions: &self.head.extensions, name: self.name() };
        StrategyContext { requester: Some(requester), ..self.server.context(&self.row) }
    }

    /// Whether the request writes to the store.
    fn is_write(&self) -> bool {
        !matches!(self.verb, Verb::Get | Verb::List | Verb::Watch) && !self.target.is_connect()
    }

    /// Handles the request, and drops its body then. Its share of the limit of requests in flight is freed once the
    /// response is sent.
    async fn respond(self, request_body: RequestBody) -> (Response<Body>, Place) {
        let panicked = |panic: &str| {
            let (verb, path) = (self.verb.name(), self.head.uri.path());
            tracing::error!(panic, verb, path, user = self.user.name(), "a request panicked");
            Err(ApiError::internal("This request caused apiserver to panic. Look in the logs for details."))
        };
        let answer = without_panic(self.answer(), panicked).await;
        let mut response = answer.unwrap_or_else(|error| match &self.served {
            Some(served) => refuse(&served.refusal(&self.row, error)),
            None => refuse(&error),
        });
        warn(&mut response, &self.warnings.to_send());
        if self.target.is_connect() {
            response.extensions_mut().insert(Interactive);
        }
        drop(request_body);
        (response, self.place)
    }

    async fn answer(&self) -> Result<Response<Body>, ApiError> {
        if let Some(custom) = self.row.custom() {
            self.warn(custom.version.deprecation.iter().cloned().collect());
            if custom.terminating && self.verb == Verb::Create {
                let (group, plural) = (self.row.group(), self.row.plural());
                return Err(ApiError::not_supported_while_terminating(group, plural));
            }
        }
        if self.target.subresource.is_some() {
            return subresource::answer(self).await;
        }
        if !self.row.resource.allows(self.verb.name()) {
            return Err(ApiError::method_not_allowed());
        }
        if let Some(question) = reviews::question(&self.row) {
            return reviews::answer(self, question);
        }
        if self.row.group() == METRICS_GROUP {
            return usage::answer(self);
        }
        match self.verb {
            Verb::Get => read::get(self).await,
            Verb::List => read::list(self).await,
            Verb::Watch => watch::watch(self),
            Verb::Create => write::create(self).await,
            Verb::Update | Verb::Patch => write::update(self, write::Part::Main).await,
            Verb::Delete => delete::delete(self).await,
            Verb::DeleteCollection => delete::delete_collection(self).await,
        }
    }

    /// Whether a list is a copy of the stored bytes of its objects.
    pub(crate) fn is_copied(&self) -> bool {
        let in_parts = matches!(self.accepted.form, Form::Whole | Form::MetadataList);
        in_parts && self.served.is_none() && self.accepted.format == Format::Json
    }

    /// Adds warnings for the client.
    pub(crate) fn warn(&self, warnings: Vec<String>) {
        for warning in warnings {
            self.warnings.add(warning);
        }
    }

    /// The kind of the body of this request.
    pub(crate) fn body_kind(&self) -> &Row {
        self.served.as_ref().map_or(&self.row, |served| &served.row)
    }

    /// Reads the object in the body.
    pub(crate) fn read_object(&self) -> Result<Decoded, ApiError> {
        exchange::object(&self.head.headers, &self.body, self.body_kind(), self.server.rules())
    }

    /// Applies the defaults of the version of the request, and converts the object to its stored version.
    pub(crate) fn to_stored(&self, mut object: Value) -> Value {
        let Some(served) = &self.served else { return object };
        let row = &served.row;
        defaults::apply(row.group(), row.version(), row.kind(), &mut object, self.server.rules());
        served.store(&self.row, object)
    }

    /// A stored object in the version of this request.
    pub(crate) fn as_served<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        match &self.served {
            Some(served) => Cow::Owned(served.serve(object.clone())),
            None => Cow::Borrowed(object),
        }
    }

    /// The kind whose strategy validates an object, and the object in the version that it validates.
    pub(crate) fn validated<'a>(&'a self, object: &'a Value) -> (&'a Row, Cow<'a, Value>) {
        match &self.served {
            Some(served) if served.has_own_rules() => (&served.row, self.as_served(object)),
            _ => (&self.row, Cow::Borrowed(object)),
        }
    }

    /// The object's name.
    pub(crate) fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or_default()
    }

    /// The namespace, if the kind has any.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.target.namespace.as_deref().filter(|_| self.row.is_namespaced())
    }

    /// The namespace that admission judges a request in: a Namespace is in itself, any other cluster-scoped object in
    /// none, whatever the path says.
    pub(crate) fn admission_namespace(&self) -> Option<&str> {
        if self.row.is_namespace() { self.target.name.as_deref() } else { self.namespace() }
    }
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        self.clone().handle_received(request.map(Received::of))
    }
}
