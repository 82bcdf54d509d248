//! Which pods each Service selects, kept up to date by the changes of pods and Services.
//!
//! A change of a pod looks up the Services by the pod's labels; a change of a Service's selector goes over the pods of its
//! namespace once. Nothing else is proportional to the number of pods.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Pod, Service};
use parking_lot::Mutex;
use plumb_controller_runtime::{ObjectRef, Store};

use super::{pods, selector};

type Labels = BTreeMap<String, String>;
type Subscriber = Box<dyn Fn(&ObjectRef) + Send + Sync>;

/// The pods of each Service with a selector.
pub struct Membership {
    pods: Arc<Store<Pod>>,
    state: Mutex<State>,
    subscribers: Mutex<Vec<Subscriber>>,
}

#[derive(Default)]
struct State {
    services: HashMap<ObjectRef, Members>,
    /// The names of Services, by their namespace and the first label that they select by.
    by_label: HashMap<(String, String, String), BTreeSet<String>>,
}

struct Members {
    selector: Labels,
    pods: BTreeSet<String>,
}

impl Membership {
    /// The membership of the pods and Services of two stores. Handlers of these stores that are added later find it up to date.
    pub fn new(services: &Arc<Store<Service>>, pods: &Arc<Store<Pod>>) -> Arc<Self> {
        let membership =
            Arc::new(Self { pods: pods.clone(), state: Mutex::default(), subscribers: Mutex::default() });
        let own = membership.clone();
        services.add_handler(move |change| {
            let Some(service) = change.latest() else { return };
            own.service_changed(&ObjectRef::of(&**service), change.after.and_then(|after| selector(after)));
        });
        let own = membership.clone();
        pods.add_handler(move |change| {
            own.pod_changed(change.before.map(|pod| &**pod), change.after.map(|pod| &**pod));
        });
        membership
    }

    /// Has a function called for each Service whose endpoints a change of a pod may change.
    pub fn subscribe(&self, subscriber: impl Fn(&ObjectRef) + Send + Sync + 'static) {
        self.subscribers.lock().push(Box::new(subscriber));
    }

    /// The pods that a Service selects, by name.
    pub fn pods(&self, service: &ObjectRef) -> Vec<Arc<Pod>> {
        let state = self.state.lock();
        let names: Vec<String> = state
            .services
            .get(service)
            .map(|members| members.pods.iter().cloned().collect())
            .unwrap_or_default();
        drop(state);
        let pod = |name: String| self.pods.get(&ObjectRef::namespaced(&*service.namespace, name));
        names.into_iter().filter_map(pod).collect()
    }

    fn service_changed(&self, service: &ObjectRef, selector: Option<&Labels>) {
        let mut state = self.state.lock();
        if state.services.get(service).map(|members| &members.selector) == selector {
            return;
        }
        if let Some(members) = state.services.remove(service)
            && let Some(key) = index_key(&service.namespace, &members.selector)
            && let Some(names) = state.by_label.get_mut(&key)
        {
            names.remove(&service.name);
            if names.is_empty() {
                state.by_label.remove(&key);
            }
        }
        let Some(selector) = selector else { return };
        let Some(key) = index_key(&service.namespace, selector) else { return };
        state.by_label.entry(key).or_default().insert(service.name.clone());
        let selected =
            self.pods.in_namespace(&service.namespace).into_iter().filter(|pod| matches(selector, pod));
        let pods = selected.filter_map(|pod| pod.metadata.name.clone()).collect();
        state.services.insert(service.clone(), Members { selector: selector.clone(), pods });
    }

    fn pod_changed(&self, before: Option<&Pod>, after: Option<&Pod>) {
        let Some(latest) = after.or(before) else { return };
        let touched = self.state.lock().apply(before, after, latest);
        if touched.is_empty() {
            return;
        }
        let subscribers = self.subscribers.lock();
        for service in &touched {
            for subscriber in &*subscribers {
                subscriber(service);
            }
        }
    }
}

impl State {
    /// Applies a change of a pod, and returns the Services whose endpoints it changes.
    fn apply(&mut self, before: Option<&Pod>, after: Option<&Pod>, latest: &Pod) -> BTreeSet<ObjectRef> {
        let relabelled = match (before, after) {
            (Some(before), Some(after)) => before.metadata.labels != after.metadata.labels,
            _ => true,
        };
        let changed = match (before, after) {
            (Some(before), Some(after)) => pods::endpoint_changed(before, after),
            _ => true,
        };
        if !relabelled && !changed {
            return BTreeSet::new();
        }
        let now = after.map(|pod| self.selecting(pod)).unwrap_or_default();
        if !relabelled {
            return now;
        }
        let then = before.map(|pod| self.selecting(pod)).unwrap_or_default();
        let name = latest.metadata.name.as_deref().unwrap_or_default();
        for service in then.difference(&now) {
            if let Some(members) = self.services.get_mut(service) {
                members.pods.remove(name);
            }
        }
        for service in &now {
            if let Some(members) = self.services.get_mut(service) {
                members.pods.insert(name.to_owned());
            }
        }
        if changed { &then | &now } else { &then ^ &now }
    }

    /// The Services that select a pod.
    fn selecting(&self, pod: &Pod) -> BTreeSet<ObjectRef> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut found = BTreeSet::new();
        for (key, value) in pod.metadata.labels.iter().flatten() {
            let Some(names) = self.by_label.get(&(namespace.to_owned(), key.clone(), value.clone())) else {
                continue;
            };
            let services = names.iter().map(|name| ObjectRef::namespaced(namespace, &**name));
            found.extend(services.filter(|service| {
                self.services.get(service).is_some_and(|members| matches(&members.selector, pod))
            }));
        }
        found
    }
}

/// The key that a Service with this selector is found by: every pod that it selects has this label.
fn index_key(namespace: &str, selector: &Labels) -> Option<(String, String, String)> {
    let (key, value) = selector.first_key_value()?;
    Some((namespace.to_owned(), key.clone(), value.clone()))
}

fn matches(selector: &Labels, pod: &Pod) -> bool {
    let labels = pod.metadata.labels.as_ref();
    selector.iter().all(|(key, value)| labels.and_then(|labels| labels.get(key)) == Some(value))
}

#[cfg(test)]
mod tests {
    use plumb_controller_runtime::WatchEvent;
    use serde_json::{Value, json};

    use super::*;

    struct Fixture {
        services: Arc<Store<Service>>,
        pods: Arc<Store<Pod>>,
        membership: Arc<Membership>,
        touched: Arc<Mutex<Vec<String>>>,
    }

    impl Fixture {
        fn new() -> Self {
            let (services, pods): (Arc<Store<Service>>, Arc<Store<Pod>>) = (Arc::default(), Arc::default());
            let membership = Membership::new(&services, &pods);
            let touched: Arc<Mutex<Vec<String>>> = Arc::default();
            let log = touched.clone();
            membership.subscribe(move |service| log.lock().push(service.name.clone()));
            Self { services, pods, membership, touched }
        }

        fn service(&self, name: &str, selector: Value) {
            let service =
                json!({ "metadata": { "name": name, "namespace": "n" }, "spec": { "selector": selector } });
            self.services.apply(WatchEvent::Applied(Box::new(serde_json::from_value(service).unwrap())));
        }

        /// Applies a pod, and returns the Services that it touched.
        fn pod(&self, name: &str, labels: Value, ready: bool) -> Vec<String> {
            let status = if ready { "True" } else { "False" };
            let pod = json!({
                "metadata": { "name": name, "namespace": "n", "labels": labels },
                "status": { "conditions": [{ "type": "Ready", "status": status }] },
            });
            self.pods.apply(WatchEvent::Applied(Box::new(serde_json::from_value(pod).unwrap())));
            std::mem::take(&mut self.touched.lock())
        }

        fn members(&self, service: &str) -> Vec<String> {
            let pods = self.membership.pods(&ObjectRef::namespaced("n", service));
            pods.iter().filter_map(|pod| pod.metadata.name.clone()).collect()
        }
    }

    #[test]
    fn a_pod_touches_the_services_that_select_it_and_no_other() {
        let cluster = Fixture::new();
        cluster.service("web", json!({ "app": "web" }));
        cluster.service("canary", json!({ "app": "web", "track": "canary" }));
        cluster.service("db", json!({ "app": "db" }));
        cluster.service("external", Value::Null);
        assert_eq!(cluster.pod("a", json!({ "app": "web" }), false), ["web"]);
        assert_eq!(cluster.pod("a", json!({ "app": "web" }), false), [""; 0], "nothing changed");
        assert_eq!(cluster.pod("a", json!({ "app": "web" }), true), ["web"]);
        // Only the Services that gain or lose the pod are touched where it only got other labels.
        assert_eq!(cluster.pod("a", json!({ "app": "web", "track": "canary" }), true), ["canary"]);
        assert_eq!(cluster.pod("a", json!({ "app": "db" }), false), ["canary", "db", "web"]);
        assert_eq!((cluster.members("web"), cluster.members("db")), (vec![], vec!["a".to_owned()]));
    }

    #[test]
    fn a_service_that_selects_otherwise_has_other_pods() {
        let cluster = Fixture::new();
        cluster.pod("a", json!({ "app": "web", "v": "1" }), true);
        cluster.pod("b", json!({ "app": "web", "v": "2" }), true);
        cluster.service("web", json!({ "app": "web" }));
        assert_eq!(cluster.members("web"), ["a", "b"]);
        cluster.service("web", json!({ "app": "web", "v": "2" }));
        assert_eq!(cluster.members("web"), ["b"]);
        assert_eq!(cluster.pod("a", json!({ "app": "web", "v": "2" }), true), ["web"]);
        assert_eq!(cluster.members("web"), ["a", "b"]);
        cluster.service("web", Value::Null);
        assert_eq!(cluster.members("web"), [""; 0]);
        assert!(cluster.membership.state.lock().by_label.is_empty());
    }
}
