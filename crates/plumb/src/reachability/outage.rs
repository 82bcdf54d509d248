//! Filters log lines of components about an API server that cannot be reached: [`Reported`] logs it once, for all of
//! them.
//!
//! [`Reported`]: super::Reported

use std::fmt;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

use super::UNREACHABLE;

/// A layer that drops the events with an error that was reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WithoutOutages;

impl<S: Subscriber> Layer<S> for WithoutOutages {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let mut finder = Finder(false);
        event.record(&mut finder);
        !finder.0
    }
}

/// Whether a field has the error.
struct Finder(bool);

impl Visit for Finder {
    fn record_debug(&mut self, _: &Field, value: &dyn fmt::Debug) {
        self.0 |= format!("{value:?}").contains(UNREACHABLE);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_errors_of_requests_that_did_not_reach_the_server_are_left_out() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber.with(WithoutOutages), || {
            let error = "ServiceError: cannot reach the API server at https://192.0.2.7: refused";
            tracing::warn!(%error, "cannot list");
            tracing::warn!(error = "pods is forbidden", "cannot list");
        });
        let log = String::from_utf8(log.0.lock().clone()).unwrap();
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(log.contains("forbidden"), "{log}");
    }
}
