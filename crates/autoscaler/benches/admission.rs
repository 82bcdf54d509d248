//! What the admission webhook adds to the creation of a pod, with 5,000 VPAs: its decision alone, and with HTTP, TLS and the API
//! server.
//!
//! `cargo bench -p plumb-autoscaler --bench admission`; `PLUMB_BENCH_VPAS` and `PLUMB_BENCH_PODS` make it smaller.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark, not a service")]

#[path = "common/cluster.rs"]
mod cluster;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use kube::api::PostParams;
use plumb_autoscaler::admission::limits::NamespaceLimits;
use plumb_autoscaler::admission::metrics::AdmissionMetrics;
use plumb_autoscaler::admission::registration::registration;
use plumb_autoscaler::admission::status_lease::StatusLease;
use plumb_autoscaler::admission::vpa::Gates;
use plumb_autoscaler::admission::{Admission, Environment, Options, Said, Webhook};
use plumb_autoscaler::api::VerticalPodAutoscaler;
use plumb_autoscaler::namespaces::Namespaces;
use plumb_autoscaler::target::{TargetConfig, Targets};
use plumb_autoscaler::vpas::Vpas;
use plumb_client::Api;
use plumb_controller::metrics::Metrics;
use plumb_controller::{Clock, Informer};
use plumb_harness::object;
use plumb_supervise::Supervisor;
use plumb_webhook::{Certificates, Endpoint, Reviewer as _, TlsSettings};
use serde_json::json;

use cluster::{Bed, p50_and_p99, size};

/// How many workloads the pods belong to; the others have VPAs alone.
const WORKLOADS: usize = 50;

const GATES: Gates = Gates { startup_boost: true, in_place: true, per_vpa_config: true };

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
    let show = |what: &str, (p50, p99): (Duration, Duration)| println!("{what}: p50 {p50:?}, p99 {p99:?}");
    show("a pod is created without the webhook", without);
    show(&format!("a pod is created with it and {vpas} VPAs"), with);
    println!("added at p50: {:?}", with.0.saturating_sub(without.0));
    drop(bed.cluster);
}

/// Measures the decision alone.
async fn decide(bed: &Bed, owners: &[String], pods: usize) {
    let supervisor = Supervisor::default();
    let vpas: Informer<VerticalPodAutoscaler> = Informer::default();
    let targets = Targets::new(bed.client.clone(), TargetConfig::default());
    let index = Vpas::new(vpas.store(), targets, true);
    let limits = NamespaceLimits::new(&Metrics::default());
    let tasks = [
        tokio::spawn(vpas.supervised(Api::all(bed.client.clone()), &supervisor)),
        tokio::spawn(limits.run(&bed.client, &supervisor)),
    ];
    vpas.wait_for_sync().await;
    limits.wait_for_sync().await;
    let webhook = Webhook {
        vpas: index,
        limits,
        max_allowed_cpu_boost: None,
        gates: GATES,
        serves_resize: Arc::new(AtomicBool::new(true)),
        recorder: None,
        metrics: AdmissionMetrics::default(),
        supervisor,
        clock: Clock::default(),
        said: Said::default(),
    };
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
        let answer = webhook.review(&body).await.unwrap();
        took.push(began.elapsed());
        assert!(answer.len() > 200, "a patch");
    }
    let (p50, p99) = p50_and_p99(took);
    println!("the decision alone: p50 {p50:?}, p99 {p99:?}");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
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
    let endpoint = Endpoint::Url { host: "127.0.0.1".to_owned(), port: None };
    Options {
        server: plumb_webhook::Options {
            listen: "127.0.0.1:0".parse().unwrap(),
            certificates: Certificates::Own {
                namespace: "kube-system".to_owned(),
                name: "vpa-webhook-ca".to_owned(),
                hosts: endpoint.names(),
            },
            registration: Some(registration(endpoint, &Namespaces::All)),
            tls: TlsSettings::default(),
        },
        status_lease: StatusLease::new("kube-system", "bench"),
        max_allowed_cpu_boost: None,
        gates: GATES,
    }
}
