//! Images that were pulled with a secret, and pods that have it or not.

use k8s_openapi::api::core::v1::Pod;
use plumb_node::image_pulls::VerificationPolicy;
use plumb_resize::rules::Rules;
use plumb_runtime::Error;
use plumb_runtime::fault::{Call, Fault, FaultKind, Invocation};
use serde_json::{Value, json};

use crate::it::site::{Site, status};

const IMAGE: &str = "r.example.com/private:1";

fn spec(policy: &str, secret: Option<&str>) -> Value {
    let secrets: Vec<Value> = secret.iter().map(|name| json!({ "name": name })).collect();
    let container = json!({ "name": "c", "image": IMAGE, "imagePullPolicy": policy });
    json!({ "containers": [container], "imagePullSecrets": secrets })
}

/// A node with this policy, on which a pod `first` with a secret has pulled the image. From then on the registry refuses it.
async fn site(policy: VerificationPolicy) -> Site {
    let mut site = Site::without_agent(Rules::kep());
    site.image_verification = Some(policy);
    site.start_agent().await;
    for (name, password) in [("own", "p"), ("other", "wrong")] {
        let config = json!({ "auths": { "r.example.com": { "username": "u", "password": password } } });
        site.cluster.secret(name, json!({ ".dockerconfigjson": config.to_string() })).await;
    }
    site.pod_of("first", spec("IfNotPresent", Some("own"))).await;
    site.until("first", |pod| status(pod).ready).await;
    let refused = Error::Unavailable("pull access denied".into());
    let private = |invocation: &Invocation| invocation.subject.contains("private");
    site.faults.add(Fault::new(FaultKind::Fail(refused)).on(Call::PullImage).when(private).times(u64::MAX));
    site
}

fn waits(pod: &Pod) -> Option<(String, String)> {
    let waiting = status(pod).state.and_then(|state| state.waiting)?;
    Some((waiting.reason?, waiting.message.unwrap_or_default()))
}

/// Waits until a pod is refused the image, and returns the message.
async fn refused(site: &Site, name: &str, reason: &str) -> String {
    let pod = site.until(name, |pod| waits(pod).is_some_and(|(found, _)| found == reason)).await;
    waits(&pod).unwrap().1
}

#[tokio::test]
async fn an_image_that_was_pulled_with_a_secret_is_not_given_to_pods_without_it() {
    let mut site = site(VerificationPolicy::default()).await;
    for (name, secret) in [("without", None), ("with-another", Some("other"))] {
        site.pod_of(name, spec("IfNotPresent", secret)).await;
        let message = refused(&site, name, "ErrImagePull").await;
        assert!(message.contains("pull access denied"), "{message}");
    }
    // The message does not say that the image is there.
    site.pod_of("never", spec("Never", None)).await;
    let message = refused(&site, "never", "ErrImageNeverPull").await;
    let expected = format!("Container image {IMAGE:?} is not present with pull policy of Never");
    assert_eq!(message, expected);
    site.pod_of("with", spec("Never", Some("own"))).await;
    site.until("with", |pod| status(pod).ready).await;
    let present =
        format!("Container image {IMAGE:?} already present on machine and can be accessed by the pod");
    assert_eq!(site.event("with", "Pulled").await, present);

    // The next agent knows it from the records.
    site.kill_agent().await;
    site.start_agent().await;
    site.pod_of("later", spec("IfNotPresent", None)).await;
    refused(&site, "later", "ErrImagePull").await;
    site.pod_of("later-with", spec("IfNotPresent", Some("own"))).await;
    site.until("later-with", |pod| status(pod).ready).await;
}

#[tokio::test]
async fn with_the_policy_never_verify_any_pod_uses_any_image_on_the_node() {
    let site = site(VerificationPolicy::NeverVerify).await;
    site.pod_of("without", spec("IfNotPresent", None)).await;
    site.until("without", |pod| status(pod).ready).await;
}
