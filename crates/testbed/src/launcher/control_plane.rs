//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use kube::Client;
use kube::api::GetParams;
use ring::rand::{SecureRandom as _, SystemRandom};
use tokio::process::Command;

use super::components::{self, Components};
use super::{TIMEOUT, kubeconfig};
use crate::assets::Assets;
use crate::error::{Error, IoContext as _};
use crate::event::Endpoints;
use crate::instance::Instance;
use crate::pki::{Authority, Identity};

/// The administrator: the API server authorizes every request of this group.
const ADMIN: (&str, &str) = ("plumb-admin", "system:masters");

/// A control plane whose files are written.
pub(super) struct ControlPlane<'a> {
    instance: &'a Instance,
    assets: &'a Assets,
    authority: Authority,
    admin: Identity,
    token: String,
    etcd_port: u16,
    port: u16,
    /// The API server signs service account tokens with the first and verifies them with the second.
    account_keys: (PathBuf, PathBuf),
}

/// Makes certificates, token and kubeconfig.
pub(super) fn prepare<'a>(instance: &'a Instance, assets: &'a Assets) -> Result<ControlPlane<'a>, Error> {
    let logs = instance.logs();
    fs::create_dir_all(&logs).doing("create", &logs)?;
    let authority = Authority::create(instance.file("pki"))?;
    let admin = authority.client("admin", ADMIN.0, Some(ADMIN.1))?;
    let account_keys = authority.service_account_keys()?;
    let [etcd_port, port] = free_ports()?;
    let plane = ControlPlane {
        instance,
        assets,
        authority,
        admin,
        token: random_token()?,
        etcd_port,
        port,
        account_keys,
    };
    kubeconfig::write(
        &instance.kubeconfig(),
        &plane.server(),
        &plane.authority.identity().certificate,
        &plane.admin,
    )?;
    Ok(plane)
}

impl ControlPlane<'_> {
    fn server(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The certificate authority of the cluster.
    pub(super) fn authority(&self) -> &Authority {
        &self.authority
    }

    pub(super) fn start_etcd(&self, components: &mut Components) -> Result<(), Error> {
        let mut etcd = Command::new(&self.assets.etcd);
        let client = format!("http://127.0.0.1:{}", self.etcd_port);
        // A single member has no peers: the kernel picks that port.
        let peer = "http://127.0.0.1:0";
        etcd.arg("--data-dir").arg(self.instance.file("etcd"));
        etcd.args(["--name", "testbed", "--listen-peer-urls", peer]);
        etcd.args(["--initial-cluster", "testbed=http://127.0.0.1:2380"]);
        etcd.args(["--initial-advertise-peer-urls", "http://127.0.0.1:2380"]);
        etcd.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        components.start("etcd", etcd)
    }

    pub(super) fn start_apiserver(&self, components: &mut Components) -> Result<(), Error> {
        let address = self.instance.service_address();
        let names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", &address];
        let serving = self.authority.server("apiserver", &names)?;
        let kubelet_client = self.authority.client(
            "apiserver-kubelet-client",
            "kube-apiserver-kubelet-client",
            Some(ADMIN.1),
        )?;
        let authority = self.authority.identity().certificate;
        let tokens = self.instance.file("tokens.csv");
        let (name, group) = ADMIN;
        fs::write(&tokens, format!("{},{name},{name},{group}\n", self.token)).doing("write", &tokens)?;

        let mut server = Command::new(&self.assets.apiserver);
        server.args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"]);
        // A loopback address is no endpoint for the Service `kubernetes`; pods reach its address by the launcher's proxy.
        server.arg("--endpoint-reconciler-type=none").arg("--allow-privileged=true");
        server.arg(format!("--service-cluster-ip-range={}", self.instance.service_subnet()));
        if self.instance.has_node() {
            self.aggregate(&mut server)?;
        }
        server.args(["--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"]);
        if self.assets.controller_manager.is_none() {
            // Without kube-controller-manager no service accounts exist, which this plugin requires.
            server.arg("--disable-admission-plugins=ServiceAccount");
        }
        server.arg("--service-account-issuer=https://kubernetes.default.svc");
        server.arg(format!("--etcd-servers=http://127.0.0.1:{}", self.etcd_port));
        server.arg(format!("--secure-port={}", self.port));
        server.arg("--kubelet-preferred-address-types=InternalIP");
        for (flag, path) in [
            ("--cert-dir", &self.instance.file("apiserver")),
            ("--tls-cert-file", &serving.certificate),
            ("--tls-private-key-file", &serving.key),
            ("--client-ca-file", &authority),
            ("--token-auth-file", &tokens),
            ("--service-account-signing-key-file", &self.account_keys.0),
            ("--service-account-key-file", &self.account_keys.1),
            ("--kubelet-certificate-authority", &authority),
            ("--kubelet-client-certificate", &kubelet_client.certificate),
            ("--kubelet-client-key", &kubelet_client.key),
        ] {
            server.arg(flag).arg(path);
        }
        server.args(&self.instance.apiserver_flags);
        components.start("kube-apiserver", server)
    }

    /// Adds the flags for webhooks and aggregated API servers. There is no kube-proxy: kube-apiserver connects to the
    /// endpoints of a Service.
    fn aggregate(&self, server: &mut Command) -> Result<(), Error> {
        let name = "front-proxy-client";
        let identity = self.authority.client(name, name, None)?;
        server.arg("--enable-aggregator-routing=true");
        server.arg(format!("--requestheader-allowed-names={name}"));
        server.args([
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        ]);
        for (flag, path) in [
            ("--requestheader-client-ca-file", &self.authority.identity().certificate),
            ("--proxy-client-cert-file", &identity.certificate),
            ("--proxy-client-key-file", &identity.key),
        ] {
            server.arg(flag).arg(path);
        }
        Ok(())
    }

    /// Where the API server listens.
    pub(super) fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port))
    }

    pub(super) fn start_controllers(&self, program: &Path, components: &mut Components) -> Result<(), Error> {
        let name = "kube-controller-manager";
        let authority = self.authority.identity();
        let mut controllers = Command::new(program);
        controllers.args(["--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0"]);
        controllers.arg("--use-service-account-credentials=true");
        for (flag, path) in [
            ("--kubeconfig", &self.component_kubeconfig(name)?),
            ("--root-ca-file", &authority.certificate),
            ("--cluster-signing-cert-file", &authority.certificate),
            ("--cluster-signing-key-file", &authority.key),
            ("--service-account-private-key-file", &self.account_keys.0),
        ] {
            controllers.arg(flag).arg(path);
        }
        controllers.args(&self.instance.controllers_flags);
        components.start(name, controllers)
    }

    pub(super) fn start_scheduler(&self, program: &Path, components: &mut Components) -> Result<(), Error> {
        let name = "kube-scheduler";
        let mut scheduler = Command::new(program);
        scheduler.args(["--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0"]);
        scheduler.arg("--kubeconfig").arg(self.component_kubeconfig(name)?);
        components.start(name, scheduler)
    }

    fn component_kubeconfig(&self, component: &str) -> Result<PathBuf, Error> {
        self.user_kubeconfig(component, &format!("system:{component}"), None)
    }

    /// A kubeconfig for a user of the cluster, with a certificate of its own.
    pub(super) fn user_kubeconfig(
        &self,
        file: &str,
        user: &str,
        group: Option<&str>,
    ) -> Result<PathBuf, Error> {
        let identity = self.authority.client(file, user, group)?;
        let path = self.instance.file(format!("{file}.kubeconfig"));
        kubeconfig::write(&path, &self.server(), &self.authority.identity().certificate, &identity)?;
        Ok(path)
    }

    /// Waits until the API server says that it is ready, which includes its built-in roles.
    pub(super) async fn wait_until_ready(&self) -> Result<Client, Error> {
        let client = crate::client::from_kubeconfig(&self.instance.kubeconfig()).await?;
        components::poll("readiness of kube-apiserver", TIMEOUT, async || {
            let request = kube::core::Request::new("").get("readyz", &GetParams::default()).ok()?;
            client.request_text(request).await.ok()
        })
        .await?;
        Ok(client)
    }

    pub(super) fn endpoints(&self, node: Option<String>) -> Endpoints {
        Endpoints {
            server: self.server(),
            kubeconfig: self.instance.kubeconfig(),
            token: self.token.clone(),
            certificate: self.admin.certificate.clone(),
            key: self.admin.key.clone(),
            authority: self.authority.identity().certificate,
            cgroup: node.as_ref().map(|_| self.instance.cgroup()),
            node,
        }
    }
}

/// Free ports. All listeners are open at once, so that the ports differ.
pub(super) fn free_ports<const N: usize>() -> Result<[u16; N], Error> {
    let system = |source| Error::System { doing: "find a free port", source };
    let mut held = Vec::with_capacity(N);
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system)?;
        *port = listener.local_addr().map_err(system)?.port();
        held.push(listener);
    }
    Ok(ports)
}

fn random_token() -> Result<String, Error> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(|_| Error::System {
        doing: "make a token",
        source: std::io::Error::other("no randomness"),
    })?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}
