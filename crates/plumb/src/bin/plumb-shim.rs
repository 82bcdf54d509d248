//! The shim as a program of its own: smaller than `plumb shim`, and the same.
//!
//! It belongs to this package so that cargo builds it together with `plumb`, which runs the one beside it: a `plumb-shim`
//! of another package would be as old as the last build of that package.

use std::env::args_os;
use std::process::ExitCode;

fn main() -> ExitCode {
    plumb_runtime::shim::main(args_os().skip(1))
}
