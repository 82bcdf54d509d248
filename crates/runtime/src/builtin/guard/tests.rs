//! A group that was armed is disarmed in the end in all sequences of events.

use std::thread;

use parking_lot::Mutex as SyncMutex;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const WINDOW: Duration = Duration::from_millis(40);

/// A group, as the kernel and the disk have it.
#[derive(Debug)]
struct Kernel {
    limit: i64,
    usage: i64,
    armed: bool,
    record: Option<AppliedLimit>,
    restored: u32,
}

/// What a runtime does to it. Several may come after each other.
#[derive(Debug)]
struct Fake {
    kernel: Arc<SyncMutex<Kernel>>,
    faults: Arc<SyncMutex<Faults>>,
    open: Arc<SyncMutex<bool>>,
}

#[derive(Debug, Default)]
struct Faults {
    disarms_fail: u32,
    sets_fail: u32,
    arms_fail: u32,
    /// The next read of the group, and the next write of a limit, take this long.
    slow_look: Option<Duration>,
    slow_set: Option<Duration>,
}

fn failure() -> Error {
    Error::failed("a test", "injected")
}

fn fails(times: &mut u32) -> Result<()> {
    let left = times.checked_sub(1);
    *times = left.unwrap_or(0);
    left.map_or(Ok(()), |_| Err(failure()))
}

impl Effects for Fake {
    fn is_open(&self) -> bool {
        *self.open.lock()
    }

    fn applied(&self) -> Result<AppliedLimit> {
        Ok(AppliedLimit { limit: self.kernel.lock().limit, high: None })
    }

    fn set(&self, to: &LinuxResources) -> Result<()> {
        let slow = self.faults.lock().slow_set.take();
        slow.into_iter().for_each(thread::sleep);
        fails(&mut self.faults.lock().sets_fail)?;
        self.kernel.lock().limit = to.memory_limit.unwrap();
        Ok(())
    }

    fn window(&self, _limit: i64, _restored: bool) -> Duration {
        WINDOW
    }

    fn arm(&self, before: &AppliedLimit, limit: i64) -> Result<u64> {
        let mut kernel = self.kernel.lock();
        kernel.record = Some(*before);
        kernel.armed = true;
        // It fails when the worst is done.
        fails(&mut self.faults.lock().arms_fail)?;
        Ok(u64::try_from(limit).unwrap() - 1)
    }

    fn is_near_limit(&self, threshold: u64) -> Result<bool> {
        let slow = self.faults.lock().slow_look.take();
        slow.into_iter().for_each(thread::sleep);
        let kernel = self.kernel.lock();
        Ok(kernel.usage > kernel.limit || u64::try_from(kernel.usage).unwrap() >= threshold)
    }

    fn restore(&self, before: &AppliedLimit) -> Result<()> {
        self.kernel.lock().limit = before.limit;
        Ok(())
    }

    fn emit_restored(&self) {
        self.kernel.lock().restored += 1;
    }

    fn disarm(&self, _before: &AppliedLimit) -> Result<()> {
        fails(&mut self.faults.lock().disarms_fail)?;
        let mut kernel = self.kernel.lock();
        (kernel.armed, kernel.record) = (false, None);
        Ok(())
    }

    fn recorded(&self) -> Option<AppliedLimit> {
        self.kernel.lock().record
    }

    fn disarm_unrecorded(&self) -> Result<()> {
        self.kernel.lock().armed = false;
        Ok(())
    }
}

/// A group and the guard that a runtime has over it.
struct Scene {
    kernel: Arc<SyncMutex<Kernel>>,
    faults: Arc<SyncMutex<Faults>>,
    open: Arc<SyncMutex<bool>>,
    guard: Arc<Guard<Fake>>,
}

impl Scene {
    fn new() -> Self {
        let kernel = Kernel { limit: 100, usage: 10, armed: false, record: None, restored: 0 };
        Self::of(Arc::new(SyncMutex::new(kernel)))
    }

    fn of(kernel: Arc<SyncMutex<Kernel>>) -> Self {
        let (faults, open) = (Arc::default(), Arc::new(SyncMutex::new(true)));
        let effects = Fake { kernel: kernel.clone(), faults: Arc::clone(&faults), open: open.clone() };
        Self { kernel, faults, open, guard: Guard::new(effects, Arc::default(), None) }
    }

    async fn set(&self, limit: i64) -> Result<()> {
        let to = LinuxResources { memory_limit: Some(limit), ..LinuxResources::default() };
        self.guard.set(&to).await
    }

    /// The runtime dies, and another one takes its place.
    async fn crash(&mut self) {
        *self.open.lock() = false;
        *self = Self::of(self.kernel.clone());
        self.guard.resume(true).await;
    }

    async fn disarmed(&self) {
        let wait = async {
            while self.kernel.lock().armed {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(30), wait).await.is_ok(), "it stays armed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_that_ends_while_the_group_is_read_disarms_it() {
    let scene = Scene::new();
    scene.faults.lock().slow_look = Some(WINDOW * 3);
    scene.set(50).await.unwrap();
    scene.disarmed().await;
    assert_eq!(scene.kernel.lock().limit, 50);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_is_cancelled_while_the_limit_is_written_leaves_nothing_armed() {
    let scene = Scene::new();
    scene.faults.lock().slow_set = Some(WINDOW);
    assert!(tokio::time::timeout(WINDOW / 4, scene.set(50)).await.is_err());
    scene.disarmed().await;
}

#[tokio::test(start_paused = true)]
async fn a_disarm_that_fails_is_retried_until_it_works() {
    let scene = Scene::new();
    scene.faults.lock().disarms_fail = 8;
    scene.set(50).await.unwrap();
    scene.disarmed().await;
    assert_eq!(scene.kernel.lock().limit, 50);
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_cannot_be_written_or_guarded_leaves_nothing_armed() {
    for faults in [Faults { sets_fail: 1, ..Faults::default() }, Faults { arms_fail: 1, ..Faults::default() }]
    {
        let scene = Scene::new();
        *scene.faults.lock() = faults;
        scene.set(50).await.unwrap_err();
        let kernel = scene.kernel.lock();
        assert_eq!((kernel.limit, kernel.armed), (100, false));
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_outgrows_its_limit_in_the_guard_window_gets_its_former_limit() {
    let scene = Scene::new();
    scene.set(50).await.unwrap();
    scene.set(40).await.unwrap();
    scene.kernel.lock().usage = 39;
    scene.guard.waker.notify_one();
    scene.disarmed().await;
    let kernel = scene.kernel.lock();
    assert_eq!((kernel.limit, kernel.restored), (100, 1));
}

#[tokio::test(start_paused = true)]
async fn a_group_that_was_armed_at_a_crash_is_disarmed_at_the_next_start() {
    for (record, usage, limit) in [(true, 10, 50), (true, 60, 100), (false, 10, 50)] {
        let mut scene = Scene::new();
        scene.set(50).await.unwrap();
        scene.kernel.lock().usage = usage;
        if !record {
            scene.kernel.lock().record = None;
        }
        scene.crash().await;
        scene.disarmed().await;
        assert_eq!(scene.kernel.lock().limit, limit, "{record} {usage}");
    }
}

#[derive(Clone, Debug)]
enum Happening {
    Set(i64),
    Use(i64),
    Wake,
    Time(u64),
    Crash,
    DisarmsFail(u32),
    SetsFail,
    ArmsFail,
}

fn happening() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (10i64..150).prop_map(Happening::Set),
        2 => (0i64..120).prop_map(Happening::Use),
        2 => Just(Happening::Wake),
        3 => (0u64..60).prop_map(Happening::Time),
        1 => Just(Happening::Crash),
        1 => (1u32..5).prop_map(Happening::DisarmsFail),
        1 => Just(Happening::SetsFail),
        1 => Just(Happening::ArmsFail),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn an_armed_group_is_always_watched_and_finally_disarmed(
        happenings in vec(happening(), 1..30),
    ) {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        tokio.block_on(async {
            let mut scene = Scene::new();
            for happening in happenings {
                match happening {
                    // It may be refused.
                    Happening::Set(limit) => drop(scene.set(limit).await),
                    Happening::Use(usage) => scene.kernel.lock().usage = usage,
                    Happening::Wake => scene.guard.waker.notify_one(),
                    Happening::Time(millis) => tokio::time::advance(Duration::from_millis(millis)).await,
                    Happening::Crash => scene.crash().await,
                    Happening::DisarmsFail(times) => scene.faults.lock().disarms_fail = times,
                    Happening::SetsFail => scene.faults.lock().sets_fail = 1,
                    Happening::ArmsFail => scene.faults.lock().arms_fail = 1,
                }
                let state = scene.guard.state.lock().await;
                assert!(!scene.kernel.lock().armed || state.armed.is_some(), "armed, and not known to be");
                assert!(state.armed.is_none() || state.watched, "armed, and not watched");
            }
            scene.disarmed().await;
            assert_eq!(scene.kernel.lock().record, None);
        });
    }
}
