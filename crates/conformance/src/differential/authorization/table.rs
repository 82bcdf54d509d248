//! What is allowed, as a file: one line for each identity, scope and kind, with the verbs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::questions::Question;
use crate::error::Error;

/// What kube-apiserver 1.36.4 allows, recorded by the differential test.
const RECORDED: &str = include_str!("../../../differential/authorization/allowed.tsv");
/// What this project allows besides.
const KEPT: &str = include_str!("../../../differential/authorization/kept.tsv");

/// Kinds that were asked about, and the questions that were answered with yes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The kinds and subresources.
    pub resources: BTreeSet<(String, String)>,
    /// What is allowed.
    pub allowed: BTreeSet<Question>,
}

/// What was recorded of kube-apiserver.
pub fn recorded() -> Result<Table, Error> {
    Table::parse(RECORDED)
}

/// What this project allows besides.
pub fn kept() -> Result<BTreeSet<Question>, Error> {
    Table::parse(KEPT).map(|table| table.allowed)
}

/// A field of a line; an empty one is a dash.
fn shown(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

fn read(text: &str) -> String {
    if text == "-" { String::new() } else { text.to_owned() }
}

impl Table {
    /// Reads a file.
    pub fn parse(file: &str) -> Result<Self, Error> {
        let mut table = Self::default();
        for line in file.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            let fields: Vec<&str> = line.split('\t').collect();
            match fields.as_slice() {
                ["kind", group, resource] => {
                    table.resources.insert((read(group), read(resource)));
                }
                [identity, namespace, name, on_node, group, resource, verbs] => {
                    table.allowed.extend(verbs.split(',').map(|verb| Question {
                        identity: read(identity),
                        namespace: read(namespace),
                        name: read(name),
                        on_node: read(on_node),
                        group: read(group),
                        resource: read(resource),
                        verb: verb.to_owned(),
                    }));
                }
                _ => return Err(Error::List(format!("a line of the authorization matrix: {line:?}"))),
            }
        }
        Ok(table)
    }

    /// Writes a file.
    pub fn to_text(&self) -> String {
        let mut text = String::from("# What kube-apiserver allows. Recorded: see docs/differential.md.\n");
        text.push_str("# kind, API group, resource\n");
        for (group, resource) in &self.resources {
            // Writing to a text cannot fail.
            let _ = writeln!(text, "kind\t{}\t{resource}", shown(group));
        }
        text.push_str("# identity, namespace, name, spec.nodeName, API group, resource, verbs\n");
        for line in lines(&self.allowed) {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

/// Questions as the lines of a file.
pub fn lines<'a>(questions: impl IntoIterator<Item = &'a Question>) -> Vec<String> {
    let mut by_kind: BTreeMap<Question, Vec<&str>> = BTreeMap::new();
    for question in questions {
        let about = Question { verb: String::new(), ..question.clone() };
        by_kind.entry(about).or_default().push(&question.verb);
    }
    let line = |(about, verbs): (&Question, &Vec<&str>)| {
        let Question { identity, namespace, name, on_node, group, resource, .. } = about;
        let fields = [identity, namespace, name, on_node, group, resource].map(|field| shown(field));
        format!("{}\t{}", fields.join("\t"), verbs.join(","))
    };
    by_kind.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let table = recorded().unwrap();
        assert!(table.resources.len() > 100 && table.allowed.len() > 1_000);
        assert_eq!(Table::parse(&table.to_text()).unwrap(), table);
        assert!(!kept().unwrap().is_empty());
    }

    #[test]
    fn a_line_with_too_few_fields_is_refused() {
        assert!(Table::parse("node\t-\tget\n").is_err());
    }
}
