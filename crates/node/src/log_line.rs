//! One line of a container's log, as the CRI has it: time, stream, whole (`F`) or part (`P`) of a line, text.

/// Which of a container's streams something was written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// A line of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogLine<'a> {
    /// As it is written.
    pub(crate) time: &'a str,
    pub(crate) stream: Stream,
    /// Whether the line of the container ends here.
    pub(crate) ends: bool,
    pub(crate) text: &'a [u8],
}

impl<'a> LogLine<'a> {
    /// Reads a line, without what ends it. `None` if it is none.
    pub(crate) fn read(line: &'a [u8]) -> Option<Self> {
        let mut parts = line.splitn(4, |byte| *byte == b' ');
        let time = std::str::from_utf8(parts.next()?).ok().filter(|time| !time.is_empty())?;
        let stream = match parts.next()? {
            b"stdout" => Stream::Stdout,
            b"stderr" => Stream::Stderr,
            _ => return None,
        };
        // Tags are separated by colons; the first one is this.
        let ends = parts.next()?.split(|byte| *byte == b':').next() != Some(b"P");
        Some(Self { time, stream, ends, text: parts.next()? })
    }

    /// Appends the text to an answer, with what ends the line if it ends.
    pub(crate) fn append_to(&self, answer: &mut Vec<u8>) {
        answer.extend_from_slice(self.text);
        if self.ends {
            answer.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_time_stream_tag_and_text() {
        let read = LogLine::read(b"2026-01-01T00:00:00Z stderr P a b ").unwrap();
        assert_eq!((read.time, read.stream, read.ends), ("2026-01-01T00:00:00Z", Stream::Stderr, false));
        assert_eq!(read.text, b"a b ");
        assert!(LogLine::read(b"t stdout F:x ").unwrap().ends);
        for line in ["", "t", "t stdout", "t other F x", "t stdout F"] {
            assert_eq!(LogLine::read(line.as_bytes()), None, "{line}");
        }
    }
}
