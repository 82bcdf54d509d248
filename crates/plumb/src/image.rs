//! `plumb image`.

mod pull;

use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use plumb_cluster::announce;
use plumb_cluster::data_dir::{FreshDirectory, Purpose, given_or_usual, require};
use plumb_runtime::builtin::{has_images, images_of, remove_image};
use plumb_runtime::image::{ImageRecord, Limits};
use serde_json::json;

use crate::cli::{Image, ImageCommand};
use crate::client::{Output, print, write_out};

/// Long enough to distinguish images, short enough to read.
const SHORT_ID: usize = 12;

pub(crate) fn run(image: Image) -> anyhow::Result<()> {
    let data = given_or_usual(image.data_dir, Purpose::Cluster);
    match image.command {
        ImageCommand::Import { file, names, max_unpacked_bytes } => {
            let mut made = FreshDirectory::new(&data)?;
            let images = images_of(&data)?;
            let limits = Limits { unpacked_bytes: max_unpacked_bytes, ..Limits::default() };
            let imported = images
                .import_within(&file, &names, limits)
                .with_context(|| format!("importing {}", file.display()))?;
            made.keep();
            for record in imported {
                let name = record.tags.first().map_or(record.id.as_str(), String::as_str);
                announce!("imported {name}");
            }
        }
        ImageCommand::Pull(args) => pull::run(&data, &args)?,
        ImageCommand::Ls { output } => {
            require(&data)?;
            // Without any nothing is made.
            let images = has_images(&data).then(|| images_of(&data)).transpose()?;
            let records = images.map(|images| images.list()).transpose()?.unwrap_or_default();
            list(records, output)?;
        }
        ImageCommand::Rm { name } => {
            require(&data)?;
            if !has_images(&data) || !remove_image(&data, &name)? {
                bail!("there is no image {name:?}");
            }
        }
    }
    Ok(())
}

/// Prints images: a line for each name.
fn list(records: Vec<Arc<ImageRecord>>, output: Option<Output>) -> anyhow::Result<()> {
    let records = records.iter();
    if let Some(output @ (Output::Json | Output::Yaml)) = output {
        let values =
            records.map(|record| json!({ "id": record.id, "names": record.tags, "bytes": record.size }));
        return print(&values.collect(), output);
    }
    let names_only = output == Some(Output::Name);
    let mut text = String::new();
    if !names_only {
        text = format!("{:<48} {:<SHORT_ID$} {:>10}\n", "NAME", "ID", "SIZE");
    }
    for record in records {
        let id = record.id.trim_start_matches("sha256:");
        let id = id.get(..SHORT_ID).unwrap_or(id);
        let size = format!("{:.1} MiB", mebibytes(record.size));
        let names: Vec<&str> = record.tags.iter().map(String::as_str).collect();
        if names_only {
            text.extend(names.iter().flat_map(|name| [name, "\n"]));
            continue;
        }
        for name in if names.is_empty() { vec!["<none>"] } else { names } {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{name:<48} {id} {size:>10}");
        }
    }
    write_out(&text)
}

#[expect(clippy::cast_precision_loss, reason = "a size for people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
