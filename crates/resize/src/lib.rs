//! The rules of an in-place pod resize.
