//! The common parts of the commands that talk to a cluster.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::OnceLock;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use clap_complete::engine::ArgValueCompleter;
use http::header::{HeaderValue, USER_AGENT};
use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use plumb_vpa_explain::printable;
use serde_json::Value;

pub(crate) use plumb_cluster::block_on;
use plumb_cluster::data_dir::existing_kubeconfig;
pub(crate) use plumb_cluster::output::write_out;

use crate::{color, completion};

/// Which cluster.
#[derive(Debug, Args)]
pub(crate) struct Target {
    /// The kubeconfig. [default: what KUBECONFIG names, then ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig. [default: its current one]
    #[arg(long, value_name = "NAME", add = ArgValueCompleter::new(completion::contexts))]
    context: Option<String>,
}

/// Which cluster, and where in it.
#[derive(Debug, Args)]
pub(crate) struct Cluster {
    #[command(flatten)]
    target: Target,
    /// The namespace. [default: that of the context]
    #[arg(short, long, value_name = "NAME", add = ArgValueCompleter::new(completion::namespaces))]
    namespace: Option<String>,
}

impl Cluster {
    /// The cluster that flags with these values select.
    pub(crate) fn new(
        kubeconfig: Option<PathBuf>,
        context: Option<String>,
        namespace: Option<String>,
    ) -> Self {
        Self { target: Target { kubeconfig, context }, namespace }
    }

    /// A client, and the namespace that is meant.
    pub(crate) async fn connect(&self) -> anyhow::Result<(Client, String)> {
        let (config, client) = self.config().await?;
        let namespace = self.namespace.clone().unwrap_or(config.default_namespace);
        Ok((client, namespace))
    }

    /// How the cluster is reached, and a client of it.
    pub(crate) async fn config(&self) -> anyhow::Result<(Config, Client)> {
        self.target.config().await
    }
}

impl Target {
    /// How the cluster is reached, and a client of it.
    pub(crate) async fn config(&self) -> anyhow::Result<(Config, Client)> {
        plumb_apiserver::serve::install_crypto();
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let read = match &self.kubeconfig {
            Some(file) => Kubeconfig::read_from(file),
            None => Kubeconfig::read(),
        };
        let config = match read {
            Ok(read) => {
                let contexts: Vec<String> =
                    read.contexts.iter().map(|context| context.name.clone()).collect();
                match Config::from_custom_kubeconfig(read, &options).await {
                    Err(error) => match self.without_context(&error, &contexts) {
                        Some(why) => return Err(why),
                        None => Err(error),
                    },
                    config => config,
                }
            }
            Err(error) => Err(error),
        };
        let is_named =
            self.kubeconfig.is_some() || std::env::var_os("KUBECONFIG").is_some_and(|it| !it.is_empty());
        let mut config =
            config.map_err(|error| unreadable(error, is_named, existing_kubeconfig().as_deref()))?;
        config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
        let client = Client::try_from(config.clone()).context("making a client")?;
        // Only the first counts: a command talks to one server.
        let _ = SERVER.set(config.cluster_url.to_string().trim_end_matches('/').to_owned());
        Ok((config, client))
    }
}

impl Target {
    /// The error for a context that the kubeconfig does not have.
    fn without_context(&self, error: &KubeconfigError, contexts: &[String]) -> Option<anyhow::Error> {
        let missing = match error {
            KubeconfigError::LoadContext(name) => format!("no context {name:?}"),
            KubeconfigError::CurrentContextNotSet => "no current context".to_owned(),
            _ => return None,
        };
        let file = match &self.kubeconfig {
            Some(file) => file.display().to_string(),
            None => match std::env::var_os("KUBECONFIG").filter(|files| !files.is_empty()) {
                Some(files) => files.to_string_lossy().into_owned(),
                None => "~/.kube/config".to_owned(),
            },
        };
        Some(match contexts {
            [] => anyhow::anyhow!("{missing} in {file}, which has none"),
            some => anyhow::anyhow!("{missing} in {file}; there are: {}", some.join(", ")),
        })
    }
}

/// How commands name themselves to the API server.
const AGENT: &str = concat!("plumb/", env!("CARGO_PKG_VERSION"));
/// The field manager of a command's writes: the API server derives it from the user agent, too.
pub(crate) const FIELD_MANAGER: &str = "plumb";

/// The URL of the server that the command talks to, for its error messages.
static SERVER: OnceLock<String> = OnceLock::new();

/// The URL of the server that the command talks to; empty before it does.
pub(crate) fn server() -> String {
    SERVER.get().cloned().unwrap_or_default()
}

/// Why there is no kubeconfig. Where the user names none, the one of a cluster of this machine is suggested.
fn unreadable(error: KubeconfigError, is_named: bool, of_up: Option<&Path>) -> anyhow::Error {
    match error {
        KubeconfigError::ReadConfig(source, path) if !is_named && source.kind() == ErrorKind::NotFound => {
            let suggested = of_up.map_or_else(|| "FILE".to_owned(), |file| file.display().to_string());
            anyhow::anyhow!(
                "no kubeconfig is named, and there is no {}; export KUBECONFIG={suggested}",
                path.display()
            )
        }
        KubeconfigError::ReadConfig(source, path) => {
            anyhow::Error::new(source).context(format!("reading the kubeconfig {}", path.display()))
        }
        other => anyhow::Error::new(other)
            .context("reading the kubeconfig; --kubeconfig or KUBECONFIG names another"),
    }
}

/// The resource names of pods that may precede a name, as in kubectl.
pub(crate) const POD_WORDS: [&str; 3] = ["pod", "pods", "po"];

/// The kind of a workload by a word for it, as in kubectl, and the shortest word.
pub(crate) fn workload_kind(word: &str) -> Option<(&'static str, &'static str)> {
    // As kubectl prints it: deployment.apps.
    let word = word.split('.').next().unwrap_or(word);
    Some(match word.to_ascii_lowercase().as_str() {
        "deploy" | "deployment" | "deployments" => ("Deployment", "deploy"),
        "rs" | "replicaset" | "replicasets" => ("ReplicaSet", "rs"),
        "sts" | "asts" | "statefulset" | "statefulsets" => ("StatefulSet", "sts"),
        "ds" | "ads" | "daemonset" | "daemonsets" => ("DaemonSet", "ds"),
        "clone" | "cloneset" | "clonesets" => ("CloneSet", "cloneset"),
        "job" | "jobs" => ("Job", "job"),
        "cj" | "cronjob" | "cronjobs" => ("CronJob", "cronjob"),
        _ => return None,
    })
}

/// The name of a pod, which may be written as kubectl prints it: `pod/web`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PodName(String);

impl PodName {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for PodName {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Self> {
        let (kind, name) = text.split_once('/').unwrap_or(("pod", text));
        if let Some((kind, _)) = workload_kind(kind) {
            bail!("a {kind} cannot be resized; edit its template (docs/rollout.md)");
        }
        if !POD_WORDS.contains(&kind) || name.is_empty() {
            bail!("write NAME or pod/NAME");
        }
        Ok(Self(name.to_owned()))
    }
}

/// The error message for a response of the API server.
pub(crate) fn refusal(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) => anyhow::anyhow!("{}", status.message),
        other => match connection_failure(&other) {
            Some(failure) => {
                let place = SERVER.get().map(|url| format!(" at {url}")).unwrap_or_default();
                let is_refused = failure.kind() == ErrorKind::ConnectionRefused;
                let hint = if is_refused { "; does the cluster run?" } else { "" };
                anyhow::anyhow!("cannot reach the API server{place}: {failure}{hint}")
            }
            None => anyhow::Error::new(other).context("asking the server"),
        },
    }
}

/// The error message for a response about an object of a namespace. It names the namespace in which the object is
/// missing, and whether there is no such namespace.
pub(crate) async fn refusal_in(client: &Client, namespace: &str, error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.is_not_found() => match check_namespace(client, namespace).await {
            Ok(()) => anyhow::anyhow!("{} in namespace {namespace:?}", status.message),
            Err(missing) => missing,
        },
        other => refusal(other),
    }
}

/// Refuses a namespace that does not exist. For users who may not read namespaces every one exists.
pub(crate) async fn check_namespace(client: &Client, namespace: &str) -> anyhow::Result<()> {
    let namespaces: kube::Api<Namespace> = kube::Api::all(client.clone());
    match namespaces.get(namespace).await {
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            bail!("there is no namespace {namespace:?}; -n names another")
        }
        _ => Ok(()),
    }
}

/// The error of the system, or of TLS, with which a request failed that got no response. It is at the end of the chain:
/// errors of clients repeat it.
pub(crate) fn connection_failure<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> Option<&'a std::io::Error> {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.filter_map(|error| error.downcast_ref::<std::io::Error>()).last()
}

/// How something is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For programs.
    Json,
    /// The same, easier to read.
    Yaml,
    /// With more columns.
    Wide,
    /// Only what it is called.
    Name,
}

/// Aligned text: columns are as wide as their widest cell.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    Columns::default().lines(rows)
}

/// The widths of the columns of a table that is printed in parts. They only grow.
#[derive(Debug, Default)]
pub(crate) struct Columns(Vec<usize>);

impl Columns {
    /// Rows that are aligned with each other and with those before, as far as these were as wide. Cells may have text
    /// of other users: control characters are escaped.
    pub(crate) fn lines(&mut self, rows: &[Vec<String>]) -> String {
        let rows: Vec<Vec<Cow<'_, str>>> =
            rows.iter().map(|row| row.iter().map(|cell| printable(cell)).collect()).collect();
        for row in &rows {
            self.0.resize(self.0.len().max(row.len()), 0);
            for (width, cell) in self.0.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        let mut text = String::new();
        for row in &rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&self.0) {
                line.push_str(&color::state(cell));
                line.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 3));
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Prints a value for programs.
pub(crate) fn print(value: &Value, output: Output) -> anyhow::Result<()> {
    let text = match output {
        Output::Yaml => yaml(value)?,
        _ => json(value)?,
    };
    write_out(&text)
}

/// A value as JSON that people can read.
pub(crate) fn json(value: &Value) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(value).context("writing JSON")? + "\n")
}

/// A value as YAML.
pub(crate) fn yaml(value: &Value) -> anyhow::Result<String> {
    let options = serde_saphyr::ser_options! { prefer_block_scalars: true, folded_wrap_chars: 1 << 20 };
    serde_saphyr::to_string_with_options(value, options).context("writing YAML")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_never_get_narrower() {
        let rows = |cells: [&str; 2]| vec![cells.map(str::to_owned).to_vec()];
        let mut columns = Columns::default();
        assert_eq!(columns.lines(&rows(["POD", "CPU"])), "POD   CPU\n");
        assert_eq!(columns.lines(&rows(["longer", "1"])), "longer   1\n");
        assert_eq!(columns.lines(&rows(["web", "2"])), "web      2\n");
    }
}
