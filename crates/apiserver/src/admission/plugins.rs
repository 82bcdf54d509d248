//! Which plugins are enabled. The names are those of kube-apiserver's flags.

/// All plugins, and whether each is enabled by default.
const KNOWN: [(&str, bool); 21] = [
    ("NamespaceLifecycle", true),
    ("LimitRanger", true),
    ("ServiceAccount", true),
    ("NodeRestriction", true),
    ("TaintNodesByCondition", true),
    ("Priority", true),
    ("DefaultTolerationSeconds", true),
    ("DefaultStorageClass", true),
    ("StorageObjectInUseProtection", true),
    ("PersistentVolumeClaimResize", true),
    ("RuntimeClass", true),
    ("CertificateApproval", true),
    ("CertificateSigning", true),
    ("CertificateSubjectRestriction", true),
    ("DefaultIngressClass", true),
    ("PodResizeValidator", true),
    ("MutatingAdmissionPolicy", true),
    ("MutatingAdmissionWebhook", true),
    ("ValidatingAdmissionPolicy", true),
    ("ValidatingAdmissionWebhook", true),
    ("ResourceQuota", true),
];

/// The enabled plugins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugins {
    off: Vec<&'static str>,
}

impl Default for Plugins {
    fn default() -> Self {
        Self { off: KNOWN.iter().filter(|(_, on)| !on).map(|(name, _)| *name).collect() }
    }
}

/// A flag names an unknown plugin, or enables and disables the same plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownPlugin {
    /// No plugin has this name.
    #[error("no admission plugin is called {0:?}: there are {all}", all = names().join(", "))]
    Name(String),
    /// The plugin is both enabled and disabled.
    #[error("admission plugin {0:?} cannot be both on and off")]
    Both(String),
}

fn names() -> Vec<&'static str> {
    KNOWN.iter().map(|(name, _)| *name).collect()
}

impl Plugins {
    /// The default plugins, plus those in `enable`, minus those in `disable`: comma-separated names.
    pub fn new(enable: &str, disable: &str) -> Result<Self, UnknownPlugin> {
        let (enable, disable) = (read(enable)?, read(disable)?);
        if let Some(both) = enable.iter().find(|name| disable.contains(name)) {
            return Err(UnknownPlugin::Both((*both).to_owned()));
        }
        let mut off = Self::default().off;
        off.retain(|name| !enable.contains(name));
        off.extend(disable);
        Ok(Self { off })
    }

    /// Whether a plugin is enabled.
    pub fn is_on(&self, name: &str) -> bool {
        !self.off.contains(&name)
    }
}

fn read(list: &str) -> Result<Vec<&'static str>, UnknownPlugin> {
    let given = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    let known = |name: &str| names().into_iter().find(|known| *known == name);
    given.map(|name| known(name).ok_or_else(|| UnknownPlugin::Name(name.to_owned()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_switched_by_the_names_of_kube_apiserver() {
        let plugins = Plugins::new("", "ServiceAccount, ResourceQuota").unwrap();
        assert!(plugins.is_on("LimitRanger") && !plugins.is_on("ServiceAccount"));
        assert_eq!(Plugins::new("AlwaysDeny", ""), Err(UnknownPlugin::Name("AlwaysDeny".into())));
        assert_eq!(Plugins::new("Priority", "Priority"), Err(UnknownPlugin::Both("Priority".into())));
    }
}
