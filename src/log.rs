// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The log, on standard error: lines for people, or JSON for machines.

use std::{
    ffi::OsString,
    fmt,
    fs::File,
    io::{self, IsTerminal, Write},
    os::fd::{AsFd, BorrowedFd},
    sync::OnceLock,
};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use tracing::{Event, Subscriber, field::Field};
use tracing_subscriber::{
    EnvFilter,
    field::RecordFields,
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{self, Json, JsonFields, Writer},
    },
    registry::LookupSpan,
};

/// Variables that set the level. The first one that is set is used.
const LEVEL: [&str; 2] = ["VIRTIO_GPGPU_LOG", "RUST_LOG"];
/// The levels, from none to all.
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
/// The role of the process that starts the others, in the log.
pub const SUPERVISOR: &str = "supervisor";
/// The variable by which the supervisor passes the format to its processes.
const FORMAT: &str = "VIRTIO_GPGPU_LOG_FORMAT";

/// The format of lines.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Lines for people: a time, a level and a sentence.
    #[default]
    Text,
    /// A JSON object for each line, with the message and its subjects in fields.
    Json,
}

impl Format {
    /// The format that the supervisor has passed to this process.
    pub fn inherited() -> Self {
        match std::env::var_os(FORMAT) {
            Some(format) if format == "json" => Self::Json,
            _ => Self::Text,
        }
    }

    /// The variable that passes the format to a process.
    pub fn variable(self) -> (OsString, OsString) {
        let value = match self {
            Self::Text => "text",
            Self::Json => "json",
        };
        (FORMAT.into(), value.into())
    }
}

/// Starts the log of this process, which has the given role.
pub fn start(format: Format, role: &str) {
    let wish = LEVEL.iter().find_map(|name| {
        let value = std::env::var(name).ok();
        // An empty line in a service's environment file counts as none.
        Some((*name, value.filter(|value| !value.is_empty())?))
    });
    let filter = wish.as_ref().and_then(|(_, value)| filter(value));
    // The library logs an error for each kick of a guest whose ring is invalid.
    let directives = format!("{},virtio_queue=off", filter.as_deref().unwrap_or("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(directives))
        .with_writer(|| Place);
    match format {
        Format::Text => builder
            .with_ansi(std::io::stderr().is_terminal())
            .fmt_fields(Sentence)
            .init(),
        Format::Json => builder
            .fmt_fields(JsonFields::new())
            .event_format(Object::new(role))
            .init(),
    }
    // The supervisor says it once for all of its processes.
    if let (Some((name, value)), None, SUPERVISOR) = (wish, filter, role) {
        tracing::warn!(
            "{name} is {value:?}, which is no level; the level is info (levels: {})",
            LEVELS.join(", ")
        );
    }
}

/// The directives for a wish: a level, or directives of `tracing` with a target each, which start from `info`. `None`
/// for another word, which would be the name of a target and disable the rest of the log.
fn filter(wish: &str) -> Option<String> {
    let level = wish.trim().to_ascii_lowercase();
    if LEVELS.contains(&level.as_str()) {
        return Some(level);
    }
    wish.contains('=').then(|| format!("info,{wish}"))
}

/// The log's descriptor after the standard error was given another use.
static KEPT: OnceLock<File> = OnceLock::new();

/// Keeps the log's present destination, whatever the standard error is used for later.
///
/// # Errors
/// The process has no free descriptors.
pub fn keep() -> io::Result<()> {
    let kept = io::stderr().as_fd().try_clone_to_owned()?;
    let _ = KEPT.set(kept.into());
    Ok(())
}

/// The writer of the log.
struct Place;

/// Whether a line can be written at once: a reader that does not read must not stop the programs of all VMs. A pipe has
/// room for a page then, and a line is shorter.
fn has_room(log: BorrowedFd<'_>) -> bool {
    let mut log = [PollFd::new(log, PollFlags::POLLOUT)];
    poll(&mut log, PollTimeout::ZERO) != Ok(0)
}

/// Writes a line, or loses it: its reader does not read or has gone, or a disk is full. With an error the library would
/// report it on the standard error, and panic if that fails, too.
fn write_line(mut log: impl Write + AsFd, line: &[u8]) {
    if has_room(log.as_fd()) {
        let _ = log.write_all(line);
    }
}

impl Write for Place {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match KEPT.get() {
            Some(kept) => write_line(kept, bytes),
            None => write_line(io::stderr().lock(), bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Formats only the message, because it contains the other fields in words.
struct Sentence;

impl<'writer> FormatFields<'writer> for Sentence {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let only = |writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
            if field.name() == "message" {
                write!(writer, "{value:?}")?;
            }
            Ok(())
        };
        format::debug_fn(only).format_fields(writer, fields)
    }
}

/// Formats a JSON object that also names the process.
struct Object {
    json: format::Format<Json>,
    process: String,
}

impl Object {
    fn new(role: &str) -> Self {
        let process = std::process::id();
        Self {
            json: format::Format::default().json().flatten_event(true),
            process: format!("\"process\":{process},\"role\":\"{role}\""),
        }
    }
}

impl<S, N> FormatEvent<S, N> for Object
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.json
            .format_event(context, Writer::new(&mut line), event)?;
        let fields = line.strip_prefix('{').ok_or(fmt::Error)?;
        write!(writer, "{{{},{fields}", self.process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io, sync::Arc};

    use gpgpu_locks::Mutex;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_wish_that_is_no_level_does_not_silence_the_log() {
        assert_eq!(filter("debug"), Some("debug".into()));
        assert_eq!(filter(" WARN "), Some("warn".into()));
        assert_eq!(filter("warning"), None);
        assert_eq!(
            filter("other=debug"),
            Some("info,other=debug".into()),
            "a variable of another program"
        );
    }

    fn log() {
        tracing::warn!(
            vm = "a",
            client = 3,
            reason = "killed",
            "{}: client 3 (\"x\") died",
            "a.sock"
        );
    }

    #[test]
    fn people_read_a_sentence_and_machines_fields() {
        let lines = Lines::default();
        let to = lines.clone();
        let text = tracing_subscriber::fmt()
            .with_writer(move || to.clone())
            .with_ansi(false)
            .fmt_fields(Sentence)
            .finish();
        tracing::subscriber::with_default(text, log);
        let text = String::from_utf8(std::mem::take(&mut lines.0.lock())).unwrap();
        assert!(
            text.ends_with("a.sock: client 3 (\"x\") died\n") && !text.contains("killed"),
            "{text}"
        );

        let to = lines.clone();
        let json = tracing_subscriber::fmt()
            .with_writer(move || to.clone())
            .fmt_fields(JsonFields::new())
            .event_format(Object::new("supervisor"))
            .finish();
        tracing::subscriber::with_default(json, log);
        let json = lines.0.lock();
        let line: serde_json::Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(line["message"], "a.sock: client 3 (\"x\") died");
        assert_eq!((&line["level"], &line["vm"]), (&"WARN".into(), &"a".into()));
        assert_eq!(line["client"], 3);
        assert_eq!(
            (&line["reason"], &line["role"]),
            (&"killed".into(), &"supervisor".into())
        );
        assert_eq!(line["process"], std::process::id());
        assert!(line["timestamp"].is_string());
    }
}
