//! A client of systemd over D-Bus.
//!
//! The client connects to the system bus, and not to systemd's private socket `/run/systemd/private`, as `systemctl` does:
//! messages there have a sender that is not a valid name on a bus, which zbus rejects.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use plumb_runtime::{Error, Result};
use plumb_supervise::Exponential;
use serde::Serialize;
use tokio::sync::Mutex;
use zbus::connection::Builder;
use zbus::message::{Message, Type};
use zbus::{Connection, DynamicType, MatchRule, MessageStream, OwnedObjectPath, Variant, fdo};

use super::{Property, UnitManager, Value};

const SERVICE: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
const UNIT_EXISTS: &str = "org.freedesktop.systemd1.UnitExists";
const NO_SUCH_UNIT: &str = "org.freedesktop.systemd1.NoSuchUnit";
const ALREADY_SUBSCRIBED: &str = "org.freedesktop.systemd1.AlreadySubscribed";
/// The directory that exists where systemd is the init process (`sd_booted(3)`).
const BOOTED: &str = "/run/systemd/system";
/// The mode in which a job is queued: it replaces a conflicting job of the unit.
const MODE: &str = "replace";
/// The timeout of a call, with the job that it starts.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The number of retries of a call whose connection has ended, and the backoff.
const ATTEMPTS: u32 = 10;
const DELAYS: Exponential = Exponential::new(Duration::from_millis(20), Duration::from_secs(1));

/// systemd, the init process of this machine.
#[derive(Debug)]
pub struct Systemd {
    /// The connection; `None` before the first call, and after the connection has ended.
    connection: Mutex<Option<Connection>>,
    /// [`BOOTED`], except in tests.
    booted: PathBuf,
}

impl Systemd {
    /// A client of this machine's systemd. The first call connects.
    pub fn of_this_machine() -> Self {
        Self { connection: Mutex::default(), booted: PathBuf::from(BOOTED) }
    }

    async fn connection(&self) -> Result<Connection> {
        let mut current = self.connection.lock().await;
        if let Some(connection) = &*current {
            return Ok(connection.clone());
        }
        Ok(current.insert(self.connect().await?).clone())
    }

    async fn connect(&self) -> Result<Connection> {
        if !self.booted.is_dir() {
            return Err(Error::Unsupported(format!(
                "the container runtime has the cgroup driver systemd, and systemd does not run here (there is no {}): \
                 configure the runtime to have the driver cgroupfs (SystemdCgroup = false for containerd's runc), or in a \
                 container mount the host's /run/systemd and /run/dbus",
                self.booted.display()
            )));
        }
        subscribed(Builder::system()).await.map_err(|error| {
            let hint =
                "the cgroup driver systemd takes root and a running system bus (dbus-daemon or dbus-broker)";
            Error::failed("connecting to systemd by the system bus", format!("{error}; {hint}"))
        })
    }

    /// Makes a call and waits for its job. Retries with a new connection if the old one has ended.
    async fn call(&self, request: Request<'_>) -> Result<zbus::Result<Message>> {
        let attempts = async {
            let mut failures = 0_u32;
            loop {
                let done = match self.connection().await {
                    Ok(connection) => request.run(&connection).await,
                    // A bus that is being restarted is unavailable for a moment.
                    Err(_) if (1..ATTEMPTS).contains(&failures) => Err(closed()),
                    Err(error) => return Err(error),
                };
                match done {
                    Err(error) if has_ended(&error) && failures < ATTEMPTS => {
                        tracing::debug!(doing = %request, %error, "connecting to systemd again");
                        self.connection.lock().await.take();
                        failures += 1;
                        tokio::time::sleep(DELAYS.after(failures)).await;
                    }
                    done => return Ok(done),
                }
            }
        };
        tokio::time::timeout(TIMEOUT, attempts).await.unwrap_or_else(|_| {
            Err(Error::DeadlineExceeded(format!("{request}: systemd did not respond in {TIMEOUT:?}")))
        })
    }
}

#[async_trait]
impl UnitManager for Systemd {
    async fn version(&self) -> Result<u32> {
        let request = Request::Version;
        let reply = self.call(request).await?.map_err(|error| request.failed(&error))?;
        let body = reply.body();
        let text = body.deserialize::<Variant<'_>>().map_err(|error| request.failed(&error))?.to_string();
        parse_version(&text)
            .ok_or_else(|| Error::failed(request.to_string(), format!("{text} has no number")))
    }

    async fn start(&self, unit: &str, properties: &[Property]) -> Result<bool> {
        let request = Request::StartTransient(unit, properties);
        match self.call(request).await? {
            Ok(_) => return Ok(true),
            Err(error) if is_named(&error, UNIT_EXISTS) => {}
            Err(error) => return Err(request.failed(&error)),
        }
        // A unit that was just stopped may still be loaded.
        let request = Request::Start(unit);
        self.call(request).await?.map(|_| false).map_err(|error| request.failed(&error))
    }

    async fn set_properties(&self, unit: &str, properties: &[Property]) -> Result<()> {
        let request = Request::SetProperties(unit, properties);
        self.call(request).await?.map(drop).map_err(|error| request.failed(&error))
    }

    async fn stop(&self, unit: &str) -> Result<()> {
        let request = Request::Stop(unit);
        match self.call(request).await? {
            Err(error) if !is_named(&error, NO_SUCH_UNIT) => Err(request.failed(&error)),
            _ => Ok(()),
        }
    }
}

/// A call to systemd. All calls are idempotent, so they can be retried.
#[derive(Clone, Copy, Debug)]
enum Request<'a> {
    Version,
    StartTransient(&'a str, &'a [Property]),
    Start(&'a str),
    Stop(&'a str),
    SetProperties(&'a str, &'a [Property]),
}

impl fmt::Display for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version => f.write_str("asking systemd for its version"),
            Self::StartTransient(unit, _) | Self::Start(unit) => write!(f, "starting {unit}"),
            Self::Stop(unit) => write!(f, "stopping {unit}"),
            Self::SetProperties(unit, _) => write!(f, "setting properties of {unit}"),
        }
    }
}

impl Request<'_> {
    /// Makes the call, and waits for the job that it starts. Returns the reply.
    async fn run(self, connection: &Connection) -> zbus::Result<Message> {
        match self {
            Self::Version | Self::SetProperties(..) => self.send(connection).await,
            Self::StartTransient(unit, _) | Self::Start(unit) | Self::Stop(unit) => {
                self.wait_for_job(connection, unit).await
            }
        }
    }

    async fn send(self, connection: &Connection) -> zbus::Result<Message> {
        match self {
            Self::Version => call(connection, PROPERTIES, "Get", &(MANAGER, "Version")).await,
            Self::StartTransient(unit, properties) => {
                let auxiliary: Vec<(&str, Vec<(&str, Variant<'_>)>)> = Vec::new();
                let body = (unit, MODE, variants(properties), auxiliary);
                call(connection, MANAGER, "StartTransientUnit", &body).await
            }
            Self::Start(unit) => call(connection, MANAGER, "StartUnit", &(unit, MODE)).await,
            Self::Stop(unit) => call(connection, MANAGER, "StopUnit", &(unit, MODE)).await,
            Self::SetProperties(unit, properties) => {
                // `true` is runtime only: the properties are in /run, like those of every transient unit.
                let body = (unit, true, variants(properties));
                call(connection, MANAGER, "SetUnitProperties", &body).await
            }
        }
    }

    /// Makes a call that returns a job, and waits until the job is done.
    async fn wait_for_job(self, connection: &Connection, unit: &str) -> zbus::Result<Message> {
        let rule = MatchRule::builder()
            .msg_type(Type::Signal)
            .path(PATH)
            .interface(MANAGER)
            .member("JobRemoved")
            .arg(2, unit)
            .build()?;
        // Subscribes before the call, since the job may be done before the reply is read.
        let mut signals = MessageStream::for_match_rule(rule, connection, None).await?;
        let mut sent = pin!(self.send(connection));
        let mut reply: Option<(Message, String)> = None;
        let mut results: HashMap<String, String> = HashMap::new();
        loop {
            tokio::select! {
                sent = &mut sent, if reply.is_none() => {
                    let sent = sent?;
                    let job = sent.body().deserialize::<OwnedObjectPath>()?.to_string();
                    reply = Some((sent, job));
                }
                signal = signals.next() => {
                    let Some(signal) = signal.transpose()? else { return Err(closed()) };
                    let body = signal.body();
                    let (_, job, _, result): (u32, OwnedObjectPath, String, String) = body.deserialize()?;
                    results.insert(job.to_string(), result);
                }
            }
            if let Some((sent, job)) = &reply
                && let Some(result) = results.get(job)
            {
                return match result.as_str() {
                    "done" => Ok(sent.clone()),
                    _ => Err(zbus::Error::Failure(format!("systemd's job ended with the result {result}"))),
                };
            }
        }
    }

    fn failed(self, error: &zbus::Error) -> Error {
        if has_ended(error) {
            return Error::Unavailable(format!("{self}: {error}"));
        }
        Error::failed(self.to_string(), error)
    }
}

/// Connects and subscribes to the signals of systemd's jobs.
async fn subscribed(builder: Builder<'_>) -> zbus::Result<Connection> {
    let connection = builder.build().await?;
    match call(&connection, MANAGER, "Subscribe", &()).await {
        Err(error) if !is_named(&error, ALREADY_SUBSCRIBED) => Err(error),
        _ => Ok(connection),
    }
}

async fn call<B: Serialize + DynamicType>(
    connection: &Connection,
    interface: &str,
    method: &str,
    body: &B,
) -> zbus::Result<Message> {
    connection.call_method(Some(SERVICE), PATH, Some(interface), method, body).await
}

fn closed() -> zbus::Error {
    std::io::Error::from(std::io::ErrorKind::BrokenPipe).into()
}

fn variants(properties: &[Property]) -> Vec<(&'static str, Variant<'_>)> {
    let variant = |value: &Value| match value {
        Value::Bool(value) => Variant::from(*value),
        Value::Number(value) => Variant::from(*value),
        Value::Text(value) => Variant::from(value.clone()),
        Value::Mask(value) => Variant::from(value.clone()),
    };
    properties.iter().map(|property| (property.name, variant(&property.value))).collect()
}

fn is_named(error: &zbus::Error, name: &str) -> bool {
    matches!(error, zbus::Error::MethodError(named, _, _) if named.as_str() == name)
}

/// Whether an error means that the connection has ended, or that systemd is not connected to the bus.
fn has_ended(error: &zbus::Error) -> bool {
    match error {
        zbus::Error::InputOutput(_) => true,
        zbus::Error::FDO(error) => matches!(
            **error,
            fdo::Error::Disconnected(_)
                | fdo::Error::NameHasNoOwner(_)
                | fdo::Error::NoReply(_)
                | fdo::Error::ServiceUnknown(_)
        ),
        _ => false,
    }
}

/// Parses the number in a version such as `252.39-1~deb12u1` or `systemd 239`.
fn parse_version(text: &str) -> Option<u32> {
    let digits = text.split(|letter: char| !letter.is_ascii_digit());
    digits.filter(|digits| !digits.is_empty()).find_map(|digits| digits.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_its_first_number() {
        let table = [
            ("\"252.39-1~deb12u1\"", Some(252)),
            ("v245.4-4ubuntu3", Some(245)),
            ("systemd 239 (239-58.el8)", Some(239)),
            ("unknown", None),
        ];
        for (text, expected) in table {
            assert_eq!(parse_version(text), expected, "{text}");
        }
    }

    #[tokio::test]
    async fn where_systemd_does_not_run_the_error_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let systemd = Systemd { booted: folder.path().join("absent"), ..Systemd::of_this_machine() };
        let refused = systemd.version().await.unwrap_err();
        assert!(
            matches!(&refused, Error::Unsupported(why) if why.contains("SystemdCgroup = false")),
            "{refused}"
        );
    }
}
