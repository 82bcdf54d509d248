//! Options of a log request.

use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};

use crate::log_line::Stream;
use crate::server::answer::{Body, refusal};
use crate::server::query::Query;

/// The options of a log request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    pub(super) follow: bool,
    pub(super) previous: bool,
    pub(super) timestamps: bool,
    /// `sinceSeconds` or `sinceTime`.
    pub(super) since: Option<Timestamp>,
    /// `tailLines`.
    pub(super) tail: Option<u64>,
    /// No more bytes than this.
    pub(super) limit: Option<u64>,
    /// `stream`; `None` is both.
    pub(super) stream: Option<Stream>,
}

/// An invalid request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// An option does not decode.
    Undecodable,
    /// An option is invalid, or not allowed with another one.
    Invalid,
}

impl Refused {
    pub(super) fn response(self) -> Response<Body> {
        match self {
            Self::Undecodable => {
                refusal(StatusCode::BAD_REQUEST, r#"{"message": "Unable to decode query."}"#)
            }
            Self::Invalid => refusal(StatusCode::UNPROCESSABLE_ENTITY, r#"{"message": "Invalid request."}"#),
        }
    }
}

impl Options {
    pub(super) fn of(query: &Query, now: Timestamp) -> Result<Self, Refused> {
        // A boolean parameter is true unless its value is false.
        let switch = |name: &str| {
            query.get(name).is_some_and(|value| value != "0" && !value.eq_ignore_ascii_case("false"))
        };
        let number = |name: &str| -> Result<Option<i64>, Refused> {
            let text = query.get(name).filter(|text| !text.is_empty());
            text.map(|text| text.parse().map_err(|_| Refused::Undecodable)).transpose()
        };
        let at_least = |number: Option<i64>, least: i64| match number {
            Some(number) if number < least => Err(Refused::Invalid),
            number => Ok(number.and_then(|number| u64::try_from(number).ok())),
        };
        let seconds = number("sinceSeconds")?;
        let time = query.get("sinceTime").filter(|text| !text.is_empty());
        let time =
            time.map(|text| text.parse::<Timestamp>().map_err(|_| Refused::Undecodable)).transpose()?;
        let since = match (seconds, time) {
            (Some(_), Some(_)) => return Err(Refused::Invalid),
            (Some(seconds), None) if seconds < 1 => return Err(Refused::Invalid),
            (Some(seconds), None) => {
                let back = SignedDuration::from_secs(seconds);
                Some(now.checked_sub(back).unwrap_or(Timestamp::MIN))
            }
            (None, time) => time,
        };
        // An older name.
        let tail = match query.get("tail") {
            Some("all") => None,
            Some(_) => number("tail")?,
            None => number("tailLines")?,
        };
        let stream = match query.get("stream").unwrap_or("All") {
            "" | "All" => None,
            "Stdout" => Some(Stream::Stdout),
            "Stderr" => Some(Stream::Stderr),
            _ => return Err(Refused::Invalid),
        };
        if stream.is_some() && tail.is_some() {
            return Err(Refused::Invalid);
        }
        Ok(Self {
            follow: switch("follow"),
            previous: switch("previous"),
            timestamps: switch("timestamps"),
            since,
            tail: at_least(tail, 0)?,
            limit: at_least(number("limitBytes")?, 1)?,
            stream,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parsed_from_the_query() {
        let now = Timestamp::from_second(1000).unwrap();
        let of = |text: &str| Options::of(&Query::read(text), now);
        let all = of("follow=true&previous=0&timestamps&sinceSeconds=10&tailLines=5&limitBytes=7").unwrap();
        assert!(all.follow && !all.previous && all.timestamps);
        assert_eq!(
            (all.since, all.tail, all.limit),
            (Some(Timestamp::from_second(990).unwrap()), Some(5), Some(7))
        );
        assert_eq!(
            of("sinceTime=1970-01-01T00%3A00%3A07Z").unwrap().since,
            Some(Timestamp::from_second(7).unwrap())
        );
        assert_eq!(of("tail=all").unwrap(), Options::default());
        for (text, refused) in [
            ("tailLines=x", Refused::Undecodable),
            ("sinceTime=x", Refused::Undecodable),
            ("tailLines=-1", Refused::Invalid),
            ("limitBytes=0", Refused::Invalid),
            ("sinceSeconds=0", Refused::Invalid),
            ("sinceSeconds=1&sinceTime=1970-01-01T00%3A00%3A07Z", Refused::Invalid),
            ("stream=Other", Refused::Invalid),
            ("stream=Stdout&tailLines=1", Refused::Invalid),
        ] {
            assert_eq!(of(text), Err(refused), "{text}");
        }
    }
}
