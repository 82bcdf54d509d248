//! A table that is filtered, sorted, and as wide as the terminal.

use std::cmp::Ordering;

use plumb_controller_runtime::ObjectRef;

/// A row, across updates: an object, and the container in it, or the kind of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) object: ObjectRef,
    pub(super) part: String,
}

/// What a cell is sorted by. Amounts are sorted from the largest, text from the first; missing values are last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Amount(Option<i64>),
    Text,
}

/// A row of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) key: Key,
    pub(super) cells: Vec<String>,
    /// For each cell.
    pub(super) order: Vec<Order>,
    /// What is to be said about it below the table: why a pod waits.
    pub(super) why: String,
}

impl Row {
    /// Whether a text is in one of its cells. Upper and lower case are the same.
    fn matches(&self, filter: &str) -> bool {
        let contains = |cell: &String| cell.to_lowercase().contains(filter);
        filter.is_empty() || self.cells.iter().any(contains) || self.key.object.namespace.contains(filter)
    }

    /// How two rows compare by a column. What is missing is last, also in reverse.
    fn compare(&self, other: &Self, column: usize, is_reversed: bool) -> Ordering {
        let turned = |ordering: Ordering| if is_reversed { ordering.reverse() } else { ordering };
        match (self.order.get(column), other.order.get(column)) {
            (Some(Order::Amount(Some(one))), Some(Order::Amount(Some(two)))) => turned(two.cmp(one)),
            (Some(Order::Amount(Some(_))), Some(Order::Amount(None))) => Ordering::Less,
            (Some(Order::Amount(None)), Some(Order::Amount(Some(_)))) => Ordering::Greater,
            (Some(Order::Amount(None)), Some(Order::Amount(None))) => Ordering::Equal,
            _ => turned(self.cells.get(column).cmp(&other.cells.get(column))),
        }
    }
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) title: String,
    /// Columns with the highest number are left out first where the terminal is narrow; those with 0 never are.
    pub(super) rank: u8,
}

/// By which column a table is sorted; by namespace and name if by none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sort {
    pub(super) column: Option<usize>,
    pub(super) is_reversed: bool,
}

/// Rows in the order in which they are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    pub(super) rows: Vec<Row>,
}

impl Table {
    /// A table of columns with these titles and ranks.
    pub(super) fn new(columns: impl IntoIterator<Item = (String, u8)>, rows: Vec<Row>) -> Self {
        let columns = columns.into_iter().map(|(title, rank)| Column { title, rank }).collect();
        Self { columns, rows }
    }

    /// Leaves the rows that match a filter, in the order of a column.
    #[must_use]
    pub(super) fn arranged(mut self, filter: &str, sort: Sort) -> Self {
        let filter = filter.to_lowercase();
        self.rows.retain(|row| row.matches(&filter));
        match sort.column {
            Some(column) => self.rows.sort_by(|one, two| one.compare(two, column, sort.is_reversed)),
            None if sort.is_reversed => self.rows.reverse(),
            None => {}
        }
        self
    }

    /// The columns that fit, with their widths.
    pub(super) fn fitting(&self, width: usize) -> Vec<(usize, usize)> {
        let widest = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.cells.get(column));
            let cells = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            // The title has a mark while the table is sorted by it.
            cells.max(self.columns[column].title.chars().count() + 1)
        };
        let mut fitting: Vec<(usize, usize)> =
            (0..self.columns.len()).map(|column| (column, widest(column))).collect();
        let total = |fitting: &[(usize, usize)]| -> usize {
            fitting.iter().map(|(_, width)| width + GAP).sum::<usize>().saturating_sub(GAP)
        };
        while total(&fitting) > width {
            let last =
                fitting.iter().enumerate().max_by_key(|(at, (column, _))| (self.columns[*column].rank, *at));
            match last.filter(|(_, (column, _))| self.columns[*column].rank > 0) {
                Some((at, _)) => drop(fitting.remove(at)),
                None => break,
            }
        }
        while total(&fitting) > width {
            match fitting.iter_mut().max_by_key(|(_, width)| *width).filter(|(_, width)| *width > NARROWEST) {
                Some((_, width)) => *width -= 1,
                None => break,
            }
        }
        fitting
    }
}

/// The space between columns.
pub(super) const GAP: usize = 2;
/// No column gets narrower.
const NARROWEST: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rows: &[(&str, Option<i64>)]) -> Table {
        let rows = rows.iter().map(|(name, amount)| Row {
            key: Key { object: ObjectRef::namespaced("ns", *name), part: String::new() },
            cells: vec![(*name).to_owned(), amount.map_or("-".to_owned(), |amount| amount.to_string())],
            order: vec![Order::Text, Order::Amount(*amount)],
            why: String::new(),
        });
        Table::new([("NAME".to_owned(), 0), ("USED".to_owned(), 1)], rows.collect())
    }

    fn names(table: &Table) -> Vec<&str> {
        table.rows.iter().map(|row| row.cells[0].as_str()).collect()
    }

    #[test]
    fn amounts_are_sorted_from_the_largest_text_from_the_first_and_missing_amounts_are_last() {
        let rows = [("b", Some(2)), ("a", None), ("c", Some(10))];
        let sorted = |column, is_reversed| {
            let table = table(&rows).arranged("", Sort { column, is_reversed });
            names(&table).join("")
        };
        for (column, is_reversed, expected) in [
            (None, false, "bac"),
            (None, true, "cab"),
            (Some(0), false, "abc"),
            (Some(0), true, "cba"),
            (Some(1), false, "cba"),
            (Some(1), true, "bca"),
        ] {
            assert_eq!(sorted(column, is_reversed), expected, "{column:?} {is_reversed}");
        }
    }

    #[test]
    fn a_filter_matches_any_cell_whatever_its_case_and_the_namespace() {
        let rows = [("Web", Some(7)), ("db", None)];
        let left = |filter| names(&table(&rows).arranged(filter, Sort::default())).join(",");
        for (filter, expected) in [("", "Web,db"), ("wE", "Web"), ("7", "Web"), ("ns", "Web,db"), ("x", "")] {
            assert_eq!(left(filter), expected, "{filter}");
        }
    }

    #[test]
    fn columns_are_left_out_by_rank_before_the_others_get_narrower() {
        let table = table(&[("a-very-long-name", Some(1))]);
        assert_eq!(table.fitting(80), [(0, 16), (1, 5)]);
        assert_eq!(table.fitting(22), [(0, 16)]);
        assert_eq!(table.fitting(10), [(0, 10)]);
        assert_eq!(table.fitting(1), [(0, NARROWEST)]);
    }
}
