//! Keeps the books of quotas: what each has given out.
//!
//! ```text
//!   quotas ────────────────── new, or limits changed ──┐
//!   what they count ── gone, or counts for less now ───┤
//!   now and then: all of them ─────────────────────────┴──▶ one quota: read it ▸ list what it counts ▸ measure
//!                                                                ▲               ▸ write its status, if it is still
//!                                                                └── again ◀────── the quota that was read
//! ```
//!
//! What is added is charged when it is admitted, in one transaction with the write itself, so only what goes or
//! shrinks is looked for here. A quota is read *before* what it counts is listed, and its status is written only if
//! nobody charged it since: the list then holds everything that was charged, and no admission is ever forgotten,
//! however many are under way. While a quota is being measured, any number of further reasons to do so come to one.

mod counting;
mod watching;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ResourceQuota, ResourceQuotaStatus, Service};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DynamicObject, ListParams, PostParams};
use kube::discovery::ApiResource;
use kube::{Api, Client};
use plumb_resize::list::{ResourceList, WireList};
use plumb_resize::quota::{Counted, Item, measure};
use plumb_resize::rules::Rules;
use plumb_supervise::Supervisor;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::Clients;
use crate::panics::Guard;
use crate::workload::recorder::Subject;
use crate::workload::{Queue, Went};
use counting::Kind;
use watching::{Told, follow};

/// The controller's name in Kubernetes.
pub const NAME: &str = "resourcequota-controller";
/// How often everything is measured anew, whatever happened: pods that outlive their grace period tell nobody.
const EVERYTHING: Duration = Duration::from_mins(5);

/// What the books are kept by.
#[derive(Clone)]
pub struct Config {
    /// Which rules of a resize bind.
    pub rules: Rules,
    /// What time it is.
    pub clock: Arc<dyn Fn() -> Timestamp + Send + Sync>,
}

/// A quota by its namespace and name.
type Place = (String, String);

/// Keeps the books until it is dropped.
pub async fn run(clients: Clients, config: Config) {
    let guard = Guard::new(NAME, &clients);
    let client = clients.watch.clone();
    let (tell, mut told) = mpsc::channel(256);
    let mut tasks = JoinSet::new();
    let watches = Watches { config: config.clone(), tell, supervisor: clients.supervisor.clone() };
    watches.start(&mut tasks, "resourcequotas", None, Api::<ResourceQuota>::all(client.clone()));
    let mut state = State::default();
    let mut tick = tokio::time::interval(EVERYTHING);
    loop {
        let now = (config.clock)();
        // What happened comes first, so that a quota is measured once for all of it.
        while let Ok(event) = told.try_recv() {
            state.take(event);
        }
        if let Some(place) = state.due.take(now) {
            let quota = state.quotas.get(&place).map(Subject::of);
            let kept = guard.reconcile(|| quota, keep(&clients, &config, &mut state, &place)).await;
            let went = kept.unwrap_or(Went::Badly);
            // One that fails waits, longer each time, while the others are measured.
            state.due.done(place, went, (config.clock)());
        } else {
            tokio::select! {
                event = told.recv() => match event {
                    Some(event) => state.take(event),
                    None => return,
                },
                _ = tick.tick() => state.quotas.keys().for_each(|place| state.due.touch(place.clone())),
                () = state.due.due(now) => {}
            }
        }
        for kind in state.unwatched() {
            // Not served here, or not yet: asked again with the next look at everything.
            if let Some(resource) = kind.resolve(&client).await {
                watches.count(&mut tasks, &client, &kind, &resource);
                state.watched.insert(kind, resource);
            }
        }
    }
}

/// Watches quotas and what they count.
struct Watches {
    config: Config,
    tell: mpsc::Sender<Told>,
    supervisor: Supervisor,
}

impl Watches {
    /// Watches what a quota counts.
    fn count(&self, tasks: &mut JoinSet<()>, client: &Client, kind: &Kind, resource: &ApiResource) {
        let (client, of) = (client.clone(), Some(kind.clone()));
        match kind.name() {
            ("", "pods") => self.start(tasks, "pods", of, Api::<Pod>::all(client)),
            ("", "services") => self.start(tasks, "services", of, Api::<Service>::all(client)),
            ("", "persistentvolumeclaims") => {
                self.start(tasks, "persistentvolumeclaims", of, Api::<PersistentVolumeClaim>::all(client));
            }
            (group, plural) => {
                let name = format!("{plural}.{group}");
                let api = Api::<DynamicObject>::all_with(client, resource);
                self.start(tasks, name.trim_end_matches('.'), of, api);
            }
        }
    }

    fn start<K: watching::Followed>(
        &self,
        tasks: &mut JoinSet<()>,
        name: &str,
        kind: Option<Kind>,
        api: Api<K>,
    ) {
        let (config, tell) = (self.config.clone(), self.tell.clone());
        // A restarted controller does not know which objects existed before; it sees deletions from then on.
        tasks.spawn(self.supervisor.keep(&format!("quota-informer/{name}"), move || {
            follow(api.clone(), config.clone(), kind.clone(), tell.clone())
        }));
    }
}

/// What is known.
#[derive(Default)]
struct State {
    quotas: BTreeMap<Place, ResourceQuota>,
    watched: BTreeMap<Kind, ApiResource>,
    due: Queue,
}

impl State {
    /// Takes in what happened, and notes which quotas it concerns.
    fn take(&mut self, told: Told) {
        match told {
            Told::Quota(quota) => {
                let place = watching::place(&quota.metadata);
                if is_stale(&quota) {
                    self.due.touch(place.clone());
                }
                self.quotas.insert(place, *quota);
            }
            Told::NoQuota(place) => {
                self.quotas.remove(&place);
            }
            Told::Released { namespace, kind } => {
                let concerned = self.quotas.range((namespace.clone(), String::new())..);
                let concerned = concerned.take_while(|((of, _), _)| *of == namespace);
                let counts = |quota: &ResourceQuota| kinds(quota).contains(&kind);
                for (place, _) in concerned.filter(|(_, quota)| counts(quota)) {
                    self.due.touch(place.clone());
                }
            }
        }
    }

    /// The kinds that quotas count and nobody watches.
    fn unwatched(&self) -> Vec<Kind> {
        let counted: BTreeSet<Kind> = self.quotas.values().flat_map(kinds).collect();
        counted.into_iter().filter(|kind| !self.watched.contains_key(kind)).collect()
    }
}

fn hard(quota: &ResourceQuota) -> Option<&WireList> {
    quota.spec.as_ref().and_then(|spec| spec.hard.as_ref())
}

/// The kinds that a quota counts.
fn kinds(quota: &ResourceQuota) -> BTreeSet<Kind> {
    hard(quota).into_iter().flatten().filter_map(|(name, _)| Kind::of(name)).collect()
}

/// Whether a quota says something else than is in force, or nobody has counted for it.
fn is_stale(quota: &ResourceQuota) -> bool {
    let status = quota.status.clone().unwrap_or_default();
    let (wanted, known) = (ResourceList::read(hard(quota)), ResourceList::read(status.hard.as_ref()));
    wanted != known || status.hard.is_none() || status.used.is_none()
}

/// The status that a quota is to have, given what it counts; nothing if it has that.
fn decide<'a>(
    quota: &ResourceQuota,
    watched: impl Fn(&Kind) -> bool,
    items: impl IntoIterator<Item = Counted<'a>>,
) -> Result<Option<ResourceQuotaStatus>, plumb_resize::list::BadQuantity> {
    let measured = measure(quota, items)?;
    let measured = measured.only(|name| Kind::of(name).is_some_and(|kind| watched(&kind)));
    let status = quota.status.as_ref();
    let before = ResourceList::read(status.and_then(|status| status.used.as_ref()))?;
    if !is_stale(quota) && before == measured {
        return Ok(None);
    }
    Ok(Some(ResourceQuotaStatus {
        hard: Some(ResourceList::read(hard(quota))?.to_wire()),
        used: Some(measured.to_wire()),
    }))
}

/// Measures one quota, and writes what came of it.
async fn keep(clients: &Clients, config: &Config, state: &mut State, place: &Place) -> Went {
    match try_keep(clients, config, state, place).await {
        Ok(false) => Went::Well,
        // Something may have been made between the list and the moment from which it is charged.
        Ok(true) => Went::Again,
        Err(error) => {
            tracing::debug!(%error, namespace = place.0, quota = place.1, "a quota could not be measured, will try again");
            Went::Badly
        }
    }
}

/// Whether the quota came into force by this, and so has to be looked at once more.
async fn try_keep(
    clients: &Clients,
    config: &Config,
    state: &mut State,
    place: &Place,
) -> kube::Result<bool> {
    // Whoever keeps the books may list and watch, but not get.
    let quotas = Api::<ResourceQuota>::namespaced(clients.watch.clone(), &place.0);
    let named = ListParams::default().fields(&format!("metadata.name={}", place.1));
    let Some(mut quota) = quotas.list(&named).await?.items.pop() else {
        state.quotas.remove(place);
        return Ok(false);
    };
    let held = list(&clients.watch, &place.0, &quota, state).await?;
    let now = (config.clock)();
    let items = held.iter().flat_map(|(kind, list)| list.counted(kind, now, &config.rules));
    let decided = decide(&quota, |kind| state.watched.contains_key(kind), items);
    let status = match decided {
        Ok(None) => return Ok(false),
        Ok(Some(status)) => status,
        Err(error) => {
            tracing::warn!(%error, namespace = place.0, quota = place.1, "a quota counts what cannot be read");
            return Ok(false);
        }
    };
    let came_into_force = is_stale(&quota);
    quota.status = Some(status);
    let quotas = Api::<ResourceQuota>::namespaced(clients.write.clone(), &place.0);
    match quotas.replace_status(&place.1, &PostParams::default(), &quota).await {
        Ok(_) => Ok(came_into_force),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(true),
        Err(error) => Err(error),
    }
}

/// What is listed of one kind.
enum Held {
    Pods(Vec<Pod>),
    Services(Vec<Service>),
    Claims(Vec<PersistentVolumeClaim>),
    Others(usize),
}

impl Held {
    fn counted<'a>(&'a self, kind: &'a Kind, now: Timestamp, rules: &'a Rules) -> Vec<Counted<'a>> {
        let (group, plural) = kind.name();
        let of = |item: Item<'a>| Counted { group, plural, item, now, rules };
        match self {
            Self::Pods(pods) => pods.iter().map(|pod| of(Item::Pod(pod))).collect(),
            Self::Services(services) => services.iter().map(|service| of(Item::Service(service))).collect(),
            Self::Claims(claims) => claims.iter().map(|claim| of(Item::Claim(claim))).collect(),
            Self::Others(count) => vec![of(Item::Other); *count],
        }
    }
}

/// Everything in a namespace that a quota counts.
async fn list(
    client: &Client,
    namespace: &str,
    quota: &ResourceQuota,
    state: &State,
) -> kube::Result<Vec<(Kind, Held)>> {
    let all = ListParams::default();
    let mut held = Vec::new();
    for kind in kinds(quota) {
        let Some(resource) = state.watched.get(&kind) else { continue };
        let client = client.clone();
        let found = match kind.name() {
            ("", "pods") => Held::Pods(Api::namespaced(client, namespace).list(&all).await?.items),
            ("", "services") => Held::Services(Api::namespaced(client, namespace).list(&all).await?.items),
            ("", "persistentvolumeclaims") => {
                Held::Claims(Api::namespaced(client, namespace).list(&all).await?.items)
            }
            _ => {
                let api = Api::<DynamicObject>::namespaced_with(client, namespace, resource);
                Held::Others(api.list_metadata(&all).await?.items.len())
            }
        };
        held.push((kind, found));
    }
    Ok(held)
}

#[cfg(test)]
mod tests {

    use super::*;

    fn quota(hard: &[(&str, &str)], used: Option<&[(&str, &str)]>) -> ResourceQuota {
        let wire = |list: &[(&str, &str)]| -> WireList {
            list.iter()
                .map(|(name, amount)| {
                    let amount =
                        k8s_openapi::apimachinery::pkg::api::resource::Quantity((*amount).to_owned());
                    ((*name).to_owned(), amount)
                })
                .collect()
        };
        ResourceQuota {
            spec: Some(k8s_openapi::api::core::v1::ResourceQuotaSpec {
                hard: Some(wire(hard)),
                ..Default::default()
            }),
            status: used.map(|used| ResourceQuotaStatus { hard: Some(wire(hard)), used: Some(wire(used)) }),
            ..Default::default()
        }
    }

    #[test]
    fn only_what_changed_is_written_and_only_of_what_is_watched() {
        let rules = Rules::v1_36();
        let map = Counted {
            group: "",
            plural: "configmaps",
            item: Item::Other,
            now: Timestamp::UNIX_EPOCH,
            rules: &rules,
        };
        let hard = [("configmaps", "5"), ("count/widgets.example.com", "1")];
        let watched = |kind: &Kind| kind.name() == ("", "configmaps");
        let fresh = decide(&quota(&hard, None), watched, [map, map]).unwrap().unwrap();
        assert_eq!(fresh.used.unwrap().keys().collect::<Vec<_>>(), ["configmaps"]);
        let same = quota(&hard, Some(&[("configmaps", "2")]));
        assert_eq!(decide(&same, watched, [map, map]).unwrap(), None);
        let released = decide(&same, watched, [map]).unwrap().unwrap();
        assert_eq!(released.used.unwrap()["configmaps"].0, "1");
    }
}
