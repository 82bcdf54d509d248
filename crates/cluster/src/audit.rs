//! The audit log of the API server, from the flags of `plumb up`.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use jiff::Timestamp;
use plumb_audit::{Auditor, LogBackend, LogOptions, Metrics, Policy};

use crate::flags::AuditFlags;

/// A policy, and where the requests are recorded that it asks for.
pub(crate) struct AuditLog {
    policy: Policy,
    options: LogOptions,
}

impl AuditLog {
    /// Reads the policy. Nothing is written yet.
    pub(crate) fn read(flags: &AuditFlags) -> anyhow::Result<Option<Self>> {
        let (Some(policy), Some(path)) = (&flags.audit_policy_file, &flags.audit_log_path) else {
            return Ok(None);
        };
        let policy = Policy::open(policy).context("--audit-policy-file")?;
        Ok(Some(Self { policy, options: options(flags, path) }))
    }

    /// Opens the log.
    pub(crate) fn open(self) -> anyhow::Result<Arc<Auditor>> {
        let metrics = Arc::new(Metrics::default());
        let log = LogBackend::open(self.options, Arc::new(Timestamp::now), Arc::clone(&metrics));
        let log = Arc::new(log.context("--audit-log-path")?);
        Ok(Arc::new(Auditor::new(self.policy, vec![log], metrics)))
    }
}

fn options(flags: &AuditFlags, path: &Path) -> LogOptions {
    LogOptions {
        max_size: u64::from(flags.audit_log_maxsize) << 20,
        max_backups: usize::try_from(flags.audit_log_maxbackup).unwrap_or(usize::MAX),
        max_age: flags.audit_log_maxage,
        compress: flags.audit_log_compress,
        ..LogOptions::new(path)
    }
}
