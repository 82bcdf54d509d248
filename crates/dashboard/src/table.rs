//! Tables, as HTML, JSON and CSV.

use std::borrow::Cow;

use jiff::Timestamp;
use maud::{Markup, html};
use plumb_recommender::display::short;
use plumb_resize::list::quantity_of;
use plumb_resize::resource::Resource;
use serde_json::{Map, Value, json};

/// The most rows of a table on a page. JSON and CSV have all.
pub(crate) const ROWS: usize = 100;

/// A table. Its rows have as many cells as it has columns.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Table {
    /// What it is about, above it.
    pub(crate) caption: String,
    /// Its columns.
    pub(crate) columns: Vec<Column>,
    /// Its rows. The first cell is the heading of its row.
    pub(crate) rows: Vec<Vec<Cell>>,
    /// The text in place of rows if there are none.
    pub(crate) empty: &'static str,
}

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    /// Its name in JSON and CSV.
    pub(crate) key: &'static str,
    /// Its heading.
    pub(crate) title: &'static str,
}

/// How a state is coloured. The text says the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tone {
    /// As it should be.
    Good,
    /// In progress.
    Busy,
    /// It waits, or needs attention.
    Warning,
    /// It has failed, or cannot be done.
    Bad,
    /// None of these.
    Plain,
}

impl Tone {
    /// The CSS class.
    pub(crate) const fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Busy => "busy",
            Self::Warning => "warning",
            Self::Bad => "bad",
            Self::Plain => "plain",
        }
    }
}

/// A cell.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cell {
    /// A text, which may be empty.
    Text(String),
    /// A text that links to another page.
    Link {
        /// The text.
        text: String,
        /// The path of the page.
        href: String,
    },
    /// A word for a state.
    State(String, Tone),
    /// An amount of a resource; `None` if it is not known or not set.
    Amount(Resource, Option<i64>),
    /// A request and a limit of a resource.
    Pair(Resource, Option<i64>, Option<i64>),
    /// A number.
    Count(usize),
    /// A time.
    Time(Option<Timestamp>),
    /// A part of a whole in percent; `None` if it is not known.
    Percent(Option<u8>),
}

impl Cell {
    /// A text.
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    /// A part of a whole.
    pub(crate) fn percent(part: i64, whole: i64) -> Self {
        let percent = (whole > 0).then(|| i128::from(part.max(0)) * 100 / i128::from(whole));
        Self::Percent(percent.map(|percent| u8::try_from(percent).unwrap_or(u8::MAX)))
    }

    /// A word for a state.
    pub(crate) fn state(word: impl Into<String>, tone: Tone) -> Self {
        Self::State(word.into(), tone)
    }

    /// Whether a text is part of it.
    pub(crate) fn contains(&self, lowercase: &str) -> bool {
        match self {
            Self::Text(text) | Self::Link { text, .. } | Self::State(text, _) => {
                text.to_lowercase().contains(lowercase)
            }
            _ => false,
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Amount(..) | Self::Pair(..) | Self::Count(_) | Self::Percent(_))
    }

    fn html(&self) -> Markup {
        match self {
            Self::Text(text) => html! { (text) },
            Self::Link { text, href } => html! { a href=(href) { (text) } },
            Self::State(word, tone) => html! { span class={ "state " (tone.class()) } { (word) } },
            Self::Amount(resource, amount) => amount_html(*resource, *amount),
            Self::Pair(resource, request, limit) => html! {
                (amount_html(*resource, *request)) " / " (amount_html(*resource, *limit))
            },
            Self::Count(count) => html! { (count) },
            Self::Time(Some(time)) => time_html(*time),
            Self::Percent(Some(percent)) => html! {
                meter min="0" max="100" high="90" value=(percent) { (percent) "%" } " " (percent) "%"
            },
            Self::Time(None) | Self::Percent(None) => html! { "–" },
        }
    }

    /// The value for programs.
    fn json(&self) -> Value {
        match self {
            Self::Text(text) | Self::Link { text, .. } | Self::State(text, _) => json!(text),
            Self::Amount(resource, amount) => json!(exact(*resource, *amount)),
            Self::Pair(resource, request, limit) => {
                json!({ "request": exact(*resource, *request), "limit": exact(*resource, *limit) })
            }
            Self::Count(count) => json!(count),
            Self::Time(time) => json!(time.map(|time| time.to_string())),
            Self::Percent(percent) => json!(percent),
        }
    }

    fn csv(&self) -> String {
        match self {
            Self::Text(text) | Self::Link { text, .. } | Self::State(text, _) => {
                quoted(&without_formula(text))
            }
            Self::Pair(resource, request, limit) => {
                let amount = |amount| exact(*resource, amount).unwrap_or_default();
                format!("{}/{}", amount(*request), amount(*limit))
            }
            other => match other.json() {
                Value::Null => String::new(),
                Value::String(text) => quoted(&text),
                value => value.to_string(),
            },
        }
    }
}

/// An amount, short for people and in full as its title.
fn amount_html(resource: Resource, amount: Option<i64>) -> Markup {
    let Some(value) = amount else { return html! { "–" } };
    html! { span title=[exact(resource, amount)] { (short(resource, value)) } }
}

/// A time. The page's script shows how long ago it is.
fn time_html(time: Timestamp) -> Markup {
    let text = time.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
    html! { time datetime=(time) { (text) } }
}

/// An amount as Kubernetes writes it.
fn exact(resource: Resource, amount: Option<i64>) -> Option<String> {
    amount.map(|amount| quantity_of(resource, amount).to_string())
}

/// A field of CSV, in quotes where it needs them.
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// A text that no spreadsheet takes for a formula. Messages are written by other users.
fn without_formula(text: &str) -> Cow<'_, str> {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        Cow::Owned(format!("'{text}"))
    } else {
        Cow::Borrowed(text)
    }
}

impl Table {
    /// The table as HTML.
    pub(crate) fn html(&self) -> Markup {
        html! {
            div class="scroll" tabindex="0" role="region" aria-label=(self.caption) {
                table {
                    caption {
                        (self.caption)
                        @if self.rows.len() > ROWS { ": the first " (ROWS) " of " (self.rows.len()) "; JSON and CSV have all" }
                    }
                    thead { tr { @for column in &self.columns { th scope="col" { (column.title) } } } }
                    tbody {
                        @for row in self.rows.iter().take(ROWS) {
                            tr {
                                @for (position, cell) in row.iter().enumerate() {
                                    @if position == 0 {
                                        th scope="row" { (cell.html()) }
                                    } @else {
                                        td class=[cell.is_number().then_some("number")] { (cell.html()) }
                                    }
                                }
                            }
                        }
                        @if self.rows.is_empty() {
                            tr { td colspan=(self.columns.len()) { (self.empty) } }
                        }
                    }
                }
            }
        }
    }

    /// The rows as JSON objects.
    pub(crate) fn json(&self) -> Value {
        let row = |row: &Vec<Cell>| -> Map<String, Value> {
            let cells = self.columns.iter().zip(row);
            cells.map(|(column, cell)| (column.key.to_owned(), cell.json())).collect()
        };
        self.rows.iter().map(row).collect()
    }

    /// The rows as CSV, with a line of names first (RFC 4180).
    pub(crate) fn csv(&self) -> String {
        let line = |cells: &mut dyn Iterator<Item = String>| cells.collect::<Vec<_>>().join(",") + "\r\n";
        let mut text = line(&mut self.columns.iter().map(|column| column.key.to_owned()));
        for row in &self.rows {
            text.push_str(&line(&mut row.iter().map(Cell::csv)));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(cell: Cell) -> Table {
        let columns = vec![Column { key: "name", title: "Name" }, Column { key: "value", title: "Value" }];
        Table { caption: "All".to_owned(), columns, rows: vec![vec![Cell::text("a"), cell]], empty: "None." }
    }

    #[test]
    fn a_cell_has_the_same_value_in_each_format() {
        for (cell, html, value, csv) in [
            (Cell::Amount(Resource::Cpu, Some(1500)), ">1.5<", json!("1500m"), "1500m"),
            (Cell::Amount(Resource::Memory, None), "–", Value::Null, ""),
            (Cell::Count(3), ">3<", json!(3), "3"),
            (Cell::percent(1, 4), ">25%<", json!(25), "25"),
            (Cell::percent(1, 0), "–", Value::Null, ""),
            (
                Cell::Pair(Resource::Cpu, Some(100), None),
                ">100m<",
                json!({ "request": "100m", "limit": null }),
                "100m/",
            ),
        ] {
            let table = table(cell);
            let page = table.html().into_string();
            assert!(page.contains(html), "{page}");
            assert_eq!(table.json(), json!([{ "name": "a", "value": value }]));
            assert_eq!(table.csv(), format!("name,value\r\na,{csv}\r\n"));
        }
    }

    #[test]
    fn a_page_has_the_first_rows_of_a_long_table_and_programs_get_all() {
        let mut long = table(Cell::Count(1));
        long.rows = (0..=ROWS).map(|row| vec![Cell::Count(row), Cell::Count(row)]).collect();
        let page = long.html().into_string();
        assert_eq!(page.matches("<tr>").count(), ROWS + 1);
        assert!(page.contains("All: the first 100 of 101; JSON and CSV have all"), "{page}");
        assert_eq!(long.json().as_array().unwrap().len(), ROWS + 1);
        assert_eq!(long.csv().lines().count(), ROWS + 2);
    }

    #[test]
    fn html_in_a_text_is_text() {
        let text = "<script>alert(1)</script>\"&";
        let page = table(Cell::text(text)).html().into_string();
        assert!(!page.contains("<script") && page.contains("&lt;script&gt;"), "{page}");
        let link = Cell::Link { text: text.to_owned(), href: "/pods?q=\"><b>".to_owned() };
        let page = table(link).html().into_string();
        assert!(!page.contains("<script") && !page.contains("<b>"), "{page}");
    }

    #[test]
    fn csv_quotes_separators_and_disarms_formulas() {
        for (text, expected) in [
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("=1+1", "'=1+1"),
            ("-2,@", "\"'-2,@\""),
            ("two\nlines", "\"two\nlines\""),
        ] {
            assert_eq!(table(Cell::text(text)).csv(), format!("name,value\r\na,{expected}\r\n"));
        }
    }
}
