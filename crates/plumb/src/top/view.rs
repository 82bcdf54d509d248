//! What the terminal shows of the model. This does no I/O.

use plumb_vpa_explain::printable;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::Tab;
use super::dialog::{Dialog, Step};
use super::model::{Front, Model};
use super::table::{GAP, Row, Sort};
use super::{keys, styled};
use crate::color::meaning;

/// A terminal that is smaller shows only that it is.
const SMALLEST: (u16, u16) = (20, 6);

/// Draws the model.
pub(super) fn view(model: &Model, frame: &mut Frame<'_>) {
    let area = frame.area();
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        put(frame, 0, &Line::raw("terminal too small"));
        return;
    }
    let last = area.height - 1;
    if let Some(detail) = &model.detail {
        put(frame, 0, &Line::styled(printable(&detail.title()).into_owned(), bold()));
        let lines = detail.lines(model);
        let page = usize::from(last - 2);
        // There may be fewer lines than when it was scrolled.
        let first = detail.scroll.min(lines.len().saturating_sub(page));
        let visible = lines.iter().skip(first).take(page);
        for (y, line) in (1..).zip(visible) {
            put(frame, y, line);
        }
        put(frame, last, &Line::styled(keys::DETAIL, dim()));
    } else {
        put(frame, 0, &tabs(model));
        table(model, frame, last - 1);
        put(frame, last, &bottom(model));
    }
    put(frame, last - 1, &message(model));
    if let Some(dialog) = &model.dialog {
        window(frame, &format!("resize pod {}", dialog.key.object), &dialog_lines(dialog));
    }
    if model.front == Front::Help {
        window(frame, "keys", &help());
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

/// The selected row: readable without colours, too.
fn reversed() -> Style {
    Style::new().add_modifier(Modifier::REVERSED)
}

/// Draws a line in a row of the terminal; what does not fit is cut.
fn put(frame: &mut Frame<'_>, y: u16, line: &Line<'_>) {
    let area = frame.area();
    if y < area.height {
        frame.buffer_mut().set_line(area.x, area.y + y, line, area.width);
    }
}

/// The views, and the namespace whose objects are shown.
fn tabs(model: &Model) -> Line<'static> {
    let mut spans = Vec::new();
    for (number, tab) in (1..).zip(Tab::ALL) {
        let style = if tab == model.tab { reversed() } else { Style::new() };
        spans.push(Span::styled(format!(" {number} {} ", tab.title()), style));
    }
    let place = match &model.namespace {
        Some(namespace) if model.tab != Tab::Nodes => format!("namespace {namespace}"),
        _ => "the cluster".to_owned(),
    };
    spans.push(Span::raw(format!("  {}", printable(&place))));
    Line::from(spans)
}

/// The names of the columns and the visible rows, down to the line `end`.
fn table(model: &Model, frame: &mut Frame<'_>, end: u16) {
    let pane = model.pane();
    let columns = model.table.fitting(usize::from(frame.area().width));
    let head = columns.iter().map(|(column, width)| {
        let title = &model.table.columns[*column].title;
        let Sort { column: sorted, is_reversed } = pane.sort;
        let mark = match sorted {
            Some(sorted) if sorted == *column => {
                if is_reversed {
                    "▲"
                } else {
                    "▼"
                }
            }
            _ => "",
        };
        (format!("{title}{mark}"), *width, None)
    });
    put(frame, 1, &cells(head, bold()));
    if model.table.rows.is_empty() {
        put(frame, 2, &Line::raw(printable(&none(model)).into_owned()));
    }
    let visible = model.table.rows.iter().enumerate().skip(pane.offset);
    for (y, (at, row)) in (2..end).zip(visible) {
        let cell = |(column, width): &(usize, usize)| {
            let cell = row.cells.get(*column).map_or("", String::as_str);
            (printable(cell).into_owned(), *width, meaning(cell))
        };
        let style = if at == pane.selected { reversed() } else { Style::new() };
        put(frame, y, &cells(columns.iter().map(cell), style));
    }
}

/// Cells of a row, as wide as their columns.
fn cells(
    cells: impl Iterator<Item = (String, usize, Option<crate::color::Meaning>)>,
    style: Style,
) -> Line<'static> {
    let mut spans = Vec::new();
    for (cell, width, meaning) in cells {
        let cut = cut(&cell, width);
        let rest = (width + GAP).saturating_sub(Span::raw(&*cut).width());
        spans.push(Span::styled(cut, styled::style_of(meaning)));
        spans.push(Span::raw(" ".repeat(rest)));
    }
    Line::from(spans).style(style)
}

/// A text that fits; one that is cut ends with an ellipsis.
fn cut(text: &str, width: usize) -> String {
    if Span::raw(text).width() <= width {
        return text.to_owned();
    }
    let mut cut = String::new();
    let mut used = 1;
    for letter in text.chars() {
        used += Span::raw(letter.to_string()).width();
        if used > width {
            break;
        }
        cut.push(letter);
    }
    cut + "…"
}

/// Why there are no rows.
fn none(model: &Model) -> String {
    if let Some(why) = model.observed.unreadable.get(&model.tab) {
        return why.clone();
    }
    if !model.observed.listed.contains(&model.tab) {
        return "reading …".to_owned();
    }
    let pane = model.pane();
    if !pane.filter.is_empty() {
        return format!("nothing matches {:?}; Esc removes the filter", pane.filter);
    }
    match (&model.namespace, model.tab) {
        (Some(namespace), Tab::Pods | Tab::Vpas | Tab::Rollouts) => {
            format!("no {} in namespace {namespace}; plumb top -A shows all", model.tab.objects())
        }
        _ => format!("no {}", model.tab.objects()),
    }
}

/// What happened, or why the selected object waits.
fn message(model: &Model) -> Line<'static> {
    let why = model.selected().map(|row: &Row| row.why.as_str()).filter(|_| model.detail.is_none());
    let text = model.notice.as_deref().or(model.message.as_deref()).or(why).unwrap_or_default();
    styled::line(text.lines().next().unwrap_or_default())
}

/// The keys, or the filter while it is written.
fn bottom(model: &Model) -> Line<'static> {
    let filter = &model.pane().filter;
    if model.front == Front::Filter {
        let input = Span::raw(format!("/{filter}█  "));
        return Line::from(vec![input, Span::styled(keys::FILTER, dim())]);
    }
    if filter.is_empty() {
        return Line::styled(keys::LIST, dim());
    }
    Line::from(vec![Span::raw(format!("/{filter}  ")), Span::styled(keys::LIST, dim())])
}

fn help() -> Vec<Line<'static>> {
    let width = keys::HELP.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
    let keys = keys::HELP.iter().map(|(key, what)| Line::raw(format!("{key:width$}  {what}")));
    let resize = keys::RESIZE.iter().map(|line| Line::raw(format!("  {line}")));
    let head = [Line::raw(""), Line::raw("What a resize may say:")];
    keys.chain(head).chain(resize).collect()
}

fn dialog_lines(dialog: &Dialog) -> Vec<Line<'static>> {
    let input = |cursor: &str| Line::raw(format!("> {}{cursor}", dialog.input));
    let mut lines = Vec::new();
    if !dialog.key.part.is_empty() {
        lines.push(Line::raw(format!("container {}", printable(&dialog.key.part))));
    }
    match &dialog.step {
        Step::Editing { error } => {
            lines.push(input("█"));
            match error {
                Some(error) => lines.push(styled::line(error)),
                None => lines.push(Line::styled("such as: cpu=300m memory=128Mi", dim())),
            }
            lines.push(Line::styled("Enter previews  Esc cancels", dim()));
        }
        Step::Checking(_) => {
            lines.push(input(""));
            lines.push(Line::raw("asking the API server …"));
            lines.push(Line::styled("Esc cancels", dim()));
        }
        Step::Confirming { preview, .. } => {
            lines.push(input(""));
            lines.extend(preview.iter().map(|line| styled::line(line)));
            lines.push(Line::raw("The API server accepts it (dry run). Resize? y/n"));
        }
        Step::Requested(_) => {
            lines.push(input(""));
            lines.push(Line::raw("resizing …"));
        }
    }
    lines
}

/// Draws lines in a frame over the middle of the terminal.
fn window(frame: &mut Frame<'_>, title: &str, lines: &[Line<'static>]) {
    let area = frame.area();
    let inner = usize::from(area.width - 4);
    let lines = styled::wrapped(lines.to_vec(), inner);
    let longest = lines.iter().map(Line::width).max().unwrap_or(0);
    let title = cut(&printable(title), inner - 2);
    let width = longest.max(Span::raw(&*title).width() + 2);
    let height = lines.len().min(usize::from(area.height - 2));
    // Both fit the terminal, whose size is an `u16`.
    let fitting = |size: usize| u16::try_from(size).unwrap_or(u16::MAX);
    let at = Rect {
        x: (area.width - fitting(width + 4)) / 2,
        y: (area.height - fitting(height + 2)) / 2,
        width: fitting(width + 4),
        height: fitting(height + 2),
    };
    let buffer = frame.buffer_mut();
    let rule = "─".repeat(width.saturating_sub(Span::raw(&*title).width()));
    buffer.set_string(at.x, at.y, format!("┌ {title} {rule}┐"), Style::new());
    for (y, line) in (at.y + 1..).zip(&lines[..height]) {
        buffer.set_string(at.x, y, format!("│{}│", " ".repeat(width + 2)), Style::new());
        buffer.set_line(at.x + 2, y, line, fitting(width));
    }
    buffer.set_string(at.x, at.bottom() - 1, format!("└{}┘", "─".repeat(width + 2)), Style::new());
}
