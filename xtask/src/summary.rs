//! `docs/SUMMARY.md`: the pages of the site, in their order and in four parts.
//!
//! The format is mdBook's: a `#` heading for each part, and a list of links for its pages.

/// Where the pages are listed, from the root of the repository.
pub const FILE: &str = "docs/SUMMARY.md";

/// A part of the site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its heading.
    pub title: String,
    /// The paths of its pages, from the root of the repository.
    pub pages: Vec<String>,
}

/// Parses the list of pages. Its first heading is the title of the list.
pub fn parse(text: &str) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for line in text.lines().skip_while(|line| !line.starts_with("# ")).skip(1) {
        if let Some(title) = line.strip_prefix("# ") {
            parts.push(Part { title: title.to_owned(), pages: Vec::new() });
        } else if let (Some(part), Some(target)) = (parts.last_mut(), target(line)) {
            part.pages.push(from_root("docs", target));
        }
    }
    parts
}

/// The list with paths from the root of the repository, where the pages of the site are.
pub fn at_root(text: &str) -> String {
    let rewrite = |line: &str| match target(line) {
        Some(target) => line.replace(&format!("]({target})"), &format!("]({})", from_root("docs", target))),
        None => line.to_owned(),
    };
    text.lines().map(|line| rewrite(line) + "\n").collect()
}

/// The target of a line `- [title](target)`.
fn target(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("- [")?.split_once("](")?.1.strip_suffix(')')
}

/// The path from the root of the repository to what a page in a directory links to.
pub fn from_root(directory: &str, target: &str) -> String {
    let mut path: Vec<&str> = directory.split('/').filter(|name| !name.is_empty()).collect();
    for name in target.split('/') {
        match name {
            ".." => drop(path.pop()),
            "." | "" => {}
            name => path.push(name),
        }
    }
    path.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "# Summary\n\n# Start\n\n- [Plumb](../README.md)\n  - [First](first.md)\n\n# Guides\n\n- [Next](next.md)\n";

    #[test]
    fn pages_are_listed_by_part() {
        let part = |title: &str, pages: &[&str]| Part {
            title: title.to_owned(),
            pages: pages.iter().map(|&page| page.to_owned()).collect(),
        };
        let expected = [part("Start", &["README.md", "docs/first.md"]), part("Guides", &["docs/next.md"])];
        assert_eq!(parse(LIST), expected);
    }

    #[test]
    fn the_list_of_the_site_has_paths_from_the_root() {
        let list = at_root(LIST);
        assert!(list.contains("- [Plumb](README.md)\n  - [First](docs/first.md)\n"), "{list}");
    }

    #[test]
    fn paths_are_resolved_against_the_directory_of_the_page() {
        let cases = [
            ("docs", "first.md", "docs/first.md"),
            ("docs", "../README.md", "README.md"),
            ("docs/demo", "../.././bench/RESULTS.md", "bench/RESULTS.md"),
            ("", "docs/first.md", "docs/first.md"),
        ];
        for (directory, target, expected) in cases {
            assert_eq!(from_root(directory, target), expected, "{directory} {target}");
        }
    }
}
