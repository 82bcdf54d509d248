//! The dashboard of a cluster on this machine: with the identity and the rights of the administrator's kubeconfig.

use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kube::Client;
use plumb_apiserver::authn::User;
use plumb_apiserver::pki::{ADMIN_USER, MASTERS_GROUP};
use plumb_dashboard::{Config, Dashboard, Start, StartError};
use tokio::task::JoinSet;

use crate::components::Context;
use crate::data_dir::behind_sudo;

/// The file of the data directory that has the URL with its token.
const FILE: &str = "dashboard-url";
/// The name of the task, in health checks and metrics.
const TASK: &str = "dashboard";

/// A dashboard that is served until this is dropped.
pub(crate) struct Served {
    /// The line about it for the user.
    pub(crate) line: String,
    file: PathBuf,
    _tasks: JoinSet<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        // The token opens nothing any more. A file that remains after a crash is replaced by the next start.
        _ = fs::remove_file(&self.file);
    }
}

/// Serves the dashboard. That it cannot be served is no reason not to start a cluster: the reason is logged.
pub(crate) async fn start(
    context: &Context<'_>,
    address: SocketAddr,
    cluster: &str,
    data: &Path,
) -> Option<Served> {
    let served = serve(context, address, cluster, data).await;
    served.inspect_err(|error| tracing::warn!(error = %format!("{error:#}"), "there is no dashboard")).ok()
}

async fn serve(
    context: &Context<'_>,
    address: SocketAddr,
    cluster: &str,
    data: &Path,
) -> anyhow::Result<Served> {
    let user = User::new(ADMIN_USER, "", [MASTERS_GROUP]);
    let client = Client::new(context.count(context.server.inside(user)), "default");
    let config = Config { start: Start::FirstVisit, ..Config::new(client, None, cluster.to_owned()) };
    let dashboard = Arc::new(bind(address, config).await?);
    let file = data.join(FILE);
    write(&file, &dashboard.url())?;
    let bound = dashboard.address();
    let in_use = (address.port() != 0 && bound.port() != address.port()).then_some(address);
    let line = line(bound, &dashboard.url(), in_use, is_logged(), &file);
    let mut tasks = JoinSet::new();
    tasks.spawn(context.supervisor.keep(TASK, move || {
        let dashboard = dashboard.clone();
        async move { dashboard.run().await }
    }));
    Ok(Served { line, file, _tasks: tasks })
}

/// Listens on the address, or on another port if that one is in use.
async fn bind(address: SocketAddr, config: Config) -> Result<Dashboard, StartError> {
    match Dashboard::bind(address, config.clone()).await {
        Err(StartError::Listen { source, .. }) if source.kind() == ErrorKind::AddrInUse => {
            Dashboard::bind(SocketAddr::new(address.ip(), 0), config).await
        }
        bound => bound,
    }
}

/// What users read about it. A journal keeps what is printed, and others can read it: the token stays out of it.
fn line(address: SocketAddr, url: &str, in_use: Option<SocketAddr>, is_logged: bool, file: &Path) -> String {
    let why = in_use.map(|address| format!(" ({address} is in use)")).unwrap_or_default();
    if is_logged {
        format!("the dashboard is at http://{address}{why}; the URL with its token is in {}", file.display())
    } else {
        format!("the dashboard is at {url}{why}")
    }
}

/// Whether systemd writes the output to its journal.
fn is_logged() -> bool {
    std::env::var_os("JOURNAL_STREAM").is_some()
}

/// Writes the URL for the user alone, who is the one behind `sudo` if there is one.
fn write(file: &Path, url: &str) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    if let Some((user, group)) = behind_sudo() {
        std::os::unix::fs::fchown(&written, Some(user), Some(group))?;
    }
    writeln!(written, "{url}")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_line_has_the_token_unless_it_is_kept_in_a_journal() {
        let (address, url) = ("127.0.0.1:1".parse().unwrap(), "http://127.0.0.1:1/?token=secret");
        let file = Path::new("/data/dashboard-url");
        let printed = line(address, url, None, false, file);
        assert_eq!(printed, "the dashboard is at http://127.0.0.1:1/?token=secret");
        let logged = line(address, url, Some("127.0.0.1:6480".parse().unwrap()), true, file);
        assert_eq!(
            logged,
            "the dashboard is at http://127.0.0.1:1 (127.0.0.1:6480 is in use); the URL with its token is in /data/dashboard-url"
        );
    }

    #[test]
    fn the_file_with_the_url_is_replaced_and_for_its_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        std::os::unix::fs::symlink("/dev/null", &file).unwrap();
        write(&file, "http://127.0.0.1:1/?token=secret").unwrap();
        assert_eq!(
            fs::read_to_string(&file).unwrap(),
            "http://127.0.0.1:1/?token=secret
"
        );
        let metadata = fs::symlink_metadata(&file).unwrap();
        assert!(metadata.is_file() && metadata.permissions().mode() & 0o777 == 0o600);
    }
}
