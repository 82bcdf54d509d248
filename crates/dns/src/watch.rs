//! The watches that keep the zone up to date.

use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Client;
use parking_lot::RwLock;
use plumb_client::Api;
use plumb_controller_runtime::{Reflector, WatchConfig, WatchEvent};
use plumb_supervise::Supervisor;

use crate::zone::Zone;

/// Watches Services and EndpointSlices until the future is dropped. The objects are not cached, only their records in the zone.
pub fn run(client: Client, zone: Arc<RwLock<Zone>>, supervisor: &Supervisor) -> BoxFuture<'static, ()> {
    let services_client = client.clone();
    let services_zone = zone.clone();
    let services = supervisor
        .keep("dns-services", move || watch_services(services_client.clone(), services_zone.clone()));
    let slices = supervisor.keep("dns-endpoint-slices", move || watch_slices(client.clone(), zone.clone()));
    Box::pin(async move { _ = tokio::join!(services, slices) })
}

async fn watch_services(client: Client, zone: Arc<RwLock<Zone>>) {
    let reflector = Reflector::new(Api::<Service>::all(client), WatchConfig::default());
    let mut events = std::pin::pin!(reflector.into_stream());
    while let Some(event) = events.next().await {
        let mut zone = zone.write();
        match event {
            WatchEvent::Restarted(services) => zone.replace_services(&services),
            WatchEvent::Applied(service) => zone.apply_service(&service),
            WatchEvent::Deleted(service) => {
                zone.delete_service(&service.namespace, &service.name);
            }
        }
    }
}

async fn watch_slices(client: Client, zone: Arc<RwLock<Zone>>) {
    let reflector = Reflector::new(Api::<EndpointSlice>::all(client), WatchConfig::default());
    let mut events = std::pin::pin!(reflector.into_stream());
    while let Some(event) = events.next().await {
        let mut zone = zone.write();
        match event {
            WatchEvent::Restarted(slices) => zone.replace_slices(&slices),
            WatchEvent::Applied(slice) => zone.apply_slice(&slice),
            WatchEvent::Deleted(slice) => {
                zone.delete_slice(&slice.namespace, &slice.name);
            }
        }
    }
}
