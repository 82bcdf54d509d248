//! The certificate controllers: automatic approval, signing, and cleanup of old requests.
//!
//! ```text
//!   request of a machine with a token ─▶ is the name free? (no such Node, or its key; else deny) ─┐
//!   request of a node for itself ──────────────────────────────────────────────────────┴▶ SubjectAccessReview ─▶ approve ─┐
//!   request of a node to be a server ─▶ are the names its own? (see `serving`) ────────────────────────────────▶ approve ─┤
//!   request that a user approved ◀────────────────────────────────────────────────────────────────────────────────────────┘
//!        └─▶ is it valid for its signer? ─▶ sign, or set the condition Failed
//! ```
//!
//! Approval of client certificates and signing are those of kube-controller-manager. Approval of serving certificates
//! is ours: upstream leaves it to an administrator or another controller. Other requests wait for an administrator
//! (`kubectl certificate approve`).

mod bootstrap;
mod serving;

pub use bootstrap::{NameTaken, check_name};
pub use serving::{ForeignName, check_names};

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition, CertificateSigningRequestStatus,
};
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{DeleteParams, ListParams, PostParams};
use plumb_certificates::{CLIENT_ADDRESS, NODE_USER, NODES_GROUP, Request, Signer, Usage};
use plumb_client::Api;
use plumb_controller_runtime::api_error::settled_or_conflict;
use plumb_controller_runtime::{Clock, InformerFactory, ObjectRef, Reconciler, Requeue, Store};

use crate::Clients;

/// The name of this controller's user.
pub const NAME: &str = "certificate-controller";
/// The name of the user that approves requests for serving certificates, which upstream does not approve.
pub const SERVING_APPROVER: &str = "kubelet-serving-approver";

/// The default and the minimum lifetime of a certificate.
const LONGEST: SignedDuration = SignedDuration::from_hours(365 * 24);
const SHORTEST: SignedDuration = SignedDuration::from_mins(10);
/// The age at which decided and undecided requests are deleted.
const DECIDED: SignedDuration = SignedDuration::from_hours(1);
const UNDECIDED: SignedDuration = SignedDuration::from_hours(24);

/// Signs a valid request and returns the certificate in PEM.
pub type Sign = Arc<dyn Fn(&Request, &[Usage], SignedDuration) -> Result<String, SignError> + Send + Sync>;
/// Why signing failed, which the condition `Failed` of the request reports.
pub type SignError = Box<dyn std::error::Error + Send + Sync>;

/// Configuration of the controller.
#[derive(Clone)]
pub struct Config {
    /// The signer.
    pub sign: Sign,
    /// The client that approves requests for serving certificates and reads Nodes.
    pub approve_serving: Client,
    /// The names and addresses of the API server: no node gets a certificate for them, except for those in `machine`.
    pub api_server: BTreeSet<String>,
    /// The addresses of the machine that the API server runs on, which nodes on it share.
    pub machine: BTreeSet<IpAddr>,
    /// The current time.
    pub clock: Clock,
}

/// The next step for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Leave,
    /// Approve it if the requester may create this subresource of requests.
    Review(Vec<&'static str>),
    /// Approve it if no other machine has the name of this node, and the requester may create one.
    Admit(String, Box<Request>),
    /// Approve it if all the names in it are those of this Node.
    Compare(String, Box<Request>),
    /// Sign it.
    Sign(Box<Request>, Vec<Usage>, SignedDuration),
    /// Set the condition `Failed` with this message.
    Fail(String),
}

/// The next step for a request.
pub fn decide(object: &CertificateSigningRequest) -> Step {
    let spec = &object.spec;
    let none = CertificateSigningRequestStatus::default();
    let status = object.status.as_ref().unwrap_or(&none);
    let is = |kind: &str| {
        status
            .conditions
            .iter()
            .flatten()
            .any(|condition| condition.type_ == kind && condition.status == "True")
    };
    let signed = status.certificate.as_ref().is_some_and(|bytes| !bytes.0.is_empty());
    let (Some(signer), Ok(request)) = (Signer::named(&spec.signer_name), Request::parse(&spec.request.0))
    else {
        return Step::Leave;
    };
    if signed || is("Denied") || is("Failed") {
        return Step::Leave;
    }
    let usages = signer.check(&request, spec.usages.as_deref().unwrap_or_default());
    if is("Approved") {
        return match usages {
            Ok(usages) => Step::Sign(Box::new(request), usages, lifetime(spec.expiration_seconds)),
            Err(unfit) => Step::Fail(unfit.to_string()),
        };
    }
    let own = spec.username.as_deref() == Some(&request.common_name);
    match (signer, usages) {
        (Signer::NodeClient, Ok(_)) if own => Step::Review(vec!["selfnodeclient", "nodeclient"]),
        (Signer::NodeClient, Ok(_)) => Step::Admit(node_of(&request), Box::new(request)),
        (Signer::NodeServing, Ok(_)) if own && is_node(object) => {
            Step::Compare(node_of(&request), Box::new(request))
        }
        _ => Step::Leave,
    }
}

fn is_node(object: &CertificateSigningRequest) -> bool {
    object.spec.groups.iter().flatten().any(|group| group == NODES_GROUP)
}

/// The lifetime of a certificate.
fn lifetime(asked: Option<i32>) -> SignedDuration {
    asked.map_or(LONGEST, |seconds| SignedDuration::from_secs(i64::from(seconds)).clamp(SHORTEST, LONGEST))
}

/// The node that a request of a node names.
fn node_of(request: &Request) -> String {
    request.common_name.strip_prefix(NODE_USER).unwrap_or(&request.common_name).to_owned()
}

/// Whether a request is old enough to be deleted.
pub fn is_stale(object: &CertificateSigningRequest, now: Timestamp) -> bool {
    stale_at(object).is_some_and(|when| when < now)
}

/// When a request is old enough to be deleted.
fn stale_at(object: &CertificateSigningRequest) -> Option<Timestamp> {
    let created = object.metadata.creation_timestamp.as_ref()?;
    let conditions = object.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let decided = conditions.into_iter().any(|condition| condition.status == "True");
    created.0.checked_add(if decided { DECIDED } else { UNDECIDED }).ok()
}

/// Approves, signs and deletes until the future is dropped.
pub fn run(clients: Clients, informers: &InformerFactory, config: Config) -> BoxFuture<'static, ()> {
    let requests = informers.informer::<CertificateSigningRequest>();
    let clock = config.clock.clone();
    let reconciler = Certifier { clients: clients.clone(), config, requests: requests.store().clone() };
    clients.controller(NAME, reconciler).with_clock(clock).reconciles(&requests).run()
}

/// Reconciles requests, one at a time: whether a name is taken depends on the other requests.
struct Certifier {
    clients: Clients,
    config: Config,
    requests: Arc<Store<CertificateSigningRequest>>,
}

impl Reconciler for Certifier {
    type Key = ObjectRef;
    type Error = kube::Error;

    async fn reconcile(&self, request: &ObjectRef) -> kube::Result<Requeue> {
        let Some(object) = self.requests.get(request) else { return Ok(Requeue::AwaitChange) };
        let now = self.config.clock.now();
        let done = if is_stale(&object, now) {
            let api: Api<CertificateSigningRequest> = Api::all(self.clients.write.clone());
            api.delete(&request.name, &DeleteParams::default()).await.map(drop)
        } else {
            act(&self.clients, &self.config, &object, &self.requests).await
        };
        settled_or_conflict(done)?;
        // One second later, since the age must exceed the limit.
        let left = stale_at(&object).and_then(|when| Duration::try_from(when.duration_since(now)).ok());
        Ok(left.map_or(Requeue::AwaitChange, |left| Requeue::After(left + Duration::from_secs(1))))
    }
}

/// Performs the next step for a request.
async fn act(
    clients: &Clients,
    config: &Config,
    object: &CertificateSigningRequest,
    requests: &Store<CertificateSigningRequest>,
) -> Result<(), kube::Error> {
    match decide(object) {
        Step::Leave => Ok(()),
        Step::Review(below) => review(&clients.write, object, &below).await,
        Step::Admit(node, request) => {
            let nodes: Api<Node> = Api::all(config.approve_serving.clone());
            let found = nodes.get_opt(&node).await?;
            let others = requests.all();
            match check_name(&request, found.as_ref(), others.iter().map(|other| &**other)) {
                Ok(()) => review(&clients.write, object, &["nodeclient"]).await,
                // The request is denied, so that the machine gets the reason at once.
                Err(taken) => {
                    tracing::warn!(
                        request = object.metadata.name,
                        user = object.spec.username,
                        node,
                        "denied a node client certificate: {taken}"
                    );
                    let denied = with_condition(object, "Denied", "NodeNameTaken", taken.to_string());
                    decide_on(&clients.write, &denied).await
                }
            }
        }
        Step::Compare(node, request) => {
            let nodes: Api<Node> = Api::all(config.approve_serving.clone());
            let nodes = nodes.list(&ListParams::default()).await?.items;
            let came_from = client_address(object);
            match check_names(&request, &node, came_from, &nodes, &config.api_server, &config.machine) {
                Ok(()) => {
                    let message = "Auto approving kubelet serving certificate: the names are the node's.";
                    approve(&config.approve_serving, object, message.to_owned()).await
                }
                Err(foreign) => {
                    tracing::warn!(
                        request = object.metadata.name,
                        node,
                        "did not approve a kubelet serving certificate: {foreign}"
                    );
                    Ok(())
                }
            }
        }
        Step::Sign(request, usages, lifetime) => match (config.sign)(&request, &usages, lifetime) {
            Ok(certificate) => {
                let certificate = Some(ByteString(certificate.into_bytes()));
                let mut signed = object.clone();
                signed.status.get_or_insert_default().certificate = certificate;
                write_status(&clients.write, &signed).await
            }
            Err(error) => fail(&clients.write, object, "SigningFailure", error.to_string()).await,
        },
        Step::Fail(why) => fail(&clients.write, object, "SignerValidationFailure", why).await,
    }
}

/// Approves a node client certificate if the requester may create one of these subresources of requests.
async fn review(
    client: &Client,
    object: &CertificateSigningRequest,
    below: &[&'static str],
) -> Result<(), kube::Error> {
    for subresource in below {
        if may(client, object, subresource).await? {
            let what = if *subresource == "selfnodeclient" { "self kubelet" } else { "kubelet" };
            let message = format!("Auto approving {what} client certificate after SubjectAccessReview.");
            return approve(client, object, message).await;
        }
    }
    tracing::info!(
        request = object.metadata.name,
        user = object.spec.username,
        "may not have a node's certificate"
    );
    Ok(())
}

/// The address that a node's request came from, as the API server recorded it.
fn client_address(object: &CertificateSigningRequest) -> Option<IpAddr> {
    object.spec.extra.as_ref()?.get(CLIENT_ADDRESS)?.first()?.parse().ok()
}

/// Whether a `SubjectAccessReview` allows the requester such a certificate.
async fn may(client: &Client, object: &CertificateSigningRequest, below: &str) -> Result<bool, kube::Error> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: object.spec.username.clone(),
            uid: object.spec.uid.clone(),
            groups: object.spec.groups.clone(),
            extra: object.spec.extra.clone(),
            resource_attributes: Some(ResourceAttributes {
                group: Some("certificates.k8s.io".to_owned()),
                resource: Some("certificatesigningrequests".to_owned()),
                subresource: Some(below.to_owned()),
                verb: Some("create".to_owned()),
                version: Some("*".to_owned()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = reviews.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

fn with_condition(
    object: &CertificateSigningRequest,
    kind: &str,
    reason: &str,
    message: String,
) -> CertificateSigningRequest {
    let mut said = object.clone();
    let conditions = said.status.get_or_insert_default().conditions.get_or_insert_default();
    conditions.push(CertificateSigningRequestCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message),
        ..CertificateSigningRequestCondition::default()
    });
    said
}

async fn approve(
    client: &Client,
    object: &CertificateSigningRequest,
    message: String,
) -> Result<(), kube::Error> {
    decide_on(client, &with_condition(object, "Approved", "AutoApproved", message)).await
}

/// Updates the approval or denial of a request.
async fn decide_on(client: &Client, decided: &CertificateSigningRequest) -> Result<(), kube::Error> {
    let name = decided.metadata.name.clone().unwrap_or_default();
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    requests.replace_subresource("approval", &name, &PostParams::default(), decided).await.map(drop)
}

async fn fail(
    client: &Client,
    object: &CertificateSigningRequest,
    reason: &str,
    why: String,
) -> Result<(), kube::Error> {
    write_status(client, &with_condition(object, "Failed", reason, why)).await
}

async fn write_status(client: &Client, object: &CertificateSigningRequest) -> Result<(), kube::Error> {
    let name = object.metadata.name.clone().unwrap_or_default();
    let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
    requests.replace_status(&name, &PostParams::default(), object).await.map(drop)
}
