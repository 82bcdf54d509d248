//! What the program knows, and what it shows of it.

use jiff::Timestamp;

use super::Tab;
use super::detail::Detail;
use super::dialog::Dialog;
use super::observed::Observed;
use super::table::{Key, Row, Sort, Table};
use super::{nodes, pods, rollouts, vpas};
use crate::status::listing::Form;

/// From this many columns on, all values of pods have a column of their own.
const WIDE: u16 = 150;
/// The lines that are no rows: the views, the names of the columns, a message, and the keys.
const OTHER_LINES: u16 = 4;

/// The state of the program.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) tab: Tab,
    /// The namespace that is shown; `None` shows all of them.
    pub(super) namespace: Option<String>,
    /// Whether the pods of all namespaces are observed.
    pub(super) reads_all_pods: bool,
    pub(super) observed: Observed,
    panes: [Pane; Tab::ALL.len()],
    /// The rows of the view, as of the last [`refresh`](Self::refresh).
    pub(super) table: Table,
    is_stale: bool,
    /// The columns and rows of the terminal.
    pub(super) size: (u16, u16),
    pub(super) now: Timestamp,
    /// The last message about the API server.
    pub(super) notice: Option<String>,
    /// The outcome of what the user did last.
    pub(super) message: Option<String>,
    pub(super) front: Front,
    pub(super) detail: Option<Detail>,
    pub(super) dialog: Option<Dialog>,
}

/// What keys are about, unless there is a dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    /// The table, or details in its place.
    Table,
    /// The filter, which is being written.
    Filter,
    /// The help, which the next key closes.
    Help,
}

/// What the user chose in a view.
#[derive(Clone, Debug, Default)]
pub(super) struct Pane {
    pub(super) filter: String,
    pub(super) sort: Sort,
    /// The row that is selected, and the first one that is visible.
    pub(super) selected: usize,
    pub(super) offset: usize,
    /// The selected row; none while the first one is selected, whichever it is.
    key: Option<Key>,
}

impl Model {
    pub(super) fn new(tab: Tab, namespace: Option<String>, reads_all_pods: bool, size: (u16, u16)) -> Self {
        let mut model = Self {
            tab,
            namespace,
            reads_all_pods,
            observed: Observed::default(),
            panes: Default::default(),
            table: Table::default(),
            is_stale: true,
            size,
            now: Timestamp::UNIX_EPOCH,
            notice: None,
            message: None,
            front: Front::Table,
            detail: None,
            dialog: None,
        };
        model.refresh();
        model
    }

    pub(super) fn pane(&self) -> &Pane {
        &self.panes[self.tab as usize]
    }

    pub(super) fn pane_mut(&mut self) -> &mut Pane {
        &mut self.panes[self.tab as usize]
    }

    /// The rows are to be made again. Not at once: there may be many changes before they are shown.
    pub(super) fn touch(&mut self) {
        self.is_stale = true;
    }

    /// Makes the rows of the view again if anything has changed. The selected row stays selected wherever it is now.
    pub(super) fn refresh(&mut self) {
        if !std::mem::take(&mut self.is_stale) {
            return;
        }
        let form = Form {
            with_namespace: self.namespace.is_none(),
            wide: self.tab == Tab::Pods && self.size.0 >= WIDE,
        };
        let table = match self.tab {
            Tab::Nodes => nodes::table(&self.observed, self.reads_all_pods),
            Tab::Pods => pods::table(&self.observed, form, self.now),
            Tab::Vpas => vpas::table(&self.observed, form),
            Tab::Rollouts => rollouts::table(&self.observed, form),
        };
        self.table = table.arranged(&self.pane().filter, self.pane().sort);
        let key = self.pane().key.as_ref();
        let found = key.and_then(|key| self.table.rows.iter().position(|row| row.key == *key));
        let selected = found.unwrap_or(self.pane().selected);
        self.scroll_to(selected);
    }

    /// How many rows of the table are visible.
    pub(super) fn page(&self) -> usize {
        usize::from(self.size.1.saturating_sub(OTHER_LINES)).max(1)
    }

    /// Selects a row, the last one if there are not as many.
    pub(super) fn select(&mut self, row: usize) {
        self.scroll_to(row);
        let selected = self.pane().selected;
        self.pane_mut().key = self.table.rows.get(selected).map(|row| row.key.clone());
    }

    fn scroll_to(&mut self, row: usize) {
        let (page, last) = (self.page(), self.table.rows.len().saturating_sub(1));
        let pane = self.pane_mut();
        pane.selected = row.min(last);
        let first = (pane.selected + 1).saturating_sub(page);
        pane.offset = pane.offset.clamp(first, pane.selected).min((last + 1).saturating_sub(page));
    }

    /// The selected row.
    pub(super) fn selected(&self) -> Option<&Row> {
        self.table.rows.get(self.pane().selected)
    }
}
