//! Checks of literals, once the types of an expression are right: patterns, spans of time, moments, and texts with places
//! for values.

use crate::ast::{Expr, Kind, Literal};
use crate::error::Issue;
use crate::eval::of_literal;
use crate::functions::{Regexes, call};
use crate::types::Type;

/// What is wrong with the literals of an expression. Its patterns are compiled on the way.
pub(crate) fn check(expr: &Expr, types: &[Type], regexes: &mut Regexes) -> Vec<Issue> {
    let mut issues = Vec::new();
    let mut waiting = vec![expr];
    while let Some(expr) = waiting.pop() {
        if let Kind::Call { function, args, target } = &expr.kind {
            let place = usize::from(target.is_none() && function == "matches");
            let literal = args.get(place).and_then(|arg| match &arg.kind {
                Kind::Literal(literal) => Some((arg.at, literal)),
                _ => None,
            });
            match (function.as_str(), literal, target.as_deref()) {
                ("matches", Some((at, Literal::Text(text))), _) if regexes.add(text).is_err() => {
                    issues.push(Issue { at, message: "invalid matches argument".to_owned() });
                }
                ("find" | "findAll", Some((_, Literal::Text(text))), _) => {
                    // A mistake shows when it is evaluated, as it does upstream.
                    let _ = regexes.add(text);
                }
                ("duration" | "timestamp", Some((at, literal)), None)
                    if call(function, &[of_literal(literal)], regexes).is_err() =>
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
        expr.children(|child| waiting.push(child));
    }
    issues
}

/// What is wrong with the arguments of `format`.
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
        let bad = if verb == 's' { unshown(arg, types) } else { (!fits(of(arg, types))).then_some(arg) };
        if let Some(bad) = bad {
            let given = name(of(bad, types));
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

fn of<'t>(expr: &Expr, types: &'t [Type]) -> &'t Type {
    types.get(expr.id).unwrap_or(&Type::Dyn)
}

/// Whether a clause takes values of a type.
type Takes = fn(&Type) -> bool;

/// The types that a clause takes, and the rule that is broken by others.
fn rule(verb: char) -> Option<(Takes, &'static str)> {
    let number: Takes = |ty| ty.is_open() || matches!(ty, Type::Int | Type::Uint);
    // Texts such as `NaN` stand for numbers.
    let double: Takes = |ty| ty.is_open() || matches!(ty, Type::Double | Type::Text);
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

/// The first part of a value that cannot be shown as text. The elements of lists and maps count where they are literals.
fn unshown<'e>(expr: &'e Expr, types: &[Type]) -> Option<&'e Expr> {
    if matches!(of(expr, types), Type::Object(_) | Type::Message(_) | Type::Opaque(_) | Type::Optional(_)) {
        return Some(expr);
    }
    match &expr.kind {
        Kind::List { elements, .. } => elements.iter().find_map(|element| unshown(element, types)),
        Kind::Map(entries) => {
            let mut parts = entries.iter().flat_map(|entry| [&entry.key, &entry.value]);
            parts.find_map(|part| unshown(part, types))
        }
        _ => None,
    }
}

/// The name of a type without the types inside of it.
fn name(ty: &Type) -> String {
    match ty {
        Type::List(_) => "list".to_owned(),
        Type::Map(..) => "map".to_owned(),
        Type::Optional(_) => "optional_type".to_owned(),
        other => other.declared_name(),
    }
}
