//! Starts the components of a cluster in order, reports when all are ready, and ends when one of them does.

mod components;
mod control_plane;
mod kubeconfig;
mod metrics_server;
mod node;
mod proxy;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use plumb_client::Api;
use tokio::io::AsyncReadExt as _;

use crate::assets::{Assets, Programs};
use crate::error::{Error, IoContext as _, full_text};
use crate::event::{Endpoints, Event, RuntimeEndpoints, emit};
use crate::instance::Instance;
use components::Components;
use node::RestartPolicy;

/// The timeout of each component's start; with a cold page cache and a busy machine a start takes long.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Runs the cluster in `dir` until a component ends or, with `lifeline`, until standard input is closed.
pub(crate) fn run(dir: &Path, lifeline: bool) -> ExitCode {
    let outcome = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .doing("start a runtime for", dir)
        .and_then(|runtime| {
            let outcome = runtime.block_on(launch(dir, lifeline));
            // Standard input may stay open: don't wait for the thread that reads it.
            runtime.shutdown_background();
            outcome
        });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            emit(&Event::Failed(full_text(&error)));
            ExitCode::FAILURE
        }
    }
}

async fn launch(dir: &Path, lifeline: bool) -> Result<(), Error> {
    crate::install_crypto();
    let instance = Instance::read(dir)?;
    let (mut components, mut ends) = Components::new(instance.logs());
    let work = async {
        match &instance.programs {
            Programs::Kubernetes(assets) => {
                let endpoints = bring_up(&instance, assets, &mut components).await?;
                emit(&Event::Ready(endpoints));
            }
            Programs::Containerd(assets) => {
                let site = node::Site::first(&instance);
                node::write_images(&instance, assets)?;
                node::start_containerd(site, assets, &mut components, RestartPolicy::Always).await?;
                emit(&Event::RuntimeReady(RuntimeEndpoints {
                    socket: site.socket(),
                    cgroup: instance.cgroup(),
                    subnet: instance.subnet_text(),
                }));
            }
        }
        std::future::pending::<Result<(), Error>>().await
    };
    tokio::select! {
        outcome = work => outcome,
        end = ends.recv() => match end {
            Some(end) => Err(end),
            None => Ok(()),
        },
        () = owner_left(lifeline) => Ok(()),
    }
}

async fn owner_left(lifeline: bool) {
    if lifeline {
        let mut rest = Vec::new();
        let _ = tokio::io::stdin().read_to_end(&mut rest).await;
    } else {
        std::future::pending::<()>().await;
    }
}

async fn bring_up(
    instance: &Instance,
    assets: &Assets,
    components: &mut Components,
) -> Result<Endpoints, Error> {
    let plane = control_plane::prepare(instance, assets)?;
    plane.start_etcd(components)?;
    plane.start_apiserver(components)?;
    // containerd needs no API server: it starts and imports its images in the meantime.
    if let Some(node) = &assets.node {
        node::write_images(instance, &node.runtime)?;
        for site in node::Site::all(instance) {
            node::start_containerd(site, &node.runtime, components, RestartPolicy::Never).await?;
        }
    }
    let client = plane.wait_until_ready().await?;
    emit(&Event::Step("kube-apiserver is ready".to_owned()));
    let controllers = assets.controller_manager.as_deref();
    if let Some(program) = controllers {
        plane.start_controllers(program, components)?;
    }
    let mut node_name = None;
    if let Some(assets) = &assets.node {
        proxy::start(instance, plane.address()).await?;
        let sites = node::Site::all(instance);
        for &site in &sites {
            node::register(site, &client).await?;
            node::start_kubelet(site, assets, &plane, components)?;
        }
        plane.start_scheduler(&assets.scheduler, components)?;
        for &site in &sites {
            node::wait_until_ready(site, &client).await?;
            emit(&Event::Step(format!("node {} is ready", site.name())));
        }
        node_name = sites.first().map(|site| site.name());
        if let Some(program) = &assets.metrics_server {
            metrics_server::start(program, instance, &plane, &client, components).await?;
            emit(&Event::Step("metrics-server is ready".to_owned()));
        }
    }
    if controllers.is_some() {
        // The API server rejects pods until their namespace has this account.
        let accounts: Api<ServiceAccount> = Api::namespaced(client, "default");
        components::poll("the default service account", TIMEOUT, async || {
            accounts.get_opt("default").await.ok().flatten()
        })
        .await?;
    }
    Ok(plane.endpoints(node_name))
}
