//! The explanation of one container.

use std::fmt::Write as _;

use plumb_recommender::display::{short, short_quantity, short_units};
use plumb_recommender::model::estimate::{Bound, BoundExplanation, BucketWeight, ResourceExplanation};
use plumb_recommender::{ContainerExplanation, ContainerRecommendation, Resources};
use plumb_resize::Quantity;
use plumb_resize::resource::Resource;
use serde_json::{Value, json};

use crate::printable;

/// How many lines a histogram has at most.
const LINES: usize = 24;
/// The share of a bucket below which it has no line: it would read 0.0 %.
const NEGLIGIBLE: f64 = 0.0005;
/// How wide the longest bar is.
const WIDTH: f64 = 40.0;

/// The explanation as text: the steps of each bound, and a histogram. Where the status of the VPA has another amount, the
/// line says which.
pub fn text(explanation: &ContainerExplanation, status: Option<&ContainerRecommendation>) -> String {
    let mut text = format!("container {}\n", printable(&explanation.container));
    // Writing to a string does not fail.
    let _ = match (explanation.first_sample.timestamp(), explanation.last_sample.timestamp()) {
        (Some(first), Some(last)) => {
            let plural = if explanation.samples == 1 { "" } else { "s" };
            writeln!(text, "  {} cpu sample{plural} from {first} to {last}", explanation.samples)
        }
        _ => writeln!(text, "  no cpu samples"),
    };
    for resource in Resource::ALL {
        if let Some(explained) = &explanation.resources[resource] {
            text.push('\n');
            explain(&mut text, resource, explained, status);
        }
    }
    text
}

fn explain(
    text: &mut String,
    resource: Resource,
    explained: &ResourceExplanation,
    status: Option<&ContainerRecommendation>,
) {
    if explained.histogram.is_empty() {
        let _ = writeln!(text, "  {}: no samples", resource.name());
    } else {
        let _ = writeln!(text, "  {}: confidence {}", resource.name(), number(explained.confidence));
    }
    for bound in &explained.bounds {
        let _ = write!(text, "    {}", line(resource, bound, explained.histogram.is_empty()));
        let _ = match other_in_status(resource, bound, status) {
            Some(amount) => writeln!(text, "; the status has {}", short_quantity(resource, amount)),
            None => writeln!(text),
        };
    }
    let (shown, negligible): (Vec<_>, Vec<_>) =
        grouped(&explained.histogram).into_iter().partition(|bucket| bucket.share >= NEGLIGIBLE);
    for bucket in shown {
        let range =
            format!("{} - {}", short_units(resource, bucket.start), short_units(resource, bucket.end));
        let _ = writeln!(
            text,
            "    {range:>19} {:>5.1} % {}",
            bucket.share * 100.0,
            bar(bucket.share, &explained.histogram)
        );
    }
    if !negligible.is_empty() {
        let _ = writeln!(text, "    ranges with less than 0.05 % each: {}", negligible.len());
    }
}

/// The steps to one amount, of a histogram that may be empty.
fn line(resource: Resource, bound: &BoundExplanation, is_empty: bool) -> String {
    let steps = &bound.steps;
    let mut line = format!("{:<6} ", name(bound.bound));
    if is_empty {
        // Each step is zero, up to the minimum.
        let _ = write!(line, "at least {}", short(resource, steps.minimum));
        return finished(resource, bound, line);
    }
    let _ = write!(
        line,
        "p{:<4} {}, with margin {}",
        number(steps.percentile * 100.0),
        short(resource, steps.usage),
        short(resource, steps.with_margin),
    );
    if !steps.confidence_multiplier.is_finite() {
        line.push_str(", unbounded for lack of history");
    } else if bound.bound != Bound::Target {
        let _ = write!(
            line,
            ", times {} for confidence {}",
            number(steps.confidence_multiplier),
            short(resource, steps.with_confidence)
        );
    }
    if steps.amount != steps.with_confidence {
        let _ = write!(line, ", at least {}", short(resource, steps.minimum));
    }
    finished(resource, bound, line)
}

/// A line with the steps after the estimate, and the recommendation.
fn finished(resource: Resource, bound: &BoundExplanation, mut line: String) -> String {
    if bound.whole_cores {
        line.push_str(", in whole cores");
    }
    for limit in &bound.limits {
        let _ = write!(line, ", {limit}");
    }
    let _ = write!(line, ": {}", short_quantity(resource, bound.recommended));
    line
}

/// The amount that the status has, if it is another one.
pub(super) fn other_in_status(
    resource: Resource,
    bound: &BoundExplanation,
    status: Option<&ContainerRecommendation>,
) -> Option<Quantity> {
    let in_status: &Resources = match bound.bound {
        Bound::Target => &status?.target,
        Bound::Lower => &status?.lower_bound,
        Bound::Upper => &status?.upper_bound,
    };
    in_status[resource].filter(|amount| *amount != bound.recommended)
}

/// Neighbouring buckets together, so that there are not too many lines.
fn grouped(histogram: &[BucketWeight]) -> Vec<BucketWeight> {
    let together = histogram.len().div_ceil(LINES).max(1);
    let groups = histogram.chunks(together).filter_map(|group| {
        let (first, last) = (group.first()?, group.last()?);
        Some(BucketWeight {
            start: first.start,
            end: last.end,
            share: group.iter().map(|bucket| bucket.share).sum(),
        })
    });
    groups.collect()
}

fn bar(share: f64, histogram: &[BucketWeight]) -> String {
    let longest = grouped(histogram).iter().map(|bucket| bucket.share).fold(0.0, f64::max);
    if longest <= 0.0 {
        return String::new();
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and WIDTH")]
    let length = (share / longest * WIDTH).round() as usize;
    "#".repeat(length)
}

fn name(bound: Bound) -> &'static str {
    match bound {
        Bound::Target => "target",
        Bound::Lower => "lower",
        Bound::Upper => "upper",
    }
}

/// A number with three significant decimals at most.
fn number(of: f64) -> String {
    if !of.is_finite() {
        return of.to_string();
    }
    let text = format!("{of:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The explanation for programs.
pub fn json(explanation: &ContainerExplanation) -> Value {
    let resource = |resource: Resource| explanation.resources[resource].as_ref().map(resource_json);
    json!({
        "containerName": explanation.container,
        "samples": explanation.samples,
        "firstSample": explanation.first_sample.timestamp().map(|time| time.to_string()),
        "lastSample": explanation.last_sample.timestamp().map(|time| time.to_string()),
        "cpu": resource(Resource::Cpu),
        "memory": resource(Resource::Memory),
    })
}

fn resource_json(explained: &ResourceExplanation) -> Value {
    // JSON has no infinity: null is a number that is not finite.
    let buckets = explained.histogram.iter();
    let buckets =
        buckets.map(|bucket| json!({ "start": bucket.start, "end": bucket.end, "share": bucket.share }));
    let bounds = explained.bounds.iter().map(|bound| {
        let steps = &bound.steps;
        let value = json!({
            "percentile": steps.percentile,
            "usage": steps.usage,
            "withMargin": steps.with_margin,
            "confidenceMultiplier": steps.confidence_multiplier,
            "withConfidence": steps.with_confidence,
            "minimum": steps.minimum,
            "amount": steps.amount,
            "wholeCores": bound.whole_cores,
            "uncapped": bound.uncapped.to_string(),
            "limits": bound.limits.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "recommended": bound.recommended.to_string(),
        });
        (name(bound.bound).to_owned(), value)
    });
    json!({
        "confidence": explained.confidence,
        "bounds": bounds.collect::<serde_json::Map<_, _>>(),
        "histogram": buckets.collect::<Vec<_>>(),
    })
}
