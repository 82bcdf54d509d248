//! What is sent to a runtime, and what is made of its responses.

use futures_util::StreamExt as _;
use plumb_cri::api;
use plumb_resize::cgroup::WeightScale;
use plumb_runtime::Runtime as _;
use plumb_runtime::cgroup::Layout;
use plumb_runtime::types::{
    ContainerChange, ContainerConfig, ContainerFilter, Event, LinuxResources, PodMeta, QosClass, Resources,
    SandboxConfig, WindowsResources,
};

use crate::fake::Fake;
use crate::node::TIMEOUT;

#[tokio::test]
async fn linux_resources_are_always_set_and_windows_resources_have_their_own_field() {
    let fake = Fake::start();
    fake.answer("UpdateContainerResources", &api::Empty {});
    let runtime = fake.client().await.unwrap();
    let linux = LinuxResources { cpu_shares: Some(512), ..LinuxResources::default() };
    let windows = WindowsResources { cpu_maximum: Some(5000), ..WindowsResources::default() };
    runtime.update_container_resources(&"c".into(), &linux.into()).await.unwrap();
    runtime.update_container_resources(&"c".into(), &Resources::Windows(windows)).await.unwrap();
    let asked = fake.asked::<api::UpdateContainerResourcesRequest>("UpdateContainerResources");
    let sent = api::LinuxContainerResources { cpu_shares: 512, ..Default::default() };
    assert_eq!((asked[0].linux.clone(), asked[0].windows.clone()), (Some(sent), None));
    assert_eq!(asked[1].linux, Some(api::LinuxContainerResources::default()));
    assert_eq!(asked[1].windows.as_ref().map(|windows| windows.cpu_maximum), Some(5000));
}

#[tokio::test]
async fn resources_that_a_runtime_reports_count_where_no_cgroup_is_found() {
    let fake = Fake::start();
    let runtime = fake.client().await.unwrap();
    let reported =
        api::LinuxContainerResources { cpu_shares: 512, memory_limit_in_bytes: 64, ..Default::default() };
    let table = [
        (
            Some(reported),
            Some(LinuxResources { cpu_shares: Some(512), memory_limit: Some(64), ..Default::default() }),
        ),
        // A runtime from before the field was there.
        (None, None),
    ];
    for (reported, expected) in table {
        let resources = reported.map(|linux| api::ContainerResources { linux: Some(linux), windows: None });
        let status = api::ContainerStatus {
            id: "c".into(),
            state: api::ContainerState::Running.into(),
            resources,
            ..Default::default()
        };
        fake.answer("ContainerStatus", &api::ContainerStatusResponse { status: Some(status) });
        let found = runtime.container_status(&"c".into()).await.unwrap().resources;
        assert_eq!(found.as_ref().and_then(Resources::linux), expected.as_ref());
    }
}

#[tokio::test]
async fn a_runtime_without_sandbox_updates_is_called_once_and_then_the_cgroup_is_written() {
    let fake = Fake::start();
    fake.answer("RunPodSandbox", &api::RunPodSandboxResponse { pod_sandbox_id: "s".into() });
    let runtime = fake.client().await.unwrap();
    let meta = PodMeta { name: "web".into(), namespace: "ns".into(), uid: "u".into(), attempt: 0 };
    let id = runtime.run_sandbox(SandboxConfig::new(meta, QosClass::Burstable)).await.unwrap();
    // As the kernel has it.
    let group = |controller: &str| fake.cgroups().join(controller).join("plumb-fake/burstable/podu");
    for (controller, file, text) in [
        ("cpu", "cpu.shares", "2"),
        ("cpu", "cpu.cfs_quota_us", "-1"),
        ("cpu", "cpu.cfs_period_us", "100000"),
        ("memory", "memory.limit_in_bytes", "9223372036854771712"),
    ] {
        std::fs::write(group(controller).join(file), text).unwrap();
    }
    let to = LinuxResources { cpu_shares: Some(512), ..LinuxResources::default() };
    for _ in 0..2 {
        runtime.update_sandbox_resources(&id, &to).await.unwrap();
    }
    assert_eq!(fake.asked::<api::UpdatePodSandboxResourcesRequest>("UpdatePodSandboxResources").len(), 1);
    assert_eq!(std::fs::read_to_string(group("cpu").join("cpu.shares")).unwrap(), "512");

    let run = fake.asked::<api::RunPodSandboxRequest>("RunPodSandbox").remove(0).config.unwrap();
    assert_eq!(run.linux.unwrap().cgroup_parent, "/plumb-fake/burstable/podu");
}

#[tokio::test]
async fn a_container_reports_the_image_of_its_spec_and_not_the_resolved_one() {
    let fake = Fake::start();
    fake.answer("RunPodSandbox", &api::RunPodSandboxResponse { pod_sandbox_id: "s".into() });
    fake.answer(
        "PodSandboxStatus",
        &api::PodSandboxStatusResponse {
            status: Some(api::PodSandboxStatus { id: "s".into(), ..Default::default() }),
            ..Default::default()
        },
    );
    fake.answer("CreateContainer", &api::CreateContainerResponse { container_id: "c".into() });
    let runtime = fake.client().await.unwrap();
    let meta = PodMeta { name: "web".into(), namespace: "ns".into(), uid: "u".into(), attempt: 0 };
    let sandbox = runtime.run_sandbox(SandboxConfig::new(meta, QosClass::Burstable)).await.unwrap();
    let config = ContainerConfig { image: "nginx".into(), ..ContainerConfig::default() };
    runtime.create_container(&sandbox, config).await.unwrap();

    let asked = fake.asked::<api::CreateContainerRequest>("CreateContainer").remove(0).config.unwrap();
    let resolved =
        api::ImageSpec { image: "docker.io/library/nginx:latest".into(), ..api::ImageSpec::default() };
    let status = api::ContainerStatus {
        id: "c".into(),
        image: Some(resolved.clone()),
        annotations: asked.annotations.clone(),
        ..Default::default()
    };
    fake.answer("ContainerStatus", &api::ContainerStatusResponse { status: Some(status) });
    let listed = api::Container {
        id: "c".into(),
        image: Some(resolved),
        annotations: asked.annotations,
        ..Default::default()
    };
    fake.answer("ListContainers", &api::ListContainersResponse { containers: vec![listed] });
    assert_eq!(runtime.container_status(&"c".into()).await.unwrap().container.image, "nginx");
    let all = runtime.list_containers(&ContainerFilter::default()).await.unwrap();
    assert_eq!((all[0].image.as_str(), all[0].annotations.len()), ("nginx", 0));
}

#[tokio::test]
async fn events_of_the_runtime_are_forwarded_if_they_are_about_pods_of_the_cluster() {
    let fake = Fake::start();
    let event = |cluster: &str, id: &str| api::ContainerEventResponse {
        container_id: id.into(),
        container_event_type: api::ContainerEventType::Stopped.into(),
        created_at: 1_000_000_000,
        pod_sandbox_status: Some(api::PodSandboxStatus {
            id: "s".into(),
            labels: [("plumb.dev/cluster".to_owned(), cluster.to_owned())].into(),
            ..Default::default()
        }),
        containers_statuses: Vec::new(),
    };
    fake.stream("GetContainerEvents", &[event("another", "a"), event("plumb-fake", "b")]);
    let runtime = fake.client().await.unwrap();
    let mut events = runtime.events();
    let first = tokio::time::timeout(TIMEOUT, events.next()).await.unwrap().unwrap();
    let Event::Container { id, sandbox, change, .. } = first else { panic!("{first:?}") };
    assert_eq!((id.as_str(), sandbox.as_str(), change), ("b", "s", ContainerChange::Stopped));
}

#[tokio::test]
async fn a_weight_is_read_as_the_shares_that_a_container_was_created_with() {
    let fake = Fake::start();
    let root = fake.cgroups();
    let pod = root.join("plumb-fake/burstable/podu");
    let container = pod.join("c");
    std::fs::create_dir_all(&container).unwrap();
    std::fs::write(root.join("cgroup.controllers"), "cpu memory").unwrap();
    for folder in container.ancestors().skip(1).take_while(|folder| folder.starts_with(root)) {
        std::fs::write(folder.join("cgroup.subtree_control"), "cpu memory").unwrap();
    }
    fake.answer("RunPodSandbox", &api::RunPodSandboxResponse { pod_sandbox_id: "s".into() });
    let sandbox = api::PodSandboxStatus { id: "s".into(), ..Default::default() };
    fake.answer(
        "PodSandboxStatus",
        &api::PodSandboxStatusResponse { status: Some(sandbox), ..Default::default() },
    );
    fake.answer("CreateContainer", &api::CreateContainerResponse { container_id: "c".into() });
    let runtime = fake.client_with(Layout::v2(root).unwrap()).await.unwrap();
    let meta = PodMeta { name: "web".into(), namespace: "ns".into(), uid: "u".into(), attempt: 0 };
    let sandbox = runtime.run_sandbox(SandboxConfig::new(meta, QosClass::Burstable)).await.unwrap();
    let linux = LinuxResources { cpu_shares: Some(333), ..LinuxResources::default() };
    let config = ContainerConfig { resources: linux.into(), ..ContainerConfig::default() };
    let id = runtime.create_container(&sandbox, config).await.unwrap();
    let asked = fake.asked::<api::CreateContainerRequest>("CreateContainer").remove(0).config.unwrap();
    // Such a runtime does not report the resources of a container.
    let status = api::ContainerStatus {
        id: "c".into(),
        state: api::ContainerState::Running.into(),
        annotations: asked.annotations,
        ..Default::default()
    };
    fake.answer("ContainerStatus", &api::ContainerStatusResponse { status: Some(status) });
    for (file, text) in [("cpu.max", "max 100000"), ("memory.max", "max"), ("memory.swap.max", "max")] {
        std::fs::write(container.join(file), text).unwrap();
    }
    // The weight that a runtime writes, by its version, and one that another process has written since.
    for (scale, of, expected) in [
        (WeightScale::Quadratic, 333, 333),
        (WeightScale::Linear, 333, 333),
        (WeightScale::Quadratic, 1024, WeightScale::Quadratic.shares(WeightScale::Quadratic.weight(1024))),
    ] {
        std::fs::write(container.join("cpu.weight"), scale.weight(of).to_string()).unwrap();
        let found = runtime.container_status(&id).await.unwrap().resources.unwrap();
        assert_eq!(found.linux().unwrap().cpu_shares, Some(expected), "{scale:?} {of}");
    }
}
