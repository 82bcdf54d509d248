//! `plumb token`.

use clap::{Args, Subcommand};
use jiff::SignedDuration;
use plumb_cluster::flags::values::length_of_time;

use crate::client::{Cluster, Output};

/// The arguments of `plumb token`.
#[derive(Debug, Args)]
pub(crate) struct Token {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

/// The subcommands of `plumb token`.
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Create a token, and print the command that joins a machine with it.
    Create {
        /// How long it is valid, such as 1h or 30m; 0s never expires.
        #[arg(long, default_value = "24h", value_name = "TIME", value_parser = length_of_time)]
        ttl: SignedDuration,
        /// A description.
        #[arg(long, value_name = "TEXT")]
        description: Option<String>,
        /// Print the token alone.
        #[arg(long)]
        token_only: bool,
        #[command(flatten)]
        cluster: Cluster,
    },
    /// List the tokens, without their secrets.
    #[command(visible_alias = "ls")]
    List {
        /// The output format.
        #[arg(short, long, value_enum, value_name = "FORMAT")]
        output: Option<Output>,
        #[command(flatten)]
        cluster: Cluster,
    },
    /// Revoke a token, by its first six letters.
    #[command(visible_alias = "rm")]
    Delete {
        /// The token, or its part before the dot.
        token: String,
        #[command(flatten)]
        cluster: Cluster,
    },
}
