//! The pages.

mod overview;
mod pod;
mod pods;
mod rollouts;
mod vpa_history;
mod vpa_pods;
mod vpas;
mod waste;
mod what_if;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Event;
use maud::{Markup, html};
use plumb_vpa_api::VerticalPodAutoscalerCheckpoint;

use crate::actions::Kind;
use crate::cluster::Cluster;
use crate::page::{Page, Section};
use crate::source::Access;
use crate::table::{Cell, Column, ROWS, Table};
use crate::view::{Filter, View};

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
    let checkpoints = match view {
        View::Vpa(namespace, name) => cluster.checkpoints(namespace, name).await,
        _ => Ok(Vec::new()),
    };
    let read = Read {
        events,
        checkpoints,
        dry_run: dry_run(cluster, view).await,
        may_patch: may_patch(cluster, view).await,
    };
    let (cluster, view) = (cluster.clone(), view.clone());
    let made = tokio::task::spawn_blocking(move || make(&cluster, &view, read)).await;
    made.inspect_err(|error| tracing::error!(%error, "cannot render a page")).ok()
}

/// What is read from the API for one page.
struct Read {
    /// The events of a pod.
    events: Result<Vec<Event>, Access>,
    /// The history of a VPA.
    checkpoints: Result<Vec<VerticalPodAutoscalerCheckpoint>, Access>,
    /// The response to a resize that is not made; `None` if none was requested.
    dry_run: Option<what_if::DryRun>,
    /// Whether the user may patch a workload.
    may_patch: bool,
}

async fn dry_run(cluster: &Cluster, view: &View) -> Option<what_if::DryRun> {
    let View::WhatIf(namespace, name, requests) = view else { return None };
    let pod = cluster.pod(namespace, name).filter(|_| requests.is_set())?;
    let (_, patch) = what_if::resized(&pod, requests).ok()?;
    Some(cluster.dry_run_resize(namespace, name, patch).await)
}

async fn may_patch(cluster: &Cluster, view: &View) -> bool {
    let View::Rollout(kind, namespace, _) = view else { return false };
    match Kind::named(kind) {
        Some(kind) => cluster.may_patch(kind, namespace).await,
        None => false,
    }
}

fn make(cluster: &Cluster, view: &View, read: Read) -> Page {
    match view {
        View::Overview => overview::page(cluster),
        View::Pods(filter) => pods::page(cluster, filter),
        View::Pod(namespace, name) => pod::page(cluster, namespace, name, read.events),
        View::WhatIf(namespace, name, requests) => {
            what_if::page(cluster, namespace, name, requests, read.dry_run)
        }
        View::Vpas(filter) => vpas::list(cluster, filter),
        View::Vpa(namespace, name) => vpas::page(cluster, namespace, name, read.checkpoints),
        View::Rollouts(filter) => rollouts::list(cluster, filter),
        View::Rollout(kind, namespace, name) => {
            rollouts::page(cluster, kind, namespace, name, read.may_patch)
        }
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
