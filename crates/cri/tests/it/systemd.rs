//! The cgroup driver systemd, with a fake manager of units.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use plumb_cri::{Cri, api};
use plumb_runtime::cgroup::Layout;
use plumb_runtime::types::{ContainerFilter, LinuxResources, PodMeta, QosClass, SandboxConfig};
use plumb_runtime::{Error, Runtime as _};

use crate::fake::Fake;
use crate::node::{MIB, figures, resources};
use crate::units::Units;

const POD: &str = "plumb_fake-burstable-pod1_2.slice";

/// A client of a fake runtime with the cgroup driver systemd.
struct Site {
    fake: Fake,
    units: Arc<Units>,
    runtime: Cri,
}

impl Site {
    async fn start() -> Self {
        let fake = Fake::start();
        let linux = api::LinuxRuntimeConfiguration { cgroup_driver: api::CgroupDriver::Systemd.into() };
        fake.answer("RuntimeConfig", &api::RuntimeConfigResponse { linux: Some(linux) });
        fake.answer("RunPodSandbox", &api::RunPodSandboxResponse { pod_sandbox_id: "s".into() });
        for call in ["StopPodSandbox", "RemovePodSandbox"] {
            fake.answer(call, &api::Empty {});
        }
        let units = Arc::new(Units::new(fake.cgroups()));
        let runtime = client(&fake, &units).await;
        Self { fake, units, runtime }
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.units.folder(POD).join(file)).unwrap()
    }
}

async fn client(fake: &Fake, units: &Arc<Units>) -> Cri {
    let config = fake.config(Layout::v2(fake.cgroups()).unwrap());
    Cri::open_with(config, plumb_supervise::process(), units.clone()).await.unwrap()
}

fn sandbox() -> SandboxConfig {
    let meta = PodMeta { name: "web".into(), namespace: "ns".into(), uid: "1-2".into(), attempt: 0 };
    SandboxConfig { resources: resources(255, 64), ..SandboxConfig::new(meta, QosClass::Burstable) }
}

#[tokio::test]
async fn pods_and_classes_are_slices_and_the_sandbox_is_in_that_of_its_pod() {
    let site = Site::start().await;
    let classes = ["plumb_fake.slice", "plumb_fake-burstable.slice", "plumb_fake-besteffort.slice"];
    assert_eq!(site.units.asked(), classes.map(|unit| format!("start {unit}")));
    let id = site.runtime.run_sandbox(sandbox()).await.unwrap();
    let properties =
        "CPUQuotaPerSecUSec=260000 CPUQuotaPeriodUSec=100000 CPUWeight=10 MemoryMax=67108864 MemorySwapMax=0";
    assert_eq!(site.units.asked(), [format!("start {POD} {properties}")]);
    // What systemd rounds is written as it is.
    assert_eq!(
        (site.read("cpu.max").as_str(), site.read("memory.max").as_str()),
        ("25500 100000", "67108864")
    );
    let run = site.fake.asked::<api::RunPodSandboxRequest>("RunPodSandbox").remove(0).config.unwrap();
    assert_eq!(run.linux.unwrap().cgroup_parent, POD);

    site.runtime.remove_sandbox(&id).await.unwrap();
    assert_eq!(site.units.asked(), [format!("stop {POD}")]);
    site.runtime.clear().await.unwrap();
    assert_eq!(site.units.asked(), ["stop plumb_fake.slice"]);
}

#[tokio::test]
async fn new_resources_are_properties_of_the_unit_and_are_read_from_its_cgroup() {
    let site = Site::start().await;
    let id = site.runtime.run_sandbox(sandbox()).await.unwrap();
    site.units.asked();
    site.runtime.update_sandbox_resources(&id, &resources(501, 128)).await.unwrap();
    let properties = "CPUQuotaPerSecUSec=510000 CPUQuotaPeriodUSec=100000 CPUWeight=20 MemoryMax=134217728 MemorySwapMax=0";
    assert_eq!(site.units.asked(), [format!("set {POD} {properties}")]);
    let read = site.runtime.sandbox_resources(&id).await.unwrap().unwrap();
    assert_eq!((read.cpu_quota, read.memory_limit), (Some(50_100), Some(128 * MIB)));

    let shares = LinuxResources { cpu_shares: Some(2048), ..LinuxResources::default() };
    site.runtime.update_class_resources(QosClass::Burstable, &shares).await.unwrap();
    assert_eq!(site.units.asked(), ["set plumb_fake-burstable.slice CPUWeight=79"]);
}

#[tokio::test]
async fn resources_that_systemd_rejects_are_reverted_in_the_cgroup() {
    let site = Site::start().await;
    let id = site.runtime.run_sandbox(sandbox()).await.unwrap();
    let before = site.runtime.sandbox_resources(&id).await.unwrap().unwrap();
    site.units.refuse(true);
    let refused = site.runtime.update_sandbox_resources(&id, &resources(500, 80)).await;
    assert!(matches!(&refused, Err(Error::Failed { message, .. }) if message == "refused"), "{refused:?}");
    let after = site.runtime.sandbox_resources(&id).await.unwrap().unwrap();
    assert_eq!(figures(&after), figures(&before));
    // A limit that does not fit is refused before systemd is asked, which would have processes killed.
    site.units.asked();
    fs::write(site.units.folder(POD).join("memory.current"), (65 * MIB).to_string()).unwrap();
    fs::write(site.units.folder(POD).join("memory.reclaim"), "").unwrap();
    let refused = site.runtime.update_sandbox_resources(&id, &resources(500, 32)).await.unwrap_err();
    assert!(refused.is_busy(), "{refused:?}");
    assert_eq!(site.units.asked(), [""; 0]);
}

#[tokio::test]
async fn the_cgroups_of_containers_are_scopes_in_the_slice_of_their_pod() {
    for prefix in ["cri-containerd", "crio"] {
        let site = Site::start().await;
        site.runtime.run_sandbox(sandbox()).await.unwrap();
        let scope: PathBuf = site.units.folder(POD).join(format!("{prefix}-c.scope"));
        Units::create(&scope);
        let annotations = [("plumb.dev/cgroup", "Burstable/1-2"), ("plumb.dev/sandbox", "s")];
        let status = api::ContainerStatus {
            id: "c".into(),
            state: api::ContainerState::Running.into(),
            annotations: annotations.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
            ..Default::default()
        };
        site.fake.answer("ContainerStatus", &api::ContainerStatusResponse { status: Some(status) });
        site.fake.answer("UpdateContainerResources", &api::Empty {});
        site.runtime.update_container_resources(&"c".into(), &resources(100, 32).into()).await.unwrap();
        assert_eq!(fs::read_to_string(scope.join("memory.max")).unwrap(), (32 * MIB).to_string());
        let found = site.runtime.container_resources(&"c".into()).await.unwrap().unwrap();
        assert_eq!(figures(found.linux().unwrap()), figures(&resources(100, 32)), "{prefix}");
    }
}

#[tokio::test]
async fn a_restarted_client_uses_the_existing_slices() {
    let mut site = Site::start().await;
    site.runtime.run_sandbox(sandbox()).await.unwrap();
    site.units.asked();
    site.runtime = client(&site.fake, &site.units).await;
    let asked = site.units.asked();
    assert!(asked.contains(&"set plumb_fake-burstable.slice".to_owned()), "accounting alone: {asked:?}");
    assert_eq!(site.read("memory.max"), (64 * MIB).to_string());
    // Another sandbox of the same pod.
    let again = SandboxConfig { resources: resources(255, 96), ..sandbox() };
    site.runtime.run_sandbox(again).await.unwrap();
    assert_eq!(site.read("memory.max"), (96 * MIB).to_string());
    let last = site.units.asked().pop().unwrap();
    assert!(last.starts_with(&format!("set {POD} ")) && last.contains("MemoryMax=100663296"), "{last}");
}

#[tokio::test]
async fn a_uid_that_cannot_be_part_of_a_unit_is_rejected() {
    let site = Site::start().await;
    let mut config = sandbox();
    config.meta.uid = "a b".into();
    let refused = site.runtime.run_sandbox(config).await.unwrap_err();
    assert!(matches!(&refused, Error::InvalidArgument(why) if why.contains("a b")), "{refused:?}");
    assert_eq!(site.runtime.list_containers(&ContainerFilter::default()).await.unwrap(), []);
}
