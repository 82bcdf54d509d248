//! `plumb node`: one more node for a cluster that runs elsewhere.

mod enrol;

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use jiff::Timestamp;
use plumb_apiserver::pki::SystemClock;
use plumb_apiserver::serve;
use plumb_node::join::{CertificateResolver, Connection, NodeCertificate, Purpose, Renewal, publish_key};
use plumb_resize::rules::Rules;
use plumb_supervise::Backoff;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::data_dir::{Purpose as DataPurpose, given_or_usual};
use crate::flags::Node;
use crate::invitation::{self, NodeSettings};
use crate::nodes::{NodeConfig, NodeEnvironment, is_api_server, render_dns, shut_down};
use crate::signals::{Signals, Stop};
use crate::up::stopping;
use crate::{data_dir, features, holder, service_manager};
use enrol::Enrolled;

/// Where agents listen, as the kubelet does.
const USUAL_PORT: u16 = 10250;
/// How long the server may take to be there.
const REACH: Duration = Duration::from_secs(5);
/// The file that the serving certificate is in, below `pki`.
const SERVING: &str = "serving.pem";

/// Runs a node until the process receives a signal to stop.
pub fn run(args: Node) -> anyhow::Result<()> {
    serve::install_crypto();
    let descriptors = crate::up::raise_descriptors();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("starting the asynchronous runtime")?;
    runtime.block_on(node(args, descriptors))
}

async fn node(args: Node, descriptors: usize) -> anyhow::Result<()> {
    let data = &given_or_usual(args.data_dir.clone(), DataPurpose::Node);
    data_dir::check_usable(data)?;
    data_dir::create(data)?;
    // First, since its lock protects the data directory.
    let mut environment = NodeEnvironment::prepare(&args.like, data)?;
    let name = name(&args)?;
    let listen = match args.listen {
        Some(address) => address,
        None => SocketAddr::new(towards(&args.server)?, USUAL_PORT),
    };
    let supervisor = plumb_supervise::process();
    let listener = holder::listen(listen, "--listen")?.supervised(supervisor, "node-server");
    let address = match args.address.unwrap_or(listen.ip()) {
        address if address.is_unspecified() => towards(&args.server)?,
        address => address,
    };
    let Enrolled { connection, authority, renewal: client_renewal, certificate } =
        enrol::enrol(&args, data, &name).await?;
    let NodeSettings { binding, dns, pod_network, client_authorities } = settings(&args, &connection).await;
    let rules = Rules::new(binding.dialect, &binding.gates);

    let config = NodeConfig {
        name: name.clone(),
        index: 0,
        addresses: vec![address],
        port: listener.address().port(),
        client: connection.client(),
        api: connection.host_and_port(),
        api_on_bridge: None,
        node_bridge: None,
        pod_network,
        rules,
        dns,
    };
    let (mut agent, _) = environment.agent(&args.like, config).await?;
    let (gates, dns_server) = (binding.gates, environment.dns_server());
    let service = environment
        .with_metrics(agent.server(environment.root(), Arc::new(is_api_server)))
        .with_tasks(supervisor)
        .with_metrics(move |text| features::render(&gates, text))
        .with_metrics(move |text| render_dns(dns_server.as_ref(), text));
    // Its addresses have to be known before it can have a certificate for them.
    agent.register().await;
    publish_key(&connection.client(), &name, &certificate).await;
    environment.spawn_agent(agent);

    let resolver = Arc::new(CertificateResolver::default());
    let trusted = if client_authorities.is_empty() { &authority } else { &client_authorities };
    let trusted: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(trusted.as_bytes()).collect();
    let trusted = trusted.context("reading the authorities of clients")?;
    let tls = serve::tls_of(trusted, resolver.clone(), Arc::new(SystemClock))?;
    let file = data.join(data_dir::PKI).join(SERVING);
    let kept = NodeCertificate::load(&file)?;
    let serving_renewal = Renewal {
        node: name.clone(),
        purpose: Purpose::Serving(vec![address]),
        file,
        resolver,
        connection: connection.clone(),
        clock: Arc::new(Timestamp::now),
    };
    let serving = serving_renewal.start(kept).await;
    let (trigger, shutdown) = serve::shutdown();
    let limits = serve::Limits::of_agent(descriptors, 1);
    let answering = tokio::spawn(serve::serve(listener, tls, limits, service, shutdown));
    let (ask_for_new, asked) = watch::channel(0);
    let other = asked.clone();
    let renewals = [
        ("client-certificate-renewal", client_renewal, certificate, asked),
        ("serving-certificate-renewal", serving_renewal, serving, other),
    ];
    for (name, renewal, certificate, asked) in renewals {
        let renewal = Arc::new(renewal);
        environment.running.spawn(supervisor.keep(name, move || {
            let (renewal, certificate, asked) = (renewal.clone(), certificate.clone(), asked.clone());
            async move { renewal.run(certificate, asked).await }
        }));
    }
    let ask_for_new = Arc::new(ask_for_new);
    environment
        .running
        .spawn(supervisor.keep("renewal-signal", move || renew_on_hangup(ask_for_new.clone())));

    say!("plumb: node {name} {}", environment.runtime_name());
    let mut signals = Signals::listen()?;
    announce!("plumb node {name} has joined {}", args.server);
    service_manager::notify("READY=1");
    let stop = tokio::select! {
        stop = signals.next() => stop,
        () = parent_ended(), if args.end_with_parent => Stop::Interrupt,
    };
    if let (Stop::Terminate, Some(periods)) = (stop, args.like.shutdown_periods()) {
        shut_down(&environment, periods, &mut signals).await;
    }
    service_manager::notify("STOPPING=1");
    say!("{}", stopping(!environment.is_virtual()));
    trigger.pull();
    answering.await.context("the node's server failed")?;
    environment.stop().await;
    Ok(())
}

/// Waits until standard input is closed, which the process that started this one holds open.
async fn parent_ended() {
    let (sender, ended) = tokio::sync::oneshot::channel();
    // A thread of its own: one of Tokio's would keep its runtime from ending while it reads.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = sender.send(());
    });
    let _ = ended.await;
}

/// Requests new certificates on SIGHUP.
async fn renew_on_hangup(ask: Arc<watch::Sender<u64>>) {
    let Ok(mut hangup) = signal(SignalKind::hangup()) else { return };
    while hangup.recv().await.is_some() {
        ask.send_modify(|times| *times += 1);
    }
}

/// The settings that the cluster has for its nodes, overridden by the command line. Retries until the cluster
/// responds.
async fn settings(args: &Node, connection: &Connection) -> NodeSettings {
    let client = connection.client();
    let mut backoff = Backoff::default();
    let mut settings = loop {
        match invitation::settings(&client).await {
            Ok(settings) => break settings,
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the API server does not respond yet, will retry"
                );
                backoff.wait().await;
            }
        }
    };
    settings.binding.dialect = args.resize_dialect.unwrap_or(settings.binding.dialect);
    settings.binding.gates = settings.binding.gates.overridden_by(&args.feature_gates);
    settings.dns = settings.dns.overridden_by(&args.like);
    settings
}

/// The name of the node: the given one, or that of the machine.
fn name(args: &Node) -> anyhow::Result<String> {
    let name = if let Some(name) = &args.like.node_name {
        name.clone()
    } else {
        let host = nix::unistd::gethostname().context("finding the name of this machine")?;
        host.to_string_lossy().trim().to_ascii_lowercase()
    };
    let is_word = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    if name.len() > 253 || !name.split('.').all(is_word) {
        bail!(
            "{name:?} cannot be the name of a node; --name says another, of lower-case letters, digits and hyphens"
        );
    }
    Ok(name)
}

/// The address of this machine that a server is reached from.
fn towards(server: &str) -> anyhow::Result<IpAddr> {
    if server.starts_with("http://") {
        bail!("{server}: the API is served over TLS only; write https://");
    }
    let authority = server.strip_prefix("https://").unwrap_or(server).trim_end_matches('/');
    let authority = if authority.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        authority.to_owned()
    } else {
        format!("{authority}:443")
    };
    let resolved = authority.to_socket_addrs().with_context(|| format!("looking up {authority}"))?;
    let mut failure = None;
    for address in resolved {
        match TcpStream::connect_timeout(&address, REACH).and_then(|stream| stream.local_addr()) {
            Ok(own) => return Ok(own.ip()),
            Err(error) => failure = Some(error),
        }
    }
    let failure = failure.map_or_else(|| anyhow::anyhow!("it has no address"), anyhow::Error::new);
    Err(failure.context(format!(
        "reaching {server}; --listen says where this node is, if the server is down just now"
    )))
}
