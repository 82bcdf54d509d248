//! Links in the HTML of a backend, rewritten so that they stay below the URL of the proxied object, as upstream's
//! `proxy.Transport` does.
//!
//! The document is rewritten while it passes: only the tag that is not complete yet is held back. A tag that is longer than
//! [`LONGEST_TAG`] passes unchanged.

use std::ops::Range;

use super::location;

/// The longest tag that is rewritten.
const LONGEST_TAG: usize = 64 << 10;

/// The attributes with links, by element, as upstream's; and the elements whose content is text.
const LINKS: [(&str, &[&str]); 28] = [
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["formaction", "src", "usemap"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("style", &[]),
    ("textarea", &[]),
    ("title", &[]),
    ("video", &["poster", "src"]),
];

/// Elements whose content is text, up to their end tag.
const RAW_TEXT: [&str; 4] = ["script", "style", "textarea", "title"];

/// What the next byte belongs to.
#[derive(Debug, PartialEq, Eq)]
enum State {
    Text,
    /// A tag, from its `<`; inside of a quoted value after its quote.
    Tag {
        quote: Option<u8>,
    },
    Comment,
    /// The content of an element that has no elements inside.
    RawText(&'static str),
}

/// Rewrites a document piece by piece.
#[derive(Debug)]
pub(in super::super) struct Rewriter {
    prefix: String,
    own: Vec<String>,
    state: State,
    /// What was read and is not decided on yet.
    held: Vec<u8>,
}

impl Rewriter {
    /// Links to paths are moved below a prefix. `own` are the authorities that mean the backend.
    pub(in super::super) fn new(prefix: &str, own: &[&str]) -> Self {
        let own = own.iter().map(|&own| own.to_owned()).collect();
        Self { prefix: prefix.to_owned(), own, state: State::Text, held: Vec::new() }
    }

    /// Reads a piece, and returns what can be sent.
    pub(in super::super) fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len() + 256);
        for &byte in piece {
            self.read(byte, &mut out);
        }
        if self.state == State::Text {
            out.append(&mut self.held);
        }
        out
    }

    /// The rest of the document.
    pub(in super::super) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    fn read(&mut self, byte: u8, out: &mut Vec<u8>) {
        match &mut self.state {
            State::Text => {
                if byte == b'<' {
                    out.append(&mut self.held);
                    self.state = State::Tag { quote: None };
                }
                self.held.push(byte);
            }
            State::Tag { quote } => {
                self.held.push(byte);
                if self.held == b"<<" {
                    out.push(b'<');
                    self.held.pop();
                } else if self.held.len() == 2 && !byte.is_ascii_alphabetic() && !matches!(byte, b'/' | b'!')
                {
                    // A `<` in text.
                    self.state = State::Text;
                } else if self.held == b"<!--" {
                    self.state = State::Comment;
                } else if self.held.len() > LONGEST_TAG {
                    out.append(&mut self.held);
                    self.state = State::Text;
                } else if let Some(end) = *quote {
                    if byte == end {
                        *quote = None;
                    }
                } else if matches!(byte, b'"' | b'\'') && self.held.ends_with_value_start() {
                    *quote = Some(byte);
                } else if byte == b'>' {
                    self.end_tag(out);
                }
            }
            State::Comment => {
                self.held.push(byte);
                if self.held.ends_with(b"-->") {
                    out.append(&mut self.held);
                    self.state = State::Text;
                } else if self.held.len() > LONGEST_TAG {
                    // Enough to find its end is held back.
                    let kept = self.held.split_off(self.held.len() - 2);
                    out.append(&mut self.held);
                    self.held = kept;
                }
            }
            State::RawText(element) => {
                let end = element.len() + 2;
                self.held.push(byte);
                let tail = self.held.len().saturating_sub(end);
                let is_end = self.held[tail..]
                    .strip_prefix(b"</")
                    .is_some_and(|name| name.eq_ignore_ascii_case(element.as_bytes()));
                if is_end {
                    let tag = self.held.split_off(tail);
                    out.append(&mut self.held);
                    self.held = tag;
                    self.state = State::Tag { quote: None };
                } else if self.held.len() > end {
                    out.extend(self.held.drain(..tail));
                }
            }
        }
    }

    /// Passes a complete tag on, with its links rewritten.
    fn end_tag(&mut self, out: &mut Vec<u8>) {
        let tag = std::mem::take(&mut self.held);
        self.state = State::Text;
        let name_end = tag[1..].iter().position(|byte| !byte.is_ascii_alphanumeric()).map_or(1, |at| at + 1);
        let name = tag[1..name_end].to_ascii_lowercase();
        let Some((element, links)) = LINKS.iter().find(|(element, _)| element.as_bytes() == name) else {
            return out.extend_from_slice(&tag);
        };
        if RAW_TEXT.contains(element) && !tag.ends_with(b"/>") {
            self.state = State::RawText(element);
        }
        let mut copied = 0;
        for (attribute, value) in attributes(&tag, name_end) {
            let is_link =
                links.iter().any(|link| tag[attribute.clone()].eq_ignore_ascii_case(link.as_bytes()));
            let Some(link) = std::str::from_utf8(&tag[value.clone()]).ok().filter(|_| is_link) else {
                continue;
            };
            let own: Vec<&str> = self.own.iter().map(String::as_str).collect();
            out.extend_from_slice(&tag[copied..value.start]);
            out.extend_from_slice(location(link.trim(), &self.prefix, &own).as_bytes());
            copied = value.end;
        }
        out.extend_from_slice(&tag[copied..]);
    }
}

/// Whether the last byte begins a value.
trait EndsWithValueStart {
    fn ends_with_value_start(&self) -> bool;
}

impl EndsWithValueStart for Vec<u8> {
    fn ends_with_value_start(&self) -> bool {
        let before = self[..self.len() - 1].trim_ascii_end();
        before.ends_with(b"=")
    }
}

/// The attributes of a tag that have a value: where the name is, and where the value, without its quotes.
fn attributes(tag: &[u8], from: usize) -> Vec<(Range<usize>, Range<usize>)> {
    let find = |from: usize, is: &dyn Fn(u8) -> bool| {
        tag[from..].iter().position(|byte| is(*byte)).map_or(tag.len(), |at| from + at)
    };
    let is_name = |byte: u8| !byte.is_ascii_whitespace() && !matches!(byte, b'/' | b'>' | b'=');
    let not_space = |byte: u8| !byte.is_ascii_whitespace();
    let mut found = Vec::new();
    let mut at = from;
    while at < tag.len() {
        let start = find(at, &is_name);
        let end = find(start, &|byte| !is_name(byte));
        let equals = find(end, &not_space);
        if tag.get(equals) != Some(&b'=') {
            // An attribute without a value, or the end of the tag.
            at = end.max(start + 1);
            continue;
        }
        let value = find(equals + 1, &not_space);
        let (value, next) = if let Some(&quote @ (b'"' | b'\'')) = tag.get(value) {
            let end = find(value + 1, &|byte| byte == quote);
            (value + 1..end, end + 1)
        } else {
            let end = find(value, &|byte| byte.is_ascii_whitespace() || byte == b'>');
            (value..end, end)
        };
        found.push((start..end, value));
        at = next;
    }
    found
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PREFIX: &str = "/api/v1/namespaces/default/pods/web/proxy";

    fn rewritten(document: &str, piece: usize) -> String {
        let mut rewriter = Rewriter::new(PREFIX, &["10.0.0.1:80", "localhost"]);
        let mut out = Vec::new();
        for piece in document.as_bytes().chunks(piece) {
            out.extend(rewriter.push(piece));
        }
        out.extend(rewriter.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn links_of_a_page_stay_below_the_proxy_however_the_page_arrives() {
        let p = PREFIX;
        for (given, expected) in [
            (r#"<a href="/x">x</a>"#, format!(r#"<a href="{p}/x">x</a>"#)),
            (r"<A  HREF = '/x?a=b&amp;c'>", format!(r"<A  HREF = '{p}/x?a=b&amp;c'>")),
            ("<img alt=/y src=/x>", format!("<img alt=/y src={p}/x>")),
            (r#"<img alt="a > b" src="/x"/>"#, format!(r#"<img alt="a > b" src="{p}/x"/>"#)),
            (r"<form action=/x method=post>", format!(r"<form action={p}/x method=post>")),
            (r#"<a href="http://10.0.0.1:80/x">"#, format!(r#"<a href="{p}/x">"#)),
            (r#"<a href="http://example.com/x">"#, r#"<a href="http://example.com/x">"#.to_owned()),
            (r##"<a href="x"><a href="#y"><a href>"##, r##"<a href="x"><a href="#y"><a href>"##.to_owned()),
            (r#"<div href="/x" data="/y">"#, r#"<div href="/x" data="/y">"#.to_owned()),
            (r#"<!-- <a href="/x"> -->"#, r#"<!-- <a href="/x"> -->"#.to_owned()),
            (r#"1 < 2 <a href="/x">"#, format!(r#"1 < 2 <a href="{p}/x">"#)),
            (
                r#"<script src="/x">if (a<b) "<a href='/y'>"</SCRIPT><a href="/z">"#,
                format!(r#"<script src="{p}/x">if (a<b) "<a href='/y'>"</SCRIPT><a href="{p}/z">"#),
            ),
            (r#"don't <a href="/x">"#, format!(r#"don't <a href="{p}/x">"#)),
            (r#"<a href="/x"#, r#"<a href="/x"#.to_owned()),
        ] {
            for piece in [1, 2, 3, 1000] {
                assert_eq!(rewritten(given, piece), expected, "in pieces of {piece}");
            }
        }
    }

    #[test]
    fn a_tag_that_is_too_long_passes_unchanged_and_is_not_held_back() {
        let long = format!("<a title=\"{}\" href=\"/x\">", "y".repeat(LONGEST_TAG));
        let mut rewriter = Rewriter::new(PREFIX, &[]);
        assert!(rewriter.push(long.as_bytes()).len() > LONGEST_TAG);
        assert_eq!(rewritten(&long, 4096), long);
    }

    proptest! {
        #[test]
        fn text_without_links_is_not_changed(text in "[<>a-z!/='\" -]{0,80}", piece in 1_usize..9) {
            prop_assert_eq!(rewritten(&text, piece).replace(PREFIX, ""), text);
        }
    }
}
