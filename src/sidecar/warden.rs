//! The warden: the sidecar's parent. It kills a stopped sidecar, and the container of a sidecar that has ended.
//!
//! A stopped sidecar would make callers of denied system calls wait. If it dies, the kernel answers them with ENOSYS.
//!
//! Without its sidecar a container has no network, no log and no `exec`, and never gets them back. Ended containers are
//! made again: a pod's by its kubelet, others by the engine's restart policy. The kernel offers no other way. A
//! parent's end is signalled only to its children, and init is the engine's child. Signals of descriptors (F_SETSIG) do
//! not reach the first process of a pid namespace. A signal by a pidfd needs a sender in an ancestor pid namespace, and
//! the sidecar has its own.
//!
//! It is a fork of the sidecar's program, made before that reads anything of the container, so both share their memory.
//! It receives nothing from the container. It holds one right (CAP_KILL) and five descriptors: the pidfds of the
//! sidecar and of init, a signalfd, its line to the sidecar, its log. Its filter allows SIGKILL only to these pidfds.
//!
//! It also logs init's exit status. The kernel tells that to the holder of a pidfd in an outer pid namespace; under an
//! engine, no agentbox process waits for init. The sidecar is in its own pid namespace, so it asks the warden for the
//! status of `exec` processes: it sends a pidfd, and receives a status.
//!
//! Without a warden, a sidecar that dies leaves its container running without a network.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal as SignalNumber};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::account::{Account, Identity};
use super::confine::{self, ConfineError};
use super::error::SidecarError;
use super::filter;
use super::loss::{self, SidecarEnd};
use super::protocol::ProtocolError;
use crate::audit::chain;
use crate::sys::memory::Code;
use crate::sys::pidfd::{self, ExitStatusSupport};
use crate::sys::{process, socket};

/// Its name in ps(1).
const NAME: &std::ffi::CStr = c"agentbox-warden";
/// It is confined long before the sidecar asks.
const CONFINED_WITHIN: Duration = Duration::from_secs(10);
/// A message of the warden: this and the sidecar's number. Without this, the reason why there is no warden.
const READY: u8 = b'+';
/// The sidecar's first message: this, and the lines of [`WardensLog`] if there is a log.
const ENTRUST: u8 = b'w';
/// Later messages: this, and the pidfd of an ended process. The answer is this, and the status if the kernel keeps it.
const ASK: u8 = b'?';
/// The sidecar's limit for an answer, which takes microseconds. Meanwhile it serves nothing.
const ANSWERED_WITHIN: Duration = Duration::from_millis(500);
/// The longest such message: two lines of ten texts of 256 characters, each of at most twelve bytes.
const LONGEST_MESSAGE: usize = 64 << 10;
/// An engine reaps the process at once; `delete` ends a warden that still waits.
const REAPED_WITHIN: Duration = Duration::from_secs(60);
/// `struct signalfd_siginfo` (signalfd(2)).
const SIGNAL_BYTES: usize = 128;
/// The longest reason.
const MOST: usize = 512;

/// The sidecar's line to its warden.
#[derive(Debug)]
pub(super) struct WardenLine(OwnedFd);

/// The warden's first descriptors: 0, 1 and 2.
struct WardenFds {
    line: OwnedFd,
    sidecar: OwnedFd,
    /// SIGCHLD: the sidecar was stopped, or has ended.
    signals: OwnedFd,
}

/// What the warden may log: one of two lines.
pub(super) struct WardensLog {
    /// The file, opened to append.
    pub file: OwnedFd,
    /// The [line](chain::template) of a sidecar that was lost.
    pub lost: Vec<u8>,
    /// The line of init's end.
    pub ended: Vec<u8>,
}

/// Forks: the calling process becomes the warden and never returns. Its child, the first process of a new pid
/// namespace, runs `live`, whose result is its exit code.
pub(super) fn stand_over(
    identity: Identity,
    code: &Code,
    account: Account,
    live: impl FnOnce(WardenLine) -> i32,
) -> Result<std::convert::Infallible, SidecarError> {
    let filter = filter::of_warden()
        .map_err(ConfineError::Filter)
        .map_err(SidecarError::Confine)?;
    let pair = socket::pair().map_err(SidecarError::step("make a socket pair"))?;
    let (mut ours, theirs) = (Some((pair.0, account)), pair.1);
    process::unshare_pids().map_err(SidecarError::step("make a pid namespace"))?;
    let held = &mut ours;
    let sidecar = process::fork_into(move || {
        // Only for the warden.
        drop(held.take());
        // In force until the change of ids, which clears it. Until then the runtime knows only the parent's number.
        let dies = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        if dies.is_err() {
            1
        } else {
            live(WardenLine(theirs))
        }
    })
    .map_err(SidecarError::step("fork"))?;
    let Some((line, account)) = ours else {
        process::end(1)
    };
    let pidfd = rustix::process::pidfd_open(sidecar, PidfdFlags::empty())
        .map_err(SidecarError::step("open the sidecar's pidfd"))?;
    let signals = child_signals().map_err(SidecarError::step("make a signalfd"))?;
    let exits = ExitStatusSupport::of_kernel();
    let confined = confine(identity, code, account, &filter, [line, pidfd, signals]);
    process::end(match confined {
        Ok(held) => watch(sidecar.as_raw_pid(), held, exits),
        Err(()) => 1,
    })
}

/// All signals are blocked, so none is lost.
fn child_signals() -> nix::Result<OwnedFd> {
    let mut child = SigSet::empty();
    child.add(SignalNumber::SIGCHLD);
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signals = SignalFd::with_flags(&child, flags)?;
    signals
        .as_fd()
        .try_clone_to_owned()
        .map_err(|_| nix::errno::Errno::EMFILE)
}

/// Drops all but the one right. Returns the only remaining descriptors.
fn confine(
    identity: Identity,
    code: &Code,
    account: Account,
    filter: &seccompiler::BpfProgram,
    [line, pidfd, signals]: [OwnedFd; 3],
) -> Result<WardenFds, ()> {
    let bare = give_away(identity, &account);
    drop(account);
    if let Err(error) = &bare {
        tell(line.as_fd(), &crate::network::with_causes(error));
    }
    bare.map_err(drop)?;
    process::keep_only([line.as_fd(), pidfd.as_fd(), signals.as_fd()]).map_err(drop)?;
    // Already closed, with all others.
    std::mem::forget((line, pidfd, signals));
    let kept = [0, 1, 2].map(socket::take_inherited);
    let [Ok(line), Ok(sidecar), Ok(signals)] = kept else {
        return Err(());
    };
    let sealed = code
        .release()
        .map_err(|source| ConfineError::Step {
            step: "give back the code of the start",
            source,
        })
        .and_then(|()| confine::seal(filter));
    if let Err(error) = &sealed {
        tell(line.as_fd(), &crate::network::with_causes(error));
    }
    sealed.map_err(drop)?;
    Ok(WardenFds {
        line,
        sidecar,
        signals,
    })
}

fn give_away(identity: Identity, account: &Account) -> Result<(), ConfineError> {
    let one = CapabilitySet::KILL;
    let one = CapabilitySets {
        effective: one,
        permitted: one,
        inheritable: CapabilitySet::empty(),
    };
    process::set_name(NAME).map_err(|source| ConfineError::Step {
        step: "set the name",
        source,
    })?;
    confine::become_somebody(identity, one)?;
    confine::verify_somebody(identity, one, account)
}

fn tell(line: BorrowedFd<'_>, reason: &str) {
    let mut message = reason.as_bytes().to_vec();
    message.truncate(MOST);
    // Otherwise the sidecar sees the line close.
    let _unheard = socket::send(line, &message, &[]);
}

impl WardenLine {
    /// Gives the confined warden init's pidfd, and its log with the lines that it may write. Returns the sidecar's
    /// number in the runtime's pid namespace, which only its parent knows.
    pub fn entrust(
        &self,
        init: BorrowedFd<'_>,
        log: Option<WardensLog>,
    ) -> Result<i32, SidecarError> {
        const PEER: &str = "warden";
        let failed = |source| SidecarError::Protocol(ProtocolError::Socket { peer: PEER, source });
        let mut buffer = [0; MOST];
        let said = socket::receive_within(self.0.as_fd(), &mut buffer, CONFINED_WITHIN);
        let said = said.map_err(failed)?;
        let number = match &buffer[..said.len] {
            [] => return Err(SidecarError::Protocol(ProtocolError::Gone { peer: PEER })),
            [READY, number @ ..] => <[u8; 4]>::try_from(number).ok().map(i32::from_ne_bytes),
            _ => None,
        };
        let Some(number) = number else {
            let reason = String::from_utf8_lossy(&buffer[..said.len]).into_owned();
            return Err(SidecarError::NoWarden { reason });
        };
        let mut fds = vec![init];
        let mut message = vec![ENTRUST];
        if let Some(WardensLog { file, lost, ended }) = &log {
            fds.push(file.as_fd());
            // Each ends with its newline.
            message.extend(lost);
            message.extend(ended);
        }
        socket::send(self.0.as_fd(), &message, &fds).map_err(failed)?;
        Ok(number)
    }

    /// The status of a process that was reaped; `None`: the kernel does not tell. After an error the line is useless.
    pub fn exit_status(&self, process: BorrowedFd<'_>) -> std::io::Result<Option<i32>> {
        socket::send(self.0.as_fd(), &[ASK], &[process])?;
        let mut answer = [0; 6];
        let heard = socket::receive_within(self.0.as_fd(), &mut answer, ANSWERED_WITHIN)?;
        match answer[..heard.len] {
            [ASK] => Ok(None),
            [ASK, a, b, c, d] => Ok(Some(i32::from_ne_bytes([a, b, c, d]))),
            _ => Err(std::io::ErrorKind::InvalidData.into()),
        }
    }
}

/// The warden's loop; returns its exit code.
fn watch(sidecar: i32, held: WardenFds, exits: ExitStatusSupport) -> i32 {
    let ready: Vec<u8> = std::iter::once(READY)
        .chain(sidecar.to_ne_bytes())
        .collect();
    if socket::send(held.line.as_fd(), &ready, &[]).is_err() {
        return 1;
    }
    // No other process has the other end: a sidecar that dies before it is ready closes it.
    let mut message = vec![0; LONGEST_MESSAGE];
    let Ok(entrusted) = socket::receive(held.line.as_fd(), &mut message) else {
        return 1;
    };
    message.truncate(entrusted.len);
    message.shrink_to_fit();
    let mut fds = entrusted.fds.into_iter();
    let Some(init) = fds.next() else { return 1 };
    let log = fds.next().map(std::fs::File::from);
    // The filter expects the numbers that the kernel gives: the lowest free ones.
    if init.as_raw_fd() != filter::WARDEN_INIT {
        return 1;
    }
    let how = wait_for_end(&held, exits);
    let texts = message
        .strip_prefix(&[ENTRUST])
        .and_then(|lines| std::str::from_utf8(lines).ok())
        .unwrap_or_default();
    let mut templates = texts.split_inclusive('\n');
    let (lost, ended) = (templates.next(), templates.next());
    if has_ended(&init) {
        if let (Some(log), Some(template), ExitStatusSupport::Kept) = (log, ended, exits) {
            note_exit(log, template, &init);
        }
        return 0;
    }
    // Init may have ended since.
    let killed = rustix::process::pidfd_send_signal(&init, Signal::KILL);
    if let (Ok(()), Some(log), Some(template)) = (killed, log, lost) {
        note_loss(log, template, &how);
    }
    0
}

/// Waits for the sidecar's end, and kills it if it is stopped. Meanwhile it answers its questions.
fn wait_for_end(held: &WardenFds, exits: ExitStatusSupport) -> SidecarEnd {
    let mut asks = true;
    let mut stopped = false;
    loop {
        let options = WaitIdOptions::EXITED | WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        match rustix::process::waitid(WaitId::All, options) {
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Ok(Some(status)) if status.stopped() => {
                stopped = true;
                // It may have ended since; the next round reports that.
                let _gone = rustix::process::pidfd_send_signal(&held.sidecar, Signal::KILL);
                continue;
            }
            Ok(status) => return SidecarEnd { status, stopped },
            Err(_) => {
                return SidecarEnd {
                    status: None,
                    stopped,
                };
            }
        }
        // A closed line would always be readable. The sidecar's end comes as a signal.
        let line = if asks { &held.line } else { &held.signals };
        let mut fds = [&held.signals, line].map(|fd| PollFd::new(fd, PollFlags::IN));
        if rustix::io::retry_on_intr(|| poll(&mut fds, None)).is_err() {
            return SidecarEnd {
                status: None,
                stopped,
            };
        }
        let [signalled, asked] = fds.map(|fd| !fd.revents().is_empty());
        if signalled {
            // One signal may stand for several changes; the loop asks for each.
            let _none = rustix::io::read(&held.signals, &mut [0; SIGNAL_BYTES]);
        }
        if asked && asks {
            asks = answer(held.line.as_fd(), exits).is_some();
        }
    }
}

/// Answers the sidecar; `None`: it closed the line, or sent something else. Never waits for a sidecar that reads no
/// answers.
fn answer(line: BorrowedFd<'_>, exits: ExitStatusSupport) -> Option<()> {
    let mut message = [0; 1];
    let asked = socket::receive(line, &mut message).ok()?;
    let process = match (&message[..asked.len], asked.fds.as_slice()) {
        ([ASK], [process]) => process,
        _ => return None,
    };
    let status = match exits {
        ExitStatusSupport::Kept => pidfd::exit_status(process.as_fd(), Duration::ZERO),
        ExitStatusSupport::Forgotten => Ok(None),
    };
    let status = status.ok().flatten().map(i32::to_ne_bytes);
    let answer: Vec<u8> = std::iter::once(ASK)
        .chain(status.into_iter().flatten())
        .collect();
    socket::send_now(line, &answer).ok()
}

/// Whether init has ended by itself, as usual when its sidecar ends.
fn has_ended(init: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(init, PollFlags::IN)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let ready = rustix::io::retry_on_intr(|| poll(&mut fds, Some(&now)));
    ready.is_ok_and(|count| count > 0)
}

/// Logs init's status, once its parent has reaped it.
fn note_exit(mut log: std::fs::File, template: &str, init: &OwnedFd) {
    if let Ok(Some(status)) = pidfd::exit_status(init.as_fd(), REAPED_WITHIN) {
        let line = chain::fill_exit(template, &now(), status);
        // One write: the whole line or nothing.
        let _full = log.write_all(line.as_bytes());
    }
}

fn now() -> String {
    chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

fn note_loss(mut log: std::fs::File, template: &str, end: &SidecarEnd) {
    let line = loss::line(template, &now(), end);
    let _full = log.write_all(line.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warden_answers_with_a_status_and_nothing_else() {
        let (ours, theirs) = socket::pair().unwrap();
        let script = ["-c", "exit 7"];
        let mut child = std::process::Command::new("sh")
            .args(script)
            .spawn()
            .unwrap();
        let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
        let process = rustix::process::pidfd_open(pid, PidfdFlags::empty()).unwrap();
        child.wait().unwrap();
        let asked = |message: &[u8], fds: &[BorrowedFd<'_>], exits| {
            socket::send(ours.as_fd(), message, fds).unwrap();
            answer(theirs.as_fd(), exits)?;
            let mut said = [0; 8];
            let heard = socket::receive(ours.as_fd(), &mut said).unwrap();
            Some(said[..heard.len].to_vec())
        };
        let kernel = ExitStatusSupport::of_kernel();
        if kernel == ExitStatusSupport::Kept {
            let status = [&[ASK][..], &7_i32.to_ne_bytes()].concat();
            assert_eq!(asked(&[ASK], &[process.as_fd()], kernel), Some(status));
        }
        let forgotten = ExitStatusSupport::Forgotten;
        let unknown = Some(vec![ASK]);
        assert_eq!(asked(&[ASK], &[process.as_fd()], forgotten), unknown);
        // Only a process has a status.
        assert_eq!(asked(&[ASK], &[ours.as_fd()], kernel), unknown);
        for (message, fds) in [
            (&[ASK][..], 0),
            (&[ASK], 2),
            (b"w", 1),
            (b"", 1),
            (b"??", 1),
        ] {
            let fds = vec![process.as_fd(); fds];
            assert_eq!(asked(message, &fds, kernel), None, "{message:?}");
        }
        drop(ours);
        assert_eq!(answer(theirs.as_fd(), kernel), None);
    }
}
