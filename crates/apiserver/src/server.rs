//! The handling of requests, whether they come over a socket or from this process: authentication, authorization, limits,
//! and the handler of each verb.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use serde_json::json;

use crate::aggregation::{Aggregator, RemoteService};
use crate::audit::{AuditContext, Audited};
use crate::authz::{About, Ask, Selectors, impersonate};
use crate::codec::{answer_value, refuse, warn};
use crate::completion::{Completed, without_panic};
use crate::endpoints::response_encoding::ResponseEncoding;
use crate::endpoints::{
    delegate, delete, discovery, metrics_api, read, resource_scope, reviews, subresource, watch, write,
};
use crate::error::ApiError;
use crate::in_flight::{Origin, Permit};
use crate::kinds::conversion::ServedVersion;
use crate::kinds::{Row, Storage};
use crate::metrics::{self, Labels, Present, Series};
use crate::negotiation::Accepted;
use crate::request::{Call, HttpRequest, RequestInfo, RequestScope, RequestState};
use crate::request_body::{Received, RequestBody};
use crate::response_body::Body;
use crate::serve::Interactive;
use crate::shutdown::Shutdown;
use crate::state::{ApiServer, BuiltinKinds, Config};
use crate::url::{Address, Query, Target, Verb};
use crate::user::{ANONYMOUS, User};
use crate::{bootstrap_roles, health, version};

/// The timeout of a request that is neither a watch nor a connection: upstream's default for `--request-timeout`.
const REQUEST_TIMEOUT: Duration = Duration::from_mins(1);

/// The audit annotations with the decision of authorization.
const DECISION: &str = "authorization.k8s.io/decision";
const REASON: &str = "authorization.k8s.io/reason";

/// The facts of a request that its response needs, whether it succeeds or not.
struct ResponseContext {
    encoding: ResponseEncoding,
    /// Who gets the response, once that is known.
    user: Option<Arc<User>>,
    series: Option<Arc<Series>>,
    /// Its permit in the limits of requests in flight, until the response is sent.
    permit: Option<Permit>,
    /// Its audit events, if the server records requests.
    audited: Option<Audited>,
}

/// Handles a request.
fn handle(
    server: ApiServer,
    request: Request<Received>,
) -> BoxFuture<'static, Result<Response<Body>, Infallible>> {
    Box::pin(async move { Ok(server.timed(request).await) })
}

impl ResponseContext {
    fn audit(&self) -> &AuditContext {
        self.audited.as_ref().map_or(AuditContext::disabled(), |audited| &audited.context)
    }
}

impl ApiServer {
    /// An API server over a store, with the built-in kinds that it serves. Creates the objects that every cluster has, if
    /// they are missing.
    pub fn new(config: Config, builtin: BuiltinKinds) -> Result<Self, ApiError> {
        let create_system_objects = builtin.create_system_objects;
        let server = Self::of(config, builtin, handle);
        create_system_objects(server.cluster())?;
        bootstrap_roles::ensure(server.cluster())?;
        server.cluster().definitions().serve()?;
        Ok(server)
    }

    async fn timed(&self, request: Request<Received>) -> Response<Body> {
        let began = Instant::now();
        let mut context = ResponseContext {
            encoding: ResponseEncoding::of(request.headers()),
            user: None,
            series: None,
            permit: None,
            audited: None,
        };
        let (head, mut body) = request.into_parts();
        body.observe(&head);
        let response = match self.respond(head, &mut body, &mut context).await {
            Ok(response) => response,
            Err(error) => refuse(&error),
        };
        context.audit().respond(&response);
        self.request_bodies().discard(&mut body, context.user.as_deref()).await;
        let user = context.user.as_ref().map_or(ANONYMOUS, |user| user.name());
        let mut response = context.encoding.encode(response, self.encoders(), user).await;
        if let Some(audited) = context.audited {
            audited.identify(response.headers_mut());
            if audited.context.is_open() {
                response = response.map(|body| body.completing(audited.context));
            }
        }
        let response = match context.permit {
            Some(permit) if response.status().is_success() => response.map(|body| body.with_permit(permit)),
            _ => response,
        };
        let Some(series) = context.series else { return response };
        let (code, size) = (response.status(), response.body().whole().map(Bytes::len));
        if series.is_long_running() && size.is_none() {
            return response.map(|body| body.holding(series.run(code, began)));
        }
        series.count(code, began.elapsed(), size);
        response
    }

    async fn respond(
        &self,
        mut head: http::request::Parts,
        body: &mut Received,
        context: &mut ResponseContext,
    ) -> Result<Response<Body>, ApiError> {
        let received = self.auditing().map(|auditing| (auditing, auditing.now()));
        let authenticated = self.authenticator().authenticate(&mut head);
        if let Some((auditing, received)) = received {
            context.audited = Some(auditing.begin(&mut head, received, authenticated.as_ref().ok()));
        }
        let user = authenticated.map_err(|why| {
            tracing::debug!(%why, path = head.uri.path(), "refused a request");
            ApiError::unauthorized()
        })?;
        let target = match Address::parse(head.uri.path())? {
            Address::Objects(target) => target,
            address => return self.respond_to_path(address, user, head, context).await,
        };
        // The whole request uses one snapshot of the kinds: a kind that is redefined meanwhile must not be authorized in
        // one scope and served in another.
        let mut row = self.cluster().kinds().row(&target).cloned();
        if row.as_ref().is_none_or(|row| row.custom().is_some()) {
            self.cluster().definitions().serve_current()?;
            row = self.cluster().kinds().row(&target).cloned();
        }
        let group_version = (&*target.group, &*target.version);
        let remote = Aggregator::find(self.cluster().store(), group_version, row.is_some())?;
        if let Some(service) = remote {
            return self.delegate(&service, &target, user, (head, body), context).await;
        }
        if let Some(row) = &row {
            resource_scope::check(row, &target, &head.method)?;
        }
        let query = Query::parse(&head.uri)?;
        let verb = target.verb(&head.method, query.is_on("watch"))?;
        let selectors = Selectors::of(&query, verb);
        let user = self.admit(
            user,
            &mut head.headers,
            verb.name(),
            &selectors.about(verb, &target),
            context.audit(),
        )?;
        context.user = Some(Arc::clone(&user));
        let scope = self.scope(row.ok_or_else(ApiError::no_such_path)?)?;
        let labels = Labels::of_request(&target, &scope.row, verb, &head, &query);
        context.series = labels.map(|labels| self.metrics().series(&labels));
        let accepted = match verb {
            Verb::Watch => Accepted::of_watch(&head.headers)?,
            Verb::Create if scope.row.is_review() => Accepted::without_tables(&head.headers)?,
            _ => Accepted::of(&head.headers)?,
        };
        context.encoding.format = accepted.format;
        let request_body = self.request_bodies().read(&head, body, user.name()).await?;
        if !target.is_connect() {
            context.audit().set_body(&head.headers, &request_body.bytes);
        }
        let origin = Origin::of(&head, &user);
        let permit = self.in_flight().acquire(origin, &user, verb, &target).await?;
        let body = request_body.bytes.clone();
        let call = Call {
            server: self.clone(),
            info: RequestInfo::new(user, verb, target, &scope.row),
            scope,
            query,
            http: HttpRequest { head, body },
            accepted,
            state: RequestState::new(Instant::now() + REQUEST_TIMEOUT, origin, permit),
        };
        let (response, permit) = if call.info.is_write() {
            let (effects, tasks) = (call.state.effects.clone(), Arc::clone(self.tasks()));
            Completed::new(Box::pin(respond_to(call, request_body)), effects, tasks).await
        } else {
            respond_to(call, request_body).await
        };
        context.permit = Some(permit);
        Ok(response)
    }

    /// Passes a request for objects on to the API server that serves them.
    async fn delegate(
        &self,
        service: &RemoteService,
        target: &Target,
        user: Arc<User>,
        (mut head, body): (http::request::Parts, &mut Received),
        context: &mut ResponseContext,
    ) -> Result<Response<Body>, ApiError> {
        let query = Query::parse(&head.uri)?;
        let verb = target.verb(&head.method, query.is_on("watch"))?;
        let selectors = Selectors::of(&query, verb);
        let user = self.admit(
            user,
            &mut head.headers,
            verb.name(),
            &selectors.about(verb, target),
            context.audit(),
        )?;
        context.user = Some(Arc::clone(&user));
        let request_body = self.request_bodies().read(&head, body, user.name()).await?;
        let permit = self.in_flight().acquire(Origin::of(&head, &user), &user, verb, target).await?;
        let bytes = request_body.bytes.clone();
        let response = delegate::forward(self, service, &head, bytes, &user, &permit).await;
        drop(request_body);
        context.permit = Some(permit);
        let mut response = response?;
        if target.is_connect() {
            response.extensions_mut().insert(Interactive);
        }
        Ok(response)
    }

    /// The API server in the cluster that answers to a path: discovery and the OpenAPI document of a group version.
    fn remote(&self, address: &Address) -> Result<Option<RemoteService>, ApiError> {
        let (group, version) = match address {
            Address::Resources { group, version } => (&**group, &**version),
            Address::Other(path) => {
                let path = path.strip_prefix("/openapi/v3/apis/").and_then(|path| path.split_once('/'));
                let Some(group_version) = path else { return Ok(None) };
                group_version
            }
            _ => return Ok(None),
        };
        let kinds = self.cluster().kinds();
        let own = kinds.iter().any(|row| (row.group(), row.version()) == (group, version));
        Aggregator::find(self.cluster().store(), (group, version), own)
    }

    /// Responds to a request for a non-resource path.
    async fn respond_to_path(
        &self,
        address: Address,
        user: Arc<User>,
        mut head: http::request::Parts,
        context: &mut ResponseContext,
    ) -> Result<Response<Body>, ApiError> {
        let method = head.method.as_str().to_ascii_lowercase();
        let about = About::Path(head.uri.path());
        let user = self.admit(user, &mut head.headers, &method, &about, context.audit())?;
        context.user = Some(Arc::clone(&user));
        // Probes are exempt from the limit of requests in flight, as in upstream's `exempt` priority level.
        if !matches!(&address, Address::Other(path) if health::is_health(path)) {
            let origin = Origin::of(&head, &user);
            context.permit = Some(self.in_flight().acquire_for_path(origin, &user).await?);
            self.cluster().definitions().serve_current()?;
        }
        if let Some(service) = self.remote(&address)? {
            let permit = context.permit.take().unwrap_or_default();
            let response = delegate::forward(self, &service, &head, Bytes::new(), &user, &permit).await;
            context.permit = Some(permit);
            return response;
        }
        self.answer_path(address, &head, context)
    }

    fn metrics_text(&self) -> Response<Body> {
        let present = Present {
            store: self.cluster().store(),
            kinds: &self.cluster().kinds(),
            in_flight: self.in_flight(),
        };
        let mut response = Response::new(Body::from(self.metrics().render(&present)));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
        response
    }

    /// The scope of a request for objects of a kind: the row of its stored version, and that of the requested version if
    /// it differs.
    fn scope(&self, row: Row) -> Result<RequestScope, ApiError> {
        let Some(stored_as) = &row.stored_as else { return Ok(RequestScope { row, served: None }) };
        let stored = self.cluster().kinds().stored(stored_as).ok_or_else(ApiError::no_such_path)?.clone();
        let conversion = stored_as.conversion;
        Ok(RequestScope { row: stored, served: Some(ServedVersion::new(row, conversion)) })
    }

    /// The user of a request after impersonation, if authorization allows the request.
    fn admit(
        &self,
        user: Arc<User>,
        headers: &mut HeaderMap,
        verb: &str,
        about: &About<'_>,
        audit: &AuditContext,
    ) -> Result<Arc<User>, ApiError> {
        let authenticated = Arc::clone(&user);
        let user = impersonate(user, headers, self.cluster().authorizer(), verb, about)?;
        if !Arc::ptr_eq(&user, &authenticated) {
            audit.impersonate(&user);
        }
        let ask = Ask { user: &user, verb, about: about.clone() };
        let decision = self.cluster().authorizer().decide(&ask);
        audit.annotate(DECISION, || if decision.is_allowed() { "allow" } else { "forbid" }.to_owned());
        audit.annotate(REASON, || decision.reason());
        decision.enforce(&ask)?;
        Ok(user)
    }

    /// Handles a request for a non-resource path.
    fn answer_path(
        &self,
        address: Address,
        head: &http::request::Parts,
        context: &mut ResponseContext,
    ) -> Result<Response<Body>, ApiError> {
        match address {
            _ if head.method != Method::GET => Err(ApiError::method_not_allowed()),
            Address::Other(path) => {
                context.series = Labels::of_path(&path).map(|labels| self.metrics().series(&labels));
                self.other(&path, head)
            }
            address => {
                let kinds = self.cluster().kinds();
                let is_own = |group: &str| kinds.iter().any(|row| row.group() == group);
                let remote = self.aggregator().groups(self.cluster().store(), is_own)?;
                discovery::answer(&kinds, &remote, &address, &head.headers)
            }
        }
    }

    fn other(&self, path: &str, head: &http::request::Parts) -> Result<Response<Body>, ApiError> {
        let state = health::ServerState {
            store: self.cluster().store(),
            tasks: self.supervisor(),
            shutdown: head.extensions.get::<Shutdown>(),
        };
        if let Some(answer) = health::answer(path, &Query::parse(&head.uri)?, &state) {
            return Ok(answer);
        }
        match path {
            "/metrics" => Ok(self.metrics_text()),
            "/version" => Ok(answer_value(StatusCode::OK, &version::document())),
            "/openapi/v2" => {
                let kinds = self.cluster().kinds();
                let is_own = |group: &str| kinds.iter().any(|row| row.group() == group);
                let aggregated = self.aggregator().specs(self.cluster().store(), is_own)?;
                self.documents().swagger(&kinds, &aggregated, &head.headers)
            }
            path if path.starts_with("/openapi/v3") => {
                let remote = Aggregator::all(self.cluster().store())?.into_iter();
                let remote = remote.filter(RemoteService::is_available).map(|service| service.path());
                self.documents().answer(
                    &self.cluster().kinds(),
                    remote,
                    path.trim_start_matches("/openapi/v3"),
                )
            }
            "/" => Ok(answer_value(
                StatusCode::OK,
                &json!({ "paths": discovery::paths(&self.cluster().kinds()) }),
            )),
            path => {
                let document = self.accounts().and_then(|accounts| accounts.document(path));
                document.map(|document| document.map(Body::from)).ok_or_else(ApiError::no_such_path)
            }
        }
    }
}

/// Handles the request, and drops its body then. Its permit is released once the response is sent.
async fn respond_to(call: Call, request_body: RequestBody) -> (Response<Body>, Permit) {
    let panicked = |panic: &str| {
        let (verb, path) = (call.info.verb.name(), call.http.head.uri.path());
        tracing::error!(panic, verb, path, user = call.info.user.name(), "a request panicked");
        call.http.audit().panicked(panic);
        Err(ApiError::internal("This request caused apiserver to panic. Look in the logs for details."))
    };
    let answer = without_panic(answer(&call), panicked).await;
    let mut response = answer.unwrap_or_else(|error| refuse(&call.scope.error(error)));
    warn(&mut response, &call.state.warnings.to_send());
    if call.info.target.is_connect() {
        response.extensions_mut().insert(Interactive);
    }
    drop(request_body);
    // Known here, it is recorded even if the client has disconnected.
    call.http.audit().set_response(&response);
    (response, call.state.permit)
}

/// Passes a request for objects to its handler. The futures of writes and subresources are boxed: inline, their size would be that
/// of every request, which is moved several times: `perf` shows it as memmove.
async fn answer(call: &Call) -> Result<Response<Body>, ApiError> {
    if let Some(custom) = call.scope.row.custom() {
        call.state.warnings.extend(custom.version.deprecation.iter().cloned());
        if custom.terminating && call.info.verb == Verb::Create {
            let (group, plural) = (call.scope.row.group(), call.scope.row.plural());
            return Err(ApiError::not_supported_while_terminating(group, plural));
        }
    }
    if call.info.target.subresource.is_some() {
        return Box::pin(subresource::answer(call)).await;
    }
    if !call.scope.row.resource.allows(call.info.verb.name()) {
        return Err(ApiError::method_not_allowed());
    }
    match call.scope.row.strategy().storage() {
        Storage::Store => {}
        Storage::Review(handler) => return reviews::answer(call, handler),
        Storage::Metrics => return metrics_api::answer(call),
    }
    match call.info.verb {
        Verb::Get => read::get(call).await,
        Verb::List => read::list(call).await,
        Verb::Watch => watch::watch(call).await,
        Verb::Create => Box::pin(write::create(call)).await,
        Verb::Update | Verb::Patch => Box::pin(write::update(call, write::Part::Main)).await,
        Verb::Delete => Box::pin(delete::delete(call)).await,
        Verb::DeleteCollection => Box::pin(delete::delete_collection(call)).await,
    }
}
