//! Whether the server is well: `/healthz`, `/livez` and `/readyz`, all checks at once or one by one, printed as
//! upstream prints them.

use http::header::{CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Response, StatusCode};
use plumb_store::Store;

use crate::body::Body;
use crate::serve::Shutdown;
use crate::target::Query;

/// What checks look at.
pub(crate) struct Patient<'a> {
    pub(crate) store: &'a Store,
    /// Says whether the server is to end, to a request that came through a socket.
    pub(crate) shutdown: Option<&'a Shutdown>,
}

/// A check: what it is called, and why it fails.
struct Check {
    name: &'static str,
    examine: fn(&Patient<'_>) -> Result<(), String>,
}

const PING: Check = Check { name: "ping", examine: |_| Ok(()) };
const LOG: Check = Check { name: "log", examine: |_| Ok(()) };
/// Whether writes are taken; upstream's word for where objects are kept is part of many scripts, so it is the name.
const STORE: Check =
    Check { name: "etcd", examine: |patient| patient.store.writable().map_err(|e| e.to_string()) };
const SHUTDOWN: Check = Check {
    name: "shutdown",
    examine: |patient| match patient.shutdown {
        Some(shutdown) if shutdown.is_requested() => Err("process is shutting down".to_owned()),
        _ => Ok(()),
    },
};

/// The checks behind an address.
fn checks(endpoint: &str) -> Option<&'static [Check]> {
    match endpoint {
        "healthz" | "livez" => Some(&[PING, LOG, STORE]),
        "readyz" => Some(&[PING, LOG, STORE, SHUTDOWN]),
        _ => None,
    }
}

/// Whether a path is one of health.
pub(crate) fn is_health(path: &str) -> bool {
    let endpoint = path.strip_prefix('/').and_then(|path| path.split('/').next());
    endpoint.is_some_and(|endpoint| checks(endpoint).is_some())
}

/// Answers, if the path is one of health.
pub(crate) fn answer(path: &str, query: &Query, patient: &Patient<'_>) -> Option<Response<Body>> {
    let (endpoint, one) = match path.strip_prefix('/')?.split_once('/') {
        Some((endpoint, one)) => (endpoint, Some(one)),
        None => (path.strip_prefix('/')?, None),
    };
    let checks = checks(endpoint)?;
    Some(match one {
        Some(name) => match checks.iter().find(|check| check.name == name) {
            None => print(StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
            Some(check) => match (check.examine)(patient) {
                Ok(()) => print(StatusCode::OK, "ok".to_owned()),
                Err(why) => {
                    print(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n"))
                }
            },
        },
        None => all(endpoint, checks, query, patient),
    })
}

fn all(endpoint: &str, checks: &[Check], query: &Query, patient: &Patient<'_>) -> Response<Body> {
    let excluded: Vec<&str> = query.all("exclude").collect();
    let mut told = Vec::new();
    let mut failed = false;
    for check in checks {
        let name = check.name;
        told.push(if excluded.contains(&name) {
            format!("[+]{name} excluded: ok\n")
        } else if let Err(why) = (check.examine)(patient) {
            tracing::warn!(endpoint, check = name, %why, "a health check failed");
            failed = true;
            // The address is public; who may know why asks for the one check.
            format!("[-]{name} failed: reason withheld\n")
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
        told.push(format!("warn: some health checks cannot be excluded: no matches for {names}\n"));
    }
    let told = told.concat();
    if failed {
        return print(StatusCode::INTERNAL_SERVER_ERROR, format!("{told}{endpoint} check failed\n"));
    }
    if query.has("verbose") {
        return print(StatusCode::OK, format!("{told}{endpoint} check passed\n"));
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
