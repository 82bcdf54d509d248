//! JSON paths of printer columns and selectable fields: `.status.conditions[?(@.type=="Ready")].status`.
//!
//! This is the dialect of `k8s.io/client-go/util/jsonpath`, which is older than RFC 9535 and differs from it: fields may
//! contain escaped dots, and the leading `$` is optional. So libraries for the RFC reject paths that definitions have.

use serde_json::Value;

/// A parsed JSON path.
#[derive(Clone, Debug, PartialEq)]
pub struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    Every,
    Where {
        path: Vec<String>,
        operator: Operator,
        value: Value,
    },
    /// The field at any depth (`..name`).
    Anywhere(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Operator {
    Exists,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// The maximum number of values that a path yields. A printer column displays only the first; the limit bounds `..name` in
/// large objects.
const MAX_VALUES: usize = 1_000;

impl JsonPath {
    /// Parses a path; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let mut steps = Vec::new();
        let mut rest = text.strip_prefix('$').unwrap_or(text);
        while !rest.is_empty() {
            if let Some(tail) = rest.strip_prefix("..") {
                let (name, tail) = name(tail);
                steps.push(Step::Anywhere(name));
                rest = tail;
            } else if let Some(tail) = rest.strip_prefix('.') {
                let (name, tail) = name(tail);
                match name.as_str() {
                    "" => {}
                    "*" => steps.push(Step::Every),
                    _ => steps.push(Step::Field(name)),
                }
                rest = tail;
            } else if let Some(tail) = rest.strip_prefix('[') {
                let end = closing_bracket(tail)?;
                steps.push(parse_bracket(tail[..end].trim())?);
                rest = &tail[end + 1..];
            } else {
                return None;
            }
        }
        Some(Self(steps))
    }

    /// The first value at the path.
    pub fn first<'a>(&self, object: &'a Value) -> Option<&'a Value> {
        let mut values = vec![object];
        for step in &self.0 {
            let mut next = Vec::new();
            for value in values {
                follow(step, value, &mut next);
                if next.len() > MAX_VALUES {
                    break;
                }
            }
            values = next;
        }
        values.first().copied()
    }
}

/// A field name up to the next delimiter. A backslash escapes a dot.
fn name(text: &str) -> (String, &str) {
    let mut name = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => name.extend(letters.next().map(|(_, letter)| letter)),
            '.' | '[' => return (name, &text[at..]),
            letter => name.push(letter),
        }
    }
    (name, "")
}

/// The position of the closing bracket, past quoted strings and nested brackets.
fn closing_bracket(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut quote = None;
    for (at, letter) in text.char_indices() {
        match (quote, letter) {
            (Some(open), letter) if letter == open => quote = None,
            (None, '"' | '\'') => quote = Some(letter),
            (None, '[' | '(') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']' | ')') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

fn unquoted(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    text.strip_prefix(quote)?.strip_suffix(quote)
}

/// Parses the step between two brackets.
fn parse_bracket(text: &str) -> Option<Step> {
    if text == "*" {
        return Some(Step::Every);
    }
    if let Some(name) = unquoted(text) {
        return Some(Step::Field(name.to_owned()));
    }
    if let Ok(index) = text.parse() {
        return Some(Step::Index(index));
    }
    let condition = text.strip_prefix("?(")?.strip_suffix(')')?.trim();
    let operators = [
        ("==", Operator::Equal),
        ("!=", Operator::NotEqual),
        ("<=", Operator::LessOrEqual),
        (">=", Operator::GreaterOrEqual),
        ("<", Operator::Less),
        (">", Operator::Greater),
    ];
    // The operators with two characters come first: `<` would also match `<=`.
    let found = operators.iter().find_map(|(sign, operator)| {
        let (left, right) = condition.split_once(sign)?;
        Some((left.trim(), *operator, right.trim()))
    });
    let (left, operator, right) = found.unwrap_or((condition, Operator::Exists, "null"));
    let path = left.strip_prefix('@')?;
    let path = path.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let value = match unquoted(right) {
        Some(text) => Value::String(text.to_owned()),
        None => serde_json::from_str(right).ok()?,
    };
    Some(Step::Where { path, operator, value })
}

/// Adds the values that a step of a path leads to.
fn follow<'a>(step: &Step, value: &'a Value, found: &mut Vec<&'a Value>) {
    match step {
        Step::Field(name) => found.extend(value.get(name)),
        Step::Index(index) => {
            let Some(list) = value.as_array() else { return };
            let position = if *index < 0 {
                list.len().checked_sub(usize::try_from(index.unsigned_abs()).unwrap_or(usize::MAX))
            } else {
                usize::try_from(*index).ok()
            };
            found.extend(position.and_then(|position| list.get(position)));
        }
        Step::Every => match value {
            Value::Array(list) => found.extend(list),
            Value::Object(map) => found.extend(map.values()),
            _ => {}
        },
        Step::Where { path, operator, value: wanted } => {
            let Some(list) = value.as_array() else { return };
            for element in list {
                let mut field = Some(element);
                for name in path {
                    field = field.and_then(|value| value.get(name));
                }
                if field.is_some_and(|field| matches(*operator, field, wanted)) {
                    found.push(element);
                }
            }
        }
        Step::Anywhere(name) => {
            let mut pending = vec![value];
            while let Some(value) = pending.pop() {
                found.extend(value.get(name));
                if found.len() > MAX_VALUES {
                    return;
                }
                match value {
                    Value::Array(list) => pending.extend(list),
                    Value::Object(map) => pending.extend(map.values()),
                    _ => {}
                }
            }
        }
    }
}

fn matches(operator: Operator, found: &Value, wanted: &Value) -> bool {
    let order = match (found, wanted) {
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        _ => match (found.as_f64(), wanted.as_f64()) {
            (Some(a), Some(b)) => a.partial_cmp(&b),
            _ => None,
        },
    };
    match operator {
        Operator::Exists => true,
        Operator::Equal => found == wanted || order.is_some_and(std::cmp::Ordering::is_eq),
        Operator::NotEqual => found != wanted && !order.is_some_and(std::cmp::Ordering::is_eq),
        Operator::Less => order.is_some_and(std::cmp::Ordering::is_lt),
        Operator::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
        Operator::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
        Operator::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_yields_its_first_value() {
        let object = json!({
            "spec": {"a": 1, "x.y": "dotted", "list": [{"n": "a", "v": 1}, {"n": "b", "v": 2}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other"}]},
        });
        let table = [
            (".spec.a", json!(1)),
            (".spec.x\\.y", json!("dotted")),
            (".spec['x.y']", json!("dotted")),
            (".spec.list[1].n", json!("b")),
            (".spec.list[-1].v", json!(2)),
            (".spec.list[*].n", json!("a")),
            (".spec.list[?(@.v > 1)].n", json!("b")),
            (".status.conditions[?(@.type==\"Ready\")].status", json!("True")),
            ("..status", json!({"conditions": [{"type": "Ready", "status": "True"}, {"type": "Other"}]})),
        ];
        for (path, value) in table {
            assert_eq!(JsonPath::parse(path).unwrap().first(&object), Some(&value), "{path}");
        }
        for path in [".nope.deep", ".spec.list[7]", ".spec.list[?(@.n=='z')].v"] {
            assert_eq!(JsonPath::parse(path).unwrap().first(&object), None, "{path}");
        }
        for path in ["spec.a", ".spec[", ".spec[abc]"] {
            assert_eq!(JsonPath::parse(path), None, "{path}");
        }
    }
}
