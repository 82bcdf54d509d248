//! Lines of fields separated by commas, as token files have them.

/// The fields of a line. A field in double quotes may hold commas, and a double quote doubled.
pub(super) fn fields(line: &str) -> Result<Vec<String>, &'static str> {
    let mut found = Vec::new();
    let mut rest = line;
    loop {
        let (field, after) = field(rest)?;
        found.push(field);
        match after {
            Some(after) => rest = after,
            None => return Ok(found),
        }
    }
}

/// The first field, and what follows the comma behind it.
fn field(line: &str) -> Result<(String, Option<&str>), &'static str> {
    let Some(quoted) = line.strip_prefix('"') else {
        let (field, after) = line.split_once(',').map_or((line, None), |(field, after)| (field, Some(after)));
        if field.contains('"') {
            return Err("a quote inside a field that is not quoted");
        }
        return Ok((field.trim().to_owned(), after));
    };
    let mut field = String::new();
    let mut rest = quoted;
    loop {
        let Some((before, after)) = rest.split_once('"') else { return Err("a quote that does not end") };
        field.push_str(before);
        if let Some(after) = after.strip_prefix('"') {
            field.push('"');
            rest = after;
        } else if after.is_empty() {
            return Ok((field, None));
        } else if let Some(after) = after.strip_prefix(',') {
            return Ok((field, Some(after)));
        } else {
            return Err("text behind a quoted field");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_is_split_into_fields() {
        let cases: [(&str, &[&str]); 6] = [
            ("a,b,c", &["a", "b", "c"]),
            ("a, b ,", &["a", "b", ""]),
            ("", &[""]),
            (r#"a,"b,c",d"#, &["a", "b,c", "d"]),
            (r#""say ""x""",b"#, &[r#"say "x""#, "b"]),
            (r#""",b"#, &["", "b"]),
        ];
        for (line, expected) in cases {
            assert_eq!(fields(line).unwrap(), expected, "{line}");
        }
        for line in [r#"a,"b"#, r#"a,"b"c"#, r#"a"b,c"#] {
            assert!(fields(line).is_err(), "{line}");
        }
    }

    /// A field, quoted if it must be.
    fn quote(field: &str) -> String {
        let plain = !field.contains(['"', ',']) && field.trim() == field;
        if plain { field.to_owned() } else { format!("\"{}\"", field.replace('"', "\"\"")) }
    }

    proptest! {
        #[test]
        fn quoted_fields_are_read_back(written in prop::collection::vec("[a-z\", ]{0,8}", 1..5)) {
            let line = written.iter().map(|field| quote(field)).collect::<Vec<_>>().join(",");
            prop_assert_eq!(fields(&line).unwrap(), written);
        }
    }
}
