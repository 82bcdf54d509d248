//! What changes when something happens. This does no I/O.

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use k8s_openapi::api::core::v1::Pod;
use plumb_controller_runtime::{ObjectRef, WatchEvent};

use super::Tab;
use super::detail::{Detail, Subject};
use super::dialog::{Dialog, Step, outcome};
use super::event::{Effect, Event, ResizeRequest};
use super::model::{Front, Model};
use super::table::{Key, Sort};

/// The most letters of a filter or a resize.
const LONGEST_INPUT: usize = 200;

/// Applies an event to the model; returns what is to be done about it.
pub(super) fn update(model: &mut Model, event: Event) -> Vec<Effect> {
    match event {
        Event::Key(key) => return pressed(model, key),
        Event::Size { columns, rows } => model.size = (columns, rows),
        Event::Tick { now, notice } => {
            model.now = now;
            model.notice = notice;
            model.touch();
            return due(model).into_iter().collect();
        }
        Event::Nodes(event) => model.observed.apply_node(event),
        Event::Pods(event) => {
            let changed = match &event {
                WatchEvent::Restarted(_) => None,
                WatchEvent::Applied(pod) => Some(ObjectRef::of(&**pod)),
                WatchEvent::Deleted(pod) => Some(pod.clone()),
            };
            model.observed.apply_pod(event, model.namespace.as_deref());
            model.touch();
            let pods = &model.observed.pods;
            let detail = model.detail.as_mut().filter(|detail| detail.concerns(changed.as_ref()));
            return detail.map(|detail| detail.follow(pods)).unwrap_or_default();
        }
        Event::Vpas(event) => {
            model.observed.apply_vpa(event);
            if let Some(Detail { subject: Subject::Vpa { is_due, .. }, .. }) = &mut model.detail {
                *is_due = true;
            }
        }
        Event::Workloads(kind, event) => model.observed.apply_workload(kind, event),
        Event::Unreadable(tab, why) => drop(model.observed.unreadable.insert(tab, why)),
        Event::Usage(usage, nodes) => {
            model.observed.usage = usage;
            model.observed.node_usage = nodes;
        }
        Event::OfPod(event) => {
            if let Some(detail) = &mut model.detail {
                detail.apply(event);
            }
        }
        Event::Boosts(pod, read) => {
            if let Some(Detail { subject: Subject::Pod { key, boosts, .. }, .. }) = &mut model.detail
                && key.object == pod
            {
                *boosts = read;
            }
        }
        Event::Vpa(vpa, read) => {
            if let Some(Detail { subject: Subject::Vpa { object, text, .. }, .. }) = &mut model.detail
                && *object == vpa
            {
                *text = Some(read);
            }
        }
        Event::Resized { request, response } => resized(model, request, response),
        Event::Terminate => return vec![Effect::Quit],
    }
    model.touch();
    Vec::new()
}

/// Reads the pods of the VPA that is shown again, if it or pods have changed; once a second at most.
fn due(model: &mut Model) -> Option<Effect> {
    let Some(Detail { subject: Subject::Vpa { object, is_due, .. }, .. }) = &mut model.detail else {
        return None;
    };
    let vpa = model.observed.vpas.get(object).filter(|_| std::mem::take(is_due))?;
    Some(Effect::ReadVpa(Box::new(vpa.clone())))
}

fn resized(model: &mut Model, request: ResizeRequest, response: Result<Box<Pod>, String>) {
    if request.is_dry_run {
        if let Some(dialog) = &mut model.dialog {
            dialog.answer(&model.observed, request, response);
        }
        return;
    }
    model.message = Some(outcome(&request, &response));
    if model.dialog.as_ref().is_some_and(|dialog| dialog.step == Step::Requested(request)) {
        model.dialog = None;
    }
}

/// A key belongs to what is in front.
fn pressed(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
        return vec![Effect::Quit];
    }
    if model.front == Front::Help {
        model.front = Front::Table;
        return Vec::new();
    }
    if model.dialog.is_some() {
        return in_dialog(model, key);
    }
    if model.front == Front::Filter {
        in_filter(model, key);
        return Vec::new();
    }
    // The key is about what the user sees.
    model.refresh();
    model.message = None;
    match key.code {
        KeyCode::Char('q') => return vec![Effect::Quit],
        KeyCode::Char('?' | 'h') => model.front = Front::Help,
        KeyCode::Char('r') => model.dialog = resizable(model).map(Dialog::new),
        _ if model.detail.is_some() => return in_detail(model, key),
        _ => return in_list(model, key),
    }
    Vec::new()
}

/// The pod and container that `r` is about.
fn resizable(model: &mut Model) -> Option<Key> {
    let key = match &model.detail {
        Some(Detail { subject: Subject::Pod { key, .. }, .. }) => Some(key.clone()),
        None if model.tab == Tab::Pods => model.selected().map(|row| row.key.clone()),
        Some(_) | None => None,
    };
    if key.is_none() {
        model.message = Some("r resizes a pod: 2 shows pods".to_owned());
    }
    key
}

fn in_list(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    let (selected, page) = (model.pane().selected, model.page());
    match key.code {
        KeyCode::Char(digit @ '1'..='4') => {
            let at = usize::from(digit as u8 - b'1');
            show(model, Tab::ALL[at]);
        }
        KeyCode::Tab | KeyCode::Right => show(model, Tab::ALL[(model.tab as usize + 1) % Tab::ALL.len()]),
        KeyCode::BackTab | KeyCode::Left => {
            show(model, Tab::ALL[(model.tab as usize + Tab::ALL.len() - 1) % Tab::ALL.len()]);
        }
        KeyCode::Down | KeyCode::Char('j') => model.select(selected + 1),
        KeyCode::Up | KeyCode::Char('k') => model.select(selected.saturating_sub(1)),
        KeyCode::PageDown | KeyCode::Char(' ') => model.select(selected + page),
        KeyCode::PageUp => model.select(selected.saturating_sub(page)),
        KeyCode::Home | KeyCode::Char('g') => model.select(0),
        KeyCode::End | KeyCode::Char('G') => model.select(usize::MAX),
        KeyCode::Char('/') => model.front = Front::Filter,
        KeyCode::Esc => {
            model.pane_mut().filter.clear();
            model.touch();
        }
        KeyCode::Char('s') => {
            let columns = model.table.columns.len();
            let next = model.pane().sort.column.map_or(0, |column| column + 1);
            model.pane_mut().sort =
                Sort { column: Some(next).filter(|next| *next < columns), is_reversed: false };
            model.touch();
        }
        KeyCode::Char('S') => {
            let sort = &mut model.pane_mut().sort;
            sort.is_reversed = !sort.is_reversed;
            model.touch();
        }
        KeyCode::Enter => return open(model),
        _ => {}
    }
    Vec::new()
}

fn show(model: &mut Model, tab: Tab) {
    model.tab = tab;
    model.touch();
}

/// Shows the details of the selected row.
fn open(model: &mut Model) -> Vec<Effect> {
    let Some(key) = model.selected().map(|row| row.key.clone()) else { return Vec::new() };
    let mut detail = Detail::new(model.tab, key);
    let mut effects = detail.follow(&model.observed.pods);
    model.detail = Some(detail);
    effects.extend(due(model));
    effects
}

fn in_detail(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    let page = Detail::page(model);
    let Some(detail) = &model.detail else { return Vec::new() };
    let (scroll, last) = (detail.scroll, detail.lines(model).len().saturating_sub(page));
    let scroll = match key.code {
        KeyCode::Esc | KeyCode::Backspace => {
            model.detail = None;
            return vec![Effect::Unwatch];
        }
        KeyCode::Down | KeyCode::Char('j') => scroll + 1,
        KeyCode::Up | KeyCode::Char('k') => scroll.saturating_sub(1),
        KeyCode::PageDown | KeyCode::Char(' ') => scroll + page,
        KeyCode::PageUp => scroll.saturating_sub(page),
        KeyCode::Home | KeyCode::Char('g') => 0,
        KeyCode::End | KeyCode::Char('G') => last,
        _ => scroll,
    };
    if let Some(detail) = &mut model.detail {
        detail.scroll = scroll.min(last);
    }
    Vec::new()
}

fn in_filter(model: &mut Model, key: KeyEvent) {
    match key.code {
        KeyCode::Enter => model.front = Front::Table,
        KeyCode::Esc => {
            model.front = Front::Table;
            model.pane_mut().filter.clear();
        }
        _ => typed(&mut model.pane_mut().filter, key),
    }
    model.touch();
}

/// Changes a text that the user writes.
fn typed(text: &mut String, key: KeyEvent) {
    let has_control = key.modifiers.intersects(KeyModifiers::CONTROL | KeyModifiers::ALT);
    match key.code {
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Char('u') if has_control => text.clear(),
        KeyCode::Char(letter) if !has_control && !letter.is_control() && text.len() < LONGEST_INPUT => {
            text.push(letter);
        }
        _ => {}
    }
}

fn in_dialog(model: &mut Model, key: KeyEvent) -> Vec<Effect> {
    let Some(dialog) = &mut model.dialog else { return Vec::new() };
    match (&mut dialog.step, key.code) {
        (Step::Confirming { .. }, KeyCode::Char('y' | 'Y')) => return dialog.confirm().into_iter().collect(),
        (Step::Confirming { .. }, KeyCode::Char('n' | 'N') | KeyCode::Esc) => {
            dialog.step = Step::Editing { error: None };
        }
        (Step::Editing { .. }, KeyCode::Enter) => return dialog.check(&model.observed),
        (Step::Editing { .. } | Step::Checking(_) | Step::Requested(_), KeyCode::Esc) => model.dialog = None,
        (Step::Editing { error }, _) => {
            *error = None;
            typed(&mut dialog.input, key);
        }
        _ => {}
    }
    Vec::new()
}
