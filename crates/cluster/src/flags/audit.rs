//! The flags of the audit log, by the names of kube-apiserver.

use std::path::PathBuf;

use clap::Args;

/// Which requests are recorded, and where.
#[derive(Debug, Args)]
#[command(next_help_heading = "Audit log")]
#[expect(clippy::struct_field_names, reason = "the flags are named as those of kube-apiserver")]
pub(crate) struct AuditFlags {
    /// The audit policy: a `Policy` of audit.k8s.io/v1, as for kube-apiserver. Without one no request is recorded.
    #[arg(long, value_name = "FILE", requires = "audit_log_path")]
    pub(crate) audit_policy_file: Option<PathBuf>,
    /// The file that the audit log is written to, or `-` for standard output.
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    pub(crate) audit_log_path: Option<PathBuf>,
    /// The format of the audit log: one event per line, in JSON.
    #[arg(long, value_name = "FORMAT", default_value = "json", value_parser = ["json"])]
    pub(crate) audit_log_format: String,
    /// The size in megabytes at which the audit log is rotated. At 0 it is never rotated.
    #[arg(long, value_name = "MEGABYTES", default_value = "100")]
    pub(crate) audit_log_maxsize: u32,
    /// How many rotated audit logs are kept. At 0 all are.
    #[arg(long, value_name = "N", default_value = "100")]
    pub(crate) audit_log_maxbackup: u32,
    /// For how many days rotated audit logs are kept. At 0 it is for ever.
    #[arg(long, value_name = "DAYS", default_value = "366")]
    pub(crate) audit_log_maxage: u32,
    /// Compress rotated audit logs with gzip.
    #[arg(long)]
    pub(crate) audit_log_compress: bool,
}
