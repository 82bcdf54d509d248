//! Usage from Prometheus: from a server that answers as scripted, and from a real one.

pub(crate) mod fake;
mod real;

use std::time::Duration;

use jiff::Timestamp;
use plumb_recommender::input::prometheus::{
    Authentication, ContainerUsage, Prometheus, PrometheusError, PrometheusSettings, UsageSource as _,
};
use plumb_recommender::offline::fleet::Fleet;
use plumb_recommender::{AggregationConfig, AggregationSettings, EstimationSettings};
use plumb_resize::resource::Resource;
use plumb_supervise::Exponential;
use serde_json::{Value, json};

use fake::{Asked, Fake, Reply};

const NOW: &str = "2026-01-09T00:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

pub(crate) fn settings(address: &str) -> PrometheusSettings {
    PrometheusSettings { address: address.to_owned(), ..PrometheusSettings::default() }
}

/// A client that waits for no more than a millisecond between attempts.
pub(crate) fn prometheus(settings: PrometheusSettings) -> Prometheus {
    // Another test may have been faster.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Prometheus::with_delays(settings, Exponential::new(Duration::from_millis(1), Duration::from_millis(1)))
        .unwrap()
}

pub(crate) fn matrix(series: Value) -> Reply {
    Reply::ok(&json!({ "status": "success", "data": { "resultType": "matrix", "result": series } }))
}

pub(crate) fn vector(series: Value) -> Reply {
    Reply::ok(&json!({ "status": "success", "data": { "resultType": "vector", "result": series } }))
}

pub(crate) fn error(code: u16, kind: &str, message: &str) -> Reply {
    Reply::with(code, &json!({ "status": "error", "errorType": kind, "error": message }).to_string())
}

pub(crate) fn labels(pod: &str, container: &str) -> Value {
    json!({ "namespace": "default", "pod": pod, "container": container })
}

/// Answers a range query with a point at each of its steps.
pub(crate) fn points(asked: &Asked, value: &str) -> Value {
    let number = |name: &str| asked.field(name).parse::<f64>().unwrap();
    let (start, end, step) = (number("start"), number("end"), number("step"));
    let steps = (0..).map(|index| start + f64::from(index) * step).take_while(|at| *at <= end + 1e-6);
    steps.map(|at| json!([at, value])).collect()
}

async fn history(prometheus: &Prometheus) -> Result<Vec<ContainerUsage>, PrometheusError> {
    prometheus.history(now()).collect().await
}

#[tokio::test]
async fn history_is_queried_in_windows_and_returned_in_the_order_of_time() {
    let server = Fake::start(|asked| {
        matrix(json!([{ "metric": labels("web-0", "web"), "values": points(asked, "0.25") }]))
    })
    .await;
    let usage = history(&prometheus(settings(&server.address))).await.unwrap();
    let asked = server.asked();
    assert_eq!(asked.len(), 18, "nine windows of each resource");
    assert!(asked.iter().all(|asked| asked.method == "POST" && asked.path == "/api/v1/query_range"));
    assert!(
        asked[0]
            .field("query")
            .contains("rate(container_cpu_usage_seconds_total{job=\"kubernetes-cadvisor\"")
    );
    assert!(asked[9].field("query").contains("(container_memory_working_set_bytes{"));
    assert_eq!(asked[0].field("step"), "3600.000");
    assert_eq!(asked[0].field("start"), "1767225600.000");
    let cpu: Vec<i64> = usage
        .iter()
        .flat_map(|part| &part.samples)
        .filter(|sample| sample.resource == Resource::Cpu)
        .map(|sample| sample.at.unix_nanos().unwrap() / 1_000_000_000)
        .collect();
    assert_eq!(cpu, (0..=192).map(|hour| 1_767_225_600 + hour * 3_600).collect::<Vec<i64>>());
    assert_eq!((&*usage[0].namespace, &*usage[0].pod, &*usage[0].container), ("default", "web-0", "web"));
    assert_eq!(usage[0].samples[0].usage, 250);
}

#[tokio::test]
async fn a_window_that_is_too_large_is_halved_until_it_is_not() {
    let server = Fake::start(|asked| {
        let points = points(asked, "1");
        if points.as_array().unwrap().len() > 5 {
            return error(
                422,
                "execution",
                "query processing would load too many samples into memory in query execution",
            );
        }
        matrix(json!([{ "metric": labels("web-0", "web"), "values": points }]))
    })
    .await;
    let usage = history(&prometheus(settings(&server.address))).await.unwrap();
    assert_eq!(
        usage.iter().map(|part| part.samples.len()).sum::<usize>(),
        2 * 193,
        "no point is lost or twice there"
    );

    let never = Fake::start(|_| error(422, "execution", "too many samples")).await;
    let failed = history(&prometheus(settings(&never.address))).await.unwrap_err();
    assert!(matches!(&failed, PrometheusError::Query { kind, .. } if kind == "execution"), "{failed}");
    assert!(never.asked().len() < 10);
}

#[tokio::test]
async fn a_query_without_an_answer_is_repeated_a_few_times() {
    let replies =
        std::sync::Mutex::new(vec![Reply::broken(), Reply::with(503, "overloaded"), Reply::with(429, "")]);
    let server = Fake::start(move |asked| match replies.lock().unwrap().pop() {
        Some(reply) => reply,
        None => matrix(json!([{ "metric": labels("web-0", "web"), "values": points(asked, "1") }])),
    })
    .await;
    let usage = history(&prometheus(settings(&server.address))).await.unwrap();
    assert!(usage.len() >= 18);

    let down = Fake::start(|_| Reply::with(503, "down for maintenance\nuntil tomorrow")).await;
    let failed = history(&prometheus(settings(&down.address))).await.unwrap_err();
    assert_eq!(failed.to_string(), "the server answers 503 Service Unavailable: down for maintenance");
    assert_eq!(down.asked().len(), 5);
}

#[tokio::test]
async fn a_truncated_response_is_requested_again() {
    let broken = std::sync::atomic::AtomicBool::new(false);
    let server = Fake::start(move |asked| {
        let whole = matrix(json!([{ "metric": labels("web-0", "web"), "values": points(asked, "1") }]));
        if broken.swap(true, std::sync::atomic::Ordering::Relaxed) { whole } else { whole.cut_short() }
    })
    .await;
    let usage = history(&prometheus(settings(&server.address))).await.unwrap();
    assert_eq!(server.asked().len(), 19);
    let config = AggregationConfig::new(AggregationSettings::default()).unwrap();
    let mut fleet = Fleet::new(&config);
    for part in &usage {
        fleet.add(part);
    }
    assert_eq!(
        fleet.report(&EstimationSettings::default()).rows[0].samples,
        193,
        "what came twice counts once"
    );
}

#[tokio::test]
async fn errors_say_what_is_wrong_and_are_not_repeated() {
    let cases: [(Reply, &str); 5] = [
        (Reply::with(401, "no"), "the server refuses access: 401 Unauthorized"),
        (Reply::with(403, "no"), "the server refuses access: 403 Forbidden"),
        (error(400, "bad_data", "parse error"), "the query fails: bad_data: parse error"),
        (
            Reply::with(404, "<html>not here</html>"),
            "the server answers 404 Not Found: <html>not here</html>",
        ),
        (Reply::with(200, "<html>log in</html>"), "the answer cannot be read"),
    ];
    for (reply, expected) in cases {
        let server = Fake::start(move |_| reply.clone()).await;
        let failed = history(&prometheus(settings(&server.address))).await.unwrap_err();
        assert_eq!(failed.to_string(), expected);
        assert_eq!(server.asked().len(), 1, "{expected}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_answer_in_time_is_given_up() {
    let server = Fake::start(|_| Reply::never()).await;
    let impatient = PrometheusSettings {
        query_timeout: Duration::from_secs(2),
        history_length: Duration::ZERO,
        ..settings(&server.address)
    };
    let failed = history(&prometheus(impatient)).await.unwrap_err();
    assert!(matches!(failed, PrometheusError::Timeout(_)), "{failed}");
    assert_eq!(server.asked()[0].field("timeout"), "2000ms");
    let unreachable = prometheus(settings("http://127.0.0.1:1"));
    assert!(matches!(history(&unreachable).await.unwrap_err(), PrometheusError::Connection(_)));
}

#[tokio::test]
async fn credentials_are_sent_in_a_header_and_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "from-file\n").unwrap();
    let basic = |address: &str| address.replace("http://", "http://user:p%40ss@");
    for (authentication, in_address, expected) in [
        (Authentication::None, false, None),
        (Authentication::BearerToken("secret".to_owned().into()), false, Some("Bearer secret")),
        (Authentication::BearerTokenFile(file.clone()), false, Some("Bearer from-file")),
        (
            Authentication::Basic { username: "user".to_owned(), password: "p@ss".to_owned().into() },
            false,
            Some("Basic dXNlcjpwQHNz"),
        ),
        (Authentication::None, true, Some("Basic dXNlcjpwQHNz")),
    ] {
        let server = Fake::start(|_| Reply::with(401, "")).await;
        let address = if in_address { basic(&server.address) } else { server.address.clone() };
        let settings = PrometheusSettings { authentication, ..settings(&address) };
        let shown = format!("{:?}", settings.authentication);
        assert!(!shown.contains("secret") && !shown.contains("p@ss"), "{shown}");
        let failed = history(&prometheus(settings)).await.unwrap_err();
        assert!(!format!("{failed:?}").contains("p@ss") && !format!("{failed:?}").contains("secret"));
        let asked = server.asked();
        assert_eq!(
            asked.first().and_then(|asked| asked.header("authorization")).as_deref(),
            expected,
            "{failed:?}"
        );
    }
    let missing = PrometheusSettings {
        authentication: Authentication::BearerTokenFile(folder.path().join("missing")),
        ..PrometheusSettings::default()
    };
    assert!(matches!(Prometheus::new(missing).unwrap_err(), PrometheusError::TokenFile { .. }));
}

#[tokio::test]
async fn a_server_that_accepts_no_form_gets_the_query_in_the_url() {
    let server =
        Fake::start(|asked| if asked.method == "POST" { Reply::with(405, "") } else { matrix(json!([])) })
            .await;
    let below = format!("{}/prom/", server.address);
    assert_eq!(history(&prometheus(settings(&below))).await.unwrap(), []);
    let asked = server.asked();
    assert_eq!((asked[1].method.as_str(), asked[1].path.as_str()), ("GET", "/prom/api/v1/query_range"));
    assert!(asked[1].field("query").starts_with("max by (namespace, pod, container) (rate("));
}

#[tokio::test]
async fn values_that_are_no_amounts_are_reported_and_the_rest_counts() {
    let server = Fake::start(|_| {
        let values = json!([
            [1_767_225_600, "NaN"],
            [1_767_229_200, "-1"],
            [1_767_232_800, "0.5"],
            [1_767_236_400, "+Inf"]
        ]);
        matrix(
            json!([{ "metric": labels("a", "b"), "values": values }, { "metric": {}, "values": [[0, "1"]] }]),
        )
    })
    .await;
    let mut all = prometheus(settings(&server.address)).history(now());
    let first = all.next().await.unwrap().unwrap();
    assert_eq!(first.samples.len(), 2, "infinity is the largest amount");
    assert_eq!(first.discarded.len(), 2);
}

#[tokio::test]
async fn the_present_is_a_source_too_and_labels_of_pods_may_be_a_vector() {
    let server = Fake::start(|asked| {
        if asked.field("query").starts_with("up{") {
            let metric = json!({ "kubernetes_namespace": "default", "kubernetes_pod_name": "web-0", "pod_label_app": "web", "job": "x" });
            return vector(json!([{ "metric": metric, "value": [1_767_225_600, "1"] }, { "metric": {}, "value": [0, "1"] }]));
        }
        vector(json!([{ "metric": labels("web-0", "web"), "value": [1_767_225_600, "0.5"] }]))
    })
    .await;
    let prometheus = prometheus(settings(&server.address));
    let latest = prometheus.latest(now()).collect().await.unwrap();
    assert_eq!(latest.len(), 2);
    assert_eq!((latest[0].samples[0].resource, latest[0].samples[0].usage), (Resource::Cpu, 500));
    let pods = prometheus.pod_labels(now()).collect().await.unwrap();
    assert_eq!(pods.len(), 1);
    assert_eq!((pods[0].pod.as_str(), pods[0].labels["app"].as_str()), ("web-0", "web"));
}

#[tokio::test]
async fn an_empty_history_is_diagnosed() {
    let jobs = Fake::start(|asked| {
        let metric = json!([{ "metric": { "job": "kubelet" }, "value": [0, "12"] }]);
        if asked.field("query").starts_with("count by (job)") { vector(metric) } else { matrix(json!([])) }
    })
    .await;
    let why = |settings| async { prometheus(settings).why_empty(now()).await.unwrap() };
    assert_eq!(
        why(settings(&jobs.address)).await,
        "its metric container_cpu_usage_seconds_total has no job \"kubernetes-cadvisor\", but kubelet: \
         --prometheus-cadvisor-job-name chooses"
    );
    let any = PrometheusSettings { cadvisor_job_name: String::new(), ..settings(&jobs.address) };
    assert!(why(any).await.contains("has the labels namespace, pod and container"));
    let nothing = Fake::start(|_| vector(json!([]))).await;
    assert!(why(settings(&nothing.address)).await.starts_with("it has no metric"));
}

#[tokio::test]
async fn a_report_has_workloads_with_requests_and_recommendations() {
    let server = Fake::start(|asked| {
        let query = asked.field("query");
        let at = |metric: Value, value: &str| json!({ "metric": metric, "value": [1_767_225_600, value] });
        let owner = |owned: &str, name: &str, kind: &str, owner: &str| {
            at(json!({ "namespace": "default", owned: name, "owner_kind": kind, "owner_name": owner }), "1")
        };
        let request = |pod: &str, resource: &str, value: &str| {
            at(json!({ "namespace": "default", "pod": pod, "container": "web", "resource": resource }), value)
        };
        if query.contains("kube_replicaset_owner") {
            vector(json!([owner("replicaset", "web-1", "Deployment", "web")]))
        } else if query.contains("kube_job_owner") {
            vector(json!([
                owner("job_name", "backup-1", "CronJob", "backup"),
                owner("job_name", "backup-2", "CronJob", "backup"),
                owner("job_name", "migrate", "<none>", "<none>")
            ]))
        } else if query.contains("kube_pod_owner") {
            vector(json!([
                owner("pod", "web-1-a", "ReplicaSet", "web-1"),
                owner("pod", "web-1-b", "ReplicaSet", "web-1"),
                owner("pod", "backup-1-a", "Job", "backup-1"),
                owner("pod", "backup-2-a", "Job", "backup-2"),
                owner("pod", "migrate-a", "Job", "migrate"),
                owner("pod", "lone", "<none>", "<none>")
            ]))
        } else if query.contains("resource_requests") {
            vector(json!([
                request("web-1-a", "cpu", "1"),
                request("web-1-b", "cpu", "1"),
                request("web-1-a", "memory", "1073741824"),
                request("web-1-a", "ephemeral_storage", "1")
            ]))
        } else {
            let value = if query.contains("rate(") { "0.1" } else { "100000000" };
            let series = ["web-1-a", "web-1-b", "lone", "db-0", "backup-1-a", "backup-2-a", "migrate-a"];
            matrix(
                series
                    .map(|pod| json!({ "metric": labels(pod, "web"), "values": points(asked, value) }))
                    .into_iter()
                    .collect(),
            )
        }
    })
    .await;
    let config = AggregationConfig::new(AggregationSettings::default()).unwrap();
    let mut fleet = Fleet::new(&config);
    let prometheus = prometheus(settings(&server.address));
    fleet.read(&prometheus, now(), None, Duration::from_hours(192), |_| ()).await.unwrap();
    assert_eq!(fleet.samples(), 7 * 2 * 193);
    let report = fleet.report(&EstimationSettings::default());
    let table = report.table();
    let expected =
        ["default", "Deployment/web", "web", "2", "1", "126m", "-874m", "1Gi", "250Mi", "-774Mi", "386"];
    assert_eq!(table[2], expected);
    assert_eq!(table[4][1..9], ["Pod/lone", "web", "-", "-", "126m", "-", "-", "250Mi"]);
    let workloads: Vec<&str> = table[1..].iter().map(|row| row[1].as_str()).collect();
    // Both Jobs of a CronJob are one workload.
    assert_eq!(workloads, ["CronJob/backup", "Deployment/web", "Job/migrate", "Pod/lone", "StatefulSet/db"]);
    assert_eq!((table[1][10].as_str(), table[3][10].as_str()), ("386", "193"));
    let csv = report.csv();
    let mut lines = csv.lines();
    assert!(
        lines
            .next()
            .unwrap()
            .starts_with("namespace,kind,workload,container,pods,samples,cpu_millicores_request,")
    );
    assert!(lines.next().unwrap().starts_with("default,CronJob,backup,web,0,386,"));
    assert!(lines.next().unwrap().starts_with("default,Deployment,web,web,2,386,1000,126,"));
    let html = report.html("Usage of <a>");
    assert!(
        html.contains("<h1>Usage of &lt;a&gt;</h1>") && html.contains("<td class=\"n less\">-874m</td>"),
        "{html}"
    );
    assert!(html.contains("<p>cpu: 2 requested, 252m recommended</p>"), "{html}");
    assert_eq!(report.json()[1]["cpu"]["difference"], "-874m");
}
