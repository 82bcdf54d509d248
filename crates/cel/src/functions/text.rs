//! Texts.

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
    let (Value::Text(own), rest) = args.split_first()? else { return None };
    let own = own.as_ref();
    Some(match (function, rest) {
        ("jsonpatch.escapeKey", []) => Ok(Value::text(escape_key(own))),
        ("contains", [Value::Text(part)]) => Ok(Value::Bool(own.contains(part.as_ref()))),
        ("startsWith", [Value::Text(part)]) => Ok(Value::Bool(own.starts_with(part.as_ref()))),
        ("endsWith", [Value::Text(part)]) => Ok(Value::Bool(own.ends_with(part.as_ref()))),
        ("matches", [Value::Text(pattern)]) => match regexes.with(pattern, |regex| regex.is_match(own)) {
            Ok(matches) => Ok(Value::Bool(matches)),
            Err(why) => fail(why),
        },
        ("find", [Value::Text(pattern)]) => {
            match regexes
                .with(pattern, |regex| regex.find(own).and_then(|found| own.get(found)).map(str::to_owned))
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
                let found = regex.find_iter(own).filter_map(|found| own.get(found)).take(limit);
                found.map(|found| Value::text(found.to_owned())).collect()
            });
            all.map(Value::list).or_else(|why| fail(format!("Illegal regex: {why}")))
        }
        ("charAt", [Value::Int(index)]) => char_at(own, *index),
        ("indexOf", [Value::Text(part)]) => Ok(place(own, part, 0)),
        // A text without letters is wherever it is looked for.
        ("indexOf" | "lastIndexOf", [Value::Text(part), Value::Int(place)]) if part.is_empty() => {
            Ok(Value::Int(*place))
        }
        ("indexOf", [Value::Text(part), Value::Int(from)]) => match usize::try_from(*from) {
            Ok(from) if from < own.chars().count() => Ok(place(own, part, from)),
            Ok(_) => Ok(Value::Int(-1)),
            Err(_) => fail(format!("index out of range: {from}")),
        },
        ("lastIndexOf", [Value::Text(part)]) => Ok(last_place(own, part, usize::MAX)),
        ("lastIndexOf", [Value::Text(part), Value::Int(to)]) => match usize::try_from(*to) {
            Ok(to) if to < own.chars().count() => Ok(last_place(own, part, to)),
            Ok(_) => Ok(Value::Int(-1)),
            Err(_) => fail(format!("index out of range: {to}")),
        },
        ("lowerAscii", []) => Ok(Value::text(own.to_ascii_lowercase())),
        ("upperAscii", []) => Ok(Value::text(own.to_ascii_uppercase())),
        ("trim", []) => Ok(Value::text(own.trim())),
        ("replace", [Value::Text(old), Value::Text(new)]) => Ok(Value::text(own.replace(old.as_ref(), new))),
        ("replace", [Value::Text(old), Value::Text(new), Value::Int(limit)]) => {
            let limit = usize::try_from(*limit).unwrap_or(usize::MAX);
            Ok(Value::text(own.replacen(old.as_ref(), new, limit)))
        }
        ("split", [Value::Text(separator), limit @ ..]) => Ok(split(own, separator, limit)),
        ("substring", [Value::Int(from)]) => {
            let end = i64::try_from(own.chars().count()).unwrap_or(i64::MAX);
            if *from > end { fail(format!("index out of range: {from}")) } else { substring(own, *from, end) }
        }
        ("substring", [Value::Int(from), Value::Int(to)]) => substring(own, *from, *to),
        ("strings.quote", []) => Ok(Value::text(quoted(own))),
        ("format", [Value::List(values)]) => format::format(own, values),
        _ => return None,
    })
}

fn char_at<'a>(own: &str, index: i64) -> Answer<'a> {
    let letters = own.chars().count();
    match usize::try_from(index) {
        Ok(index) if index == letters => Ok(Value::text("")),
        Ok(index) if index < letters => {
            Ok(Value::text(own.chars().nth(index).map(String::from).unwrap_or_default()))
        }
        _ => fail(format!("index out of range: {index}")),
    }
}

/// Where a part stands from a letter on, in letters.
fn place<'a>(own: &str, part: &str, from: usize) -> Value<'a> {
    let begin = own.char_indices().nth(from).map_or(own.len(), |(begin, _)| begin);
    match own[begin..].find(part) {
        Some(found) => count(from + own[begin..begin + found].chars().count()),
        None => Value::Int(-1),
    }
}

fn last_place<'a>(own: &str, part: &str, to: usize) -> Value<'a> {
    let found = own
        .char_indices()
        .map(|(begin, _)| begin)
        .chain([own.len()])
        .enumerate()
        .take(to.saturating_add(1))
        .filter(|(_, begin)| own[*begin..].starts_with(part))
        .last();
    found.map_or(Value::Int(-1), |(letter, _)| count(letter))
}

fn split<'a>(own: &str, separator: &str, limit: &[Value<'_>]) -> Value<'a> {
    let limit = match limit {
        [Value::Int(0)] => return Value::list(Vec::new()),
        [Value::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
        _ => usize::MAX,
    };
    let parts: Vec<Value<'a>> = if separator.is_empty() {
        let mut letters: Vec<String> = own.chars().map(String::from).collect();
        if letters.len() > limit {
            let rest = letters.split_off(limit - 1).concat();
            letters.push(rest);
        }
        letters.into_iter().map(Value::text).collect()
    } else {
        own.splitn(limit, separator).map(Value::text).collect()
    };
    Value::list(parts)
}

fn substring<'a>(own: &str, from: i64, to: i64) -> Answer<'a> {
    let letters = own.chars().count();
    let bound = |index: i64| usize::try_from(index).ok().filter(|index| *index <= letters);
    match (bound(from), bound(to)) {
        _ if from > to => fail(format!("invalid substring range. start: {from}, end: {to}")),
        (None, _) => fail(format!("index out of range: {from}")),
        (_, None) => fail(format!("index out of range: {to}")),
        (Some(begin), Some(end)) => {
            Ok(Value::text(own.chars().skip(begin).take(end - begin).collect::<String>()))
        }
    }
}

fn quoted(own: &str) -> String {
    let mut out = String::with_capacity(own.len() + 2);
    out.push('"');
    for letter in own.chars() {
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

/// A key as it stands in a JSON pointer.
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
