//! Mount points of volumes inside other volumes. The node creates them before the mount, since a volume may be read-only.

use std::path::{Component, Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

use crate::lifecycle::containers;

/// The directories that a volume must have for the mounts below it.
pub(super) fn mount_points(pod: &Pod, volume: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for container in pod.spec.iter().flat_map(containers) {
        let mut paths: Vec<(PathBuf, bool)> = container
            .volume_mounts
            .iter()
            .flatten()
            .map(|mount| (clean(&mount.mount_path), mount.name == volume && mount.sub_path.is_none()))
            .collect();
        paths.sort();
        for (own, _) in paths.iter().filter(|(_, own)| *own) {
            let below = paths.iter().filter_map(|(path, _)| path.strip_prefix(own).ok());
            found.extend(below.filter(|path| !path.as_os_str().is_empty()).map(Path::to_owned));
        }
    }
    // A mount below another mount needs its directory there, and not in this volume.
    let all = found.clone();
    found.retain(|path| !all.iter().any(|other| path != other && path.starts_with(other)));
    found.sort();
    found.dedup();
    found
}

/// A path in the container, without `.` and `..`.
fn clean(path: &str) -> PathBuf {
    let mut clean = PathBuf::from("/");
    for part in Path::new(path).components() {
        match part {
            Component::Normal(part) => clean.push(part),
            Component::ParentDir => {
                clean.pop();
            }
            _ => {}
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_nearest_ones_are_made() {
        let mounts = [("v", "/etc/app"), ("w", "/etc/app/x"), ("w", "/etc/app/x/y"), ("w", "/etc/other/z")];
        let mounts = mounts.map(|(name, path)| json!({ "name": name, "mountPath": path }));
        let spec = json!({ "containers": [{ "name": "c", "volumeMounts": mounts }] });
        let pod = serde_json::from_value(json!({ "metadata": {}, "spec": spec })).unwrap();
        assert_eq!(mount_points(&pod, "v"), [Path::new("x")]);
        assert!(mount_points(&pod, "w").len() == 1, "one of its mounts is below another of its own");
    }
}
