//! A workload that uses a given amount of CPU and memory, in shapes: for demonstrations and tests.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, Read as _, Seek as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

use memmap2::MmapMut;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::time::{TimeVal, TimeValLike as _};

use crate::shape::{LoadError, Shape, bytes, duration, milli};

/// The help text.
pub const USAGE: &str = "\
Use CPU and memory in a given shape, until stopped.

Usage: load [--cpu 100m] [--memory 64Mi] [--shape constant] [--period 60s]
            [--cpu-peak CPU] [--memory-peak MEMORY] [--file SIZE] [--startup-work TIME] [--startup-cpu CPU]
            [--duration TIME] [--exit-code N] [--quiet]
       load --started

  --cpu CPU              cores in use, such as 100m or 1.5 [default: 0]
  --memory MEMORY        memory held, such as 64Mi [default: 0]
  --shape SHAPE          constant, sine, ramp, spike or leak (memory that only grows) [default: constant]
  --period TIME          of the shape, such as 90s or 5m [default: 60s]
  --cpu-peak CPU         where a shape leads [default: twice --cpu]
  --memory-peak MEMORY   where a shape leads [default: twice --memory]
  --file SIZE            page cache in use: a temporary file that is read over and over [default: 0]
  --startup-work TIME    CPU time that the start takes, before the shape begins, such as 8s [default: 0]
  --startup-cpu CPU      cores in use meanwhile, as far as they are given [default: 1]
  --started              end with 0 if a load in this container has started, else with 1: for probes
  --duration TIME        end by itself after this long [default: never]
  --exit-code N          with which code to end then [default: 0]
  --quiet                don't say every 10 s what is in use
";

/// Cpu is used for a part of each slice of time.
const SLICE: Duration = Duration::from_millis(20);
const BLOCK: usize = 1 << 20;
const PAGE: usize = 4096;

#[derive(Clone, Debug, PartialEq)]
struct Load {
    /// In thousandths of a core, and in bytes: base and peak.
    cpu: (u64, u64),
    memory: (u64, u64),
    /// The size of a file that is read over and over.
    file: u64,
    shape: Shape,
    period: Duration,
    /// CPU time that the start takes, and thousandths of a core in use meanwhile.
    startup: (Duration, u64),
    duration: Option<Duration>,
    exit_code: u8,
    quiet: bool,
}

impl Load {
    fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, LoadError> {
        let (mut cpu, mut memory, mut cpu_peak, mut memory_peak) = (0, 0, None, None);
        let mut load = Self {
            cpu: (0, 0),
            memory: (0, 0),
            file: 0,
            shape: Shape::Constant,
            period: Duration::from_mins(1),
            startup: (Duration::ZERO, 1_000),
            duration: None,
            exit_code: 0,
            quiet: false,
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            if argument == "--quiet" {
                load.quiet = true;
                continue;
            }
            let (name, value) = if let Some((name, value)) = argument.split_once('=') {
                (name.to_owned(), value.to_owned())
            } else {
                let value = arguments.next().ok_or_else(|| LoadError::NoValue(argument.clone()))?;
                (argument, value)
            };
            match name.as_str() {
                "--cpu" => cpu = milli(&value)?,
                "--cpu-peak" => cpu_peak = Some(milli(&value)?),
                "--memory" => memory = bytes(&value)?,
                "--file" => load.file = bytes(&value)?,
                "--memory-peak" => memory_peak = Some(bytes(&value)?),
                "--shape" => load.shape = value.parse()?,
                "--period" => load.period = duration(&value)?,
                "--startup-work" => load.startup.0 = duration(&value)?,
                "--startup-cpu" => load.startup.1 = milli(&value)?.max(1),
                "--duration" => load.duration = Some(duration(&value)?),
                "--exit-code" => {
                    load.exit_code = value.parse().map_err(|_| LoadError::ExitCode(value))?;
                }
                other => return Err(LoadError::Option(other.to_owned())),
            }
        }
        load.cpu = (cpu, cpu_peak.unwrap_or(cpu * 2));
        load.memory = (memory, memory_peak.unwrap_or(memory * 2));
        Ok(load)
    }

    fn cpu_at(&self, elapsed: Duration) -> u64 {
        // Cpu does not leak.
        let shape = if self.shape == Shape::Leak { Shape::Constant } else { self.shape };
        shape.usage(self.cpu.0, self.cpu.1, elapsed, self.period)
    }

    fn memory_at(&self, elapsed: Duration) -> u64 {
        self.shape.usage(self.memory.0, self.memory.1, elapsed, self.period)
    }

    fn most_cores(&self) -> u64 {
        self.cpu.0.max(self.cpu.1).div_ceil(1000).clamp(1, 256)
    }
}

/// Uses cpu and memory by its arguments, until it is ended.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<String> =
        arguments.into_iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if arguments.iter().any(|argument| argument == "--help" || argument == "-h") {
        print!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    if arguments.iter().any(|argument| argument == "--started") {
        return ExitCode::from(u8::from(!started_file().exists()));
    }
    match Load::parse(arguments) {
        Ok(load) => run(&load),
        Err(error) => {
            eprintln!("load: {error}\n\n{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run(load: &Load) -> ExitCode {
    // As the first process of a container, it only ends by signals that it handles.
    let mut ends = SigSet::empty();
    ends.add(Signal::SIGTERM);
    ends.add(Signal::SIGINT);
    if ends.thread_block().is_ok() {
        thread::spawn(move || {
            let _ = ends.wait();
            std::process::exit(0);
        });
    }
    if let Err(error) = start_up(load) {
        eprintln!("load: starting: {error}");
        return ExitCode::FAILURE;
    }
    let cores = load.most_cores();
    let share = Arc::new(AtomicU64::new(0));
    for _ in 0..cores {
        let share = share.clone();
        thread::spawn(move || burn(&share));
    }
    if load.file > 0 {
        let size = load.file;
        thread::spawn(move || {
            if let Err(error) = read_over_and_over(size) {
                eprintln!("load: the file: {error}");
                std::process::exit(1);
            }
        });
    }
    let start = Instant::now();
    let mut held = Vec::new();
    let mut said = None;
    loop {
        let elapsed = start.elapsed();
        if let Some(end) = load.duration
            && elapsed >= end
        {
            return ExitCode::from(load.exit_code);
        }
        let (cpu, memory) = (load.cpu_at(elapsed), load.memory_at(elapsed));
        share.store(cpu / cores, Ordering::Relaxed);
        set_memory_use(&mut held, memory);
        if !load.quiet && said.is_none_or(|at: Instant| at.elapsed() >= Duration::from_secs(10)) {
            said = Some(Instant::now());
            let mut line = String::new();
            let _ = write!(line, "using {cpu}m of cpu and {} Mi of memory", memory >> 20);
            println!("{line}");
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// A file that exists once a load in this container has started.
fn started_file() -> PathBuf {
    std::env::temp_dir().join("plumb-load-started")
}

/// Does the work of the start: it takes as much longer as less CPU is given.
fn start_up(load: &Load) -> io::Result<()> {
    let file = started_file();
    // One of an earlier process in the same file system.
    if let Err(error) = fs::remove_file(&file)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(error);
    }
    let (work, milli) = load.startup;
    if work.is_zero() {
        // Whether it has started is checked only if starting takes time.
        return Ok(());
    }
    let threads = milli.div_ceil(1_000).clamp(1, 256);
    let share = Arc::new(AtomicU64::new(milli / threads));
    for _ in 0..threads {
        let share = share.clone();
        thread::spawn(move || burn(&share));
    }
    while cpu_time()? < work {
        thread::sleep(Duration::from_millis(10));
    }
    share.store(0, Ordering::Relaxed);
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&file, "")?;
    if !load.quiet {
        println!("started");
    }
    Ok(())
}

/// The CPU time that this process has used.
fn cpu_time() -> io::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let micros = |time: TimeVal| u64::try_from(time.num_microseconds()).unwrap_or_default();
    Ok(Duration::from_micros(micros(usage.user_time()) + micros(usage.system_time())))
}

/// Allocates or frees memory so that this much is in use. It is mapped directly, since an allocator would retain freed memory.
fn set_memory_use(held: &mut Vec<MmapMut>, bytes: u64) {
    let blocks = usize::try_from(bytes).unwrap_or(usize::MAX) / BLOCK;
    held.truncate(blocks);
    while held.len() < blocks {
        // No memory is available: it is tried again in a moment.
        let Ok(mut block) = MmapMut::map_anon(BLOCK) else { return };
        for page in block.chunks_mut(PAGE) {
            page[0] = 1;
        }
        held.push(block);
    }
}

/// Holds this much page cache in use: reads a file of this size that has no name.
fn read_over_and_over(size: u64) -> io::Result<()> {
    let folder = std::env::temp_dir();
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("plumb-load-{}", std::process::id()));
    let mut file = fs::File::options().read(true).write(true).create_new(true).open(&path)?;
    fs::remove_file(&path)?;
    let mut block = vec![1; BLOCK];
    io::copy(&mut io::repeat(1).take(size), &mut file)?;
    // Only what is on the disk can be given up and read again.
    file.sync_all()?;
    loop {
        file.rewind()?;
        while file.read(&mut block)? > 0 {}
        thread::sleep(SLICE);
    }
}

/// Uses one core for this many thousandths of the time.
fn burn(share: &AtomicU64) {
    loop {
        let start = Instant::now();
        let busy =
            SLICE.mul_f64(f64::from(u32::try_from(share.load(Ordering::Relaxed)).unwrap_or(1000)) / 1000.0);
        while start.elapsed() < busy {
            std::hint::spin_loop();
        }
        thread::sleep(SLICE.saturating_sub(start.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Load, LoadError> {
        Load::parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_are_read_either_way() {
        let load =
            parse("--cpu 250m --memory=64Mi --shape ramp --period 5m --memory-peak 1Gi --file 2Mi").unwrap();
        assert_eq!(load.file, 2 << 20);
        assert_eq!((load.cpu, load.memory), ((250, 500), (64 << 20, 1 << 30)));
        assert_eq!((load.shape, load.period), (Shape::Ramp, Duration::from_mins(5)));
        assert_eq!(load.memory_at(Duration::from_mins(10)), 1 << 30);
        let slow = parse("--startup-work 8s --startup-cpu=1500m").unwrap();
        assert_eq!(slow.startup, (Duration::from_secs(8), 1_500));
    }

    #[test]
    fn mistakes_are_said() {
        for wrong in ["--cpu", "--cpu -1", "--shape square", "--nonsense 1", "--memory x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
