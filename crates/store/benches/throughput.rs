//! What the store can do, each figure beside the one it is to be compared with, in one run.
//!
//! `cargo bench -p plumb-store --bench throughput [-- <directory>]`; the directory decides which disk is measured.
#![expect(clippy::unwrap_used, reason = "a bench that cannot run says so by panicking")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::{
    convert::Infallible,
    env,
    fmt::Debug,
    fs,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use plumb_store::{
    Attributes, Edit, Event, EventFilter, Journal, JournalError, Key, List, Options, Prefix, Recovery, Store,
    Ticket, Write,
};
use tokio::runtime::Runtime;

const RUN: Duration = Duration::from_secs(1);
/// Each figure is the best of so many runs, so that a neighbour on the same machine counts for little.
const ROUNDS: usize = 5;
const KEYS: usize = 10_000;

type Part = fn(&Path);
/// `ONLY=writes` and so on runs one of them.
const PARTS: [(&str, Part); 6] = [
    ("sync", bare_sync),
    ("writes", writes),
    ("one-key", one_key),
    ("reads", reads),
    ("watches", watches),
    ("size", size),
];

fn main() {
    let mut arguments = env::args().skip(1).filter(|argument| argument != "--bench");
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("load"), Some(directory)) => load(Path::new(&directory)),
        (Some("start"), Some(directory)) => start(Path::new(&directory)),
        (at, _) => {
            let parent = at.map_or_else(env::temp_dir, Into::into);
            let scratch = tempfile::tempdir_in(parent).unwrap();
            let only = env::var("ONLY").ok();
            for (name, part) in PARTS {
                if only.as_ref().is_none_or(|only| only == name) {
                    part(scratch.path());
                }
            }
        }
    }
}

fn key(n: usize) -> Key {
    Key::new(format!("configmaps/default/cm-{n:06}")).unwrap()
}

fn kilobyte() -> Bytes {
    Bytes::from(vec![b'x'; 1024])
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap()
}

fn fill(store: &Store, count: usize) {
    let tickets: Vec<_> = (0..count).map(|n| store.write(Write::put(key(n), kilobyte()))).collect();
    for ticket in tickets {
        ticket.wait().unwrap();
    }
}

/// Processor time that this process has used.
fn processor() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap()).sum::<f64>() / 100.0
}

fn resident() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

/// What the disk itself allows: one kilobyte appended and synced.
fn bare_sync(at: &Path) {
    use std::io::Write as _;
    let mut file = fs::File::create(at.join("bare")).unwrap();
    let mut times: Vec<Duration> = (0..1_000)
        .map(|_| {
            let begin = Instant::now();
            file.write_all(&kilobyte()).unwrap();
            file.sync_data().unwrap();
            begin.elapsed()
        })
        .collect();
    times.sort();
    println!("disk: append of 1 KiB and fdatasync, median {:?}, 99th {:?}", times[500], times[990]);
}

struct Rate {
    per_second: f64,
    median: Duration,
    late: Duration,
    processor: f64,
    batch: f64,
}

/// So many tasks write for a while, each the next when the last is durable.
fn drive<F, T, O, E>(store: &Store, writers: usize, write: F) -> Rate
where
    F: Fn(&Store, usize) -> T + Clone + Send + 'static,
    T: Future<Output = Result<O, E>> + Send,
    E: Debug,
{
    let runtime = runtime();
    let stop = Arc::new(AtomicBool::new(false));
    let begin = Instant::now();
    let used = processor();
    let batches = store.stats().batches;
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let store = store.clone();
            let stop = stop.clone();
            let write = write.clone();
            runtime.spawn(async move {
                let mut times = Vec::new();
                let mut n = writer * 7_919;
                while !stop.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    write(&store, n).await.unwrap();
                    times.push(begin.elapsed());
                    n = n.wrapping_mul(25_214_903).wrapping_add(11);
                }
                times
            })
        })
        .collect();
    thread::sleep(RUN);
    stop.store(true, Ordering::Relaxed);
    let mut times: Vec<Duration> = runtime.block_on(async {
        let mut all = Vec::new();
        for task in tasks {
            all.extend(task.await.unwrap());
        }
        all
    });
    let elapsed = begin.elapsed().as_secs_f64();
    let count = times.len() as f64;
    times.sort();
    Rate {
        per_second: count / elapsed,
        median: times[times.len() / 2],
        late: times[times.len() * 99 / 100],
        processor: (processor() - used) * 1e6 / count,
        batch: count / (store.stats().batches - batches) as f64,
    }
}

fn show(what: &str, rate: &Rate) {
    let Rate { per_second, median, late, processor, batch } = rate;
    println!(
        "{what:<42} {per_second:>8.0}/s  median {median:>9.1?}  99th {late:>9.1?}  {processor:>6.1} µs cpu each  {batch:>6.1} in a batch"
    );
}

fn best(rates: impl IntoIterator<Item = Rate>) -> Rate {
    rates.into_iter().max_by(|a, b| a.per_second.total_cmp(&b.per_second)).unwrap()
}

fn put(store: &Store, n: usize) -> Ticket<Arc<Event>> {
    store.write(Write::put(key(n % KEYS), kilobyte()))
}

fn writes(at: &Path) {
    println!("\ndurable writes of 1 KiB, {KEYS} keys, best of {ROUNDS} runs that take turns");
    let bare = bare_store(&at.join("bare-append"));
    let log = Store::open(at.join("log"), Options::default()).unwrap();
    fill(&bare, KEYS);
    fill(&log, KEYS);
    for writers in [1, 32, 256] {
        let (with_bare, with_log): (Vec<_>, Vec<_>) =
            (0..ROUNDS).map(|_| (drive(&bare, writers, put), drive(&log, writers, put))).unzip();
        let with_bare = best(with_bare);
        let with_log = best(with_log);
        show(&format!("bare append, {writers} writers"), &with_bare);
        show(&format!("log, {writers} writers"), &with_log);
        println!("{:<42} {:.1} times", "log against bare append", with_log.per_second / with_bare.per_second);
    }
}

fn one_key(at: &Path) {
    println!("\nupdates of one key (read, change, write) by 32 writers");
    let store = Store::open(at.join("one-key"), Options::default()).unwrap();
    let rate = drive(&store, 32, |store, _| {
        store.update(&key(0), |_| Ok::<_, Infallible>(Some(Edit::put(kilobyte()))))
    });
    show("updates", &rate);
}

fn reads(at: &Path) {
    println!("\nreads by two threads, alone and beside 32 writers");
    let store = Store::open(at.join("reads"), Options::default()).unwrap();
    fill(&store, KEYS);
    let count = |beside: &dyn Fn()| {
        let stop = AtomicBool::new(false);
        let reads = AtomicU64::new(0);
        let slowest = AtomicU64::new(0);
        thread::scope(|scope| {
            for reader in 0..2 {
                let store = &store;
                let stop = &stop;
                let reads = &reads;
                let slowest = &slowest;
                scope.spawn(move || {
                    let keys: Vec<Key> = (0..KEYS).map(key).collect();
                    let mut n = reader;
                    while !stop.load(Ordering::Relaxed) {
                        let begin = Instant::now();
                        for _ in 0..100 {
                            std::hint::black_box(store.get(&keys[n % KEYS]).unwrap());
                            n += 7_919;
                        }
                        let nanos = u64::try_from(begin.elapsed().as_nanos()).unwrap();
                        slowest.fetch_max(nanos, Ordering::Relaxed);
                        reads.fetch_add(100, Ordering::Relaxed);
                    }
                });
            }
            beside();
            stop.store(true, Ordering::Relaxed);
        });
        (reads.into_inner() as f64 / RUN.as_secs_f64(), Duration::from_nanos(slowest.into_inner()))
    };
    let alone = count(&|| thread::sleep(RUN));
    let writes = std::cell::Cell::new(0.0);
    let beside = count(&|| {
        writes.set(drive(&store, 32, put).per_second);
    });
    println!("gets alone: {:.0}/s, slowest hundred {:?}", alone.0, alone.1);
    println!(
        "gets beside {:.0} writes/s on the same two cores: {:.0}/s, slowest hundred {:?}",
        writes.get(),
        beside.0,
        beside.1
    );
    let begin = Instant::now();
    let rounds = 100;
    for _ in 0..rounds {
        assert_eq!(store.list(&List::all(Prefix::new("configmaps").unwrap())).unwrap().objects.len(), KEYS);
    }
    println!("list of {KEYS} objects {:?}", begin.elapsed() / rounds);
}

fn watches(at: &Path) {
    println!("\n32 writers of pods on 1,000 nodes, and who watches");
    let write = |store: &Store, n: usize| {
        let node = Attributes::one("spec.nodeName", format!("node-{}", n % 1_000));
        let at = Key::new(format!("pods/default/pod-{}", n % 1_000)).unwrap();
        store.write(Write::put(at, kilobyte()).attributes(node))
    };
    let pods = || EventFilter::prefix(Prefix::new("pods").unwrap());
    for (what, filters) in [
        ("no watchers", vec![]),
        ("1,000 watchers, each its own node", {
            (0..1_000).map(|n| pods().attribute("spec.nodeName", format!("node-{n}"))).collect()
        }),
        ("1,000 watchers of other namespaces", {
            (0..1_000).map(|n| EventFilter::prefix(Prefix::new(format!("pods/ns-{n}")).unwrap())).collect()
        }),
        ("10 watchers of everything", vec![pods(); 10]),
        ("1,000 watchers of everything", vec![pods(); 1_000]),
    ] {
        let store = Store::open(at.join(format!("watch-{}", what.len())), Options::default()).unwrap();
        let received = Arc::new(AtomicU64::new(0));
        let watchers = runtime();
        for filter in filters {
            let mut watch = store.watch(filter, 0).unwrap();
            let received = received.clone();
            watchers.spawn(async move {
                while watch.next().await.is_ok() {
                    received.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        show(what, &best((0..ROUNDS).map(|_| drive(&store, 32, write))));
        let each = received.load(Ordering::Relaxed) as f64 / store.revision() as f64;
        println!(
            "{:<42} {each:.1} events received for each write, {} watches left",
            "",
            store.stats().watches
        );
        if what.ends_with("its own node") {
            resume(&store, &pods());
        }
    }
}

/// All nodes come back at once, from as far back as history reaches.
fn resume(store: &Store, pods: &EventFilter) {
    let stats = store.stats();
    let begin = Instant::now();
    let watches: Vec<_> = (0..1_000)
        .map(|n| {
            store.watch(pods.clone().attribute("spec.nodeName", format!("node-{n}")), stats.oldest).unwrap()
        })
        .collect();
    println!(
        "{:<42} {} resumed over {} events in {:?}",
        "",
        watches.len(),
        stats.history_events,
        begin.elapsed()
    );
}

fn size(at: &Path) {
    println!("\n100,000 objects of 1 KiB, each step a process of its own");
    for step in ["load", "start", "start"] {
        let status =
            Command::new(env::current_exe().unwrap()).arg(step).arg(at.join("size")).status().unwrap();
        assert!(status.success());
    }
}

fn load(directory: &Path) {
    let begin = Instant::now();
    let store = Store::open(directory, Options::default()).unwrap();
    for batch in 0..100 {
        let tickets: Vec<_> =
            (0..1_000).map(|n| store.write(Write::create(key(batch * 1_000 + n), kilobyte()))).collect();
        for ticket in tickets {
            ticket.wait().unwrap();
        }
    }
    println!("written in {:?}, resident {:.0} MiB, {:?}", begin.elapsed(), resident(), store.stats());
}

fn start(directory: &Path) {
    let begin = Instant::now();
    let store = Store::open(directory, Options::default()).unwrap();
    println!("started in {:?}, resident {:.0} MiB, {:?}", begin.elapsed(), resident(), store.stats());
}

/// The store on a file that values are appended to, with one `fdatasync` for a batch: no frames, checksums or
/// preallocated blocks.
struct BareAppend(fs::File);

fn bare_store(file: &Path) -> Store {
    let options = Options::default();
    let journal = BareAppend(fs::File::create(file).unwrap());
    Store::start(Box::new(journal), Recovery::new(0, options.history), options).unwrap()
}

impl Journal for BareAppend {
    fn append(&mut self, batch: &[Arc<Event>]) -> Result<(), JournalError> {
        use std::io::Write as _;
        let values = batch.iter().filter_map(|event| event.current());
        let bytes: Vec<u8> = values.flat_map(|object| object.value.iter().copied()).collect();
        self.0.write_all(&bytes).unwrap();
        self.0.sync_data().unwrap();
        Ok(())
    }
}
