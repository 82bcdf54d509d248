//! Escaping of text in XML.

/// Escapes text for an XML element or attribute, like `xml.EscapeText` of `encoding/xml`. Characters that XML does not
/// allow become U+FFFD.
///
/// ```
/// assert_eq!(plumb_go::escape_xml("1 < 2 & \"3\"\n"), "1 &lt; 2 &amp; &#34;3&#34;&#xA;");
/// ```
pub fn escape_xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' => escaped.push_str("&#34;"),
            '\'' => escaped.push_str("&#39;"),
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '\t' => escaped.push_str("&#x9;"),
            '\n' => escaped.push_str("&#xA;"),
            '\r' => escaped.push_str("&#xD;"),
            '\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_as_go_escapes_them() {
        for (text, escaped) in [
            ("", ""),
            ("a b é", "a b é"),
            ("it's <b>", "it&#39;s &lt;b&gt;"),
            ("\t\r\n", "&#x9;&#xD;&#xA;"),
            ("a\u{0}\u{1f}\u{7f}\u{85}\u{fffe}\u{10ffff}", "a\u{fffd}\u{fffd}\u{7f}\u{85}\u{fffd}\u{10ffff}"),
        ] {
            assert_eq!(escape_xml(text), escaped, "{text:?}");
        }
    }
}
