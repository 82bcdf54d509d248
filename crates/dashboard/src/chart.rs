//! Charts, as SVG. Styles are in the stylesheet: the policy of the pages allows none in elements.

use jiff::Timestamp;
use maud::{Markup, html};
use plumb_recommender::MAX_AMOUNT;
use plumb_recommender::display::short;
use plumb_resize::resource::Resource;

/// The width of a chart.
const WIDTH: i64 = 640;
/// The height of a bar of bounds, with its label.
const HEIGHT: usize = 46;
/// The height of a chart of usage.
const USAGE_HEIGHT: i64 = 120;

/// The recommendation for a resource of a container, with what limits it.
pub(crate) struct Bounds {
    /// The container.
    pub(crate) container: String,
    /// The resource.
    pub(crate) resource: Resource,
    /// The target.
    pub(crate) target: Option<i64>,
    /// The lower bound.
    pub(crate) lower: Option<i64>,
    /// The upper bound.
    pub(crate) upper: Option<i64>,
    /// The target without the limits of the policy.
    pub(crate) uncapped: Option<i64>,
    /// The minimum of the policy.
    pub(crate) min_allowed: Option<i64>,
    /// The maximum of the policy.
    pub(crate) max_allowed: Option<i64>,
}

/// The bounds as bars, with the target and the caps as lines. The table below has the same values as text.
pub(crate) fn bounds_chart(bounds: &[Bounds]) -> Markup {
    let height = bounds.len() * HEIGHT;
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {height}")) width=(WIDTH) height=(height) role="img"
            aria-label="Recommendations with their bounds and caps; the table has the values" {
            @for (row, one) in bounds.iter().enumerate() { (bar(row * HEIGHT, one)) }
        }
        p class="note" {
            "Grey: from the lower to the upper bound. Solid line: target. Dashed: what the policy allows. Dotted: uncapped target."
        }
    }
}

fn bar(top: usize, one: &Bounds) -> Markup {
    // The upper bound of a short history is no amount that could be drawn.
    let all = [one.target, one.lower, one.upper, one.uncapped, one.min_allowed, one.max_allowed];
    let largest = all.into_iter().flatten().filter(|amount| *amount < MAX_AMOUNT).max().unwrap_or(0).max(1);
    let at = |amount: i64| 10 + scaled(amount.clamp(0, largest), largest, WIDTH - 20);
    let line = |class: &str, amount: Option<i64>| {
        html! {
            @if let Some(amount) = amount.filter(|amount| *amount <= largest) {
                line class=(class) x1=(at(amount)) x2=(at(amount)) y1=(top + 18) y2=(top + 40) {
                    title { (short(one.resource, amount)) }
                }
            }
        }
    };
    let (lower, upper) = (at(one.lower.unwrap_or(0)), at(one.upper.unwrap_or(largest)));
    let target = one.target.map_or_else(|| "–".to_owned(), |amount| short(one.resource, amount));
    html! {
        text x="10" y=(top + 13) { (one.container) " " (one.resource.name()) ": " (target) }
        rect class="range" x=(lower) y=(top + 22) width=((upper - lower).max(1)) height="14" {}
        line class="axis" x1="10" x2=(WIDTH - 10) y1=(top + 40) y2=(top + 40) {}
        (line("cap", one.min_allowed))
        (line("cap", one.max_allowed))
        (line("uncapped", one.uncapped))
        (line("target", one.target))
    }
}

/// A part of a histogram: from where to where, and its weight.
pub(crate) type Bar = (i64, i64, u32);

/// How often a container used how much, with its recommendation, the bounds and the caps as lines.
pub(crate) fn histogram_chart(bars: &[Bar], one: &Bounds) -> Markup {
    let lines = [
        ("range-line", "lower bound", one.lower),
        ("range-line", "upper bound", one.upper),
        ("cap", "minimum allowed", one.min_allowed),
        ("cap", "maximum allowed", one.max_allowed),
        ("uncapped", "uncapped target", one.uncapped),
        ("target", "target", one.target),
    ];
    let amounts = lines.iter().filter_map(|(.., amount)| *amount).filter(|amount| *amount < MAX_AMOUNT);
    let largest = amounts.chain(bars.iter().map(|(_, end, _)| *end)).max().unwrap_or(0).max(1);
    let heaviest = i64::from(bars.iter().map(|(.., weight)| *weight).max().unwrap_or(0).max(1));
    let x = |amount: i64| 10 + scaled(amount.clamp(0, largest), largest, WIDTH - 20);
    let base = USAGE_HEIGHT - 6;
    let label = format!(
        "{} {}: how often how much was used, up to {}",
        one.container,
        one.resource.name(),
        short(one.resource, largest)
    );
    html! {
        svg viewBox=(format!("0 0 {WIDTH} {USAGE_HEIGHT}")) width=(WIDTH) height=(USAGE_HEIGHT) role="img" aria-label=(label) {
            text x="10" y="14" { (label) }
            @for (start, end, weight) in bars {
                @let height = scaled(i64::from(*weight), heaviest, USAGE_HEIGHT - 30).max(1);
                rect class="bar" x=(x(*start)) y=(base - height) width=((x(*end) - x(*start)).max(1)) height=(height) {
                    title { (short(one.resource, *start)) " to " (short(one.resource, *end)) }
                }
            }
            line class="axis" x1="10" x2=(WIDTH - 10) y1=(base) y2=(base) {}
            @for (class, name, amount) in lines {
                @if let Some(amount) = amount.filter(|amount| *amount <= largest) {
                    line class=(class) x1=(x(amount)) x2=(x(amount)) y1="20" y2=(base) {
                        title { (name) " " (short(one.resource, amount)) }
                    }
                }
            }
        }
    }
}

/// What a container used, with its actual request as a line, and its resizes as marks. `None` for less than two measurements.
pub(crate) fn usage_chart(
    container: &str,
    resource: Resource,
    series: &[(Timestamp, i64)],
    request: Option<i64>,
    resizes: &[Timestamp],
) -> Option<Markup> {
    let [(first, _), .., (last, now)] = series else { return None };
    let largest = series.iter().map(|(_, used)| *used).chain(request).max().unwrap_or(0).max(1);
    let length = last.as_second().saturating_sub(first.as_second()).max(1);
    let x = |at: Timestamp| {
        let passed = at.as_second().saturating_sub(first.as_second()).clamp(0, length);
        10 + scaled(passed, length, WIDTH - 20)
    };
    let y = |amount: i64| USAGE_HEIGHT - 6 - scaled(amount.clamp(0, largest), largest, USAGE_HEIGHT - 30);
    let points: Vec<String> = series.iter().map(|(at, used)| format!("{},{}", x(*at), y(*used))).collect();
    let most = series.iter().map(|(_, used)| *used).max().unwrap_or(0);
    let label = format!(
        "{container} {}: {} used now, at most {} since {}",
        resource.name(),
        short(resource, *now),
        short(resource, most),
        first.strftime("%H:%MZ")
    );
    let in_time = resizes.iter().filter(|at| (*first..=*last).contains(at));
    Some(html! {
        svg viewBox=(format!("0 0 {WIDTH} {USAGE_HEIGHT}")) width=(WIDTH) height=(USAGE_HEIGHT) role="img" aria-label=(label) {
            text x="10" y="14" { (label) }
            line class="axis" x1="10" x2=(WIDTH - 10) y1=(y(0)) y2=(y(0)) {}
            @if let Some(request) = request {
                line class="cap" x1="10" x2=(WIDTH - 10) y1=(y(request)) y2=(y(request)) {
                    title { "request " (short(resource, request)) }
                }
            }
            @for at in in_time {
                line class="mark" x1=(x(*at)) x2=(x(*at)) y1="20" y2=(y(0)) { title { "resized " (at) } }
            }
            polyline class="used" points=(points.join(" ")) {}
        }
    })
}

/// A part of a whole, in units of a length.
fn scaled(part: i64, whole: i64, length: i64) -> i64 {
    let scaled = i128::from(part) * i128::from(length) / i128::from(whole.max(1));
    i64::try_from(scaled).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_drawn_within_the_chart_with_a_mark_for_each_resize() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let series = [(at(100), 100), (at(115), 400), (at(130), 200)];
        let chart = |series: &[(Timestamp, i64)]| {
            let marks = [at(110), at(120), at(999)];
            usage_chart("<app>", Resource::Cpu, series, Some(500), &marks).map(Markup::into_string)
        };
        let text = chart(&series).unwrap();
        // 90 points are 500m.
        assert!(text.contains("points=\"10,96 320,42 630,78\""), "{text}");
        assert!(text.contains("&lt;app&gt; cpu: 200m used now, at most 400m since 00:01Z"), "{text}");
        assert_eq!(text.matches("class=\"mark\"").count(), 2, "one resize was later: {text}");
        assert!(text.contains("request 500m"), "{text}");
        assert_eq!(chart(&series[..1]), None);
        let extreme = [(at(0), 0), (at(0), i64::MAX)];
        assert!(chart(&extreme).is_some());
    }

    #[test]
    fn a_histogram_has_bars_and_a_line_for_each_bound_and_cap() {
        let bounds = Bounds {
            container: "<app>".to_owned(),
            resource: Resource::Cpu,
            target: Some(500),
            lower: Some(100),
            upper: Some(MAX_AMOUNT),
            uncapped: None,
            min_allowed: None,
            max_allowed: Some(1000),
        };
        let text = histogram_chart(&[(0, 100, 10_000), (100, 200, 5000)], &bounds).into_string();
        assert!(text.contains("&lt;app&gt; cpu: how often how much was used, up to 1<"), "{text}");
        assert!(text.contains("<rect class=\"bar\" x=\"10\" y=\"24\" width=\"62\" height=\"90\">"), "{text}");
        assert!(text.contains("height=\"45\""), "{text}");
        for line in ["target 500m", "lower bound 100m", "maximum allowed 1<"] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("upper bound"), "it is no amount that could be drawn: {text}");
    }

    #[test]
    fn an_upper_bound_without_history_is_not_drawn_to_scale() {
        let bounds = Bounds {
            container: "app".to_owned(),
            resource: Resource::Cpu,
            target: Some(500),
            lower: Some(100),
            upper: Some(MAX_AMOUNT),
            uncapped: None,
            min_allowed: None,
            max_allowed: Some(1000),
        };
        let text = bounds_chart(&[bounds]).into_string();
        // The cap is the largest amount that is drawn.
        assert!(
            text.contains("class=\"target\" x1=\"320\"") && text.contains("class=\"cap\" x1=\"630\""),
            "{text}"
        );
    }
}
