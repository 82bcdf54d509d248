//! The flags of `plumb up` that the agents of further nodes get.

use std::ffi::OsString;

use clap::parser::ValueSource;
use clap::{ArgAction, Args as _, CommandFactory as _};
use plumb_cluster::flags::OnNode;

use super::{Cli, behind_command};

/// What each agent has of its own, and what only the first one has.
const OWN: [&str; 4] = ["runtime", "node_name", "pod_manifest_path", "die_at"];
/// The flag of all commands that agents get, too.
const LOG: &str = "log";

/// Those flags of nodes that a command line of `plumb up` has.
pub(crate) fn node_flags(
    command_line: impl IntoIterator<Item = OsString>,
) -> Result<Vec<OsString>, clap::Error> {
    let matches = Cli::command().try_get_matches_from(behind_command(command_line))?;
    let Some((_, up)) = matches.subcommand() else { return Ok(Vec::new()) };
    let mut flags = Vec::new();
    let mut add = |long: &str, value: &std::ffi::OsStr| {
        let mut flag = OsString::from(format!("--{long}="));
        flag.push(value);
        flags.push(flag);
    };
    let is_given = |id: &str| up.value_source(id) == Some(ValueSource::CommandLine);
    let command = OnNode::augment_args(clap::Command::new("node"));
    for argument in command.get_arguments() {
        let id = argument.get_id().as_str();
        let Some(long) = argument.get_long().filter(|_| !OWN.contains(&id) && is_given(id)) else { continue };
        // Flags without a value are not repeated with one.
        let has_value = !matches!(argument.get_action(), ArgAction::SetTrue | ArgAction::SetFalse);
        debug_assert!(has_value, "--{long} has no value");
        for value in up.get_raw(id).into_iter().flatten() {
            add(long, value);
        }
    }
    if is_given(LOG) {
        for value in up.get_raw(LOG).into_iter().flatten() {
            add(LOG, value);
        }
    }
    Ok(flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_get_the_flags_of_nodes_and_no_others() {
        let line = "plumb up --nodes 2 --log debug --masquerade=false --node-cpu 4 --node-name n --runtime builtin \
            --max-pods=7 --components all --pod-network vxlan";
        let flags = node_flags(line.split_whitespace().map(OsString::from)).unwrap();
        let mut flags: Vec<_> = flags.iter().map(|flag| flag.to_str().unwrap()).collect();
        flags.sort_unstable();
        assert_eq!(
            flags,
            ["--log=debug", "--masquerade=false", "--max-pods=7", "--node-cpu=4", "--pod-network=vxlan"]
        );
    }
}
