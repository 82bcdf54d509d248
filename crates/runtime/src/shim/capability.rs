//! The capabilities of a container.

use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities,
};

use super::failure::{Doing as _, Result};
use crate::types::Capabilities;

/// The default capabilities of containers, as in containerd.
const USUAL: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::AUDIT_WRITE);

/// There is no capability of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown capability {0:?}")]
pub(crate) struct UnknownCapability(String);

/// The capabilities of a container, as bits.
pub(crate) fn resolve(asked: &Capabilities, privileged: bool) -> Result<u64, UnknownCapability> {
    if privileged {
        return Ok(CapabilitySet::all().bits());
    }
    let mut set = USUAL;
    for name in &asked.drop {
        set.remove(named(name)?);
    }
    for name in &asked.add {
        set.insert(named(name)?);
    }
    Ok(set.bits())
}

fn named(name: &str) -> Result<CapabilitySet, UnknownCapability> {
    let upper = name.to_ascii_uppercase();
    let plain = upper.strip_prefix("CAP_").unwrap_or(&upper);
    if plain == "ALL" {
        return Ok(CapabilitySet::all());
    }
    CapabilitySet::from_name(plain).ok_or_else(|| UnknownCapability(name.to_owned()))
}

/// Drops all other capabilities from the bounding set: of this process and of all its children.
pub(super) fn bound(bits: u64) -> Result<()> {
    let keep = CapabilitySet::from_bits_truncate(bits);
    for capability in (CapabilitySet::all() - keep).iter() {
        match remove_capability_from_bounding_set(capability) {
            // The kernel is older than the capability.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(errno) => return Err(errno).doing("dropping capabilities"),
        }
    }
    Ok(())
}

/// Sets the capabilities of this process to these, as far as it has them.
pub(super) fn set(bits: u64) -> Result<()> {
    let have = rustix::thread::capabilities(None).doing("reading capabilities")?.permitted;
    let set = CapabilitySet::from_bits_truncate(bits) & have;
    clear_ambient_capability_set().doing("clearing ambient capabilities")?;
    let sets = CapabilitySets { effective: set, permitted: set, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).doing("setting capabilities")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_added_and_dropped_with_or_without_their_prefix() {
        let ask = |add: &[&str], drop: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            resolve(&Capabilities { add: owned(add), drop: owned(drop) }, false)
        };
        assert_eq!(ask(&[], &[]).unwrap(), USUAL.bits());
        assert_eq!(ask(&["NET_ADMIN"], &["ALL"]).unwrap(), CapabilitySet::NET_ADMIN.bits());
        assert_eq!(ask(&["cap_sys_time"], &["CAP_CHOWN"]).unwrap() & CapabilitySet::CHOWN.bits(), 0);
        assert!(ask(&["NONSENSE"], &[]).is_err());
    }
}
