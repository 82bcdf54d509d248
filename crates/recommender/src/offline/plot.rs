//! Histograms with their bounds, as SVG.

use std::fmt::Write as _;

use plumb_go::escape_xml;
use plumb_resize::resource::Resource;

use crate::ContainerExplanation;
use crate::display::short_units;
use crate::model::estimate::{Bound, ResourceExplanation};

const PANEL_WIDTH: f64 = 460.0;
const PANEL_HEIGHT: f64 = 250.0;
/// The space around the bars of a panel.
const MARGIN: f64 = 40.0;
const WIDTH: f64 = PANEL_WIDTH - 2.0 * MARGIN;
const HEIGHT: f64 = PANEL_HEIGHT - 2.5 * MARGIN;

/// A picture with one row for each container: its cpu on the left, its memory on the right. A bar is as wide as its bucket
/// and as high as its share; lines show target, lower and upper bound.
pub fn svg(explanations: &[ContainerExplanation]) -> String {
    #[expect(clippy::cast_precision_loss, reason = "a few containers")]
    let height = PANEL_HEIGHT * explanations.len().max(1) as f64;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {height}\" width=\"{0}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        2.0 * PANEL_WIDTH
    );
    let mut top = 0.0;
    for explanation in explanations {
        let mut left = 0.0;
        for resource in Resource::ALL {
            if let Some(explained) = &explanation.resources[resource] {
                // Writing to a string does not fail.
                let _ = writeln!(svg, "<g transform=\"translate({left} {top})\">");
                panel(&mut svg, &explanation.container, resource, explained);
                svg.push_str("</g>\n");
            }
            left += PANEL_WIDTH;
        }
        top += PANEL_HEIGHT;
    }
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, container: &str, resource: Resource, explained: &ResourceExplanation) {
    let title = escape_xml(container);
    let _ = writeln!(
        svg,
        "<text x=\"{MARGIN}\" y=\"20\" font-weight=\"bold\">{title}: {}</text>",
        resource.name()
    );
    let right = axis_end(resource, explained);
    let x = |units: f64| MARGIN + units.min(right) / right * WIDTH;
    let bottom = 1.5 * MARGIN + HEIGHT;
    let highest = explained.histogram.iter().map(|bucket| bucket.share).fold(0.0, f64::max);
    for bucket in &explained.histogram {
        let height = if highest > 0.0 { bucket.share / highest * HEIGHT } else { 0.0 };
        let _ = writeln!(
            svg,
            "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"#9bb7d4\" stroke=\"white\">\
             <title>{} to {}: {:.1} %</title></rect>",
            x(bucket.start),
            bottom - height,
            (x(bucket.end) - x(bucket.start)).max(0.5),
            short_units(resource, bucket.start),
            short_units(resource, bucket.end),
            bucket.share * 100.0,
        );
    }
    let _ = writeln!(
        svg,
        "<line x1=\"{MARGIN}\" y1=\"{bottom}\" x2=\"{}\" y2=\"{bottom}\" stroke=\"black\"/>",
        MARGIN + WIDTH
    );
    for quarter in 0..=4 {
        let units = right * f64::from(quarter) / 4.0;
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            x(units),
            bottom + 14.0,
            short_units(resource, units)
        );
    }
    for bound in &explained.bounds {
        let units = units(resource, bound.recommended);
        let (name, color, dash, row) = match bound.bound {
            Bound::Target => ("target", "#1a7f37", "", 0.0),
            Bound::Lower => ("lower", "#9a6700", " stroke-dasharray=\"4 3\"", 1.0),
            Bound::Upper => ("upper", "#cf222e", " stroke-dasharray=\"4 3\"", 2.0),
        };
        let beyond = if units > right { " →" } else { "" };
        let label = format!("{name} {}{beyond}", short_units(resource, units));
        let _ = writeln!(
            svg,
            "<line x1=\"{0:.1}\" y1=\"{1}\" x2=\"{0:.1}\" y2=\"{bottom}\" stroke=\"{color}\" stroke-width=\"1.5\"{dash}/>\n\
             <text x=\"{2}\" y=\"{3}\" text-anchor=\"end\" fill=\"{color}\">{label}</text>",
            x(units),
            1.5 * MARGIN,
            MARGIN + WIDTH,
            20.0 + 13.0 * row,
        );
    }
}

/// Where the axis ends: behind the histogram and the target, and behind the upper bound unless that is far away.
fn axis_end(resource: Resource, explained: &ResourceExplanation) -> f64 {
    let of = |wanted: Bound| {
        let bound = explained.bounds.iter().find(|bound| bound.bound == wanted);
        bound.map_or(0.0, |bound| units(resource, bound.recommended))
    };
    let used = explained.histogram.last().map_or(0.0, |bucket| bucket.end).max(of(Bound::Target));
    let upper = of(Bound::Upper);
    let end = if upper <= 3.0 * used { used.max(upper) } else { used };
    if end > 0.0 { end * 1.1 } else { 1.0 }
}

/// Cores or bytes.
fn units(resource: Resource, quantity: plumb_resize::Quantity) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a position in a picture")]
    match resource {
        Resource::Cpu => quantity.saturating_milli() as f64 / 1_000.0,
        Resource::Memory => quantity.saturating_units() as f64,
    }
}
