//! The facts as they stand in the tables: no interpretation yet.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A struct by the package that declares it.
pub(crate) type Name = (String, String);

/// One row of `fields.tsv`.
#[derive(Clone, Debug)]
pub(crate) struct FieldFact {
    pub(crate) json: String,
    pub(crate) number: String,
    pub(crate) go: String,
    pub(crate) merge_key: String,
    pub(crate) strategy: String,
    pub(crate) list_type: String,
    pub(crate) list_keys: String,
}

/// When a field is left out, and whether OpenAPI calls it required.
#[derive(Clone, Debug)]
pub(crate) struct Presence {
    pub(crate) omit: String,
    pub(crate) required: bool,
}

/// Everything that is known, indexed.
#[derive(Debug, Default)]
pub(crate) struct Facts {
    pub(crate) structs: BTreeMap<Name, Vec<FieldFact>>,
    pub(crate) aliases: BTreeMap<Name, String>,
    pub(crate) presence: BTreeMap<(String, String, String), Presence>,
    pub(crate) atomic: BTreeSet<Name>,
    /// Package by group and version.
    pub(crate) packages: BTreeMap<(String, String), String>,
    pub(crate) kinds: Vec<Vec<String>>,
}

impl Facts {
    /// Reads all tables of a folder.
    pub(crate) fn read(folder: &Path) -> Result<Self, String> {
        let mut facts = Self::default();
        for table in ["fields.tsv", "more-fields.tsv"] {
            for row in rows(folder, table, 10)? {
                let name = (row[0].clone(), row[1].clone());
                facts.structs.entry(name).or_default().push(FieldFact {
                    json: row[2].clone(),
                    number: row[3].clone(),
                    go: row[5].clone(),
                    merge_key: row[6].clone(),
                    strategy: row[7].clone(),
                    list_type: row[8].clone(),
                    list_keys: row[9].clone(),
                });
            }
        }
        for row in rows(folder, "aliases.tsv", 3)? {
            facts.aliases.insert((row[0].clone(), row[1].clone()), row[2].clone());
        }
        for row in rows(folder, "presence.tsv", 5)? {
            let presence = Presence { omit: row[3].clone(), required: row[4] == "required" };
            facts.presence.insert((row[0].clone(), row[1].clone(), row[2].clone()), presence);
        }
        for row in rows(folder, "atomic.tsv", 2)? {
            facts.atomic.insert((row[0].clone(), row[1].clone()));
        }
        for row in rows(folder, "groups.tsv", 3)? {
            facts.packages.insert((row[1].clone(), row[2].clone()), row[0].clone());
        }
        facts.kinds = rows(folder, "kinds.tsv", 10)?;
        facts.copy_borrowed_structs();
        Ok(facts)
    }

    /// A type defined as a struct of the group's first stable version has that struct's fields and its own name.
    fn copy_borrowed_structs(&mut self) {
        let borrowed: Vec<(Name, Name)> = (self.aliases.iter())
            .filter_map(|(name, meaning)| {
                let (group, _) = name.0.rsplit_once('/')?;
                let lender = (format!("{group}/v1"), meaning.strip_prefix("v1.")?.to_owned());
                self.structs.contains_key(&lender).then(|| (name.clone(), lender))
            })
            .collect();
        for (name, lender) in borrowed {
            self.aliases.remove(&name);
            let fields = self.structs[&lender].clone();
            for field in &fields {
                let key = |name: &Name| (name.0.clone(), name.1.clone(), field.json.clone());
                if let Some(presence) = self.presence.get(&key(&lender)).cloned() {
                    self.presence.insert(key(&name), presence);
                }
            }
            self.structs.insert(name, fields);
        }
    }
}

fn rows(folder: &Path, table: &str, columns: usize) -> Result<Vec<Vec<String>>, String> {
    let path = folder.join(table);
    let text =
        std::fs::read_to_string(&path).map_err(|error| format!("reading {}: {error}", path.display()))?;
    text.lines()
        .enumerate()
        .skip(1)
        .map(|(line, row)| {
            let cells: Vec<String> = row.split('\t').map(str::to_owned).collect();
            if cells.len() == columns {
                Ok(cells)
            } else {
                Err(format!("{table} line {}: {} columns instead of {columns}", line + 1, cells.len()))
            }
        })
        .collect()
}
