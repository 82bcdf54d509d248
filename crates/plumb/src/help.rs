//! `plumb completion` and `plumb man`: both are made from the command line itself, so that they cannot differ from it.

use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::client::write_out;

pub(crate) fn completion(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "plumb", &mut script);
    write_out(&String::from_utf8(script).context("the script is not UTF-8")?)
}

pub(crate) fn man(dir: &Path) -> anyhow::Result<()> {
    let written = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
    written.with_context(|| format!("writing man pages to {}", dir.display()))
}
