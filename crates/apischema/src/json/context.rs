use std::fmt::Write as _;

use serde::de;
use serde_json::Value;

use super::{DecodeError, MAX_DEPTH, StrictError};
use crate::schema::Schema;
use crate::zero::{Budget, OverBudget};

/// The maximum number of strict errors, as in `sigs.k8s.io/json`.
const MAX_STRICT_ERRORS: usize = 100;

/// A value that does not have the type of its field.
pub(super) enum Mismatch {
    /// A value of the wrong type: the JSON type that was found, and the Go names of the expected type and of the field.
    Type { found: String, go: String, go_field: String },
    /// Another mismatch, with its message.
    Other(String),
}

impl Mismatch {
    fn message(self) -> String {
        match self {
            Self::Type { found, go, go_field } => {
                format!("json: cannot unmarshal {found} into Go {go_field} of type {go}")
            }
            Self::Other(message) => message,
        }
    }
}

/// The state of a decoder: its position in the body, and the errors so far.
pub(super) struct Context<'s> {
    pub(super) schema: &'s Schema,
    pub(super) strict: Vec<StrictError>,
    pub(super) budget: Budget,
    /// The struct whose field is being decoded.
    pub(super) owner: Option<&'static str>,
    /// The fields from the root, without indexes, as Go's type errors display them.
    pub(super) fields: Vec<&'static str>,
    /// Whether unknown and duplicate fields are not reported, as in values that upstream decodes without strictness.
    quiet: bool,
    /// The keys and indexes from the root, as strict errors display them.
    path: String,
    depth: usize,
    /// The first value of a wrong type; decoding continues.
    mismatch: Option<Mismatch>,
    /// The error that aborted decoding.
    fatal: Option<DecodeError>,
}

impl<'s> Context<'s> {
    pub(super) fn new(schema: &'s Schema) -> Self {
        Self {
            schema,
            strict: Vec::new(),
            budget: Budget::new(),
            owner: None,
            fields: Vec::new(),
            quiet: false,
            path: String::new(),
            depth: MAX_DEPTH,
            mismatch: None,
            fatal: None,
        }
    }

    /// The result of decoding: the error that aborted it, else the first mismatch, else the value.
    pub(super) fn finish(&mut self, read: Result<Value, serde_json::Error>) -> Result<Value, DecodeError> {
        match (self.fatal.take(), read, self.mismatch.take()) {
            (Some(fatal), _, _) => Err(fatal),
            (None, Err(error), _) => Err(DecodeError::Syntax(error.to_string())),
            (None, Ok(_), Some(mismatch)) => Err(DecodeError::Type(mismatch.message())),
            (None, Ok(value), None) => Ok(value),
        }
    }

    /// Records a value of the wrong type. Only the first mismatch is reported, as in Go.
    pub(super) fn mismatch(&mut self, found: &str, go: &str) {
        if self.mismatch.is_none() {
            let go_field = self.go_field();
            let go = go.trim_start_matches('*').to_owned();
            self.mismatch = Some(Mismatch::Type { found: found.to_owned(), go, go_field });
        }
    }

    /// Records a mismatch with its message. Only the first mismatch is reported.
    pub(super) fn set_mismatch(&mut self, message: String) {
        self.mismatch.get_or_insert(Mismatch::Other(message));
    }

    /// The current field, as Go's type errors display it.
    fn go_field(&self) -> String {
        match self.owner {
            Some(owner) => format!("struct field {owner}.{}", self.fields.join(".")),
            None => "value".to_owned(),
        }
    }

    /// Aborts decoding: a type with its own decoder has rejected the type of a value.
    pub(super) fn fail_type<E: de::Error>(&mut self, found: &str, go: &str) -> E {
        let go_field = self.go_field();
        let found = found.to_owned();
        let go = go.to_owned();
        self.fail(Mismatch::Type { found, go, go_field }.message())
    }

    /// Decodes a value with a context of its own, as upstream decodes a schema inside a schema: without strict errors, and with
    /// the first mismatch as a fatal error at the path of the value.
    pub(super) fn decode_separately<T, E: de::Error>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let quiet = std::mem::replace(&mut self.quiet, true);
        let mismatch = self.mismatch.take();
        let outside = (self.owner.take(), std::mem::take(&mut self.fields));
        let answer = read(self);
        self.quiet = quiet;
        (self.owner, self.fields) = outside;
        match std::mem::replace(&mut self.mismatch, mismatch) {
            None => answer,
            Some(Mismatch::Type { found, go, .. }) => Err(self.fail_type(&found, &go)),
            Some(Mismatch::Other(message)) => Err(self.fail(message)),
        }
    }

    /// Aborts decoding: a type with its own decoder has rejected a value.
    pub(super) fn fail<E: de::Error>(&mut self, message: String) -> E {
        self.fatal.get_or_insert(DecodeError::Type(message));
        E::custom("refused")
    }

    /// Counts a value against the budget.
    pub(super) fn spend<E: de::Error>(&mut self) -> Result<(), E> {
        self.budget.spend().map_err(|over| self.too_large(over))
    }

    pub(super) fn too_large<E: de::Error>(&mut self, over: OverBudget) -> E {
        self.fatal.get_or_insert(DecodeError::TooLarge(over.to_string()));
        E::custom("too large")
    }

    /// Enters an object or a list; [`leave`](Self::leave) leaves it. Fails if it is nested too deeply.
    pub(super) fn enter<E: de::Error>(&mut self) -> Result<(), E> {
        if let Some(depth) = self.depth.checked_sub(1) {
            self.depth = depth;
            Ok(())
        } else {
            self.fatal.get_or_insert(DecodeError::TooLarge("exceeded max depth".to_owned()));
            Err(E::custom("too deep"))
        }
    }

    pub(super) fn leave(&mut self) {
        self.depth += 1;
    }

    /// Adds a key to the path. Returns the length before, with which [`back_to`](Self::back_to) restores the path.
    pub(super) fn push_key(&mut self, key: &str) -> usize {
        let before = self.path.len();
        if before > 0 {
            self.path.push('.');
        }
        self.path.push_str(key);
        before
    }

    /// Adds an index to the path.
    pub(super) fn push_index(&mut self, index: usize) -> usize {
        let before = self.path.len();
        // Writing to a string cannot fail.
        let _ = write!(self.path, "[{index}]");
        before
    }

    pub(super) fn back_to(&mut self, length: usize) {
        self.path.truncate(length);
    }

    pub(super) fn unknown(&mut self, key: &str) {
        self.report(key, StrictError::Unknown);
    }

    pub(super) fn duplicate(&mut self, key: &str) {
        self.report(key, StrictError::Duplicate);
    }

    fn report(&mut self, key: &str, error: fn(String) -> StrictError) {
        if self.quiet || self.strict.len() >= MAX_STRICT_ERRORS {
            return;
        }
        let before = self.push_key(key);
        let error = error(self.path.clone());
        self.back_to(before);
        if !self.strict.contains(&error) {
            self.strict.push(error);
        }
    }
}
