use std::borrow::Cow;

use plumb_resize::rules::Rules;
use serde_json::Value;

use crate::error::ApiError;
use crate::kinds::Row;
use crate::kinds::conversion::ServedVersion;

/// The kind of a request: upstream's `RequestScope`. A request is decoded in the version of its path, and handled in the
/// stored version.
#[derive(Clone, Debug)]
pub(crate) struct RequestScope {
    /// The kind in its stored version.
    pub(crate) row: Row,
    /// The kind in the version of the path, if it differs from the stored one.
    pub(crate) served: Option<ServedVersion>,
}

impl RequestScope {
    /// The kind in the version of the path.
    pub(crate) fn request_row(&self) -> &Row {
        self.served.as_ref().map_or(&self.row, |served| &served.row)
    }

    /// Applies the defaults of the version of the path to an object in it, and converts the object to its stored version.
    pub(crate) fn to_storage_version(&self, mut object: Value, rules: &Rules) -> Value {
        let Some(served) = &self.served else { return object };
        served.row.apply_defaults(&mut object, rules);
        served.store(&self.row, object)
    }

    /// A stored object in the version of the path.
    pub(crate) fn to_served_version<'a>(&self, object: &'a Value) -> Cow<'a, Value> {
        match &self.served {
            Some(served) => Cow::Owned(served.serve(object.clone())),
            None => Cow::Borrowed(object),
        }
    }

    /// The same for an object that is not needed in its stored version.
    pub(crate) fn serve(&self, object: Value) -> Value {
        match &self.served {
            Some(served) => served.serve(object),
            None => object,
        }
    }

    /// The kind whose strategy validates an object, and the object in the version that it validates.
    pub(crate) fn validated<'a>(&'a self, object: &'a Value) -> (&'a Row, Cow<'a, Value>) {
        match &self.served {
            Some(served) if served.has_own_rules() => (&served.row, self.to_served_version(object)),
            _ => (&self.row, Cow::Borrowed(object)),
        }
    }

    /// An error with upstream's names in it.
    pub(crate) fn error(&self, error: ApiError) -> ApiError {
        match &self.served {
            Some(served) => served.refusal(&self.row, error),
            None => error,
        }
    }
}
