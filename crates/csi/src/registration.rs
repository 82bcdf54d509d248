//! The registration of a driver: it, or its node-driver-registrar, serves a socket in the directory that the agent watches.

use std::path::{Path, PathBuf};
use std::time::Duration;

use plumb_grpc::{Connection, Status};

use crate::api;
use crate::names::is_driver_name;

/// How long a registration socket has to answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The type of plugins that are storage drivers. Device plugins and DRA drivers register in the same directory.
const CSI: &str = "CSIPlugin";

/// A driver that asks to be registered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PluginInfo {
    /// Its name.
    pub name: String,
    /// The socket of its node service.
    pub endpoint: PathBuf,
}

/// Why a plugin is not registered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RegistrationError {
    /// The socket does not answer as it should.
    #[error("GetInfo: {0}")]
    Call(Status),
    /// It is a plugin of another type.
    #[error("plugins of type {0:?} are not supported")]
    Type(String),
    /// Its name cannot be that of a driver.
    #[error("invalid name of a driver: {0:?}")]
    Name(String),
    /// Its endpoint is not a path.
    #[error("the endpoint {0:?} is not an absolute path")]
    Endpoint(String),
    /// It knows no version of CSI that this client does.
    #[error("none of the versions {0:?} is supported, 1.0.0 is")]
    Versions(Vec<String>),
}

fn connection(socket: &Path) -> Connection {
    Connection::new(socket.to_owned(), TIMEOUT)
}

/// Asks a registration socket which driver it is for.
pub async fn get_info(socket: &Path) -> Result<PluginInfo, RegistrationError> {
    let info = connection(socket).call("/pluginregistration.Registration/GetInfo", api::Empty {}).await;
    read(info.map_err(RegistrationError::Call)?, socket)
}

fn read(info: api::PluginInfo, socket: &Path) -> Result<PluginInfo, RegistrationError> {
    let api::PluginInfo { r#type, name, endpoint, supported_versions } = info;
    if r#type != CSI {
        return Err(RegistrationError::Type(r#type));
    }
    if !is_driver_name(&name) {
        return Err(RegistrationError::Name(name));
    }
    let is_supported = |version: &String| {
        let version = version.strip_prefix('v').unwrap_or(version);
        version == "1" || version.starts_with("1.")
    };
    if !supported_versions.iter().any(is_supported) {
        return Err(RegistrationError::Versions(supported_versions));
    }
    // One without an endpoint serves both on one socket.
    let path = endpoint.strip_prefix("unix://").unwrap_or(&endpoint);
    match path {
        "" => Ok(PluginInfo { name, endpoint: socket.to_owned() }),
        path if path.starts_with('/') && !path.contains('\0') => {
            Ok(PluginInfo { name, endpoint: PathBuf::from(path) })
        }
        _ => Err(RegistrationError::Endpoint(endpoint)),
    }
}

/// Tells a registration socket whether its driver is registered.
pub async fn notify(socket: &Path, registered: Result<(), String>) -> Result<(), Status> {
    let error = registered.as_ref().err().cloned().unwrap_or_default();
    let status = api::RegistrationStatus { plugin_registered: registered.is_ok(), error };
    let path = "/pluginregistration.Registration/NotifyRegistrationStatus";
    connection(socket).call::<api::Empty>(path, status).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(name: &str, kind: &str, endpoint: &str, versions: &[&str]) -> api::PluginInfo {
        api::PluginInfo {
            r#type: kind.to_owned(),
            name: name.to_owned(),
            endpoint: endpoint.to_owned(),
            supported_versions: versions.iter().map(|version| (*version).to_owned()).collect(),
        }
    }

    #[test]
    fn what_a_plugin_says_of_itself_is_checked_before_it_is_used() {
        let socket = Path::new("/r/a-reg.sock");
        let checked = |info| read(info, socket);
        let good = checked(info("d.example", CSI, "/p/csi.sock", &["1.0.0"])).unwrap();
        assert_eq!(good.endpoint, Path::new("/p/csi.sock"));
        let same = checked(info("d.example", CSI, "", &["v1.9.0"])).unwrap();
        assert_eq!(same.endpoint, socket);
        for (info, why) in [
            (info("d", "DRAPlugin", "/p", &["1.0.0"]), "plugins of type \"DRAPlugin\" are not supported"),
            (info("../d", CSI, "/p", &["1.0.0"]), "invalid name of a driver: \"../d\""),
            (info("d", CSI, "p", &["1.0.0"]), "the endpoint \"p\" is not an absolute path"),
            (
                info("d", CSI, "/p", &["0.3.0", "2.0.0"]),
                "none of the versions [\"0.3.0\", \"2.0.0\"] is supported, 1.0.0 is",
            ),
        ] {
            assert_eq!(checked(info).unwrap_err().to_string(), why);
        }
    }
}
