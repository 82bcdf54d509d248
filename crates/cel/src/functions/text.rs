//! The string library.

use super::{Answer, Regexes, count, fail, format};
use crate::value::Value;

pub(super) fn call<'a>(function: &str, args: &[Value<'a>], regexes: &Regexes) -> Option<Answer<'a>> {
    if let ("join", [Value::List(list), rest @ ..]) = (function, args) {
        let separator = rest.first().and_then(Value::as_text).unwrap_or_default();
        let texts: Option<Vec<String>> =
            list.iter().map(|element| element.as_text().map(str::to_owned)).collect();
        return Some(texts.map_or_else(
            || Err(crate::error::EvalError::no_such_overload()),
            |texts| Ok(Value::text(texts.join(separator))),
        ));
    }
    let (Value::Text(text), rest) = args.split_first()? else { return None };
    let text = text.as_ref();
    Some(match (function, rest) {
        ("jsonpatch.escapeKey", []) => Ok(Value::text(escape_key(text))),
        ("contains", [Value::Text(part)]) => Ok(Value::Bool(text.contains(part.as_ref()))),
        ("startsWith", [Value::Text(part)]) => Ok(Value::Bool(text.starts_with(part.as_ref()))),
        ("endsWith", [Value::Text(part)]) => Ok(Value::Bool(text.ends_with(part.as_ref()))),
        ("matches", [Value::Text(pattern)]) => match regexes.with(pattern, |regex| regex.is_match(text)) {
            Ok(matches) => Ok(Value::Bool(matches)),
            Err(why) => fail(why),
        },
        ("find", [Value::Text(pattern)]) => {
            match regexes
                .with(pattern, |regex| regex.find(text).and_then(|found| text.get(found)).map(str::to_owned))
            {
                Ok(found) => Ok(Value::text(found.unwrap_or_default())),
                Err(why) => fail(format!("Illegal regex: {why}")),
            }
        }
        ("findAll", [Value::Text(pattern), limit @ ..]) => {
            let limit = match limit {
                [Value::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
                _ => usize::MAX,
            };
            let all = regexes.with(pattern, |regex| {
                let found = regex.find_iter(text).filter_map(|found| text.get(found)).take(limit);
                found.map(|found| Value::text(found.to_owned())).collect()
            });
            all.map(Value::list).or_else(|why| fail(format!("Illegal regex: {why}")))
        }
        ("charAt", [Value::Int(index)]) => char_at(text, *index),
        ("indexOf", [Value::Text(part)]) => Ok(position(text, part, 0)),
        // An empty string is found at every index.
        ("indexOf" | "lastIndexOf", [Value::Text(part), Value::Int(index)]) if part.is_empty() => {
            Ok(Value::Int(*index))
        }
        ("indexOf", [Value::Text(part), Value::Int(from)]) => match usize::try_from(*from) {
            Ok(from) if from < text.chars().count() => Ok(position(text, part, from)),
            Ok(_) => Ok(Value::Int(-1)),
            Err(_) => fail(format!("index out of range: {from}")),
        },
        ("lastIndexOf", [Value::Text(part)]) => Ok(last_position(text, part, usize::MAX)),
        ("lastIndexOf", [Value::Text(part), Value::Int(to)]) => match usize::try_from(*to) {
            Ok(to) if to < text.chars().count() => Ok(last_position(text, part, to)),
            Ok(_) => Ok(Value::Int(-1)),
            Err(_) => fail(format!("index out of range: {to}")),
        },
        ("lowerAscii", []) => Ok(Value::text(text.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Value::text(text.to_ascii_uppercase())),
        ("trim", []) => Ok(Value::text(text.trim())),
        ("replace", [Value::Text(old), Value::Text(new)]) => Ok(Value::text(text.replace(old.as_ref(), new))),
        ("replace", [Value::Text(old), Value::Text(new), Value::Int(limit)]) => {
            let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
            Ok(Value::text(text.replacen(old.as_ref(), new, limit)))
        }
        ("split", [Value::Text(separator), limit @ ..]) => Ok(split(text, separator, limit)),
        ("substring", [Value::Int(from)]) => {
            let end = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            if *from > end {
                fail(format!("index out of range: {from}"))
            } else {
                substring(text, *from, end)
            }
        }
        ("substring", [Value::Int(from), Value::Int(to)]) => substring(text, *from, *to),
        ("strings.quote", []) => Ok(Value::text(quoted(text))),
        ("format", [Value::List(values)]) => format::format(text, values),
        _ => return None,
    })
}

fn char_at<'a>(text: &str, index: i64) -> Answer<'a> {
    let letters = text.chars().count();
    match usize::try_from(index) {
        Ok(index) if index == letters => Ok(Value::text("")),
        Ok(index) if index < letters => {
            Ok(Value::text(text.chars().nth(index).map(String::from).unwrap_or_default()))
        }
        _ => fail(format!("index out of range: {index}")),
    }
}

/// The index of the first occurrence of a part from an index on, in characters.
fn position<'a>(text: &str, part: &str, from: usize) -> Value<'a> {
    let begin = text.char_indices().nth(from).map_or(text.len(), |(begin, _)| begin);
    match text[begin..].find(part) {
        Some(found) => count(from + text[begin..begin + found].chars().count()),
        None => Value::Int(-1),
    }
}

/// The index of the last occurrence of a part up to an index, in characters.
fn last_position<'a>(text: &str, part: &str, to: usize) -> Value<'a> {
    let found = text
        .char_indices()
        .map(|(begin, _)| begin)
        .chain([text.len()])
        .enumerate()
        .take(to.saturating_add(1))
        .filter(|(_, begin)| text[*begin..].starts_with(part))
        .last();
    found.map_or(Value::Int(-1), |(letter, _)| count(letter))
}

fn split<'a>(text: &str, separator: &str, limit: &[Value<'_>]) -> Value<'a> {
    let limit = match limit {
        [Value::Int(0)] => return Value::list(Vec::new()),
        [Value::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    let parts: Vec<Value<'a>> = if separator.is_empty() {
        let mut letters: Vec<String> = text.chars().map(String::from).collect();
        if letters.len() > limit {
            let rest = letters.split_off(limit - 1).concat();
            letters.push(rest);
        }
        letters.into_iter().map(Value::text).collect()
    } else {
        text.splitn(limit, separator).map(Value::text).collect()
    };
    Value::list(parts)
}

fn substring<'a>(text: &str, from: i64, to: i64) -> Answer<'a> {
    let letters = text.chars().count();
    let bound = |index: i64| usize::try_from(index).ok().filter(|index| *index <= letters);
    match (bound(from), bound(to)) {
        _ if from > to => fail(format!("invalid substring range. start: {from}, end: {to}")),
        (None, _) => fail(format!("index out of range: {from}")),
        (_, None) => fail(format!("index out of range: {to}")),
        (Some(begin), Some(end)) => {
            Ok(Value::text(text.chars().skip(begin).take(end - begin).collect::<String>()))
        }
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

/// Escapes a key for a JSON pointer.
fn escape_key(key: &str) -> String {
    let mut escaped = String::with_capacity(key.len());
    for letter in key.chars() {
        match letter {
            '/' => escaped.push_str("~1"),
            '~' => escaped.push_str("~0"),
            letter => escaped.push(letter),
        }
    }
    escaped
}
