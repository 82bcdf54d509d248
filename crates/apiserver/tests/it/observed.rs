//! Metrics and health of the server.

use std::collections::BTreeMap;

use http::{Method, Request};
use http_body_util::{BodyExt as _, Empty};
use plumb_apiserver::authn::{InProcess, User};
use plumb_resize::rules::Rules;
use plumb_supervise::{Policy, Supervisor};
use plumb_testkit::assert_documented;
use serde_json::{Value, json};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::test_api_server::TestApiServer;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The samples of a text, by name and labels.
fn samples(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap())
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

async fn figures(apiserver: &TestApiServer) -> BTreeMap<String, String> {
    let (status, headers, bytes) = apiserver.request_with_headers(Method::GET, "/metrics", &[], "").await;
    assert_eq!(status, 200);
    assert!(headers["content-type"].to_str().unwrap().starts_with("text/plain; version=0.0.4"));
    let text = std::str::from_utf8(&bytes).unwrap();
    assert_documented(text);
    samples(text)
}

fn request_total(code: u16, verb: &str, scope: &str, dry_run: &str) -> String {
    format!(
        "apiserver_request_total{{component=\"apiserver\",dry_run=\"{dry_run}\",group=\"\",resource=\"configmaps\",scope=\"{scope}\",subresource=\"\",verb=\"{verb}\",version=\"v1\",code=\"{code}\"}}"
    )
}

#[tokio::test]
async fn requests_are_counted_by_verb_and_resource() {
    let apiserver = TestApiServer::open(Rules::kep());
    let body = json!({ "metadata": { "name": "a" } });
    apiserver.post(&format!("{MAPS}?dryRun=All"), &body).await.ok();
    apiserver.post(MAPS, &body).await.ok();
    apiserver.post(MAPS, &body).await.rejected();
    for _ in 0..3 {
        apiserver.get(&format!("{MAPS}/a")).await.ok();
    }
    apiserver.get(&format!("{MAPS}/nope")).await.rejected();
    apiserver.get(MAPS).await.ok();
    apiserver.get("/api/v1/configmaps").await.ok();
    apiserver.get("/apis/nope/v1/things").await.rejected();
    let figures = figures(&apiserver).await;
    let table = [
        (request_total(201, "POST", "resource", "All"), "1"),
        (request_total(201, "POST", "resource", ""), "1"),
        (request_total(409, "POST", "resource", ""), "1"),
        (request_total(200, "GET", "resource", ""), "3"),
        (request_total(404, "GET", "resource", ""), "1"),
        (request_total(200, "LIST", "namespace", ""), "1"),
        (request_total(200, "LIST", "cluster", ""), "1"),
        ("apiserver_resource_objects{group=\"\",resource=\"configmaps\"}".to_owned(), "1"),
        ("apiserver_resource_objects{group=\"\",resource=\"namespaces\"}".to_owned(), "4"),
        ("apiserver_resource_objects{group=\"apps\",resource=\"deployments\"}".to_owned(), "0"),
        ("apiserver_storage_objects{resource=\"deployments.apps\"}".to_owned(), "0"),
        ("apiserver_current_inflight_requests{request_kind=\"mutating\"}".to_owned(), "0"),
    ];
    for (name, value) in table {
        assert_eq!(figures.get(&name).map(String::as_str), Some(value), "{name}");
    }
    let get = "component=\"apiserver\",dry_run=\"\",group=\"\",resource=\"configmaps\",scope=\"resource\",subresource=\"\",verb=\"GET\",version=\"v1\"";
    assert_eq!(figures[&format!("apiserver_request_duration_seconds_count{{{get}}}")], "4");
    assert_eq!(figures[&format!("apiserver_request_duration_seconds_bucket{{{get},le=\"60\"}}")], "4");
    let get = get.replace("dry_run=\"\",", "");
    assert_eq!(figures[&format!("apiserver_response_sizes_count{{{get}}}")], "4");
    assert_eq!(figures[&format!("apiserver_response_sizes_bucket{{{get},le=\"1000\"}}")], "4");
    assert!(!figures.keys().any(|name| name.contains("things")));
    assert!(figures["process_resident_memory_bytes"].parse::<u64>().unwrap() > 1 << 20);
    assert!(
        figures.contains_key("process_cpu_seconds_total")
            && figures.contains_key("process_start_time_seconds")
    );
    assert!(
        figures
            .keys()
            .any(|name| name.starts_with("kubernetes_build_info{") && name.contains("git_version=\"v1.36.4"))
    );
}

#[tokio::test]
async fn a_watch_counts_as_in_flight_until_it_ends() {
    let apiserver = TestApiServer::open(Rules::kep());
    apiserver.post(MAPS, &json!({ "metadata": { "name": "a" } })).await.ok();
    let labels = "component=\"apiserver\",group=\"\",resource=\"configmaps\",scope=\"namespace\",subresource=\"\",verb=\"WATCH\",version=\"v1\"";
    let running = format!("apiserver_longrunning_requests{{{labels}}}");
    let request = Request::get(format!("{MAPS}?watch=1"))
        .extension(super::test_api_server::admin())
        .body(Empty::<bytes::Bytes>::new())
        .unwrap();
    let mut watch = apiserver.server.handle(request).await.into_body();
    watch.frame().await.unwrap().unwrap();
    let during = figures(&apiserver).await;
    assert_eq!(during[&running], "1");
    assert_eq!(
        during["apiserver_watch_events_total{group=\"\",resource=\"configmaps\",version=\"v1\"}"],
        "1"
    );
    assert!(!during.contains_key(&request_total(200, "WATCH", "namespace", "")));
    drop(watch);
    let after = figures(&apiserver).await;
    assert_eq!(
        (after[&running].as_str(), after[&request_total(200, "WATCH", "namespace", "")].as_str()),
        ("0", "1")
    );
}

#[tokio::test]
async fn metrics_require_a_permission() {
    let apiserver = TestApiServer::open(Rules::kep());
    let ask = async |user: Option<User>| {
        let mut request = Request::get("/metrics").body(Empty::<bytes::Bytes>::new()).unwrap();
        if let Some(user) = user {
            request.extensions_mut().insert(InProcess(Arc::new(user)));
        }
        let response = apiserver.server.handle(request).await;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice::<Value>(&bytes).unwrap_or_default())
    };
    assert_eq!(ask(None).await.0, 401);
    let (status, refusal) = ask(Some(User::new("jane", "", Vec::<String>::new()))).await;
    assert_eq!(
        (status, refusal["message"].as_str()),
        (403, Some("forbidden: User \"jane\" cannot get path \"/metrics\""))
    );
}

#[tokio::test]
async fn health_is_printed_as_upstream_prints_it() {
    let apiserver = TestApiServer::open(Rules::kep());
    let table = [
        ("/livez", 200, "ok"),
        ("/livez?verbose", 200, "[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]store-quota ok\nlivez check passed\n"),
        (
            "/healthz?verbose=true&exclude=etcd",
            200,
            "[+]ping ok\n[+]log ok\n[+]etcd excluded: ok\n[+]store-quota ok\nhealthz check passed\n",
        ),
        (
            "/readyz?verbose&exclude=foo",
            200,
            "[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]store-quota ok\n[+]shutdown ok\nwarn: some health checks cannot be excluded: no matches for \"foo\"\nreadyz check passed\n",
        ),
        ("/readyz/shutdown", 200, "ok"),
        ("/healthz/ping", 200, "ok"),
        ("/livez/shutdown", 404, "404 page not found\n"),
    ];
    for (path, code, text) in table {
        let (status, _, bytes) = apiserver.request_with_headers(Method::GET, path, &[], "").await;
        assert_eq!((status.as_u16(), std::str::from_utf8(&bytes).unwrap()), (code, text), "{path}");
    }
    apiserver.store().close();
    let (status, _, bytes) = apiserver.request_with_headers(Method::GET, "/livez", &[], "").await;
    assert_eq!(
        (status.as_u16(), std::str::from_utf8(&bytes).unwrap()),
        (
            500,
            "[+]ping ok\n[+]log ok\n[-]etcd failed: reason withheld\n[+]store-quota ok\nlivez check failed\n"
        )
    );
}

/// A task that waits to be restarted is no reason to send requests elsewhere for good, and none to restart the process.
#[tokio::test(start_paused = true)]
async fn health_lists_the_tasks_of_the_process_by_name() {
    let apiserver = TestApiServer::open(Rules::kep());
    let supervisor = Supervisor::new(Policy { failing_after: 2, ..Policy::default() });
    apiserver.server.show_tasks(&supervisor);
    let runs = supervisor.keep("runs", std::future::pending);
    let mut failing = pin!(supervisor.keep("fails", || async { panic!("the task is broken") }));
    let health = async |path: &str| {
        let (status, _, bytes) = apiserver.request_with_headers(Method::GET, path, &[], "").await;
        (status.as_u16(), String::from_utf8(bytes.to_vec()).unwrap())
    };
    let checks = |fails: &str, rest: &str| {
        format!("[+]ping ok\n[+]log ok\n[+]etcd ok\n[+]store-quota ok\n{fails}\n[+]task/runs ok\n{rest}")
    };
    let (ok, withheld) = ("[+]task/fails ok", "[-]task/fails failed: reason withheld");
    assert_eq!(health("/livez?verbose").await, (200, checks(ok, "livez check passed\n")));

    // It fails for the first time.
    assert!(poll_fn(|context| Poll::Ready(failing.as_mut().poll(context))).await.is_pending());
    assert_eq!(health("/livez?verbose").await, (200, checks(ok, "livez check passed\n")));
    let unready = checks(withheld, "[+]shutdown ok\nreadyz check failed\n");
    assert_eq!(health("/readyz").await, (500, unready));
    let why = "internal server error: panicked: the task is broken\n".to_owned();
    assert_eq!(health("/readyz/task/fails").await, (500, why));
    assert_eq!(health("/readyz/task/runs").await, (200, "ok".to_owned()));
    assert_eq!(health("/readyz/task/none").await.0, 404);

    // And again.
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(poll_fn(|context| Poll::Ready(failing.as_mut().poll(context))).await.is_pending());
    assert_eq!(health("/livez").await, (500, checks(withheld, "livez check failed\n")));
    assert_eq!(health("/readyz?exclude=task/fails").await, (200, "ok".to_owned()));
    let figures = figures(&apiserver).await;
    assert_eq!(figures["plumb_task_restarts_total{task=\"fails\",cause=\"panic\"}"], "2");
    assert_eq!(figures["plumb_tasks{state=\"waiting\"}"], "1");
    drop(runs);
}
