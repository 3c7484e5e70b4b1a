//! `wrap --ask` at a terminal: asks about a waiting connection between the program's lines.
//!
//! The program can neither answer nor hide the question. Its output waits in its pseudo-terminal, and its terminal
//! settings are reset first ([`plain`]). Keys typed before the question, and until none came for [`UNREAD`], are thrown
//! away. An answer is a word and Enter; none of it reaches the program. A program can print a false question, whose
//! answer then reaches only the program. So the line in which the user types names the host.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::termios::{OptionalActions, OutputModes, QueueSelector, Termios};

use crate::egress::WaitingConnection;
use crate::log::plain::plain;
use crate::rules::{ApprovalTerm, Host, endpoint};
use crate::runtime::foreground::answer::{Answer, HOST_ANSWERS, Line};
use crate::runtime::foreground::rivals;
use crate::runtime::foreground::signatures::{SignatureDesk, WaitingSignature};
use crate::runtime::network::approvals;
use crate::runtime::state::record::Record;
use crate::sidecar::{AskDecision, AskDecisionTarget};
use crate::text::escape;

/// How often to check for waiting connections.
pub const TURN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 250_000_000,
};
/// How long to pause after a check that found none, so that endless output does not query the sidecar endlessly.
const PAUSE: Duration = Duration::from_millis(200);
/// How long the sidecar may take to answer; nothing is relayed meanwhile.
const WITHIN: Duration = Duration::from_millis(500);
/// How long to leave the sidecar alone after an error.
const LATER: Duration = Duration::from_secs(5);
/// Ends the discarding of keys meant for the program: a typing user pauses this long once they see the question.
const UNREAD: Duration = Duration::from_millis(500);
/// The most questions of one run: a program could invent ever more names.
const MOST: u32 = 20;
/// Keeps a rule for all runs of the project; returns the file that has it, or why not.
pub type Keep = Box<dyn Fn(&str) -> Result<PathBuf, String>>;

/// Asks the user at the terminal.
pub struct Prompts {
    record: Record,
    terminal: File,
    keep: Keep,
    next: Instant,
    left: u32,
    signatures: Option<SignatureDesk>,
}

/// How a question ended.
enum Outcome {
    Answered(Answer),
    /// The connection does not wait any more.
    Late,
    /// The program has ended, or a signal has come. The question comes again if the connection still waits.
    Interrupted,
}

impl Prompts {
    /// For a container that asks, if there is a terminal.
    pub fn new(record: Record, keep: Keep) -> Option<Self> {
        if !approvals::asks(&record) {
            return None;
        }
        let terminal = File::options().read(true).write(true).open("/dev/tty");
        Some(Self {
            record,
            terminal: terminal.ok()?,
            keep,
            next: Instant::now(),
            left: MOST,
            signatures: None,
        })
    }

    /// Asks about signatures too.
    pub(super) fn confirm(&mut self, desk: SignatureDesk) {
        self.signatures = Some(desk);
    }

    /// Asks about one connection, if one waits and this process is in the foreground; returns whether it asked. Ends
    /// early when one of `others` is ready.
    pub fn turn(&mut self, others: &[BorrowedFd<'_>]) -> bool {
        if self.signature(others) {
            return true;
        }
        if Instant::now() < self.next || self.left == 0 || !self.is_ours() {
            return false;
        }
        let waiting = approvals::waiting(&self.record, WITHIN);
        let found = waiting.unwrap_or_else(|error| {
            // For example, the sidecar is stopped or has ended.
            log::debug!("{error}");
            self.next = Instant::now() + LATER;
            Vec::new()
        });
        let Some(one) = found.into_iter().min_by_key(|one| one.id) else {
            self.next = self.next.max(Instant::now() + PAUSE);
            return false;
        };
        // Keys that another program reads too are no answer; use `agentbox approve`.
        if rivals::are_there() {
            self.next = Instant::now() + LATER;
            return false;
        }
        // Without a question nothing is decided; use `agentbox approve`.
        if let Err(error) = self.ask(&one, others) {
            log::debug!("ask at the terminal: {error}");
            self.left = 0;
        }
        true
    }

    /// Asks about a signature, if one waits. Without a question the relay refuses it when its time is over.
    fn signature(&mut self, others: &[BorrowedFd<'_>]) -> bool {
        if self.left == 0 {
            // The line closes: nothing signs from here on.
            self.signatures = None;
        }
        let waiting = self.signatures.as_mut().and_then(SignatureDesk::next);
        let Some(waiting) = waiting.filter(|_| self.is_ours() && !rivals::are_there()) else {
            return false;
        };
        if let Err(error) = self.ask_signature(&waiting, others) {
            log::debug!("ask at the terminal: {error}");
            self.left = 0;
        }
        true
    }

    fn ask_signature(
        &mut self,
        waiting: &WaitingSignature,
        others: &[BorrowedFd<'_>],
    ) -> std::io::Result<()> {
        let keys = Keys::take(&self.terminal)?;
        let (what, words) = (waiting.line(), waiting.answers());
        let question = format!(
            "{}agentbox: {}. Sign?\r\n  {}; Enter; {} s\r\n  {what} > ",
            plain(),
            waiting.question(),
            waiting.explained(),
            waiting.left.as_secs()
        );
        (&self.terminal).write_all(question.as_bytes())?;
        let outcome = keys.answer(Line::about(&what, words), waiting.left, others)?;
        drop(keys);
        let answer = match outcome {
            Outcome::Answered(answer) => Some(answer),
            Outcome::Late => None,
            Outcome::Interrupted => return (&self.terminal).write_all(b"\r\n"),
        };
        self.left = match answer {
            Some(Answer::Quiet) => 0,
            _ => self.left.saturating_sub(1),
        };
        let desk = self.signatures.as_mut();
        let mut said = desk.map_or_else(String::new, |desk| desk.decide(waiting, answer));
        if self.left == 0 {
            said += "; nothing else signs in this run, and hosts wait for `agentbox approve`";
        }
        (&self.terminal).write_all(format!("\r\nagentbox: {said}\r\n").as_bytes())
    }

    /// In the background the keys belong to another job.
    fn is_ours(&self) -> bool {
        let group = rustix::termios::tcgetpgrp(&self.terminal);
        group.is_ok_and(|group| group == rustix::process::getpgrp())
    }

    fn ask(&mut self, one: &WaitingConnection, others: &[BorrowedFd<'_>]) -> std::io::Result<()> {
        let keys = Keys::take(&self.terminal)?;
        let what = endpoint(&Host::Name(one.host.clone()), one.port);
        let program = match &one.program {
            Some((pid, name)) => format!("{} (pid {pid})", escape(name)),
            None => "the program".to_owned(),
        };
        let question = format!(
            "{}agentbox: {program} connects to {what}, which no rule allows. Allow it?\r\n  once, run (until this run ends), project (always \
             in this project), no, quiet (no, and stop asking); Enter; {} s\r\n  {what} > ",
            plain(),
            one.left
        );
        (&self.terminal).write_all(question.as_bytes())?;
        let line = Line::about(&what, &HOST_ANSWERS);
        let outcome = keys.answer(line, Duration::from_secs(one.left), others)?;
        drop(keys);
        let said = match outcome {
            Outcome::Answered(answer) => self.answered(one, &what, answer),
            Outcome::Late => format!("{what} was denied: no answer in time"),
            Outcome::Interrupted => return (&self.terminal).write_all(b"\r\n"),
        };
        self.left = self.left.saturating_sub(1);
        let said = match self.left {
            0 => format!("{said}; further hosts wait for `agentbox approve`"),
            _ => said,
        };
        (&self.terminal).write_all(format!("\r\nagentbox: {said}\r\n").as_bytes())
    }

    /// Carries out the user's answer, and returns a line about it.
    fn answered(&mut self, one: &WaitingConnection, what: &str, answer: Answer) -> String {
        if let Err(error) = approvals::decide(&self.record, decision(one, answer)) {
            return escape(&crate::log::chain(&error));
        }
        if answer == Answer::Quiet {
            self.left = 1;
        }
        let kept = (answer == Answer::Project).then(|| (self.keep)(what));
        answer_line(what, answer, kept)
    }
}

/// What an answer decides: about this connection alone, or about every one to its host and port.
fn decision(one: &WaitingConnection, answer: Answer) -> AskDecision {
    let waiting = AskDecisionTarget::Waiting(one.id);
    let every = AskDecisionTarget::Endpoint(one.host.clone(), one.port);
    let (of, approve) = match answer {
        Answer::Once => (waiting, Some(ApprovalTerm::Once)),
        Answer::Run | Answer::Project => (every, Some(ApprovalTerm::Always)),
        Answer::No | Answer::Quiet => (every, None),
    };
    AskDecision { of, approve }
}

/// The line about an answer that was carried out. `kept`: the file that has the rule for later runs, or why none has it.
fn answer_line(what: &str, answer: Answer, kept: Option<Result<PathBuf, String>>) -> String {
    match (answer, kept) {
        (Answer::Once, _) => format!("{what} is allowed once"),
        (Answer::No | Answer::Quiet, _) => format!("{what} is denied in this run"),
        (Answer::Project, Some(Ok(file))) => {
            format!("{what} is allowed; {file:?} has it for this project's runs")
        }
        (Answer::Project, Some(Err(why))) => format!(
            "{what} is allowed while this run lasts, and not in others: {}",
            escape(&why)
        ),
        (Answer::Run, _) | (Answer::Project, None) => {
            format!("{what} is allowed while this run lasts")
        }
    }
}

/// The terminal's keys, unbuffered and without echo. Dropping this restores the terminal.
struct Keys<'a> {
    terminal: &'a File,
    before: Termios,
}

impl<'a> Keys<'a> {
    fn take(terminal: &'a File) -> std::io::Result<Self> {
        let before = rustix::termios::tcgetattr(terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        raw.output_modes.insert(OutputModes::OPOST);
        rustix::termios::tcsetattr(terminal, OptionalActions::Now, &raw)?;
        Ok(Self { terminal, before })
    }

    /// Throws away keys that were typed and not read.
    fn forget(&self) -> std::io::Result<()> {
        Ok(rustix::termios::tcflush(
            self.terminal,
            QueueSelector::IFlush,
        )?)
    }

    /// Reads until there is an answer.
    fn answer(
        &self,
        mut line: Line,
        within: Duration,
        others: &[BorrowedFd<'_>],
    ) -> std::io::Result<Outcome> {
        let end = Instant::now() + within;
        let mut last = Instant::now();
        while let Some(rest) = UNREAD.checked_sub(last.elapsed()) {
            self.forget()?;
            match self.wait(rest, others)? {
                WaitResult::Others => return Ok(Outcome::Interrupted),
                WaitResult::Nothing => {}
                WaitResult::Keys if Instant::now() > end => return Ok(Outcome::Late),
                WaitResult::Keys => last = Instant::now(),
            }
        }
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.wait(left, others)? {
                WaitResult::Others => return Ok(Outcome::Interrupted),
                WaitResult::Nothing if left.is_zero() => return Ok(Outcome::Late),
                WaitResult::Nothing => {}
                WaitResult::Keys => {
                    let mut typed = [0; 256];
                    let length = rustix::io::read(self.terminal, &mut typed)?;
                    if length == 0 {
                        // The terminal was hung up.
                        return Ok(Outcome::Answered(Answer::No));
                    }
                    let (echo, answer) = line.take(&typed[..length]);
                    let mut terminal = self.terminal;
                    terminal.write_all(echo.as_bytes())?;
                    if let Some(answer) = answer {
                        return Ok(Outcome::Answered(answer));
                    }
                }
            }
        }
    }

    fn wait(&self, within: Duration, others: &[BorrowedFd<'_>]) -> std::io::Result<WaitResult> {
        let all = others.iter().copied().chain([self.terminal.as_fd()]);
        let mut fds: Vec<PollFd<'_>> = all
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let within = Timespec::try_from(within).map_err(std::io::Error::other)?;
        match rustix::event::poll(&mut fds, Some(&within)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        let has_keys = ready.next_back() == Some(true);
        Ok(match (ready.any(|ready| ready), has_keys) {
            (true, _) => WaitResult::Others,
            (false, true) => WaitResult::Keys,
            (false, false) => WaitResult::Nothing,
        })
    }
}

impl Drop for Keys<'_> {
    fn drop(&mut self) {
        let set = || rustix::termios::tcsetattr(self.terminal, OptionalActions::Now, &self.before);
        if let Err(error) = self.forget().and_then(|()| Ok(set()?)) {
            log::debug!("restore the terminal: {error}");
        }
    }
}

/// Why a wait ended.
enum WaitResult {
    Keys,
    Others,
    Nothing,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> WaitingConnection {
        WaitingConnection {
            id: 7,
            host: "api.example.com".parse().unwrap(),
            port: 443,
            waited: 1,
            left: 59,
            client_port: None,
            program: None,
        }
    }

    #[test]
    fn an_answer_decides_about_one_connection_or_about_all_to_its_host_and_port() {
        let one = AskDecisionTarget::Waiting(7);
        let every = AskDecisionTarget::Endpoint("api.example.com".parse().unwrap(), 443);
        for (answer, of, approve) in [
            (Answer::Once, &one, Some(ApprovalTerm::Once)),
            (Answer::Run, &every, Some(ApprovalTerm::Always)),
            (Answer::Project, &every, Some(ApprovalTerm::Always)),
            (Answer::No, &every, None),
            (Answer::Quiet, &every, None),
        ] {
            let found = decision(&waiting(), answer);
            assert_eq!((&found.of, found.approve), (of, approve), "{answer:?}");
        }
    }

    #[test]
    fn the_line_about_an_answer_says_how_long_it_holds() {
        let answer_line = |answer, kept| answer_line("api.example.com:443", answer, kept);
        for (answer, expected) in [
            (Answer::Once, "api.example.com:443 is allowed once"),
            (
                Answer::Run,
                "api.example.com:443 is allowed while this run lasts",
            ),
            (Answer::No, "api.example.com:443 is denied in this run"),
            (Answer::Quiet, "api.example.com:443 is denied in this run"),
        ] {
            assert_eq!(answer_line(answer, None), expected);
        }
        let file = Ok("/home/alice/project.toml".into());
        assert_eq!(
            answer_line(Answer::Project, Some(file)),
            "api.example.com:443 is allowed; \"/home/alice/project.toml\" has it for this project's runs"
        );
        // What a file's reader found can have what a sandbox wrote.
        let why = Err("read \u{1b}[2J".to_owned());
        let line = answer_line(Answer::Project, Some(why));
        assert!(line.starts_with(
            "api.example.com:443 is allowed while this run lasts, and not in others: read "
        ));
        assert!(!line.contains('\u{1b}'), "{line}");
    }
}
