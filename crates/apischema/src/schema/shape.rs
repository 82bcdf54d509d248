//! The types of API values, in JSON and in protobuf.

/// A type of a [`Schema`](crate::Schema), by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TypeId(pub(super) u16);

/// A struct of a [`Schema`](crate::Schema), by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StructId(pub(super) u16);

impl StructId {
    pub(crate) fn number(self) -> u16 {
        self.0
    }
}

/// A type: its shape, and its name in upstream's messages.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    /// The shape of the values.
    pub shape: Shape,
    /// The Go name: `int32`, `v1.Protocol`, `[]v1.Container`.
    pub go: &'static str,
}

/// The shape of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A string.
    Text,
    /// A boolean.
    Bool,
    /// A 32-bit integer.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A floating-point number.
    Double,
    /// Bytes: base64 in JSON.
    Bytes,
    /// A quantity: a string in JSON.
    Quantity,
    /// A 32-bit integer or a string (`IntOrString`).
    IntOrString,
    /// A timestamp with seconds (`Time`).
    Time,
    /// A timestamp with microseconds (`MicroTime`).
    MicroTime,
    /// A duration: `1m30s` in JSON.
    Duration,
    /// An object of any kind.
    RawExtension,
    /// The field set of a manager (`FieldsV1`).
    FieldsV1,
    /// Any JSON value, unchanged.
    Json,
    /// Any JSON value that has no protobuf form.
    Any,
    /// A pointer: a missing value differs from a zero value.
    Pointer(TypeId),
    /// A list.
    List(TypeId),
    /// A list that is a message in protobuf, with its elements in field 1.
    WrappedList(TypeId),
    /// A map with string keys.
    Map(TypeId),
    /// A struct.
    Struct(StructId),
    /// A JSON schema or a list of them.
    SchemaOrArray(StructId),
    /// A JSON schema or a bool.
    SchemaOrBool(StructId),
    /// A JSON schema or a list of names.
    SchemaOrStrings(StructId),
}

/// A struct with its fields, those of embedded structs included.
#[derive(Clone, Debug)]
pub struct Struct {
    /// The name in its package: `PodSpec`.
    pub name: &'static str,
    /// The package below `k8s.io`: `api/core/v1`.
    pub package: &'static str,
    /// Whether it is atomic in server-side apply.
    pub atomic: bool,
    /// By JSON name.
    pub(super) fields: Vec<Field>,
    /// By protobuf number.
    pub(super) wire: Vec<(u32, Wire)>,
    /// The fields that Go writes even if they are missing.
    pub(super) always: Vec<u16>,
}

/// The meaning of a protobuf field number of a struct.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// One of the struct's own fields, by its place among [`Struct::fields`].
    Field(u16),
    /// A message whose fields are, in JSON, this struct's own.
    Embedded(StructId),
}

impl Struct {
    /// All fields, in the order of their JSON names.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// A field by its JSON name.
    pub fn field(&self, json: &str) -> Option<&Field> {
        let index = self.fields.binary_search_by(|field| field.json.cmp(json)).ok()?;
        Some(&self.fields[index])
    }

    /// The meaning of a protobuf field number.
    pub fn by_number(&self, number: u32) -> Option<Wire> {
        let index = self.wire.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.wire[index].1)
    }

    /// All protobuf numbers, ascending.
    pub fn wire(&self) -> &[(u32, Wire)] {
        &self.wire
    }

    /// The fields that Go writes even if they are missing.
    pub fn always(&self) -> impl Iterator<Item = &Field> {
        self.always.iter().map(|&index| &self.fields[usize::from(index)])
    }
}

/// One field.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name in JSON.
    pub json: &'static str,
    /// The protobuf number in the struct that declares it; zero if it has none.
    pub number: u32,
    /// Its position among the fields of the struct as Go declares them.
    pub position: u16,
    /// The type of its values.
    pub ty: TypeId,
    /// When Go omits it.
    pub omit: Omit,
    /// Whether validation distinguishes an empty list or map from a missing one. Both are distinct until the object is
    /// stored.
    pub distinguishes_empty: bool,
    /// Whether OpenAPI calls it required.
    pub required: bool,
    /// Its patch strategy.
    pub patch: Patch,
    /// Its list type or map type in server-side apply.
    pub list_type: Option<ListType>,
    /// The keys of a list of type [`ListType::Map`].
    pub list_keys: Vec<&'static str>,
    /// The Go names of the embedded structs it came through, with dots: upstream's messages show them.
    pub through: Option<&'static str>,
}

/// When Go's encoder omits a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omit {
    /// Never: its zero is written.
    Never,
    /// When empty (`omitempty`): zero, false, an empty string, list or map, or a nil pointer. Never for structs.
    Empty,
    /// When its type's `IsZero` is true (`omitzero`).
    Zero,
}

/// The patch strategy of a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Lists are merged instead of replaced.
    pub merge: bool,
    /// Keys that the patch does not list under `$retainKeys` are removed.
    pub retain_keys: bool,
    /// Maps are replaced instead of merged.
    pub replace: bool,
    /// The merge key of a list.
    pub merge_key: Option<&'static str>,
}

/// The list type or map type of a field in server-side apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    /// Atomic: replaced as a whole.
    Atomic,
    /// An associative list: elements are merged by their keys.
    Map,
    /// A set of scalars.
    Set,
    /// Granular, although its struct is atomic.
    Granular,
}
