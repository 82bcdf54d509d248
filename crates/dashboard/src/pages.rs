//! The pages.

mod overview;
mod pod;
mod pods;
mod rollouts;
mod vpas;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Event;
use maud::{Markup, html};

use crate::cluster::Cluster;
use crate::page::{Page, Section};
use crate::source::Access;
use crate::table::{Cell, Column, Table};
use crate::view::{Filter, View};

/// How many rows of a list are on a page of it.
const ROWS: usize = 200;

/// Makes a page. The computation is not on the threads that serve connections: a cluster may have many pods.
pub(crate) async fn page(cluster: &Arc<Cluster>, view: &View) -> Option<Page> {
    cluster.first_lists().await;
    let events = match view {
        View::Pod(namespace, name) => match cluster.pod(namespace, name) {
            Some(pod) => cluster.events(&pod).await,
            None => Ok(Vec::new()),
        },
        _ => Ok(Vec::new()),
    };
    let (cluster, view) = (cluster.clone(), view.clone());
    let made = tokio::task::spawn_blocking(move || make(&cluster, &view, events)).await;
    made.inspect_err(|error| tracing::error!(%error, "cannot render a page")).ok()
}

fn make(cluster: &Cluster, view: &View, events: Result<Vec<Event>, Access>) -> Page {
    match view {
        View::Overview => overview::page(cluster),
        View::Pods(filter) => pods::page(cluster, filter),
        View::Pod(namespace, name) => pod::page(cluster, namespace, name, events),
        View::Vpas(filter) => vpas::list(cluster, filter),
        View::Vpa(namespace, name) => vpas::page(cluster, namespace, name),
        View::Rollouts(filter) => rollouts::list(cluster, filter),
        View::Rollout(kind, namespace, name) => rollouts::page(cluster, kind, namespace, name),
    }
}

/// The columns of a table: names for programs, and headings.
fn columns(columns: &[(&'static str, &'static str)]) -> Vec<Column> {
    columns.iter().map(|(key, title)| Column { key, title }).collect()
}

/// Whether a row of a list matches its filter.
fn matches(row: &[Cell], filter: &Filter) -> bool {
    let text = filter.text.to_lowercase();
    text.is_empty() || row.iter().any(|cell| cell.contains(&text))
}

/// The section of a list, of which only some rows are on the page.
fn list_section(
    mut section: Section,
    mut table: Table,
    filter: &Filter,
    view: impl Fn(Filter) -> View,
) -> Section {
    let total = table.rows.len();
    let first = filter.page.saturating_mul(ROWS).min(total);
    let last = first.saturating_add(ROWS).min(total);
    if total > ROWS {
        section.notes.push(format!("{} to {last} of {total}", first + 1));
        section.figure = Some(pages_of(total, filter, view));
    }
    table.rows = table.rows.drain(first..last).collect();
    section.with_table(table)
}

fn pages_of(total: usize, filter: &Filter, view: impl Fn(Filter) -> View) -> Markup {
    let before = filter.page.checked_sub(1);
    let after = filter.page.checked_add(1).filter(|page| page.saturating_mul(ROWS) < total);
    html! {
        nav aria-label="Pages of this list" {
            @if let Some(before) = before { a rel="prev" href=(view(filter.at(before)).href()) { "Previous" } }
            @if let Some(after) = after { a rel="next" href=(view(filter.at(after)).href()) { "Next" } }
        }
    }
}

/// The page of an object that does not exist, or that the user may not read.
fn absent(title: String, objects: &str, access: &Access) -> Page {
    let mut section = Section::new("object", "Not found").needs(objects, access);
    let found = section.missing.iter().any(|_| true);
    if !found {
        section.notes.push("There is no such object, or it was deleted.".to_owned());
    }
    Page { title, found, sections: vec![section] }
}
