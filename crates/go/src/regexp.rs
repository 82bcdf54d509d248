//! Regular expressions with the syntax of Go's package `regexp`: RE2, with ASCII classes.
//!
//! Patterns in a `CustomResourceDefinition` and in CEL are Go's. The dialect of the crate `regex` differs: its `\d`, `\w`,
//! `\s` and `\b` match Unicode, a `{` that does not begin a repetition is an error, and `[`, `&&`, `--` and `~~` have a
//! meaning within a class. So a pattern is parsed here by Go's rules, and translated for that crate.

mod class;
mod translate;

use std::ops::Range;

use regex::bytes::{Regex, RegexBuilder};

/// The maximum size of a compiled pattern, which nested repetitions can exceed.
const MAX_SIZE: usize = 4 << 20;
/// The maximum nesting of groups, as in Go.
const MAX_DEPTH: u32 = 1000;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Regexp(Regex);

/// Why a pattern is invalid. The message is that of Go.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("error parsing regexp: {code}: `{text}`")]
pub struct RegexpError {
    code: &'static str,
    text: String,
}

impl RegexpError {
    fn new(code: &'static str, text: &str) -> Self {
        Self { code, text: text.to_owned() }
    }
}

impl Regexp {
    /// Compiles a pattern.
    ///
    /// ```
    /// use plumb_go::regexp::Regexp;
    ///
    /// assert!(Regexp::new(r"^{\d+}$").unwrap().is_match("{12}"));
    /// assert!(!Regexp::new(r"^\d$").unwrap().is_match("\u{663}"));
    /// let error = Regexp::new("[a").unwrap_err();
    /// assert_eq!(error.to_string(), "error parsing regexp: missing closing ]: `[a`");
    /// ```
    pub fn new(pattern: &str) -> Result<Self, RegexpError> {
        let translated = translate::translate(pattern)?;
        let built = RegexBuilder::new(&translated).size_limit(MAX_SIZE).nest_limit(MAX_DEPTH + 1).build();
        let built = built.map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => RegexpError::new("expression too large", pattern),
            // The translated pattern can only be invalid in the name of a Unicode class.
            _ => RegexpError::new("invalid character class range", pattern),
        });
        built.map(Self)
    }

    /// Whether a text contains a match.
    pub fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text.as_bytes())
    }

    /// The first match in a text, as a range of bytes.
    pub fn find(&self, text: &str) -> Option<Range<usize>> {
        self.0.find(text.as_bytes()).map(|found| found.range())
    }

    /// All matches in a text that do not overlap, as ranges of bytes.
    pub fn find_iter<'a>(&'a self, text: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
        self.0.find_iter(text.as_bytes()).map(|found| found.range())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_match_ascii_only() {
        let table = [
            (r"^\d$", "3", true),
            (r"^\d$", "\u{663}", false),
            (r"^\D$", "\u{663}", true),
            (r"^\w+$", "a_9", true),
            (r"^\w$", "é", false),
            (r"^\W$", "é", true),
            (r"^[\w]$", "é", false),
            (r"^[^\w]$", "é", true),
            (r"^[\W_]$", "é", true),
            (r"^\s$", " ", true),
            (r"^\s$", "\u{a0}", false),
            (r"^\s$", "\u{b}", false),
            (r"^[[:space:]]$", "\u{b}", true),
            (r"é\b", "éa", true),
            (r"é\b", "é", false),
            (r"a\B", "aé", false),
            (r"^(?i)K$", "\u{212a}", true),
        ];
        for (pattern, text, expected) in table {
            assert_eq!(Regexp::new(pattern).unwrap().is_match(text), expected, "{pattern} {text:?}");
        }
    }

    #[test]
    fn characters_that_are_special_in_other_dialects_are_literal() {
        let table = [
            (r"^[^[\]]+$", "ab", true),
            (r"^[^[\]]+$", "a[b", false),
            (r"^{.*}$", "{}", true),
            (r"^a{,2}$", "a{,2}", true),
            (r"^a{x}$", "a{x}", true),
            (r"^[a&&b]+$", "a&b", true),
            (r"^[a--b]+$", "a", false),
            (r"^[a~~b]+$", "a~b", true),
            (r"^[+--]+$", "+,-", true),
            (r"^[a-]$", "-", true),
            (r"^[]a]+$", "]a", true),
            (r"^[^]a]$", "]", false),
            (r"^[[:alpha:]]$", "a", true),
            (r"^[[:^alpha:]]$", "a", false),
            (r"^[[:a]$", ":", true),
            (r"^\Qa.b\E$", "a.b", true),
            (r"^\Qa.b\E$", "axb", false),
            (r"^\101\x41\x{41}$", "AAA", true),
            (r"^\pL\p{Greek}\P{L}\p{^L}$", "aα11", true),
            (r"^(?P<n>a)(?<m>b)(?:c)$", "abc", true),
            (r"^(?i:a)b$", "Ab", true),
            (r"(?U)^a+?$", "aa", true),
            ("a b#c", "a b#c", true),
            (r"^.$", "é", true),
            (r"^$", "", true),
            (r"a$", "a\n", false),
        ];
        for (pattern, text, expected) in table {
            if pattern == r"^[a--b]+$" {
                // The range from `a` to `-` is reversed.
                assert!(Regexp::new(pattern).is_err());
                continue;
            }
            let compiled = Regexp::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(compiled.is_match(text), expected, "{pattern} {text:?}");
        }
    }

    #[test]
    fn errors_have_the_messages_of_go() {
        let table = [
            ("[a", "missing closing ]: `[a`"),
            ("(a", "missing closing ): `(a`"),
            ("a)", "unexpected ): `a)`"),
            ("*a", "missing argument to repetition operator: `*`"),
            ("a|*", "missing argument to repetition operator: `*`"),
            ("(+)", "missing argument to repetition operator: `+`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{3,2}", "invalid repeat count: `{3,2}`"),
            ("(a{100}){100}", "invalid repeat count: `{100}`"),
            ("[b-a]", "invalid character class range: `b-a`"),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            (r"a\", r"trailing backslash at end of expression: ``"),
            (r"\1", r"invalid escape sequence: `\1`"),
            (r"\Z", r"invalid escape sequence: `\Z`"),
            (r"[a-\d]", r"invalid escape sequence: `\d`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?<!a)", "invalid named capture: `(?<!a)`"),
            ("(?x)a", "invalid or unsupported Perl syntax: `(?x`"),
            ("(?P<n>a)(?P<n>b)", "duplicate capture group name: `n`"),
        ];
        for (pattern, expected) in table {
            let error = Regexp::new(pattern).unwrap_err().to_string();
            assert_eq!(error, format!("error parsing regexp: {expected}"), "{pattern}");
        }
    }
}
