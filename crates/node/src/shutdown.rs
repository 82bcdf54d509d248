//! Graceful node shutdown: the agent terminates the pods of a node before the machine shuts down, critical ones last.
//!
//! ```text
//!   Ready becomes false, new pods are rejected ▸ other pods, for the grace period less that of critical ones
//!                                              ▸ critical pods, for theirs
//! ```
//!
//! The kubelet is notified of a shutdown by systemd-logind; here the process that runs the agent decides when. Words and
//! periods are the kubelet's.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};
use k8s_openapi::api::core::v1::Pod;
use tokio::sync::oneshot;

use crate::node::Node;
use crate::preemption;
use crate::server::Pods as _;
use crate::worker::Message;

/// Why the node is not ready meanwhile.
pub const NOT_READY: &str = "node is shutting down";
/// The reason in the status of a pod that was terminated.
pub(crate) const REASON: &str = "Terminated";
/// Its message.
pub(crate) const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
/// The reason of a pod that was evicted, or not admitted under pressure, and of the event.
pub(crate) const EVICTED: &str = "Evicted";
/// The reason of the condition `DisruptionTarget`.
pub(crate) const DISRUPTION: &str = "TerminationByKubelet";
/// The reason of the rejection of a new pod.
pub(crate) const NOT_ADMITTED: &str = "NodeShutdown";
/// Its message.
pub(crate) const NOT_ADMITTED_MESSAGE: &str = "Pod was rejected as the node is shutting down.";
/// `SystemCriticalPriority`: pods from this priority on are critical.
pub(crate) const CRITICAL: i32 = 2_000_000_000;

/// How long pods have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GracePeriods {
    /// All pods together.
    pub total: Duration,
    /// Critical pods, of that.
    pub critical_pods: Duration,
}

impl GracePeriods {
    fn other_pods(self) -> Duration {
        self.total.saturating_sub(self.critical_pods)
    }
}

/// Pods that are terminated together.
#[derive(Debug, PartialEq, Eq)]
struct Group {
    period: Duration,
    /// The uid of each, and how long it has.
    pods: Vec<(String, Duration)>,
}

/// The pods in the order in which they are terminated.
fn groups(pods: &[Arc<Pod>], periods: GracePeriods) -> [Group; 2] {
    let is_critical = |pod: &Pod| {
        pod.spec.as_ref().and_then(|spec| spec.priority).is_some_and(|priority| priority >= CRITICAL)
    };
    [(periods.other_pods(), false), (periods.critical_pods, true)].map(|(period, critical)| {
        let own = pods.iter().filter(|pod| is_critical(pod) == critical);
        let pods = own.map(|pod| {
            let grace = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
            let grace = grace.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
            (pod.metadata.uid.clone().unwrap_or_default(), grace.map_or(period, |grace| grace.min(period)))
        });
        Group { period, pods: pods.collect() }
    })
}

/// Why the node terminates a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The node shuts down.
    Shutdown,
    /// A critical pod needs its resources.
    Preemption,
    /// The node is under pressure, or the pod exceeds a limit of its local storage.
    Eviction {
        /// The message in the status of the pod.
        message: Arc<str>,
        /// Whether the node needs the resources of the pod.
        is_disruption: bool,
    },
}

impl Cause {
    /// The reason in the status of the pod.
    pub(crate) const fn reason(&self) -> &'static str {
        match self {
            Self::Shutdown => REASON,
            Self::Preemption => preemption::REASON,
            Self::Eviction { .. } => EVICTED,
        }
    }

    /// The message in the status of the pod.
    pub(crate) fn message(&self) -> &str {
        match self {
            Self::Shutdown => MESSAGE,
            Self::Preemption => preemption::MESSAGE,
            Self::Eviction { message, .. } => message,
        }
    }

    /// The message of the condition `DisruptionTarget`, if the pod gets it.
    pub(crate) fn disruption_message(&self) -> Option<&str> {
        match self {
            Self::Shutdown => Some(MESSAGE),
            Self::Preemption => Some(preemption::DISRUPTION_MESSAGE),
            Self::Eviction { message, is_disruption } => is_disruption.then_some(message),
        }
    }
}

/// The request to terminate a pod.
#[derive(Debug)]
pub(crate) struct Termination {
    /// Why.
    pub(crate) cause: Cause,
    /// How long its containers have.
    pub(crate) grace: Duration,
    /// Notified when the pod has ended and its status is reported, and dropped when the pod is gone.
    pub(crate) ended: oneshot::Sender<()>,
}

/// The termination of a pod, which several may have requested: two critical pods that preempt it, or one and the shutdown of
/// the node.
#[derive(Debug)]
pub(crate) struct OngoingTermination {
    /// Why, first.
    pub(crate) cause: Cause,
    /// How long its containers have: the shortest of the requested periods.
    pub(crate) grace: Duration,
    /// Those that wait for its end.
    ended: Vec<oneshot::Sender<()>>,
}

impl From<Termination> for OngoingTermination {
    fn from(Termination { cause, grace, ended }: Termination) -> Self {
        Self { cause, grace, ended: vec![ended] }
    }
}

impl OngoingTermination {
    /// Adds a request.
    pub(crate) fn join(&mut self, other: Termination) {
        self.grace = self.grace.min(other.grace);
        // Those that have given up leave no entry behind.
        self.ended.retain(|ended| !ended.is_closed());
        self.ended.push(other.ended);
    }

    /// Notifies those that wait.
    pub(crate) fn report_end(self) {
        for ended in self.ended {
            // It may have given up on it.
            let _ = ended.send(());
        }
    }
}

/// Shuts the node of an agent down; the agent must be running.
#[derive(Clone)]
pub struct NodeShutdown(pub(crate) Arc<Node>);

impl NodeShutdown {
    /// Terminates all pods, within these periods. The node admits no pod from now on.
    pub fn run(&self, periods: GracePeriods) -> BoxFuture<'static, ()> {
        let node = self.0.clone();
        Box::pin(async move {
            node.begin_shutdown();
            let mut pods = node.pods();
            pods.sort_by(|a, b| a.metadata.uid.cmp(&b.metadata.uid));
            for group in groups(&pods, periods) {
                let waiting = group.pods.into_iter().map(|(uid, grace)| {
                    let (ended, has_ended) = oneshot::channel();
                    let termination = Box::new(Termination { cause: Cause::Shutdown, grace, ended });
                    // A pod without a worker has ended: the sender is dropped.
                    node.workers.send(&uid, Message::Terminate(termination));
                    has_ended
                });
                let waiting = join_all(waiting.collect::<Vec<_>>());
                if tokio::time::timeout(group.period, waiting).await.is_err() {
                    tracing::warn!(
                        period = ?group.period,
                        "pods have not ended within the grace period of the node's shutdown"
                    );
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn critical_pods_are_terminated_last_and_none_has_longer_than_its_group() {
        let pod = |uid: &str, priority: Option<i32>, grace: Option<i64>| -> Arc<Pod> {
            let spec =
                json!({ "containers": [], "priority": priority, "terminationGracePeriodSeconds": grace });
            Arc::new(serde_json::from_value(json!({ "metadata": { "uid": uid }, "spec": spec })).unwrap())
        };
        let seconds = Duration::from_secs;
        let pods = [
            pod("critical", Some(CRITICAL), Some(30)),
            pod("none", None, None),
            pod("high", Some(CRITICAL - 1), Some(5)),
            pod("node", Some(CRITICAL + 1000), Some(1)),
        ];
        let periods = GracePeriods { total: seconds(30), critical_pods: seconds(10) };
        let own = |pods: &[(&str, u64)]| {
            pods.iter().map(|(uid, grace)| ((*uid).to_owned(), seconds(*grace))).collect::<Vec<_>>()
        };
        let expected = [
            Group { period: seconds(20), pods: own(&[("none", 20), ("high", 5)]) },
            Group { period: seconds(10), pods: own(&[("critical", 10), ("node", 1)]) },
        ];
        assert_eq!(groups(&pods, periods), expected);
    }

    #[tokio::test]
    async fn all_that_terminate_a_pod_are_notified_of_its_end_and_the_shortest_grace_period_counts() {
        let request = |cause: Cause, seconds: u64| {
            let (ended, has_ended) = oneshot::channel();
            (Termination { cause, grace: Duration::from_secs(seconds), ended }, has_ended)
        };
        let (first, first_ended) = request(Cause::Preemption, 30);
        let (second, second_ended) = request(Cause::Shutdown, 5);
        let (third, third_ended) = request(Cause::Preemption, 60);
        let mut ongoing = OngoingTermination::from(first);
        ongoing.join(second);
        ongoing.join(third);
        assert_eq!((ongoing.cause.clone(), ongoing.grace), (Cause::Preemption, Duration::from_secs(5)));
        ongoing.report_end();
        for ended in [first_ended, second_ended, third_ended] {
            ended.await.unwrap();
        }
    }
}
