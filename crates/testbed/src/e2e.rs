//! Upstream's end-to-end tests, run against any cluster by its kubeconfig.
//!
//! ```text
//!   e2e.test --ginkgo.focus=… ──▶ report (JSON) ──▶ Record: a page with a line for each conformance spec
//! ```

mod record;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use crate::cache::Cache;
use crate::error::{Error, IoContext as _};
use crate::obtain::images;
use crate::release::E2E;
use record::{Record, Report};

/// The specs that a conformant cluster passes.
const CONFORMANCE: &str = r"\[Conformance\]";

/// A run of the tests.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Run {
    /// The kubeconfig of an administrator of the cluster.
    #[arg(long, required_unless_present = "images")]
    kubeconfig: Option<PathBuf>,
    /// A regular expression for the names of the specs that are run.
    #[arg(long, default_value = CONFORMANCE)]
    focus: String,
    /// A regular expression for the names of specs that are not run.
    #[arg(long)]
    skip: Option<String>,
    /// The page to write the outcomes to; what it says of specs that are not run stays.
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// The folder for the report of the run; a folder of its own in the system's folder for temporary files, if left out.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Print the path of the archive of images that the specs use, and run nothing: `plumb image import` takes it.
    #[arg(long)]
    images: bool,
    /// Flags for e2e.test, such as `--ginkgo.v`.
    #[arg(last = true)]
    flags: Vec<String>,
}

/// Runs specs, and writes their outcomes. The status is that of `e2e.test`: an error, if a spec failed.
pub(crate) fn run(cache: &Cache, run: &Run) -> Result<ExitStatus, Error> {
    if run.images {
        println!("{}", cache.e2e_file(Path::new(images::ARCHIVE))?.display());
        return Ok(ExitStatus::default());
    }
    let program = cache.e2e_program(E2E)?;
    let folder = run
        .report
        .clone()
        .unwrap_or_else(|| std::env::temp_dir().join(format!("plumb-e2e-{}", std::process::id())));
    fs::create_dir_all(&folder).doing("create", &folder)?;
    let mut record = match &run.record {
        Some(page) => Some(Record::read(page, all_conformance(&program, &folder)?)?),
        None => None,
    };
    let report = folder.join("report.json");
    let mut command = Command::new(&program);
    command
        .args(["--provider=skeleton", "--ginkgo.no-color", "--ginkgo.timeout=24h"])
        .arg(format!("--kubeconfig={}", run.kubeconfig.as_deref().unwrap_or(Path::new("")).display()))
        .arg(format!("--ginkgo.focus={}", run.focus))
        .arg(format!("--ginkgo.json-report={}", report.display()));
    if let Some(skip) = &run.skip {
        command.arg(format!("--ginkgo.skip={skip}"));
    }
    let status = command.args(&run.flags).status().doing("run", &program)?;
    eprintln!("the report is {}", report.display());
    if let (Some(record), Some(page)) = (&mut record, &run.record) {
        record.update(&Report::read(&report)?);
        record.write(page)?;
    }
    Ok(status)
}

/// The names of all conformance specs, which a dry run reports.
fn all_conformance(program: &Path, folder: &Path) -> Result<Vec<String>, Error> {
    let report = folder.join("all.json");
    let outcome = Command::new(program)
        .args(["--ginkgo.dry-run", "--ginkgo.silence-skips", "--provider=skeleton", "--kubeconfig=/dev/null"])
        .arg(format!("--ginkgo.focus={CONFORMANCE}"))
        .arg(format!("--ginkgo.json-report={}", report.display()))
        .output()
        .doing("run", program)?;
    if !outcome.status.success() {
        let text = String::from_utf8_lossy(&outcome.stdout);
        let last: Vec<&str> = text.lines().rev().take(20).collect();
        return Err(Error::Tool {
            what: "listing the specs".to_owned(),
            status: outcome.status.to_string(),
            detail: last.into_iter().rev().collect::<Vec<_>>().join("\n"),
        });
    }
    Ok(Report::read(&report)?.names())
}
