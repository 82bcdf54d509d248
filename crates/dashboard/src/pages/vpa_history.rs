//! The history of a VPA: the histograms that its recommendation is computed from, with the bounds and caps as lines.

use maud::html;
use plumb_recommender::{AggregationConfig, AggregationSettings};
use plumb_resize::resource::Resource;
use plumb_vpa_api::{BucketWeights, HistogramCheckpoint, VerticalPodAutoscalerCheckpoint};

use super::columns;
use crate::chart::{Bar, Bounds, histogram_chart};
use crate::page::Section;
use crate::source::Access;
use crate::table::{Cell, Table};

const OBJECTS: &str = "verticalpodautoscalercheckpoints of autoscaling.k8s.io";

/// The histories of the containers, with the bounds of their recommendations.
pub(super) fn section(
    checkpoints: Result<Vec<VerticalPodAutoscalerCheckpoint>, Access>,
    bounds: &[Bounds],
) -> Section {
    let section = Section::new("history", "History");
    let (section, checkpoints) = match checkpoints {
        Ok(checkpoints) => (section, checkpoints),
        Err(access) => (section.needs(OBJECTS, &access), Vec::new()),
    };
    let mut charts = Vec::new();
    for one in bounds {
        let of_container =
            |found: &&VerticalPodAutoscalerCheckpoint| found.spec.container_name == one.container;
        let status = checkpoints.iter().find(of_container).and_then(|found| found.status.as_ref());
        let Some(status) = status else { continue };
        let bars = bars(
            one.resource,
            match one.resource {
                Resource::Cpu => &status.cpu_histogram,
                Resource::Memory => &status.memory_histogram,
            },
        );
        if !bars.is_empty() {
            charts.push(histogram_chart(&bars, one));
        }
    }
    let row = |checkpoint: &VerticalPodAutoscalerCheckpoint| {
        let status = checkpoint.status.clone().unwrap_or_default();
        let samples = usize::try_from(status.total_samples_count).unwrap_or_default();
        vec![
            Cell::text(checkpoint.spec.container_name.clone()),
            Cell::Count(samples),
            Cell::Time(status.first_sample_start.map(|time| time.0)),
            Cell::Time(status.last_sample_start.map(|time| time.0)),
        ]
    };
    let table = Table {
        caption: "What the recommender has stored of each container".to_owned(),
        columns: columns(&[
            ("container", "Container"),
            ("samples", "CPU samples"),
            ("first", "First"),
            ("last", "Last"),
        ]),
        rows: checkpoints.iter().map(row).collect(),
        empty: "The recommender has stored nothing yet.",
    };
    let mut section = section.with_table(table);
    section.figure = (!charts.is_empty()).then(|| {
        html! {
            @for chart in &charts { (chart) }
            p class="note" {
                "Bars: how often; recent samples count more. Solid line: target. Grey: lower and upper bound. Dashed: what the \
                 policy allows. Dotted: uncapped target."
            }
        }
    });
    section
}

/// The bars of a histogram, in the buckets of the recommender. One that cannot be read has none.
fn bars(resource: Resource, histogram: &HistogramCheckpoint) -> Vec<Bar> {
    let (BucketWeights::Weights(weights), Ok(config)) =
        (&histogram.bucket_weights, AggregationConfig::new(AggregationSettings::default()))
    else {
        return Vec::new();
    };
    let buckets = &config.histogram(resource).buckets;
    // Cores and bytes.
    let unit = match resource {
        Resource::Cpu => 1000.0,
        Resource::Memory => 1.0,
    };
    #[expect(clippy::cast_possible_truncation, reason = "buckets end at 1,000 cores and 1 TB")]
    let amount = |value: f64| (value * unit).round() as i64;
    let bar = |&(bucket, weight): &(i64, u32)| {
        let bucket =
            u16::try_from(bucket).ok().filter(|bucket| usize::from(*bucket) < buckets.bucket_count())?;
        Some((amount(buckets.start(bucket)), amount(buckets.end(bucket)), weight))
    };
    let mut bars: Vec<Bar> = weights.iter().filter_map(bar).collect();
    bars.sort_unstable();
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_where_the_bucket_of_the_recommender_is() {
        let histogram = HistogramCheckpoint {
            bucket_weights: BucketWeights::Weights(vec![(1, 5000), (0, 10_000), (-1, 1), (500, 1)]),
            ..HistogramCheckpoint::default()
        };
        assert_eq!(bars(Resource::Cpu, &histogram), [(0, 10, 10_000), (10, 20, 5000)]);
        assert_eq!(bars(Resource::Memory, &histogram)[0], (0, 10_000_000, 10_000));
        let malformed = BucketWeights::Malformed("no map".to_owned());
        let histogram = HistogramCheckpoint { bucket_weights: malformed, ..HistogramCheckpoint::default() };
        assert!(bars(Resource::Cpu, &histogram).is_empty());
    }
}
