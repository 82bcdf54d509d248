//! The registration, with one replica and with several.

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::api::{DeleteParams, Patch, PatchParams};
use plumb_client::Api;
use plumb_testkit::until;
use plumb_vpa::namespaces::Namespaces;
use plumb_vpa_admission::registration::{NAME, registration};
use plumb_webhook::{Endpoint, Registration};
use serde_json::json;

use super::fixture::{Fixture, options};

#[tokio::test]
async fn the_configuration_is_restored_when_it_is_edited_or_deleted() {
    let fixture = Fixture::start().await;
    let webhook = fixture.webhook(options()).await;
    let api: Api<MutatingWebhookConfiguration> = Api::all(fixture.client.clone());
    let url = format!("https://127.0.0.1:{}/", webhook.port);
    let is_ours = |stored: &MutatingWebhookConfiguration| {
        let webhook = &stored.webhooks.as_ref().unwrap()[0];
        webhook.client_config.url.as_ref() == Some(&url)
            && webhook.failure_policy.as_deref() == Some("Ignore")
    };
    let stored = until(api.clone(), NAME, is_ours).await;
    let hook = &stored.webhooks.as_ref().unwrap()[0];
    assert_eq!((hook.name.as_str(), hook.side_effects.as_str()), ("vpa.k8s.io", "NoneOnDryRun"));
    assert_eq!(hook.timeout_seconds, Some(30));
    let endpoint = Endpoint::Url { host: "127.0.0.1".to_owned(), port: None };
    assert_eq!(registration(endpoint, &Namespaces::All).timeout_seconds, 5, "by default");

    let edit = json!([{ "op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Fail" }]);
    let edit = Patch::<()>::Json(serde_json::from_value(edit).unwrap());
    api.patch(NAME, &PatchParams::default(), &edit).await.unwrap();
    until(api.clone(), NAME, is_ours).await;
    let uid = stored.metadata.uid;
    api.delete(NAME, &DeleteParams::default()).await.unwrap();
    until(api.clone(), NAME, |stored: &MutatingWebhookConfiguration| {
        stored.metadata.uid != uid && is_ours(stored)
    })
    .await;
}

#[tokio::test]
async fn replicas_agree_on_one_configuration_and_one_authority() {
    let fixture = Fixture::start().await;
    // Behind a service both register the same; nothing has to reach them here.
    let endpoint =
        Endpoint::Service { namespace: "kube-system".to_owned(), name: "vpa-webhook".to_owned(), port: 443 };
    let options = || {
        let mut options = options();
        options.server.registration = Some(registration(endpoint.clone(), &Namespaces::All));
        options
    };
    let api: Api<MutatingWebhookConfiguration> = Api::all(fixture.client.clone());
    let (_first, _second) = tokio::join!(fixture.webhook(options()), fixture.webhook(options()));
    let registered = api.get(NAME).await.unwrap();
    let _third = fixture.webhook(options()).await;
    let after = api.get(NAME).await.unwrap();
    assert_eq!(registered.metadata.resource_version, after.metadata.resource_version, "nothing was written");
    let ByteString(bundle) = after.webhooks.unwrap().remove(0).client_config.ca_bundle.unwrap();
    assert_eq!(String::from_utf8(bundle).unwrap().matches("BEGIN CERTIFICATE").count(), 1);
}

#[test]
fn namespaces_and_flags_are_in_the_configuration() {
    let service = Endpoint::Service { namespace: "vpa".to_owned(), name: "hook".to_owned(), port: 8443 };
    assert_eq!(service.names(), ["hook.vpa.svc", "hook.vpa.svc.cluster.local"]);
    let selector = |registration: &Registration| {
        let hook = registration.configuration(1, "PEM").webhooks.unwrap().remove(0);
        serde_json::to_value(hook.namespace_selector).unwrap()
    };
    let of = |namespaces: &Namespaces| registration(service.clone(), namespaces);
    assert_eq!(selector(&of(&Namespaces::All)), json!({}));
    let except = Namespaces::Except(["b".to_owned(), "a".to_owned()].into());
    let name = "kubernetes.io/metadata.name";
    let expected = |operator: &str, values: &[&str]| json!({ "matchExpressions": [{ "key": name, "operator": operator, "values": values }] });
    assert_eq!(selector(&of(&except)), expected("NotIn", &["a", "b"]));
    let mut only = of(&Namespaces::Only("c".to_owned()));
    only.fail = true;
    assert_eq!(selector(&only), expected("In", &["c"]), "upstream never comes to this");
    let hook = only.configuration(1, "PEM").webhooks.unwrap().remove(0);
    assert_eq!(hook.failure_policy.as_deref(), Some("Fail"));
    assert_eq!(hook.client_config.service.unwrap().port, Some(8443));
    assert_eq!(hook.client_config.ca_bundle, Some(ByteString(b"PEM".to_vec())));
    let url = Endpoint::Url { host: "10.0.0.1".to_owned(), port: Some(8443) };
    let url = registration(url, &Namespaces::All);
    let hook = url.configuration(1, "").webhooks.unwrap().remove(0);
    assert_eq!(hook.client_config.url.as_deref(), Some("https://10.0.0.1:8443/"));
}
