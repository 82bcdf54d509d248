//! Answers of the HTTP API, parsed while they arrive.
//!
//! ```text
//! {"status":"success","data":{"resultType":"matrix","result":[
//!   {"metric":{"pod":"web-0"},"values":[[1767225600,"0.25"],[1767229200,"0.5"]]}, …]}}
//! {"status":"error","errorType":"execution","error":"query processing would load too many samples into memory"}
//! ```
//!
//! A series of a matrix has `values`, one of a vector has `value`. No more of an answer is in memory than the labels and a
//! thousand points of one series.

use std::collections::BTreeMap;
use std::fmt;
use std::io::Read;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Labels of a series.
pub type Labels = BTreeMap<String, String>;

/// How many points are passed on at once.
const CHUNK: usize = 1024;

/// A value at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point {
    /// Nanoseconds since 1970.
    pub(super) at: i64,
    pub(super) value: f64,
}

/// The outcome of a query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct QueryOutcome {
    pub(super) status: String,
    pub(super) error_type: String,
    pub(super) error: String,
    pub(super) warnings: Vec<String>,
    /// Whether the sink stopped. The rest of the response is unknown.
    pub(super) stopped: bool,
}

/// Takes points of a series; returns whether it takes more.
pub(super) trait Sink: FnMut(&Labels, &[Point]) -> bool {}
impl<F: FnMut(&Labels, &[Point]) -> bool> Sink for F {}

/// Reads a response and passes on its points as they arrive.
pub(super) fn read(input: impl Read, sink: &mut impl Sink) -> Result<QueryOutcome, serde_json::Error> {
    let mut outcome = QueryOutcome::default();
    let mut deserializer = serde_json::Deserializer::from_reader(input);
    let read = QueryResponse { sink, outcome: &mut outcome }.deserialize(&mut deserializer);
    if outcome.stopped { Ok(outcome) } else { read.and_then(|()| deserializer.end()).map(|()| outcome) }
}

/// The whole response.
struct QueryResponse<'a, S> {
    sink: &'a mut S,
    outcome: &'a mut QueryOutcome,
}

impl<'de, S: Sink> DeserializeSeed<'de> for QueryResponse<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for QueryResponse<'_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an answer of Prometheus")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "status" => self.outcome.status = map.next_value()?,
                "errorType" => self.outcome.error_type = map.next_value()?,
                "error" => self.outcome.error = map.next_value()?,
                "warnings" => {
                    self.outcome.warnings = map.next_value::<Option<Vec<String>>>()?.unwrap_or_default();
                }
                "data" => {
                    map.next_value_seed(Data { sink: self.sink, stopped: &mut self.outcome.stopped })?;
                }
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        if self.outcome.status.is_empty() {
            return Err(A::Error::missing_field("status"));
        }
        Ok(())
    }
}

/// `data`, or null.
struct Data<'a, S> {
    sink: &'a mut S,
    stopped: &'a mut bool,
}

impl<'de, S: Sink> DeserializeSeed<'de> for Data<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Data<'_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the data of an answer")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "result" => map.next_value_seed(AllSeries { sink: self.sink, stopped: self.stopped })?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// `result`: a list of series.
struct AllSeries<'a, S> {
    sink: &'a mut S,
    stopped: &'a mut bool,
}

impl<'de, S: Sink> DeserializeSeed<'de> for AllSeries<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for AllSeries<'_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a vector or a matrix")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut series: A) -> Result<(), A::Error> {
        let mut points = Vec::new();
        while series
            .next_element_seed(Series { sink: self.sink, stopped: self.stopped, points: &mut points })?
            .is_some()
        {}
        Ok(())
    }
}

/// One series.
struct Series<'a, S> {
    sink: &'a mut S,
    stopped: &'a mut bool,
    /// Used again for each series.
    points: &'a mut Vec<Point>,
}

impl<'de, S: Sink> DeserializeSeed<'de> for Series<'_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Series<'_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a series: labels and values")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        self.points.clear();
        let mut labels: Option<Labels> = None;
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "metric" => labels = Some(map.next_value()?),
                "value" => self.points.push(map.next_value::<Pair>()?.0),
                "values" => map.next_value_seed(Values { series: &mut self, labels: labels.as_ref() })?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        let labels = labels.unwrap_or_default();
        self.pass_on(&labels)
    }
}

impl<S: Sink> Series<'_, S> {
    fn pass_on<E: Error>(&mut self, labels: &Labels) -> Result<(), E> {
        if !self.points.is_empty() && !(self.sink)(labels, self.points) {
            *self.stopped = true;
            return Err(E::custom("stopped"));
        }
        self.points.clear();
        Ok(())
    }
}

/// `values`: a list of points. They are passed on in between if the labels came first, as they do.
struct Values<'a, 'b, S> {
    series: &'a mut Series<'b, S>,
    labels: Option<&'a Labels>,
}

impl<'de, S: Sink> DeserializeSeed<'de> for Values<'_, '_, S> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de, S: Sink> Visitor<'de> for Values<'_, '_, S> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<(), A::Error> {
        while let Some(Pair(point)) = values.next_element()? {
            self.series.points.push(point);
            if let (true, Some(labels)) = (self.series.points.len() >= CHUNK, self.labels) {
                self.series.pass_on(labels)?;
            }
        }
        Ok(())
    }
}

/// `[1767225600.123, "0.25"]`.
struct Pair(Point);

impl<'de> Deserialize<'de> for Pair {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (seconds, Number(value)) = <(f64, Number)>::deserialize(deserializer)?;
        // Prometheus has times in milliseconds.
        let millis = (seconds * 1_000.0).round();
        if millis.is_nan() || millis.abs() >= 9e12 {
            return Err(D::Error::custom(format_args!("time {seconds} is out of range")));
        }
        #[expect(clippy::cast_possible_truncation, reason = "the range is checked")]
        Ok(Self(Point { at: millis as i64 * 1_000_000, value }))
    }
}

/// A number as text, since JSON has no infinity.
struct Number(f64);

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberVisitor;

        impl Visitor<'_> for NumberVisitor {
            type Value = Number;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number as text")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Number, E> {
                text.parse().map(Number).map_err(|_| E::custom(format_args!("{text:?} is no number")))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Number, E> {
                Ok(Number(number))
            }
        }

        deserializer.deserialize_str(NumberVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    type Read = Result<(QueryOutcome, Vec<(Labels, Vec<Point>)>), String>;

    fn read_all(text: &str) -> Read {
        let mut all = Vec::new();
        let mut sink = |labels: &Labels, points: &[Point]| {
            all.push((labels.clone(), points.to_vec()));
            true
        };
        let outcome = read(text.as_bytes(), &mut sink).map_err(|error| error.to_string())?;
        Ok((outcome, all))
    }

    fn point(seconds: i64, value: f64) -> Point {
        Point { at: seconds * 1_000_000_000, value }
    }

    fn labels(pod: &str) -> Labels {
        [("pod".to_owned(), pod.to_owned())].into()
    }

    #[test]
    fn a_matrix_and_a_vector_are_read() {
        let (outcome, series) = read_all(
            r#"{"status":"success","data":{"resultType":"matrix","result":[
                {"metric":{"pod":"a"},"values":[[1767225600,"0.25"],[1767225660.5,"1e3"]]},
                {"metric":{"pod":"b"},"values":[]},
                {"metric":{"pod":"c"},"value":[1767225600,"+Inf"],"histograms":[[1,{}]]}
            ]},"warnings":["slow"],"infos":null}"#,
        )
        .unwrap();
        assert_eq!(outcome.status, "success");
        assert_eq!(outcome.warnings, ["slow"]);
        assert_eq!(series.len(), 2);
        let half = Point { at: 1_767_225_660_500_000_000, value: 1e3 };
        assert_eq!(series[0], (labels("a"), vec![point(1_767_225_600, 0.25), half]));
        assert_eq!(series[1], (labels("c"), vec![point(1_767_225_600, f64::INFINITY)]));
    }

    #[test]
    fn labels_may_come_last_and_not_a_number_is_one() {
        let text = r#"{"data":{"result":[{"values":[[0,"NaN"]],"metric":{"pod":"a"}}]},"status":"success"}"#;
        let (_, series) = read_all(text).unwrap();
        assert_eq!(series[0].0, labels("a"));
        assert!(series[0].1[0].value.is_nan());
    }

    #[test]
    fn an_error_is_read_with_or_without_data() {
        for data in ["", r#","data":null"#, r#","data":{"resultType":"matrix","result":null}"#] {
            let text =
                format!(r#"{{"status":"error","errorType":"timeout","error":"query timed out"{data}}}"#);
            let (outcome, series) = read_all(&text).unwrap();
            assert_eq!((outcome.error_type.as_str(), outcome.error.as_str()), ("timeout", "query timed out"));
            assert!(series.is_empty());
        }
    }

    #[test]
    fn a_long_series_comes_in_chunks_and_in_order() {
        let values: Vec<_> = (0..3_000).map(|second| json!([second, second.to_string()])).collect();
        let text = json!({ "status": "success", "data": { "result": [{ "metric": { "pod": "a" }, "values": values }] } });
        // serde_json sorts names: metric comes before values.
        let (_, series) = read_all(&text.to_string()).unwrap();
        assert_eq!(series.iter().map(|(_, points)| points.len()).collect::<Vec<_>>(), [1024, 1024, 952]);
        let values = series.iter().flat_map(|(_, points)| points);
        assert!(values.zip(0_i32..).all(|(found, second)| *found == point(second.into(), second.into())));
    }

    #[test]
    fn a_closed_sink_ends_the_reading() {
        let text = r#"{"status":"success","data":{"result":[{"metric":{},"value":[0,"1"]},{"metric":{},"value":[0,"2"]}]}}"#;
        let mut seen = 0;
        let outcome = read(text.as_bytes(), &mut |_: &Labels, _: &[Point]| {
            seen += 1;
            false
        });
        assert!(outcome.unwrap().stopped);
        assert_eq!(seen, 1);
    }

    #[test]
    fn a_malformed_response_of_prometheus_is_an_error() {
        for wrong in [
            "",
            "<html>",
            "{}",
            "[]",
            r#"{"status":"success","data":{"result":[1,"2"]}}"#,
            r#"{"status":"success","data":{"result":[{"metric":{},"value":[0,"many"]}]}}"#,
            r#"{"status":"success","data":{"result":[{"metric":{},"value":[1e300,"1"]}]}}"#,
            r#"{"status":"success","data":{"result":[{"metric":{},"values":[[0,"1"],[1,"#,
            r#"{"status":"success"}{"status":"success"}"#,
        ] {
            assert!(read_all(wrong).is_err(), "{wrong}");
        }
    }
}
