//! Pods reach the API server, with the default `--listen` on the machine's loopback.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::DeleteParams;
use plumb_testkit::TIMEOUT;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::json;

use super::machine::{Groups, Machine, create, equal, id, is_settled, load, pod, pods, until};
use crate::it::cluster::Cluster;

/// A variable of the process of a container. A container is reported as running a moment before its program takes the place of
/// the runtime's own, which has another environment.
pub(crate) fn variable(pid: i64, name: &str) -> String {
    let deadline = Instant::now() + TIMEOUT;
    let prefix = format!("{name}=");
    loop {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
        let mut all = environment.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        if let Some(value) = all.find_map(|entry| Some(entry.strip_prefix(&prefix)?.to_owned())) {
            return value;
        }
        assert!(Instant::now() < deadline, "the process {pid} has no variable {name}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What the API server answers to `GET /version` when a process asks it, from that process's network.
fn version_from(pid: i64, address: SocketAddr, authority: CertificateDer<'static>) -> String {
    let request = "GET /version HTTP/1.1\r\nHost: kubernetes\r\nConnection: close\r\n\r\n";
    answer_to(pid, address, authority, request.to_owned())
}

/// What the API server answers to a request from the network of a process.
pub(crate) fn answer_to(
    pid: i64,
    address: SocketAddr,
    authority: CertificateDer<'static>,
    request: String,
) -> String {
    let network = File::open(format!("/proc/{pid}/ns/net")).unwrap();
    let asking = std::thread::spawn(move || {
        // Of this thread alone, which ends with it.
        move_into_link_name_space(std::os::fd::AsFd::as_fd(&network), Some(LinkNameSpaceType::Network))
            .unwrap();
        let stream = TcpStream::connect_timeout(&address, TIMEOUT).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(authority).unwrap();
        let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        let name = ServerName::from(address.ip());
        let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // The server may end the connection without TLS' own goodbye.
        drop(stream.read_to_end(&mut answer));
        String::from_utf8_lossy(&answer).into_owned()
    });
    asking.join().unwrap()
}

/// Asks until an object is as it must become.
pub(crate) async fn soon<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let wait = async {
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.unwrap_or_else(|_| panic!("not {what}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_reaches_the_api_server_by_the_service_and_by_its_endpoints() {
    let Some(machine) = Machine::here() else { return };
    let cluster = machine.start(&[]);
    let (client, pods) = (cluster.client().await, pods(&cluster).await);
    create(&pods, &pod("web", json!([load("c", &[], equal("10m", "16Mi"))]))).await;
    let web = until(&pods, "web", "running", is_settled).await;
    let pid = Groups::of(&web).pid(&id(&web, "c")).unwrap();

    let address =
        |host: &str, port: &str| SocketAddr::new(host.parse::<IpAddr>().unwrap(), port.parse().unwrap());
    let service =
        address(&variable(pid, "KUBERNETES_SERVICE_HOST"), &variable(pid, "KUBERNETES_SERVICE_PORT"));
    let authority = CertificateDer::from_pem_file(machine.data().join("pki/ca.crt")).unwrap();
    let answer = version_from(pid, service, authority.clone());
    assert!(answer.contains("gitVersion"), "{answer}");

    let services: Api<Service> = Api::default_namespaced(client.clone());
    let found = soon("made", async || services.get_opt("kubernetes").await.unwrap()).await;
    assert_eq!(found.spec.unwrap().cluster_ip.unwrap(), service.ip().to_string());
    let endpoints: Api<Endpoints> = Api::default_namespaced(client.clone());
    let endpoint = |found: Endpoints| {
        let subset = found.subsets?.into_iter().next()?;
        let port = u16::try_from(subset.ports?.first()?.port).unwrap();
        Some(SocketAddr::new(subset.addresses?.first()?.ip.parse().unwrap(), port))
    };
    let endpoint =
        soon("made", async || endpoints.get_opt("kubernetes").await.unwrap().and_then(endpoint)).await;
    let answer = version_from(pid, endpoint, authority);
    assert!(answer.contains("gitVersion"), "{answer}");
    drop(cluster);
    machine.clear();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_kubernetes_is_kept_with_its_endpoints_and_slice() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(&folder.path().join("data"));
    let client = cluster.client().await;
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let endpoints: Api<Endpoints> = Api::default_namespaced(client.clone());
    let slices: Api<EndpointSlice> = Api::default_namespaced(client);
    let first = soon("made", async || services.get_opt("kubernetes").await.unwrap()).await;
    soon("made", async || endpoints.get_opt("kubernetes").await.unwrap()).await;
    let slice = soon("made", async || slices.get_opt("kubernetes").await.unwrap()).await;
    assert_eq!(slice.metadata.labels.unwrap()["kubernetes.io/service-name"], "kubernetes");
    let spec = first.spec.unwrap();
    assert_eq!((spec.cluster_ip.as_deref(), spec.ports.unwrap()[0].port), (Some("10.96.0.1"), 443));

    services.delete("kubernetes", &DeleteParams::default()).await.unwrap();
    soon("made again", async || {
        services.get_opt("kubernetes").await.unwrap().filter(|found| found.metadata.uid != first.metadata.uid)
    })
    .await;
}
