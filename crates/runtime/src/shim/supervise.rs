//! The life of a shim: make the container, look after it, write down how it ended.

use std::fs::{self, File};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, pipe2};
use rustix::fs::{FlockOperation, flock};

use super::attach::{Attached, Input, Wanted};
use super::failure::namespace;
use super::failure::{Doing as _, Failure, Result, fail};
use super::files::{Exit, StartReport, Started, load, store};
use super::hold::Hold;
use super::init::{InitMessage, InitPipe, Stdio, become_container};
use super::log::{LONGEST_PART, Log, Stream};
use super::protocol::{self, LONGEST, Reply, Request, ShimCommand, ShimResponse, VERSION};
use super::spec::{PidSpec, Spec};
use super::{EXIT, LOCK, ROOT, SOCKET, SPEC, STARTED};
use crate::sys;

/// How long the shim waits for output after the first process has exited, if another process holds the pipe open.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// The same, if an attached client has not read the earlier output.
const SLOW_CLIENTS: Duration = Duration::from_secs(30);
/// The most connections at once; an agent needs fewer.
const CONNECTIONS: usize = 16;

/// Runs the container whose folder this is.
pub(super) fn run(folder: &Path) -> ExitCode {
    let report = |report: &StartReport| {
        let text = serde_json::to_vec(report).unwrap_or_default();
        // The agent may have exited; the container runs nevertheless.
        let _ = io::stdout().write_all(&text).and_then(|()| io::stdout().flush());
    };
    match start(folder) {
        Ok((shim, started, warnings)) => {
            report(&StartReport::Started { started, warnings });
            shim.live()
        }
        Err(failure) => {
            report(&StartReport::Failed(failure.to_string()));
            ExitCode::FAILURE
        }
    }
}

struct Shim {
    spec: Spec,
    child: Pid,
    /// Whether the kernel ends everything in the container with its first process.
    private: bool,
    log: Option<Log>,
    outputs: Vec<(OwnedFd, Stream)>,
    /// The container's input, and the clients that are attached to its streams.
    attached: Attached,
    hold: Hold,
    signals: SignalFd,
    listener: UnixListener,
    connections: Vec<Connection>,
    waiting: Vec<UnixStream>,
    _lock: File,
}

struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
}

/// The shim's ends of the container's pipes.
struct Outside {
    outputs: Vec<(OwnedFd, Stream)>,
    input: Option<OwnedFd>,
}

fn start(folder: &Path) -> Result<(Shim, Started, Vec<String>)> {
    nix::unistd::chdir(folder).doing(format_args!("going to {}", folder.display()))?;
    let lock = File::create(LOCK).doing("making the lock")?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).doing("taking the container, which has a shim")?;
    // The agent's session is not ours: what ends it does not end us.
    nix::unistd::setsid().doing("starting a session")?;
    let spec: Spec = load(Path::new(SPEC)).doing("reading what to run")?;
    let log = spec.log.clone().map(Log::open).transpose().doing("opening the log")?;
    let _ = fs::remove_file(SOCKET);
    let listener = UnixListener::bind(SOCKET).doing("making the socket")?;
    listener.set_nonblocking(true).doing("making the socket")?;

    let mut signals = SigSet::empty();
    signals.add(Signal::SIGCHLD);
    signals.thread_block().doing("holding signals back")?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)
        .doing("listening to signals")?;
    nix::sys::prctl::set_child_subreaper(true).doing("taking in orphans")?;

    let (stdio, outside) = pipes(&spec, log.is_some())?;
    let input = |fd| Input::new(fd, spec.process.stdin_once, spec.process.tty).doing("making a pipe");
    let attached = Attached::new(outside.input.map(input).transpose()?);
    let outputs = outside.outputs;
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC).doing("making a pipe")?;
    let private = enter_pid_namespace(&spec.namespaces.pid)?;
    let root = std::env::current_dir().doing("finding the folder")?.join(ROOT);
    let child = match sys::SingleThreaded::check().and_then(sys::SingleThreaded::fork).doing("forking")? {
        ForkResult::Child => {
            drop((reader, outputs, attached, listener, log));
            let mut pipe = InitPipe(File::from(writer));
            let failure = become_container(&spec, &root, &stdio, &mut pipe);
            pipe.send(&InitMessage::Failed(failure.to_string()));
            std::process::exit(127)
        }
        ForkResult::Parent { child } => child,
    };
    drop((writer, stdio));
    let (user, warnings) = match listen(reader) {
        Ok(words) => words,
        Err(failure) => return Err(not_started(child, failure)),
    };
    let started =
        Started { pid: child.as_raw(), pid_start: start_of(child).unwrap_or(0), at: Timestamp::now(), user };
    store(Path::new(STARTED), &started, false).doing("writing down the start")?;
    // On v2 it is `memory.events`.
    let hold = Hold::new((!spec.cgroup.v2).then_some(spec.cgroup.oom.as_path()));
    let shim = Shim {
        hold,
        spec,
        child,
        private,
        log,
        outputs,
        attached,
        signals,
        listener,
        connections: Vec::new(),
        waiting: Vec::new(),
        _lock: lock,
    };
    Ok((shim, started, warnings))
}

/// The forked process did not become the container. That is written down as its end.
fn not_started(child: Pid, failure: Failure) -> Failure {
    let _ = waitpid(child, None);
    let exit = Exit {
        code: 128,
        oom_killed: false,
        at: Timestamp::now(),
        reason: Some("StartError".into()),
        message: failure.to_string(),
    };
    // If that fails too, the agent finds a container without a shim, and knows as much.
    let _ = store(Path::new(EXIT), &exit, true);
    let _ = fs::remove_file(SOCKET);
    failure
}

/// The standard streams of the container, and the shim's ends of them.
fn pipes(spec: &Spec, logged: bool) -> Result<(Stdio, Outside)> {
    let null = || {
        File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from).doing("opening /dev/null")
    };
    let pipe = || pipe2(OFlag::O_CLOEXEC).doing("making a pipe");
    if spec.process.tty {
        let pty = nix::pty::openpty(None, None).doing("making a terminal")?;
        let copy = || pty.slave.try_clone().doing("making a terminal");
        let stdio = Stdio { stdin: copy()?, stdout: copy()?, stderr: copy()?, is_terminal: true };
        let master = pty.master.try_clone().doing("making a terminal")?;
        let outputs = vec![(master, Stream::new("stdout"))];
        return Ok((stdio, Outside { outputs, input: Some(pty.master) }));
    }
    let (input_end, input) = if spec.process.stdin {
        let (read, write) = pipe()?;
        (read, Some(write))
    } else {
        (null()?, None)
    };
    if !logged {
        let stdio = Stdio { stdin: input_end, stdout: null()?, stderr: null()?, is_terminal: false };
        return Ok((stdio, Outside { outputs: Vec::new(), input }));
    }
    let ((out, stdout), (err, stderr)) = (pipe()?, pipe()?);
    let outputs = vec![(out, Stream::new("stdout")), (err, Stream::new("stderr"))];
    Ok((Stdio { stdin: input_end, stdout, stderr, is_terminal: false }, Outside { outputs, input }))
}

/// From now on, forked processes are in the container's PID namespace. Returns whether it is its own.
fn enter_pid_namespace(pid: &PidSpec) -> Result<bool> {
    match pid {
        PidSpec::New => unshare(CloneFlags::CLONE_NEWPID).doing("making a process namespace")?,
        PidSpec::Join(path) => setns(namespace(path)?, CloneFlags::CLONE_NEWPID)
            .doing(format_args!("entering the namespace {}", path.display()))?,
        PidSpec::JoinOf { pid, start } => {
            let opened = namespace(Path::new(&format!("/proc/{pid}/ns/pid")))?;
            // After it was opened: then it is that of this process, whatever has its pid later.
            if !is_running((*pid, *start)) {
                return fail("entering the pod's process namespace", "the process that holds it is gone");
            }
            setns(opened, CloneFlags::CLONE_NEWPID).doing("entering the pod's process namespace")?;
        }
        PidSpec::Host => {}
    }
    Ok(matches!(pid, PidSpec::New))
}

type User = Option<(u32, u32, Vec<u32>)>;

/// Reads the messages of the forked process until it has become the container, or failed.
fn listen(reader: OwnedFd) -> Result<(User, Vec<String>)> {
    let (mut user, mut warnings) = (None, Vec::new());
    for line in BufReader::new(File::from(reader)).lines() {
        match serde_json::from_str(&line.doing("starting the container")?) {
            Ok(InitMessage::Warning(warning)) => warnings.push(warning),
            Ok(InitMessage::User(uid, gid, groups)) => user = Some((uid, gid, groups)),
            Ok(InitMessage::Failed(why)) => return fail("starting the container", why),
            Err(error) => return fail("starting the container", error),
        }
    }
    // It was killed before it reported a result.
    if user.is_none() {
        return fail("starting the container", "its first process ended before it ran");
    }
    Ok((user, warnings))
}

/// When a process was started, in the kernel's ticks since the machine was.
pub(crate) fn start_of(process: Pid) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in brackets, may have anything in it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Whether a process with this pid and start time runs. One that was killed and not waited for does not.
pub(crate) fn is_running((pid, start): (i32, u64)) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    !matches!(state, None | Some("Z" | "X")) && start_of(Pid::from_raw(pid)) == Some(start)
}

impl Shim {
    fn live(mut self) -> ExitCode {
        if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
            // From here on the socket is the only connection to the agent.
            let _ = dup2_stdin(&null).and_then(|()| dup2_stdout(&null)).and_then(|()| dup2_stderr(&null));
        }
        let mut buffer = vec![0; LONGEST_PART];
        let code = loop {
            self.turn(&mut buffer, PollTimeout::NONE);
            if let Some(code) = self.reap() {
                break code;
            }
        };
        if !self.private {
            let _ = self.signal_all(Signal::SIGKILL);
        }
        let (ended, mut wait) = (Instant::now(), LAST_WORDS);
        while !self.outputs.is_empty() {
            if !self.attached.takes_output() {
                wait = SLOW_CLIENTS;
            }
            let left = wait.saturating_sub(ended.elapsed());
            if left.is_zero() {
                break;
            }
            let left = u16::try_from(left.as_millis()).unwrap_or(u16::MAX);
            self.turn(&mut buffer, PollTimeout::from(left));
            self.reap();
        }
        self.end(code)
    }

    /// Waits for something to happen and deals with it.
    fn turn(&mut self, buffer: &mut [u8], timeout: PollTimeout) {
        // An output that is not read now is not waited for either.
        let readable = if self.attached.takes_output() { self.outputs.len() } else { 0 };
        let ready = {
            let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(5 + self.connections.len());
            // In the order in which they are handled below.
            fds.push(PollFd::new(self.signals.as_fd(), PollFlags::POLLIN));
            fds.push(PollFd::new(self.listener.as_fd(), PollFlags::POLLIN));
            fds.extend(self.hold.polled().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
            for (fd, _) in self.outputs.iter().take(readable) {
                fds.push(PollFd::new(fd.as_fd(), PollFlags::POLLIN));
            }
            for connection in &self.connections {
                fds.push(PollFd::new(connection.stream.as_fd(), PollFlags::POLLIN));
            }
            fds.extend(self.attached.polled().map(|(fd, flags)| PollFd::new(fd, flags)));
            let timeout = sooner(sooner(timeout, self.attached.deadline()), self.hold.deadline());
            if poll(&mut fds, timeout).is_err() {
                return;
            }
            fds.iter().map(|fd| fd.revents().unwrap_or(PollFlags::empty())).collect::<Vec<_>>()
        };
        let is_on = self.hold.polled().is_some();
        let first = 2 + usize::from(is_on);
        let attached = ready.get(first + readable + self.connections.len()..).unwrap_or_default().to_vec();
        let mut ready = ready.iter().map(|happened| !happened.is_empty());
        if ready.next() == Some(true) {
            while let Ok(Some(_)) = self.signals.read_signal() {}
        }
        let knock = ready.next() == Some(true);
        let reached_limit = is_on && ready.next() == Some(true);
        self.hold.turn(reached_limit);
        let outputs: Vec<bool> = ready.by_ref().take(readable).collect();
        let asked: Vec<bool> = ready.take(self.connections.len()).collect();
        self.read_outputs(&outputs, buffer);
        self.attached.turn(&attached);
        self.read_connections(&asked);
        if knock {
            self.accept();
        }
    }

    fn read_outputs(&mut self, ready: &[bool], buffer: &mut [u8]) {
        let mut ended = Vec::new();
        for (index, (fd, stream)) in self.outputs.iter_mut().enumerate() {
            if !ready.get(index).copied().unwrap_or(false) {
                continue;
            }
            let now = Timestamp::now();
            match nix::unistd::read(&*fd, buffer) {
                Ok(length) if length > 0 => {
                    self.attached.output(stream.name(), &buffer[..length]);
                    if let Some(log) = &mut self.log {
                        // A full disk loses lines, which the log counts; it must not stop the container.
                        let _ = log.take(stream, &buffer[..length], now);
                    }
                }
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                // The end; of a terminal it shows as an error.
                Ok(_) | Err(_) => {
                    if let Some(log) = &mut self.log {
                        let _ = log.end(stream, now);
                    }
                    ended.push(index);
                }
            }
        }
        for index in ended.into_iter().rev() {
            self.outputs.remove(index);
        }
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.connections.len() < CONNECTIONS && stream.set_nonblocking(true).is_ok() {
                self.connections.push(Connection { stream, received: Vec::new() });
            }
        }
    }

    fn read_connections(&mut self, ready: &[bool]) {
        let mut kept = Vec::new();
        for (index, mut connection) in std::mem::take(&mut self.connections).into_iter().enumerate() {
            if !ready.get(index).copied().unwrap_or(false) {
                kept.push(connection);
                continue;
            }
            match connection.receive() {
                Received::More => kept.push(connection),
                Received::Invalid => {}
                Received::Request(ShimCommand::Wait) => self.waiting.push(connection.stream),
                Received::Request(ShimCommand::Attach { stdin, stdout, stderr })
                    if !self.attached.is_full() =>
                {
                    send(&connection.stream, ShimResponse::Done);
                    let stdin = stdin && self.spec.process.stdin;
                    self.attached.add(connection.stream, Wanted { stdin, stdout, stderr });
                }
                Received::Request(ask) => {
                    let answer = self.answer(&ask);
                    send(&connection.stream, answer);
                }
            }
        }
        self.connections.extend(kept);
    }

    fn answer(&mut self, ask: &ShimCommand) -> ShimResponse {
        let done = match ask {
            ShimCommand::Signal { number, all } => match Signal::try_from(*number) {
                Ok(signal) if *all => self.signal_all(signal),
                // It is not reaped before we read its exit, so the pid is still its own.
                Ok(signal) => kill(self.child, signal).map_err(io::Error::from),
                Err(error) => Err(error.into()),
            },
            ShimCommand::Hold { milliseconds } => {
                self.hold.set((*milliseconds > 0).then(|| Duration::from_millis(*milliseconds)))
            }
            ShimCommand::ReopenLog => self.log.as_mut().map_or(Ok(()), Log::reopen),
            ShimCommand::Attach { .. } => Err(io::Error::other("too many clients are attached")),
            ShimCommand::Wait | ShimCommand::Unknown => Err(io::Error::other("unknown command")),
        };
        match done {
            Ok(()) => ShimResponse::Done,
            Err(error) => ShimResponse::Refused(error.to_string()),
        }
    }

    /// Signals all processes of the container's cgroup.
    fn signal_all(&self, signal: Signal) -> io::Result<()> {
        let Some(folder) = self.spec.cgroup.join_files.first().and_then(|file| file.parent()) else {
            return Ok(());
        };
        for line in fs::read_to_string(folder.join("cgroup.procs"))?.lines() {
            if let Ok(process) = line.parse::<i32>()
                && process > 0
            {
                let _ = kill(Pid::from_raw(process), signal);
            }
        }
        Ok(())
    }

    /// Reaps processes that have exited; returns the exit of the first one, once it has.
    fn reap(&mut self) -> Option<i32> {
        let mut code = None;
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, status)) if pid == self.child => code = Some(status),
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == self.child => {
                    code = Some(128 + signal as i32);
                }
                Ok(WaitStatus::StillAlive) | Err(_) => return code,
                Ok(_) => {}
            }
        }
    }

    fn end(self, code: i32) -> ExitCode {
        self.attached.end();
        let oom = fs::read_to_string(&self.spec.cgroup.oom).unwrap_or_default();
        let kills = oom.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok());
        let exit = Exit {
            code,
            oom_killed: code != 0 && kills.unwrap_or(0) > 0,
            at: Timestamp::now(),
            reason: None,
            message: String::new(),
        };
        let kept = store(Path::new(EXIT), &exit, true);
        for stream in &self.waiting {
            send(stream, ShimResponse::Exited(exit.clone()));
        }
        let _ = fs::remove_file(PathBuf::from(SOCKET));
        if kept.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// The sooner of two ends of waiting.
fn sooner(timeout: PollTimeout, deadline: Option<Duration>) -> PollTimeout {
    let Some(deadline) = deadline else { return timeout };
    // Rounded up: a timer that is due in less than a millisecond is not due yet.
    let deadline = PollTimeout::try_from(deadline.as_millis().saturating_add(1)).unwrap_or(PollTimeout::MAX);
    // Not by `as_millis`, which panics for no timeout at all.
    if timeout.is_some() && i32::from(timeout) < i32::from(deadline) { timeout } else { deadline }
}

enum Received {
    More,
    Request(ShimCommand),
    Invalid,
}

impl Connection {
    fn receive(&mut self) -> Received {
        let mut buffer = [0; 512];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Received::Invalid,
                Ok(length) => self.received.extend(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Received::Invalid,
            }
            if self.received.len() > LONGEST + 4 {
                return Received::Invalid;
            }
        }
        let Some((head, body)) = self.received.split_first_chunk::<4>() else { return Received::More };
        let Some(length) = protocol::length(*head) else { return Received::Invalid };
        match body.get(..length) {
            None => Received::More,
            Some(body) => match serde_json::from_slice::<Request>(body) {
                Ok(request) => Received::Request(request.ask),
                Err(_) => Received::Request(ShimCommand::Unknown),
            },
        }
    }
}

fn send(mut stream: &UnixStream, answer: ShimResponse) {
    // A short answer fits into the socket's buffer; a client that does not read it has disconnected.
    let _ = stream.write_all(&protocol::frame(&Reply { version: VERSION, answer }));
}
