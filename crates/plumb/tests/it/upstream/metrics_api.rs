//! A metrics.k8s.io whose time passes when both recommenders have read it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, header};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::PostParams;
use kube::{Api, Client};
use rcgen::generate_simple_self_signed;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// How much time passes in a tick.
const TICK: SignedDuration = SignedDuration::from_mins(20);
/// The start of the history, before now: the memory windows of the last day are open when it ends.
const AGO: SignedDuration = SignedDuration::from_hours(38);
/// How long a tick may take: each recommender reads every second.
const TICK_WITHIN: Duration = Duration::from_mins(3);

/// How often each has read since the tick began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reads {
    upstream: u32,
    plumb: u32,
}

#[derive(Debug)]
struct State {
    start: Timestamp,
    tick: u32,
    pods: Vec<String>,
    containers: Vec<String>,
    reads: watch::Sender<Reads>,
}

/// The API, until it is dropped.
pub(super) struct MetricsApi {
    state: Arc<Mutex<State>>,
    reads: watch::Receiver<Reads>,
    port: u16,
    _serving: JoinSet<()>,
}

impl MetricsApi {
    pub(super) async fn start(pods: Vec<String>, containers: &[&str]) -> Self {
        let (reads, reading) = watch::channel(Reads::default());
        let state = Arc::new(Mutex::new(State {
            // To the second, as the API writes it.
            start: Timestamp::from_second((Timestamp::now() - AGO).as_second()).unwrap(),
            tick: 0,
            pods,
            containers: containers.iter().map(|name| (*name).to_owned()).collect(),
            reads,
        }));
        plumb_apiserver::serve::install_crypto();
        let certified = generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(certified.signing_key.serialize_der()).unwrap();
        let tls = ServerConfig::builder().with_no_client_auth();
        let tls = tls.with_single_cert(vec![certified.cert.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut serving = JoinSet::new();
        let shared = state.clone();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, state) = (acceptor.clone(), shared.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let answer = service_fn(move |request| {
                        let answer = answer(&state, &request);
                        async move { Ok::<_, std::convert::Infallible>(answer) }
                    });
                    let http = auto::Builder::new(TokioExecutor::new());
                    let _ = http.serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        });
        Self { state, reads: reading, port, _serving: serving }
    }

    /// Has an API server proxy it.
    pub(super) async fn register(&self, client: &Client) {
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.get("default").await.unwrap();
        let service: Service = serde_json::from_value(json!({
            "metadata": { "name": "metrics" },
            "spec": { "type": "ExternalName", "externalName": "localhost", "ports": [{ "port": self.port }] },
        }))
        .unwrap();
        let services: Api<Service> = Api::namespaced(client.clone(), "default");
        services.create(&PostParams::default(), &service).await.unwrap();
        let registered: APIService = serde_json::from_value(json!({
            "metadata": { "name": "v1beta1.metrics.k8s.io" },
            "spec": {
                "group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true,
                "service": { "namespace": "default", "name": "metrics", "port": self.port },
            },
        }))
        .unwrap();
        let all: Api<APIService> = Api::all(client.clone());
        all.create(&PostParams::default(), &registered).await.unwrap();
    }

    /// The time of the present tick.
    pub(super) fn now(&self) -> Timestamp {
        self.state.lock().unwrap().now()
    }

    /// Lets so many ticks pass, each once both have read it.
    pub(super) async fn pass(&self, ticks: u32) {
        for _ in 0..ticks {
            self.advance();
            self.read_again(1).await;
        }
    }

    /// Lets a tick pass that may not have been read.
    pub(super) fn advance(&self) {
        let mut state = self.state.lock().unwrap();
        state.tick += 1;
        state.reads.send_replace(Reads::default());
    }

    /// Waits until both have read the present tick so many times more.
    pub(super) async fn read_again(&self, times: u32) {
        let mut reads = self.reads.clone();
        let start = *reads.borrow_and_update();
        let enough =
            |reads: &Reads| reads.upstream >= start.upstream + times && reads.plumb >= start.plumb + times;
        let waited = tokio::time::timeout(TICK_WITHIN, reads.wait_for(enough)).await;
        assert!(waited.is_ok(), "not both recommenders read: {:?}", *self.reads.borrow());
    }
}

impl State {
    fn now(&self) -> Timestamp {
        self.start + TICK * i32::try_from(self.tick).unwrap()
    }

    /// What containers use: a day that rises and falls, another for each container and pod.
    fn pods(&self) -> Value {
        let tick = i64::from(self.tick);
        let items = (0..).zip(&self.pods).map(|(number, pod)| {
            let containers = (0..).zip(&self.containers).map(|(index, name)| {
                let wave = (tick * 37 + number * 11 + index * 5) % 60;
                let cpu = 20 + index * 300 + wave * (7 + number);
                let memory = 90_000_000 + index * 400_000_000 + wave * 3_000_000 + tick * 100_000;
                json!({ "name": name, "usage": { "cpu": format!("{cpu}m"), "memory": memory.to_string() } })
            });
            json!({
                "metadata": { "name": pod, "namespace": "default" },
                "timestamp": self.now().to_string(), "window": "30s",
                "containers": containers.collect::<Vec<_>>(),
            })
        });
        json!({
            "kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": {},
            "items": items.collect::<Vec<_>>(),
        })
    }
}

fn answer(state: &Mutex<State>, request: &Request<Incoming>) -> Response<String> {
    let agent = request.headers().get(header::USER_AGENT).and_then(|agent| agent.to_str().ok());
    let body = match request.uri().path() {
        "/apis/metrics.k8s.io/v1beta1/pods" => {
            let state = state.lock().unwrap();
            // Go's clients call themselves after their program.
            let is_upstream = agent.is_some_and(|agent| agent.starts_with("vpa-recommender"));
            state.reads.send_modify(|reads| {
                *(if is_upstream { &mut reads.upstream } else { &mut reads.plumb }) += 1;
            });
            state.pods()
        }
        "/apis/metrics.k8s.io/v1beta1" => json!({
            "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "metrics.k8s.io/v1beta1",
            "resources": [{
                "name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": ["get", "list"],
            }],
        }),
        "/apis/metrics.k8s.io" => json!({
            "kind": "APIGroup", "apiVersion": "v1", "name": "metrics.k8s.io",
            "versions": [{ "groupVersion": "metrics.k8s.io/v1beta1", "version": "v1beta1" }],
            "preferredVersion": { "groupVersion": "metrics.k8s.io/v1beta1", "version": "v1beta1" },
        }),
        _ => {
            let mut missing = Response::new("not found".to_owned());
            *missing.status_mut() = hyper::StatusCode::NOT_FOUND;
            return missing;
        }
    };
    let mut response = Response::new(body.to_string());
    response.headers_mut().insert(header::CONTENT_TYPE, "application/json".parse().unwrap());
    response
}
