//! The events that the API server emits.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use jiff::Timestamp;
use serde_json::Value;

use crate::allocation::{EmitError, EventRecorder};
use crate::authn::InProcess;
use crate::authz::MASTERS;
use crate::object::meta;
use crate::state::ApiServer;
use crate::user::User;

impl EventRecorder for ApiServer {
    fn now(&self) -> Timestamp {
        self.cluster().now()
    }

    fn create<'a>(&'a self, event: &'a Value) -> BoxFuture<'a, Result<bool, EmitError>> {
        Box::pin(create(self, event))
    }
}

async fn create(server: &ApiServer, event: &Value) -> Result<bool, EmitError> {
    let user = User::new("system:apiserver", "", [MASTERS]);
    let request = Request::post(format!("/api/v1/namespaces/{}/events", meta(event, "namespace")))
        .header("content-type", "application/json")
        .extension(InProcess(Arc::new(user)))
        .body(Full::new(Bytes::from(event.to_string())))?;
    let response = server.handle(request).await;
    match response.status() {
        StatusCode::CONFLICT => Ok(false),
        status if status.is_success() => Ok(true),
        status => {
            let body = response.into_body().collect().await?;
            Err(EmitError::Refused { status, body: String::from_utf8_lossy(&body.to_bytes()).into_owned() })
        }
    }
}
