//! `plumb up`: a cluster on this machine.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use jiff::Timestamp;
use kube::Client;
use plumb_apiserver::accounts::{Accounts, Settings};
use plumb_apiserver::admission::Plugins;
use plumb_apiserver::authn::{Authenticator, Tokens, User};
use plumb_apiserver::kubeconfig::CurrentContext;
use plumb_apiserver::pki::{Pki, SystemClock, keep_fresh};
use plumb_apiserver::serve::{self, Listener};
use plumb_apiserver::{ApiServer, Config, KubeletClient};
use plumb_controllers::dns_service;
use plumb_controllers::horizontal_pod_autoscaler::features::{HPA_CONFIGURABLE_TOLERANCE, HPA_SCALE_TO_ZERO};
use plumb_kinds::{AdmissionConfiguration, Features, admission_plugins, configured_api_server};
use plumb_resize::rules::Rules;
use plumb_scheduler::features::NODE_DECLARED_FEATURES;
use plumb_store::{Directory, OpenError, Options, Quota, Recent, Store};
use plumb_supervise::Supervisor;
use tokio::sync::watch;

use crate::admin_kubeconfig::{self, AdminKubeconfig};
use crate::audit::AuditLog;
use crate::components::{CONTROLLERS, Context, NODE};
use crate::data_dir::{Purpose, given_or_usual};
use crate::encryption::Encryption;
use crate::flags::{RuntimeKind, StoreFlags, Up, may_run_containers};
use crate::invitation::Binding;
use crate::nodes::{DnsSettings, Machines, RunningMachines};
use crate::pod_network::ClusterNetwork;
use crate::signals::{Signals, Stop};
use crate::usage::{self, Measurements};
use crate::{backup, dashboard, data_dir, features, holder, nodes, service_manager};

/// The assumed limit of file descriptors, if it is unknown.
const FEW_DESCRIPTORS: usize = 1_024;
/// The interval of checks of certificates.
const LOOK_AT_CERTIFICATES: Duration = Duration::from_hours(1);
/// How often allocations of cluster IPs and node ports are repaired. As upstream's.
const REPAIR_ALLOCATIONS: Duration = Duration::from_mins(3);
/// The most memory for changes of the last five minutes.
const RECENT_BYTES: usize = 96 << 20;
/// How long writes may take at the end whose client is gone.
const COMPLETE_WRITES: Duration = Duration::from_secs(10);

/// Runs a cluster until the process receives a signal to stop. The agents of further nodes are started with `node_flags`.
pub fn run(args: Up, node_flags: Vec<OsString>) -> anyhow::Result<()> {
    serve::install_crypto();
    let descriptors = raise_descriptors();
    let mut threads = tokio::runtime::Builder::new_multi_thread();
    if args.nodes > 1 {
        nodes::one_on_each_core(&mut threads);
    }
    let runtime = threads.enable_all().build().context("starting the asynchronous runtime")?;
    runtime.block_on(up(args, node_flags, descriptors))
}

/// Raises the limit of file descriptors to its maximum, and returns it. Every connection, container and log takes
/// one.
pub(crate) fn raise_descriptors() -> usize {
    plumb_runtime::descriptors::raise().unwrap_or_else(|error| {
        tracing::warn!(%error, "cannot raise the limit of file descriptors");
        FEW_DESCRIPTORS
    })
}

/// How long changes are retained for watches that resume and lists that continue: as long as upstream's etcd is not
/// compacted, where memory allows it.
fn store_options(quota: Quota, encryption: Arc<Encryption>) -> Options {
    let started = Instant::now();
    let clock = Arc::new(move || started.elapsed());
    let recent = Recent { age: Duration::from_mins(5), bytes: RECENT_BYTES, clock };
    Options { recent: Some(recent), quota, transformer: Some(encryption), ..Options::default() }
}

/// The memory of this machine in bytes, if it is known.
fn machine_memory() -> Option<u64> {
    let found = plumb_node::register::Machine::read(Path::new("/"));
    found
        .inspect_err(|error| tracing::warn!(%error, "cannot find out how much memory there is"))
        .ok()
        .map(|machine| machine.memory)
}

async fn up(args: Up, node_flags: Vec<OsString>, descriptors: usize) -> anyhow::Result<()> {
    let admission = admission_configuration(&args)?;
    let encryption = Encryption::open(args.encryption_provider_config.as_deref())?;
    let audit_log = AuditLog::read(&args.audit)?;
    let supervisor = plumb_supervise::process();
    let data = &given_or_usual(args.data_dir.clone(), Purpose::Cluster);
    // No directory is created for a cluster that cannot be served; an existing one names the process that holds it.
    let mut created = data_dir::FreshDirectory::new(data)?;
    let early = (!data.exists()).then(|| holder::listen(args.listen, "--listen")).transpose()?;
    created.create(data)?;
    let options = store_options(args.limits.of_objects(machine_memory()), encryption.clone());
    let (store, _lock) = open_store(&args.store, data, options)?;
    let listener = early.map_or_else(|| holder::listen(args.listen, "--listen"), Ok)?;
    let copying = backup::serve(data, store.clone(), supervisor).inspect_err(|error| {
        tracing::warn!(%error, "no copies can be made while this runs (`plumb backup`)");
    });
    let clock = Arc::new(SystemClock);
    let advertised = SocketAddr::new(advertised(&args, listener.address().ip()), listener.address().port());
    let gateway = pod_gateway(&args, data)?;
    let mut network = ClusterNetwork::new(&args, data)?;
    let machines = Machines::new(&args, node_flags, data, network.as_mut())?;
    let for_nodes = machines.as_ref().map(Machines::gateway);
    let node_ip = args.node_ip.or(for_nodes).or_else(own_address).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let names = [
        Some(listener.address().ip()),
        Some(advertised.ip()),
        gateway.map(IpAddr::V4),
        Some(node_ip),
        for_nodes,
    ];
    let names = names.into_iter().flatten().map(|address| address.to_string());
    let pki = Arc::new(Pki::open(data.join(data_dir::PKI), names, clock.clone())?);
    let tokens = args.token_auth_file.as_deref().map(Tokens::open).transpose()?.unwrap_or_default();
    remove_administrator_token(&data.join(data_dir::PKI));

    let url = listener.url();
    let settings = Settings::at(url.clone());
    let accounts = Accounts::new(pki.service_account_key(), store.clone(), clock.clone(), settings)
        .context("the key of service accounts is of another kind")?;

    let binding = Binding { dialect: args.resize_dialect, gates: args.feature_gates.clone() };
    let rules = Rules::new(binding.dialect, &binding.gates);
    let dns = DnsSettings::default().overridden_by(&args.node);
    let measurements = Measurements::default();
    let kubelets = KubeletClient::new(&pki)?;
    let api_features = Features {
        scale_to_zero: binding.gates.enabled(&HPA_SCALE_TO_ZERO),
        configurable_tolerance: binding.gates.enabled(&HPA_CONFIGURABLE_TOLERANCE),
        node_declared_features: binding.gates.enabled(&NODE_DECLARED_FEATURES),
    };
    let auditor = audit_log.map(AuditLog::open).transpose()?;
    let config = Config {
        store: store.clone(),
        rules: rules.clone(),
        clock: Arc::new(Timestamp::now),
        limits: args.limits.of_requests(descriptors),
        authenticator: Authenticator::new(tokens, clock)
            .with_accounts(accounts)
            .with_bootstrap_tokens(store.clone()),
        nodes: Some(kubelets.clone()),
        plugins: plugins(&args)?,
        usage: Some(Arc::new(measurements.clone())),
        audit: auditor.clone(),
    };
    let server = configured_api_server(config, api_features, admission)
        .map_err(|error| anyhow::anyhow!("starting the API server: {}", error.message))?;

    if let Some(address) = dns.server {
        server.set_aside_cluster_ip(address, dns_service::NAMESPACE, dns_service::SERVICE);
    }
    server.show_as_front_proxy(pki.clone());
    server.show_tasks(supervisor);
    let gates = binding.gates.clone();
    server.also_show(move |text| features::render(&gates, text));
    server.also_show(move |text| encryption.render(text));

    let kubeconfig = args.kubeconfig.clone().unwrap_or_else(|| data.join(data_dir::KUBECONFIG));
    let entry = AdminKubeconfig::new(data, &url, &kubeconfig)?;
    entry.write(&pki, CurrentContext::Switch)?;
    if args.kubeconfig.is_some() {
        admin_kubeconfig::remember(data, &kubeconfig)?;
    }

    let (trigger, shutdown) = serve::shutdown();
    let (publish, authority) = watch::channel(pki.authority_pem());
    let rotating = {
        let (pki, publish) = (pki.clone(), Arc::new(publish));
        let shutdown = shutdown.clone();
        move || {
            let (entry, publish) = (entry.clone(), publish.clone());
            keep_fresh(pki.clone(), LOOK_AT_CERTIFICATES, shutdown.clone(), move |pki, _| {
                publish.send_replace(pki.authority_pem());
                // Which context is current is the user's choice while the cluster runs.
                if let Err(error) = entry.write(pki, CurrentContext::Keep) {
                    tracing::error!(%error, "cannot write the kubeconfig anew");
                }
            })
        }
    };
    let fresh = tokio::spawn(supervisor.finish("certificate-rotation", rotating));
    let own_controllers = tokio::spawn(supervisor.finish("apiserver-controllers", {
        let (server, shutdown) = (server.clone(), shutdown.clone());
        move || {
            let (server, shutdown) = (server.clone(), shutdown.clone());
            async move { server.run_controllers(REPAIR_ALLOCATIONS, shutdown).await }
        }
    }));
    let tls = serve::tls(&pki)?;
    let listener = listener.counting(server.connection_metrics()).supervised(supervisor, "apiserver");
    // Pods do not reach a loopback address; the node carries their connections from the gateway.
    let bridged = for_nodes.or(gateway.map(IpAddr::V4)).filter(|_| advertised.ip().is_loopback());
    let metrics = plumb_controller_runtime::metrics::Metrics::default();
    let shown = metrics.clone();
    server.also_show(move |text| shown.render(text));
    let context = Context {
        server: &server,
        supervisor,
        metrics: &metrics,
        rules: &rules,
        binding: &binding,
        dns: &dns,
        pki: &pki,
        authority: &authority,
        advertised,
        reached_by_pods: SocketAddr::new(bridged.unwrap_or(advertised.ip()), advertised.port()),
        network: network.as_ref(),
        autoscaler: &args.autoscaler,
        autoscaling_period: args.horizontal_pod_autoscaler_sync_period,
    };
    let components = args.components.start(&context);
    let dashboard = if args.dashboard {
        dashboard::start(&context, args.dashboard_listen, &advertised.to_string(), data).await
    } else {
        None
    };
    let gathering = usage::gather(&server, measurements.clone(), args.node.metric_resolution, supervisor);
    let nodes = if args.components.contains(NODE) {
        let context = nodes::ClusterContext {
            api: (advertised.ip().to_string(), advertised.port()),
            api_on_bridge: gateway,
            machines: machines.as_ref(),
            pod_network: network.as_ref().map(|network| network.network),
            data,
            address: node_ip,
            kubelets,
            pki: &pki,
            dns: &dns,
            measurements,
            shutdown: shutdown.clone(),
            descriptors,
        };
        Some(nodes::start(&server, &args, &rules, context).await?)
    } else {
        None
    };
    created.keep();
    let limits = args.limits.of_connections(descriptors);
    let port = listener.address().port();
    let serving_nodes = serve_nodes(&server, &listener, machines.as_ref(), supervisor)?
        .map(|listener| serve::serve(listener, tls.clone(), limits, server.clone(), shutdown.clone()))
        .map(tokio::spawn);
    let serving = tokio::spawn(serve::serve(listener, tls, limits, server.clone(), shutdown));
    let further = match &machines {
        Some(machines) => Some(start_further(machines, &args, &server, &pki, network.as_ref(), port).await?),
        None => None,
    };

    #[cfg(feature = "test-hooks")]
    let aborting = args.hooks.abort_tasks_on_signal(supervisor);

    let mut signals = Signals::listen()?;
    if let Some(nodes) = &nodes {
        say!("plumb: {}", nodes.what);
    }
    if let Some(dashboard) = &dashboard {
        say!("plumb: {}", dashboard.line);
    }
    // The usual path of the kubeconfig names the data directory.
    let data_is_in = match args.kubeconfig {
        Some(_) => format!("; data is in {}", shell_word(data)),
        None => String::new(),
    };
    announce!("plumb is ready at {url}{data_is_in}; export KUBECONFIG={}", shell_word(&kubeconfig));
    service_manager::notify("READY=1");
    let stop = signals.next().await;
    let ending = async {
        if let Some(further) = further {
            further.stop(stop).await;
        }
    };
    let shutting_down = async {
        if let (Stop::Terminate, Some(nodes)) = (stop, &nodes) {
            nodes.shut_down(&mut signals).await;
        }
    };
    tokio::join!(ending, shutting_down);
    service_manager::notify("STOPPING=1");
    say!("{}", stopping(nodes.as_ref().is_some_and(nodes::Nodes::run_on)));
    trigger.pull();
    let drained = serving.await.context("the API server failed")?;
    if let Some(serving_nodes) = serving_nodes {
        serving_nodes.await.context("the API server failed")?;
    }
    fresh.await.context("the renewal of certificates failed")?;
    if drained.cut > 0 {
        tracing::warn!(connections = drained.cut, "connections were cut that did not end in time");
    }
    if let Some(nodes) = nodes {
        nodes.stop().await;
    }
    #[cfg(feature = "test-hooks")]
    drop(aborting);
    drop((components, gathering, copying, dashboard));
    own_controllers.await.context("the controllers of the API server failed")?;
    if tokio::time::timeout(COMPLETE_WRITES, server.writes_completed()).await.is_err() {
        tracing::warn!(
            "stopping before all writes are completed whose client is gone; the next start completes them"
        );
    }
    if let Some(auditor) = auditor {
        auditor.close();
    }
    store.close();
    Ok(())
}

/// Listens where further nodes of this machine reach the API, unless it is served at all addresses.
fn serve_nodes(
    server: &ApiServer,
    listener: &Listener,
    machines: Option<&Machines>,
    supervisor: &Supervisor,
) -> anyhow::Result<Option<Listener>> {
    let address = listener.address();
    let Some(machines) = machines.filter(|_| !address.ip().is_unspecified()) else { return Ok(None) };
    let listener = holder::listen(SocketAddr::new(machines.gateway(), address.port()), "--listen")?;
    Ok(Some(listener.counting(server.connection_metrics()).supervised(supervisor, "apiserver-nodes")))
}

/// Starts further nodes, with the identity of the first one for what nodes know of the cluster.
async fn start_further(
    machines: &Machines,
    args: &Up,
    server: &ApiServer,
    pki: &Pki,
    network: Option<&ClusterNetwork>,
    port: u16,
) -> anyhow::Result<RunningMachines> {
    let user = User::new(format!("system:node:{}", nodes::first_of_several(args)), "", ["system:nodes"]);
    let client = Client::new(server.inside(user), "default");
    machines.start(args, pki, &client, network.map(|network| network.network), port).await
}

/// Opens the store of the objects. One in the data directory with objects is not left aside silently.
fn open_store(
    flags: &StoreFlags,
    data: &Path,
    options: Options,
) -> anyhow::Result<(Store, Option<Directory>)> {
    let objects = data_dir::objects(data);
    let Some(etcd) = flags.etcd() else {
        let store = Store::open(objects, options).map_err(|error| unopened(error, data))?;
        return Ok((store, None));
    };
    if plumb_store::is_store(&objects) {
        anyhow::bail!(
            "the data directory {} has the objects of a cluster with the embedded store; choose another directory with \
             --data-dir, or leave out --store",
            data.display()
        );
    }
    // Certificates and nodes in the directory are of one cluster, wherever its objects are.
    let lock = Directory::lock(objects).map_err(|error| unopened(error, data))?;
    let store = plumb_etcd::open(&etcd, &options).context("opening the store on etcd (--store)")?;
    Ok((store, Some(lock)))
}

/// Why a data directory cannot be opened, with what to do about it.
fn unopened(error: OpenError, data: &Path) -> anyhow::Error {
    let hint = match &error {
        OpenError::Locked { .. } => {
            Some("a cluster runs there already; stop it, or choose another directory with --data-dir")
        }
        OpenError::Damaged(_) => {
            Some("its objects are damaged; `plumb restore` makes another data directory from a backup")
        }
        OpenError::Transform(_) => Some(
            "an object cannot be decrypted, and nothing was changed; --encryption-provider-config must have the key that \
             encrypted it",
        ),
        _ => None,
    };
    let error = anyhow::Error::new(error);
    let error = match hint {
        Some(hint) => error.context(hint),
        None => error,
    };
    error.context(format!("opening the data directory {}", data.display()))
}

/// The message at the end: containers that remain have to be removed by the user.
pub(crate) fn stopping(containers_run_on: bool) -> &'static str {
    if containers_run_on {
        "plumb: stopping; containers run on, `plumb down` removes them"
    } else {
        "plumb: stopping"
    }
}

/// A path for another terminal, whose working directory may be another.
fn shell_word(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let text = path.display().to_string();
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "/._-+@:,".contains(character);
    if text.chars().all(is_plain) { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Removes the token file that earlier versions created: its token of the administrator never expired. It is not read
/// any more, but the token would still be valid for a cluster that is downgraded.
fn remove_administrator_token(pki: &Path) {
    let file = pki.join("tokens.csv");
    match std::fs::remove_file(&file) {
        Ok(()) => tracing::warn!(
            file = %file.display(),
            "removed the token file of an earlier version; --token-auth-file reads one that you keep"
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(%error, file = %file.display(), "cannot remove an old token file"),
    }
}

/// The address of this machine at which its pods reach the API server, if containers run here: that of the bridge of the
/// pods, or the endpoint of [`plumb_runtime::service_nat`].
fn pod_gateway(args: &Up, data: &Path) -> anyhow::Result<Option<Ipv4Addr>> {
    let runs_containers = args.components.contains(NODE)
        && matches!(args.node.runtime.chosen(), RuntimeKind::Builtin | RuntimeKind::Cri)
        && may_run_containers();
    let gateway = runs_containers.then(|| plumb_runtime::builtin::gateway_of(data)).transpose();
    gateway.context("finding the data directory")
}

/// Where other machines reach this one, if they do.
fn advertised(args: &Up, listened: IpAddr) -> IpAddr {
    let given = args.advertise_address.or(Some(listened).filter(|address| !address.is_unspecified()));
    given.or_else(own_address).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// The address that this machine sends from to other networks. No packet is sent.
fn own_address() -> Option<IpAddr> {
    // Addresses that are not assigned (RFC 5737, RFC 3849).
    let far = [Ipv4Addr::new(192, 0, 2, 1).into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()];
    far.into_iter().find_map(|far: IpAddr| {
        let any: IpAddr =
            if far.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((far, 9)).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    })
}

/// The admission plugins. Pods need a service account only if the controllers run, which create the accounts, or if
/// the user enables it.
fn plugins(args: &Up) -> anyhow::Result<Plugins> {
    let (enable, mut disable) = (&args.enable_admission_plugins, args.disable_admission_plugins.clone());
    let named = enable.split(',').any(|name| name.trim() == "ServiceAccount");
    if !named && !args.components.contains(CONTROLLERS) {
        disable.push_str(",ServiceAccount");
    }
    Ok(admission_plugins(enable, &disable)?)
}

/// The configuration of the admission plugins.
fn admission_configuration(args: &Up) -> anyhow::Result<AdmissionConfiguration> {
    let file = args.admission_control_config_file.as_deref();
    let read =
        file.map(AdmissionConfiguration::open).transpose().context("--admission-control-config-file")?;
    Ok(read.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_can_be_pasted_into_another_terminal() {
        assert_eq!(shell_word(Path::new("/data/kubeconfig")), "/data/kubeconfig");
        assert_eq!(shell_word(Path::new("/my data/it's")), r"'/my data/it'\''s'");
        assert!(shell_word(Path::new("./plumb-data/kubeconfig")).ends_with("/plumb-data/kubeconfig"));
        assert!(!shell_word(Path::new("./plumb-data/kubeconfig")).contains("/./"));
    }
}
