//! Parsing `/proc/self/mountinfo`, and escaping paths in mount options.

use std::io;
use std::path::{Path, PathBuf};

/// The mounts below a directory, the innermost and latest first.
pub fn mounts_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let text = std::fs::read_to_string("/proc/self/mountinfo")?;
    let points = text.lines().filter_map(|line| line.split(' ').nth(4)).map(unescape);
    let mut below: Vec<PathBuf> =
        points.filter(|point| point.starts_with(folder) && point != folder).collect();
    below.reverse();
    Ok(below)
}

/// Mount points have spaces and the like as octal escapes.
pub(crate) fn unescape(point: &str) -> PathBuf {
    let mut out = String::with_capacity(point.len());
    let mut rest = point;
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        if let Some(byte) = after.get(..3).and_then(|octal| u8::from_str_radix(octal, 8).ok()) {
            out.push(char::from(byte));
            rest = &after[3..];
        } else {
            out.push('\\');
            rest = after;
        }
    }
    out.push_str(rest);
    PathBuf::from(out)
}

/// Commas and colons mean something in overlay's options.
pub(crate) fn escaped(path: &Path) -> String {
    let mut text = String::new();
    for char in path.to_string_lossy().chars() {
        if matches!(char, ',' | ':' | '\\') {
            text.push('\\');
        }
        text.push(char);
    }
    text
}
