//! The HTTP server: accepts connections, and answers requests of the user who started it.

use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{self, HeaderName};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, Limited, StreamBody};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Config;
use crate::access::{Access, PARAMETER, Verdict};
use crate::actions::{Kind, command_named};
use crate::assets::Asset;
use crate::page::{continue_at, message};
use crate::pages::page;
use crate::session::Session;
use crate::view::{View, parameters};

/// How many connections there are at once. Each open page has one.
const CONNECTIONS: usize = 256;
/// How long the head of a request may take, and its body.
const HEAD: Duration = Duration::from_secs(10);
/// The most bytes of a form.
const LARGEST_FORM: usize = 4 << 10;
/// How long to wait after a failure to accept, such as too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Everything is from this server, and nothing is inline.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";
/// The headers of each response.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    // Not `no-referrer`, with which browsers send the forms of these pages with `Origin: null`.
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];
/// What changes is stored by no cache.
const NO_STORE: &str = "no-store";
/// The name of an asset has the hash of its content.
const FOR_GOOD: &str = "private, max-age=31536000, immutable";
const HTML: &str = "text/html; charset=utf-8";

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// What requests are answered from.
pub(crate) struct State {
    pub(crate) access: Arc<Access>,
    pub(crate) config: Config,
    /// The objects, from when they are read.
    pub(crate) session: OnceLock<Arc<Session>>,
}

impl State {
    fn session(&self) -> &Session {
        self.session.get_or_init(|| Session::start(&self.config))
    }
}

/// Serves until the future is dropped, which closes all connections.
pub(crate) async fn serve(listener: &TcpListener, state: Arc<State>) {
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(slot) = slots.clone().acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let state = state.clone();
        connections.spawn(async move {
            let respond = service_fn(move |request| {
                let state = state.clone();
                async move { Ok::<_, Infallible>(respond(request, &state).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD)
                .serve_connection(TokioIo::new(stream), respond);
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(slot);
        });
    }
}

/// How a page is returned.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Format {
    Html,
    Json,
    /// The table of a section, or the first one.
    Csv(Option<String>),
    /// Events for a browser that has sections with these hashes.
    Live(HashSet<String>),
}

impl Format {
    fn from_query(query: &[(String, String)]) -> Option<Self> {
        let value = |key: &str| query.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        Some(match value("format") {
            None | Some("html") => Self::Html,
            Some("json") => Self::Json,
            Some("csv") => Self::Csv(value("table").map(str::to_owned)),
            Some("live") => {
                Self::Live(value("have").unwrap_or_default().split(',').map(str::to_owned).collect())
            }
            Some(_) => return None,
        })
    }
}

async fn respond<B>(request: Request<B>, state: &State) -> Response<Body>
where
    B: hyper::body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    let uri = request.uri().clone();
    let path = uri.path();
    let query = parameters(uri.query().unwrap_or_default());
    let token = query.iter().find(|(name, _)| name == PARAMETER).map(|(_, token)| token.as_str());
    let verdict = state.access.check(request.method(), request.headers(), token);
    // The stylesheet of the page that refuses a request is not secret.
    if verdict != Verdict::WrongHost
        && let Some(asset) = Asset::at(path)
    {
        return respond_with(StatusCode::OK, asset.content_type, FOR_GOOD, asset.content);
    }
    match verdict {
        Verdict::Allowed => {}
        Verdict::FirstVisit => return first_visit(path, &query, state),
        Verdict::Unauthenticated => {
            let text = "Open the URL that plumb dashboard has printed. If you have done so in this browser, and followed a \
                        link of another site, open the page again:";
            // A link to a page of the dashboard, and never to what else the path may be.
            let here = View::from_url(path, &query).map(|view| view.href());
            let page = message("The token is missing", text, here.as_deref().map(|here| (here, "this page")));
            return html(StatusCode::UNAUTHORIZED, page);
        }
        Verdict::WrongHost => {
            let text = "The dashboard is reached as localhost, 127.0.0.1 or [::1], and by no other name.";
            return html(StatusCode::FORBIDDEN, message("Wrong host", text, None));
        }
        Verdict::WrongOrigin => {
            let text = "A page of another site has sent this request.";
            return html(StatusCode::FORBIDDEN, message("Refused", text, None));
        }
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let view = View::from_url(path, &query);
        let Some(View::Rollout(kind, namespace, name)) = view.filter(|_| request.method() == Method::POST)
        else {
            let text = "This page is read with GET.";
            let mut response = html(StatusCode::METHOD_NOT_ALLOWED, message("Not allowed", text, None));
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        };
        return command(request.into_body(), [&kind, &namespace, &name], state).await;
    }
    let (Some(view), Some(format)) = (View::from_url(path, &query), Format::from_query(&query)) else {
        return not_found();
    };
    show(&view, format, state).await
}

async fn show(view: &View, format: Format, state: &State) -> Response<Body> {
    if let Format::Live(have) = format {
        let Some(updates) = state.session().feeds.subscribe(view, have) else {
            let text = "Too many pages are open.";
            return html(StatusCode::SERVICE_UNAVAILABLE, message("Not now", text, None));
        };
        let body = StreamBody::new(updates).boxed_unsync();
        return with_headers(StatusCode::OK, "text/event-stream", NO_STORE, body);
    }
    let Some(page) = page(&state.session().cluster, view).await else {
        let text = "The page cannot be rendered. The log of plumb dashboard has the error.";
        return html(StatusCode::INTERNAL_SERVER_ERROR, message("Error", text, None));
    };
    let status = if page.found { StatusCode::OK } else { StatusCode::NOT_FOUND };
    match format {
        Format::Json => {
            let text = page.json().to_string();
            respond_with(status, "application/json", NO_STORE, text)
        }
        Format::Csv(section) => match page.csv(section.as_deref()) {
            Some(text) => respond_with(status, "text/csv; charset=utf-8; header=present", NO_STORE, text),
            None => not_found(),
        },
        Format::Html | Format::Live(_) => html(status, page.document(view, &state.config.name)),
    }
}

/// Carries out the command of a form for the rollout of a workload, and continues at its page.
async fn command<B>(body: B, [kind, namespace, name]: [&str; 3], state: &State) -> Response<Body>
where
    B: hyper::body::Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    let view = View::Rollout(kind.to_owned(), namespace.to_owned(), name.to_owned());
    let back = Some((view.href(), "Back to the rollout"));
    let link = back.as_ref().map(|(href, text)| (href.as_str(), *text));
    let read = tokio::time::timeout(HEAD, Limited::new(body, LARGEST_FORM).collect()).await;
    let form = match read {
        Ok(Ok(body)) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
        _ => String::new(),
    };
    let form = parameters(&form);
    let word = form.iter().find(|(field, _)| field == "command").map(|(_, word)| word.as_str());
    let (Some(kind), Some(command)) = (Kind::named(kind), word.and_then(command_named)) else {
        let text = "This is no command for the rollout of a workload.";
        return html(StatusCode::BAD_REQUEST, message("Not understood", text, link));
    };
    match state.session().cluster.carry_out(kind, namespace, name, command).await {
        Ok(()) => {
            let mut response = html(StatusCode::SEE_OTHER, String::new());
            // The parts of the URL are encoded.
            if let Ok(location) = HeaderValue::from_str(&view.href()) {
                response.headers_mut().insert(header::LOCATION, location);
            }
            response
        }
        Err(why) => html(StatusCode::CONFLICT, message("The command was not carried out", &why, link)),
    }
}

/// Exchanges the token for the cookie, and continues at the same page without the token: the URL is in the history of the
/// browser, and may be shared.
fn first_visit(path: &str, query: &[(String, String)], state: &State) -> Response<Body> {
    let path = View::from_url(path, query).map_or_else(|| "/".to_owned(), |view| view.href());
    let mut response = html(StatusCode::OK, continue_at(&path));
    // It consists of hexadecimal digits and fixed text.
    if let Ok(cookie) = HeaderValue::from_str(&state.access.set_cookie()) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}

fn not_found() -> Response<Body> {
    html(StatusCode::NOT_FOUND, message("Not found", "There is no such page.", Some(("/", "Overview"))))
}

fn html(status: StatusCode, page: String) -> Response<Body> {
    respond_with(status, HTML, NO_STORE, page)
}

fn respond_with(
    status: StatusCode,
    content_type: &'static str,
    cache: &'static str,
    body: impl Into<Bytes>,
) -> Response<Body> {
    with_headers(status, content_type, cache, Full::new(body.into()).boxed_unsync())
}

fn with_headers(
    status: StatusCode,
    content_type: &'static str,
    cache: &'static str,
    body: Body,
) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    response
}
