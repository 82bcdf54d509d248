//! The types of values, as the checker sees them.

use std::fmt;
use std::sync::Arc;

use crate::decl::Decl;

/// A type.
#[derive(Clone, Debug)]
pub enum Type {
    /// Any value; what it is shows when it is there.
    Dyn,
    /// The type of `null`.
    Null,
    /// True or false.
    Bool,
    /// A whole number of 64 bits.
    Int,
    /// One without a sign.
    Uint,
    /// A floating-point number.
    Double,
    /// A text.
    Text,
    /// Bytes.
    Bytes,
    /// A span of time.
    Duration,
    /// A moment.
    Timestamp,
    /// A type as a value.
    Type,
    /// A list of one type.
    List(Arc<Type>),
    /// A map from one type to another.
    Map(Arc<Type>, Arc<Type>),
    /// Something that may be absent.
    Optional(Arc<Type>),
    /// An object with known fields.
    Object(Arc<Decl>),
    /// A type of a library, by its name.
    Opaque(&'static str),
    /// Not known yet.
    Param(usize),
    /// There was a mistake, which has been told.
    Error,
}

pub(crate) const QUANTITY: &str = "kubernetes.Quantity";
pub(crate) const URL: &str = "kubernetes.URL";
pub(crate) const IP: &str = "net.IP";
pub(crate) const CIDR: &str = "net.CIDR";
pub(crate) const FORMAT: &str = "kubernetes.NamedFormat";
pub(crate) const SEMVER: &str = "kubernetes.Semver";

impl Type {
    pub(crate) fn list(of: Self) -> Self {
        Self::List(Arc::new(of))
    }

    pub(crate) fn optional(of: Self) -> Self {
        Self::Optional(Arc::new(of))
    }

    /// Whether it says nothing.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// Whether values have one size.
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::Bool | Self::Int | Self::Uint | Self::Double | Self::Duration | Self::Timestamp => true,
            Self::Optional(inner) => inner.is_scalar(),
            _ => false,
        }
    }

    /// Whether both are the same type.
    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.same(b),
            (Self::Map(a, c), Self::Map(b, d)) => a.same(b) && c.same(d),
            (Self::Object(a), Self::Object(b)) => Arc::ptr_eq(a, b) || a.name() == b.name(),
            (Self::Opaque(a), Self::Opaque(b)) => a == b,
            (Self::Param(a), Self::Param(b)) => a == b,
            _ => {
                std::mem::discriminant(self) == std::mem::discriminant(other)
                    && !matches!(
                        self,
                        Self::List(_) | Self::Optional(_) | Self::Map(..) | Self::Object(_) | Self::Opaque(_)
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
            Self::Error => f.write_str("!error!"),
        }
    }
}
