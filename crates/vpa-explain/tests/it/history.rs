//! The history of a workload from a file, through the engine.

use std::fmt::Write as _;

use plumb_recommender::offline::history::History;
use plumb_recommender::offline::plot;
use plumb_recommender::{AggregationConfig, AggregationSettings, Discarded, EstimationSettings};
use plumb_vpa_api::RecommendedContainerResources;
use serde_json::{Value, json};

fn config() -> AggregationConfig {
    AggregationConfig::new(AggregationSettings::default()).unwrap()
}

fn history<'a>(config: &'a AggregationConfig, csv: &str) -> History<'a> {
    let mut history = History::new(config);
    history.read(csv.as_bytes(), |_, _| ()).unwrap();
    history
}

/// What is recommended, as the status of a VPA has it.
fn recommended(history: &History<'_>) -> Value {
    let recommended = history.workload.recommend(&EstimationSettings::default());
    let containers = recommended.iter().map(RecommendedContainerResources::from);
    serde_json::to_value(containers.collect::<Vec<_>>()).unwrap()
}

/// A day of samples, one a minute, from the New Year of 2026 on.
fn day() -> String {
    let mut csv = String::from("time,container,resource,value\n");
    for minute in 0..1440_i64 {
        let at = 1_767_225_600 + 60 * minute;
        let milli = 50 + minute * 37 % 900;
        let bytes = 100_000_000 + minute * 7919 % 900 * 1_000_000;
        writeln!(csv, "{at},web,cpu,{}.{:03}\n{at},web,memory,{bytes}", milli / 1000, milli % 1000).unwrap();
    }
    csv
}

#[test]
fn the_golden_vectors_come_out_of_a_file() {
    let config = config();
    let one = history(&config, "2026-01-01T00:00:00Z,a,cpu,0.1\n2026-01-01T00:00:00Z,a,memory,1e8\n");
    let target = json!({ "cpu": "126m", "memory": "250Mi" });
    assert_eq!(
        recommended(&one),
        json!([{
            "containerName": "a", "target": target, "uncappedTarget": target,
            "lowerBound": { "cpu": "25m", "memory": "250Mi" },
            "upperBound": { "cpu": "100G", "memory": "97656250000Ki" },
        }])
    );

    let target = json!({ "cpu": "1038m", "memory": "1168723596" });
    assert_eq!(
        recommended(&history(&config, &day())),
        json!([{
            "containerName": "web", "target": target, "uncappedTarget": target,
            "lowerBound": { "cpu": "585m", "memory": "1166388030" },
            "upperBound": { "cpu": "2202m", "memory": "2338259369" },
        }])
    );

    let two = "0,b,cpu,0.001\n0,a,cpu,0.001\n0,a,memory,1e6\n0,b,memory,1e6\n";
    let least = json!({ "cpu": "12m", "memory": "125Mi" });
    let read = recommended(&history(&config, two));
    assert_eq!((&read[0]["containerName"], &read[1]["containerName"]), (&json!("a"), &json!("b")));
    assert_eq!((&read[0]["target"], &read[1]["lowerBound"]), (&least, &least));
}

#[test]
fn an_oom_kill_raises_memory_above_the_request() {
    let config = config();
    let killed = history(&config, "0,a,cpu,0.1\n0,a,memory,1e9\n60,a,oom,2e9\n");
    // 1.2 times the request is 2.4e9; the end of its bucket, and 15 % more.
    let memory = &recommended(&killed)[0]["target"]["memory"];
    let bytes: f64 = memory.as_str().unwrap().parse().unwrap();
    assert!((2.4e9 * 1.15..2.4e9 * 1.05 * 1.15 * 1.05).contains(&bytes), "{bytes}");
    assert_eq!(killed.discarded.len(), 0);
}

#[test]
fn rows_of_several_pods_and_the_order_of_resources_do_not_matter() {
    let config = config();
    let csv = day();
    let (cpu, memory): (Vec<&str>, Vec<&str>) = csv.lines().skip(1).partition(|row| row.contains(",cpu,"));
    let apart = history(&config, &[cpu.join("\n"), memory.join("\n")].join("\n"));
    assert_eq!(recommended(&apart), recommended(&history(&config, &csv)));

    let with_pods = "time,pod,container,resource,value\n0,p-0,a,cpu,0.1\n0,p-1,a,cpu,0.3\n";
    let pods = history(&config, with_pods);
    assert_eq!(pods.workload.aggregates().next().map(|(_, aggregate)| aggregate.samples()), Some(2));
    assert!(pods.discarded.is_empty());
}

#[test]
fn samples_out_of_order_and_duplicates_are_counted_and_reported() {
    let config = config();
    let csv = "100,a,cpu,0.1\n100,a,cpu,0.2\n99,a,cpu,0.3\n100,a,memory,1\n99,a,memory,2\n100,a,memory,3\n";
    let read = history(&config, csv);
    assert_eq!(read.rows, 6);
    let discarded: Vec<(Discarded, u64)> = read.discarded.into_iter().collect();
    assert_eq!(discarded, [(Discarded::OutOfOrder, 2), (Discarded::Duplicate, 1)]);
}

#[test]
fn progress_is_reported_in_bytes_and_rows_up_to_the_end() {
    let config = config();
    let csv = day();
    let mut reports = Vec::new();
    History::new(&config).read(csv.as_bytes(), |bytes, rows| reports.push((bytes, rows))).unwrap();
    assert_eq!(reports.last(), Some(&(csv.len() as u64, 2880)));
}

#[test]
fn an_explanation_shows_every_step_and_a_histogram() {
    let config = config();
    let history = history(&config, &day());
    let explained = history.workload.explain(&EstimationSettings::default());
    let text = plumb_vpa_explain::text(&explained[0], None);
    for line in [
        "container web",
        "  1440 cpu samples from 2026-01-01T00:00:00Z to 2026-01-01T23:59:00Z",
        "  cpu: confidence 0.999",
        "    target p90   903m, with margin 1.04: 1.04",
        "    lower  p50   511m, with margin 587m, times 0.998 for confidence 585m: 585m",
        "              43m - 68m   2.3 % ########",
        "            851m - 958m  11.0 % ########################################",
        "     913.97Mi - 969.2Mi 100.0 % ########################################",
    ] {
        assert!(text.lines().any(|found| found == line), "{line:?} is not in\n{text}");
    }
    assert!(text.lines().count() < 64, "neighbouring buckets share a line:\n{text}");
    let value = plumb_vpa_explain::json(&explained[0]);
    assert_eq!(value["cpu"]["bounds"]["upper"]["recommended"], "2202m");
    assert_eq!(value["memory"]["bounds"]["target"]["withMargin"], 1_168_723_596_i64);
}

#[test]
fn a_plot_is_well_formed_whatever_containers_are_called() {
    let config = config();
    let csv = format!("{}0,<script>&\u{1},cpu,0.1\n0,idle,memory,0\n", day());
    let history = history(&config, &csv);
    let explained = history.workload.explain(&EstimationSettings::default());
    let svg = plot::svg(&explained);
    assert!(svg.contains("&lt;script&gt;&amp;\u{fffd}: cpu"), "{svg}");
    assert!(!svg.contains("<script>") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    assert_eq!(svg.matches("<g ").count(), 6);
    assert_eq!(plot::svg(&[]).matches("<g ").count(), 0);
}
