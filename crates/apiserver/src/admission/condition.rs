//! Conditions of webhooks: expressions that say which writes they want to see.

use std::sync::LazyLock;

use plumb_cel::{Bindings, Budget, Decl, Env, Program, Value as Outcome};
use serde_json::Value;

/// What the conditions of one webhook may cost together.
const BUDGET: u64 = 2_500_000;

/// What conditions can speak of.
static ENVIRONMENT: LazyLock<Env> = LazyLock::new(|| {
    ["object", "oldObject", "request"]
        .into_iter()
        .fold(Env::kubernetes(), |environment, name| environment.with(name, Decl::dynamic()))
});

/// A condition that is ready to be evaluated.
#[derive(Debug)]
pub(crate) struct Condition {
    expression: String,
    program: Program,
}

impl Condition {
    /// Compiles an expression, which has to come to a yes or a no.
    pub(crate) fn compile(expression: &str) -> Result<Self, String> {
        let program = Program::compile(expression, &ENVIRONMENT)
            .map_err(|issues| format!("compilation failed: {issues}"))?;
        let output = program.output().to_string();
        if !matches!(output.as_str(), "bool" | "dyn") {
            return Err(format!("must evaluate to bool but got {output}"));
        }
        Ok(Self { expression: expression.to_owned(), program })
    }

    /// Whether the expression speaks of the request.
    fn mentions_request(&self) -> bool {
        self.program.mentions("request")
    }
}

/// Whether all conditions hold. One that is false decides, whatever is wrong with the others.
pub(super) fn hold<'c>(
    conditions: impl Iterator<Item = &'c Condition> + Clone,
    old: &Value,
    new: &Value,
    request: impl FnOnce() -> Value,
) -> Result<bool, String> {
    let request = if conditions.clone().any(Condition::mentions_request) { request() } else { Value::Null };
    let decl = Decl::dynamic();
    let mut values = Bindings::new();
    values.json("object", new, &decl);
    values.json("oldObject", old, &decl);
    values.json("request", &request, &decl);
    let mut budget = Budget::of(BUDGET);
    let mut wrong = Vec::new();
    for condition in conditions {
        let expression = &condition.expression;
        match condition.program.evaluate(&values, &mut budget) {
            Ok(Outcome::Bool(true)) => {}
            Ok(Outcome::Bool(false)) => return Ok(false),
            Ok(_) => {
                wrong.push(format!("expression '{expression}' resulted in error: must evaluate to bool"));
            }
            Err(error) => wrong.push(format!("expression '{expression}' resulted in error: {error}")),
        }
    }
    if wrong.is_empty() { Ok(true) } else { Err(plumb_validation::field::aggregate_texts(&wrong)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ask(expressions: &[&str], new: &Value) -> Result<bool, String> {
        let conditions: Vec<Condition> =
            expressions.iter().map(|text| Condition::compile(text).unwrap()).collect();
        hold(conditions.iter(), &Value::Null, new, || json!({ "operation": "CREATE" }))
    }

    #[test]
    fn what_is_false_decides_and_what_is_wrong_is_told() {
        let object = json!({ "metadata": { "name": "a" } });
        assert_eq!(ask(&["object.metadata.name == 'a'", "request.operation == 'CREATE'"], &object), Ok(true));
        assert_eq!(ask(&["object.spec.none == 1", "oldObject != null"], &object), Ok(false));
        let why = ask(&["object.spec.none == 1"], &object).unwrap_err();
        assert!(why.starts_with("expression 'object.spec.none == 1' resulted in error: "), "{why}");
        assert!(Condition::compile("1 +").is_err());
        assert_eq!(Condition::compile("'text'").unwrap_err(), "must evaluate to bool but got string");
    }
}
