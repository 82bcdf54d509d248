//! The setup of cases: namespaces, limits and quotas in one of them, and a custom resource definition.

use kube::Client;
use serde::Deserialize;
use serde_json::Value;

use super::response::{Response, send_request};
use crate::error::Error;

/// The objects that are created before the first case.
const SETUP: &str = include_str!("../../differential/ground.yaml");
/// The maximal number of checks whether a custom resource is served.
const ATTEMPTS: usize = 100;

/// An object of the setup.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Made {
    /// Its path; `$namespace` stands for the namespace of the cases.
    path: String,
    /// The object.
    body: Value,
    /// Its status, for want of a controller.
    #[serde(default)]
    status: Option<Value>,
    /// The path that exists once it is in effect.
    #[serde(default)]
    until: Option<String>,
}

/// Creates the objects on one server.
pub(super) async fn prepare(client: &Client, namespace: &str) -> Result<(), Error> {
    let text = SETUP.replace("$namespace", namespace);
    let all: Vec<Made> = serde_saphyr::from_str(&text).map_err(|source| Error::List(source.to_string()))?;
    for made in all {
        let response =
            send_request(client, "POST", &made.path, "application/json", bytes(&made.body)).await?;
        if !response.is_success() && response.code != 409 {
            return Err(unprepared(&response));
        }
        if let Some(status) = &made.status {
            let name = made.body["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("{}/{name}/status", made.path);
            let response =
                send_request(client, "PATCH", &path, "application/merge-patch+json", bytes(status)).await?;
            if !response.is_success() {
                return Err(unprepared(&response));
            }
        }
        if let Some(path) = &made.until {
            served(client, path).await?;
        }
    }
    Ok(())
}

/// Waits until a path is served.
async fn served(client: &Client, path: &str) -> Result<(), Error> {
    let mut response = send_request(client, "GET", path, "application/json", Vec::new()).await?;
    for _ in 0..ATTEMPTS {
        if response.is_success() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        response = send_request(client, "GET", path, "application/json", Vec::new()).await?;
    }
    Err(unprepared(&response))
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn unprepared(response: &Response) -> Error {
    Error::Unprepared(response.body.to_string())
}
