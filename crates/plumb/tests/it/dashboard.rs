//! The dashboard of `plumb up`: where it is served, to whom, and with whose rights.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::cluster::{Cluster, complaint, up};

/// The response to a GET of a URL as a program sends it, and the token as a bearer token.
fn get(url: &str, path: &str, token: &str) -> String {
    let address = url.strip_prefix("http://").and_then(|rest| rest.split('/').next()).unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

fn url_of(data: &Path) -> String {
    std::fs::read_to_string(data.join("dashboard-url")).unwrap().trim().to_owned()
}

#[test]
fn a_cluster_serves_its_dashboard_with_the_rights_of_its_administrator_and_takes_another_port_if_one_is_in_use()
 {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let flags = ["--dashboard-listen", &address, "--components", "apiserver,node", "--runtime", "virtual"];
    let cluster = Cluster::start_with(&data, &flags);
    let url = url_of(&data);
    let said = cluster.said();
    assert!(said.contains(&format!("the dashboard is at {url} ({address} is in use)")), "{said}");
    let file = std::fs::metadata(data.join("dashboard-url")).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);

    let (_, token) = url.split_once("token=").unwrap();
    let page = get(&url, "/", token);
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("<h1>Overview</h1>"), "{page}");
    assert!(!page.contains("You lack the right"), "{page}");
    assert!(get(&url, "/", "other").starts_with("HTTP/1.1 401"));
    cluster.stop();
    assert!(!data.join("dashboard-url").exists(), "its token opens nothing any more");
}

#[test]
fn a_cluster_serves_no_dashboard_where_it_is_left_out_and_none_to_other_machines() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let cluster = Cluster::start_with(&data, &["--components", "apiserver", "--dashboard=false"]);
    assert!(!data.join("dashboard-url").exists());
    assert!(!cluster.said().contains("dashboard"), "{}", cluster.said());
    let mut command = up(&folder.path().join("other"));
    command.args(["--dashboard-listen", "0.0.0.0:6480"]);
    assert!(complaint(command).contains("only this machine may reach it"));
}
