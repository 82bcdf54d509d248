//! Updates of resources: in the cgroup first, and then confirmed by the runtime.

use std::path::PathBuf;

use futures_util::StreamExt as _;
use plumb_cri::{Cri, api};
use plumb_runtime::types::{ContainerId, Event, LinuxResources, Resources};
use plumb_runtime::{Confirmation, Error, Events, Runtime as _};

use crate::fake::Fake;

const UPDATE: &str = "UpdateContainerResources";

/// A container of a fake runtime, with its cgroup.
struct Container {
    fake: Fake,
    runtime: Cri,
    events: Events,
    id: ContainerId,
    shares: PathBuf,
}

impl Container {
    async fn start() -> Self {
        let fake = Fake::start();
        let group = |controller: &str| fake.cgroups().join(controller).join("plumb-fake/burstable/podu/c");
        for controller in ["cpu", "memory"] {
            std::fs::create_dir_all(group(controller)).unwrap();
        }
        for (controller, file, text) in [
            ("cpu", "cpu.shares", "102"),
            ("cpu", "cpu.cfs_quota_us", "-1"),
            ("cpu", "cpu.cfs_period_us", "100000"),
            ("memory", "memory.limit_in_bytes", "9223372036854771712"),
        ] {
            std::fs::write(group(controller).join(file), text).unwrap();
        }
        let annotations = [("plumb.dev/cgroup", "Burstable/u"), ("plumb.dev/sandbox", "s")];
        let status = api::ContainerStatus {
            id: "c".into(),
            state: api::ContainerState::Running.into(),
            annotations: annotations.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..Default::default()
        };
        fake.answer("ContainerStatus", &api::ContainerStatusResponse { status: Some(status) });
        fake.answer(UPDATE, &api::Empty {});
        let shares = group("cpu").join("cpu.shares");
        let runtime = fake.client().await.unwrap();
        let events = runtime.events();
        Self { fake, runtime, events, id: "c".into(), shares }
    }

    fn shares(&self) -> u64 {
        std::fs::read_to_string(&self.shares).unwrap().parse().unwrap()
    }

    async fn update(&self, shares: u64) -> Result<(), Error> {
        let to = LinuxResources { cpu_shares: Some(shares), ..LinuxResources::default() };
        self.runtime.update_container_resources(&self.id, &to.into()).await
    }

    async fn finished(&mut self) -> Confirmation {
        while let Some(event) = self.events.next().await {
            if let Event::UpdateFinished { sandbox, container } = event {
                assert_eq!((sandbox.as_str(), &container), ("s", &self.id));
                return self.runtime.confirmation(&self.id);
            }
        }
        panic!("the events ended");
    }

    /// The shares that the runtime was asked for.
    fn asked(&self) -> Vec<i64> {
        let asked = self.fake.asked::<api::UpdateContainerResourcesRequest>(UPDATE);
        asked.into_iter().map(|asked| asked.linux.unwrap().cpu_shares).collect()
    }
}

#[tokio::test]
async fn the_cgroup_has_resources_before_the_runtime_confirms_them() {
    let mut container = Container::start().await;
    assert_eq!(container.runtime.confirmation(&container.id), Confirmation::Confirmed);
    container.update(512).await.unwrap();
    assert_eq!(
        (container.shares(), container.runtime.confirmation(&container.id)),
        (512, Confirmation::Awaited)
    );
    assert_eq!(container.finished().await, Confirmation::Confirmed);
    assert_eq!((container.asked(), container.shares()), (vec![512], 512));
}

#[tokio::test]
async fn resources_are_read_from_the_cgroup_while_the_runtime_does_not_respond() {
    let container = Container::start().await;
    container.fake.stream(UPDATE, &[] as &[api::Empty]);
    container.update(512).await.unwrap();
    let calls = || container.fake.asked::<api::ContainerRequest>("ContainerStatus").len();
    let before = calls();
    let shares = async || {
        let read = container.runtime.container_resources(&container.id).await.unwrap().unwrap();
        read.linux().and_then(|read: &LinuxResources| read.cpu_shares)
    };
    assert_eq!(shares().await, Some(512));
    // The cgroup counts, and not what was written to it.
    std::fs::write(&container.shares, "300").unwrap();
    assert_eq!((shares().await, calls()), (Some(300), before));
    // Without a cgroup the runtime is asked.
    std::fs::remove_dir_all(container.shares.parent().unwrap()).unwrap();
    let found: Option<Resources> = container.runtime.container_resources(&container.id).await.unwrap();
    assert_eq!((found, calls()), (None, before + 1));
    assert_eq!(container.runtime.confirmation(&container.id), Confirmation::Awaited);
}

#[tokio::test]
async fn the_runtime_ends_up_with_the_latest_resources() {
    let mut container = Container::start().await;
    for shares in [512, 600, 700] {
        container.update(shares).await.unwrap();
    }
    while container.finished().await != Confirmation::Confirmed {}
    assert_eq!((container.asked().last(), container.shares()), (Some(&700), 700));
}

#[tokio::test]
async fn a_restarted_client_sends_unconfirmed_updates() {
    let mut container = Container::start().await;
    container.fake.stream(UPDATE, &[] as &[api::Empty]);
    container.update(512).await.unwrap();
    while container.asked().is_empty() {
        tokio::task::yield_now().await;
    }
    // Killed while the runtime updates the container.
    container.fake.refuse(UPDATE);
    container.runtime = container.fake.client().await.unwrap();
    container.events = container.runtime.events();
    if container.runtime.confirmation(&container.id) != Confirmation::Confirmed {
        container.finished().await;
    }
    assert_eq!(
        (container.asked(), container.shares()),
        (vec![512, 512], 102),
        "it was refused, and taken back"
    );
    // Once.
    let _another = container.fake.client().await.unwrap();
    container.fake.answer(UPDATE, &api::Empty {});
    container.update(600).await.unwrap();
    assert_eq!(container.asked(), [512, 512, 600]);
}

#[tokio::test]
async fn resources_that_the_runtime_rejects_are_reverted_in_the_cgroup_and_the_next_update_fails() {
    let mut container = Container::start().await;
    container.update(512).await.unwrap();
    assert_eq!(container.finished().await, Confirmation::Confirmed);
    container.fake.refuse(UPDATE);
    container.update(768).await.unwrap();
    assert_eq!(container.finished().await, Confirmation::Confirmed);
    assert_eq!(container.shares(), 512);
    let refused = container.update(768).await;
    assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
    assert_eq!((container.asked(), container.shares()), (vec![512, 768, 768], 512));
    // The runtime is asked first until it accepts an update.
    container.fake.answer(UPDATE, &api::Empty {});
    container.update(900).await.unwrap();
    assert_eq!(
        (container.asked().last(), container.shares()),
        (Some(&900), 512),
        "it writes the cgroup itself"
    );
}

#[tokio::test]
async fn an_update_is_sent_again_until_the_runtime_responds() {
    let mut container = Container::start().await;
    container.fake.lose(UPDATE);
    container.update(512).await.unwrap();
    let failing = container.finished().await;
    assert!(matches!(&failing, Confirmation::Failing(error) if error.outcome_unknown()), "{failing:?}");
    assert_eq!(container.shares(), 512);
    container.fake.answer(UPDATE, &api::Empty {});
    while container.finished().await != Confirmation::Confirmed {}
    assert_eq!((container.asked().last(), container.shares()), (Some(&512), 512));
}

#[tokio::test]
async fn the_update_of_a_container_whose_cgroup_was_removed_is_left_to_the_runtime() {
    let container = Container::start().await;
    container.update(512).await.unwrap();
    // Of a container that exits, the cgroups of the controllers are removed one after the other.
    std::fs::remove_dir_all(container.shares.parent().unwrap()).unwrap();
    container.fake.refuse(UPDATE);
    let refused = container.update(600).await;
    assert!(matches!(refused, Err(Error::InvalidArgument(_))), "{refused:?}");
    assert_eq!(container.asked().last(), Some(&600));
}
