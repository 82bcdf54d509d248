//! The links of a page, as Markdown and as HTML.

use xtask::summary::from_root;

/// Replaces the targets of a page's links. `replace` gets the path of a target from the root of the repository, and returns
/// what to write instead, if anything.
pub(crate) fn rewrite(text: &str, page: &str, replace: impl Fn(&str) -> Option<String>) -> String {
    let directory = page.rsplit_once('/').map_or("", |(directory, _)| directory);
    let mut fragments = text.split("](");
    let mut written = fragments.next().unwrap_or_default().to_owned();
    for fragment in fragments {
        written.push_str("](");
        let Some((target, rest)) = fragment.split_once(')') else {
            written.push_str(fragment);
            continue;
        };
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let is_local = !file.is_empty() && !file.contains("://") && !file.contains(char::is_whitespace);
        match replace(&from_root(directory, file)).filter(|_| is_local) {
            Some(replacement) => {
                written.push_str(&replacement);
                if !anchor.is_empty() {
                    written.push('#');
                    written.push_str(anchor);
                }
            }
            None => written.push_str(target),
        }
        written.push(')');
        written.push_str(rest);
    }
    written
}

/// The local links of an HTML page, without queries and with `%20` and the like decoded.
pub(crate) fn of_html(page: &str) -> Vec<String> {
    let links = ["href=\"", "src=\""]
        .into_iter()
        .flat_map(|attribute| page.split(attribute).skip(1).filter_map(|rest| rest.split('"').next()));
    let is_local = |link: &&str| !link.contains(':') && !link.starts_with("//") && !link.is_empty();
    links.filter(is_local).map(|link| decode(link.split('?').next().unwrap_or(link))).collect()
}

/// Whether an HTML page has an element with this id.
pub(crate) fn has_anchor(page: &str, id: &str) -> bool {
    page.contains(&format!("id=\"{id}\""))
}

/// Decodes `%` and two hexadecimal digits; what is not UTF-8 then stays as it is.
fn decode(link: &str) -> String {
    let mut bytes = Vec::with_capacity(link.len());
    let mut rest = link.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(decoded) if byte == b'%' => {
                bytes.push(decoded);
                rest = &after[2..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| link.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_to_files_that_are_no_pages_lead_to_the_repository() {
        let replace = |path: &str| path.starts_with("crates/").then(|| format!("https://host/{path}"));
        let cases = [
            ("see [a](../crates/a.rs) and [b](b.md#c)", "see [a](https://host/crates/a.rs) and [b](b.md#c)"),
            ("[a](../crates/a.rs#L1).", "[a](https://host/crates/a.rs#L1)."),
            ("[a](#crates/)", "[a](#crates/)"),
            ("[a](https://crates/a)", "[a](https://crates/a)"),
            ("[a](unclosed", "[a](unclosed"),
        ];
        for (text, expected) in cases {
            assert_eq!(rewrite(text, "docs/page.md", replace), expected);
        }
    }

    #[test]
    fn local_links_are_found_in_html() {
        let page = r##"<a href="b.html#c%C3%A9">b</a> <img src="a.svg?v=1"> <a href="https://host/">h</a> <a href="#d">"##;
        assert_eq!(of_html(page), ["b.html#cé", "#d", "a.svg"]);
    }

    #[test]
    fn anchors_are_the_ids_of_elements() {
        let page = r#"<h2 id="limits">Limits</h2>"#;
        assert!(has_anchor(page, "limits"));
        assert!(!has_anchor(page, "limit"));
    }
}
