//! In which form and format a client wants its answer.

use http::HeaderMap;
use http::header::ACCEPT;

use crate::error::ApiError;

/// In which form objects are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// As they are.
    Whole,
    /// As rows for people.
    Table,
    /// Their metadata only.
    Metadata,
    /// The metadata of a list's items only.
    MetadataList,
}

/// In which format bytes are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Yaml,
    Protobuf,
}

impl Format {
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// What a client accepts, and is going to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) form: Form,
    pub(crate) format: Format,
    /// The version of `meta.k8s.io` that a form other than the whole is of.
    pub(crate) meta_version: &'static str,
}

impl Accepted {
    /// The object as it is, in JSON.
    pub(crate) const PLAIN: Self =
        Self { form: Form::Whole, format: Format::Json, meta_version: "meta.k8s.io/v1" };

    /// The first of what the client accepts that can be had. JSON is taken wherever it is accepted at all, even if
    /// protobuf comes first: objects are held in it, and copying costs least on both sides of the wire.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        Self::first(headers, |_| true)
    }

    /// The same for what has no rows, such as a review.
    pub(crate) fn without_tables(headers: &HeaderMap) -> Result<Self, ApiError> {
        Self::first(headers, |accepted| accepted.form != Form::Table)
    }

    fn first(headers: &HeaderMap, has: impl Fn(&Self) -> bool) -> Result<Self, ApiError> {
        let mut values = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let Some(first) = values.next() else { return Ok(Self::PLAIN) };
        if matches!(first, "application/json" | "*/*" | "") {
            return Ok(Self::PLAIN);
        }
        let mut ranges: Vec<&str> =
            first.split(',').chain(values.flat_map(|value| value.split(','))).collect();
        if ranges.iter().any(|range| range.contains("q=")) {
            ranges.sort_by_key(|range| std::cmp::Reverse(quality(range)));
        }
        Self::possible(&ranges)?;
        let mut second_best = None;
        for range in ranges {
            match Self::of_range(range).filter(&has) {
                Some(accepted) if accepted.format == Format::Protobuf => {
                    second_best = second_best.or(Some(accepted));
                }
                Some(accepted) => return Ok(accepted),
                None => {}
            }
        }
        second_best.ok_or_else(|| ApiError::not_acceptable(&Self::offered(false)))
    }

    /// Refuses what no answer could be, whatever is asked for: in the words of upstream's router, which looks at types
    /// alone.
    fn possible(ranges: &[&str]) -> Result<(), ApiError> {
        let known = |range: &&str| {
            let kind = range.split(';').next().unwrap_or_default().trim();
            let all = [Format::Json, Format::Yaml, Format::Protobuf].map(Format::media_type);
            matches!(kind, "*/*" | "application/*") || all.contains(&kind)
        };
        if ranges.iter().any(known) {
            return Ok(());
        }
        let offered = Self::offered(false).join(", ");
        let message = format!("406: Not Acceptable\n\nAvailable representations: {offered}");
        Err(ApiError::unacceptable(message).naming("", "", ""))
    }

    /// The same for a stream of events, which there is only as lines of JSON.
    pub(crate) fn of_watch(headers: &HeaderMap) -> Result<Self, ApiError> {
        match Self::of(headers)? {
            accepted if accepted.format == Format::Json => Ok(accepted),
            _ => Err(ApiError::not_acceptable(&Self::offered(true))),
        }
    }

    fn offered(stream: bool) -> Vec<String> {
        if stream {
            return vec!["application/json;stream=watch".to_owned()];
        }
        [Format::Json, Format::Yaml, Format::Protobuf].map(|format| format.media_type().to_owned()).to_vec()
    }

    fn of_range(range: &str) -> Option<Self> {
        let mut parts = range.split(';').map(str::trim);
        let format = match parts.next()? {
            "application/json" | "application/*" | "*/*" => Format::Json,
            "application/yaml" => Format::Yaml,
            "application/vnd.kubernetes.protobuf" => Format::Protobuf,
            _ => return None,
        };
        let (mut kind, mut version, mut group) = ("", "", "");
        for parameter in parts {
            match parameter.split_once('=') {
                Some(("as", value)) => kind = value,
                Some(("v", value)) => version = value,
                Some(("g", value)) => group = value,
                Some(("stream", value)) if !matches!(value, "" | "watch") => return None,
                _ => {}
            }
        }
        if kind.is_empty() && version.is_empty() && group.is_empty() {
            return Some(Self { format, ..Self::PLAIN });
        }
        let form = match kind {
            // Rows hold values of any type, which protobuf has no words for.
            "Table" if format != Format::Protobuf => Form::Table,
            "PartialObjectMetadata" => Form::Metadata,
            "PartialObjectMetadataList" => Form::MetadataList,
            _ => return None,
        };
        let meta_version = match (group, version) {
            ("meta.k8s.io", "v1") => "meta.k8s.io/v1",
            ("meta.k8s.io", "v1beta1") => "meta.k8s.io/v1beta1",
            _ => return None,
        };
        Some(Self { form, format, meta_version })
    }
}

/// How much a client likes a range, in thousandths.
fn quality(range: &str) -> u32 {
    let given = range.split(';').find_map(|parameter| parameter.trim().strip_prefix("q="));
    let Some(text) = given else { return 1000 };
    let (whole, rest) = text.split_once('.').unwrap_or((text, ""));
    let thousandths: String = rest.chars().chain("000".chars()).take(3).collect();
    let of = |text: &str| text.parse::<u32>().unwrap_or_default();
    of(whole).min(1) * 1000 + of(&thousandths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn negotiated(accept: &'static str) -> Option<(Form, Format, &'static str)> {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static(accept));
        let accepted = Accepted::of(&headers).ok()?;
        Some((accepted.form, accepted.format, accepted.meta_version))
    }

    #[test]
    fn a_client_gets_the_first_that_it_accepts_and_that_there_is() {
        const V1: &str = "meta.k8s.io/v1";
        let kubectl_get = "application/json;as=Table;v=v1;g=meta.k8s.io,\
                           application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let table = [
            ("", Some((Form::Whole, Format::Json, V1))),
            ("*/*", Some((Form::Whole, Format::Json, V1))),
            (kubectl_get, Some((Form::Table, Format::Json, V1))),
            ("application/vnd.kubernetes.protobuf,application/json", Some((Form::Whole, Format::Json, V1))),
            ("application/vnd.kubernetes.protobuf", Some((Form::Whole, Format::Protobuf, V1))),
            ("application/yaml", Some((Form::Whole, Format::Yaml, V1))),
            ("application/json;q=0.1, application/yaml", Some((Form::Whole, Format::Yaml, V1))),
            ("application/yaml;as=Table;v=v1;g=meta.k8s.io", Some((Form::Table, Format::Yaml, V1))),
            (
                "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1beta1",
                Some((Form::Metadata, Format::Json, "meta.k8s.io/v1beta1")),
            ),
            ("application/json;as=Table;v=v2;g=meta.k8s.io", None),
            (
                "application/json;as=Chair;v=v1;g=meta.k8s.io,application/json",
                Some((Form::Whole, Format::Json, V1)),
            ),
            ("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io", None),
            ("text/html", None),
        ];
        for (accept, expected) in table {
            assert_eq!(negotiated(accept), expected, "{accept}");
        }
    }
}
