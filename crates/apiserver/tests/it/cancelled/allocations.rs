//! The addresses and ports of services whose write was dropped, and the repair of allocations.

use std::time::Duration;

use http::Method;
use plumb_apiserver::serve;
use plumb_resize::rules::Rules;
use plumb_store::{Key, Write};
use serde_json::{Value, json};

use super::super::test_api_server::TestApiServer;
use super::{DEADLINE, Outcome, TestRequest, at_every_await, until};

const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESS: &str = "10.96.0.50";
const PORT: u16 = 30_500;

fn service(name: &str, spec: Value) -> Value {
    json!({ "apiVersion": "v1", "kind": "Service", "metadata": { "name": name }, "spec": spec })
}

fn with_both(name: &str) -> Value {
    let port = json!({ "port": 80, "nodePort": PORT });
    service(name, json!({ "type": "NodePort", "clusterIP": ADDRESS, "ports": [port] }))
}

/// The address and the port are given to another service exactly if no stored service has them.
async fn allocated_as_stored(apiserver: &TestApiServer, stored: bool) {
    let address = service("one", json!({ "clusterIP": ADDRESS, "ports": [{ "port": 80 }] }));
    let port = json!({ "port": 80, "nodePort": PORT });
    let port = service("two", json!({ "type": "NodePort", "ports": [port] }));
    for (service, why) in
        [(address, "provided IP is already allocated"), (port, "provided port is already allocated")]
    {
        let answer = apiserver.post(SERVICES, &service).await;
        if stored {
            let (code, _, message) = answer.rejected();
            assert_eq!(code, 422);
            assert!(message.contains(why), "{message}");
        } else {
            answer.ok();
        }
    }
}

#[tokio::test]
async fn an_address_is_allocated_exactly_if_the_service_is_stored() {
    let create = TestRequest::new(Method::POST, SERVICES, with_both("web"));
    let check = async |apiserver: &TestApiServer, outcome: Outcome| {
        allocated_as_stored(apiserver, outcome != Outcome::Undone).await;
    };
    let outcomes = at_every_await(&create, async |_: &TestApiServer| {}, check).await;
    assert_eq!(outcomes.first(), Some(&Outcome::Undone));
    assert!(outcomes.contains(&Outcome::Completed), "{outcomes:?}");
}

#[tokio::test]
async fn a_port_is_allocated_exactly_if_the_service_is_changed_to_have_it() {
    let port = json!({ "port": 80, "nodePort": PORT });
    let change = json!({ "spec": { "type": "NodePort", "ports": [port] } });
    let change = TestRequest::new(Method::PATCH, format!("{SERVICES}/web"), change);
    let prepare = async |apiserver: &TestApiServer| {
        let web = service("web", json!({ "clusterIP": "10.96.0.49", "ports": [{ "port": 80 }] }));
        apiserver.post(SERVICES, &web).await.ok();
    };
    let check = async |apiserver: &TestApiServer, outcome: Outcome| {
        let port = json!({ "port": 80, "nodePort": PORT });
        let other =
            apiserver.post(SERVICES, &service("two", json!({ "type": "NodePort", "ports": [port] }))).await;
        assert_eq!(other.status.is_success(), outcome == Outcome::Undone, "{}", other.body);
    };
    let outcomes = at_every_await(&change, prepare, check).await;
    assert!(outcomes.contains(&Outcome::Completed), "{outcomes:?}");
}

#[tokio::test]
async fn an_address_is_free_exactly_if_the_service_is_deleted() {
    let delete = TestRequest::new(Method::DELETE, format!("{SERVICES}/web"), Value::Null);
    let prepare = async |apiserver: &TestApiServer| {
        apiserver.post(SERVICES, &with_both("web")).await.ok();
    };
    let check = async |apiserver: &TestApiServer, outcome: Outcome| {
        allocated_as_stored(apiserver, outcome == Outcome::Undone).await;
    };
    let outcomes = at_every_await(&delete, prepare, check).await;
    assert!(outcomes.contains(&Outcome::Completed), "{outcomes:?}");
}

#[tokio::test]
async fn addresses_that_services_share_are_reported_to_all_but_the_first() {
    let apiserver = TestApiServer::open(Rules::kep());
    let mut first = apiserver.post(SERVICES, &with_both("b-first")).await.ok();
    // As a server would leave it that gave the address twice.
    first["metadata"]["name"] = json!("a-second");
    first["metadata"]["uid"] = json!("6f2c9d1e-0000-4000-8000-000000000002");
    let key = Key::new("core/services/default/a-second").unwrap();
    apiserver.store().write(Write::create(key, first.to_string())).await.unwrap();
    let outside = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": "outside", "namespace": "default", "uid": "6f2c9d1e-0000-4000-8000-000000000003" },
        "spec": { "clusterIPs": ["192.0.2.1"], "ports": [] },
    });
    let key = Key::new("core/services/default/outside").unwrap();
    apiserver.store().write(Write::create(key, outside.to_string())).await.unwrap();

    let (trigger, shutdown) = serve::shutdown();
    let server = apiserver.server.clone();
    let controllers =
        tokio::spawn(async move { server.run_controllers(Duration::from_mins(3), shutdown).await });
    let reported = async || {
        let events = apiserver.get("/api/v1/namespaces/default/events").await.ok();
        let events = events["items"].as_array().unwrap().clone();
        let text = |event: &Value, path: &str| event.pointer(path).unwrap().as_str().unwrap().to_owned();
        let mut found: Vec<(String, String)> = events
            .iter()
            .map(|event| (text(event, "/involvedObject/name"), text(event, "/reason")))
            .collect();
        found.sort();
        found
    };
    until(apiserver.store(), "three events", async || reported().await.len() == 3).await;
    let expected = [
        ("a-second", "ClusterIPAlreadyAllocated"),
        ("a-second", "PortAlreadyAllocated"),
        ("outside", "ClusterIPOutOfRange"),
    ];
    assert_eq!(reported().await, expected.map(|(name, reason)| (name.to_owned(), reason.to_owned())));
    // What two have is allocated until neither has it.
    apiserver.delete(&format!("{SERVICES}/b-first"), &Value::Null).await.ok();
    allocated_as_stored(&apiserver, true).await;
    apiserver.delete(&format!("{SERVICES}/a-second"), &Value::Null).await.ok();
    allocated_as_stored(&apiserver, false).await;
    trigger.pull();
    tokio::time::timeout(DEADLINE, controllers).await.unwrap().unwrap();
}
