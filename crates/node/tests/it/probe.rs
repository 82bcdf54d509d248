//! Probes of containers, against servers on this machine.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, LifecycleHandler, Probe};
use plumb_node::lifecycle::{Health, Startup};
use plumb_node::probe::{Kind, Outcome, ProbeReport, ProbeUpdate, Prober, Target, initial_health};
use plumb_runtime::types::{ContainerConfig, ContainerMeta, PodMeta, QosClass, SandboxConfig};
use plumb_runtime::{Runtime, Virtual, VirtualConfig};
use plumb_supervise::Supervisor;
use plumb_testkit::{TIMEOUT, in_time};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A container of the virtual runtime, with this model.
async fn target(container: Value, model: &str) -> Target {
    let runtime = Arc::new(Virtual::new(VirtualConfig {
        now: Timestamp::UNIX_EPOCH,
        pod_network: Ipv4Addr::LOCALHOST,
    }));
    let meta = PodMeta { name: "p".into(), namespace: "n".into(), uid: "u".into(), attempt: 0 };
    let mut sandbox = SandboxConfig::new(meta, QosClass::BestEffort);
    sandbox.annotations.insert("virtual.plumb.dev/model".into(), model.into());
    let sandbox = runtime.run_sandbox(sandbox).await.unwrap();
    let meta = ContainerMeta { name: "c".into(), attempt: 0 };
    let config = ContainerConfig { meta, image: "i".into(), ..ContainerConfig::default() };
    let id = runtime.create_container(&sandbox, config).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    let mut container = container;
    container["name"] = json!("c");
    let container: Container = serde_json::from_value(container).unwrap();
    Target {
        runtime,
        id,
        container,
        pod_ip: Some(HERE),
        on_host_network: false,
        reachable: true,
        running_for: Duration::ZERO,
    }
}

/// The result of one check.
async fn check(probe: Value) -> Outcome {
    let target = target(json!({ "ports": [{ "name": "web", "containerPort": 1 }] }), "").await;
    let probe: Probe = serde_json::from_value(probe).unwrap();
    in_time(target.check(&probe, TIMEOUT / 2)).await
}

/// A server that responds by the path of a request.
async fn server() -> SocketAddr {
    let listener = TcpListener::bind((HERE, 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(
                TokioIo::new(stream),
                service_fn(move |request: Request<Incoming>| async move {
                    Ok::<_, Infallible>(answer(&request, at))
                }),
            ));
        }
    });
    at
}

fn answer(request: &Request<Incoming>, at: SocketAddr) -> Response<Full<Bytes>> {
    let header =
        |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let rejected = |to: String| {
        Response::builder().status(302).header("location", to).body("over there".into()).unwrap()
    };
    let say = |code: u16| Response::builder().status(code).body(Full::default()).unwrap();
    match request.uri().path() {
        "/ok" => say(200),
        "/agent" => say(if header("user-agent").starts_with("kube-probe/") && header("accept") == "*/*" {
            200
        } else {
            500
        }),
        "/header" => {
            say(if header("x-token") == "t" && header("host") == "name.example" { 204 } else { 500 })
        }
        "/query" => say(if request.uri().query() == Some("a=%20b") { 200 } else { 500 }),
        "/turn" => rejected("/ok".into()),
        "/turn-whole" => rejected(format!("http://{at}/ok")),
        "/turn-away" => rejected("http://elsewhere.example/ok".into()),
        "/turn-round" => rejected("/turn-round".into()),
        _ => say(503),
    }
}

#[tokio::test]
async fn an_answer_over_http_is_judged_by_its_code() {
    let at = server().await;
    let get = |path: &str| json!({ "httpGet": { "path": path, "port": at.port() } });
    let failed = |why: String| Outcome::Failure(why);
    let url = |path: &str| format!("Get \"http://127.0.0.1:{}{path}\"", at.port());
    let table = [
        (get("/ok"), Outcome::Success),
        (get("ok"), Outcome::Success),
        (get("/agent"), Outcome::Success),
        (get("/query?a= b"), Outcome::Success),
        (get("/turn"), Outcome::Success),
        (get("/turn-whole"), Outcome::Success),
        (get("/turn-away"), Outcome::Warning("Probe terminated redirects, Response body: over there".into())),
        (get("/turn-round"), failed(format!("{}: stopped after 10 redirects", url("/turn-round")))),
        (get("/gone"), failed("HTTP probe failed with statuscode: 503".into())),
        (
            json!({ "httpGet": { "path": "/header", "port": at.port().to_string(), "host": "127.0.0.1", "httpHeaders": [
                { "name": "X-Token", "value": "t" }, { "name": "Host", "value": "name.example" },
            ]}}),
            Outcome::Success,
        ),
        (
            json!({ "httpGet": { "port": "nameless" } }),
            Outcome::Error("strconv.Atoi: parsing \"nameless\": invalid syntax".into()),
        ),
        (
            json!({ "httpGet": { "port": "web" } }),
            failed("Get \"http://127.0.0.1:1/\": dial tcp 127.0.0.1:1: connect: connection refused".into()),
        ),
    ];
    for (probe, expected) in table {
        assert_eq!(check(probe.clone()).await, expected, "{probe}");
    }
}

#[tokio::test]
async fn a_probe_of_a_pod_with_its_own_network_does_not_reach_the_loopback_of_the_node() {
    let at = server().await;
    let mut pod = target(json!({}), "").await;
    pod.pod_ip = Some(Ipv4Addr::new(192, 0, 2, 7).into());
    for host in ["127.0.0.1", "localhost", "::ffff:127.0.0.1", "0.0.0.0"] {
        let probes = [
            json!({ "httpGet": { "path": "/ok", "port": at.port(), "host": host } }),
            json!({ "tcpSocket": { "port": at.port(), "host": host } }),
        ];
        for probe in probes {
            let probe: Probe = serde_json::from_value(probe).unwrap();
            let outcome = in_time(pod.check(&probe, TIMEOUT / 2)).await;
            let Outcome::Failure(why) = &outcome else { panic!("{host}: {outcome:?}") };
            assert!(why.ends_with("address not allowed"), "{host}: {why}");
        }
        let hook = json!({ "httpGet": { "path": "/ok", "port": at.port(), "host": host } });
        let hook: LifecycleHandler = serde_json::from_value(hook).unwrap();
        let outcome = in_time(pod.run_hook(&hook, TIMEOUT / 2)).await;
        assert!(matches!(outcome, Outcome::Failure(_)), "{host}: {outcome:?}");
    }
    // A pod on the node's network has the node's loopback interface.
    pod.on_host_network = true;
    let probe = json!({ "httpGet": { "path": "/ok", "port": at.port(), "host": "127.0.0.1" } });
    let probe: Probe = serde_json::from_value(probe).unwrap();
    assert_eq!(in_time(pod.check(&probe, TIMEOUT / 2)).await, Outcome::Success);
}

#[tokio::test]
async fn a_hook_over_http_succeeds_with_any_response() {
    let at = server().await;
    let target = target(json!({}), "").await;
    let run = async |port: u16, path: &str| {
        let hook = json!({ "httpGet": { "path": path, "port": port } });
        let hook: LifecycleHandler = serde_json::from_value(hook).unwrap();
        in_time(target.run_hook(&hook, TIMEOUT / 2)).await
    };
    for path in ["/ok", "/gone", "/turn-away"] {
        assert_eq!(run(at.port(), path).await, Outcome::Success, "{path}");
    }
    assert!(matches!(run(1, "/ok").await, Outcome::Failure(_)));
}

#[tokio::test]
async fn certificates_that_pods_made_up_are_believed() {
    plumb_apiserver::serve::install_crypto();
    let folder = tempfile::tempdir().unwrap();
    let clock = Arc::new(plumb_apiserver::pki::SystemClock);
    let pki = plumb_apiserver::pki::Pki::open(folder.path(), ["127.0.0.1".to_owned()], clock).unwrap();
    let tls = plumb_apiserver::serve::tls(&pki).unwrap();
    let listener = TcpListener::bind((HERE, 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let stream = tokio_rustls::TlsAcceptor::from(tls).accept(stream).await.unwrap();
        let service =
            service_fn(
                move |request: Request<Incoming>| async move { Ok::<_, Infallible>(answer(&request, at)) },
            );
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await
    });
    let probe = json!({ "httpGet": { "path": "/ok", "port": at.port(), "scheme": "HTTPS" } });
    assert_eq!(check(probe).await, Outcome::Success);
}

#[tokio::test]
async fn a_socket_is_well_if_it_can_be_connected_to() {
    let at = server().await;
    assert_eq!(check(json!({ "tcpSocket": { "port": at.port() } })).await, Outcome::Success);
    let refused = Outcome::Failure("dial tcp 127.0.0.1:1: connect: connection refused".into());
    assert_eq!(check(json!({ "tcpSocket": { "port": 1 } })).await, refused);
    let invalid = Outcome::Error("invalid port number: 0".into());
    assert_eq!(check(json!({ "tcpSocket": { "port": 0 } })).await, invalid);
}

/// A server that speaks the health protocol of gRPC.
async fn grpc_server() -> SocketAddr {
    let listener = TcpListener::bind((HERE, 0)).await.unwrap();
    let at = listener.local_addr().unwrap();
    let respond = service_fn(|request: Request<Incoming>| async move {
        let path = request.uri().path().to_owned();
        let asked = request.into_body().collect().await.unwrap().to_bytes();
        // After the frame's five bytes and the field's two comes the name.
        let state = match asked.get(7..).unwrap_or_default() {
            b"" => 1,
            b"sick" => 2,
            _ => 3,
        };
        assert_eq!(path, "/grpc.health.v1.Health/Check");
        let (code, message) = if asked.ends_with(b"none") { ("12", "unknown service") } else { ("0", "") };
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", code.parse().unwrap());
        trailers.insert("grpc-message", message.parse().unwrap());
        let frames = [
            Ok::<_, Infallible>(Frame::data(Bytes::from(vec![0, 0, 0, 0, 2, 8, state]))),
            Ok(Frame::trailers(trailers)),
        ];
        let body = StreamBody::new(futures_util::stream::iter(frames));
        Ok::<_, Infallible>(
            Response::builder().header("content-type", "application/grpc").body(body).unwrap(),
        )
    });
    tokio::spawn(async move {
        loop {
            let Ok((stream, _)) = listener.accept().await else { return };
            let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            tokio::spawn(http.serve_connection(TokioIo::new(stream), respond));
        }
    });
    at
}

#[tokio::test]
async fn a_grpc_service_reports_its_own_health() {
    let at = grpc_server().await;
    let ask = |service: &str| json!({ "grpc": { "port": at.port(), "service": service } });
    let failed = |why: &str| Outcome::Failure(why.into());
    let table = [
        ("", Outcome::Success),
        ("sick", failed("service unhealthy (responded with \"NOT_SERVING\")")),
        ("other", failed("service unhealthy (responded with \"SERVICE_UNKNOWN\")")),
        (
            "none",
            failed(
                "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): unknown service",
            ),
        ),
    ];
    for (service, expected) in table {
        assert_eq!(check(ask(service)).await, expected, "{service}");
    }
    let refused = check(json!({ "grpc": { "port": 1 } })).await;
    let why = "error: failed to connect service at \"127.0.0.1:1\": dial tcp 127.0.0.1:1: connect: connection refused";
    assert_eq!(refused, failed(why));
}

/// The updates of a prober, without those that are only counted.
async fn update(reports: &mut mpsc::UnboundedReceiver<ProbeReport>) -> ProbeUpdate {
    loop {
        match in_time(reports.recv()).await.unwrap().update {
            ProbeUpdate::Checked { .. } => {}
            update => return update,
        }
    }
}

fn exec() -> Value {
    json!({ "exec": { "command": ["true"] }, "periodSeconds": 1, "failureThreshold": 3 })
}

#[tokio::test(start_paused = true)]
async fn other_probes_wait_until_the_container_has_started() {
    let container = json!({ "startupProbe": exec(), "readinessProbe": exec(), "livenessProbe": exec() });
    let target = target(container, "startup=1500ms").await;
    let first = initial_health(&target.container);
    assert_eq!(first, Health { startup: Startup::UnderWay, live: true, ready: false });
    let (report, mut reports) = mpsc::unbounded_channel();
    let _prober = Prober::start(target, first, report, &Supervisor::default()).unwrap();
    let unhealthy = || ProbeUpdate::Event { reason: "Unhealthy", message: "Startup probe failed: ".into() };
    assert_eq!(update(&mut reports).await, unhealthy(), "at once");
    assert_eq!(update(&mut reports).await, unhealthy(), "after one second");
    let started = Health { startup: Startup::Over, live: true, ready: false };
    assert_eq!(update(&mut reports).await, ProbeUpdate::Health(started));
    assert_eq!(update(&mut reports).await, ProbeUpdate::Health(Health { ready: true, ..started }));
}

#[tokio::test(start_paused = true)]
async fn a_container_that_does_not_start_in_time_has_failed() {
    let target = target(json!({ "startupProbe": exec(), "livenessProbe": exec() }), "startup=1h").await;
    let first = initial_health(&target.container);
    let (report, mut reports) = mpsc::unbounded_channel();
    let _prober = Prober::start(target, first, report, &Supervisor::default()).unwrap();
    for _ in 0..3 {
        assert!(matches!(update(&mut reports).await, ProbeUpdate::Event { .. }));
    }
    let failed = Health { startup: Startup::Failed, live: true, ready: true };
    assert_eq!(update(&mut reports).await, ProbeUpdate::Health(failed));
    assert_eq!(reports.recv().await, None, "nothing more is asked");
}

#[tokio::test(start_paused = true)]
async fn no_probe_runs_before_the_delay_or_after_the_handle_is_dropped() {
    let mut liveness = exec();
    liveness["initialDelaySeconds"] = json!(30);
    let mut target = target(json!({ "livenessProbe": liveness }), "").await;
    target.running_for = Duration::from_secs(10);
    let first = initial_health(&target.container);
    let (report, mut reports) = mpsc::unbounded_channel::<ProbeReport>();
    let began = tokio::time::Instant::now();
    let prober = Prober::start(target, first, report, &Supervisor::default()).unwrap();
    let report = reports.recv().await.unwrap();
    assert_eq!(report.update, ProbeUpdate::Checked { kind: Kind::Liveness, result: "successful" });
    assert_eq!(began.elapsed().as_secs(), 20, "it had run for ten seconds");
    drop(prober);
    while let Some(report) = reports.recv().await {
        assert!(matches!(report.update, ProbeUpdate::Checked { .. }));
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_known_health_holds_until_a_probe_changes_it() {
    let container = json!({ "startupProbe": exec(), "readinessProbe": exec(), "livenessProbe": exec() });
    let target = target(container, "startup=1h").await;
    let known = Health { startup: Startup::Over, live: true, ready: true };
    let (report, mut reports) = mpsc::unbounded_channel();
    let _prober = Prober::start(target, known, report, &Supervisor::default()).unwrap();
    let mut healths = Vec::new();
    while healths.len() < 2 {
        if let ProbeUpdate::Health(health) = update(&mut reports).await {
            healths.push(health);
        }
    }
    assert_eq!(healths[0].startup, Startup::Over);
    assert_eq!(healths[1], Health { startup: Startup::Over, live: false, ready: false });
}

#[tokio::test(start_paused = true)]
async fn an_unreachable_pod_has_the_health_that_its_runtime_reports() {
    let mut target = target(json!({}), "startup=10s").await;
    target.reachable = false;
    let probe: Probe = serde_json::from_value(json!({ "httpGet": { "port": 80 } })).unwrap();
    assert_eq!(target.check(&probe, Duration::from_secs(1)).await, Outcome::Failure(String::new()));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(target.check(&probe, Duration::from_secs(1)).await, Outcome::Success);
}

#[tokio::test]
async fn a_container_without_probes_is_not_probed() {
    let target = target(json!({}), "").await;
    assert_eq!(initial_health(&target.container), Health::default());
    let (report, _reports) = mpsc::unbounded_channel::<ProbeReport>();
    assert!(Prober::start(target, Health::default(), report, &Supervisor::default()).is_none());
}
