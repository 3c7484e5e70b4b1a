//! The log that engines read: one line per event, in runc's (logrus') two formats. A user gets a sentence: at a terminal,
//! and of the verbs that no engine calls.
//!
//! Docker and containerd show the last error of `--log` to their user. libcontainer logs each failure at every level
//! that it passes. Without `--debug` only our own lines are written, each of at most [`LINE`] characters. Its errors
//! often lack the cause, which it logged earlier, mostly in the container's process: [`keep_causes`] keeps that line
//! for the error's text.

pub mod plain;
pub mod progress;

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use anyhow::Context;
use log::{Level, LevelFilter, Metadata, Record};

use crate::text::{LINE, bounded, escape, escape_json};

struct Logger {
    /// `None`: standard error.
    file: Option<Mutex<File>>,
    form: LogReader,
    debug: bool,
}

/// Format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// `time="..." level=error msg="..."`
    Text,
    /// `{"level":"error","msg":"...","time":"..."}`, which engines parse
    Json,
}

/// Whether an engine or a user reads the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LogReader {
    /// An engine, or a file.
    Engine(LogFormat),
    /// A user.
    Person,
}

impl LogReader {
    /// A user reads standard error on a terminal and of a verb for users, unless the caller requests a format.
    fn of(file: Option<&Mutex<File>>, asked: Option<LogFormat>, stderr: ErrorReader) -> Self {
        match (file, asked, stderr) {
            (None, None, ErrorReader::User) => Self::Person,
            (_, asked, _) => Self::Engine(asked.unwrap_or(LogFormat::Text)),
        }
    }
}

/// Who reads standard error, as far as can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorReader {
    /// A user: at a terminal, or of a verb that no engine calls.
    User,
    /// An engine, which parses runc's form.
    Engine,
}

/// Which lines are logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verbosity {
    /// agentbox's own warnings and errors.
    Warnings,
    /// All lines, including those of libraries.
    Debug,
}

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Both ends of a pipe that the container's process inherits, for libcontainer's error messages.
static CAUSES: OnceLock<(OwnedFd, OwnedFd)> = OnceLock::new();

/// From now on, keeps libcontainer's errors for [`first_cause`], also those of processes that it clones.
pub fn keep_causes() -> std::io::Result<()> {
    use rustix::pipe::{PipeFlags, pipe_with};
    // Non-blocking: a full pipe loses lines but delays no process.
    let ends = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
    // A second call in one process (`wrap`) keeps the first pipe.
    let _kept = CAUSES.set(ends);
    Ok(())
}

/// The first message of libcontainer since the last call: the innermost cause.
pub fn first_cause() -> Option<String> {
    let mut text = vec![0; 4096];
    let n = rustix::io::read(&CAUSES.get()?.0, &mut text).ok()?;
    let text = String::from_utf8_lossy(&text[..n]);
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// Opens the log.
/// To `path`, or standard error without one; in `form`, or the format that its reader is likely to want.
pub fn init(
    path: Option<&Path>,
    form: Option<LogFormat>,
    verbosity: Verbosity,
    reader: ErrorReader,
) -> anyhow::Result<()> {
    let file = match path {
        Some(path) => {
            let mut options = File::options();
            let opened = options.append(true).create(true).mode(0o600).open(path);
            Some(Mutex::new(
                opened.with_context(|| format!("open the log {path:?}"))?,
            ))
        }
        None => None,
    };
    let stderr = match std::io::stderr().is_terminal() {
        true => ErrorReader::User,
        false => reader,
    };
    let logger = LOGGER.get_or_init(|| Logger {
        form: LogReader::of(file.as_ref(), form, stderr),
        file,
        debug: verbosity == Verbosity::Debug,
    });
    log::set_logger(logger).map_err(|e| anyhow::anyhow!("{e}"))?;
    log::set_max_level(match verbosity {
        Verbosity::Debug => LevelFilter::Debug,
        Verbosity::Warnings => LevelFilter::Warn,
    });
    Ok(())
}

/// Reports why the verb failed: in the log, and on standard error for users.
pub fn fatal(error: &anyhow::Error) {
    log::error!("{error:#}");
    let to_file = LOGGER.get().is_some_and(|l| l.file.is_some());
    if to_file {
        complain(&format!("{error:#}"));
    }
}

/// Prints a line on standard error and ignores errors: `eprintln!` would panic if it is closed.
pub fn complain(text: &str) {
    let whole = LOGGER.get().is_some_and(|l| l.debug);
    let text = match whole {
        true => text.to_owned(),
        false => bounded(text, LINE),
    };
    plain::before_line();
    progress::erase();
    let _nobody = std::io::stderr().write_all(format!("{}\n", escape(&text)).as_bytes());
}

impl log::Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.debug || is_ours(metadata) || metadata.level() == Level::Error
    }

    fn log(&self, record: &Record<'_>) {
        if !is_ours(record.metadata())
            && record.level() == Level::Error
            && let Some((_, pipe)) = CAUSES.get()
        {
            let line = format!("{}\n", escape(&record.args().to_string()));
            let _kept = rustix::io::write(pipe, line.as_bytes());
        }
        if !self.debug && !is_ours(record.metadata()) {
            return;
        }
        let mut message = record.args().to_string();
        if !self.debug {
            message = bounded(&message, LINE);
        }
        let line = line(
            self.form,
            record.level(),
            &message,
            &chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Nanos, true),
        );
        // A log that cannot be written must not prevent a container's deletion.
        let _written = match &self.file {
            Some(file) => file
                .lock()
                .map_or(Ok(()), |mut f| f.write_all(line.as_bytes())),
            None => {
                plain::before_line();
                progress::erase();
                std::io::stderr().write_all(line.as_bytes())
            }
        };
    }

    fn flush(&self) {}
}

fn is_ours(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("agentbox")
}

fn line(form: LogReader, level: Level, message: &str, time: &str) -> String {
    let LogReader::Engine(format) = form else {
        let word = match level {
            Level::Error => "",
            Level::Warn => "warning: ",
            Level::Info | Level::Debug | Level::Trace => "debug: ",
        };
        return format!("agentbox: {word}{}\n", escape(message));
    };
    let level = match level {
        Level::Error => "error",
        Level::Warn => "warning",
        Level::Info => "info",
        Level::Debug | Level::Trace => "debug",
    };
    match format {
        LogFormat::Json => format!(
            "{}\n",
            escape_json(
                &serde_json::json!({ "level": level, "msg": message, "time": time }).to_string()
            )
        ),
        LogFormat::Text => format!(
            "time=\"{time}\" level={level} msg=\"{}\"\n",
            escape(message).replace('"', "\\\"")
        ),
    }
}

/// An error with its causes in one line, each once.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let next = cause.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::is_treacherous;

    #[test]
    fn a_message_stays_one_line_whatever_it_holds() {
        let hostile = "a\n{\"level\":\"error\"}\x1b[2J\"";
        for form in [
            LogReader::Engine(LogFormat::Json),
            LogReader::Engine(LogFormat::Text),
            LogReader::Person,
        ] {
            let line = line(form, Level::Error, hostile, "2026-01-01T00:00:00Z");
            assert_eq!(line.matches('\n').count(), 1, "{line:?}");
            assert!(!line.contains('\x1b'), "{line:?}");
        }
    }

    /// L3: a message gives a terminal no commands, and appears in its order.
    #[test]
    fn nothing_in_a_message_is_obeyed_by_a_terminal() {
        let hostile = "a\u{9b}2J\u{7f}\u{202e}b\u{2066}c\u{200b}\u{e0041}\u{2028}d\u{e9}";
        for form in [
            LogReader::Engine(LogFormat::Json),
            LogReader::Engine(LogFormat::Text),
            LogReader::Person,
        ] {
            let line = line(form, Level::Error, hostile, "2026-01-01T00:00:00Z");
            let bad = line.trim_end().chars().find(|c| is_treacherous(*c));
            assert_eq!(bad, None, "{line:?}");
            assert!(line.contains('\u{e9}'), "what people write stays: {line:?}");
        }
        let json = serde_json::to_string_pretty(&[hostile]).unwrap();
        let escaped = escape_json(&json);
        assert_eq!(
            escaped.chars().find(|c| *c != '\n' && is_treacherous(*c)),
            None
        );
        let read: Vec<String> = serde_json::from_str(&escaped).unwrap();
        assert_eq!(read, [hostile]);
    }

    #[test]
    fn u_all_2_a_user_at_a_terminal_gets_a_sentence_and_an_engine_its_line() {
        let said = line(LogReader::Person, Level::Error, "line 3 (\"alow\")", "-");
        assert_eq!(said, "agentbox: line 3 (\"alow\")\n");
        let said = line(LogReader::Person, Level::Warn, "w", "-");
        assert_eq!(said, "agentbox: warning: w\n");
        assert_eq!(
            LogReader::of(None, None, ErrorReader::User),
            LogReader::Person
        );
        let text = LogReader::Engine(LogFormat::Text);
        assert_eq!(LogReader::of(None, None, ErrorReader::Engine), text);
        assert_eq!(
            LogReader::of(None, Some(LogFormat::Text), ErrorReader::User),
            text
        );
        let file = Mutex::new(File::open("/dev/null").unwrap());
        assert_eq!(LogReader::of(Some(&file), None, ErrorReader::User), text);
    }

    #[test]
    fn the_json_form_is_what_containerd_decodes() {
        let line = line(
            LogReader::Engine(LogFormat::Json),
            Level::Error,
            "it \"broke\"",
            "2026-01-01T00:00:00Z",
        );
        let value: serde_json::Value = serde_json::from_str(&line).expect("one JSON object");
        assert_eq!(
            (value["level"].as_str(), value["msg"].as_str()),
            (Some("error"), Some("it \"broke\""))
        );
    }
}
