//! The managed fields of a Scale, which map to the replicas field of its parent object (`scaleHandler` upstream).

use serde_json::Value;

use super::element::Element;
use super::managers::{Manager, Managers, ManagersError, Operation};
use super::set::FieldSet;

/// Converts the managed fields of an object to those of its Scale, and back.
#[derive(Clone, Copy, Debug)]
pub struct Scale<'a> {
    /// The API version of the request.
    pub api_version: &'a str,
    /// The replicas path in each version of the parent: `None` for an unknown version, and an empty path for a version
    /// without the scale subresource.
    pub replicas: &'a dyn Replicas,
}

/// The replicas paths of a kind's versions.
pub trait Replicas: std::fmt::Debug {
    /// The replicas path of a version, as field names.
    fn path(&self, api_version: &str) -> Option<Vec<&str>>;
}

/// The API version of Scales.
const SCALE: &str = "autoscaling/v1";

fn path_of<'a>(names: &[&'a str]) -> Vec<Element<'a>> {
    names.iter().map(|name| Element::Field((*name).into())).collect()
}

impl Scale<'_> {
    /// The managed fields of the Scale: the managers that own the replicas field.
    pub fn down(&self, managed: Option<&Value>) -> Result<Option<Value>, ManagersError> {
        let mut scale = Managers::default();
        for mut manager in Managers::read(managed)?.0 {
            let path = self.replicas.path(&manager.api_version);
            if path.is_some_and(|path| !path.is_empty() && manager.set.has(&path_of(&path))) {
                manager.change(FieldSet::from_names(&[&["spec", "replicas"]]));
                manager.api_version = SCALE.into();
                scale.0.push(manager);
            }
        }
        Ok(scale.to_value())
    }

    /// The managed fields of the parent after a write of the Scale.
    pub fn up(&self, parent: Option<&Value>, scale: Option<&Value>) -> Result<Option<Value>, ManagersError> {
        let mut scale = Managers::read(scale)?.0;
        let parent = Managers::read(parent)?.0;
        let mut out = Managers::default();
        for mut manager in parent.iter().cloned() {
            let Some(path) = self.replicas.path(&manager.api_version) else { continue };
            let path = path_of(&path);
            if path.is_empty() || !manager.set.has(&path) {
                out.0.push(manager);
                continue;
            }
            let same = scale.iter().position(|one| is_from(one, &manager));
            if let Some(index) = same {
                scale.remove(index);
            } else {
                let mut set = std::mem::take(&mut manager.set);
                let mut replicas = FieldSet::default();
                replicas.insert(&path);
                set.subtract(&replicas);
                if set.is_empty() {
                    continue;
                }
                manager.change(set);
            }
            out.0.push(manager);
        }
        let path = self.replicas.path(self.api_version).unwrap_or_default();
        for mut manager in scale {
            if !manager.set.has(&path_of(&["spec", "replicas"])) {
                continue;
            }
            let mut set = FieldSet::default();
            set.insert(&path_of(&path));
            manager.change(set.into_owned());
            // The managed fields of a Scale have no timestamps, so those of the parent are retained.
            let known = parent.iter().find(|known| is_from(&manager, known));
            manager.time = known.and_then(|known| known.time.clone());
            manager.api_version = self.api_version.to_owned().into();
            out.0.push(manager);
        }
        Ok(out.to_value())
    }
}

/// Whether an entry of the Scale is the converted entry of the parent. Only apply entries can be: update entries are
/// identified by their API version too, and that of a Scale differs from that of its parent.
fn is_from(scale: &Manager<'_>, parent: &Manager<'_>) -> bool {
    scale.name == parent.name
        && scale.operation == parent.operation
        && scale.subresource == parent.subresource
        && scale.operation == Operation::Apply
}
