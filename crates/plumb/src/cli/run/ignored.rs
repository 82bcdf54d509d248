//! Flags of upstream's components that have no meaning here. Deployments pass them, so they are accepted and named in a warning.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

/// The flags of klog, in whose place is `--log`, and `--profiling`: there is no pprof here. The name of each, how klog spells
/// it, and whether it is a truth value.
pub(crate) const IGNORED: [(&str, &str, bool); 16] = [
    ("v", "v", false),
    ("vmodule", "vmodule", false),
    ("stderrthreshold", "stderrthreshold", false),
    ("logtostderr", "logtostderr", true),
    ("alsologtostderr", "alsologtostderr", true),
    ("alsologtostderrthreshold", "alsologtostderrthreshold", false),
    ("log-dir", "log_dir", false),
    ("log-file", "log_file", false),
    ("log-file-max-size", "log_file_max_size", false),
    ("log-backtrace-at", "log_backtrace_at", false),
    ("add-dir-header", "add_dir_header", true),
    ("skip-headers", "skip_headers", true),
    ("skip-log-headers", "skip_log_headers", true),
    ("one-output", "one_output", true),
    ("legacy-stderr-threshold-behavior", "legacy_stderr_threshold_behavior", true),
    ("profiling", "profiling", true),
];

/// The names of those that were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ignored(Vec<&'static str>);

impl Ignored {
    /// The names of those that were given.
    pub(crate) fn names(&self) -> &[&'static str] {
        &self.0
    }
}

impl FromArgMatches for Ignored {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let names = IGNORED.into_iter().map(|(name, ..)| name);
        Ok(Self(names.filter(|name| matches.contains_id(name)).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Ignored {
    fn augment_args(command: Command) -> Command {
        command.args(IGNORED.into_iter().map(|(name, alias, is_bool)| {
            let arg = Arg::new(name).long(name).hide(true).action(ArgAction::Append);
            // Upstream takes both spellings.
            let arg = if alias == name { arg } else { arg.alias(alias) };
            let arg = if name == "v" { arg.short('v') } else { arg };
            if is_bool {
                arg.num_args(0..=1).require_equals(true).default_missing_value("true")
            } else {
                arg.num_args(1).allow_hyphen_values(true)
            }
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        ignored: Ignored,
    }

    #[test]
    fn flags_of_upstream_s_deployments_are_accepted_and_named() {
        let given = ["plumb", "--v=4", "--stderrthreshold=info", "--add_dir_header", "--profiling=true"];
        let flags = Flags::try_parse_from(given).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(flags.ignored.names(), ["v", "stderrthreshold", "add-dir-header", "profiling"]);
        let short = Flags::try_parse_from(["plumb", "-v", "4"]).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(short.ignored.names(), ["v"]);
        let none = Flags::try_parse_from(["plumb"]).unwrap_or_else(|error| panic!("{error}"));
        assert!(none.ignored.names().is_empty());
        assert!(Flags::try_parse_from(["plumb", "--vv=4"]).is_err());
    }
}
