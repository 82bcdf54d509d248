//! Column definitions.

use serde::Serialize;

/// A column, as `columnDefinitions` describes it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Column {
    name: &'static str,
    #[serde(rename = "type")]
    shape: &'static str,
    format: &'static str,
    description: &'static str,
    priority: u8,
}

impl Column {
    const fn new(name: &'static str, shape: &'static str, description: &'static str) -> Self {
        Self { name, shape, format: "", description, priority: 0 }
    }

    /// A column of strings.
    pub const fn text(name: &'static str, description: &'static str) -> Self {
        Self::new(name, "string", description)
    }

    /// A column of integers.
    pub const fn integer(name: &'static str, description: &'static str) -> Self {
        Self::new(name, "integer", description)
    }

    /// A column of booleans.
    pub const fn boolean(name: &'static str, description: &'static str) -> Self {
        Self::new(name, "boolean", description)
    }

    /// The same column with a format, such as `quantity`.
    #[must_use]
    pub const fn of(mut self, format: &'static str) -> Self {
        self.format = format;
        self
    }

    /// The same column, shown only by `-o wide`.
    #[must_use]
    pub const fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }

    /// The same column with the format `name`.
    #[must_use]
    pub const fn of_names(mut self) -> Self {
        self.format = "name";
        self
    }
}

/// The name of the object.
pub const NAME: Column = Column::text("Name", "what the object is called").of_names();
/// How old the object is.
pub const AGE: Column = Column::text("Age", "how long ago the object was created");
/// When the object was created.
pub(crate) const CREATED_AT: Column = Column::new("Created At", "date", "when the object was created");
/// The containers of a template.
pub const CONTAINERS: Column = Column::text("Containers", "names of the template's containers");
/// The images of a template.
pub const IMAGES: Column = Column::text("Images", "images of the template's containers");
