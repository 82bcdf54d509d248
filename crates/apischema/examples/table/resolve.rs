//! Resolves the text of a Go type in a package to a type of the table.

use std::collections::BTreeMap;

use super::facts::{Facts, Name};

const META: &str = "apimachinery/pkg/apis/meta/v1";
const CORE: &str = "api/core/v1";

/// The types that have been resolved so far, by number.
#[derive(Debug)]
pub(crate) struct Types<'f> {
    facts: &'f Facts,
    /// Shape and Go name of each type.
    pub(crate) list: Vec<(String, String)>,
    index: BTreeMap<(String, String), usize>,
    /// The structs that these types refer to, by number. The caller describes each of them.
    pub(crate) structs: Vec<Name>,
    struct_index: BTreeMap<Name, usize>,
}

impl<'f> Types<'f> {
    pub(crate) fn new(facts: &'f Facts) -> Self {
        Self {
            facts,
            list: Vec::new(),
            index: BTreeMap::new(),
            structs: Vec::new(),
            struct_index: BTreeMap::new(),
        }
    }

    /// The number of a struct.
    pub(crate) fn structure(&mut self, name: Name) -> usize {
        if let Some(&known) = self.struct_index.get(&name) {
            return known;
        }
        self.structs.push(name.clone());
        self.struct_index.insert(name, self.structs.len() - 1);
        self.structs.len() - 1
    }

    fn add(&mut self, shape: String, go: String) -> usize {
        let key = (shape, go);
        if let Some(&known) = self.index.get(&key) {
            return known;
        }
        self.list.push(key.clone());
        self.index.insert(key, self.list.len() - 1);
        self.list.len() - 1
    }

    /// The number of the type that `text` names in `package`.
    pub(crate) fn number(&mut self, package: &str, text: &str) -> Result<usize, String> {
        if let Some(inner) = text.strip_prefix('*') {
            let inner = self.number(package, inner)?;
            let go = format!("*{}", self.list[inner].1);
            return Ok(self.add(format!("*{inner}"), go));
        }
        if text == "[]byte" {
            return Ok(self.add("y".into(), "[]uint8".into()));
        }
        if let Some(inner) = text.strip_prefix("[]") {
            let inner = self.number(package, inner)?;
            let go = format!("[]{}", self.list[inner].1);
            return Ok(self.add(format!("[{inner}"), go));
        }
        if let Some((key, value)) = text.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            let key = self.number(package, key)?;
            if self.list[key].0 != "s" {
                return Err(format!("{package}: the keys of a map are no strings: {text}"));
            }
            let value = self.number(package, value)?;
            let go = format!("map[{}]{}", self.list[key].1, self.list[value].1);
            return Ok(self.add(format!("{{{value}"), go));
        }
        if let Some(shape) = plain(text) {
            return Ok(self.add(shape.into(), text.into()));
        }
        let (owner, name) = self.owner(package, text)?;
        let go = format!("{}.{name}", owner.rsplit('/').next().unwrap_or_default());
        if let Some(shape) = special(&owner, &name) {
            return Ok(self.add(shape.into(), go));
        }
        if let Some(kind) = union_of_schemas(&name) {
            let schema = self.structure((owner, "JSONSchemaProps".into()));
            return Ok(self.add(format!("{kind}{schema}"), go));
        }
        if let Some(meaning) = self.facts.aliases.get(&(owner.clone(), name.clone())) {
            let inner = self.number(&owner, meaning)?;
            let shape = self.list[inner].0.clone();
            // In protobuf such a list is a message of its own, whose field 1 has the elements.
            let shape = if meaning == "[]string" { shape.replace('[', "(") } else { shape };
            return Ok(self.add(shape, go));
        }
        if self.facts.structs.contains_key(&(owner.clone(), name.clone())) {
            let number = self.structure((owner, name));
            return Ok(self.add(format!("#{number}"), go));
        }
        Err(format!("{package}: unknown type {text}"))
    }

    /// The name with the package that declares it: the package of the text, or the one that the prefix of the name imports.
    fn owner(&self, package: &str, text: &str) -> Result<Name, String> {
        let (import, name) = text.split_once('.').unwrap_or(("", text));
        let known = |candidate: &str| {
            let name = (candidate.to_owned(), name.to_owned());
            self.facts.structs.contains_key(&name)
                || self.facts.aliases.contains_key(&name)
                || special(candidate, &name.1).is_some()
                || union_of_schemas(&name.1).is_some()
        };
        let same_group = package.rsplit_once('/').map_or(String::new(), |(group, _)| format!("{group}/v1"));
        let candidates: &[&str] = match import {
            // Some early versions of a group borrow names from its first stable one.
            "" => &[package, same_group.as_str()],
            "resource" => &["apimachinery/pkg/api/resource"],
            "intstr" => &["apimachinery/pkg/util/intstr"],
            "runtime" => &["apimachinery/pkg/runtime"],
            "types" => &["apimachinery/pkg/types"],
            "metav1" => &[META],
            "corev1" | "apiv1" => &[CORE],
            "authenticationv1" => &["api/authentication/v1"],
            "authorizationv1" => &["api/authorization/v1"],
            "batchv1" => &["api/batch/v1"],
            "v1" => &[same_group.as_str(), META, CORE],
            _ => return Err(format!("{package}: unknown import {import} in {text}")),
        };
        candidates
            .iter()
            .find(|candidate| known(candidate))
            .map(|owner| ((*owner).to_owned(), name.to_owned()))
            .ok_or_else(|| format!("{package}: no known package declares {text}"))
    }
}

fn plain(text: &str) -> Option<&'static str> {
    Some(match text {
        "string" => "s",
        "bool" => "b",
        "int32" => "i",
        "int64" => "l",
        "float64" => "d",
        "interface{}" => "a",
        _ => return None,
    })
}

fn special(package: &str, name: &str) -> Option<&'static str> {
    Some(match (package, name) {
        ("apimachinery/pkg/api/resource", "Quantity") => "q",
        ("apimachinery/pkg/util/intstr", "IntOrString") => "n",
        ("apimachinery/pkg/runtime", "RawExtension") => "x",
        ("apimachinery/pkg/types", "UID" | "NodeName") => "s",
        (META, "Time") => "T",
        (META, "MicroTime") => "M",
        (META, "Duration") => "D",
        (META, "FieldsV1") => "f",
        ("apiextensions-apiserver/pkg/apis/apiextensions/v1", "JSON") => "j",
        _ => return None,
    })
}

/// The shape of the three unions among the types of JSON Schema.
fn union_of_schemas(name: &str) -> Option<char> {
    match name {
        "JSONSchemaPropsOrArray" => Some('A'),
        "JSONSchemaPropsOrBool" => Some('B'),
        "JSONSchemaPropsOrStringArray" => Some('S'),
        _ => None,
    }
}
