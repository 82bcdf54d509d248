//! The text of `plumb status` as lines of a terminal.
//!
//! That text has the colours of [`crate::color`] in it. All else that a terminal would act on is escaped here once more.

use plumb_vpa_explain::printable;
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};

use crate::color::Meaning;

/// The colour of what has a meaning.
pub(super) fn style_of(meaning: Option<Meaning>) -> Style {
    match meaning {
        None => Style::new(),
        Some(Meaning::Good) => Style::new().fg(Color::Green),
        Some(Meaning::Attention) => Style::new().fg(Color::Yellow),
        Some(Meaning::Bad) => Style::new().fg(Color::Red),
    }
}

/// The lines of a text, with its colours.
pub(super) fn lines(text: &str) -> Vec<Line<'static>> {
    text.lines().map(line).collect()
}

/// A line with its colours.
pub(super) fn line(text: &str) -> Line<'static> {
    let mut spans = Vec::new();
    let mut style = Style::new();
    for (at, part) in text.split("\u{1b}[").enumerate() {
        let (new, rest) = match part.split_once('m') {
            Some((code, rest)) if at > 0 => match style_of_code(code) {
                Some(new) => (new, rest.to_owned()),
                None => (style, format!("\u{1b}[{part}")),
            },
            _ if at > 0 => (style, format!("\u{1b}[{part}")),
            _ => (style, part.to_owned()),
        };
        style = new;
        if !rest.is_empty() {
            spans.push(Span::styled(printable(&rest).into_owned(), style));
        }
    }
    Line::from(spans)
}

/// The style of a sequence `ESC [ CODE m` that [`crate::color`] writes.
fn style_of_code(code: &str) -> Option<Style> {
    Some(match code {
        "0" => Style::new(),
        "31" => style_of(Some(Meaning::Bad)),
        "32" => style_of(Some(Meaning::Good)),
        "33" => style_of(Some(Meaning::Attention)),
        _ => return None,
    })
}

/// Lines that are no longer than `width`: longer ones are broken, between words where there are some.
pub(super) fn wrapped(lines: Vec<Line<'static>>, width: usize) -> Vec<Line<'static>> {
    lines.into_iter().flat_map(|line| wrapped_line(line, width.max(1))).collect()
}

fn wrapped_line(line: Line<'static>, width: usize) -> Vec<Line<'static>> {
    if line.width() <= width {
        return vec![line];
    }
    let all: Vec<(char, Style)> =
        line.spans.iter().flat_map(|span| span.content.chars().map(|letter| (letter, span.style))).collect();
    let mut lines = Vec::new();
    let mut rest = &all[..];
    while !rest.is_empty() {
        let mut used = 0;
        let fits = rest.iter().take_while(|(letter, _)| {
            used += Span::raw(letter.to_string()).width();
            used <= width
        });
        // A letter that is wider than the terminal is on a line of its own.
        let fits = fits.count().max(1);
        let is_space = |(letter, _): &(char, Style)| *letter == ' ';
        let last_space = rest[..fits].iter().rposition(is_space).filter(|at| *at > 0);
        let end = if fits == rest.len() { fits } else { last_space.unwrap_or(fits) };
        let spans = rest[..end].iter().map(|(letter, style)| Span::styled(letter.to_string(), *style));
        lines.push(spans.collect());
        rest = &rest[end..];
        rest = &rest[rest.iter().take_while(|one| is_space(one)).count()..];
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(line: &Line<'_>) -> String {
        line.spans.iter().map(|span| span.content.as_ref()).collect()
    }

    #[test]
    fn colours_become_styles_and_all_else_that_a_terminal_acts_on_is_escaped() {
        let coloured = line("a \u{1b}[31mFailing\u{1b}[0m b");
        assert_eq!(text(&coloured), "a Failing b");
        assert_eq!(coloured.spans[1].style.fg, Some(Color::Red));
        assert_eq!(coloured.spans[2].style.fg, None);
        for (hostile, expected) in [
            ("\u{1b}[2Jgone", "\\u{1b}[2Jgone"),
            ("\u{1b}[31", "\\u{1b}[31"),
            ("\u{1b}]0;title\u{7}", "\\u{1b}]0;title\\u{7}"),
            ("a\u{9b}31mb\u{202e}", "a\\u{9b}31mb\\u{202e}"),
        ] {
            assert_eq!(text(&line(hostile)), expected, "{hostile:?}");
        }
    }

    #[test]
    fn long_lines_are_broken_between_words_and_lose_nothing_else() {
        for (long, width, expected) in [
            ("one two three", 8, vec!["one two", "three"]),
            ("one two", 7, vec!["one two"]),
            ("onetwothree", 4, vec!["onet", "woth", "ree"]),
            ("ab", 0, vec!["a", "b"]),
            ("世界", 1, vec!["世", "界"]),
            ("", 5, vec![""]),
        ] {
            let broken = wrapped(vec![line(long)], width);
            assert_eq!(broken.iter().map(text).collect::<Vec<_>>(), expected, "{long:?}");
        }
    }
}
