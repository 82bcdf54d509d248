//! Makes cases up.

use serde_json::{Value, json};

use super::case::{Step, Verb};
use super::edit::{edit, set};
use super::kinds::{self, Kind, Resource, common, lay_over};
use super::patch;
use super::play::Script;
use super::random::Random;
use super::words;

/// The most changes that a case makes.
const MOST_CHANGES: usize = 4;

/// A case that is made up as it goes along, from a seed and its own number.
pub(super) struct Made {
    random: Random,
    kind: &'static Kind,
    resource: Resource,
    name: String,
    number: u64,
    left: usize,
    deleting: bool,
}

impl Made {
    /// The case of a number. `None` if there is no kind to choose from.
    pub(super) fn new(seed: u64, number: u64, only: Option<&str>) -> Option<Self> {
        let mut random = Random::of(seed, number);
        let kinds: Vec<&'static Kind> =
            kinds::all().iter().filter(|kind| only.is_none_or(|only| kind.address.contains(only))).collect();
        let mut chosen = random.below(kinds.iter().map(|kind| kind.weight).sum());
        let kind = kinds.into_iter().find(|kind| {
            let found = chosen < kind.weight;
            chosen = chosen.saturating_sub(kind.weight);
            found
        })?;
        let left = random.below(MOST_CHANGES + 1);
        let deleting = random.percent(25);
        let resource = kind.resource()?;
        Some(Self { random, kind, resource, name: format!("c{number}"), number, left, deleting })
    }

    /// What it is about.
    pub(super) fn kind(&self) -> &'static str {
        &self.kind.address
    }

    fn create(&mut self) -> Step {
        let random = &mut self.random;
        let mut object = self.kind.base.clone();
        object["apiVersion"] = json!(self.resource.api_version);
        object["kind"] = json!(self.resource.kind);
        if random.percent(3) {
            object["metadata"]["generateName"] = json!(format!("{}-", self.name));
        } else {
            object["metadata"]["name"] = json!(self.name);
        }
        for _ in 0..random.below(5) {
            lay_one_over(random, self.kind, &mut object);
        }
        // About half of what is created has something wrong with it: often that is not even noticed.
        if random.percent(60) {
            for _ in 0..=random.below(2) {
                edit(random, self.resource.body, &mut object, "");
            }
        }
        // Kinds that were defined later differ in nothing else.
        if self.resource.body.is_none() && random.percent(4) {
            let field = ["kind", "apiVersion"][random.below(2)];
            object[field] = json!(words::another_kind(random));
        }
        let object = self.own(&object);
        let query = query(&mut self.random);
        self.written(Step { query, ..Step::new(Verb::Create, object) })
    }

    /// Sets this case's own address and port where a table requires them, so that no two concurrent cases take the
    /// same. Both are outside of the ranges that servers allocate from.
    fn own(&self, value: &Value) -> Value {
        match value {
            Value::String(text) if text == "$address" => json!(format!("10.96.0.{}", 10 + self.number % 200)),
            Value::String(text) if text == "$port" => json!(30000 + self.number % 80),
            Value::Array(list) => list.iter().map(|value| self.own(value)).collect(),
            Value::Object(map) => {
                // Who changed what is every server's own to say.
                let fields = map.iter().filter(|(key, _)| *key != "managedFields");
                fields.map(|(key, value)| (key.clone(), self.own(value))).collect()
            }
            other => other.clone(),
        }
    }

    fn change(&mut self, current: &Value) -> Step {
        let random = &mut self.random;
        let mut current = current.clone();
        // Who changed what is every server's own to say.
        super::edit::remove(&mut current, "/metadata/managedFields");
        let current = &current;
        let parts = &self.resource.parts;
        let part = match random.below(100) {
            0..=49 => "",
            _ => random.pick(parts).copied().unwrap_or(""),
        };
        let mut new = current.clone();
        let change = random.pick(&self.kind.changes).cloned();
        match part {
            "resize" => resize(random, &mut new),
            "status" => {
                if let Some(status) = random.pick(&self.kind.status) {
                    lay_over(&mut new["status"], status);
                }
                if random.percent(40) {
                    edit(random, self.resource.body, &mut new, "/status");
                }
            }
            _ => {
                if random.percent(60) {
                    match change {
                        Some(change) if random.percent(70) => lay_over(&mut new, &change),
                        _ => lay_one_over(random, self.kind, &mut new),
                    }
                }
                if random.percent(60) {
                    edit(random, self.resource.body, &mut new, "");
                }
            }
        }
        if random.percent(4) {
            edit(random, self.resource.body, &mut new, "/metadata");
        }
        if random.percent(3) {
            set(&mut new, "/metadata/resourceVersion", json!(["1", "", "x"][random.below(3)]));
        }
        let new = self.own(&new);
        let random = &mut self.random;
        let verbs = [Verb::Replace, Verb::Replace, Verb::Json, Verb::Merge, Verb::Strategic, Verb::Strategic];
        let verb = verbs[random.below(verbs.len())];
        let mut body = match (verb, self.resource.body) {
            (Verb::Strategic, Some(body)) => patch::strategic(body, current, &new),
            (Verb::Merge | Verb::Strategic, _) => patch::merge(current, &new),
            _ => patch::operations(current, &new),
        };
        if verb == Verb::Strategic && random.percent(15) {
            directive(random, &mut body);
        }
        let step = Step { part: part.to_owned(), query: query(random), ..Step::new(verb, body) };
        self.written(step)
    }

    /// A server-side apply of a part of the object.
    fn apply(&mut self, current: &Value) -> Step {
        let random = &mut self.random;
        let mut applied = json!({"metadata": {"name": current["metadata"]["name"]}});
        applied["apiVersion"] = json!(self.resource.api_version);
        applied["kind"] = json!(self.resource.kind);
        let status = random.pick(&self.kind.status).filter(|_| self.resource.parts.contains(&"status"));
        let mut part = "";
        match status {
            Some(status) if random.percent(25) => {
                part = "status";
                applied["status"] = status.clone();
            }
            _ => {
                for _ in 0..=random.below(2) {
                    let changes = if random.percent(50) { &self.kind.changes } else { &self.kind.with };
                    let over = if random.percent(25) { random.pick(common()) } else { random.pick(changes) };
                    if let Some(over) = over {
                        lay_over(&mut applied, over);
                    }
                }
            }
        }
        if random.percent(25) {
            edit(random, self.resource.body, &mut applied, "");
        }
        let said = query(random);
        let manager = ["one", "two", "three"][random.below(3)];
        let mut query = format!("fieldManager={manager}");
        if !said.is_empty() {
            query = format!("{said}&{query}");
        }
        if random.percent(40) {
            query.push_str("&force=true");
        }
        let applied = self.own(&applied);
        Step { part: part.to_owned(), query, ..Step::new(Verb::Apply, applied) }
    }

    /// The end of an object, with what a client says about it in the address or in a body.
    fn delete(&mut self, current: &Value) -> Step {
        let random = &mut self.random;
        if random.percent(40) {
            let query = ["", "gracePeriodSeconds=0", "propagationPolicy=Background", "dryRun=All"];
            let query = query[random.below(query.len())].to_owned();
            return Step { query, ..Step::new(Verb::Delete, Value::Null) };
        }
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        for _ in 0..=random.below(2) {
            let said = [
                json!({"preconditions": {"uid": current["metadata"]["uid"]}}),
                json!({"preconditions": {"uid": "8c1f8a52-0000-4000-8000-000000000003"}}),
                json!({"preconditions": {"resourceVersion": "1"}}),
                json!({"propagationPolicy": "Background"}),
                json!({"propagationPolicy": "Foreground"}),
                json!({"propagationPolicy": "Orphan"}),
                json!({"propagationPolicy": "Sideways"}),
                json!({"orphanDependents": true}),
                json!({"gracePeriodSeconds": 0}),
                json!({"gracePeriodSeconds": 5}),
                json!({"gracePeriodSeconds": -1}),
                json!({"dryRun": ["All"]}),
                json!({"dryRun": ["Some"]}),
            ];
            lay_over(&mut options, &said[random.below(said.len())]);
        }
        Step::new(Verb::Delete, options)
    }

    /// The same step, perhaps written otherwise: with a field twice, or as protobuf.
    fn written(&mut self, mut step: Step) -> Step {
        let random = &mut self.random;
        if matches!(step.verb, Verb::Create | Verb::Replace) && self.resource.body.is_some() {
            step.protobuf = random.percent(10);
        }
        if matches!(step.verb, Verb::Create | Verb::Merge | Verb::Strategic) && random.percent(3) {
            let fields: Vec<String> = super::edit::locations(&step.body)
                .into_iter()
                .filter(|place| place.rsplit('/').next().is_none_or(|last| last.parse::<usize>().is_err()))
                .filter(|place| !place.is_empty())
                .collect();
            step.twice = random.pick(&fields).cloned().unwrap_or_default();
        }
        step
    }
}

impl Script for Made {
    fn next(&mut self, current: Option<&Value>) -> Option<Step> {
        let Some(current) = current else {
            return Some(self.create());
        };
        if self.left == 0 {
            if !self.deleting {
                return None;
            }
            self.deleting = false;
            return Some(self.delete(current));
        }
        self.left -= 1;
        if self.random.percent(15) {
            return Some(self.apply(current));
        }
        Some(self.change(current))
    }
}

/// The parameters of a write.
fn query(random: &mut Random) -> String {
    let validation = ["", "", "fieldValidation=Strict", "fieldValidation=Warn", "fieldValidation=Ignore"];
    let mut query = validation[random.below(validation.len())].to_owned();
    if random.percent(4) {
        format!("{query}&dryRun=All").trim_start_matches('&').clone_into(&mut query);
    }
    query
}

fn lay_one_over(random: &mut Random, kind: &Kind, object: &mut Value) {
    let template = kind.template.as_deref().and_then(|template| object.pointer_mut(template));
    let pods = &kinds::all()[0].with;
    let (under, over) = match (template, random.below(100)) {
        (Some(template), 0..=39) => (template, random.pick(pods)),
        (_, 85..=99) => (object, random.pick(common())),
        _ => (object, random.pick(&kind.with)),
    };
    if let Some(over) = over {
        lay_over(under, over);
    }
}

/// Other amounts for a container, or for the pod.
fn resize(random: &mut Random, pod: &mut Value) {
    let lists = ["containers", "containers", "containers", "initContainers"];
    let list = lists[random.below(lists.len())];
    let count = pod["spec"][list].as_array().map_or(0, Vec::len);
    let mut holder = format!("/spec/{list}/{}", random.below(count));
    if count == 0 || random.percent(10) {
        "/spec".clone_into(&mut holder);
    }
    for _ in 0..=random.below(3) {
        let amounts = ["100m", "200m", "1", "64Mi", "128Mi", "1Gi"];
        let amount = match random.below(100) {
            0..=69 => json!(amounts[random.below(amounts.len())]),
            _ => words::quantity(random),
        };
        let names = ["cpu", "cpu", "memory", "memory", "ephemeral-storage", "example.com/gpu"];
        let name = names[random.below(names.len())];
        let side = ["requests", "limits"][random.below(2)];
        let Some(Value::Object(holder)) = pod.pointer_mut(&holder) else { return };
        let resources = holder.entry("resources").or_insert_with(|| json!({}));
        match random.below(10) {
            0 => resources[side] = json!({}),
            1 => *resources = json!({side: {name: amount}}),
            _ => match resources[side].as_object_mut() {
                Some(list) if random.percent(12) => drop(list.remove(name)),
                Some(list) => drop(list.insert(name.replace('~', ""), amount)),
                None => resources[side] = json!({name: amount}),
            },
        }
    }
    if random.percent(15) {
        let policy = json!([{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]);
        set(pod, &format!("{holder}/resizePolicy"), policy);
    }
}

/// Adds a directive somewhere in a strategic patch.
fn directive(random: &mut Random, patch: &mut Value) {
    let places = super::edit::locations(patch);
    let Some(place) = random.pick(&places) else { return };
    let directives = [
        ("$patch", json!("replace")),
        ("$patch", json!("delete")),
        ("$patch", json!("merge")),
        ("$patch", json!("other")),
        ("$retainKeys", json!(["name", "type"])),
        ("$deleteFromPrimitiveList/finalizers", json!(["a"])),
        ("$setElementOrder/containers", json!([{"name": "main"}])),
        ("$setElementOrder/finalizers", json!(["example.com/b"])),
    ];
    let (key, value) = &directives[random.below(directives.len())];
    if let Some(Value::Object(map)) = patch.pointer_mut(place) {
        map.insert((*key).to_owned(), value.clone());
    }
}
