//! `plumb man`: the pages are made from the command line itself, so that they cannot differ from it.

use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::cli::Cli;

pub(crate) fn man(dir: &Path) -> anyhow::Result<()> {
    let written = std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
    written.with_context(|| format!("writing man pages to {}", dir.display()))
}
