//! Faults meet the calls they are meant for, and no others.

use std::sync::Arc;

use plumb_runtime::fault::{Call, Fault, FaultKind, Faults, Faulty, Invocation};
use plumb_runtime::types::{ContainerState, LinuxResources};
use plumb_runtime::{Error, Runtime};

use crate::node::Node;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_fail_or_lose_their_responses_as_configured() {
    let Some(node) = Node::new("calls_fail_or_lose_their_responses_as_configured").await else { return };
    let gone = || Error::Unavailable("gone".into());
    let inner: Arc<dyn Runtime> = Arc::new(node.runtime.clone());
    let faults = Faults::default();
    let runtime = Faulty::new(inner, faults.clone());
    faults.add(
        Fault::new(FaultKind::Fail(gone()))
            .on(Call::RunSandbox)
            .when(|invocation| invocation.subject == "doomed"),
    );
    assert_eq!(runtime.run_sandbox(node.sandbox_config("doomed")).await.unwrap_err(), gone());
    let sandbox = runtime.run_sandbox(node.sandbox_config("lucky")).await.unwrap();

    // The second update takes effect, but its response is lost; the third is answered again.
    faults
        .add(Fault::new(FaultKind::LoseResponse(gone())).on(Call::UpdateContainerResources).from(2).times(1));
    let id = runtime.create_container(&sandbox, Node::shell("c", "exec sleep 1000")).await.unwrap();
    runtime.start_container(&id).await.unwrap();
    faults.record();
    for (shares, answered) in [(100, true), (200, false), (300, true)] {
        let asked = LinuxResources { cpu_shares: Some(shares), ..LinuxResources::default() };
        assert_eq!(runtime.update_container_resources(&id, &asked.into()).await.is_ok(), answered);
        let read = node.runtime.container_status(&id).await.unwrap().resources.unwrap();
        assert_eq!(read.linux().unwrap().cpu_shares, Some(shares));
    }
    let update = Invocation { call: Call::UpdateContainerResources, subject: id.to_string() };
    assert_eq!(faults.recorded(), vec![update; 3]);
    assert!(gone().outcome_unknown());

    faults.clear();
    faults.add(Fault::new(FaultKind::LoseResponse(gone())).on(Call::StopContainer));
    assert!(runtime.stop_container(&id, std::time::Duration::ZERO).await.is_err());
    assert_eq!(runtime.container_status(&id).await.unwrap().container.state, ContainerState::Exited);
    node.end().await;
}
