//! A real Prometheus that scrapes our node gives the recommender its history. Debian's package `prometheus` has all that is
//! needed; `.ci/prometheus` runs this.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::ListParams;
use plumb_recommender::input::prometheus::{Prometheus, PrometheusSettings};
use plumb_testkit::{eventually, free_port, until};
use plumb_vpa_api::{VerticalPodAutoscaler, VerticalPodAutoscalerCheckpoint};
use serde_json::Value;

use super::cluster::{Cluster, admin_token};
use super::run::{FLAGS, Running, create_web};

/// A Prometheus, until it is dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Scrapes a node through the API server every second.
    fn start(folder: &Path, api_server: &str, token: &str, node: &str) -> Self {
        let config = format!(
            "scrape_configs:\n\
             - job_name: kubelet\n  scrape_interval: 1s\n  scrape_timeout: 1s\n  scheme: https\n  \
             metrics_path: /api/v1/nodes/{node}/proxy/metrics/resource\n  \
             authorization: {{ credentials: {token} }}\n  tls_config: {{ insecure_skip_verify: true }}\n  \
             static_configs: [{{ targets: ['{api_server}'] }}]\n"
        );
        std::fs::write(folder.join("prometheus.yml"), config).unwrap();
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let child = Command::new("prometheus")
            .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
            .arg(format!("--web.listen-address={free}"))
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, address: format!("http://{free}") }
    }

    /// Waits until a query has an answer.
    async fn knows(&self, query: &str) {
        let settings = PrometheusSettings { address: self.address.clone(), ..PrometheusSettings::default() };
        let prometheus = Prometheus::new(settings).unwrap();
        let answers = async || {
            let answer = prometheus.instant(query.to_owned(), jiff::Timestamp::now()).collect().await;
            answer.is_ok_and(|series| !series.is_empty())
        };
        eventually(answers).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Debian's package prometheus"]
async fn the_history_of_a_real_prometheus_that_scrapes_our_node_is_recommended_from_at_the_start() {
    if Command::new("prometheus").arg("--version").output().is_err() {
        plumb_testkit::skip(
            plumb_testkit::PROMETHEUS,
            "prometheus is not installed (apt-get install prometheus)",
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let cluster = Cluster::start_with(&data, &FLAGS);
    let client = cluster.client().await;
    plumb_vpa::install::install(&client).await.unwrap();
    create_web(&client).await;
    let nodes: Api<Node> = Api::all(client.clone());
    let node = nodes.list(&ListParams::default()).await.unwrap().items[0].metadata.name.clone().unwrap();
    let server = Server::start(folder.path(), &cluster.address().to_string(), &admin_token(&data), &node);
    // Twenty seconds of usage, of which each rate takes five.
    server.knows("count_over_time(container_cpu_usage_seconds_total{container=\"load\"}[1m]) >= 20").await;

    // One run before the history is read and one after it: whatever else there is comes from Prometheus.
    let recommender = Running::start(
        &cluster,
        "recommender",
        &[
            "--recommender-interval=1h",
            "--storage=prometheus",
            &format!("--prometheus-address={}", server.address),
            "--prometheus-cadvisor-job-name=kubelet",
            "--history-length=1m",
            "--history-resolution=5s",
        ],
    );
    let vpas: Api<VerticalPodAutoscaler> = Api::default_namespaced(client.clone());
    let is_recommended = |vpa: &VerticalPodAutoscaler| {
        vpa.status.as_ref().is_some_and(|status| status.recommendation.is_some())
    };
    let vpa = until(&vpas, "web", is_recommended).await;
    let recommendation = vpa.status.unwrap().recommendation.unwrap();
    let of_load = &recommendation.container_recommendations[0];
    assert_eq!((&*of_load.container_name, &*of_load.uncapped_target["cpu"].0), ("load", "247m"));
    let explained: Value =
        serde_json::from_str(&recommender.get("/debug/vpa/default/web?format=json").1).unwrap();
    let samples = explained["containers"][0]["samples"].as_u64().unwrap();
    assert!((4..=13).contains(&samples), "{explained}");
    // What Prometheus stores needs no checkpoints.
    let checkpoints: Api<VerticalPodAutoscalerCheckpoint> = Api::default_namespaced(client.clone());
    assert_eq!(checkpoints.list(&ListParams::default()).await.unwrap().items.len(), 0);
    assert!(recommender.stop().0.success());
}
