//! The functions of CEL and of the Kubernetes libraries.

mod access;
mod convert;
mod declared;
mod format;
mod list;
mod named;
mod net;
mod operator;
mod quantity;
mod semver;
mod set;
mod text;
mod time;
mod unordered;
mod url;

pub(crate) use convert::display;
pub(crate) use declared::{Overload, overloads};
pub(crate) use operator::equal;
pub(crate) use semver::Semver;
pub use time::Moment;
pub(crate) use time::parse_timestamp;
pub(crate) use url::Url;

use plumb_go::regexp::Regexp;

use crate::error::EvalError;
use crate::value::Value;

pub(crate) type Answer<'a> = Result<Value<'a>, EvalError>;

/// Calls a function by its name. The target of a method is the first argument.
pub(crate) fn call<'a>(function: &str, args: &[Value<'a>], regexes: &Regexes) -> Answer<'a> {
    operator::call(function, args, regexes)
        .or_else(|| convert::call(function, args, regexes))
        .or_else(|| text::call(function, args, regexes))
        .or_else(|| list::call(function, args, regexes))
        .or_else(|| set::call(function, args, regexes))
        .or_else(|| time::call(function, args, regexes))
        .or_else(|| quantity::call(function, args, regexes))
        .or_else(|| net::call(function, args, regexes))
        .or_else(|| url::call(function, args, regexes))
        .or_else(|| named::call(function, args, regexes))
        .or_else(|| semver::call(function, args, regexes))
        .or_else(|| access::call(function, args, regexes))
        .unwrap_or_else(|| Err(EvalError::no_such_overload()))
}

/// The patterns that are literals of an expression, compiled with it.
#[derive(Debug, Default)]
pub(crate) struct Regexes(std::collections::BTreeMap<String, Regexp>);

impl Regexes {
    pub(crate) fn compile(pattern: &str) -> Result<Regexp, String> {
        Regexp::new(pattern).map_err(|error| error.to_string())
    }

    pub(crate) fn add(&mut self, pattern: &str) -> Result<(), String> {
        if !self.0.contains_key(pattern) {
            self.0.insert(pattern.to_owned(), Self::compile(pattern)?);
        }
        Ok(())
    }

    /// Calls a closure with a compiled pattern.
    fn with<T>(&self, pattern: &str, run: impl FnOnce(&Regexp) -> T) -> Result<T, String> {
        match self.0.get(pattern) {
            Some(regex) => Ok(run(regex)),
            None => Self::compile(pattern).map(|regex| run(&regex)),
        }
    }
}

/// Converts a length to a value.
fn count(length: usize) -> Value<'static> {
    Value::Int(i64::try_from(length).unwrap_or(i64::MAX))
}

fn fail<T>(message: impl Into<String>) -> Result<T, EvalError> {
    Err(EvalError::new(message))
}
