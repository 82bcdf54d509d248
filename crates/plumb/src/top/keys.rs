//! The keys, and their help.

/// Keys and what they do, as `?` lists them.
pub(super) const HELP: &[(&str, &str)] = &[
    ("1 2 3 4, Tab", "nodes, pods, VPAs, rollouts"),
    ("↑ ↓, k j", "select a row, or scroll"),
    ("PgUp PgDn, Home End, g G", "by a page; the first and the last row"),
    ("/", "filter rows by a text; Esc removes the filter"),
    ("s, S", "sort by the next column; reverse the order"),
    ("Enter", "details of the row; Esc goes back"),
    ("r", "resize the pod of the row, with a preview"),
    ("? or h", "this help"),
    ("q, Ctrl-C", "quit"),
];

/// The syntax of the dialog in which a resize is written.
pub(super) const RESIZE: &[&str] = &[
    "cpu=300m memory=128Mi        request and limit; one of both is enough",
    "requests=cpu=1 limits=cpu=2  if request and limit differ",
    "container=NAME               another container than the selected one",
];

/// The keys in the last line.
pub(super) const LIST: &str =
    "1-4 view  ↑↓ select  Enter details  / filter  s sort  r resize  ? help  q quit";
pub(super) const DETAIL: &str = "↑↓ scroll  Esc back  r resize  ? help  q quit";
pub(super) const FILTER: &str = "Enter keeps the filter  Esc removes it";
