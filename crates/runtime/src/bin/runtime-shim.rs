//! The shim for the tests and benches of this crate; `plumb-shim` of the package `plumb` is the same for users.
//!
//! `runtime-shim load` is `plumb load`, so that these tests have a workload without the whole of Plumb.

use std::env::args_os;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = args_os().skip(1).peekable();
    if arguments.next_if(|argument| argument == "load").is_some() {
        return plumb_runtime::load::main(arguments);
    }
    plumb_runtime::shim::main(arguments)
}
