//! What a user can do from a page: pause, resume and undo rollouts.

use kube::Client;
use plumb_rollout::cloneset::cloneset_command;
use plumb_rollout::commands::{Command, CommandError, command};
use plumb_rollout::workloads::WorkloadKind;

/// `CloneSet` as `plumb rollout` writes it; the other kinds are [`WorkloadKind::word`].
pub(crate) const CLONE_SET: &str = "cloneset.apps.kruise.io";

/// A command for a rollout, with its word in forms and its label for people.
pub(crate) const COMMANDS: [(Command, &str, &str); 3] = [
    (Command::Pause, "pause", "Pause"),
    (Command::Resume, "resume", "Resume"),
    (Command::Undo, "undo", "Undo"),
];

/// A kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// One that is held for a rollout.
    Held(WorkloadKind),
    /// A `CloneSet`.
    CloneSet,
}

impl Kind {
    /// The kind of a word.
    pub(crate) fn named(word: &str) -> Option<Self> {
        if word == CLONE_SET {
            return Some(Self::CloneSet);
        }
        WorkloadKind::named(word).map(Self::Held)
    }

    /// The API group and the resource that a command patches.
    pub(crate) fn resource(self) -> (&'static str, &'static str) {
        match self {
            Self::Held(kind) => (kind.group(), kind.plural()),
            Self::CloneSet => ("apps.kruise.io", "clonesets"),
        }
    }
}

/// The command of a form.
pub(crate) fn command_named(word: &str) -> Option<Command> {
    COMMANDS.into_iter().find(|(_, known, _)| *known == word).map(|(command, _, _)| command)
}

/// Carries out a command, with the rights of the user.
pub(crate) async fn carry_out(
    client: &Client,
    kind: Kind,
    namespace: &str,
    name: &str,
    order: Command,
) -> Result<(), String> {
    let done = match kind {
        Kind::Held(kind) => command(client, kind, namespace, name, order).await,
        Kind::CloneSet => cloneset_command(client, namespace, name, order).await,
    };
    done.map_err(|error| match error {
        CommandError::Request { source: kube::Error::Api(status), .. } => status.message,
        CommandError::Request { ref source, .. } => format!("{error}: {source}"),
        other => other.to_string(),
    })
}
