//! Where events come from: the terminal, the watches, metrics, and the responses to requests.

use std::time::Duration;

use futures_util::stream::{self, AbortHandle, BoxStream, SelectAll, StreamExt as _, abortable};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event as PodEvent, Node, Pod};
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use plumb_client::Api;
use plumb_controller_runtime::{ObjectRef, Reflector, WatchConfig, WatchEvent, Watchable};
use plumb_vpa_api::VerticalPodAutoscaler;

use super::Tab;
use super::event::{Effect, Event, ResizeRequest};
use super::terminal;
use crate::client::refusal;
use crate::resize;
use crate::rollout::Kind;
use crate::status::explanations;
use crate::status::listing::Form;
use crate::status::usage::{self, NodeUsage, Usage};
use crate::status::vpa::{self, Observed};
use crate::status::watch::Notice;

/// How often ages and the message about the API server are brought up to date.
const TICK: Duration = Duration::from_secs(1);
/// How long a resize may take until it is accepted.
const TIMEOUT: Duration = Duration::from_secs(30);

/// All sources of events.
pub(super) struct Sources {
    client: Client,
    all: SelectAll<BoxStream<'static, Event>>,
    /// Ends the watch of the events about a pod.
    of_pod: Option<AbortHandle>,
}

impl Sources {
    pub(super) fn new(client: Client, namespace: Option<&str>, reads_all_pods: bool, notice: Notice) -> Self {
        let mut all = SelectAll::new();
        all.push(terminal::input().boxed());
        all.push(terminal::signals());
        all.push(ticks(notice));
        all.push(usages(client.clone(), namespace));
        let pods = if reads_all_pods { Api::all(client.clone()) } else { api(&client, namespace) };
        all.push(watched(pods, Tab::Pods, Event::Pods));
        all.push(watched(Api::<Node>::all(client.clone()), Tab::Nodes, Event::Nodes));
        let vpas: Api<VerticalPodAutoscaler> = api(&client, namespace);
        all.push(watched(vpas, Tab::Vpas, Event::Vpas));
        for kind in Kind::all() {
            let resource = kind.resource();
            let workloads: Api<DynamicObject> = match namespace {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            all.push(watched(workloads, Tab::Rollouts, move |event| Event::Workloads(kind, event)));
        }
        Self { client, all, of_pod: None }
    }

    /// The next event.
    pub(super) async fn next(&mut self) -> Event {
        // The ticks never end.
        self.all.next().await.unwrap_or(Event::Terminate)
    }

    /// Starts what is to be done. Its outcome is an event.
    pub(super) fn perform(&mut self, effect: Effect) {
        let client = self.client.clone();
        match effect {
            Effect::Quit => {}
            Effect::Unwatch => self.unwatch(),
            Effect::WatchEvents(pod) => {
                self.unwatch();
                let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
                let config = WatchConfig::default().fields(explanations::of_pod(&pod));
                let events: Api<PodEvent> = Api::namespaced(client, namespace);
                let (events, handle) = abortable(Reflector::new(events, config).into_stream());
                self.of_pod = Some(handle);
                self.all.push(events.map(Event::OfPod).boxed());
            }
            Effect::ReadBoosts(pod) => self.all.push(
                stream::once(async move {
                    let boosts = vpa::pods::boosts(&client, std::slice::from_ref(&pod)).await;
                    Event::Boosts(ObjectRef::of(&*pod), boosts.into_iter().flatten().collect())
                })
                .boxed(),
            ),
            Effect::ReadVpa(read) => self.all.push(
                stream::once(async move {
                    let object = ObjectRef::of(&*read);
                    let observed = Observed::of(&client, vec![*read]).await;
                    let form = Form { with_namespace: false, wide: false };
                    Event::Vpa(object, vpa::text(&observed, form, true, &[]))
                })
                .boxed(),
            ),
            Effect::Resize(request) => self.all.push(stream::once(resized(client, request)).boxed()),
        }
    }

    fn unwatch(&mut self) {
        if let Some(handle) = self.of_pod.take() {
            handle.abort();
        }
    }
}

/// The objects of a namespace, or of all.
fn api<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope>,
    K::DynamicType: Default,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

/// The events of a watch, which is retried for good. If the first list fails, its reason comes first: the reflector only logs.
fn watched<K: Watchable>(
    api: Api<K>,
    tab: Tab,
    event: impl Fn(WatchEvent<K>) -> Event + Send + 'static,
) -> BoxStream<'static, Event> {
    let probed = api.clone();
    let probe = stream::once(async move {
        let first = ListParams { limit: Some(1), ..ListParams::default() };
        let error = probed.list(&first).await.err()?;
        Some(Event::Unreadable(tab, unreadable(tab, error)?))
    });
    let events = Reflector::new(api, WatchConfig::default()).into_stream().map(event);
    probe.filter_map(std::future::ready).chain(events).boxed()
}

/// Why the objects of a view cannot be read. Most clusters have no workloads of OpenKruise.
fn unreadable(tab: Tab, error: kube::Error) -> Option<String> {
    Some(match error {
        kube::Error::Api(status) if status.is_not_found() && tab == Tab::Rollouts => return None,
        kube::Error::Api(status) if status.is_not_found() && tab == Tab::Vpas => {
            vpa::NOT_INSTALLED.to_owned()
        }
        error => format!("{:#}", refusal(error)),
    })
}

fn ticks(notice: Notice) -> BoxStream<'static, Event> {
    let tick = |(notice, wait): (Notice, Duration)| async move {
        tokio::time::sleep(wait).await;
        let event = Event::Tick { now: Timestamp::now(), notice: notice.text() };
        Some((event, (notice, TICK)))
    };
    stream::unfold((notice, Duration::ZERO), tick).boxed()
}

/// What containers and nodes use. The first read is at once.
fn usages(client: Client, namespace: Option<&str>) -> BoxStream<'static, Event> {
    let namespace = namespace.map(str::to_owned);
    let read = |(client, namespace, wait): (Client, Option<String>, Duration)| async move {
        tokio::time::sleep(wait).await;
        let (pods, nodes) =
            tokio::join!(Usage::read(&client, namespace.as_deref()), NodeUsage::read(&client));
        Some((Event::Usage(pods, nodes), (client, namespace, usage::REFRESH)))
    };
    stream::unfold((client, namespace, Duration::ZERO), read).boxed()
}

async fn resized(client: Client, request: ResizeRequest) -> Event {
    let pods: Api<Pod> = Api::namespaced(client, &request.pod.namespace);
    let params = PatchParams { dry_run: request.is_dry_run, ..resize::params() };
    let patch = Patch::Strategic(&request.patch);
    let patched = tokio::time::timeout(TIMEOUT, pods.patch_resize(&request.pod.name, &params, &patch)).await;
    let response = match patched {
        Ok(Ok(pod)) => Ok(Box::new(pod)),
        Ok(Err(error)) => Err(format!("{:#}", resize::refusal(error))),
        Err(_) => Err(format!("the API server has not answered within {} s", TIMEOUT.as_secs())),
    };
    Event::Resized { request, response }
}
