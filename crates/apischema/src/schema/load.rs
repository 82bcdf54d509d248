//! Parsing of the compact form of the table: each line is a record, whose first letter is its type.
//!
//! | line | columns |
//! |---|---|
//! | `p` | package |
//! | `t` | shape, Go name; types are numbered in the order of the lines |
//! | `s` | package number, name, `a` if atomic; numbered too, and the next lines are its fields |
//! | `f` | JSON name, protobuf number or 0, type number, flags, merge key, list keys |
//! | `e` | protobuf number or 0, number of the embedded struct, its Go name |
//! | `k` | group, version, kind, struct number |
//! | `r` | the row of `facts/kinds.tsv` |

use std::collections::HashMap;

use super::emptiness;
use super::resource::{Resource, Scope, Subresource};
use super::shape::{Field, ListType, Omit, Patch, Shape, Struct, StructId, Type, TypeId, Wire};
use super::{Kind, Schema};

const HEADER: &str = "plumb-schema\t1\t";
/// The maximum depth of embedded structs; the API needs two.
const EMBEDDING_DEPTH: usize = 8;

/// Why a table could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The table has another format version.
    #[error("not a schema table of a form known here")]
    Header,
    /// A record is not well-formed.
    #[error("line {line} of the schema table is malformed")]
    Malformed {
        /// The line, counted from one.
        line: usize,
    },
    /// The table refers to a type, struct or kind that it does not have.
    #[error("the schema table refers to {what} that it does not have")]
    Dangling {
        /// What the table refers to.
        what: &'static str,
    },
}

struct Raw {
    package: &'static str,
    name: &'static str,
    atomic: bool,
    fields: Vec<Field>,
    embedded: Vec<Embedded>,
}

struct Embedded {
    /// The protobuf field number; zero if it has none.
    number: u32,
    id: StructId,
    name: &'static str,
    /// The number of fields that Go declares before it in the struct.
    after: usize,
}

pub(super) fn read(text: &'static str) -> Result<Schema, LoadError> {
    let mut lines = text.lines().enumerate();
    if !lines.next().is_some_and(|(_, header)| header.starts_with(HEADER)) {
        return Err(LoadError::Header);
    }
    let mut packages = Vec::new();
    let mut types = Vec::with_capacity(text.len() / 100);
    let mut raw: Vec<Raw> = Vec::with_capacity(text.len() / 200);
    let mut kinds = Vec::new();
    let mut rows = Vec::new();
    for (index, line) in lines {
        let record = match line.split_once('\t') {
            Some(("p", package)) => {
                packages.push(package);
                Some(())
            }
            Some(("t", rest)) => read_type(rest).map(|found| types.push(found)),
            Some(("s", rest)) => read_struct(rest, &packages).map(|found| raw.push(found)),
            Some(("f", rest)) => {
                read_field(rest).zip(raw.last_mut()).map(|(field, owner)| owner.fields.push(field))
            }
            Some(("e", rest)) => raw.last_mut().and_then(|owner| {
                let found = read_embedded(rest, owner.fields.len())?;
                owner.embedded.push(found);
                Some(())
            }),
            Some(("k", rest)) => read_kind(rest).map(|kind| kinds.push(kind)),
            Some(("r", rest)) => {
                rows.push((index, rest));
                Some(())
            }
            _ => None,
        };
        record.ok_or(LoadError::Malformed { line: index + 1 })?;
    }
    check(&types, &raw, &kinds)?;
    let structs =
        (0..raw.len()).map(|number| flatten(&types, &raw, number)).collect::<Result<Vec<_>, _>>()?;
    let by_kind: HashMap<_, _> = (kinds.iter().enumerate())
        .map(|(index, kind)| ((kind.group, kind.version, kind.name), index))
        .collect();
    let resources = rows
        .into_iter()
        .map(|(index, row)| {
            read_resource(row, &kinds, &by_kind).ok_or(LoadError::Malformed { line: index + 1 })
        })
        .collect::<Result<Vec<_>, _>>()?;
    let by_plural = (resources.iter().enumerate())
        .map(|(index, row)| ((row.group, row.version, row.plural), index))
        .collect();
    Ok(Schema { types, structs, kinds, by_kind, resources, by_plural })
}

fn read_type(rest: &'static str) -> Option<Type> {
    let (shape, go) = rest.split_once('\t')?;
    let (letter, number) = shape.split_at_checked(1)?;
    let ty = || number.parse().ok().map(TypeId);
    let structure = || number.parse().ok().map(StructId);
    let shape = match letter {
        "s" => Shape::Text,
        "b" => Shape::Bool,
        "i" => Shape::Int32,
        "l" => Shape::Int64,
        "d" => Shape::Double,
        "y" => Shape::Bytes,
        "q" => Shape::Quantity,
        "n" => Shape::IntOrString,
        "T" => Shape::Time,
        "M" => Shape::MicroTime,
        "D" => Shape::Duration,
        "x" => Shape::RawExtension,
        "f" => Shape::FieldsV1,
        "j" => Shape::Json,
        "a" => Shape::Any,
        "*" => Shape::Pointer(ty()?),
        "[" => Shape::List(ty()?),
        "(" => Shape::WrappedList(ty()?),
        "{" => Shape::Map(ty()?),
        "#" => Shape::Struct(structure()?),
        "A" => Shape::SchemaOrArray(structure()?),
        "B" => Shape::SchemaOrBool(structure()?),
        "S" => Shape::SchemaOrStrings(structure()?),
        _ => return None,
    };
    Some(Type { shape, go })
}

fn read_struct(rest: &'static str, packages: &[&'static str]) -> Option<Raw> {
    let mut cells = rest.split('\t');
    let package = packages.get(cells.next()?.parse::<usize>().ok()?)?;
    let name = cells.next()?;
    let atomic = cells.next() == Some("a");
    Some(Raw { package, name, atomic, fields: Vec::new(), embedded: Vec::new() })
}

fn read_field(rest: &'static str) -> Option<Field> {
    let mut cells = rest.split('\t');
    let json = cells.next()?;
    let number = cells.next()?.parse().ok()?;
    let ty = TypeId(cells.next()?.parse().ok()?);
    let flags = cells.next()?;
    let mut field = Field {
        json,
        number,
        position: 0,
        ty,
        omit: Omit::Never,
        distinguishes_empty: false,
        required: false,
        patch: Patch::default(),
        list_type: None,
        list_keys: Vec::new(),
        through: None,
    };
    for flag in flags.bytes() {
        match flag {
            b'-' => {}
            b'e' => field.omit = Omit::Empty,
            b'z' => field.omit = Omit::Zero,
            b'r' => field.required = true,
            b'm' => field.patch.merge = true,
            b'k' => field.patch.retain_keys = true,
            b'p' => field.patch.replace = true,
            b'A' => field.list_type = Some(ListType::Atomic),
            b'M' => field.list_type = Some(ListType::Map),
            b'S' => field.list_type = Some(ListType::Set),
            b'G' => field.list_type = Some(ListType::Granular),
            _ => return None,
        }
    }
    field.patch.merge_key = cells.next().filter(|key| !key.is_empty());
    field.list_keys = cells.next().map(words('+')).unwrap_or_default();
    Some(field)
}

fn read_embedded(rest: &'static str, after: usize) -> Option<Embedded> {
    let mut cells = rest.split('\t');
    let number = cells.next()?.parse().ok()?;
    let id = StructId(cells.next()?.parse().ok()?);
    Some(Embedded { number, id, name: cells.next()?, after })
}

fn read_kind(rest: &'static str) -> Option<Kind> {
    let mut cells = rest.split('\t');
    let group = cells.next()?;
    let version = cells.next()?;
    let name = cells.next()?;
    Some(Kind { group, version, name, body: StructId(cells.next()?.parse().ok()?) })
}

fn read_resource(
    row: &'static str,
    kinds: &[Kind],
    by_kind: &HashMap<(&'static str, &'static str, &'static str), usize>,
) -> Option<Resource> {
    let cells: Vec<&'static str> = row.split('\t').collect();
    let &[group, version, kind, plural, singular, scope, short, categories, verbs, subresources] = &cells[..]
    else {
        return None;
    };
    let scope = match scope {
        "Cluster" => Scope::Cluster,
        "Namespaced" => Scope::Namespaced,
        _ => return None,
    };
    let subresources = subresources
        .split(' ')
        .filter(|entry| !entry.is_empty())
        .map(|entry| {
            let mut parts = entry.split(':');
            let name = parts.next()?;
            let kind = parts.next()?;
            let verbs = parts.next()?;
            let (group, version) = home_of(kind, group, version);
            Some(Subresource { name, group, version, kind, verbs: words('+')(verbs) })
        })
        .collect::<Option<Vec<_>>>()?;
    Some(Resource {
        group,
        version,
        kind,
        body: kinds[*by_kind.get(&(group, version, kind))?].body,
        plural,
        singular,
        scope,
        short_names: words('+')(short),
        categories: words('+')(categories),
        verbs: words('+')(verbs),
        subresources,
    })
}

/// The group and version of a subresource's kind, which can differ from those of its resource.
fn home_of(kind: &str, group: &'static str, version: &'static str) -> (&'static str, &'static str) {
    match kind {
        "Scale" => ("autoscaling", "v1"),
        "Eviction" => ("policy", "v1"),
        "TokenRequest" => ("authentication.k8s.io", "v1"),
        _ => (group, version),
    }
}

fn words(separator: char) -> impl Fn(&'static str) -> Vec<&'static str> {
    move |text| text.split(separator).filter(|word| !word.is_empty()).collect()
}

/// Validates that all numbers refer to records of the table, so that no lookup can fail later.
fn check(types: &[Type], structs: &[Raw], kinds: &[Kind]) -> Result<(), LoadError> {
    let type_known = |id: TypeId| usize::from(id.0) < types.len();
    let struct_known = |id: StructId| usize::from(id.0) < structs.len();
    let sound = types.iter().all(|ty| match ty.shape {
        Shape::Pointer(id) | Shape::List(id) | Shape::WrappedList(id) | Shape::Map(id) => type_known(id),
        Shape::Struct(id)
        | Shape::SchemaOrArray(id)
        | Shape::SchemaOrBool(id)
        | Shape::SchemaOrStrings(id) => struct_known(id),
        _ => true,
    });
    if !sound || !structs.iter().all(|raw| raw.fields.iter().all(|field| type_known(field.ty))) {
        return Err(LoadError::Dangling { what: "a type" });
    }
    if !structs.iter().all(|raw| raw.embedded.iter().all(|embedded| struct_known(embedded.id))) {
        return Err(LoadError::Dangling { what: "a struct" });
    }
    if !kinds.iter().all(|kind| struct_known(kind.body)) {
        return Err(LoadError::Dangling { what: "a kind's struct" });
    }
    Ok(())
}

/// Builds a struct with the fields of the structs that it embeds.
fn flatten(types: &[Type], raw: &[Raw], number: usize) -> Result<Struct, LoadError> {
    let mut fields = Vec::with_capacity(raw[number].fields.len() + 2);
    collect(raw, number, None, &mut fields, EMBEDDING_DEPTH)?;
    let position = |index: usize| u16::try_from(index).map_err(|_| LoadError::Dangling { what: "a field" });
    for (index, (field, _)) in fields.iter_mut().enumerate() {
        field.distinguishes_empty = emptiness::is_distinguished(raw[number].name, field.json);
        field.position = position(index)?;
    }
    fields.sort_unstable_by_key(|(field, _)| field.json);

    let mut wire = Vec::new();
    let mut always = Vec::new();
    for (index, (field, own)) in fields.iter().enumerate() {
        if *own && field.number != 0 {
            wire.push((field.number, Wire::Field(position(index)?)));
        }
        if written_when_absent(types, field) {
            always.push(position(index)?);
        }
    }
    let embedded = raw[number].embedded.iter().filter(|embedded| embedded.number != 0);
    wire.extend(embedded.map(|embedded| (embedded.number, Wire::Embedded(embedded.id))));
    wire.sort_unstable_by_key(|(number, _)| *number);
    Ok(Struct {
        name: raw[number].name,
        package: raw[number].package,
        atomic: raw[number].atomic,
        fields: fields.into_iter().map(|(field, _)| field).collect(),
        wire,
        always,
    })
}

fn collect(
    raw: &[Raw],
    number: usize,
    through: Option<&'static str>,
    into: &mut Vec<(Field, bool)>,
    depth: usize,
) -> Result<(), LoadError> {
    if depth == 0 {
        return Err(LoadError::Dangling { what: "an embedding without end, to a struct" });
    }
    let Raw { fields, embedded, .. } = &raw[number];
    let mut own = fields.iter();
    let mut declared = 0;
    for Embedded { id, name, after, .. } in embedded {
        for field in own.by_ref().take(after - declared) {
            into.push((Field { through, ..field.clone() }, through.is_none()));
        }
        declared = *after;
        // Only `Rule` is embedded at depth two; Go's messages display both names.
        let through = match (through, *name) {
            (None, name) => name,
            (Some("RuleWithOperations"), "Rule") => "RuleWithOperations.Rule",
            (Some(outer), _) => outer,
        };
        collect(raw, usize::from(id.0), Some(through), into, depth - 1)?;
    }
    for field in own {
        into.push((Field { through, ..field.clone() }, through.is_none()));
    }
    Ok(())
}

/// Whether Go writes the field even if it is missing. Structs are never empty to Go, only zero.
fn written_when_absent(types: &[Type], field: &Field) -> bool {
    match field.omit {
        Omit::Never => true,
        Omit::Zero => false,
        Omit::Empty => matches!(
            types[usize::from(field.ty.0)].shape,
            Shape::Struct(_)
                | Shape::Quantity
                | Shape::IntOrString
                | Shape::Time
                | Shape::MicroTime
                | Shape::Duration
                | Shape::RawExtension
                | Shape::FieldsV1
                | Shape::Json
                | Shape::SchemaOrArray(_)
                | Shape::SchemaOrBool(_)
                | Shape::SchemaOrStrings(_)
        ),
    }
}
