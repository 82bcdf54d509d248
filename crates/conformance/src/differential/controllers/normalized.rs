//! The objects of a namespace, without unpredictable values.
//!
//! An object that a controller creates has an unpredictable name. Here its name is that of its owner, with a number:
//! the second ReplicaSet of the deployment `web` is `web#2`, and its pods are `web#2#1`, `web#2#2`, … The number is
//! their order by all predictable fields, so that equal namespaces have equal normalized forms.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::super::compare::{Difference, lists, values};
use super::super::mask::Mask;
use super::kinds::KINDS;
use super::view::NamespaceObjects;

/// The prefix of volumes that the API server adds to pods.
const ACCESS: &str = "kube-api-access-";
/// The prefix of the message of an aggregated event; which of the events it has last is random.
const COMBINED: &str = "(combined from similar events)";
/// The length of the random suffix of a generated name.
const MADE_UP: usize = 5;
/// The annotation of a Job with its scheduled time.
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// The objects of a namespace. Their keys are `deployments/web`, `pods/web#1#2`.
#[derive(Debug, Default)]
pub(super) struct NormalizedNamespace {
    objects: BTreeMap<String, Value>,
    real: BTreeMap<String, Value>,
    events: Vec<(String, String)>,
}

/// Unpredictable words, and their replacements.
#[derive(Default)]
struct Words {
    /// All replacements.
    exact: Vec<(String, String)>,
    /// The same without numbers of pods, for messages about the past: which pod was meant is unknown.
    loose: Vec<(String, String)>,
}

impl Words {
    fn learn(&mut self, word: Option<&str>, shown: &str, loosely: &str) {
        let Some(word) = word.filter(|word| !word.is_empty()) else { return };
        if self.exact.iter().all(|(known, _)| known != word) {
            self.exact.push((word.to_owned(), shown.to_owned()));
            self.loose.push((word.to_owned(), loosely.to_owned()));
        }
    }

    fn mask(&self) -> Mask {
        Mask::of(self.exact.iter().cloned())
    }

    /// Adds the replacements for an object once its key is known.
    fn meet(&mut self, kind: &str, object: &Value, called: &str, loosely: &str) {
        let metadata = &object["metadata"];
        let (name, uid) = (metadata["name"].as_str(), metadata["uid"].as_str());
        if name != Some(called) {
            self.learn(name, called, loosely);
            let hash = name.and_then(|name| hash(kind, name, metadata));
            self.learn(hash, &format!("<hash of {called}>"), &format!("<hash of {loosely}>"));
        }
        self.learn(uid, &format!("<uid of {kind}/{called}>"), &format!("<uid of {kind}/{loosely}>"));
        for name in accesses(object) {
            self.learn(Some(name), "kube-api-access", "kube-api-access");
        }
    }
}

/// The names of the volumes that the API server adds to a pod.
fn accesses(object: &Value) -> impl Iterator<Item = &str> {
    let volumes = object["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume["name"].as_str()).filter(|name| name.starts_with(ACCESS))
}

/// The suffix of a name that is the value of a label, after a dash.
fn hash<'a>(kind: &str, name: &str, metadata: &'a Value) -> Option<&'a str> {
    if !matches!(kind, "replicasets" | "controllerrevisions") {
        return None;
    }
    let values = metadata["labels"].as_object()?.values().filter_map(Value::as_str);
    let mut hashes = values.filter(|value| {
        !value.is_empty() && name.strip_suffix(value).is_some_and(|start| start.ends_with('-'))
    });
    hashes.find(|value| value.bytes().any(|byte| byte.is_ascii_digit()) || value.len() > 5)
}

/// The prefix of a generated name.
fn prefix<'a>(kind: &str, metadata: &'a Value) -> Option<&'a str> {
    let name = metadata["name"].as_str()?;
    // A StatefulSet numbers its pods, and generates no letters.
    let generated = metadata["generateName"]
        .as_str()
        .filter(|start| name.strip_prefix(start).is_some_and(|made_up| made_up.len() == MADE_UP));
    let hashed = || name.strip_suffix(hash(kind, name, metadata)?);
    let scheduled = || {
        metadata["annotations"].get(SCHEDULED)?;
        Some(name.trim_end_matches(|letter: char| letter.is_ascii_digit()))
    };
    // A slice that replaces another one takes its name, and loses the prefix that it was generated from.
    let of_service = || {
        let service = metadata["labels"]["kubernetes.io/service-name"].as_str()?;
        let made_up = name.strip_prefix(service)?.strip_prefix('-')?;
        (kind == "endpointslices" && made_up.len() == MADE_UP).then_some(service)
    };
    generated.or_else(hashed).or_else(scheduled).or_else(of_service).map(|start| start.trim_end_matches('-'))
}

/// The sort key among the objects of one owner: revisions by age, everything else by content.
fn order(object: &Value, mask: &Mask) -> (i64, String) {
    let metadata = &object["metadata"];
    let annotated = metadata["annotations"]["deployment.kubernetes.io/revision"].as_str();
    let revision = object["revision"].as_i64().or_else(|| annotated?.parse().ok());
    let own = [(&metadata["name"], "<name>"), (&metadata["uid"], "<uid>")];
    let own = own.into_iter().filter_map(|(word, shown)| Some((word.as_str()?, shown)));
    let own = own.chain(accesses(object).map(|name| (name, "<access>")));
    let own = own.map(|(word, shown)| (word.to_owned(), shown.to_owned()));
    // Its own name first, since it begins with its owner's.
    let shown = mask.object(&Mask::of(own).object(&plain(object)));
    (revision.unwrap_or_default(), shown.to_string())
}

/// A text without the names of pods that were refused, which no object has.
fn without_refused(text: &str) -> String {
    const BEFORE: &str = "pods \"";
    let mut parts = text.split(BEFORE);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('"').unwrap_or((part, ""));
        let made_up = name.rsplit_once('-').filter(|(_, end)| end.len() == MADE_UP);
        let name = made_up.map_or_else(|| name.to_owned(), |(start, _)| format!("{start}#"));
        shown = format!("{shown}{BEFORE}{name}\"{rest}");
    }
    shown
}

/// A value without fields that are not compared anywhere.
fn cleared(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(without_refused(text)),
        Value::Array(list) => list.iter().map(cleared).collect(),
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| *key != "resourceVersion");
            kept.map(|(key, value)| (key.clone(), cleared(value))).collect()
        }
        other => other.clone(),
    }
}

/// An object without fields that are not compared.
fn plain(object: &Value) -> Value {
    let mut object = cleared(object);
    if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    if object["metadata"]["name"] == "kube-root-ca.crt"
        && let Some(data) = object.pointer_mut("/data").and_then(Value::as_object_mut)
    {
        data.values_mut().for_each(|value| *value = json!("<authority>"));
    }
    mask_addresses(&mut object);
    sort_endpoints(&mut object);
    // The order of the list has no meaning.
    for (list, by) in [("/status/conditions", ["type", "status"]), ("/spec/taints", ["key", "effect"])] {
        if let Some(list) = object.pointer_mut(list).and_then(Value::as_array_mut) {
            list.sort_by_key(|one| by.map(|field| one[field].to_string()));
        }
    }
    object
}

/// Masks the addresses and ports that the API server allocates to a Service.
fn mask_addresses(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if spec.get("clusterIP").is_none_or(|ip| ip == "None") {
        return;
    }
    spec.insert("clusterIP".to_owned(), json!("<address>"));
    if let Some(all) = spec.get_mut("clusterIPs").and_then(Value::as_array_mut) {
        all.fill(json!("<address>"));
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(port) = port.get_mut("nodePort") {
            *port = json!("<port>");
        }
    }
}

/// Sorts lists that kube-controller-manager takes from a map, or sorts by hashes of uids and generated names.
fn sort_endpoints(object: &mut Value) {
    if let Some(endpoints) = object.get_mut("endpoints").and_then(Value::as_array_mut) {
        endpoints.sort_by_key(|endpoint| endpoint["addresses"].to_string());
    }
    if let Some(subsets) = object.get_mut("subsets").and_then(Value::as_array_mut) {
        subsets.sort_by_key(|subset| (subset["ports"].to_string(), subset["addresses"][0]["ip"].to_string()));
    }
}

impl NormalizedNamespace {
    /// Normalizes a namespace.
    pub(super) fn of(namespace: &str, found: &NamespaceObjects) -> Self {
        let mut words = Words::default();
        words.learn(Some(namespace), "$namespace", "$namespace");
        let mut named: Vec<(String, &Value)> = Vec::new();
        for kind in KINDS.iter().map(|kind| kind.plural).filter(|kind| *kind != "events") {
            let mask = words.mask();
            let there = found.there.iter().filter(|((known, _), _)| *known == kind).map(|(_, object)| object);
            let mut made_up: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
            for object in there {
                let metadata = &object["metadata"];
                if let Some(prefix) = prefix(kind, metadata) {
                    made_up.entry(mask.text(prefix)).or_default().push(object);
                } else {
                    let name = metadata["name"].as_str().unwrap_or_default();
                    let called = mask.text(name);
                    words.meet(kind, object, &called, &called);
                    named.push((format!("{kind}/{called}"), object));
                }
            }
            for (prefix, mut objects) in made_up {
                objects.sort_by_cached_key(|object| order(object, &mask));
                for (i, object) in objects.into_iter().enumerate() {
                    let called = format!("{prefix}#{}", i + 1);
                    let loosely = if kind == "pods" { format!("{prefix}#") } else { called.clone() };
                    words.meet(kind, object, &called, &loosely);
                    named.push((format!("{kind}/{called}"), object));
                }
            }
            for (_, object) in found.gone.iter().filter(|(known, _)| *known == kind) {
                let metadata = &object["metadata"];
                let name = metadata["name"].as_str().unwrap_or_default();
                let called = prefix(kind, metadata)
                    .map_or_else(|| mask.text(name), |prefix| format!("{}#", mask.text(prefix)));
                words.meet(kind, object, &called, &called);
            }
        }
        let mask = words.mask();
        let loose = Mask::of(words.loose);
        let is_event = |((kind, _), event)| (kind == "events").then_some(event);
        let mut events: Vec<(String, String)> = found
            .there
            .iter()
            .map(|((kind, name), event)| ((*kind, name), event))
            .filter_map(is_event)
            .map(|event| said(event, &loose))
            .collect();
        events.sort();
        events.dedup();
        Self {
            objects: named.iter().map(|(key, object)| (key.clone(), mask.object(&plain(object)))).collect(),
            real: named.into_iter().map(|(key, object)| (key, object.clone())).collect(),
            events,
        }
    }

    /// All objects by key.
    pub(super) fn objects(&self) -> &BTreeMap<String, Value> {
        &self.objects
    }

    /// An object before normalization.
    pub(super) fn real(&self, key: &str) -> Option<&Value> {
        self.real.get(key)
    }

    /// The differences to another.
    pub(super) fn differences(&self, subject: &Self) -> Vec<Difference> {
        let mut found = Vec::new();
        let keys =
            self.objects.keys().chain(subject.objects.keys().filter(|key| !self.objects.contains_key(*key)));
        for key in keys {
            values(&mut found, key, self.objects.get(key), subject.objects.get(key));
        }
        lists(&mut found, "order of events", self.events.clone(), subject.events.clone());
        found
    }
}

/// The message of an event, and its object.
fn said(event: &Value, mask: &Mask) -> (String, String) {
    let about = &event["involvedObject"];
    let text = |value: &Value| mask.text(&without_refused(value.as_str().unwrap_or_default()));
    let at = format!("event of {} {}", text(&about["kind"]), text(&about["name"]));
    let mut said = ["type", "reason", "message"].map(|field| text(&event[field]));
    if said[2].starts_with(COMBINED) {
        COMBINED.clone_into(&mut said[2]);
    }
    let by = text(&event["source"]["component"]);
    (at, format!("{} (by {by})", said.join(" ")))
}
