//! The arguments of `plumb node`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use clap::Args;
use plumb_features::FeatureGates;
use plumb_node::join::CaPin;
use plumb_resize::rules::Dialect;

use super::OnNode;
use super::values::socket_address;
use crate::features;

/// The arguments of `plumb node`.
#[derive(Debug, Args)]
pub struct Node {
    /// The address of the cluster's API.
    #[arg(long, value_name = "https://HOST:PORT")]
    pub(crate) server: String,
    /// The token that `plumb token create` printed. Not needed once this machine has joined.
    #[arg(long, value_name = "TOKEN", conflicts_with = "token_file")]
    pub(crate) token: Option<String>,
    /// A file that holds the token, so that it is not on the command line, which every process of this machine can read;
    /// `-` reads it from standard input.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// The hash of the public key of the cluster's certificate authority, which `plumb token create` printed: with it
    /// this machine verifies that it talks to that cluster.
    #[arg(long, value_name = "sha256:HASH", conflicts_with = "ca_file")]
    pub(crate) ca_hash: Option<CaPin>,
    /// The certificate of the cluster's certificate authority, in place of its hash.
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// The directory of this node's containers, allocations and certificates. Created if it is missing; refused if
    /// another user can change it. [default: ./plumb-node; for root /var/lib/plumb-node, unless there is a ./plumb-node of
    /// root's]
    #[arg(long, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The address that this node serves logs, metrics and exec on. Port 0 takes any free port.
    /// [default: the address of this machine that the server is reached from, port 10250]
    #[arg(long, value_name = "ADDRESS", value_parser = socket_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// The address that the cluster reaches this node at. [default: that of --listen]
    #[arg(long, value_name = "IP")]
    pub(crate) address: Option<IpAddr>,
    /// The rules of in-place resizes. [default: the cluster's]
    #[arg(long, value_name = "kep|v1.36")]
    pub(crate) resize_dialect: Option<Dialect>,
    /// Feature gates to set; the others are the cluster's.
    #[arg(
        long,
        default_value = "",
        value_name = "A=true,B=false",
        hide_default_value = true,
        value_parser = features::parse,
        long_help = features::help("Feature gates to set; the others are the cluster's.")
    )]
    pub(crate) feature_gates: FeatureGates,
    /// End when standard input is closed: for agents that `plumb up` starts.
    #[arg(long, hide = true)]
    pub(crate) end_with_parent: bool,
    #[command(flatten)]
    pub(crate) like: OnNode,
}

impl Node {
    /// The error for flags that are valid by themselves and not together.
    pub fn conflict(&self) -> Option<&'static str> {
        self.like.conflict()
    }
}
