//! A page: its sections, and the document around them.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use maud::{DOCTYPE, Markup, html};
use serde_json::{Map, Value, json};

use crate::assets::{SCRIPT, STYLE};
use crate::source::Access;
use crate::table::Table;
use crate::view::{Filter, View};

/// A page.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// What it is about.
    pub(crate) title: String,
    /// Whether the object that it is about exists.
    pub(crate) found: bool,
    /// Its parts.
    pub(crate) sections: Vec<Section>,
}

/// A part of a page, which is sent again when it changes.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    /// Its name in URLs, JSON and HTML.
    pub(crate) id: &'static str,
    /// Its heading.
    pub(crate) heading: &'static str,
    /// What cannot be shown, and why.
    pub(crate) missing: Vec<String>,
    /// Remarks.
    pub(crate) notes: Vec<String>,
    /// What is no table: charts and grids.
    pub(crate) figure: Option<Markup>,
    /// Its table.
    pub(crate) table: Option<Table>,
}

impl Section {
    /// A section without content.
    pub(crate) fn new(id: &'static str, heading: &'static str) -> Self {
        Self { id, heading, missing: Vec::new(), notes: Vec::new(), figure: None, table: None }
    }

    /// The section with a table.
    #[must_use]
    pub(crate) fn with_table(mut self, table: Table) -> Self {
        self.table = Some(table);
        self
    }

    /// The section with the reason why objects that it needs cannot be read, if that is so.
    #[must_use]
    pub(crate) fn needs(mut self, objects: &str, access: &Access) -> Self {
        self.missing.extend(missing(objects, access));
        self
    }

    fn html(&self) -> Markup {
        html! {
            h2 id=(format!("{}-heading", self.id)) { (self.heading) }
            @for missing in &self.missing { p class="missing" { (missing) } }
            @for note in &self.notes { p class="note" { (note) } }
            @if let Some(figure) = &self.figure { (figure) }
            @if let Some(table) = &self.table { (table.html()) }
        }
    }
}

/// Why objects cannot be shown; `None` if they can.
pub(crate) fn missing(objects: &str, access: &Access) -> Option<String> {
    match access {
        Access::Granted => None,
        Access::Unknown => Some(format!("{objects} are being read.")),
        Access::Forbidden(message) => {
            Some(format!("You lack the right to list and watch {objects}: {message}"))
        }
        Access::NotServed => Some(format!("The cluster does not serve {objects}.")),
        Access::Unreachable(message) => Some(format!("{objects} cannot be read now: {message}")),
    }
}

/// A rendered section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// The section.
    pub(crate) id: &'static str,
    /// The hash of its HTML, by which a browser that has it is recognised.
    pub(crate) hash: String,
    /// Its HTML.
    pub(crate) html: String,
}

impl Page {
    /// The rendered sections.
    pub(crate) fn fragments(&self) -> Vec<Fragment> {
        let fragment = |section: &Section| {
            let html = section.html().into_string();
            let mut hasher = DefaultHasher::new();
            html.hash(&mut hasher);
            Fragment { id: section.id, hash: format!("{:016x}", hasher.finish()), html }
        };
        self.sections.iter().map(fragment).collect()
    }

    /// The tables by the names of their sections, for programs.
    pub(crate) fn json(&self) -> Value {
        let mut tables = Map::new();
        for section in &self.sections {
            let rows = section.table.as_ref().map_or(Value::Null, Table::json);
            let value = json!({ "rows": rows, "missing": section.missing, "notes": section.notes });
            tables.insert(section.id.to_owned(), value);
        }
        Value::Object(tables)
    }

    /// A table as CSV: that of a section, or else the first one.
    pub(crate) fn csv(&self, section: Option<&str>) -> Option<String> {
        let mut tables = self.sections.iter().filter_map(|one| Some((one.id, one.table.as_ref()?)));
        let (_, table) = tables.find(|(id, _)| section.is_none_or(|section| section == *id))?;
        Some(table.csv())
    }

    /// The whole document.
    pub(crate) fn document(&self, view: &View, cluster: &str) -> String {
        let fragments = self.fragments();
        let title = format!("{} – {cluster} – Plumb", self.title);
        let body = html! {
            (header(view, cluster))
            main id="main" tabindex="-1" {
                h1 { (self.title) }
                @if let Some(form) = form_of(view) { (form) }
                @for (section, fragment) in self.sections.iter().zip(&fragments) {
                    section id=(fragment.id) data-hash=(fragment.hash)
                        aria-labelledby=(format!("{}-heading", fragment.id)) {
                        (maud::PreEscaped(&fragment.html))
                    }
                    @if section.table.is_some() {
                        p class="formats" {
                            a href=(view.href_with(&format!("format=csv&table={}", section.id))) {
                                "CSV" span class="hidden" { " of " (section.heading) }
                            }
                        }
                    }
                }
            }
            footer {
                a href=(view.href_with("format=json")) { "This page as JSON" }
                span id="live" role="status" { "" }
            }
        };
        document(&title, Some(&view.href_with("format=live")), body)
    }
}

fn document(title: &str, live: Option<&str>, body: Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                link rel="icon" href="data:,";
                link rel="stylesheet" href=(STYLE.href());
                @if live.is_some() { script src=(SCRIPT.href()) defer {} }
            }
            body data-live=[live] {
                a class="skip" href="#main" { "Skip to content" }
                (body)
            }
        }
    };
    page.into_string()
}

fn header(view: &View, cluster: &str) -> Markup {
    let is_pods = matches!(view, View::Pods(_) | View::Pod(..) | View::WhatIf(..));
    let is_vpas = matches!(view, View::Vpas(_) | View::Vpa(..));
    let is_rollouts = matches!(view, View::Rollouts(_) | View::Rollout(..));
    let links = [
        (View::Overview, "Overview", *view == View::Overview),
        (View::Pods(Filter::default()), "Pods", is_pods),
        (View::Vpas(Filter::default()), "VPAs", is_vpas),
        (View::Rollouts(Filter::default()), "Rollouts", is_rollouts),
    ];
    html! {
        header {
            span class="cluster" { (cluster) }
            nav aria-label="Pages" {
                @for (view, name, is_current) in links {
                    a href=(view.href()) aria-current=[is_current.then_some("page")] { (name) }
                }
            }
        }
    }
}

/// The form of a page: its filter, or the requests that it is about. The values are in the URL, so that a link to what is
/// shown can be shared.
fn form_of(view: &View) -> Option<Markup> {
    let href = view.href();
    let action = href.split('?').next().unwrap_or_default();
    if let View::WhatIf(_, _, requests) = view {
        return Some(html! {
            form method="get" action=(action) {
                label { "Container " input name="container" value=(requests.container) required maxlength="63"; }
                label { "CPU request " input name="cpu" value=(requests.cpu) placeholder="1500m" maxlength="40"; }
                label { "Memory request " input name="memory" value=(requests.memory) placeholder="2Gi" maxlength="40"; }
                button { "What if" }
            }
        });
    }
    let (View::Pods(filter) | View::Vpas(filter) | View::Rollouts(filter)) = view else { return None };
    Some(html! {
        form method="get" action=(action) role="search" {
            label { "Namespace " input name="namespace" value=(filter.namespace) maxlength="253"; }
            label { "Text " input type="search" name="q" value=(filter.text) maxlength="253"; }
            button { "Filter" }
        }
    })
}

/// A page without live content, such as an error.
pub(crate) fn message(title: &str, text: &str, link: Option<(&str, &str)>) -> String {
    let body = html! {
        main id="main" tabindex="-1" {
            h1 { (title) }
            p { (text) }
            @if let Some((href, name)) = link { p { a href=(href) { (name) } } }
        }
    };
    document(title, None, body)
}

/// The response to the first visit, which continues at a path. A redirect would not do: browsers send no `SameSite=Strict`
/// cookie along a redirect if another program or site has opened the URL.
pub(crate) fn continue_at(path: &str) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content=(format!("0;url={path}"));
                title { "Plumb" }
                link rel="icon" href="data:,";
                link rel="stylesheet" href=(STYLE.href());
            }
            body { main { p { a href=(path) { "Continue to the dashboard" } } } }
        }
    };
    page.into_string()
}
