//! Completion of command lines: of commands and flags, and of the names of pods, VPAs, workloads, namespaces and contexts.
//!
//! The script of `plumb completion` runs plumb with `PLUMB_COMPLETE` set and the words of the command line. Names are read from
//! the cluster that the words select. A prompt must not hang or be written over: there is a short deadline, and what fails is
//! silent.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use clap::CommandFactory as _;
use clap_complete::engine::CompletionCandidate;
use clap_complete::{CompleteEnv, Shell};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DynamicObject, ListParams};
use kube::config::Kubeconfig;
use kube::discovery::ApiResource;
use plumb_client::Api;
use plumb_vpa_api::VerticalPodAutoscaler;

use crate::cli::Cli;
use crate::client::{Cluster, block_on, write_out};
use crate::rollout::{Kind, Workload};

/// The variable that has plumb complete a command line instead of running it. Its value is the shell.
const VARIABLE: &str = "PLUMB_COMPLETE";
/// How long to wait for names.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How many names are read at most.
const MOST: u32 = 1000;
/// What may precede a name, as `plumb status` takes it, and the kinds of workloads among them.
const WORKLOADS: [&str; 4] = ["deploy/", "sts/", "ds/", "cloneset/"];

/// Completes a command line and ends the process, if a shell asks for that.
pub(crate) fn complete() {
    CompleteEnv::with_factory(Cli::command).var(VARIABLE).bin("plumb").complete();
}

/// Prints the script for a shell.
pub(crate) fn script(shell: Shell) -> anyhow::Result<()> {
    let shells = clap_complete::env::Shells::builtins();
    let mut script = Vec::new();
    if let Some(shell) = shells.completer(&shell.to_string()) {
        shell.write_registration(VARIABLE, "plumb", "plumb", "plumb", &mut script)?;
    }
    write_out(&String::from_utf8_lossy(&script))
}

/// The names of pods.
pub(crate) fn pods(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, "", objects::<Pod>)
}

/// What `plumb status` is about: pods, and VPAs and workloads behind their kind.
pub(crate) fn of_status(current: &OsStr) -> Vec<CompletionCandidate> {
    let text = current.to_string_lossy();
    for (prefix, read) in
        [("pod/", objects::<Pod> as fn() -> Vec<String>), ("vpa/", objects::<VerticalPodAutoscaler>)]
    {
        if text.starts_with(prefix) {
            return candidates(current, prefix, read);
        }
    }
    if WORKLOADS.iter().any(|prefix| text.starts_with(prefix)) {
        return workloads(current);
    }
    let mut found = candidates(current, "", objects::<Pod>);
    found.extend(candidates(current, "", || {
        let words = ["vpa", "pod/", "vpa/"].into_iter().chain(WORKLOADS);
        words.map(str::to_owned).collect()
    }));
    found
}

/// Workloads behind their kind, or the kinds.
pub(crate) fn workloads(current: &OsStr) -> Vec<CompletionCandidate> {
    let text = current.to_string_lossy();
    let kind = WORKLOADS.iter().find_map(|prefix| {
        let kind = format!("{prefix}name").parse::<Workload>().ok()?.kind();
        text.starts_with(prefix).then_some((*prefix, kind))
    });
    match kind {
        Some((prefix, kind)) => candidates(current, prefix, || of_kind(kind)),
        None => candidates(current, "", || WORKLOADS.map(str::to_owned).to_vec()),
    }
}

/// The names of namespaces.
pub(crate) fn namespaces(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, "", || {
        names(async |cluster| {
            let (client, _) = cluster.connect().await?;
            Ok(listed(&Api::<Namespace>::all(client)).await?)
        })
    })
}

/// The names of the contexts of the kubeconfig.
pub(crate) fn contexts(current: &OsStr) -> Vec<CompletionCandidate> {
    candidates(current, "", || {
        let read = match flag(&words(), "--kubeconfig", None) {
            Some(file) => Kubeconfig::read_from(file),
            None => Kubeconfig::read(),
        };
        let contexts = read.map(|read| read.contexts).unwrap_or_default();
        contexts.into_iter().map(|context| context.name).collect()
    })
}

/// The names that complete a word, behind a prefix that it has.
fn candidates(current: &OsStr, prefix: &str, read: impl FnOnce() -> Vec<String>) -> Vec<CompletionCandidate> {
    let current = current.to_string_lossy();
    let names = read().into_iter().filter(|name| is_plain(name)).map(|name| format!("{prefix}{name}"));
    names.filter(|name| name.starts_with(&*current)).map(CompletionCandidate::new).collect()
}

/// Whether a name has only letters that are nothing special in a shell, and nothing that a terminal acts on. A shell inserts
/// names as they are, and a kubeconfig or a server may be of others.
fn is_plain(name: &str) -> bool {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._/:@+".contains(letter);
    !name.starts_with('-') && name.chars().all(is_plain)
}

fn objects<K>() -> Vec<String>
where
    K: kube::Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
    K: Clone + Send + Sync + 'static,
{
    names(async |cluster| {
        let (client, namespace) = cluster.connect().await?;
        Ok(listed(&Api::<K>::namespaced(client, &namespace)).await?)
    })
}

fn of_kind(kind: Kind) -> Vec<String> {
    names(async |cluster| {
        let (client, namespace) = cluster.connect().await?;
        let resource: ApiResource = kind.resource();
        let api: Api<DynamicObject> = Api::namespaced_with(client, &namespace, &resource);
        Ok(listed(&api).await?)
    })
}

async fn listed<K: Clone + Send + Sync + 'static>(api: &Api<K>) -> kube::Result<Vec<String>> {
    let some = ListParams { limit: Some(MOST), ..ListParams::default() };
    let list = api.list_metadata(&some).await?;
    Ok(list.items.into_iter().filter_map(|object| object.metadata.name).collect())
}

/// Names from the cluster that the command line selects; none if they cannot be read in time.
fn names(read: impl AsyncFnOnce(Cluster) -> anyhow::Result<Vec<String>>) -> Vec<String> {
    let words = words();
    let cluster = Cluster::new(
        flag(&words, "--kubeconfig", None).map(Into::into),
        flag(&words, "--context", None),
        flag(&words, "--namespace", Some("-n")),
    );
    let in_time = block_on(async { Ok(tokio::time::timeout(TIMEOUT, read(cluster)).await) });
    in_time.ok().and_then(Result::ok).and_then(Result::ok).unwrap_or_default()
}

/// The words of the command line that is completed: they follow `--`.
fn words() -> Vec<OsString> {
    std::env::args_os().skip_while(|word| word != "--").skip(1).collect()
}

/// The value of a flag: `--flag VALUE`, `--flag=VALUE`, `-f VALUE`, `-fVALUE`. The last one counts.
fn flag(words: &[OsString], long: &str, short: Option<&str>) -> Option<String> {
    let mut found = None;
    let mut words = words.iter().map(|word| word.to_string_lossy());
    while let Some(word) = words.next() {
        let joined = word.strip_prefix(long).and_then(|rest| rest.strip_prefix('='));
        let joined = joined.or_else(|| word.strip_prefix(short?).filter(|rest| !rest.is_empty()));
        if let Some(value) = joined {
            found = Some(value.to_owned());
        } else if word == long || Some(&*word) == short {
            found = words.next().map(std::borrow::Cow::into_owned).or(found);
        }
    }
    found.filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_found_in_all_their_forms() {
        for (line, expected) in [
            ("plumb status", None),
            ("plumb status -n shop web", Some("shop")),
            ("plumb status -nshop", Some("shop")),
            ("plumb status --namespace shop", Some("shop")),
            ("plumb status --namespace=shop", Some("shop")),
            ("plumb status -n back --namespace=shop", Some("shop")),
            ("plumb status -n", None),
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(flag(&words, "--namespace", Some("-n")).as_deref(), expected, "{line}");
        }
    }

    #[test]
    fn names_that_a_shell_or_a_terminal_would_act_on_are_left_out() {
        let names = || ["web", "$(reboot)", "a b", "\u{1b}[2J", "-rf", "kind@plumb:1", "web`x`", "we;b"];
        let found = candidates(OsStr::new(""), "", || names().map(str::to_owned).to_vec());
        let found: Vec<_> = found.iter().map(|found| found.get_value().to_string_lossy()).collect();
        assert_eq!(found, ["web", "kind@plumb:1"]);
    }

    #[test]
    fn only_what_the_word_begins_with_is_offered_behind_its_prefix() {
        let found = candidates(OsStr::new("vpa/w"), "vpa/", || vec!["web".to_owned(), "db".to_owned()]);
        assert_eq!(found.iter().map(CompletionCandidate::get_value).collect::<Vec<_>>(), ["vpa/web"]);
        let kinds = workloads(OsStr::new("d"));
        assert_eq!(kinds.iter().map(CompletionCandidate::get_value).collect::<Vec<_>>(), ["deploy/", "ds/"]);
    }
}
