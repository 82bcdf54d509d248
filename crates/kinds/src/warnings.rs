//! Warnings that several kinds share, with the messages of kube-apiserver 1.36; and warnings about fields without
//! effect in Plumb ([`no_effect`]), which kube-apiserver does not have.

pub(crate) mod addresses;
pub(crate) mod no_effect;
