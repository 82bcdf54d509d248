//! The stylesheet and the script, which are part of the program.

use std::sync::LazyLock;

use data_encoding::HEXLOWER;
use ring::digest::{SHA256, digest};

/// A file.
pub(crate) struct Asset {
    /// Its content.
    pub(crate) content: &'static str,
    /// Its type.
    pub(crate) content_type: &'static str,
    href: String,
}

impl Asset {
    fn new(extension: &str, content_type: &'static str, content: &'static str) -> Self {
        let hash = digest(&SHA256, content.as_bytes());
        // Browsers keep it for good: another content has another name.
        let href = format!("/assets/{}.{extension}", HEXLOWER.encode(&hash.as_ref()[..8]));
        Self { content, content_type, href }
    }

    /// Its path.
    pub(crate) fn href(&self) -> &str {
        &self.href
    }

    /// The file at a path.
    pub(crate) fn at(path: &str) -> Option<&'static Self> {
        [&*STYLE, &*SCRIPT].into_iter().find(|asset| asset.href == path)
    }
}

/// The stylesheet.
pub(crate) static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("css", "text/css; charset=utf-8", include_str!("../assets/dashboard.css")));
/// The script.
pub(crate) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("js", "text/javascript; charset=utf-8", include_str!("../assets/dashboard.js"))
});
