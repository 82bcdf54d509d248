//! What a value of the API looks like, in JSON and on the wire.

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

/// A type: its shape, and the name it goes by in upstream's messages.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    /// What values look like.
    pub shape: Shape,
    /// The Go name: `int32`, `v1.Protocol`, `[]v1.Container`.
    pub go: &'static str,
}

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A string.
    Text,
    /// True or false.
    Bool,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A floating-point number.
    Double,
    /// Bytes: base64 in JSON.
    Bytes,
    /// An amount of a resource: a string in JSON.
    Quantity,
    /// A whole number of 32 bits, or a string.
    IntOrString,
    /// A moment, to the second.
    Time,
    /// A moment, to the microsecond.
    MicroTime,
    /// A span of time: `1m30s` in JSON.
    Duration,
    /// An object of any kind.
    RawExtension,
    /// The set of fields a manager owns.
    FieldsV1,
    /// Any JSON value, kept as it is.
    Json,
    /// Any JSON value that never travels as protobuf.
    Any,
    /// A value that may be absent even where its zero would be written.
    Pointer(TypeId),
    /// A list.
    List(TypeId),
    /// A list that is a message of its own on the wire, its elements in field 1.
    WrappedList(TypeId),
    /// A map from text.
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

/// Fields under one name, those of embedded structs among them.
#[derive(Clone, Debug)]
pub struct Struct {
    /// The name in its package: `PodSpec`.
    pub name: &'static str,
    /// The package below `k8s.io`: `api/core/v1`.
    pub package: &'static str,
    /// Whether server-side apply replaces it as a whole.
    pub atomic: bool,
    /// By JSON name.
    pub(super) fields: Vec<Field>,
    /// By protobuf number.
    pub(super) wire: Vec<(u32, Wire)>,
    /// The fields that are written even when nobody gave them.
    pub(super) always: Vec<u16>,
}

/// What a protobuf number of a struct leads to.
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
        let place = self.fields.binary_search_by(|field| field.json.cmp(json)).ok()?;
        Some(&self.fields[place])
    }

    /// What a protobuf number leads to.
    pub fn by_number(&self, number: u32) -> Option<Wire> {
        let place = self.wire.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        Some(self.wire[place].1)
    }

    /// All protobuf numbers, ascending.
    pub fn wire(&self) -> &[(u32, Wire)] {
        &self.wire
    }

    /// The fields that are written even when nobody gave them.
    pub fn always(&self) -> impl Iterator<Item = &Field> {
        self.always.iter().map(|&place| &self.fields[usize::from(place)])
    }
}

/// One field.
#[derive(Clone, Debug)]
pub struct Field {
    /// The name in JSON.
    pub json: &'static str,
    /// The protobuf number in the struct that declares it; zero if it has none.
    pub number: u32,
    /// The type of its values.
    pub ty: TypeId,
    /// When it is left out.
    pub omit: Omit,
    /// Whether some rule tells an empty list or map from none; until it is stored, both are kept apart.
    pub tells_empty: bool,
    /// Whether OpenAPI calls it required.
    pub required: bool,
    /// What a strategic merge patch does with it.
    pub patch: Patch,
    /// What server-side apply takes it for.
    pub list_type: Option<ListType>,
    /// The keys of a list of type [`ListType::Map`].
    pub list_keys: Vec<&'static str>,
    /// The Go names of the embedded structs it came through, with dots: upstream's messages show them.
    pub through: Option<&'static str>,
}

/// When Go's encoder leaves a field out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Omit {
    /// Never: its zero is written.
    Never,
    /// When empty: zero, false, an empty text, list or map, or a null pointer. Never for structs.
    Empty,
    /// When its type says that it is zero.
    Zero,
}

/// What a strategic merge patch does with a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Patch {
    /// Lists are merged instead of replaced.
    pub merge: bool,
    /// Keys that the patch does not name under `$retainKeys` go away.
    pub retain_keys: bool,
    /// Maps are replaced instead of merged.
    pub replace: bool,
    /// The field that tells the elements of a merged list apart.
    pub merge_key: Option<&'static str>,
}

/// What server-side apply takes a list, map or struct for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListType {
    /// One value, replaced as a whole.
    Atomic,
    /// Elements told apart by their keys.
    Map,
    /// Elements that are all different.
    Set,
    /// Merged although its struct says otherwise.
    Granular,
}
