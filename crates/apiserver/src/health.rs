//! The health endpoints `/healthz`, `/livez` and `/readyz`: all checks at once or one by one, printed as upstream prints them.

use std::borrow::Cow;

use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use plumb_store::{Store, WriteError};
use plumb_supervise::Supervisor;

use crate::response_body::Body;
use crate::shutdown::Shutdown;
use crate::url::Query;

/// The state that checks read.
pub(crate) struct ServerState<'a> {
    pub(crate) store: &'a Store,
    /// The long-lived tasks of this process.
    pub(crate) tasks: Option<&'a Supervisor>,
    /// Reports the shutdown of the server, for requests that came through a socket.
    pub(crate) shutdown: Option<&'a Shutdown>,
}

/// A check: what it is called, and why it fails.
struct Check {
    name: Cow<'static, str>,
    outcome: Result<(), Failing>,
    /// Whether a failure is printed and does not fail the endpoint.
    is_advisory: bool,
}

/// Why a check fails.
#[derive(Debug, thiserror::Error)]
enum Failing {
    #[error(transparent)]
    Store(#[from] WriteError),
    /// A task does not run, for this cause.
    #[error("{0}")]
    Task(String),
    #[error(
        "alarm NOSPACE: objects have {0} of {1} bytes; only deletions and updates of status are accepted"
    )]
    QuotaAlarm(u64, u64),
    #[error("process is shutting down")]
    ShuttingDown,
}

impl Check {
    fn new(name: impl Into<Cow<'static, str>>, outcome: Result<(), Failing>) -> Self {
        Self { name: name.into(), outcome, is_advisory: false }
    }
}

/// Whether a path is a health endpoint.
pub(crate) fn is_health(path: &str) -> bool {
    let endpoint = path.strip_prefix('/').and_then(|path| path.split('/').next());
    matches!(endpoint, Some("healthz" | "livez" | "readyz"))
}

/// The checks of an endpoint, and their results.
fn checks(endpoint: &str, state: &ServerState<'_>) -> Option<Vec<Check>> {
    let ready = match endpoint {
        "healthz" | "livez" => false,
        "readyz" => true,
        _ => return None,
    };
    // Upstream's word for where objects are kept is part of many scripts, so it is the name.
    let store = state.store.writable().map_err(Failing::Store);
    let mut checks = vec![Check::new("ping", Ok(())), Check::new("log", Ok(())), Check::new("etcd", store)];
    let usage = state.store.usage();
    let alarm = Failing::QuotaAlarm(usage.bytes, usage.quota.bytes);
    let quota = Check::new("store-quota", if usage.alarm() { Err(alarm) } else { Ok(()) });
    // A restart frees no space: it is no reason to restart the process.
    checks.push(Check { is_advisory: !ready, ..quota });
    for task in state.tasks.iter().flat_map(|tasks| tasks.tasks()) {
        // A task that is restarted in a moment is no reason to restart the process; one that fails again and again is.
        let why = if ready { task.unready() } else { task.dead() };
        let outcome = why.map_or(Ok(()), |why| Err(Failing::Task(why.to_owned())));
        checks.push(Check::new(format!("task/{}", task.name), outcome));
    }
    if ready {
        let requested = state.shutdown.is_some_and(Shutdown::is_requested);
        let outcome = if requested { Err(Failing::ShuttingDown) } else { Ok(()) };
        checks.push(Check::new("shutdown", outcome));
    }
    Some(checks)
}

/// Responds if the path is a health endpoint.
pub(crate) fn answer(path: &str, query: &Query, state: &ServerState<'_>) -> Option<Response<Body>> {
    let (endpoint, one) = match path.strip_prefix('/')?.split_once('/') {
        Some((endpoint, one)) => (endpoint, Some(one)),
        None => (path.strip_prefix('/')?, None),
    };
    let checks = checks(endpoint, state)?;
    Some(match one {
        Some(name) => match checks.into_iter().find(|check| check.name == name) {
            None => print(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
            Some(check) => match check.outcome {
                Ok(()) => print(StatusCode::OK, "ok".to_owned()),
                Err(why) => {
                    print(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n"))
                }
            },
        },
        None => all(endpoint, &checks, query),
    })
}

fn all(endpoint: &str, checks: &[Check], query: &Query) -> Response<Body> {
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut output = Vec::new();
    let mut failed = false;
    for Check { name, outcome, is_advisory } in checks {
        output.push(if excluded.contains(&&**name) {
            format!("[+]{name} excluded: ok\n")
        } else if let Err(why) = outcome {
            tracing::warn!(endpoint, check = &**name, %why, "a health check failed");
            failed |= !is_advisory;
            let mark = if *is_advisory { '!' } else { '-' };
            // The address is public; who may know why asks for the one check.
            format!("[{mark}]{name} failed: reason withheld\n")
        } else {
            format!("[+]{name} ok\n")
        });
    }
    let mut unknown: Vec<String> = excluded
        .iter()
        .filter(|name| checks.iter().all(|check| check.name != **name))
        .map(|name| format!("{name:?}"))
        .collect();
    unknown.sort();
    unknown.dedup();
    if !unknown.is_empty() {
        let names = unknown.join(",");
        output.push(format!("warn: some health checks cannot be excluded: no matches for {names}\n"));
    }
    let output = output.concat();
    if failed {
        return print(StatusCode::INTERNAL_SERVER_ERROR, format!("{output}{endpoint} check failed\n"));
    }
    if query.has("verbose") {
        return print(StatusCode::OK, format!("{output}{endpoint} check passed\n"));
    }
    print(StatusCode::OK, "ok".to_owned())
}

fn print(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
