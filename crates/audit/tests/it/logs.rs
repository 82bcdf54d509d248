//! The files of the log.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use flate2::read::GzDecoder;
use plumb_audit::{Auditor, Backend as _, Clock, LogBackend, LogOptions, Metrics, Policy};
use plumb_metrics::Text;

fn clock() -> Clock {
    Arc::new(|| "2026-01-02T03:04:05.678Z".parse().unwrap())
}

fn open(options: LogOptions) -> (Arc<LogBackend>, Arc<Metrics>) {
    let metrics = Arc::new(Metrics::default());
    (Arc::new(LogBackend::open(options, clock(), Arc::clone(&metrics)).unwrap()), metrics)
}

/// The names and the contents of the files in a directory, the compressed ones uncompressed.
fn files(directory: &Path) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let bytes = fs::read(&path).unwrap();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let mut text = String::new();
            if path.extension().is_some_and(|extension| extension == "gz") {
                GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).unwrap();
            } else {
                text = String::from_utf8(bytes).unwrap();
            }
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
            (name, text)
        })
        .collect();
    files.sort();
    files
}

fn named(files: &[(&str, &str)]) -> Vec<(String, String)> {
    files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn lines_are_appended_to_a_file_that_only_its_owner_can_read() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().join("new/audit");
    for line in [b"one\n", b"two\n"] {
        let (log, _) = open(LogOptions::new(directory.join("audit.log")));
        log.process(line);
        log.close();
    }
    assert_eq!(files(&directory), named(&[("audit.log", "one\ntwo\n")]));
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn a_file_is_rotated_between_lines_before_it_is_too_large() {
    let folder = tempfile::tempdir().unwrap();
    let options = LogOptions { max_size: 8, ..LogOptions::new(folder.path().join("audit.log")) };
    let (log, _) = open(options.clone());
    for line in [b"one\n".as_slice(), b"two\n", b"a line of its own\n", b"three\n", b"4\n"] {
        log.process(line);
    }
    log.close();
    let (log, _) = open(options);
    log.process(b"five\n");
    log.close();
    let expected = [
        ("audit-2026-01-02T03-04-05.678.log", "one\ntwo\n"),
        ("audit-2026-01-02T03-04-05.679.log", "a line of its own\n"),
        ("audit-2026-01-02T03-04-05.680.log", "three\n4\n"),
        ("audit.log", "five\n"),
    ];
    assert_eq!(files(folder.path()), named(&expected));
}

#[test]
fn rotated_files_are_compressed_and_only_so_many_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let options = LogOptions { max_size: 4, max_backups: 1, compress: true, ..LogOptions::new(path) };
    for line in [b"one\n", b"two\n", b"thr\n"] {
        let (log, _) = open(options.clone());
        log.process(line);
        log.close();
    }
    let expected = [("audit-2026-01-02T03-04-05.679.log.gz", "two\n"), ("audit.log", "thr\n")];
    assert_eq!(files(folder.path()), named(&expected));
}

#[test]
fn a_log_that_cannot_be_opened_is_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path| {
        let log = LogBackend::open(LogOptions::new(path), clock(), Arc::default());
        log.err().expect("an error").to_string()
    };
    let directory = open(folder.path());
    assert!(directory.starts_with(&format!("cannot open the audit log {}: ", folder.path().display())));
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let below = open(&file.join("audit.log"));
    assert!(below.contains("cannot open the audit log") && below.contains("audit.log: "), "{below}");
}

#[test]
fn events_that_do_not_fit_into_the_buffer_are_dropped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let options = LogOptions { buffer: 8, ..LogOptions::new(folder.path().join("audit.log")) };
    let (log, metrics) = open(options);
    log.process(b"longer than the buffer\n");
    log.process(b"fits\n");
    log.close();
    log.process(b"late\n");
    assert_eq!(files(folder.path()), named(&[("audit.log", "fits\n")]));
    assert_errors(log, metrics, ["buffered\"} 2", "log\"} 0"]);
}

#[test]
fn events_that_cannot_be_written_are_counted() {
    // Writes to this device fail as those to a full disk do.
    let (log, metrics) = open(LogOptions::new("/dev/full"));
    log.process(b"one\n");
    log.process(b"two\n");
    log.close();
    assert_errors(log, metrics, ["buffered\"} 0", "log\"} 2"]);
}

fn assert_errors(log: Arc<LogBackend>, metrics: Arc<Metrics>, expected: [&str; 2]) {
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{ level: Metadata }]";
    let policy = Policy::parse(policy, Path::new("policy")).unwrap();
    let mut text = Text::default();
    Auditor::new(policy, vec![log], metrics).render(&mut text);
    let text = text.finish();
    for sample in expected {
        let sample = format!("apiserver_audit_error_total{{plugin=\"{sample}\n");
        assert!(text.contains(&sample), "{sample} is not in {text}");
    }
}
