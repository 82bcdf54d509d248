//! docs/cli.md is written by hand; these tests compare it with the program.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Arg, Command, CommandFactory as _, Parser as _};

use super::Cli;

/// A heading, and the text below it until the next one.
struct Section {
    title: String,
    text: String,
}

impl Section {
    /// How other parts of the page link to it.
    fn link(&self) -> String {
        format!("(#{})", self.title.to_lowercase().replace(' ', "-"))
    }

    /// The rows of its tables that begin with a flag: the flag, and the whole row.
    fn rows(&self) -> impl Iterator<Item = (&str, &str)> {
        self.text.lines().filter_map(|line| {
            let code = line.strip_prefix("| `-")?.split('`').next()?;
            // Of `-n, --namespace NAME` and `--purge` the long name.
            let long = code.strip_prefix('-').or_else(|| Some(code.split_once("--")?.1))?;
            Some((long.split([' ', ',', '=', '[']).next()?, line))
        })
    }
}

/// The page.
struct Page(Vec<Section>);

impl Page {
    fn read() -> Self {
        let text =
            std::fs::read_to_string(root().join("docs/cli.md")).expect("the page is in the repository");
        let mut sections = vec![Section { title: String::new(), text: String::new() }];
        let mut in_code = false;
        for line in text.lines() {
            in_code ^= line.starts_with("```");
            if let Some(title) = line.strip_prefix('#').filter(|_| !in_code) {
                let title = title.trim_start_matches('#').trim().replace('`', "");
                sections.push(Section { title, text: String::new() });
            } else if let Some(last) = sections.last_mut() {
                last.text.push_str(line);
                last.text.push('\n');
            }
        }
        Self(sections)
    }

    /// The text about a command: its own section, and those that it links to.
    fn of(&self, command: &str) -> Option<(&Section, Vec<&Section>)> {
        let own = self.0.iter().find(|section| section.title == command)?;
        let linked = self.0.iter().filter(|section| own.text.contains(&section.link()));
        Some((own, linked.collect()))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every command that people see, by its whole name.
fn commands() -> Vec<(String, Command)> {
    fn walk(name: String, command: &Command, found: &mut Vec<(String, Command)>) {
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            walk(format!("{name} {}", below.get_name()), below, found);
        }
        found.push((name, command.clone()));
    }
    let mut found = Vec::new();
    walk("plumb".to_owned(), &Cli::command(), &mut found);
    found
}

/// The flags of a command that people see. `plumb load` reads its own.
fn flags(name: &str, command: &Command) -> Vec<(String, Option<Arg>)> {
    if name == "plumb load" {
        let lines = plumb_runtime::load::USAGE.lines().filter_map(|line| line.strip_prefix("  --"));
        return lines.filter_map(|line| Some((line.split(' ').next()?.to_owned(), None))).collect();
    }
    let seen = command.get_arguments().filter(|arg| !arg.is_hide_set());
    seen.filter_map(|arg| Some((arg.get_long()?.to_owned(), Some(arg.clone())))).collect()
}

/// Help has this many columns where the terminal does not say how many it has.
const COLUMNS: usize = 100;

#[test]
fn no_example_of_the_help_is_wrapped() {
    for (name, command) in commands() {
        let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let long: Vec<_> = examples.lines().filter(|line| line.chars().count() > COLUMNS).collect();
        assert!(long.is_empty(), "{name}: {long:#?}");
    }
}

#[test]
fn the_page_has_every_command_and_flag_with_its_default_and_its_values() {
    let page = Page::read();
    let mut missing = Vec::new();
    for (name, command) in commands() {
        let Some((own, linked)) = page.of(&name) else {
            missing.push(format!("a section {name:?}"));
            continue;
        };
        for (flag, arg) in flags(&name, &command) {
            let mut rows = [own].into_iter().chain(linked.iter().copied()).flat_map(Section::rows);
            let Some((_, row)) = rows.find(|(known, _)| *known == flag) else {
                missing.push(format!("{name}: --{flag}"));
                continue;
            };
            let Some(arg) = arg else { continue };
            let defaults = arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned());
            let values = arg.get_possible_values().into_iter().map(|value| value.get_name().to_owned());
            let takes_value = arg.get_action().takes_values();
            for value in defaults.chain(values).filter(|value| takes_value && !value.is_empty()) {
                if !row.contains(&value) {
                    missing.push(format!("{name}: --{flag}: {value}"));
                }
            }
        }
        for arg in command.get_positionals().filter(|_| name != "plumb load") {
            let what =
                arg.get_value_names().and_then(<[_]>::first).map(ToString::to_string).unwrap_or_default();
            if !own.text.contains(&what) {
                missing.push(format!("{name}: {what}"));
            }
        }
    }
    assert!(missing.is_empty(), "docs/cli.md lacks {missing:#?}");
}

#[test]
fn the_page_has_no_flag_that_does_not_exist() {
    let page = Page::read();
    let commands = commands();
    let all: BTreeSet<String> =
        commands.iter().flat_map(|(name, command)| flags(name, command)).map(|(flag, _)| flag).collect();
    let mut invented = Vec::new();
    for section in &page.0 {
        let one = commands.iter().find(|(name, _)| *name == section.title);
        if one.is_none() && section.title.starts_with("plumb ") {
            invented.push(section.title.clone());
        }
        // Flags that several commands share are documented once, in a section of their own.
        let known = one.map_or_else(
            || all.clone(),
            |(name, command)| flags(name, command).into_iter().map(|(flag, _)| flag).collect(),
        );
        let strange = section.rows().filter(|(flag, _)| !known.contains(*flag));
        invented.extend(strange.map(|(flag, _)| format!("{}: --{flag}", section.title)));
    }
    assert!(invented.is_empty(), "docs/cli.md has {invented:#?}");
}

#[test]
fn each_group_of_flags_of_a_cluster_has_a_heading_of_its_own() {
    let up = Cli::command();
    let up = up.find_subcommand("up").expect("there is such a command");
    for (flag, expected) in [
        ("listen", None),
        ("nodes", None),
        ("updater-interval", Some("Autoscaler")),
        ("max-connections", Some("Limits of the API server")),
        ("runtime", Some("Nodes")),
        ("insecure-registry", Some("Nodes")),
        ("runtime-delay", Some("Nodes")),
        ("container-runtime-endpoint", Some("Container runtime")),
    ] {
        let mut flags = up.get_arguments();
        let found = flags.find(|arg| arg.get_long() == Some(flag)).expect("there is such a flag");
        assert_eq!(found.get_help_heading(), expected, "--{flag}");
    }
}

#[test]
fn the_page_lists_the_feature_gates_that_the_crates_declare() {
    const BEGIN: &str = "cargo test -p plumb --bins gates -->\n";
    const END: &str = "<!-- end -->";
    let path = root().join("docs/cli.md");
    let page = std::fs::read_to_string(&path).expect("the page is in the repository");
    let (before, rest) = page.split_once(BEGIN).expect("the page says where the list begins");
    let (_, after) = rest.split_once(END).expect("the page says where the list ends");
    let made = format!("{before}{BEGIN}\n{}\n{END}{after}", plumb_cluster::features::table());
    if std::env::var_os("PLUMB_UPDATE").is_some() {
        std::fs::write(&path, &made).expect("the page can be written");
        return;
    }
    assert!(
        made == page,
        "docs/cli.md does not list the feature gates as declared; PLUMB_UPDATE=1 writes them anew"
    );
}

#[test]
fn the_help_lists_the_feature_gates_that_the_crates_declare() {
    for name in ["up", "node"] {
        let mut command = Cli::command();
        let command = command.find_subcommand_mut(name).expect("there is such a command");
        // Long lines are broken.
        let help = command.render_long_help().to_string();
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        for feature in plumb_cluster::components::features() {
            assert!(help.contains(&feature.to_string()), "{name}: {feature} in {help}");
            assert!(help.contains(feature.doc), "{name}: {} in {help}", feature.doc);
        }
    }
}

/// The commands of ours in a page: lines of a session such as `$ sudo plumb up &`.
fn examples(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let prompts = text.lines().filter_map(|line| line.split_once("$ ").map(|(_, command)| command));
    let ours = prompts.filter_map(|command| {
        let command = command.strip_prefix("sudo ").unwrap_or(command);
        let command = command.strip_prefix("./target/release/").unwrap_or(command);
        command.strip_prefix("plumb ")
    });
    // What was cut short for the page cannot be read.
    ours.filter(|command| !command.contains('…')).map(|command| {
        let words = command.split_whitespace();
        let words = words.take_while(|word| !["|", "&", "&&", "<", ">", "#", "2>", "\\"].contains(word));
        words.map(|word| word.trim_matches(['\'', '"'])).collect()
    })
}

#[test]
fn every_command_has_examples_in_its_help_and_each_is_a_command_line_that_is_taken() {
    // They say in their own text how they are used.
    const WITHOUT: [&str; 3] = ["load", "completion", "man"];
    for (name, command) in commands() {
        let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let is_on_top = name.split(' ').count() == 2 && !WITHOUT.contains(&command.get_name());
        assert!(!is_on_top || help.contains("Examples:"), "{name} --help has no examples");
        for example in examples(&help.replace("\n  ", "\n$ ")) {
            if let Err(error) = Cli::try_parse_from([&["plumb"], &example[..]].concat())
                && error.kind() != clap::error::ErrorKind::DisplayHelp
            {
                panic!("{name} --help: plumb {}: {error}", example.join(" "));
            }
        }
    }
}

#[test]
fn every_example_in_the_docs_is_a_command_line_that_is_taken() {
    let docs = std::fs::read_dir(root().join("docs")).expect("the pages are in the repository");
    let pages =
        docs.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "md"));
    let mut tried = 0;
    for page in pages.chain([root().join("README.md")]) {
        let text = std::fs::read_to_string(&page).expect("a page can be read");
        for example in examples(&text) {
            tried += 1;
            let read = Cli::try_parse_from([&["plumb"], &example[..]].concat());
            if let Err(error) = read {
                panic!("{}: plumb {}: {error}", page.display(), example.join(" "));
            }
        }
    }
    assert!(tried > 20, "only {tried} examples were found");
}
