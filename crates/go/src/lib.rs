//! Text formats of Go's standard library that are visible in the Kubernetes API.
//!
//! Kubernetes is written in Go, and its API carries a few of Go's text formats: durations in fields
//! (`terminationGracePeriod: 1m30s`), quoted values in error messages. Clients compare these texts, so this crate parses and
//! formats them exactly as Go does.
//!
//! | Go | here |
//! |---|---|
//! | `time.ParseDuration`, `time.Duration.String` | [`duration::parse`], [`duration::format`] |
//! | `regexp.Compile` | [`regexp::Regexp`] |
//! | `strconv.Quote`, `fmt.Sprintf("%q")` | [`quote()`] |
//! | `xml.EscapeText`, for reports | [`escape_xml`] |

pub mod duration;
mod quote;
pub mod regexp;
mod xml;

pub use quote::quote;
pub use xml::escape_xml;
