//! The limit of file descriptors (`RLIMIT_NOFILE`): raised for this process, and not for containers.
//!
//! A server needs many descriptors, and programs that use `select(2)` break where they get ones above 1023, which is why
//! distributions leave the soft limit low and the hard one high. So a server raises its own soft limit, and gives the
//! former one to its child processes, as the Go runtime does for containerd.

use std::io;
use std::process::Command;
use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// No more than that, where the hard limit is without bound: there are programs that close every descriptor that they
/// could have.
const MOST: u64 = 1 << 20;
/// The environment variable with the soft limit of a shim's container.
const SOFT: &str = "PLUMB_NOFILE_SOFT";

/// The soft limit that this process began with.
static BEGAN_WITH: OnceLock<u64> = OnceLock::new();

/// Raises the soft limit to the hard one, and returns it.
pub fn raise() -> io::Result<usize> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let wanted = hard.min(MOST);
    BEGAN_WITH.get_or_init(|| soft);
    if wanted > soft {
        setrlimit(Resource::RLIMIT_NOFILE, wanted, hard)?;
    }
    Ok(usize::try_from(wanted.max(soft)).unwrap_or(usize::MAX))
}

/// Has a shim give its container the soft limit that this process began with.
pub(crate) fn pass_soft_limit(shim: &mut Command) {
    if let Some(soft) = BEGAN_WITH.get() {
        shim.env(SOFT, soft.to_string());
    }
}

/// Lowers the soft limit of this process, a shim, to what its parent passed on.
pub(crate) fn restore() {
    let given = std::env::var(SOFT).ok().and_then(|soft| soft.parse::<u64>().ok());
    let (Some(soft), Ok((_, hard))) = (given, getrlimit(Resource::RLIMIT_NOFILE)) else { return };
    // A soft limit that is not above the hard one can always be set.
    let _ = setrlimit(Resource::RLIMIT_NOFILE, soft.min(hard), hard);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_for_this_process_and_passed_on_as_it_was() {
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        let raised = raise().unwrap();
        assert_eq!(raised as u64, hard.min(MOST).max(soft));
        assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap().0, raised as u64);
        let mut shim = Command::new("shim");
        pass_soft_limit(&mut shim);
        let passed = shim.get_envs().find(|(name, _)| *name == SOFT).and_then(|(_, value)| value);
        assert_eq!(passed.and_then(|value| value.to_str()), Some(soft.to_string().as_str()));
    }
}
