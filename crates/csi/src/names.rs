//! Names that Kubernetes derives of drivers and volumes: the attacher, the agent and the controller each compute them alone,
//! so that each byte matters.

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};

/// The longest name of a driver, as CSI has it.
const LONGEST_NAME: usize = 63;

fn hash(text: &str) -> String {
    HEXLOWER.encode(digest(&SHA256, text.as_bytes()).as_ref())
}

/// Whether a driver may have this name: it becomes a part of paths and of the names of objects.
pub fn is_driver_name(name: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let ends = [name.bytes().next(), name.bytes().last()];
    name.len() <= LONGEST_NAME
        && name.bytes().all(is_inner)
        && ends.into_iter().all(|end| end.is_some_and(|byte| byte.is_ascii_alphanumeric()))
}

/// The name of a volume in `volumesAttached` and `volumesInUse` of nodes.
pub fn unique_name(driver: &str, handle: &str) -> String {
    format!("kubernetes.io/csi/{driver}^{handle}")
}

/// The name of the `VolumeAttachment` of a volume on a node.
pub fn attachment_name(handle: &str, driver: &str, node: &str) -> String {
    format!("csi-{}", hash(&format!("{handle}{driver}{node}")))
}

/// The handle of a volume that is written in the pod itself. Its driver makes the volume when it publishes it.
pub fn inline_handle(pod_uid: &str, volume: &str) -> String {
    format!("csi-{}", hash(&format!("{pod_uid}{volume}")))
}

/// The directory of a volume below that of its driver: a handle may be anything, and as long.
pub fn staging_directory(handle: &str) -> String {
    hash(handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_are_one_path_component_are_drivers() {
        for name in ["hostpath.csi.k8s.io", "a", "A-1", &"x".repeat(63)] {
            assert!(is_driver_name(name), "{name}");
        }
        for name in ["", ".", "..", "a/b", "-a", "a-", ".a", "a\0b", "ä", "a b", &"x".repeat(64)] {
            assert!(!is_driver_name(name), "{name:?}");
        }
    }

    #[test]
    fn names_are_the_hashes_that_upstream_computes() {
        // sha256sum of "vol1" + "driver" + "node".
        assert_eq!(attachment_name("vol1", "driver", "node"), format!("csi-{}", hash("vol1drivernode")));
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(staging_directory(""), empty);
        assert_eq!(unique_name("d", "v^1"), "kubernetes.io/csi/d^v^1");
    }
}
