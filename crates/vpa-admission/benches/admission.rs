//! What the admission webhook adds to the creation of a pod, with 5,000 VPAs: its decision alone, and with HTTP, TLS and the API
//! server.
//!
//! `cargo bench -p plumb-vpa-admission --bench admission`; `PLUMB_BENCH_VPAS` and `PLUMB_BENCH_PODS` make it smaller.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, not a service")]

#[path = "../../updater/benches/common/cluster.rs"]
mod cluster;
#[path = "../../updater/benches/common/figure.rs"]
mod figure;
#[path = "../tests/common/in_process_webhook.rs"]
mod in_process_webhook;

use std::time::{Duration, Instant};

use kube::api::PostParams;
use plumb_client::Api;
use plumb_controller_runtime::metrics::Metrics;
use plumb_controller_runtime::{Clock, Informer};
use plumb_supervise::Supervisor;
use plumb_testkit::object;
use plumb_vpa::namespaces::Namespaces;
use plumb_vpa::target::TargetConfig;
use plumb_vpa_admission::metrics::AdmissionMetrics;
use plumb_vpa_admission::registration::registration;
use plumb_vpa_admission::status_lease::StatusLease;
use plumb_vpa_admission::{Admission, Environment, Options};
use plumb_vpa_api::VerticalPodAutoscaler;
use plumb_webhook::Reviewer as _;
use serde_json::json;

use cluster::{Bed, p50_and_p99, size};
use figure::figure;
use in_process_webhook::{GATES, InProcessWebhook};

/// How many workloads the pods belong to; the others have VPAs alone.
const WORKLOADS: usize = 50;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let (vpas, pods) = (size("PLUMB_BENCH_VPAS", 5_000), size("PLUMB_BENCH_PODS", 2_000));
    let bed = Bed::start().await;
    let mut owners = Vec::new();
    for number in 0..WORKLOADS.min(vpas) {
        owners.push(bed.workload(&format!("w{number}"), 3).await);
    }
    for number in 0..vpas {
        let boost = json!({ "startupBoost": { "cpu": { "type": "Factor", "factor": 3 } } });
        bed.vpa(&format!("w{number}"), boost).await;
        bed.recommend(&format!("w{number}"), "150m").await;
    }
    decide(&bed, &owners, pods).await;
    let without = create(&bed, &owners, "plain", pods).await;
    let _running = serve(&bed).await;
    let with = create(&bed, &owners, "admitted", pods).await;
    figure("plain", "a pod is created without the webhook (p50)", without.0);
    figure("admitted", &format!("a pod is created with it and {vpas} VPAs (p50)"), with.0);
    figure("admitted-p99", "the same (p99)", with.1);
    figure("added", "the webhook adds (p50)", with.0.saturating_sub(without.0));
    drop(bed.cluster);
}

/// Measures the decision alone.
async fn decide(bed: &Bed, owners: &[String], pods: usize) {
    let running = InProcessWebhook::start(&bed.client, TargetConfig::default()).await;
    let mut took = Vec::new();
    for number in 0..pods {
        let workload = number % owners.len();
        let pod = Bed::pod(&format!("w{workload}"), &owners[workload], &format!("p{number}"), "100m");
        let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
            "uid": "u", "resource": { "group": "", "version": "v1", "resource": "pods" }, "operation": "CREATE",
            "namespace": "default", "name": "", "object": pod,
        } });
        let body = serde_json::to_vec(&review).unwrap();
        let began = Instant::now();
        let answer = running.webhook.review(&body).await.unwrap();
        took.push(began.elapsed());
        assert!(answer.len() > 200, "a patch");
    }
    figure("decision", "of it the decision (p50)", p50_and_p99(took).0);
}

/// Creates pods one after the other.
async fn create(bed: &Bed, owners: &[String], name: &str, pods: usize) -> (Duration, Duration) {
    let api = bed.pods();
    let mut took = Vec::new();
    for number in 0..pods {
        let workload = number % owners.len();
        let pod =
            object(Bed::pod(&format!("w{workload}"), &owners[workload], &format!("{name}-{number}"), "100m"));
        let began = Instant::now();
        api.create(&PostParams::default(), &pod).await.unwrap();
        took.push(began.elapsed());
    }
    p50_and_p99(took)
}

/// Runs the webhook until what is returned is dropped, once the API server calls it.
async fn serve(bed: &Bed) -> tokio::task::JoinSet<()> {
    let vpas: Informer<VerticalPodAutoscaler> = Informer::default();
    let supervisor = Supervisor::default();
    let environment = Environment {
        client: bed.client.clone(),
        vpas: vpas.clone(),
        supervisor: supervisor.clone(),
        metrics: Metrics::default(),
        admission_metrics: AdmissionMetrics::default(),
        clock: Clock::default(),
    };
    let admission = Admission::new(options(), environment);
    let mut registered = admission.registered();
    let mut running = tokio::task::JoinSet::new();
    running.spawn(vpas.supervised(Api::all(bed.client.clone()), &supervisor));
    running.spawn(admission.run());
    registered.wait_for(|registered| *registered).await.unwrap();
    running
}

fn options() -> Options {
    let register = |endpoint| registration(endpoint, &Namespaces::All);
    Options {
        server: plumb_webhook::Options::on_loopback("kube-system", "vpa-webhook-ca", register),
        status_lease: StatusLease::new("kube-system", "bench"),
        max_allowed_cpu_boost: None,
        gates: GATES,
        node_selectors: false,
    }
}
