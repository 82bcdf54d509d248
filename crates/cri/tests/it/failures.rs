//! A runtime that is killed, hangs, or is not there.

use std::time::Duration;

use futures_util::StreamExt as _;
use nix::sys::signal::Signal;
use plumb_cri::{CgroupDriver, Config, Cri};
use plumb_runtime::cgroup::Layout;
use plumb_runtime::types::{ContainerState, Resources};
use plumb_runtime::{Confirmation, Error, Runtime as _};

use crate::node::{Node, TIMEOUT, back, figures, resources};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs containerd: .ci/containerd"]
async fn no_container_is_lost_when_containerd_is_killed_under_a_resize() {
    let node = Node::start().await;
    let sandbox = node.sandbox("survivor").await;
    let id = node.run(&sandbox, "c", "sleep infinity").await;
    let before = node.runtime.container_status(&id).await.unwrap();

    // Stopped first, so that the call is under way when it is killed.
    node.signal(Signal::SIGSTOP);
    let resize: Resources = resources(300, 128).into();
    let update = node.runtime.update_container_resources(&id, &resize);
    let kill = async {
        tokio::task::yield_now().await;
        node.signal(Signal::SIGKILL);
    };
    let (updated, ()) = tokio::join!(update, kill);
    // A call that found no connection yet may have been made again, with the next containerd.
    if let Err(error) = updated {
        assert!(error.outcome_unknown(), "{error:?}");
    }
    let answers = async {
        while node.runtime.version().await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, answers).await.unwrap();
    node.runtime.update_container_resources(&id, &resize).await.unwrap();
    let after = node.runtime.container_status(&id).await.unwrap();
    assert_eq!(after.container.state, ContainerState::Running);
    assert_eq!(after.started_at, before.started_at, "it was not restarted");
    let linux = after.resources.as_ref().and_then(Resources::linux).unwrap();
    assert_eq!(figures(linux), figures(&resources(300, 128)));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs containerd: .ci/containerd"]
async fn a_resize_is_applied_while_containerd_hangs_and_confirmed_when_it_is_back() {
    let node = Node::start().await;
    let sandbox = node.sandbox("hung-resize").await;
    let id = node.run(&sandbox, "c", "sleep infinity").await;
    node.runtime.container_status(&id).await.unwrap();
    let mut events = node.runtime.events();
    node.signal(Signal::SIGSTOP);
    node.runtime.update_container_resources(&id, &resources(300, 128).into()).await.unwrap();
    let read = node.runtime.container_resources(&id).await.unwrap();
    assert_eq!(figures(read.as_ref().and_then(Resources::linux).unwrap()), figures(&resources(300, 128)));
    assert_eq!(node.runtime.confirmation(&id), Confirmation::Awaited);
    node.signal(Signal::SIGCONT);
    let confirmed = async {
        while node.runtime.confirmation(&id) != Confirmation::Confirmed {
            events.next().await.unwrap();
        }
    };
    tokio::time::timeout(TIMEOUT, confirmed).await.unwrap();
    let status = node.runtime.container_status(&id).await.unwrap();
    let actual = status.resources.as_ref().and_then(Resources::linux).unwrap();
    assert_eq!(figures(actual), figures(&resources(300, 128)));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs containerd: .ci/containerd"]
async fn a_call_that_hangs_ends_with_its_deadline_and_the_next_succeeds() {
    // Long enough for the calls that do not hang.
    let node = Node::with_timeout(Duration::from_secs(10)).await;
    let mut events = node.runtime.events();
    let sandbox = node.sandbox("hung").await;
    let id = node.run(&sandbox, "c", "sleep infinity").await;
    node.signal(Signal::SIGSTOP);
    let status = node.runtime.container_status(&id).await;
    assert!(matches!(status, Err(Error::DeadlineExceeded(_))), "{status:?}");
    // Long enough for a list to fail, too.
    assert!(node.runtime.status().await.is_err());
    assert!(node.runtime.status().await.is_err());
    node.signal(Signal::SIGCONT);
    back(&mut events).await;
    assert_eq!(node.runtime.container_status(&id).await.unwrap().container.state, ContainerState::Running);
    node.stop().await;
}

#[tokio::test]
async fn the_error_about_a_missing_socket_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let Ok(cgroups) = Layout::detect() else { return };
    let socket = folder.path().join("absent.sock");
    let config = Config {
        endpoint: format!("unix://{}", socket.display()),
        image_endpoint: None,
        cluster: "plumb-absent".into(),
        folder: folder.path().to_owned(),
        cgroups,
        cgroup_driver: CgroupDriver::Cgroupfs,
        request_timeout: Duration::from_secs(5),
    };
    let error = Cri::open(config, plumb_supervise::process()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("absent.sock") && text.contains("No such file"), "{text}");
}
