//! Which plugins are enabled. The names are those of kube-apiserver's flags.

/// The enabled plugins: all but those that a flag disables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plugins {
    off: Vec<&'static str>,
}

/// A flag names an unknown plugin, or enables and disables the same plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnknownPlugin {
    /// No plugin has this name.
    #[error("no admission plugin is called {name:?}: there are {all}", all = known.join(", "))]
    Name {
        /// The name.
        name: String,
        /// The names of all plugins.
        known: &'static [&'static str],
    },
    /// The plugin is both enabled and disabled.
    #[error("admission plugin {0:?} cannot be both on and off")]
    Both(String),
}

impl Plugins {
    /// All plugins, which are all enabled by default, minus those in `disable`: comma-separated names.
    pub fn from_flags(
        known: &'static [&'static str],
        enable: &str,
        disable: &str,
    ) -> Result<Self, UnknownPlugin> {
        let (enable, off) = (read(known, enable)?, read(known, disable)?);
        if let Some(both) = enable.iter().find(|name| off.contains(name)) {
            return Err(UnknownPlugin::Both((*both).to_owned()));
        }
        Ok(Self { off })
    }

    /// Whether a plugin is enabled.
    pub fn is_on(&self, name: &str) -> bool {
        !self.off.contains(&name)
    }
}

fn read(known: &'static [&'static str], list: &str) -> Result<Vec<&'static str>, UnknownPlugin> {
    let given = list.split(',').map(str::trim).filter(|name| !name.is_empty());
    let find = |name: &str| known.iter().copied().find(|known| *known == name);
    given.map(|name| find(name).ok_or_else(|| UnknownPlugin::Name { name: name.to_owned(), known })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["LimitRanger", "Priority", "ResourceQuota", "ServiceAccount"];

    #[test]
    fn plugins_are_switched_by_the_names_of_kube_apiserver() {
        let plugins = Plugins::from_flags(KNOWN, "", "ServiceAccount, ResourceQuota").unwrap();
        assert!(plugins.is_on("LimitRanger") && !plugins.is_on("ServiceAccount"));
        let unknown = UnknownPlugin::Name { name: "AlwaysDeny".into(), known: KNOWN };
        assert_eq!(Plugins::from_flags(KNOWN, "AlwaysDeny", ""), Err(unknown));
        assert_eq!(
            Plugins::from_flags(KNOWN, "Priority", "Priority"),
            Err(UnknownPlugin::Both("Priority".into()))
        );
    }
}
