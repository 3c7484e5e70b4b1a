//! Denied system calls: the sidecar answers them with the errno of the container's own program, and logs them.
//!
//! A filter's listener comes into being in the process that loads the filter. That process sends it here, over a socket
//! that the runtime greeted with before it made the process ([`line`]). The process closes its own copy before it
//! executes anything. So only the sidecar holds listeners: a holder could let a call continue. The sidecar never does,
//! and never reads a caller's memory. The call's number and arguments give the answer, by the program that the kernel
//! ran.
//!
//! One epoll descriptor watches everything, and both of the sidecar's loops wait for it. [`Calls::turn`] does a bounded
//! amount of work.

mod container;
pub mod line;
mod log;
mod processes;
mod watched_fd;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::net::SocketFlags;

use super::callers::Callers;
use super::warden::WardenLine;
use crate::audit::Actor;
use crate::plan::network::LISTENERS;
use crate::policy::Tool;
use crate::seccomp::FilterWords;
use crate::sys::memory::Code;
use crate::sys::seccomp::notify;
use crate::sys::socket::{self, Datagram};
use container::Container;
use line::{GREETING, GREETING_OF_VERIFY, LISTENER, LONGEST_PROCESS, REFUSED, TAKEN};
pub(super) use log::Sink;
use processes::{LoggedProcess, ProcessEnds};
use watched_fd::WatchedFd;

/// Sockets and listeners at once. Each live process of `exec` has one, which its children share.
const MOST: usize = LISTENERS;
/// Of these, sockets of the runtime without a listener so far.
const VISITORS: usize = 64;
/// The limit for a visitor's greeting; the runtime waits no longer for the answer.
const GREETS_WITHIN: Duration = Duration::from_secs(10);
/// The limit for an `exec` process, from then on, to bring its listener.
const COMES_WITHIN: Duration = Duration::from_secs(60);
/// Events in one look, and looks in one turn: the network is served between turns.
const EVENTS: usize = 16;
const LOOKS: usize = 4;
/// The longest greeting.
const LONGEST: usize = 1024;

/// Whether more work may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// Nothing waits.
    Idle,
    /// More may wait.
    More,
}

/// All listeners of a sidecar.
#[derive(Debug)]
pub(super) struct Calls {
    epoll: OwnedFd,
    listening: OwnedFd,
    callers: Callers,
    own: Rc<Container>,
    /// For processes of `verify`: only the runtime's greeting selects it, and each of them has its own listener.
    verify: Rc<Container>,
    /// Processes of `verify` that started since the last reading.
    verifies: Rc<Cell<u64>>,
    ends: ProcessEnds,
    held: BTreeMap<u64, WatchedFd>,
    next: u64,
    /// The program's own code, until the part that the start touched is released.
    started: Option<Code>,
}

/// The token of the listening socket; all others count from 1.
const LISTENING: u64 = 0;

impl Calls {
    /// `listening` takes connections of the runtime; `program` is the container's saved filter, and `words`
    /// are about it.
    pub fn new(
        listening: OwnedFd,
        program: BorrowedFd<'_>,
        callers: Callers,
        words: FilterWords,
    ) -> io::Result<Self> {
        let own = Rc::new(Container::new(program, words)?);
        let verify = Rc::new(own.apart(Actor::Verify));
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let calls = Self {
            epoll,
            listening,
            callers,
            own,
            verify,
            verifies: Rc::default(),
            ends: ProcessEnds::new(),
            held: BTreeMap::new(),
            next: LISTENING + 1,
            started: None,
        };
        calls.watch(calls.listening.as_fd(), LISTENING, EventFlags::IN)?;
        Ok(calls)
    }

    /// Sends the container's events to `sink` from now on.
    pub fn log_to(&self, tool: Tool, sink: Sink) {
        self.own.log_to(tool, Rc::clone(&sink));
        self.ends.log_to(Rc::clone(&sink));
        self.verify.log_to(tool, sink);
    }

    /// Asks this warden for the exit status of processes.
    pub fn ask(&self, warden: WardenLine) {
        self.ends.ask(warden);
    }

    /// The number of `verify` processes that started, for the caller to reset.
    pub fn verifies(&self) -> Rc<Cell<u64>> {
        Rc::clone(&self.verifies)
    }

    /// The first listener ends the container's start: then the code that the start touched is released.
    pub fn give_back_after_start(&mut self, code: Code) {
        self.started = Some(code);
    }

    /// Readable when [`Self::turn`] has work.
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// The next message on this socket is init's listener.
    pub fn expect_first(&mut self, socket: OwnedFd) -> io::Result<()> {
        let own = Rc::clone(&self.own);
        self.hold(WatchedFd::Greeted(socket, own, None))
    }

    /// Does a bounded amount of work, without waiting.
    pub fn turn(&mut self) -> io::Result<Turn> {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        for _ in 0..LOOKS {
            let mut events = [epoll::Event {
                flags: EventFlags::empty(),
                data: EventData::new_u64(0),
            }; EVENTS];
            let count = epoll::wait(&self.epoll, &mut events, Some(&now))?;
            if count == 0 {
                return Ok(Turn::Idle);
            }
            for event in &events[..count] {
                let token = event.data.u64();
                match token {
                    LISTENING => self.welcome(),
                    // A failed socket or listener is dropped, alone: without a listener, the kernel answers denied
                    // calls with ENOSYS.
                    _ => {
                        if !self.serve(token, event.flags).unwrap_or(false) {
                            self.held.remove(&token);
                        }
                    }
                }
            }
        }
        Ok(Turn::More)
    }

    /// Logs what was only counted so far: the container has ended.
    pub fn settle(&mut self) {
        self.own.settle();
        self.verify.settle();
        for held in std::mem::take(&mut self.held).into_values() {
            if let WatchedFd::Process(process) = held {
                self.ends.note_last(process);
            }
        }
    }

    fn watch(&self, fd: BorrowedFd<'_>, token: u64, flags: EventFlags) -> io::Result<()> {
        let data = EventData::new_u64(token);
        Ok(epoll::add(&self.epoll, fd, data, flags)?)
    }

    fn hold(&mut self, held: WatchedFd) -> io::Result<()> {
        let token = self.next;
        let flags = match &held {
            WatchedFd::Process(_) => self.ends.awaited(),
            _ => EventFlags::IN,
        };
        self.watch(held.as_fd(), token, flags)?;
        self.next += 1;
        self.held.insert(token, held);
        Ok(())
    }

    fn welcome(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let Ok(visitor) = rustix::net::accept_with(&self.listening, flags) else {
            return;
        };
        let why = match self.callers.refuse(visitor.as_fd()) {
            None => self.no_room(Instant::now()),
            why => why,
        };
        match why {
            Some(why) => refuse(visitor.as_fd(), &why),
            // An unwatched socket is closed, which the other end notices.
            None => {
                let until = Instant::now() + GREETS_WITHIN;
                drop(self.hold(WatchedFd::Visitor(visitor, until)));
            }
        }
    }

    /// Why there is no room for another visitor, if that is so. Visitors past their time are dropped here.
    ///
    /// A visitor counts as its later listener: otherwise its process would fail after its walls are raised.
    fn no_room(&mut self, now: Instant) -> Option<String> {
        self.held.retain(|_, held| !held.is_late(now));
        let all = self.held.values();
        let places = all.filter(|held| held.is_listener() || held.is_visitor());
        if places.count() >= MOST {
            return Some(too_many());
        }
        let visitors = self.held.values().filter(|held| held.is_visitor());
        (visitors.count() >= VISITORS)
            .then(|| format!("{VISITORS} other exec processes are starting: try again in a minute"))
    }

    /// Serves one descriptor. Returns whether it stays.
    fn serve(&mut self, token: u64, flags: EventFlags) -> io::Result<bool> {
        match self.held.get(&token) {
            Some(WatchedFd::Listener(listener, container)) => {
                if flags.contains(EventFlags::IN) {
                    answer(listener.as_fd(), container)?;
                    return Ok(true);
                }
                // No process is left that could call.
                Ok(false)
            }
            Some(WatchedFd::Visitor(..)) => self.hear(token),
            Some(WatchedFd::Greeted(..)) => self.take(token),
            Some(WatchedFd::Unnamed(..)) => self.name(token),
            Some(WatchedFd::Process(_)) => {
                if let Some(WatchedFd::Process(process)) = self.held.remove(&token) {
                    self.ends.note(process);
                }
                Ok(false)
            }
            None => Ok(false),
        }
    }

    /// Reads a visitor's greeting.
    fn hear(&mut self, token: u64) -> io::Result<bool> {
        let Some(WatchedFd::Visitor(visitor, _)) = self.held.get(&token) else {
            return Ok(false);
        };
        let mut buffer = [0; LONGEST];
        let Datagram { len, fds } = socket::receive(visitor.as_fd(), &mut buffer)?;
        if len == 0 {
            return Ok(false);
        }
        let found = match self.callers.refuse_proof(fds.first()) {
            Some(why) => Err(why),
            None if buffer[..len] == *GREETING => Ok(Rc::clone(&self.own)),
            None if buffer[..len] == *GREETING_OF_VERIFY => {
                self.verifies.set(self.verifies.get().saturating_add(1));
                Ok(Rc::clone(&self.verify))
            }
            None => Err("this is no greeting of agentbox's".to_owned()),
        };
        let Some(WatchedFd::Visitor(visitor, _)) = self.held.remove(&token) else {
            return Ok(false);
        };
        match found {
            Ok(container) => {
                socket::send(visitor.as_fd(), TAKEN, &[])?;
                // Under the same token: the socket is watched already.
                let until = Some(Instant::now() + COMES_WITHIN);
                self.held
                    .insert(token, WatchedFd::Greeted(visitor, container, until));
                Ok(true)
            }
            Err(why) => {
                refuse(visitor.as_fd(), &why);
                Ok(false)
            }
        }
    }

    /// Takes a listener.
    fn take(&mut self, token: u64) -> io::Result<bool> {
        let Some(WatchedFd::Greeted(socket, container, _)) = self.held.get(&token) else {
            return Ok(false);
        };
        let mut buffer = [0; LISTENER.len()];
        let Datagram { len, mut fds } = socket::receive(socket.as_fd(), &mut buffer)?;
        if buffer[..len] != *LISTENER || fds.len() != 1 {
            return Ok(false);
        }
        let (Some(listener), container) = (fds.pop(), Rc::clone(container)) else {
            return Ok(false);
        };
        // Older kernels lack this flag.
        let _slower = notify::take_turns(listener.as_fd());
        let held = self.hold(WatchedFd::Listener(listener, container));
        let Some(WatchedFd::Greeted(socket, _, until)) = self.held.remove(&token) else {
            return Ok(false);
        };
        if let Err(error) = held {
            refuse(socket.as_fd(), &error.to_string());
            return Ok(false);
        }
        socket::send(socket.as_fd(), TAKEN, &[])?;
        // Only now: the container's process no longer waits. Code that is not released only costs memory.
        let _kept = self.started.take().map(|code| code.release());
        match until {
            // Under the same token.
            Some(until) => {
                self.held.insert(token, WatchedFd::Unnamed(socket, until));
                Ok(true)
            }
            None => Ok(false),
        }
    }

    /// Reads from the runtime which process brought a listener, or that the line is closed.
    fn name(&mut self, token: u64) -> io::Result<bool> {
        let Some(WatchedFd::Unnamed(socket, _)) = self.held.get(&token) else {
            return Ok(false);
        };
        let mut buffer = [0; LONGEST_PROCESS];
        let Datagram { len, fds } = socket::receive(socket.as_fd(), &mut buffer)?;
        let Some(process) = LoggedProcess::read(&buffer[..len], fds) else {
            return Ok(false);
        };
        match self.held.values().filter(|held| held.is_process()).count() < MOST {
            true => self.hold(WatchedFd::Process(process))?,
            false => self.ends.leave_out(),
        }
        Ok(false)
    }
}

fn too_many() -> String {
    format!("{MOST} exec processes have a listener, and no more may: end some of them")
}

/// Answers one call. To be called only after epoll(7) reported one: otherwise this would wait.
fn answer(listener: BorrowedFd<'_>, container: &Container) -> io::Result<()> {
    let Some(call) = notify::receive(listener)? else {
        return Ok(());
    };
    let errno = container.errno(&call);
    notify::answer(listener, &call, notify::NotifyAnswer::Failed(errno.into()))?;
    // Afterwards, so that the caller waits no longer than necessary.
    container.note(&call, errno);
    Ok(())
}

/// Sends the reason for a refusal. A caller that is gone does not need it.
fn refuse(socket: BorrowedFd<'_>, why: &str) {
    let message = format!("{REFUSED}{why}");
    let _gone = socket::send(socket, message.as_bytes(), &[]);
}

#[cfg(test)]
mod tests {
    use rustix::process::Resource;

    use super::*;
    use crate::seccomp::{FilterProgram, Instruction, SavedFilter};
    use crate::sidecar::protocol::{NamespaceId, own_pid_namespace};

    fn calls() -> Calls {
        let allowed = Instruction {
            code: 0x06,
            jt: 0,
            jf: 0,
            k: 0x7fff_0000,
        };
        let kept = SavedFilter {
            program: FilterProgram::new(vec![allowed]).unwrap(),
            flags: 0,
        };
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create("filter", flags).unwrap();
        rustix::io::write(&file, &kept.to_bytes()).unwrap();
        let namespace = own_pid_namespace().unwrap();
        let callers = Callers {
            uid: 0,
            cookie: 0,
            pid_namespace: NamespaceId::of(namespace.as_fd()).unwrap(),
        };
        let (listening, _) = socket::pair().unwrap();
        Calls::new(listening, file.as_fd(), callers, FilterWords::default()).unwrap()
    }

    fn socket() -> OwnedFd {
        socket::pair().unwrap().0
    }

    #[test]
    fn silent_visitors_block_others_no_longer_than_their_time() {
        let (mut calls, now) = (calls(), Instant::now());
        calls.expect_first(socket()).unwrap();
        for number in 1..VISITORS {
            let until = now + GREETS_WITHIN;
            let own = Rc::clone(&calls.own);
            calls
                .hold(match number % 2 {
                    0 => WatchedFd::Visitor(socket(), until),
                    _ => WatchedFd::Greeted(socket(), own, Some(until)),
                })
                .unwrap();
        }
        let why = calls.no_room(now).unwrap();
        assert!(why.contains("are starting"), "{why}");
        assert_eq!(calls.no_room(now + GREETS_WITHIN), None);
        // Init's line still waits.
        assert_eq!(calls.held.len(), 1);
    }

    #[test]
    fn listeners_stay_and_a_visitor_has_a_place_for_its_own() {
        // A shell's usual limit of descriptors is lower.
        let mut limit = rustix::process::getrlimit(Resource::Nofile);
        limit.current = limit.maximum;
        rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
        let (mut calls, now) = (calls(), Instant::now());
        for _ in 0..MOST {
            assert_eq!(calls.no_room(now), None);
            let own = Rc::clone(&calls.own);
            calls.hold(WatchedFd::Listener(socket(), own)).unwrap();
        }
        let why = calls.no_room(now + COMES_WITHIN).unwrap();
        assert!(why.contains("end some"), "{why}");
        assert_eq!(calls.held.len(), MOST);
    }
}
