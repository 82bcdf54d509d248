//! What stored services have: an index that follows the store.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::Ipv4Addr;

use plumb_store::{Key, Object};
use serde_json::Value;

use super::Resource;
use crate::authz::followed::Index;
use crate::object::decode;

/// Which services have which addresses and ports.
#[derive(Debug, Default)]
pub(super) struct Stored {
    services: HashMap<Resource, BTreeSet<Key>>,
    resources: HashMap<Key, Vec<Resource>>,
}

impl Stored {
    /// Whether a service has it.
    pub(super) fn contains(&self, resource: Resource) -> bool {
        self.services.contains_key(&resource)
    }

    /// What more than one service has, and which these are.
    pub(super) fn duplicates(&self) -> BTreeMap<Resource, Vec<Key>> {
        let several = self.services.iter().filter(|(_, services)| services.len() > 1);
        several.map(|(resource, services)| (*resource, services.iter().cloned().collect())).collect()
    }

    /// What services have that is outside of the ranges, and which these are.
    pub(super) fn out_of_range(&self) -> Vec<(Resource, Key)> {
        let outside = self.services.iter().filter(|(resource, _)| !resource.is_in_range());
        outside.flat_map(|(resource, keys)| keys.iter().map(|key| (*resource, key.clone()))).collect()
    }

    fn forget(&mut self, key: &Key) {
        for resource in self.resources.remove(key).unwrap_or_default() {
            if let Some(services) = self.services.get_mut(&resource) {
                services.remove(key);
                if services.is_empty() {
                    self.services.remove(&resource);
                }
            }
        }
    }
}

impl Index for Stored {
    const SUBTREES: &'static [&'static str] = &["core/services"];

    fn put(&mut self, object: &Object) {
        self.forget(&object.key);
        let resources = match decode(&object.value) {
            Ok(service) => resources(&service),
            Err(error) => {
                tracing::error!(service = %object.key, error = error.message, "a stored service cannot be read");
                return;
            }
        };
        for resource in &resources {
            self.services.entry(*resource).or_default().insert(object.key.clone());
        }
        if !resources.is_empty() {
            self.resources.insert(object.key.clone(), resources);
        }
    }

    fn remove(&mut self, object: &Object) {
        self.forget(&object.key);
    }
}

/// What a service has.
fn resources(service: &Value) -> Vec<Resource> {
    let spec = &service["spec"];
    let addresses = spec["clusterIPs"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut found: Vec<Resource> = addresses
        .filter_map(|address| address.parse::<Ipv4Addr>().ok())
        .map(|address| Resource::ClusterIp(address.into()))
        .collect();
    let ports = spec["ports"].as_array().into_iter().flatten().map(|port| &port["nodePort"]);
    for port in ports.chain([&spec["healthCheckNodePort"]]).filter_map(Value::as_u64) {
        found.extend(u16::try_from(port).ok().filter(|port| *port != 0).map(Resource::NodePort));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use plumb_store::{Options, Store, Write};
    use serde_json::json;

    fn put(store: &Store, name: &str, address: &str, port: u16) {
        let key = Key::new(format!("core/services/default/{name}")).unwrap();
        let service = json!({ "spec": { "clusterIPs": [address], "ports": [{ "nodePort": port }] } });
        store.write(Write::put(key, service.to_string())).wait().unwrap();
    }

    #[test]
    fn the_index_follows_what_services_have() {
        let store = Store::in_memory(&Options::default());
        put(&store, "first", "10.96.0.10", 30_100);
        let index = crate::authz::followed::Followed::<Stored>::of(store.clone());
        let address = |last: u8| Resource::ClusterIp(Ipv4Addr::new(10, 96, 0, last).into());
        assert!(
            index.ask(|stored| stored.contains(address(10)) && stored.contains(Resource::NodePort(30_100)))
        );

        put(&store, "second", "10.96.0.10", 30_200);
        let both = ["first", "second"].map(|name| Key::new(format!("core/services/default/{name}")).unwrap());
        assert_eq!(index.ask(Stored::duplicates), BTreeMap::from([(address(10), both.to_vec())]));

        put(&store, "first", "10.96.0.11", 80);
        assert!(index.ask(Stored::duplicates).is_empty());
        assert_eq!(index.ask(Stored::out_of_range), [(Resource::NodePort(80), both[0].clone())]);
        store.write(Write::delete(both[1].clone())).wait().unwrap();
        assert!(
            !index.ask(|stored| stored.contains(address(10)) || stored.contains(Resource::NodePort(30_200)))
        );
        assert!(index.ask(|stored| stored.contains(address(11))));
    }
}
