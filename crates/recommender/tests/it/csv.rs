//! Samples in CSV.

use std::io::Read;

use plumb_recommender::Time;
use plumb_recommender::offline::csv::{CsvError, MAX_LINE, Measurement, Problem, SampleReader};
use proptest::prelude::*;

/// All rows: line, Unix nanoseconds, pod, container, measurement.
type Rows = Vec<(u64, i64, String, String, Measurement)>;

fn read(input: impl Read) -> Result<Rows, CsvError> {
    let mut reader = SampleReader::new(input);
    let mut rows = Vec::new();
    while let Some(row) = reader.next_row()? {
        let nanos = row.at.unix_nanos().unwrap();
        rows.push((row.line, nanos, row.pod.to_owned(), row.container.to_owned(), row.measurement));
    }
    Ok(rows)
}

fn row(
    line: u64,
    seconds: i64,
    container: &str,
    measurement: Measurement,
) -> (u64, i64, String, String, Measurement) {
    (line, seconds * 1_000_000_000, String::new(), container.to_owned(), measurement)
}

#[track_caller]
fn problem(text: &[u8]) -> (u64, Problem) {
    match read(text) {
        Err(CsvError::Row { line, problem }) => (line, problem),
        other => panic!("{other:?}"),
    }
}

const NEW_YEAR: i64 = 1_767_225_600;

#[test]
fn rows_are_read_with_and_without_a_header() {
    let rows = "2026-01-01T00:00:00Z,web,cpu,0.25\n1767225660,web,memory,1.5e8\n1767225720,web,oom,268435456";
    let expected = |first| {
        vec![
            row(first, NEW_YEAR, "web", Measurement::Cpu(0.25)),
            row(first + 1, NEW_YEAR + 60, "web", Measurement::Memory(1.5e8)),
            row(first + 2, NEW_YEAR + 120, "web", Measurement::Oom(268_435_456.0)),
        ]
    };
    assert_eq!(read(rows.as_bytes()).unwrap(), expected(1));
    assert_eq!(read(format!("time,container,resource,value\n{rows}\n").as_bytes()).unwrap(), expected(2));
    assert_eq!(
        read(format!("\u{feff}Time,Container,Resource,Value\r\n{rows}\r\n").as_bytes()).unwrap(),
        expected(2)
    );
    assert_eq!(read(&b""[..]).unwrap(), []);
    assert_eq!(read(&b"time,container,resource,value"[..]).unwrap(), []);
}

#[test]
fn a_header_names_columns_in_any_order_and_others_are_ignored() {
    let text = "value,node,pod,resource,container,timestamp\n0.5,n1,web-0,CPU,web,1767225600\n";
    let read = read(text.as_bytes()).unwrap();
    let expected = (2, NEW_YEAR * 1_000_000_000, "web-0".to_owned(), "web".to_owned(), Measurement::Cpu(0.5));
    assert_eq!(read, [expected]);
}

#[test]
fn empty_lines_comments_quotes_and_white_space_are_no_rows_and_no_values() {
    let text = "# made by hand\n\n \t\n \"2026-01-01T00:00:00Z\" , \"web\" ,cpu , 1 \r\n#\n\"1767225600\",\"a,b\",\"cpu\",\"2\"";
    let expected =
        [row(4, NEW_YEAR, "web", Measurement::Cpu(1.0)), row(6, NEW_YEAR, "a,b", Measurement::Cpu(2.0))];
    assert_eq!(read(text.as_bytes()).unwrap(), expected);
}

#[test]
fn times_have_fractions_offsets_and_a_range() {
    let at = |time: &str| read(format!("{time},a,cpu,1").as_bytes()).map(|rows| rows[0].1);
    let new_year = NEW_YEAR * 1_000_000_000;
    assert_eq!(at("1767225600.25").unwrap(), new_year + 250_000_000);
    assert_eq!(at("1767225600.1234567899").unwrap(), new_year + 123_456_789);
    assert_eq!(at("2026-01-01T01:00:00.5+01:00").unwrap(), new_year + 500_000_000);
    assert_eq!(at("-1").unwrap(), -1_000_000_000);
    assert_eq!(at("0").unwrap(), 0);
    assert!(Time::from_unix_seconds(0).is_set());
    for (time, expected) in [
        (
            "1767225600000",
            "the time \"1767225600000\" is not between 1677 and 2262; numbers are seconds since 1970",
        ),
        (
            "9999-01-01T00:00:00Z",
            "the time \"9999-01-01T00:00:00Z\" is not between 1677 and 2262; numbers are seconds since 1970",
        ),
        ("yesterday", "\"yesterday\" is no time: neither RFC 3339 nor seconds since 1970"),
        ("2026-01-01", "\"2026-01-01\" is no time: neither RFC 3339 nor seconds since 1970"),
        ("1e9", "\"1e9\" is no time: neither RFC 3339 nor seconds since 1970"),
        ("", "\"\" is no time: neither RFC 3339 nor seconds since 1970"),
    ] {
        assert_eq!(at(time).unwrap_err().to_string(), format!("line 1: {expected}"));
    }
}

#[test]
fn a_bad_row_is_an_error_with_the_number_of_its_line() {
    let good = b"1767225600,a,cpu,1\n";
    let third = |bad: &[u8]| problem(&[&good[..], b"\n", bad, b"\n", good].concat());
    let value = |text: &str| Problem::Value(text.to_owned());
    for (bad, expected) in [
        (&b"1767225600,a,cpu"[..], Problem::Fields { found: 3, expected: 4 }),
        (b"1767225600,a,cpu,1,2", Problem::Fields { found: 5, expected: 4 }),
        (b",", Problem::Fields { found: 2, expected: 4 }),
        (b"1767225600,a,gpu,1", Problem::Resource("gpu".to_owned())),
        (b"1767225600,,cpu,1", Problem::Container),
        (b"1767225600,a,cpu,", value("")),
        (b"1767225600,a,cpu,NaN", value("NaN")),
        (b"1767225600,a,cpu,inf", value("inf")),
        (b"1767225600,a,cpu,-1", value("-1")),
        (b"1767225600,a,cpu,100m", value("100m")),
        (b"1767225600,\"a,cpu,1", Problem::Quote),
        (b"1767225600,\"a\"b,cpu,1", Problem::Quote),
        (b"1767225600,\xff,cpu,1", Problem::Utf8),
    ] {
        assert_eq!(third(bad), (3, expected), "{}", String::from_utf8_lossy(bad));
    }
    assert_eq!(problem(b"time,container,value\n"), (1, Problem::Header("resource")));
    assert_eq!(problem(b"container,resource,value\n"), (1, Problem::Header("time")));
    assert_eq!(problem(b"a,b,c,d\n"), (1, Problem::Time("a".to_owned())));
    assert_eq!(
        problem(b"time,container,resource,value,pod\n1,a,cpu,1\n"),
        (2, Problem::Fields { found: 4, expected: 5 })
    );
}

#[test]
fn a_line_has_a_longest_length_however_it_arrives() {
    let at_most = [b"#".repeat(MAX_LINE), b"\n1767225600,a,cpu,1".to_vec()].concat();
    assert_eq!(read(&at_most[..]).unwrap(), [row(2, NEW_YEAR, "a", Measurement::Cpu(1.0))]);
    let too_long = [b"\n", &b"#".repeat(MAX_LINE + 1)[..], b"\n"].concat();
    assert_eq!(problem(&too_long), (2, Problem::TooLong));
    match read(std::io::repeat(b'#')) {
        Err(CsvError::Row { line: 1, problem: Problem::TooLong }) => {}
        other => panic!("{other:?}"),
    }
}

/// Gives its bytes in pieces of a few.
struct Trickle<'a> {
    bytes: &'a [u8],
    piece: usize,
}

impl Read for Trickle<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.piece.min(self.bytes.len()).min(buffer.len());
        buffer[..count].copy_from_slice(&self.bytes[..count]);
        self.bytes = &self.bytes[count..];
        Ok(count)
    }
}

#[test]
fn the_rest_of_a_line_may_arrive_in_another_buffer() {
    use std::fmt::Write as _;
    let mut text = String::new();
    for index in 0..60_000 {
        // Lines of different lengths, over more than one buffer of a megabyte.
        writeln!(
            text,
            "{},container-{},cpu,0.{index}",
            NEW_YEAR + index,
            "x".repeat(usize::try_from(index % 37).unwrap())
        )
        .unwrap();
    }
    let at_once = read(text.as_bytes()).unwrap();
    assert_eq!(at_once.len(), 60_000);
    assert!(at_once.iter().enumerate().all(|(index, row)| row.0 == index as u64 + 1));
    for piece in [1, 4_093, 65_537] {
        assert_eq!(read(Trickle { bytes: text.as_bytes(), piece }).unwrap(), at_once, "{piece}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_rows_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..300), piece in 1_usize..40) {
        let at_once = read(&bytes[..]).map_err(|error| error.to_string());
        let in_pieces = read(Trickle { bytes: &bytes, piece }).map_err(|error| error.to_string());
        prop_assert_eq!(at_once, in_pieces);
    }

    #[test]
    fn written_samples_are_read_back(
        seconds in -9_000_000_000_i64..9_000_000_000, container in "[a-z0-9-]{1,63}", cores in 0.0..1e6_f64,
    ) {
        let text = format!("{seconds},{container},cpu,{cores:?}\n");
        prop_assert_eq!(read(text.as_bytes()).unwrap(), [row(1, seconds, &container, Measurement::Cpu(cores))]);
    }
}
