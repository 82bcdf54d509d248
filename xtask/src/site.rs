//! The documents as a site with search: `cargo xtask site`.
//!
//! ```text
//!   docs/SUMMARY.md ──▶ pages: target/site-pages ──▶ mdbook: target/site ──▶ check of its links
//! ```
//!
//! mdBook reads one directory, and the pages of the site are in several: they are copied under the paths that they have in the
//! repository, so that links between them hold. Links to other files lead to the repository on the web.

mod links;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

use xtask::repository::{files, root};
use xtask::summary;

use crate::run::{Outcome, cargo, run};

/// The version of mdBook. It is a program and not a dependency, so that no build of the workspace has to wait for it.
const MDBOOK: &str = "0.5.4";

/// Where links to files that are no pages lead.
const REPOSITORY: &str = "https://github.com/plumb-dev/plumb/blob/main/";

/// The images in pages.
const IMAGES: &[&str] = &["svg", "png"];

/// Builds the site in `target/site`, and checks its links.
pub(crate) fn build(arguments: &[String]) -> Outcome {
    if let Some(argument) = arguments.first() {
        return Err(format!("takes no arguments, such as `{argument}`"));
    }
    let mdbook = obtain()?;
    let target = root().join("target");
    let (book, site) = (target.join("site-pages"), target.join("site"));
    copy_pages(&book)?;
    // mdBook empties the destination, and takes a relative path as one from the current directory and not from the book: the
    // path must be absolute.
    let site = absolute(&site)?;
    run(Command::new(mdbook).arg("build").arg("--dest-dir").arg(&site).arg(&book).current_dir(&book))?;
    let broken = broken_links(&site)?;
    if !broken.is_empty() {
        return Err(format!("links that lead nowhere:\n  {}", broken.join("\n  ")));
    }
    println!("{}", site.join("index.html").display());
    Ok(())
}

/// The absolute path of a directory, which is created if it does not exist.
fn absolute(directory: &Path) -> Result<PathBuf, String> {
    fs::create_dir_all(directory)
        .and_then(|()| directory.canonicalize())
        .map_err(|error| format!("cannot create {}: {error}", directory.display()))
}

/// The program of mdBook, which is built once for each user, as `.ci/deny` builds its program.
fn obtain() -> Result<PathBuf, String> {
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cache"));
    let cache = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(home)
        .unwrap_or_else(|| root().join("target"))
        .join(format!("plumb/tools/mdbook-{MDBOOK}"));
    let program = cache.join("bin/mdbook");
    if program.is_file() {
        return Ok(program);
    }
    // The unoptimised program is built in a fraction of the time, and takes a second for all pages. cargo puts it in place only
    // once it is complete.
    let version = format!("={MDBOOK}");
    let install = ["install", "--quiet", "--locked", "--profile", "dev", "--no-default-features"];
    let package = ["--features", "search", "--version", &version, "mdbook", "--root"];
    run(cargo(install)
        .args(package)
        .arg(&cache)
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0")
        .env("CARGO_TARGET_DIR", cache.join("target")))?;
    remove(&cache.join("target"))?;
    Ok(program)
}

/// Writes what mdBook reads: its settings, the pages and their images.
fn copy_pages(book: &Path) -> Outcome {
    remove(book)?;
    let pages = book.join("pages");
    let list = read(&root().join(summary::FILE))?;
    write(&book.join("book.toml"), &read(&root().join("docs/book.toml"))?)?;
    write(&pages.join("SUMMARY.md"), &summary::at_root(&list))?;
    let names: Vec<String> = summary::parse(&list).into_iter().flat_map(|part| part.pages).collect();
    for name in &names {
        let text = read(&root().join(name))?;
        let is_copied = |path: &str| {
            names.iter().any(|name| name == path) || IMAGES.iter().any(|extension| path.ends_with(extension))
        };
        let exists = |path: &str| root().join(path).exists();
        let rewrite = |path: &str| (exists(path) && !is_copied(path)).then(|| format!("{REPOSITORY}{path}"));
        write(&pages.join(name), &links::rewrite(&text, name, rewrite))?;
    }
    for directory in ["docs", "bench"] {
        let images =
            files(&root().join(directory), IMAGES).map_err(|error| format!("{directory}: {error}"))?;
        for image in images {
            let copy = pages.join(image.strip_prefix(root()).unwrap_or(&image));
            fs::copy(&image, &copy).map_err(|error| format!("cannot write {}: {error}", copy.display()))?;
        }
    }
    Ok(())
}

/// The links of the site that lead to no page of it, or to no heading.
fn broken_links(site: &Path) -> Result<Vec<String>, String> {
    let mut broken = Vec::new();
    for file in files(site, &["html"]).map_err(|error| format!("{}: {error}", site.display()))? {
        let name = file.strip_prefix(site).unwrap_or(&file).display().to_string();
        // Its links are relative to the root of a server.
        if name == "404.html" {
            continue;
        }
        for link in links::of_html(&read(&file)?) {
            let (path, anchor) = link.split_once('#').unwrap_or((link.as_str(), ""));
            let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
            let linked = if path.is_empty() { name.clone() } else { summary::from_root(directory, path) };
            let linked = site.join(linked);
            let has_anchor = || read(&linked).is_ok_and(|page| links::has_anchor(&page, anchor));
            if !linked.is_file() || !(anchor.is_empty() || has_anchor()) {
                broken.push(format!("{name}: {link}"));
            }
        }
    }
    Ok(broken)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn write(path: &Path, text: &str) -> Outcome {
    path.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(path, text))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn remove(directory: &Path) -> Outcome {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", directory.display()))
        }
        _ => Ok(()),
    }
}
