//! The program without a terminal and a cluster: events in, text and effects out.

mod clusters;
mod keys;
mod screens;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use super::event::{Effect, Event};
use super::model::Model;
use super::update::update;
use super::view::view;

/// What a terminal of a size shows, without the spaces at the ends of lines.
fn screen(model: &mut Model, columns: u16, rows: u16) -> String {
    update(model, Event::Size { columns, rows });
    model.refresh();
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| view(model, frame)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y: u16| -> String { (0..columns).map(|x| buffer[(x, y)].symbol()).collect() };
    let lines = (0..rows).map(|y| line(y).trim_end().to_owned());
    lines.collect::<Vec<_>>().join("\n").trim_end().to_owned()
}

/// Presses keys: letters, and the names of others in angle brackets, such as `<Enter>`.
fn press(model: &mut Model, keys: &str) -> Vec<Effect> {
    let mut effects = Vec::new();
    let mut rest = keys;
    while let Some(letter) = rest.chars().next() {
        let named = rest.strip_prefix('<').and_then(|rest| rest.split_once('>'));
        let (code, modifiers) = match named {
            None => (KeyCode::Char(letter), KeyModifiers::NONE),
            Some(("Enter", _)) => (KeyCode::Enter, KeyModifiers::NONE),
            Some(("Esc", _)) => (KeyCode::Esc, KeyModifiers::NONE),
            Some(("Down", _)) => (KeyCode::Down, KeyModifiers::NONE),
            Some(("Up", _)) => (KeyCode::Up, KeyModifiers::NONE),
            Some(("End", _)) => (KeyCode::End, KeyModifiers::NONE),
            Some(("PgDn", _)) => (KeyCode::PageDown, KeyModifiers::NONE),
            Some(("Tab", _)) => (KeyCode::Tab, KeyModifiers::NONE),
            Some(("BackTab", _)) => (KeyCode::BackTab, KeyModifiers::NONE),
            Some(("Backspace", _)) => (KeyCode::Backspace, KeyModifiers::NONE),
            Some(("Ctrl-C", _)) => (KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(("Ctrl-U", _)) => (KeyCode::Char('u'), KeyModifiers::CONTROL),
            Some((other, _)) => panic!("no key {other}"),
        };
        rest = named.map_or(&rest[letter.len_utf8()..], |(_, rest)| rest);
        effects.extend(update(model, Event::Key(KeyEvent::new(code, modifiers))));
    }
    effects
}
