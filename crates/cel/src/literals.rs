//! Validation of literals after type checking: patterns, durations, timestamps and format strings.

use crate::ast::{Expr, Kind, Literal};
use crate::error::Issue;
use crate::eval::literal_value;
use crate::functions::{Regexes, call};
use crate::types::Type;

/// Validates the literals of an expression, and compiles its patterns.
pub(crate) fn check(expr: &Expr, types: &[Type], regexes: &mut Regexes) -> Vec<Issue> {
    let mut issues = Vec::new();
    let mut pending = vec![expr];
    while let Some(expr) = pending.pop() {
        if let Kind::Call { function, args, target } = &expr.kind {
            let index = usize::from(target.is_none() && function == "matches");
            let literal = args.get(index).and_then(|arg| match &arg.kind {
                Kind::Literal(literal) => Some((arg.at, literal)),
                _ => None,
            });
            match (function.as_str(), literal, target.as_deref()) {
                ("matches", Some((at, Literal::Text(text))), _) if regexes.add(text).is_err() => {
                    issues.push(Issue { at, message: "invalid matches argument".to_owned() });
                }
                ("find" | "findAll", Some((_, Literal::Text(text))), _) => {
                    // Like upstream, an invalid pattern is an error of the evaluation.
                    let _ = regexes.add(text);
                }
                ("duration" | "timestamp", Some((at, literal)), None)
                    if call(function, &[literal_value(literal)], regexes).is_err() =>
                {
                    issues.push(Issue { at, message: format!("invalid {function} argument") });
                }
                ("format", None, Some(Expr { kind: Kind::Literal(Literal::Text(text)), .. })) => {
                    if let [Expr { kind: Kind::List { elements, .. }, .. }] = args.as_slice() {
                        issues.extend(format(expr.at, text, elements, types));
                    }
                }
                _ => {}
            }
        }
        expr.children(|child| pending.push(child));
    }
    issues
}

/// Validates the arguments of `format`.
fn format(at: usize, text: &str, args: &[Expr], types: &[Type]) -> Option<Issue> {
    let wrong = |message: String| Some(Issue { at, message });
    let clause = |why: &str| wrong(format!("could not parse formatting clause: {why}"));
    let mut letters = text.chars().peekable();
    let mut seen = 0;
    while let Some(letter) = letters.next() {
        if letter != '%' || letters.next_if_eq(&'%').is_some() {
            continue;
        }
        if letters.peek().is_none() {
            return wrong("unexpected end of string".to_owned());
        }
        let Some(arg) = args.get(seen) else { return wrong(format!("index {seen} out of range")) };
        seen += 1;
        if letters.next_if_eq(&'.').is_some() {
            let mut digits = String::new();
            while let Some(digit) = letters.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            if letters.peek().is_none() {
                return clause("error while parsing precision: could not find end of precision specifier");
            }
            if digits.is_empty() {
                return clause(
                    "error while parsing precision: error while converting precision to integer: strconv.Atoi: \
                     parsing \"\": invalid syntax",
                );
            }
        }
        let verb = letters.next()?;
        let Some((fits, rule)) = rule(verb) else {
            return clause(&format!("unrecognized formatting clause \"{verb}\""));
        };
        let bad = if verb == 's' {
            first_unprintable(arg, types)
        } else {
            (!fits(type_of(arg, types))).then_some(arg)
        };
        if let Some(bad) = bad {
            let given = name(type_of(bad, types));
            let message = format!("error during formatting: {rule}, was given {given}");
            return Some(Issue { at: bad.at, message });
        }
    }
    (args.len() > seen).then(|| Issue {
        at,
        message: format!(
            "too many arguments supplied to string.format (expected {seen}, got {})",
            args.len()
        ),
    })
}

fn type_of<'t>(expr: &Expr, types: &'t [Type]) -> &'t Type {
    types.get(expr.id).unwrap_or(&Type::Dyn)
}

/// Whether a clause accepts values of a type.
type Accepts = fn(&Type) -> bool;

/// The types that a clause accepts, and the message for other types.
fn rule(verb: char) -> Option<(Accepts, &'static str)> {
    let number: Accepts = |ty| ty.is_open() || matches!(ty, Type::Int | Type::Uint);
    // Strings such as `NaN` are accepted as numbers.
    let double: Accepts = |ty| ty.is_open() || matches!(ty, Type::Double | Type::Text);
    Some(match verb {
        's' => (
            |_| true,
            "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, \
             and timestamps",
        ),
        'd' => (number, "decimal clause can only be used on integers"),
        'f' => (double, "fixed-point clause can only be used on doubles"),
        'e' => (double, "scientific clause can only be used on doubles"),
        'b' => (
            |ty| ty.is_open() || matches!(ty, Type::Int | Type::Uint | Type::Bool),
            "only integers and bools can be formatted as binary",
        ),
        'x' | 'X' => (
            |ty| ty.is_open() || matches!(ty, Type::Int | Type::Uint | Type::Text | Type::Bytes),
            "only integers, byte buffers, and strings can be formatted as hex",
        ),
        'o' => (number, "octal clause can only be used on integers"),
        _ => return None,
    })
}

/// The first part of a value that cannot be formatted as a string. The elements of list and map literals are included.
fn first_unprintable<'e>(expr: &'e Expr, types: &[Type]) -> Option<&'e Expr> {
    if matches!(
        type_of(expr, types),
        Type::Object(_) | Type::Message(_) | Type::Opaque(_) | Type::Optional(_)
    ) {
        return Some(expr);
    }
    match &expr.kind {
        Kind::List { elements, .. } => elements.iter().find_map(|element| first_unprintable(element, types)),
        Kind::Map(entries) => {
            let mut parts = entries.iter().flat_map(|entry| [&entry.key, &entry.value]);
            parts.find_map(|part| first_unprintable(part, types))
        }
        _ => None,
    }
}

/// The name of a type without its element types.
fn name(ty: &Type) -> String {
    match ty {
        Type::List(_) => "list".to_owned(),
        Type::Map(..) => "map".to_owned(),
        Type::Optional(_) => "optional_type".to_owned(),
        other => other.declared_name(),
    }
}
