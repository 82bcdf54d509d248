//! `plumb image`.

use anyhow::{Context as _, bail};
use plumb_runtime::builtin::{images_of, remove_image};
use plumb_runtime::image::Limits;

use crate::cli::{Image, ImageCommand};

/// Long enough to tell images apart, short enough to read.
const SHORT_ID: usize = 12;

pub(crate) fn run(image: Image) -> anyhow::Result<()> {
    let images = images_of(&image.data_dir)?;
    match image.command {
        ImageCommand::Import { file, names, max_unpacked_bytes } => {
            let limits = Limits { unpacked_bytes: max_unpacked_bytes, ..Limits::default() };
            let imported = images
                .import_within(&file, &names, limits)
                .with_context(|| format!("importing {}", file.display()))?;
            for record in imported {
                let name = record.tags.first().map_or(record.id.as_str(), String::as_str);
                println!("imported {name}");
            }
        }
        ImageCommand::Ls => {
            println!("{:<48} {:<SHORT_ID$} {:>10}", "NAME", "ID", "SIZE");
            for record in images.list()? {
                let id = record.id.trim_start_matches("sha256:");
                let id = id.get(..SHORT_ID).unwrap_or(id);
                let size = format!("{:.1} MiB", mebibytes(record.size));
                let names: Vec<&str> = record.tags.iter().map(String::as_str).collect();
                for name in if names.is_empty() { vec!["<none>"] } else { names } {
                    println!("{name:<48} {id} {size:>10}");
                }
            }
        }
        ImageCommand::Rm { name } => {
            if !remove_image(&image.data_dir, &name)? {
                bail!("there is no image {name:?}");
            }
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a size for people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
