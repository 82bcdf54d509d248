//! The API server: one door for every request, whether it comes over a socket or from inside.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Method, Request, Response, StatusCode};
use jiff::Timestamp;
use plumb_resize::rules::Rules;
use plumb_store::Store;
use serde_json::json;
use tokio::sync::Semaphore;

use crate::admission::{Chain, Warnings};
use crate::arrival::Arrivals;
use crate::authn::{Authenticator, User};
use crate::authz::authorize;
use crate::error::ApiError;
use crate::exchange::{Body, answer_value, full, refuse, warn};
use crate::kinds::{Kinds, Row};
use crate::openapi::Documents;
use crate::target::{Address, Query, Target, Verb};
use crate::{delete, discovery, read, subresource, watch, write};

/// The version that is told to clients.
pub const VERSION: &str = "v1.36.4+plumb";

/// What an API server is made of.
pub struct Config {
    /// Where the objects are.
    pub store: Store,
    /// Which rules of a resize bind.
    pub rules: Rules,
    /// What time it is.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    /// How much may be asked at once.
    pub limits: Limits,
    /// Who may be believed to be whom.
    pub authenticator: Authenticator,
}

/// How much may be asked at once; watches and logs don't count as requests under way. As upstream's defaults, where
/// it has any.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests that read.
    pub reading: usize,
    /// Requests that write.
    pub writing: usize,
    /// Bytes of bodies that are held, arriving or being worked on.
    pub bodies: usize,
    /// How long a body may take to arrive.
    pub body: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { reading: 400, writing: 200, bodies: 256 << 20, body: Duration::from_mins(1) }
    }
}

/// The API server. Clones are doors to the same one.
#[derive(Clone)]
pub struct ApiServer {
    shared: Arc<Shared>,
}

struct Shared {
    config: Config,
    /// Replaced as a whole when a kind comes or goes.
    kinds: ArcSwap<Kinds>,
    admission: Chain,
    documents: Documents,
    arrivals: Arrivals,
    reading: Semaphore,
    writing: Semaphore,
}

/// A request about objects, with all that is known of it.
pub(crate) struct Call {
    pub(crate) server: ApiServer,
    pub(crate) row: Row,
    pub(crate) target: Target,
    pub(crate) verb: Verb,
    pub(crate) query: Query,
    pub(crate) user: Arc<User>,
    pub(crate) head: http::request::Parts,
    pub(crate) body: Bytes,
    /// What the client is told besides the answer.
    pub(crate) warnings: Warnings,
}

impl ApiServer {
    /// An API server over a store. What every cluster has from the start is made if it is not there.
    pub fn new(config: Config) -> Result<Self, ApiError> {
        let limits = config.limits;
        let shared = Shared {
            config,
            kinds: ArcSwap::from_pointee(Kinds::builtin()),
            admission: Chain::new(),
            documents: Documents::default(),
            arrivals: Arrivals::new(limits.bodies, limits.body),
            reading: Semaphore::new(limits.reading),
            writing: Semaphore::new(limits.writing),
        };
        let server = Self { shared: Arc::new(shared) };
        write::make_first_namespaces(&server)?;
        Ok(server)
    }

    pub(crate) fn store(&self) -> &Store {
        &self.shared.config.store
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.shared.config.rules
    }

    /// The kinds as they are served now.
    pub(crate) fn kinds(&self) -> Guard<Arc<Kinds>> {
        self.shared.kinds.load()
    }

    pub(crate) fn admission(&self) -> &Chain {
        &self.shared.admission
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.shared.config.clock)()
    }

    /// Answers a request.
    pub async fn handle<B>(&self, request: Request<B>) -> Response<Body>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        match self.respond(request).await {
            Ok(response) => response,
            Err(error) => refuse(&error),
        }
    }

    async fn respond<B>(&self, request: Request<B>) -> Result<Response<Body>, ApiError>
    where
        B: http_body::Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (mut head, body) = request.into_parts();
        let user = self.shared.config.authenticator.authenticate(&mut head).map_err(|why| {
            tracing::debug!(%why, path = head.uri.path(), "refused a request");
            ApiError::unauthorized()
        })?;
        let target = match Address::parse(head.uri.path())? {
            Address::Objects(target) => target,
            address if head.method != Method::GET => {
                drop(address);
                return Err(ApiError::method_not_allowed());
            }
            Address::Other(path) => return self.other(&path),
            address => return discovery::answer(self, &address, &head.headers),
        };
        let row = self.kinds().row(&target).ok_or_else(ApiError::no_such_path)?.clone();
        let query = Query::parse(&head.uri)?;
        let verb = target.verb(&head.method, query.is_on("watch")?)?;
        if target.namespace.is_none() && row.is_namespaced() && !matches!(verb, Verb::List | Verb::Watch) {
            return Err(ApiError::no_such_path());
        }
        authorize(&user, verb, &target)?;
        let arrived = self.shared.arrivals.read(&head.headers, body).await?;
        let _place = self.place(verb)?;
        let body = arrived.bytes.clone();
        let warnings = Warnings::default();
        let call = Call { server: self.clone(), row, target, verb, query, user, head, body, warnings };
        let mut response = call.answer().await.unwrap_or_else(|error| refuse(&error));
        warn(&mut response, &call.warnings.said());
        Ok(response)
    }

    /// A place among the requests under way. Whoever finds none is told to come back, and is not kept waiting.
    fn place(&self, verb: Verb) -> Result<Option<tokio::sync::SemaphorePermit<'_>>, ApiError> {
        let places = match verb {
            Verb::Watch => return Ok(None),
            Verb::Get | Verb::List => &self.shared.reading,
            _ => &self.shared.writing,
        };
        places.try_acquire().map(Some).map_err(|_| ApiError::too_many_requests())
    }

    fn other(&self, path: &str) -> Result<Response<Body>, ApiError> {
        match path {
            "/livez" | "/readyz" | "/healthz" => Ok(Response::new(full("ok"))),
            "/version" => Ok(answer_value(StatusCode::OK, &version())),
            path if path.starts_with("/openapi/v3") => {
                self.shared.documents.answer(&self.kinds(), path.trim_start_matches("/openapi/v3"))
            }
            "/" => Ok(answer_value(StatusCode::OK, &json!({ "paths": discovery::paths(self) }))),
            _ => Err(ApiError::no_such_path()),
        }
    }
}

fn version() -> serde_json::Value {
    json!({
        "major": "1", "minor": "36", "emulationMajor": "1", "emulationMinor": "36",
        "minCompatibilityMajor": "1", "minCompatibilityMinor": "35", "gitVersion": VERSION,
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "", "goVersion": "", "compiler": "rustc",
        "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

impl Call {
    async fn answer(&self) -> Result<Response<Body>, ApiError> {
        if self.target.subresource.is_some() {
            return subresource::answer(self).await;
        }
        if !self.row.resource.allows(self.verb.name()) {
            return Err(ApiError::method_not_allowed());
        }
        match self.verb {
            Verb::Get => read::get(self),
            Verb::List => read::list(self),
            Verb::Watch => watch::watch(self),
            Verb::Create => write::create(self).await,
            Verb::Update | Verb::Patch => write::change(self, write::Part::Main).await,
            Verb::Delete => delete::delete(self).await,
            Verb::DeleteCollection => delete::delete_collection(self).await,
        }
    }

    /// Tells the client something besides the answer.
    pub(crate) fn warn(&self, warnings: Vec<String>) {
        warnings.into_iter().for_each(|warning| self.warnings.add(warning));
    }

    /// The object's name.
    pub(crate) fn name(&self) -> &str {
        self.target.name.as_deref().unwrap_or_default()
    }

    /// The namespace, if the kind has any.
    pub(crate) fn namespace(&self) -> Option<&str> {
        self.target.namespace.as_deref().filter(|_| self.row.is_namespaced())
    }
}

impl<B> tower::Service<Request<B>> for ApiServer
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Response = Response<Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move { Ok(server.handle(request).await) })
    }
}
