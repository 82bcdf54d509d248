//! A terminal that is redrawn.

use rustix::termios::tcgetwinsize;

use crate::client::write_out;

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

impl Size {
    /// The size of the terminal that is standard output; the usual one if it has none.
    pub(super) fn of_terminal() -> Self {
        let size = tcgetwinsize(std::io::stdout()).ok();
        let given = |size: Option<u16>, usual| size.filter(|size| *size > 0).map_or(usual, usize::from);
        Self {
            columns: given(size.map(|size| size.ws_col), 80),
            rows: given(size.map(|size| size.ws_row), 24),
        }
    }
}

/// What the terminal shows.
#[derive(Debug, Default)]
pub(super) struct Screen {
    drawn: Option<String>,
}

impl Screen {
    /// Shows a text in place of the one before. The last text stays when the command ends.
    pub(super) fn draw(&mut self, text: &str, size: Size) -> anyhow::Result<()> {
        let frame = frame(text, size);
        if self.drawn.as_ref() == Some(&frame) {
            return Ok(());
        }
        // The first time the whole screen is cleared; then lines are overwritten, which does not flicker.
        let clear = if self.drawn.is_none() { "\u{1b}[2J" } else { "" };
        write_out(&format!("{clear}\u{1b}[H{frame}\u{1b}[J"))?;
        self.drawn = Some(frame);
        Ok(())
    }
}

/// The lines of a text that fit, each with an instruction to clear the rest of its line. The last line of the terminal
/// stays empty: the cursor is there.
fn frame(text: &str, size: Size) -> String {
    let fit = size.rows.saturating_sub(1).max(1);
    let is_cut = text.lines().count() > fit;
    let shown = text.lines().take(if is_cut { fit - 1 } else { fit });
    let lines = shown.map(|line| cut(line, size.columns)).chain(is_cut.then(|| "…".to_owned()));
    lines.map(|line| line + "\u{1b}[K\r\n").collect()
}

/// The part of a line that fits. A longer line would wrap, and move those below.
fn cut(line: &str, columns: usize) -> String {
    let mut cut = String::new();
    let mut width = 0;
    let mut is_coloured = false;
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' {
            // A colour has no width.
            cut.push(letter);
            cut.extend(letters.by_ref().take_while(|letter| *letter != 'm'));
            cut.push('m');
            is_coloured = true;
            continue;
        }
        if width == columns {
            if is_coloured {
                cut.push_str("\u{1b}[0m");
            }
            break;
        }
        cut.push(letter);
        width += 1;
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_that_do_not_fit_are_cut_and_colours_have_no_width() {
        for (line, columns, expected) in [
            ("web", 3, "web"),
            ("web", 2, "we"),
            ("größe → 1", 7, "größe →"),
            ("\u{1b}[31mFailing\u{1b}[0m", 7, "\u{1b}[31mFailing\u{1b}[0m"),
            ("a \u{1b}[31mFailing\u{1b}[0m b", 4, "a \u{1b}[31mFa\u{1b}[0m"),
        ] {
            assert_eq!(cut(line, columns), expected, "{line:?}");
        }
    }

    #[test]
    fn a_text_that_is_too_long_ends_with_an_ellipsis_and_never_scrolls() {
        let lines = |text: &str, rows| -> Vec<String> {
            let frame = frame(text, Size { columns: 80, rows });
            frame.split_terminator("\u{1b}[K\r\n").map(str::to_owned).collect()
        };
        assert_eq!(lines("a\nb\n", 3), ["a", "b"]);
        assert_eq!(lines("a\nb\nc\n", 3), ["a", "…"]);
        assert_eq!(lines("a\n", 1), ["a"]);
        assert_eq!(lines("", 3), [""; 0]);
    }
}
