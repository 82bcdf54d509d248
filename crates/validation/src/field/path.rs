//! Paths of fields.

use std::fmt;

/// The path of a field (`field.Path`): `spec.containers[0].ports`. It is rendered only when there is an error.
///
/// ```
/// use plumb_validation::field::Path;
///
/// let spec = Path::root("spec");
/// assert_eq!(spec.child("containers").index(0).child("ports").to_string(), "spec.containers[0].ports");
/// assert_eq!(Path::NOWHERE.child("data").key("a").to_string(), "data[a]");
/// assert_eq!(Path::NOWHERE.to_string(), "<nil>");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    /// The object itself.
    Nowhere,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// The path of the object itself, which is empty.
    pub const NOWHERE: Path<'static> = Path { parent: None, step: Step::Nowhere };

    /// A field of the object itself.
    pub const fn root(field: &'a str) -> Self {
        Self { parent: None, step: Step::Field(field) }
    }

    /// A child of this field.
    pub const fn child<'b>(&'b self, field: &'b str) -> Path<'b> {
        Path { parent: Some(self), step: Step::Field(field) }
    }

    /// An element of this list.
    pub const fn index(&self, index: usize) -> Path<'_> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// An entry of this map.
    pub const fn key<'b>(&'b self, key: &'b str) -> Path<'b> {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    fn is_nowhere(&self) -> bool {
        matches!(self.step, Step::Nowhere)
    }

    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.write(f)?;
        }
        match self.step {
            Step::Nowhere => Ok(()),
            Step::Field(field) if self.parent.is_some_and(|parent| !parent.is_nowhere()) => {
                write!(f, ".{field}")
            }
            Step::Field(field) => f.write_str(field),
            Step::Index(index) => write!(f, "[{index}]"),
            Step::Key(key) => write!(f, "[{key}]"),
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Upstream renders a nil path in this way.
        if self.is_nowhere() { f.write_str("<nil>") } else { self.write(f) }
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
