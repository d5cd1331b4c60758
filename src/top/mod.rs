// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! `vhost-device-gpgpu top`: the VMs of a running service, live in the terminal.
//!
//! It reads the page `/clients` of the service's metrics, twice or more, and shows the differences.

mod fetch;
mod plain;
mod rates;
mod state;
mod view;

use std::{
    io::{self, IsTerminal as _},
    sync::mpsc::{RecvTimeoutError, sync_channel},
    thread,
    time::{Duration, Instant},
};

use clap::Parser;
use ratatui::crossterm::event::{self, Event};

use crate::supervisor::metrics::{Address, DEFAULT_ADDRESS};
use fetch::Fetcher;
use rates::Rates;
use state::{Key, State};

/// The first word of the command line.
pub const COMMAND: &str = "top";

/// The interval at which the keyboard is polled.
const KEYS: Duration = Duration::from_millis(50);

/// Shows the VMs of a running service, live in the terminal
#[derive(Debug, Parser)]
#[command(
    name = "vhost-device-gpgpu top",
    bin_name = "vhost-device-gpgpu top",
    version,
    after_help = "Keys: q quits, up and down choose a VM, enter shows its clients or hides them, c all clients, p pauses."
)]
pub struct Args {
    /// The address of the service's metrics: unix:/PATH, or an address and port
    #[arg(long, value_name = "ADDRESS", default_value = DEFAULT_ADDRESS)]
    pub metrics: Address,

    /// Seconds between two queries
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,

    /// Print a table of one interval, and exit
    #[arg(long)]
    pub once: bool,

    /// Print one interval as JSON, and exit
    #[arg(long, conflicts_with = "once")]
    pub json: bool,
}

fn interval(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.1..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("it must be 0.1 to 3600 seconds".to_owned()),
    }
}

/// The reason why nothing can be shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The service does not answer.
    #[error("{0}: {1}. Is the service running, with --metrics {0}?")]
    Fetch(Address, #[source] fetch::Error),
    /// There is no terminal to draw on.
    #[error("Standard output is no terminal: use --once or --json")]
    NoTerminal,
    /// The terminal failed, or a thread could not be started.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The values cannot be written.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
}

/// Executes the command line.
///
/// # Errors
/// See [`Error`].
pub fn run(args: &Args) -> Result<(), Error> {
    if !args.once && !args.json && !io::stdout().is_terminal() {
        return Err(Error::NoTerminal);
    }
    let wait = Duration::from_secs_f64(args.interval);
    let fetcher = Fetcher::new(args.metrics.clone())?;
    let fail = |error| Error::Fetch(args.metrics.clone(), error);
    let first = fetcher.fetch().map_err(fail)?;
    if !args.once && !args.json {
        return live(fetcher, wait, State::new(args.metrics.clone(), first));
    }
    thread::sleep(wait);
    let second = fetcher.fetch().map_err(fail)?;
    let rates = Rates::between(&first, &second);
    let text = match args.json {
        true => serde_json::to_string_pretty(&rates)? + "\n",
        false => plain::table(&rates),
    };
    io::Write::write_all(&mut io::stdout().lock(), text.as_bytes())?;
    Ok(())
}

fn live(fetcher: Fetcher, wait: Duration, mut state: State) -> Result<(), Error> {
    let (send, receive) = sync_channel(1);
    let look = move || {
        loop {
            let began = Instant::now();
            // If this fails, the reader has ended and needs no further page.
            if send.send(fetcher.fetch()).is_err() {
                return;
            }
            thread::sleep(wait.saturating_sub(began.elapsed()));
        }
    };
    thread::Builder::new().name("fetch".into()).spawn(look)?;
    let mut terminal = ratatui::try_init()?;
    let mut show = || {
        loop {
            terminal.draw(|frame| view::draw(frame, &mut state))?;
            while event::poll(Duration::ZERO)? {
                if let Event::Key(key) = event::read()?
                    && let Some(key) = Key::of(key)
                    && state.press(key)
                {
                    return Ok(());
                }
            }
            match receive.recv_timeout(KEYS) {
                Ok(Ok(status)) => state.update(status),
                Ok(Err(error)) => state.fail(&error),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    };
    let shown: io::Result<()> = show();
    ratatui::try_restore()?;
    Ok(shown?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent_and_in_the_manual_page() {
        Args::command().debug_assert();
        let page = include_str!("../../docs/vhost-device-gpgpu.1").replace("\\-", "-");
        for argument in Args::command().get_arguments() {
            let flag = format!("--{}", argument.get_long().unwrap());
            assert!(page.contains(&flag), "{flag} is missing");
        }
        for wrong in ["0", "-1", "NaN", "4000", "x"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
        assert_eq!(interval("0.5"), Ok(0.5));
    }
}
