//! The shim as a program of its own: smaller than `plumb shim`, and the same.
//!
//! `plumb-shim load` is `plumb load`, so that tests of this crate have a workload without the whole of Plumb.

use std::env::args_os;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = args_os().skip(1).peekable();
    if arguments.next_if(|argument| argument == "load").is_some() {
        return plumb_runtime::load::main(arguments);
    }
    plumb_runtime::shim::main(arguments)
}
