//! Renewal while the server runs.

use std::{sync::Arc, time::Duration};

use super::{Pki, Renewed};
use crate::shutdown::Shutdown;

/// Checks periodically whether a certificate is due, and renews it, until the shutdown. `on_renewed` is called after each
/// renewal, to write again what contains a certificate.
///
/// It checks periodically instead of sleeping until the date: a timer stops while a laptop sleeps. A failure (a full disk) is
/// logged and retried at the next check, with months left.
pub async fn keep_fresh(
    pki: Arc<Pki>,
    every: Duration,
    mut shutdown: Shutdown,
    mut on_renewed: impl FnMut(&Pki, Renewed) + Send,
) {
    loop {
        tokio::select! {
            () = shutdown.requested() => return,
            () = tokio::time::sleep(every) => {}
        }
        let renewal = {
            let pki = Arc::clone(&pki);
            tokio::task::spawn_blocking(move || pki.renew()).await
        };
        match renewal {
            Ok(Ok(renewed)) if renewed.any() => {
                tracing::info!(
                    authority = renewed.authority,
                    serving = renewed.serving,
                    admin = renewed.admin,
                    "renewed certificates"
                );
                on_renewed(&pki, renewed);
            }
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::error!(error = &error as &dyn std::error::Error, "cannot renew certificates");
            }
            Err(error) => tracing::error!(error = &error as &dyn std::error::Error, "renewal was cut short"),
        }
    }
}
