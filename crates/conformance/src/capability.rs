//! What a cluster can do, by discovery: older releases of Kubernetes lack some of what cases need.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};

use crate::case::{Amounts, Container};
use crate::failure::Failure;
use crate::pod::{self, Placement};
use crate::request::{Verb, send};
use crate::runner::Options;
use crate::wait::{Objection, until};

/// The pod whose resizes are tried.
const POD: &str = "capabilities";
const CONTAINER: Container = Container::new("main", Amounts::new(("10m", "20m"), ("16Mi", "64Mi")));

/// Something that Kubernetes does since a release after 1.33.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// The API server accepts a lower memory limit of a container that is not restarted for it.
    LowerMemoryLimit,
    /// The API server refuses a resize that is larger than the node, with the cause `NodeCapacity`.
    NodeCapacity,
}

impl Capability {
    const ALL: [Self; 2] = [Self::LowerMemoryLimit, Self::NodeCapacity];

    /// Why a case is skipped that needs it.
    pub(crate) const fn missing(self) -> &'static str {
        match self {
            Self::LowerMemoryLimit => "the API server refuses lower memory limits",
            Self::NodeCapacity => "the API server accepts resizes that are larger than the node",
        }
    }

    /// A resize that shows whether a cluster has it.
    const fn resize(self) -> Amounts {
        match self {
            Self::LowerMemoryLimit => Amounts::new(("10m", "20m"), ("16Mi", "32Mi")),
            Self::NodeCapacity => Amounts::new(("100k", "100k"), ("16Mi", "64Mi")),
        }
    }

    /// Whether the API server accepts that resize where it has it.
    const fn is_accepted(self) -> bool {
        match self {
            Self::LowerMemoryLimit => true,
            Self::NodeCapacity => false,
        }
    }
}

/// The capabilities of a cluster, by resizes of a running pod that the API server answers and does not store.
pub(crate) async fn discover(
    client: &Client,
    namespace: &str,
    node: &str,
    options: &Options,
) -> Result<Vec<Capability>, Failure> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let place = Placement { node: Some(node), ..Placement::default() };
    pods.create(&PostParams::default(), &pod::new((POD, POD), &[CONTAINER], place, options)).await?;
    let is_running = |pod: &Pod| match pod.status.as_ref().and_then(|status| status.phase.as_deref()) {
        Some("Running") => Ok(()),
        phase => Objection::not_yet(format!("pod {POD} is {}", phase.unwrap_or("new"))),
    };
    until(&pods, POD, options.timeout, is_running).await?;
    let path = format!("/api/v1/namespaces/{namespace}/pods/{POD}/resize?dryRun=All");
    let mut found = Vec::new();
    for capability in Capability::ALL {
        let patch = pod::patch(&[(CONTAINER.name, capability.resize())]);
        let response = send(client, Verb::Patch, &path, Some(&patch), None).await?;
        if (response.code < 300) == capability.is_accepted() {
            found.push(capability);
        }
    }
    pods.delete(POD, &DeleteParams::default()).await?;
    Ok(found)
}
