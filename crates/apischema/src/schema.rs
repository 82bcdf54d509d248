//! The table itself: kinds, their types, and the resources that serve them.
//!
//! ```
//! use plumb_apischema::Schema;
//!
//! let schema = Schema::builtin();
//! let pod = schema.kind("", "v1", "Pod").ok_or("no pods")?;
//! let containers = schema.field_at(pod.body, &["spec", "containers"]).ok_or("no containers")?;
//!
//! assert_eq!(containers.patch.merge_key, Some("name"));
//! assert_eq!(containers.number, 2);
//! assert_eq!(schema.resource("apps", "v1", "deployments").map(|resource| resource.short_names[0]), Some("deploy"));
//! # Ok::<(), &str>(())
//! ```

mod emptiness;
mod load;
mod resource;
mod shape;

use std::collections::HashMap;
use std::ops::Index;
use std::sync::LazyLock;

pub use load::LoadError;
pub use resource::{Resource, Scope, Subresource};
pub use shape::{Field, ListType, Omit, Patch, Shape, Struct, StructId, Type, TypeId, Wire};

static BUILTIN: LazyLock<Schema> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "the text is embedded, and the tests load it")]
    Schema::load(include_str!("../data/kubernetes-1.36.schema")).expect("the embedded schema table is sound")
});

/// Kinds of `meta.k8s.io/v1` that belong to every group version.
const IN_EVERY_VERSION: [&str; 7] = [
    "CreateOptions",
    "DeleteOptions",
    "GetOptions",
    "ListOptions",
    "PatchOptions",
    "UpdateOptions",
    "WatchEvent",
];

/// Kinds of `meta.k8s.io/v1` that belong to the core group too.
const IN_CORE: [&str; 6] = ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "List", "Status"];

/// A kind in one version, and the fields of its objects.
#[derive(Clone, Debug)]
pub struct Kind {
    /// The group; empty for the core.
    pub group: &'static str,
    /// The version within the group.
    pub version: &'static str,
    /// The kind's name.
    pub name: &'static str,
    /// The fields of an object of this kind.
    pub body: StructId,
}

/// The schema table of an API: kinds, types and resources.
#[derive(Debug)]
pub struct Schema {
    types: Vec<Type>,
    structs: Vec<Struct>,
    kinds: Vec<Kind>,
    by_kind: HashMap<(&'static str, &'static str, &'static str), usize>,
    resources: Vec<Resource>,
    by_plural: HashMap<(&'static str, &'static str, &'static str), usize>,
}

impl Schema {
    /// The API of Kubernetes 1.36, read from the embedded table at the first call.
    pub fn builtin() -> &'static Self {
        &BUILTIN
    }

    /// Parses a table in the compact form that `examples/table` writes.
    pub fn load(text: &'static str) -> Result<Self, LoadError> {
        load::read(text)
    }

    /// A kind by its group, version and name, including kinds that belong to every version, such as `DeleteOptions`.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<&Kind> {
        let exact = self.lookup(group, version, kind);
        exact.or_else(|| {
            let lent = IN_EVERY_VERSION.contains(&kind) || (group.is_empty() && IN_CORE.contains(&kind));
            if lent { self.lookup("meta.k8s.io", "v1", kind) } else { None }
        })
    }

    fn lookup(&self, group: &str, version: &str, kind: &str) -> Option<&Kind> {
        self.by_kind.get(&(group, version, kind)).map(|&index| &self.kinds[index])
    }

    /// A kind by its API version (`v1`, `apps/v1`) and name.
    pub fn kind_of(&self, api_version: &str, kind: &str) -> Option<&Kind> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.kind(group, version, kind)
    }

    /// A resource by its plural name.
    pub fn resource(&self, group: &str, version: &str, plural: &str) -> Option<&Resource> {
        self.by_plural.get(&(group, version, plural)).map(|&index| &self.resources[index])
    }

    /// All kinds of the table, ordered by group and version.
    pub fn kinds(&self) -> &[Kind] {
        &self.kinds
    }

    /// Every resource that is served, grouped by group and version, newest version of a group first.
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// Every struct, in no particular order.
    pub fn structs(&self) -> impl Iterator<Item = StructId> {
        (0..self.structs.len()).filter_map(|index| u16::try_from(index).ok().map(StructId))
    }

    /// The field at a path of JSON names. Pointers, lists and maps on the path are dereferenced.
    pub fn field_at(&self, from: StructId, path: &[&str]) -> Option<&Field> {
        let (last, parents) = path.split_last()?;
        let mut owner = from;
        for name in parents {
            owner = self.struct_behind(self[owner].field(name)?.ty)?;
        }
        self[owner].field(last)
    }

    /// Dereferences pointers, lists and maps to the struct that they contain, if there is one.
    pub fn struct_behind(&self, ty: TypeId) -> Option<StructId> {
        match self[ty].shape {
            Shape::Struct(id) => Some(id),
            Shape::Pointer(inner) | Shape::List(inner) | Shape::WrappedList(inner) | Shape::Map(inner) => {
                self.struct_behind(inner)
            }
            _ => None,
        }
    }

    /// Dereferences a pointer; any other type is returned unchanged.
    pub fn pointee(&self, ty: TypeId) -> TypeId {
        match self[ty].shape {
            Shape::Pointer(inner) => inner,
            _ => ty,
        }
    }
}

impl Index<TypeId> for Schema {
    type Output = Type;

    fn index(&self, id: TypeId) -> &Type {
        &self.types[usize::from(id.0)]
    }
}

impl Index<StructId> for Schema {
    type Output = Struct;

    fn index(&self, id: StructId) -> &Struct {
        &self.structs[usize::from(id.0)]
    }
}
