//! A page of objects that a conversion webhook converts.
//!
//! Selectors see objects in the version of the request, and the webhook may change everything but name and namespace. So
//! objects are converted one part after the other until as many are selected as a page has. No part has more objects
//! than all before it, unless that many are still missing: all pages of a list together convert no object more than
//! twice on average, however few are selected.

use std::sync::Arc;

use plumb_store::{Object, Page};

use super::{Selection, hold};
use crate::custom::{REVIEW_BYTES, all_in_version};
use crate::endpoints::list_options::ListOptions;
use crate::error::ApiError;
use crate::request::Call;

/// The page of objects that a request selects, in its version.
pub(super) async fn page(
    call: &Call,
    options: &ListOptions,
    selection: &Selection,
) -> Result<Page, ApiError> {
    let (row, limit) = (&call.scope.row, options.limit());
    let mut page = options.rest(&call.cluster().store().snapshot(), row.prefix(call.info.namespace())?)?;
    let all = std::mem::take(&mut page.objects);
    if selection.is_everything() {
        let wanted = &all[..limit.min(all.len())];
        hold(call, wanted, bytes(wanted).min(REVIEW_BYTES))?;
    }
    let (mut read, mut converted) = (0, 0);
    while read < all.len() && page.objects.len() < limit {
        let most = converted.max(limit - page.objects.len());
        let mut part = Part::next(&all[read..], most, |object| selection.may_select(object));
        hold(call, &page.objects, bytes(&part.objects))?;
        converted += part.objects.len();
        let objects = all_in_version(row, part.objects).await?;
        for (index, object) in part.indexes.into_iter().zip(objects) {
            if selection.selects(&object) {
                page.objects.push(object);
                if page.objects.len() == limit {
                    part.end = index + 1;
                    break;
                }
            }
        }
        read += part.end;
    }
    // The converted objects may be larger.
    hold(call, &page.objects, 0)?;
    page.remaining = all.len() - read;
    page.next = page.objects.last().filter(|_| page.remaining > 0).map(|object| object.key.clone());
    Ok(page)
}

fn bytes(objects: &[Arc<Object>]) -> usize {
    objects.iter().map(|object| object.value.len()).sum()
}

/// The objects that are converted together.
struct Part {
    objects: Vec<Arc<Object>>,
    /// The index of each of them in the list.
    indexes: Vec<usize>,
    /// Where the rest of the list begins.
    end: usize,
}

impl Part {
    /// The next objects of a list that may be selected: at most so many, and no more than a review has; but at least one, if
    /// there is one.
    fn next(list: &[Arc<Object>], most: usize, may_select: impl Fn(&Object) -> bool) -> Self {
        let (mut part, mut size) = (Self { objects: Vec::new(), indexes: Vec::new(), end: 0 }, 0);
        for (index, object) in list.iter().enumerate() {
            if may_select(object) {
                size += object.value.len();
                if !part.objects.is_empty() && (part.objects.len() >= most || size > REVIEW_BYTES) {
                    break;
                }
                part.objects.push(Arc::clone(object));
                part.indexes.push(index);
            }
            part.end = index + 1;
        }
        part
    }
}
