//! The terminal: its screen, its keys, and the signals that end the program.

use std::io::stdout;

use anyhow::Context as _;
use crossterm::cursor::Show;
use crossterm::event::{Event as Input, EventStream, KeyEventKind};
use crossterm::execute;
use futures_util::stream::{self, BoxStream, Stream, StreamExt as _};
use ratatui::DefaultTerminal;
use tokio::signal::unix::{SignalKind, signal};

use super::event::Event;
use super::model::Model;
use super::view::view;
use crate::color;

/// The screen of the terminal. What was there before is there again when this is dropped, and after a panic.
pub(super) struct Screen(DefaultTerminal);

impl Screen {
    /// Takes the screen.
    pub(super) fn open() -> anyhow::Result<Self> {
        // Otherwise crossterm decides by `NO_COLOR` alone; `--color` has precedence.
        crossterm::style::force_color_output(color::is_enabled());
        // It also has a panic restore the terminal before its message is printed.
        Ok(Self(ratatui::try_init()?))
    }

    /// Its columns and rows.
    pub(super) fn size(&self) -> (u16, u16) {
        self.0.size().map_or((80, 24), |size| (size.width, size.height))
    }

    pub(super) fn draw(&mut self, model: &mut Model) -> anyhow::Result<()> {
        model.refresh();
        let model = &*model;
        self.0.draw(|frame| view(model, frame)).context("drawing")?;
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // A panic has restored it, and has printed its message since.
        if !std::thread::panicking() {
            // The terminal may be gone, and then there is nothing to restore.
            let _ = ratatui::try_restore();
            let _ = execute!(stdout(), Show);
        }
    }
}

/// Keys, and changes of the size. It ends the program when the terminal is gone.
pub(super) fn input() -> impl Stream<Item = Event> + Send + 'static {
    let events = EventStream::new().filter_map(|input| async move {
        match input {
            Ok(Input::Key(key)) if key.kind != KeyEventKind::Release => Some(Event::Key(key)),
            Ok(Input::Resize(columns, rows)) => Some(Event::Size { columns, rows }),
            Ok(_) => None,
            Err(_) => Some(Event::Terminate),
        }
    });
    events.chain(stream::once(async { Event::Terminate }))
}

/// The signals that end the program. Ctrl-C is a key here; SIGINT comes from elsewhere.
pub(super) fn signals() -> BoxStream<'static, Event> {
    let kinds = [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt()];
    let all = kinds.into_iter().map(|kind| {
        stream::once(async move {
            match signal(kind) {
                Ok(mut signal) => {
                    signal.recv().await;
                    Event::Terminate
                }
                // It keeps its default action, which ends the program.
                Err(_) => std::future::pending().await,
            }
        })
        .boxed()
    });
    stream::select_all(all).boxed()
}
