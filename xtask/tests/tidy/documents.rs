//! The documents name crates and files that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use xtask::repository::{root, sources};

/// The pages of the repository.
fn pages() -> Vec<PathBuf> {
    let folders = [root(), root().join("docs"), root().join("bench")];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).unwrap().flatten());
    let mut pages: Vec<PathBuf> = files.map(|entry| entry.path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    pages
}

#[test]
fn the_architecture_has_a_row_for_each_crate() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `crates/")?.split('`').next());
    let rows: BTreeSet<String> = rows.map(str::to_owned).collect();
    let crates = fs::read_dir(root().join("crates")).unwrap().flatten();
    let crates = crates.filter(|entry| entry.path().join("Cargo.toml").is_file());
    let crates: BTreeSet<String> =
        crates.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    assert_eq!(rows, crates, "the rows of ARCHITECTURE.md, and the crates that there are");
}

#[test]
fn links_lead_to_files_that_exist() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            let elsewhere = file.is_empty() || file.contains("://") || file.contains(char::is_whitespace);
            let beside = page.parent().map(|folder| folder.join(file));
            if !elsewhere && !beside.is_some_and(|path| path.exists()) {
                broken.push(format!("{}: {target}", page.strip_prefix(root()).unwrap_or(&page).display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

/// The anchors of a page, as GitHub makes them of its headings.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut in_code = false;
    let headings = page.lines().filter(|line| {
        in_code ^= line.trim_start().starts_with("```");
        !in_code && line.starts_with('#')
    });
    let letters = |heading: &str| -> String {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || "-_ ".contains(*c));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(letters).collect()
}

#[test]
fn links_lead_to_headings_that_exist() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let Some((file, anchor)) = target.split_once('#') else { continue };
            let path = if file.is_empty() { page.clone() } else { page.with_file_name(file) };
            let is_page =
                path.extension().is_some_and(|extension| extension == "md") && !file.contains("://");
            // That the file exists is another test.
            let Ok(linked) = fs::read_to_string(&path) else { continue };
            if is_page && !anchors(&linked).contains(anchor) {
                broken.push(format!("{}: {target}", page.strip_prefix(root()).unwrap_or(&page).display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn paths_below_crates_exist() {
    let mut missing = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        // What is between backticks and is nothing but a path.
        for code in text.split('`').skip(1).step_by(2).filter(|code| code.starts_with("crates/")) {
            let is_path = !code.contains(|c: char| c.is_whitespace() || "*{}<>…".contains(c));
            let path = code.split("::").next().unwrap_or(code);
            if is_path && !root().join(path).exists() && path != "crates/rollout" {
                missing.push(format!("{}: {code}", page.strip_prefix(root()).unwrap_or(&page).display()));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_ways_through_the_code_name_functions_that_exist() {
    let text = fs::read_to_string(root().join("docs/ways.md")).unwrap();
    let is_step =
        |line: &&str| line.split_once(". `").is_some_and(|(number, _)| number.parse::<u8>().is_ok());
    // What is between backticks in a step and has the form `module::function`.
    let steps = text.lines().filter(is_step);
    let code = steps.flat_map(|line| line.split('`').skip(1).step_by(2));
    let cited: BTreeSet<&str> = code.filter_map(|code| Some(code.rsplit_once("::")?.1)).collect();
    assert!(cited.len() > 10, "{cited:?}");
    let functions = functions();
    let missing: Vec<_> = cited
        .iter()
        .filter(|name| !functions.iter().any(|known| known.ends_with(&format!("::{name}"))))
        .collect();
    assert!(missing.is_empty(), "docs/ways.md names functions that do not exist: {missing:?}");
}

/// A row of the table in `docs/resize-path.md`.
struct Hop {
    number: usize,
    file: String,
    function: String,
}

impl Hop {
    /// `| number | `file` | `function` | what it does |`.
    fn parse(row: &str) -> Option<Self> {
        let mut cells = row.strip_prefix("| ")?.split(" | ");
        let number = cells.next()?.parse().ok()?;
        let mut code = || Some(cells.next()?.strip_prefix('`')?.strip_suffix('`')?.to_owned());
        Some(Self { number, file: code()?, function: code()? })
    }
}

#[test]
fn the_path_of_a_resize_names_functions_that_exist() {
    let text = fs::read_to_string(root().join("docs/resize-path.md")).unwrap();
    let hops: Vec<Hop> = text.lines().filter_map(Hop::parse).collect();
    let numbers: Vec<usize> = hops.iter().map(|hop| hop.number).collect();
    assert_eq!(numbers, (1..=hops.len()).collect::<Vec<_>>(), "the numbers of the hops");
    for Hop { number, file, function } in &hops {
        let source = fs::read_to_string(root().join(file)).unwrap_or_default();
        let defines = |begin: &str| source.contains(&format!("fn {function}{begin}"));
        assert!(defines("(") || defines("<"), "hop {number}: {file} has no function {function}");
    }
    let files: BTreeSet<&String> = hops.iter().map(|hop| &hop.file).collect();
    let summary = format!("{} hops in {} files", hops.len(), files.len());
    assert!(text.contains(&summary), "docs/resize-path.md should say: {summary}");
}

/// A table of a page: the heading above it, and the cells of its rows below the head.
struct Table {
    heading: String,
    rows: Vec<Vec<String>>,
}

/// The page about upstream's conformance tests, and its tables.
fn conformance() -> (String, Vec<Table>) {
    let text = fs::read_to_string(root().join("docs/conformance-tests.md")).unwrap();
    let mut tables = vec![Table { heading: String::new(), rows: Vec::new() }];
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            tables.push(Table { heading: heading.to_owned(), rows: Vec::new() });
        } else if let Some(row) = line.strip_prefix("| ").and_then(|row| row.strip_suffix(" |")) {
            let cells = row.split(" | ").map(str::to_owned).collect();
            tables.last_mut().unwrap().rows.push(cells);
        }
    }
    for table in &mut tables {
        table.rows.drain(..table.rows.len().min(1));
    }
    (text, tables)
}

/// Whether the repository has a test: `CRATE it::MODULE::NAME`, `CRATE MODULE::NAME`, or `conformance CASE`.
fn is_a_test(cited: &str) -> bool {
    let Some((package, path)) = cited.split_once(' ') else { return false };
    let folder = root().join("crates").join(package);
    let Some((module, name)) = path.rsplit_once("::") else {
        let scenarios = fs::read_dir(folder.join("differential/controllers")).into_iter().flatten().flatten();
        let mut scenarios = scenarios.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        let cases = fs::read_to_string(folder.join("cases.txt")).unwrap_or_default();
        let scenario = format!("- name: {path}");
        return cases.lines().any(|case| case == path)
            || scenarios.any(|text| text.lines().any(|line| line == scenario));
    };
    let file = match module.strip_prefix("it::") {
        Some(module) => format!("tests/it/{}.rs", module.replace("::", "/")),
        None if module == "it" => "tests/it/main.rs".to_owned(),
        None => format!("src/{}.rs", module.replace("::", "/")),
    };
    let source = fs::read_to_string(folder.join(file)).unwrap_or_default();
    let lines: Vec<&str> = source.lines().map(str::trim_start).collect();
    let at = lines.iter().position(|line| {
        let line = line.strip_prefix("async ").unwrap_or(line);
        line.strip_prefix("fn ")
            .and_then(|rest| rest.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('('))
    });
    // Its attributes are above it.
    at.is_some_and(|at| {
        let attributes = lines[..at].iter().rev().take_while(|line| line.starts_with("#["));
        attributes.into_iter().any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test"))
    })
}

#[test]
fn the_tests_that_show_upstreams_conformance_tests_exist() {
    let (_, tables) = conformance();
    let mut missing = Vec::new();
    for table in tables.iter().filter(|table| table.heading.starts_with("sig-")) {
        for row in &table.rows {
            let [name, ours] = &row[..] else { panic!("{row:?} has not two cells") };
            let cited: Vec<&str> = ours.split("<br>").map(|one| one.trim_matches('`')).collect();
            missing.extend(cited.iter().filter(|one| !is_a_test(one)).map(|one| format!("{name}: {one}")));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn upstreams_conformance_tests_are_counted_as_they_are_listed() {
    let (text, tables) = conformance();
    let of = |heading: &str| {
        let found = tables.iter().find(|table| table.heading == heading);
        found.map(|table| table.rows.as_slice()).unwrap_or_default()
    };
    let shown = tables.iter().filter(|table| table.heading.starts_with("sig-"));
    let shown: usize = shown.map(|table| table.rows.len()).sum();
    let missing = of("Not shown yet").len();
    let mut outside = 0;
    for row in of("By upstream's suite alone") {
        let (subject, count) = row[0].split_once(": ").unwrap();
        assert_eq!(count.parse(), Ok(row[1].split("<br>").count()), "{subject}");
        outside += row[1].split("<br>").count();
    }
    assert_eq!(shown + missing + outside, 446, "upstream's conformance tests");
    let summary = format!(
        "**{shown} are shown** by tests of ours, **{missing} are not shown yet**, and **{outside} by upstream's suite alone**"
    );
    assert!(text.contains(&summary), "docs/conformance-tests.md should say: {summary}");
    for row in of("") {
        let [group, rest @ ..] = &row[..] else { panic!("{row:?} is empty") };
        let counts: Vec<usize> = rest.iter().filter_map(|cell| cell.parse().ok()).collect();
        let [all, own, missing, outside] = counts[..] else { panic!("{row:?} has not four counts") };
        assert_eq!((all, own), (own + missing + outside, of(group).len()), "{group}");
    }
}

/// The table of `CONTRIBUTING.md` that says where to open the code: each row names files or folders, and all of them exist.
#[test]
fn the_map_of_changes_names_files_that_exist() {
    let text = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
    let (_, map) = text.split_once("| I want to | open | test it with |\n|---|---|---|\n").unwrap();
    let rows: Vec<&str> = map.lines().take_while(|line| line.starts_with("| ")).collect();
    assert!(rows.len() >= 20, "{} rows", rows.len());
    let is_path = |code: &&str| code.contains('/') && !code.contains(char::is_whitespace);
    for row in rows {
        let open = row.split(" | ").nth(1).unwrap();
        let paths: Vec<&str> = open.split('`').skip(1).step_by(2).filter(is_path).collect();
        assert!(!paths.is_empty(), "no path to open: {row}");
        for path in paths {
            assert!(root().join(path).exists(), "{path} does not exist: {row}");
        }
    }
}

#[test]
fn each_attack_of_the_security_page_names_tests_that_exist() {
    let text = fs::read_to_string(root().join("docs/security.md")).unwrap();
    let (_, table) =
        text.split_once("| attack | result before | what stops it | test |\n|---|---|---|---|\n").unwrap();
    let rows: Vec<&str> = table.lines().take_while(|line| line.starts_with("| ")).collect();
    assert!(rows.len() >= 35, "{} rows", rows.len());
    let functions = functions();
    let exists = |test: &str| {
        let module = format!("::{}::", test.trim_end_matches("::"));
        let function = format!("::{}", test.replace("::tests::", "::"));
        functions.iter().any(|known| known.ends_with(&function) || known.contains(&module))
    };
    let is_test = |code: &&str| code.contains(['_', ':']) && !code.contains(char::is_whitespace);
    for row in rows {
        let cell = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
        let tests: Vec<&str> = cell.split('`').skip(1).step_by(2).filter(is_test).collect();
        assert!(!tests.is_empty(), "no test: {row}");
        let missing: Vec<&&str> = tests.iter().filter(|test| !exists(test)).collect();
        assert!(missing.is_empty(), "{missing:?} do not exist: {row}");
    }
}

/// The functions of all crates, each with the path of its module: `nodes::memory::a_limit_is_lowered`.
fn functions() -> Vec<String> {
    let mut functions = Vec::new();
    for file in sources(&root().join("crates")).unwrap() {
        let text = fs::read_to_string(&file).unwrap();
        let module = file.with_extension("").display().to_string().replace('/', "::");
        let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
        functions.extend(names.map(|name| format!("{module}::{name}")));
    }
    functions
}

/// The filters of test names in the commands of a text: the words after `--skip`, and the first one after `--test it`.
fn filters(text: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_:".contains(c);
    let after = |option: &'static str| {
        text.split(option).skip(1).map(move |rest| rest.split(|c| !is_name(c)).next().unwrap_or_default())
    };
    after("--skip ").chain(after("--test it ")).filter(|filter| !filter.is_empty()).collect()
}

#[test]
fn the_filters_in_test_commands_match_tests() {
    let functions = functions();
    let scripts = fs::read_dir(root().join(".ci")).unwrap().flatten().map(|entry| entry.path());
    let mut stale = Vec::new();
    for file in pages().into_iter().chain(scripts) {
        let text = fs::read_to_string(&file).unwrap();
        for filter in filters(&text) {
            if !functions.iter().any(|function| function.contains(filter)) {
                stale.push(format!("{}: {filter}", file.strip_prefix(root()).unwrap_or(&file).display()));
            }
        }
    }
    assert!(stale.is_empty(), "no test has these in its name: {stale:#?}");
}
