//! The table as text: what it contains, and in which order.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::facts::{Facts, FieldFact, Name};
use super::resolve::Types;

/// Group versions without a resource of their own whose kinds still travel: in request bodies and in webhooks.
const UNSERVED: [(&str, &str); 2] = [("meta.k8s.io", "v1"), ("admission.k8s.io", "v1")];

/// Renders the whole table.
pub(crate) fn table(facts: &Facts) -> Result<String, String> {
    let served = facts.kinds.iter().map(|row| (row[0].as_str(), row[1].as_str()));
    let group_versions: BTreeSet<(&str, &str)> = served.chain(UNSERVED).collect();

    let mut types = Types::new(facts);
    let mut kinds = String::new();
    for (group, version) in group_versions {
        let package = facts
            .packages
            .get(&(group.to_owned(), version.to_owned()))
            .ok_or_else(|| format!("no package for {group}/{version}"))?;
        let inside = facts.structs.range((package.clone(), String::new())..);
        for (name, fields) in inside.take_while(|(name, _)| name.0 == *package) {
            if carries_type_meta(fields) || name.1 == "WatchEvent" {
                let number = types.structure(name.clone());
                let _ = writeln!(kinds, "k\t{group}\t{version}\t{}\t{number}", name.1);
            }
        }
    }

    let mut structs = String::new();
    let mut packages = Packages::default();
    let mut done = 0;
    // Describing a struct meets others: the list grows while it is walked.
    while done < types.structs.len() {
        let name = types.structs[done].clone();
        describe(facts, &mut types, &mut packages, &name, &mut structs)?;
        done += 1;
    }

    let mut out = String::from("plumb-schema\t1\tkubernetes\t1.36.4\n");
    for package in &packages.list {
        let _ = writeln!(out, "p\t{package}");
    }
    for (shape, go) in &types.list {
        let _ = writeln!(out, "t\t{shape}\t{go}");
    }
    out.push_str(&structs);
    out.push_str(&kinds);
    for row in &facts.kinds {
        let _ = writeln!(out, "r\t{}", row.join("\t"));
    }
    Ok(out)
}

#[derive(Default)]
struct Packages {
    list: Vec<String>,
    index: BTreeMap<String, usize>,
}

impl Packages {
    fn number(&mut self, package: &str) -> usize {
        if let Some(&known) = self.index.get(package) {
            return known;
        }
        self.list.push(package.to_owned());
        self.index.insert(package.to_owned(), self.list.len() - 1);
        self.list.len() - 1
    }
}

fn carries_type_meta(fields: &[FieldFact]) -> bool {
    fields.iter().any(|field| field.json == "(inline)" && field.go.ends_with("TypeMeta"))
}

fn describe(
    facts: &Facts,
    types: &mut Types<'_>,
    packages: &mut Packages,
    name: &Name,
    out: &mut String,
) -> Result<(), String> {
    let fields = facts.structs.get(name).ok_or_else(|| format!("no fields of {}.{}", name.0, name.1))?;
    let atomic = if facts.atomic.contains(name) { "a" } else { "" };
    let _ = writeln!(out, "s\t{}\t{}\t{atomic}", packages.number(&name.0), name.1);
    for field in fields.iter().filter(|field| field.json != "-") {
        let number = if field.number.is_empty() { "0" } else { &field.number };
        let ty = types.number(&name.0, &field.go)?;
        if field.json == "(inline)" {
            let embedded = field.go.rsplit('.').next().unwrap_or_default();
            let target = types.list[ty]
                .0
                .strip_prefix('#')
                .ok_or_else(|| format!("{}.{} embeds something that is no struct", name.0, name.1))?;
            let _ = writeln!(out, "e\t{number}\t{target}\t{embedded}");
            continue;
        }
        let flags = flags(facts, name, field)?;
        let row =
            format!("f\t{}\t{number}\t{ty}\t{flags}\t{}\t{}", field.json, field.merge_key, field.list_keys);
        let _ = writeln!(out, "{}", row.trim_end_matches('\t'));
    }
    Ok(())
}

/// One letter per property: when Go leaves the field out, how patches treat it, what kind of list it is.
fn flags(facts: &Facts, name: &Name, field: &FieldFact) -> Result<String, String> {
    let mut flags = String::new();
    let presence = facts.presence.get(&(name.0.clone(), name.1.clone(), field.json.clone()));
    match presence.map_or("omitempty", |presence| presence.omit.as_str()) {
        "never" => {}
        "omitempty" => flags.push('e'),
        "omitempty+omitzero" => flags.push_str("ez"),
        other => return Err(format!("{}.{}: omitted when {other}", name.1, field.json)),
    }
    if presence.is_some_and(|presence| presence.required) {
        flags.push('r');
    }
    for strategy in field.strategy.split(',').filter(|strategy| !strategy.is_empty()) {
        flags.push(match strategy {
            "merge" => 'm',
            "retainKeys" => 'k',
            "replace" => 'p',
            other => return Err(format!("{}.{}: patch strategy {other}", name.1, field.json)),
        });
    }
    match field.list_type.as_str() {
        "" => {}
        "atomic" => flags.push('A'),
        "map" => flags.push('M'),
        "set" => flags.push('S'),
        "granular" => flags.push('G'),
        other => return Err(format!("{}.{}: list type {other}", name.1, field.json)),
    }
    if flags.is_empty() {
        flags.push('-');
    }
    Ok(flags)
}
