//! Makes the schema table that the crate embeds, from the facts in `data/facts`.
//!
//! ```text
//! cargo run -p plumb-apischema --example table -- update    writes data/kubernetes-1.36.schema
//! cargo run -p plumb-apischema --example table -- verify    fails if that file is not what the facts say
//! ```

use std::path::Path;
use std::process::ExitCode;

mod table {
    pub(crate) mod facts;
    pub(crate) mod render;
    pub(crate) mod resolve;
}

fn main() -> ExitCode {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("data");
    let target = data.join("kubernetes-1.36.schema");
    let answer =
        table::facts::Facts::read(&data.join("facts")).and_then(|facts| table::render::table(&facts));
    let rendered = match answer {
        Ok(rendered) => rendered,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::FAILURE;
        }
    };
    match std::env::args().nth(1).as_deref() {
        Some("update") => match std::fs::write(&target, rendered) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("writing {}: {error}", target.display());
                ExitCode::FAILURE
            }
        },
        Some("verify") => match std::fs::read_to_string(&target) {
            Ok(found) if found == rendered => ExitCode::SUCCESS,
            Ok(_) => {
                eprintln!("{} is not what the facts say: run `update`", target.display());
                ExitCode::FAILURE
            }
            Err(error) => {
                eprintln!("reading {}: {error}", target.display());
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("usage: table update|verify");
            ExitCode::FAILURE
        }
    }
}
