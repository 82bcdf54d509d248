//! The images of a node in its status.

use k8s_openapi::api::core::v1::ContainerImage;
use plumb_runtime::types::Image;

/// The most images in a status, and the most names of one, as the kubelet's.
const IMAGES: usize = 50;
const NAMES: usize = 5;

/// The largest images, for the scheduler and for people.
pub(super) fn images(mut all: Vec<Image>) -> Vec<ContainerImage> {
    all.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.id.cmp(&b.id)));
    let described = all.into_iter().map(|image| ContainerImage {
        names: Some(image.digests.into_iter().chain(image.tags).take(NAMES).collect()),
        size_bytes: Some(i64::try_from(image.size).unwrap_or(i64::MAX)),
    });
    described.take(IMAGES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_fifty_images_are_reported_with_five_names_each() {
        let image = |size: u64, tags: usize| Image {
            id: format!("sha256:{size}"),
            tags: (0..tags).map(|tag| format!("i:{tag}")).collect(),
            digests: vec![format!("i@sha256:{size}")],
            size,
            user: String::new(),
            pinned: false,
        };
        let reported = images((0..60).map(|size| image(size, if size == 59 { 9 } else { 1 })).collect());
        assert_eq!(reported.len(), 50);
        assert_eq!(reported[0].size_bytes, Some(59));
        assert_eq!(reported[0].names.as_ref().map(Vec::len), Some(5));
        assert_eq!(reported[1].names, Some(vec!["i@sha256:58".to_owned(), "i:0".to_owned()]));
    }
}
