//! Plumb: in-place vertical scaling for Kubernetes, as one binary.

#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cli;
mod client;
mod color;
mod completion;
mod dashboard;
mod help;
mod image;
mod install;
mod kubeconfig;
mod rate_limit;
mod reachability;
mod reading;
mod recommend;
mod recommender_flags;
mod resize;
mod rollout;
mod run;
mod status;
mod support_bundle;
mod token;
mod top;

use clap::Parser as _;
use clap::error::ErrorKind;
use nix::sys::stat::Mode;
use plumb_cluster::{backup, down, join, output, say, up};
use std::io::IsTerminal as _;
use std::process::ExitCode;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use cli::{Cli, Command};

/// Objects are many small allocations, made by one thread and given back by another: a quarter of a resize's time was
/// spent on them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // Before anything else is read or started: a shim has one thread and little memory, and there are many of
    // them; a load must not use more memory than requested.
    let mut arguments = std::env::args_os().skip(1).peekable();
    if arguments.next_if(|argument| argument == "shim").is_some() {
        return plumb_runtime::shim::main(arguments);
    }
    if arguments.next_if(|argument| argument == "load").is_some() {
        return plumb_runtime::load::main(arguments);
    }
    completion::complete();
    let cli = Cli::parse_from(cli::behind_command(std::env::args_os()));
    color::choose(cli.color);
    let conflict = match &cli.command {
        Command::Up(up) => up.conflict(),
        Command::Node(node) => node.conflict(),
        Command::Recommend(recommend) => recommend.conflict(),
        Command::Resize(resize) => resize.conflict(),
        Command::Status(status) => status.conflict(),
        Command::Run(run) => run.command.conflict(),
        _ => None,
    };
    if let Some(why) = conflict {
        cli.command.usage().error(ErrorKind::ArgumentConflict, why).exit();
    }
    let filter = match std::env::var(EnvFilter::DEFAULT_ENV).ok().filter(|filter| !filter.is_empty()) {
        None => cli.log_filter(),
        Some(given) => EnvFilter::try_new(&given).unwrap_or_else(|error| {
            let why = format!("the variable {} is {given:?}: {error}", EnvFilter::DEFAULT_ENV);
            cli.command.usage().error(ErrorKind::InvalidValue, why).exit()
        }),
    };
    let without_outages = cli.has_usual_log().then_some(reachability::WithoutOutages);
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        // Colours are for people; in a file or a journal they are noise.
        .with_ansi(std::io::stderr().is_terminal())
        // It would report that standard error is closed on standard error, and panic.
        .log_internal_errors(false)
        .finish()
        .with(without_outages)
        .init();
    // Data directories that others can write to are refused, so none is made so, whatever the umask of the shell is.
    let umask = nix::sys::stat::umask(Mode::S_IWGRP | Mode::S_IWOTH);
    nix::sys::stat::umask(umask | Mode::S_IWGRP | Mode::S_IWOTH);
    let success = |()| ExitCode::SUCCESS;
    let done = match cli.command {
        Command::Up(up) => run_cluster(*up).map(success),
        Command::Node(node) => join::run(*node).map(success),
        Command::Token(token) => token::run(token).map(success),
        Command::Kubeconfig(issue) => kubeconfig::run(*issue).map(success),
        Command::Down(down) => down::run(&down).map(success),
        Command::Resize(resize) => resize::run(*resize),
        Command::Status(status) => status::run(*status),
        Command::Top(top) => top::run(top),
        Command::Rollout(args) => rollout::run(args),
        Command::Dashboard(args) => dashboard::run(args).map(success),
        Command::Recommend(recommend) => recommend::run(*recommend).map(success),
        Command::Run(components) => run::run(*components).map(success),
        Command::Install(args) => install::install(*args).map(success),
        Command::Uninstall(args) => install::remove(args).map(success),
        Command::Backup(backup) => backup::backup(&backup).map(success),
        Command::Restore(restore) => backup::restore(&restore).map(success),
        Command::Image(image) => image::run(image).map(success),
        Command::SupportBundle(bundle) => support_bundle::run(bundle).map(success),
        Command::Version => {
            output::write_out(concat!("plumb ", env!("CARGO_PKG_VERSION"), "\n")).map(success)
        }
        Command::Completion { shell } => completion::script(shell).map(success),
        Command::Man { dir } => help::man(&dir).map(success),
        // Both were dealt with before; they are here to be seen, or not, in the list of commands.
        Command::Load { .. } | Command::Shim { .. } => Ok(ExitCode::SUCCESS),
    };
    match done {
        Ok(code) => code,
        // As with other programs in a pipeline, it is no failure that the next one has enough.
        Err(error) if error.is::<output::OutputClosed>() => ExitCode::SUCCESS,
        Err(error) => {
            say!("plumb: {}", message(&error));
            ExitCode::FAILURE
        }
    }
}

/// Runs a cluster. Agents of further nodes get those flags of this process that are about nodes.
fn run_cluster(args: plumb_cluster::flags::Up) -> anyhow::Result<()> {
    up::run(args, cli::node_flags(std::env::args_os())?)
}

/// An error and its causes. Some errors end with their cause already, which is not repeated.
fn message(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_that_is_part_of_an_error_is_not_repeated() {
        let cause = || std::io::Error::from_raw_os_error(2);
        let repeated =
            anyhow::Error::new(cause()).context(format!("reading a: {}", cause())).context("starting");
        assert_eq!(message(&repeated), "starting: reading a: No such file or directory (os error 2)");
        let once = anyhow::Error::new(cause()).context("reading a");
        assert_eq!(message(&once), "reading a: No such file or directory (os error 2)");
    }
}
