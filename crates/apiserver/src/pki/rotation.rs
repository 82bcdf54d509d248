//! Renewal while the server runs.

use std::{sync::Arc, time::Duration};

use super::{Pki, Renewed};
use crate::serve::Shutdown;

/// Looks every so often whether a certificate is due, and renews it, until the shutdown. `on_renewed` is told of each
/// renewal, to write anew what embeds a certificate.
///
/// It looks rather than sleeps until the day: a timer stands still while a laptop sleeps. Once an hour is plenty; a
/// failure (a full disk) is logged and tried again the next time, with months left.
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
