//! The `plumb-conformance` program; all of it is in the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    plumb_conformance::cli::run()
}
