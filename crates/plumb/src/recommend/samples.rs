//! History from a CSV file.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read};
use std::path::Path;

use anyhow::{Context as _, bail};
use indicatif::{ProgressBar, ProgressStyle};
use plumb_cluster::say;
use plumb_recommender::model::estimate;
use plumb_recommender::offline::history::History;
use plumb_recommender::offline::plot;
use plumb_recommender::{
    AggregationConfig, ContainerExplanation, ContainerRecommendation, Resources, VpaSettings,
};
use plumb_resize::resource::Resource;
use plumb_vpa_api::RecommendedPodResources;
use serde_json::{Map, Value, json};

use super::{Format, Recommend};
use crate::client::{self, write_out};

pub(super) fn run(args: &Recommend) -> anyhow::Result<()> {
    let Some(path) = &args.samples else { return Ok(()) };
    let config = AggregationConfig::new(args.tuning.aggregation()).context("making histograms")?;
    let mut history = History::new(&config);
    let name = read(path, &mut history)?;
    if history.rows == 0 {
        bail!("{name}: there are no samples");
    }
    warn(&history);

    let settings = args.tuning.estimation();
    let containers = || history.workload.aggregates();
    // There is no VPA whose annotations could name containers.
    let integer_cpu = containers().map(|(container, _)| container.to_owned()).collect();
    let vpa = VpaSettings { integer_cpu, ..VpaSettings::default() };
    let recommended = estimate::recommend(&config, &settings, &vpa, containers());
    let explained = estimate::explain(&config, &settings, &vpa, containers());
    if let Some(path) = &args.plot {
        std::fs::write(path, plot::svg(&explained)).with_context(|| format!("writing {}", path.display()))?;
    }
    let explained = if args.explain { explained } else { Vec::new() };
    match args.output {
        Format::Table => write_out(&text(&history, &config, &recommended, &explained)),
        Format::Json => write_out(&client::json(&value(&history, &recommended, &explained))?),
        Format::Yaml => write_out(&client::yaml(&value(&history, &recommended, &explained))?),
        Format::Csv | Format::Html => Ok(()),
    }
}

/// Reads a file, or standard input, and returns its name.
fn read(path: &Path, history: &mut History<'_>) -> anyhow::Result<String> {
    if path == Path::new("-") {
        let name = "standard input".to_owned();
        follow(io::stdin().lock(), None, history).context(name.clone())?;
        return Ok(name);
    }
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| format!("opening {name}"))?;
    let length = file.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len());
    follow(file, length, history).context(name.clone())?;
    Ok(name)
}

/// Reads all rows, and shows a progress bar to people.
fn follow(input: impl Read, length: Option<u64>, history: &mut History<'_>) -> anyhow::Result<()> {
    let bar = if !io::stderr().is_terminal() {
        ProgressBar::hidden()
    } else if let Some(length) = length {
        let style =
            ProgressStyle::with_template("{bar:40} {percent:>3} %  {msg} rows  {bytes_per_sec}  {eta} left");
        ProgressBar::new(length).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    } else {
        let style = ProgressStyle::with_template("{spinner} {msg} rows  {bytes}  {bytes_per_sec}");
        ProgressBar::new_spinner().with_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()))
    };
    let read = history.read(input, |bytes, rows| {
        if !bar.is_hidden() {
            bar.set_position(bytes);
            bar.set_message(rows.to_string());
        }
    });
    bar.finish_and_clear();
    Ok(read?)
}

/// Warns about the part of the history that does not count.
fn warn(history: &History<'_>) {
    for (reason, count) in &history.discarded {
        say!("plumb: {count} of {} rows are not counted: {reason}", history.rows);
    }
}

fn text(
    history: &History<'_>,
    config: &AggregationConfig,
    recommended: &[ContainerRecommendation],
    explained: &[ContainerExplanation],
) -> String {
    let head = ["CONTAINER", "CPU", "LOWER", "UPPER", "MEMORY", "LOWER", "UPPER", "SAMPLES"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (container, (_, aggregate)) in recommended.iter().zip(history.workload.aggregates()) {
        let mut row = vec![container.container.clone()];
        for resource in Resource::ALL {
            // Without samples it would be the least that is ever recommended.
            let has_samples = match resource {
                Resource::Cpu => !aggregate.cpu().is_empty(&config.cpu),
                Resource::Memory => !aggregate.memory().is_empty(&config.memory),
            };
            let cell = |of: &Resources| {
                let quantity = of[resource].filter(|_| has_samples);
                quantity.map_or_else(
                    || "-".to_owned(),
                    |quantity| plumb_recommender::display::short_quantity(resource, quantity),
                )
            };
            row.extend([&container.target, &container.lower_bound, &container.upper_bound].map(cell));
        }
        row.push(aggregate.samples().to_string());
        rows.push(row);
    }
    let mut text = client::table(&rows);
    for explanation in explained {
        text.push('\n');
        text.push_str(&plumb_vpa_explain::text(explanation, None));
    }
    text
}

/// The output for programs: `recommendation` is as in the status of a VPA.
fn value(
    history: &History<'_>,
    recommended: &[ContainerRecommendation],
    explained: &[ContainerExplanation],
) -> Value {
    let recommendation =
        RecommendedPodResources { container_recommendations: recommended.iter().map(Into::into).collect() };
    let discarded = history.discarded.iter().map(|(reason, count)| (reason.name().to_owned(), json!(count)));
    let mut value = json!({
        "recommendation": recommendation,
        "rows": history.rows,
        "discarded": discarded.collect::<Map<_, _>>(),
    });
    if !explained.is_empty() {
        value["explanation"] = explained.iter().map(plumb_vpa_explain::json).collect();
    }
    value
}
