//! The expression language of Kubernetes (CEL): parses, type-checks, estimates and evaluates expressions within a budget.
//!
//! ```text
//!   text ──parse──▶ tree ──check against the variables' types──▶ Program ──evaluate(values, budget)──▶ value
//!                                                                  │
//!                                                                  └── estimate: its worst-case cost
//! ```
//!
//! Rules of custom resources and conditions of webhooks are untrusted and run at every write. So this crate does not
//! panic, recursion has a maximum depth, every step has a cost, and the caller limits the cost. Costs, estimates,
//! functions and messages are those of cel-go as kube-apiserver 1.36 configures it, since they decide which rules can
//! be stored.
//!
//! That is also why the crate is no wrapper of a library: `cel-interpreter` evaluates without checking types and without
//! counting costs, so it can neither reject a rule when it is written nor stop one that is too expensive.
//!
//! ```
//! use plumb_cel::{Bindings, Budget, Decl, Env, Program, Value};
//! use serde_json::json;
//!
//! let env = Env::kubernetes().with("object", Decl::dynamic());
//! let program = Program::compile("object.spec.replicas <= 3 && object.name.startsWith('a')", &env)?;
//! let object = json!({"name": "ab", "spec": {"replicas": 2}});
//! let mut values = Bindings::new();
//! values.json("object", &object, env.decl("object").ok_or("declared above")?);
//!
//! let mut budget = Budget::new(1_000);
//! assert_eq!(program.evaluate(&values, &mut budget)?, Value::Bool(true));
//! assert!(budget.spent() < 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Differences from cel-go
//!
//! - A syntax error has the position that cel-go reports, but not always the message of its parser generator.
//! - Message literals (`Type{field: value}`) are supported for the types of patches only.
//! - Time zones are UTC and fixed offsets; evaluation fails for names such as `Europe/Berlin`.

mod access;
mod ast;
mod budget;
mod check;
mod composition;
mod cost;
mod decl;
mod env;
mod error;
mod eval;
mod functions;
mod json;
mod lex;
mod literals;
mod macros;
mod parse;
mod program;
mod types;
mod value;

pub use access::{Access, AccessRequest, Authorizer, Decision, ResourceCheck};
pub use budget::Budget;
pub use composition::{Composition, Variables};
pub use decl::{Decl, DeclKind, Field, ListOrder, escape, is_identifier};
pub use env::{Bindings, Env};
pub use error::{EvalError, Issue, Issues};
pub use functions::Moment;
pub use program::Program;
pub use types::{AUTHORIZER, RESOURCE_CHECK, Type};
pub use value::{Amount, List, Map, Message, Value};
