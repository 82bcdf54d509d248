//! Stop signals, which the CRI numbers in its own order and not by the numbers of Linux.

/// The names, in the CRI's order; 0 is the runtime's default.
const NAMES: [&str; 66] = [
    "",
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
    "SIGRTMIN",
    "SIGRTMIN+1",
    "SIGRTMIN+2",
    "SIGRTMIN+3",
    "SIGRTMIN+4",
    "SIGRTMIN+5",
    "SIGRTMIN+6",
    "SIGRTMIN+7",
    "SIGRTMIN+8",
    "SIGRTMIN+9",
    "SIGRTMIN+10",
    "SIGRTMIN+11",
    "SIGRTMIN+12",
    "SIGRTMIN+13",
    "SIGRTMIN+14",
    "SIGRTMIN+15",
    "SIGRTMAX-14",
    "SIGRTMAX-13",
    "SIGRTMAX-12",
    "SIGRTMAX-11",
    "SIGRTMAX-10",
    "SIGRTMAX-9",
    "SIGRTMAX-8",
    "SIGRTMAX-7",
    "SIGRTMAX-6",
    "SIGRTMAX-5",
    "SIGRTMAX-4",
    "SIGRTMAX-3",
    "SIGRTMAX-2",
    "SIGRTMAX-1",
    "SIGRTMAX",
];

/// The CRI's number of a signal; 0 if it has none.
pub(super) fn number(name: &str) -> i32 {
    NAMES.iter().position(|known| *known == name).and_then(|at| i32::try_from(at).ok()).unwrap_or(0)
}

/// The name of the signal with a number; empty for the default.
pub(super) fn name(number: i32) -> &'static str {
    usize::try_from(number).ok().and_then(|at| NAMES.get(at)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_the_numbers_of_the_cri() {
        for (signal, expected) in
            [("SIGTERM", 23), ("SIGQUIT", 18), ("SIGRTMAX", 65), ("SIGRTMIN+15", 50), ("x", 0)]
        {
            assert_eq!(number(signal), expected, "{signal}");
        }
        assert_eq!((name(23), name(0), name(-1), name(99)), ("SIGTERM", "", "", ""));
    }
}
