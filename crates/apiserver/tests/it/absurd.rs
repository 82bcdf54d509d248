//! Objects of every kind whose fields hold what no reasonable client would send: refused or stored, shown as a
//! table, changed and deleted, and never a panic.

use plumb_apischema::Schema;
use plumb_apischema::schema::{Shape, StructId, TypeId};
use plumb_resize::rules::Rules;
use serde_json::{Map, Value, json};

use super::test_api_server::{TestApiServer, pod};

/// How many objects are made of each kind.
const OBJECTS: usize = 3;

/// Numbers without an order, the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }

    fn one_of(&mut self, values: &[Value]) -> Value {
        values[self.below(values.len())].clone()
    }

    /// An object of a struct, most of its fields given.
    fn structure(&mut self, id: StructId, depth: usize) -> Value {
        let fields = Schema::builtin()[id].fields();
        let mut object = Map::new();
        for field in fields.iter().filter(|field| field.through != Some("TypeMeta")) {
            if depth > 0 && self.below(3) > 0 {
                object.insert(field.json.to_owned(), self.value(field.ty, depth - 1));
            }
        }
        object.into()
    }

    fn value(&mut self, ty: TypeId, depth: usize) -> Value {
        let schema = Schema::builtin();
        match schema[ty].shape {
            Shape::Struct(id) => self.structure(id, depth),
            Shape::Pointer(inner) => self.value(inner, depth),
            Shape::List(inner) | Shape::WrappedList(inner) => {
                (0..self.below(3)).map(|_| self.value(inner, depth)).collect::<Vec<_>>().into()
            }
            Shape::Map(inner) => {
                let key =
                    self.one_of(&[json!("a"), json!("cpu"), json!(""), json!("hugepages-"), json!("ü/ü")]);
                json!({ key.as_str().unwrap_or_default(): self.value(inner, depth) })
            }
            Shape::Bool => self.one_of(&[json!(true), json!(false)]),
            Shape::Int32 => self.one_of(&[json!(i32::MAX), json!(i32::MIN), json!(0), json!(-1), json!(1)]),
            Shape::Int64 => self.one_of(&[json!(i64::MAX), json!(i64::MIN), json!(0), json!(-1), json!(1)]),
            Shape::Double => self.one_of(&[json!(1e308), json!(-1e308), json!(0.0)]),
            Shape::Quantity => self.one_of(&[
                json!("9223372036854775807"),
                json!("-1n"),
                json!("1e30"),
                json!("0"),
                json!("1Ei"),
            ]),
            Shape::IntOrString => self.one_of(&[
                json!(i32::MIN),
                json!("-9999999999%"),
                json!("100%"),
                json!("x"),
                json!(i32::MAX),
            ]),
            Shape::Time => self.one_of(&[
                json!("0001-01-01T00:00:00Z"),
                json!("9999-12-31T23:59:59Z"),
                json!("2026-01-02T03:04:05Z"),
                json!("1969-12-31T23:59:59-12:00"),
            ]),
            Shape::MicroTime => {
                self.one_of(&[json!("0001-01-01T00:00:00.000000Z"), json!("9999-12-31T23:59:59.999999Z")])
            }
            Shape::Duration => self.one_of(&[json!("2562047h47m16.854775807s"), json!("-1ns"), json!("0s")]),
            Shape::Bytes => self.one_of(&[json!(""), json!("AA=="), json!("////")]),
            Shape::Text => self.one_of(&[
                json!(""),
                json!("a"),
                json!("Always"),
                json!("-"),
                json!("ü\u{0}\u{feff}"),
                json!("9".repeat(40)),
                json!("*/0 99 * * *"),
                json!("a/b/c/d"),
                json!("256.0.0.1/33"),
                json!("{{}}$(x)"),
                json!("x".repeat(300)),
            ]),
            _ => self.one_of(&[json!({}), json!({ "a": [1] }), Value::Null]),
        }
    }
}

#[tokio::test]
async fn random_objects_of_every_kind_are_rejected_or_stored_without_a_panic() {
    let mut dice = Dice(7);
    let (mut stored, mut refused) = (0, 0);
    for rules in [Rules::kep(), Rules::v1_36()] {
        let apiserver = TestApiServer::open(rules);
        for resource in Schema::builtin().resources() {
            let Some(kind) = Schema::builtin().kind(resource.group, resource.version, resource.kind) else {
                continue;
            };
            let group = if resource.group.is_empty() {
                "/api".to_owned()
            } else {
                format!("/apis/{}", resource.group)
            };
            let namespaced = resource.scope == plumb_apischema::schema::Scope::Namespaced;
            let namespace = if namespaced { "/namespaces/default" } else { "" };
            let path = format!("{group}/{}{namespace}/{}", resource.version, resource.plural);
            for number in 0..OBJECTS {
                let mut object = dice.structure(kind.body, 4);
                let name = format!("absurd-{number}");
                if dice.below(8) > 0 {
                    object["metadata"] =
                        json!({ "name": name, "generation": i64::MAX, "finalizers": ["a.b/c"] });
                }
                let answer = apiserver.post(&path, &object).await;
                if answer.status.is_success() {
                    stored += 1;
                } else {
                    assert!(answer.status.as_u16() < 500 || answer.status == 503, "{path}: {}", answer.body);
                    refused += 1;
                }
                // The same as another version, as a status, and as a patch.
                let own = format!("{path}/{name}");
                for below in ["", "/status", "/scale"] {
                    let answer = apiserver.put(&format!("{own}{below}"), &dice.structure(kind.body, 5)).await;
                    assert_ne!(answer.status, 500, "{own}{below}: {}", answer.body);
                    let patch = dice.structure(kind.body, 4);
                    // Upstream counts some patches that make no sense as its own mistake, and so do we.
                    apiserver.strategic(&format!("{own}{below}"), &patch).await;
                }
                let options = json!({ "gracePeriodSeconds": i64::MAX, "propagationPolicy": "Foreground" });
                let answer = apiserver.delete(&own, &options).await;
                assert_ne!(answer.status, 500, "{own}: {}", answer.body);
            }
            let table = apiserver.table(&path).await;
            // The server has no metrics source.
            let unmeasured = resource.group == "metrics.k8s.io" && table.status == 503;
            assert!(
                table.status.is_success() || table.status == 404 || table.status == 405 || unmeasured,
                "{path}: {}",
                table.body
            );
        }
    }
    assert!(stored > 100 && refused > 100, "{stored} stored, {refused} refused");
}

#[tokio::test]
async fn an_end_beyond_the_last_moment_is_put_off_until_then() {
    let apiserver = TestApiServer::open(Rules::kep());
    let pods = "/api/v1/namespaces/default/pods";
    apiserver.post(pods, &pod("web", "1", "1Gi")).await.ok();
    let binding = json!({ "metadata": { "name": "web" }, "target": { "kind": "Node", "name": "n1" } });
    apiserver.post(&format!("{pods}/web/binding"), &binding).await.ok();
    let options = json!({ "gracePeriodSeconds": i64::MAX });
    let deleting = apiserver.delete(&format!("{pods}/web"), &options).await.ok();
    assert_eq!(deleting["metadata"]["deletionTimestamp"], "9999-12-30T22:00:00Z");
    assert_eq!(deleting["metadata"]["deletionGracePeriodSeconds"], i64::MAX);
}
