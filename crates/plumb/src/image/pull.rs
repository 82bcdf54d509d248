//! `plumb image pull`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use parking_lot::Mutex;
use plumb_cluster::data_dir::FreshDirectory;
use plumb_oci::{Credentials, Digest, DockerConfig, Progress, Reference, Registry};
use plumb_runtime::builtin::images_of;
use plumb_runtime::image::{Limits, PullRequest, pull};

use crate::cli::ImagePull;
use crate::client::write_out;

/// How many digits of a layer's digest are shown.
const SHORT_DIGEST: usize = 12;

pub(super) fn run(data_dir: &Path, args: &ImagePull) -> anyhow::Result<()> {
    let image: Reference =
        args.name.parse().with_context(|| format!("couldn't parse image name {:?}", args.name))?;
    let credentials = credentials(args.auth_file.as_deref(), &image)?;
    let mut made = FreshDirectory::new(data_dir)?;
    let images = Arc::new(images_of(data_dir)?);
    let registry = Registry::new(args.registry.config());
    let limits = Limits { unpacked_bytes: args.max_unpacked_bytes, ..Limits::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let request = PullRequest { image, credentials, limits };
    let pulled = runtime.block_on(pull(&images, &registry, &request, &bars()))?;
    made.keep();
    write_out(&format!("pulled {} with id {}\n", request.image, pulled.id))
}

/// The credentials for an image: of a file that was named, or of Docker's own file if there is one.
fn credentials(file: Option<&Path>, image: &Reference) -> anyhow::Result<Option<Credentials>> {
    let usual = || {
        let folder = std::env::var_os("DOCKER_CONFIG").map(PathBuf::from);
        let folder = folder.or_else(|| Some(std::env::home_dir()?.join(".docker")))?;
        Some(folder.join("config.json")).filter(|file| file.is_file())
    };
    let Some(file) = file.map(Path::to_owned).or_else(usual) else { return Ok(None) };
    let text = std::fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
    let config =
        DockerConfig::from_config_json(&text).with_context(|| format!("reading {}", file.display()))?;
    Ok(config.lookup(image).into_iter().next())
}

/// A bar for each layer on standard error, if that is a terminal.
fn bars() -> Progress {
    let all = MultiProgress::new();
    let bars: Mutex<HashMap<Digest, ProgressBar>> = Mutex::default();
    Arc::new(move |received| {
        let mut bars = bars.lock();
        let bar = bars.entry(received.layer).or_insert_with(|| {
            let mut digits = received.layer.hex();
            digits.truncate(SHORT_DIGEST);
            all.add(ProgressBar::new(received.size).with_style(style()).with_prefix(digits))
        });
        bar.set_position(received.bytes);
        if received.bytes == received.size {
            bar.finish();
        }
    })
}

fn style() -> ProgressStyle {
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec}");
    // The template is one of ours; without it there is the usual bar.
    style.unwrap_or_else(|_| ProgressStyle::default_bar())
}
