//! The same from a real Prometheus: Debian's package `prometheus` has all that is needed.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use plumb_recommender::input::prometheus::PrometheusSettings;
use plumb_recommender::offline::fleet::Fleet;
use plumb_recommender::{AggregationConfig, AggregationSettings, EstimationSettings};
use plumb_testkit::{TIMEOUT, free_port};

use super::{now, prometheus, settings};

/// Two days of a Deployment with two pods, one of which was restarted, in `OpenMetrics`.
fn open_metrics() -> String {
    const STEP: i64 = 300;
    let end = now().as_second();
    let start = end - 2 * 86_400;
    let series = |pod: &str, id: &str| {
        format!("job=\"kubelet\",namespace=\"default\",pod=\"{pod}\",container=\"web\",id=\"{id}\"")
    };
    // (labels, from, to, cores)
    let restarted = start + 86_400;
    let lives = [
        (series("web-5d8c7b9f4-x2x4z", "a"), start, restarted, 0.2),
        (series("web-5d8c7b9f4-x2x4z", "b"), restarted, end, 0.4),
        (series("web-5d8c7b9f4-bcdfg", "c"), start, end, 0.2),
    ];
    let mut text = String::from("# TYPE container_cpu_usage_seconds counter\n");
    for (labels, from, to, cores) in &lives {
        for at in (*from..=*to).step_by(usize::try_from(STEP).unwrap()) {
            #[expect(clippy::cast_precision_loss, reason = "a few days")]
            let seconds = (at - from) as f64 * cores;
            writeln!(text, "container_cpu_usage_seconds_total{{{labels}}} {seconds} {at}").unwrap();
        }
    }
    text.push_str("# TYPE container_memory_working_set_bytes gauge\n");
    for (labels, from, to, _) in &lives {
        for at in (*from..=*to).step_by(usize::try_from(STEP).unwrap()) {
            writeln!(text, "container_memory_working_set_bytes{{{labels}}} 300000000 {at}").unwrap();
        }
    }
    text.push_str("# TYPE kube_pod_container_resource_requests gauge\n");
    for pod in ["web-5d8c7b9f4-x2x4z", "web-5d8c7b9f4-bcdfg"] {
        let labels = format!("namespace=\"default\",pod=\"{pod}\",container=\"web\",resource=\"cpu\"");
        writeln!(text, "kube_pod_container_resource_requests{{{labels}}} 1 {end}").unwrap();
    }
    text.push_str("# EOF\n");
    text
}

struct Server {
    child: Child,
    address: String,
}

impl Server {
    /// Starts Prometheus on data that is there already: nothing is scraped, so nothing has to be waited for.
    fn start(folder: &Path) -> Self {
        std::fs::write(folder.join("history.om"), open_metrics()).unwrap();
        std::fs::write(folder.join("prometheus.yml"), "scrape_configs: []\n").unwrap();
        let blocks = Command::new("promtool")
            .args(["tsdb", "create-blocks-from", "openmetrics", "history.om", "data"])
            .current_dir(folder)
            .output()
            .unwrap();
        assert!(blocks.status.success(), "{}", String::from_utf8_lossy(&blocks.stderr));
        let free = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let child = Command::new("prometheus")
            .args([
                "--config.file=prometheus.yml",
                "--storage.tsdb.path=data",
                "--storage.tsdb.retention.time=100y",
            ])
            .arg(format!("--web.listen-address={free}"))
            .current_dir(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, address: format!("http://{free}") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
#[ignore = "needs Debian's package prometheus"]
async fn a_real_prometheus_gives_the_history_of_a_restarted_container() {
    if Command::new("promtool").arg("--version").output().is_err() {
        plumb_testkit::skip(
            plumb_testkit::PROMETHEUS,
            "promtool is not installed (apt-get install prometheus)",
        );
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let settings = PrometheusSettings {
        cadvisor_job_name: "kubelet".to_owned(),
        history_length: Duration::from_hours(47),
        history_resolution: Duration::from_mins(10),
        ..settings(&server.address)
    };
    let asking = prometheus(settings.clone());
    // It answers once it has opened its data.
    let ready = async {
        while asking.instant("vector(1)".to_owned(), now()).collect().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, ready).await.unwrap();

    let config = AggregationConfig::new(AggregationSettings::default()).unwrap();
    let mut fleet = Fleet::new(&config);
    fleet.read(&asking, now(), None, settings.history_length, |_| ()).await.unwrap();
    assert!(fleet.discarded().is_empty(), "{:?}", fleet.discarded());
    let report = fleet.report(&EstimationSettings::default());
    assert_eq!(report.rows.len(), 1, "{report:?}");
    let row = &report.table()[1];
    assert_eq!(row[..5], ["default", "Deployment/web", "web", "2", "1"]);
    // 0.4 cores lie in the bucket that ends at 414m, and 15 % more are 476m.
    assert_eq!(row[5], "476m");
    assert!(report.rows[0].samples > 550, "{report:?}");

    let why = prometheus(PrometheusSettings { cadvisor_job_name: "other".to_owned(), ..settings });
    assert!(why.why_empty(now()).await.unwrap().contains("but kubelet"));
}
