//! The types of the type checker.

use std::fmt;
use std::sync::Arc;

use crate::decl::Decl;

/// A type.
#[derive(Clone, Debug)]
pub enum Type {
    /// Any type, which is known only at evaluation.
    Dyn,
    /// The type of `null`.
    Null,
    /// A boolean.
    Bool,
    /// A signed integer of 64 bits.
    Int,
    /// An unsigned integer of 64 bits.
    Uint,
    /// A floating-point number.
    Double,
    /// A string.
    Text,
    /// Bytes.
    Bytes,
    /// A duration.
    Duration,
    /// A timestamp.
    Timestamp,
    /// A type as a value.
    Type,
    /// A list, with the type of its elements.
    List(Arc<Type>),
    /// A map, with the types of its keys and values.
    Map(Arc<Type>, Arc<Type>),
    /// An optional value.
    Optional(Arc<Type>),
    /// An object with declared fields.
    Object(Arc<Decl>),
    /// A message that expressions create, by the name of its type.
    Message(Arc<str>),
    /// A type of a library, by its name.
    Opaque(&'static str),
    /// A type parameter.
    Param(usize),
    /// The type of an expression with an error that has been reported.
    Error,
}

pub(crate) const QUANTITY: &str = "kubernetes.Quantity";
pub(crate) const URL: &str = "kubernetes.URL";
pub(crate) const IP: &str = "net.IP";
pub(crate) const CIDR: &str = "net.CIDR";
pub(crate) const FORMAT: &str = "kubernetes.NamedFormat";
pub(crate) const SEMVER: &str = "kubernetes.Semver";
/// The type of the variable `authorizer`.
pub const AUTHORIZER: &str = "kubernetes.authorization.Authorizer";
/// The type of the variable `authorizer.requestResource`.
pub const RESOURCE_CHECK: &str = "kubernetes.authorization.ResourceCheck";
pub(crate) const PATH_CHECK: &str = "kubernetes.authorization.PathCheck";
pub(crate) const GROUP_CHECK: &str = "kubernetes.authorization.GroupCheck";
pub(crate) const DECISION: &str = "kubernetes.authorization.Decision";

impl Type {
    pub(crate) fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    pub(crate) fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    /// The type with which a named expression of this type is declared. Upstream declares them with types of schemas, which
    /// have neither objects nor library types.
    pub(crate) fn declarable(&self) -> Self {
        match self {
            Self::List(of) => Self::list(of.declarable()),
            Self::Map(key, value) => Self::Map(Arc::new(key.declarable()), Arc::new(value.declarable())),
            Self::Object(_)
            | Self::Message(_)
            | Self::Opaque(_)
            | Self::Optional(_)
            | Self::Type
            | Self::Param(_)
            | Self::Error => Self::Dyn,
            scalar => scalar.clone(),
        }
    }

    /// Whether the type is a type parameter.
    pub(crate) fn is_param(&self) -> bool {
        matches!(self, Self::Param(_))
    }

    /// Whether the type is `dyn` or an error, which every type can be assigned to.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Whether values have a fixed size.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool | Self::Int | Self::Uint | Self::Double | Self::Duration | Self::Timestamp => true,
            Self::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    /// The name that cel-go prints for a type outside of the checker's own messages.
    pub fn declared_name(&self) -> String {
        match self {
            Self::Null => "null_type".to_owned(),
            Self::Duration => "google.protobuf.Duration".to_owned(),
            Self::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Self::List(of) => format!("list({})", of.declared_name()),
            Self::Map(key, value) => format!("map({}, {})", key.declared_name(), value.declared_name()),
            Self::Optional(of) => format!("optional_type({})", of.declared_name()),
            other => other.to_string(),
        }
    }

    /// Whether both are the same type.
    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.same(b),
            (Self::Map(a, c), Self::Map(b, d)) => a.same(b) && c.same(d),
            (Self::Object(a), Self::Object(b)) => Arc::ptr_eq(a, b) || a.name() == b.name(),
            (Self::Opaque(a), Self::Opaque(b)) => a == b,
            (Self::Message(a), Self::Message(b)) => a == b,
            (Self::Param(a), Self::Param(b)) => a == b,
            _ => {
                std::mem::discriminant(self) == std::mem::discriminant(other)
                    && !matches!(
                        self,
                        Self::List(_)
                            | Self::Optional(_)
                            | Self::Map(..)
                            | Self::Object(_)
                            | Self::Opaque(_)
                            | Self::Message(_)
                    )
            }
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dyn | Self::Param(_) => f.write_str("dyn"),
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("bool"),
            Self::Int => f.write_str("int"),
            Self::Uint => f.write_str("uint"),
            Self::Double => f.write_str("double"),
            Self::Text => f.write_str("string"),
            Self::Bytes => f.write_str("bytes"),
            Self::Duration => f.write_str("duration"),
            Self::Timestamp => f.write_str("timestamp"),
            Self::Type => f.write_str("type"),
            Self::List(of) => write!(f, "list({of})"),
            Self::Map(key, value) => write!(f, "map({key}, {value})"),
            Self::Optional(of) => write!(f, "optional_type({of})"),
            Self::Object(decl) => f.write_str(decl.name()),
            Self::Opaque(name) => f.write_str(name),
            Self::Message(name) => f.write_str(name),
            Self::Error => f.write_str("!error!"),
        }
    }
}
