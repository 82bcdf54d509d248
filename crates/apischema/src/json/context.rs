use std::fmt::Write as _;

use serde::de;
use serde_json::Value;

use super::{DecodeError, MAX_DEPTH, StrictError};
use crate::schema::Schema;
use crate::zero::{Budget, OverBudget};

/// Upstream stops counting here.
const MAX_STRICT_ERRORS: usize = 100;

/// A value that its field cannot have.
pub(super) enum Mismatch {
    /// Of the wrong type: what was found, and the Go name of what belongs there.
    Type { found: String, go: String, place: String },
    /// For another reason.
    Other(String),
}

impl Mismatch {
    fn sentence(self) -> String {
        match self {
            Self::Type { found, go, place } => {
                format!("json: cannot unmarshal {found} into Go {place} of type {go}")
            }
            Self::Other(sentence) => sentence,
        }
    }
}

/// Where the reader stands, and what it has met so far.
pub(super) struct Context<'s> {
    pub(super) schema: &'s Schema,
    pub(super) strict: Vec<StrictError>,
    pub(super) budget: Budget,
    /// The struct whose field is being read.
    pub(super) owner: Option<&'static str>,
    /// Fields from the root, without indexes: as Go's type errors name a place.
    pub(super) fields: Vec<&'static str>,
    /// Whether unknown and duplicate fields are not reported: inside values that upstream decodes without strictness.
    quiet: bool,
    /// Keys and indexes from the root: as strict errors name a place.
    path: String,
    depth: usize,
    /// The first value of a wrong type; decoding continues.
    mismatch: Option<Mismatch>,
    /// What ended the reading.
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

    /// The result of a whole reading: what ended it, else the first mismatch, else the value.
    pub(super) fn answer(&mut self, read: Result<Value, serde_json::Error>) -> Result<Value, DecodeError> {
        match (self.fatal.take(), read, self.mismatch.take()) {
            (Some(fatal), _, _) => Err(fatal),
            (None, Err(error), _) => Err(DecodeError::Syntax(error.to_string())),
            (None, Ok(_), Some(mismatch)) => Err(DecodeError::Type(mismatch.sentence())),
            (None, Ok(value), None) => Ok(value),
        }
    }

    /// Remembers that a value has the wrong type, if it is the first.
    pub(super) fn mismatch(&mut self, found: &str, go: &str) {
        if self.mismatch.is_none() {
            let place = self.place();
            let go = go.trim_start_matches('*').to_owned();
            self.mismatch = Some(Mismatch::Type { found: found.to_owned(), go, place });
        }
    }

    /// Remembers a sentence about a value, if it is the first.
    pub(super) fn remember(&mut self, sentence: String) {
        self.mismatch.get_or_insert(Mismatch::Other(sentence));
    }

    /// The place as Go's type errors name it.
    fn place(&self) -> String {
        match self.owner {
            Some(owner) => format!("struct field {owner}.{}", self.fields.join(".")),
            None => "value".to_owned(),
        }
    }

    /// Ends the reading: a type that reads its own JSON has met a value it cannot have.
    pub(super) fn refuse_type<E: de::Error>(&mut self, found: &str, go: &str) -> E {
        let (place, found, go) = (self.place(), found.to_owned(), go.to_owned());
        self.refuse(Mismatch::Type { found, go, place }.sentence())
    }

    /// Decodes a value separately, as upstream decodes a schema inside a schema: without strict errors, and with the
    /// first mismatch as a fatal error at the path of the value.
    pub(super) fn apart<T, E: de::Error>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let (quiet, mismatch) = (std::mem::replace(&mut self.quiet, true), self.mismatch.take());
        let outside = (self.owner.take(), std::mem::take(&mut self.fields));
        let answer = read(self);
        self.quiet = quiet;
        (self.owner, self.fields) = outside;
        match std::mem::replace(&mut self.mismatch, mismatch) {
            None => answer,
            Some(Mismatch::Type { found, go, .. }) => Err(self.refuse_type(&found, &go)),
            Some(Mismatch::Other(sentence)) => Err(self.refuse(sentence)),
        }
    }

    /// Aborts decoding: a type with its own decoder has rejected a value.
    pub(super) fn refuse<E: de::Error>(&mut self, sentence: String) -> E {
        self.fatal.get_or_insert(DecodeError::Type(sentence));
        E::custom("refused")
    }

    /// Counts one more value.
    pub(super) fn spend<E: de::Error>(&mut self) -> Result<(), E> {
        self.budget.spend().map_err(|over| self.too_large(over))
    }

    pub(super) fn too_large<E: de::Error>(&mut self, over: OverBudget) -> E {
        self.fatal.get_or_insert(DecodeError::TooLarge(over.to_string()));
        E::custom("too large")
    }

    /// One level down; [`leave`](Self::leave) comes back.
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

    /// Adds a key to the path; the answer is what [`back_to`](Self::back_to) wants.
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
