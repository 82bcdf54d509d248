//! What cases take place in: namespaces, limits and quotas in one of them, and a kind that is defined.

use kube::Client;
use serde::Deserialize;
use serde_json::Value;

use super::answer::{Answer, ask};
use crate::error::Error;

/// What is made before the first case.
const GROUND: &str = include_str!("../../differential/ground.yaml");
/// How often it is asked whether a defined kind is served, before it is given up.
const PATIENCE: usize = 100;

/// An object of the ground.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Made {
    /// Where it is made; `$namespace` stands for the namespace of the cases.
    path: String,
    /// The object.
    body: Value,
    /// What its status is to be, for want of a controller.
    #[serde(default)]
    status: Option<Value>,
    /// What is there once it is at work.
    #[serde(default)]
    until: Option<String>,
}

/// Makes the ground on one server.
pub(super) async fn prepare(client: &Client, namespace: &str) -> Result<(), Error> {
    let text = GROUND.replace("$namespace", namespace);
    let all: Vec<Made> = serde_saphyr::from_str(&text).map_err(|source| Error::List(source.to_string()))?;
    for made in all {
        let answer = ask(client, "POST", &made.path, "application/json", bytes(&made.body)).await?;
        if !answer.is_success() && answer.code != 409 {
            return Err(unprepared(&answer));
        }
        if let Some(status) = &made.status {
            let name = made.body["metadata"]["name"].as_str().unwrap_or_default();
            let path = format!("{}/{name}/status", made.path);
            let answer = ask(client, "PATCH", &path, "application/merge-patch+json", bytes(status)).await?;
            if !answer.is_success() {
                return Err(unprepared(&answer));
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
    let mut answer = ask(client, "GET", path, "application/json", Vec::new()).await?;
    for _ in 0..PATIENCE {
        if answer.is_success() {
            return Ok(());
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        answer = ask(client, "GET", path, "application/json", Vec::new()).await?;
    }
    Err(unprepared(&answer))
}

fn bytes(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn unprepared(answer: &Answer) -> Error {
    Error::Unprepared(answer.body.to_string())
}
