//! Where in an object something is wrong.

use std::fmt;

/// The way to a field: `spec.containers[0].ports`. Costs nothing until it is written out, which only a
/// mistake makes necessary.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// A field of the object itself.
    pub(super) const fn root(field: &'a str) -> Self {
        Self { parent: None, step: Step::Field(field) }
    }

    /// A field below this one.
    pub(super) const fn child<'b>(&'b self, field: &'b str) -> Path<'b> {
        Path { parent: Some(self), step: Step::Field(field) }
    }

    /// An element of this list.
    pub(super) const fn index(&self, index: usize) -> Path<'_> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// An entry of this map.
    pub(super) const fn key<'b>(&'b self, key: &'b str) -> Path<'b> {
        Path { parent: Some(self), step: Step::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            Step::Field(field) if self.parent.is_some() => write!(f, ".{field}"),
            Step::Field(field) => f.write_str(field),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

impl From<Path<'_>> for String {
    fn from(path: Path<'_>) -> Self {
        path.to_string()
    }
}

impl From<&Path<'_>> for String {
    fn from(path: &Path<'_>) -> Self {
        path.to_string()
    }
}
