//! The set library (`sets.contains`).

use super::{Answer, Regexes, equal};
use crate::value::{List, Value};

pub(super) fn call<'a>(function: &str, args: &[Value<'a>], _: &Regexes) -> Option<Answer<'a>> {
    let [Value::List(a), Value::List(b)] = args else { return None };
    let answer = match function {
        "sets.contains" => contains(a, b),
        "sets.equivalent" => contains(a, b) && contains(b, a),
        "sets.intersects" => b.iter().any(|element| has(a, &element)),
        _ => return None,
    };
    Some(Ok(Value::Bool(answer)))
}

fn has(list: &List<'_>, wanted: &Value<'_>) -> bool {
    list.iter().any(|element| equal(&element, wanted))
}

fn contains(list: &List<'_>, all: &List<'_>) -> bool {
    all.iter().all(|element| has(list, &element))
}
