//! What both timekeepers do: wait for the deadline, the container's end, and each other's.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, pidfd_send_signal};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

use super::activity::{ActivityKind, IdleWatch};
use super::cgroup::{self, MembersKind};
use super::end_line::EndLines;
use crate::plan::TimePlan;
use crate::plan::time::{ClockState, EndCause};
use crate::policy::SleepRule;

/// How much later the second one acts: never, unless the first one is stopped.
pub(super) const LAG: Duration = Duration::from_secs(1);
/// Between attempts to kill: a process may be in an uninterruptible call.
const AGAIN: Duration = Duration::from_secs(1);
/// After the end of a process of `exec`: when to look first whether it left another. The kernel may be about to take it out of its
/// cgroup. Twice as long each time, up to [`AGAIN`].
const SOON: Duration = Duration::from_millis(10);
/// Between looks at the deadline: `extend` may have put back one that was read.
const LOOK: Duration = Duration::from_secs(60);

/// The descriptors of a timekeeper, by number from 1; 0 is the socket to the runtime.
pub(super) struct TimekeeperFds {
    pub init: OwnedFd,
    /// The other timekeeper.
    pub other: OwnedFd,
    pub timer: OwnedFd,
    pub clock: OwnedFd,
    /// See [`super::CgroupMembers`].
    pub members: [OwnedFd; 2],
    /// See [`super::ActivityFiles`]; of an `exec` see [`super::ExecCgroup`].
    pub activity: [OwnedFd; 4],
    /// The log of one line.
    pub log: OwnedFd,
}

/// What has happened to the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Its time is not over.
    Running,
    /// It was sent SIGTERM; SIGKILL follows then.
    Signalled(Duration),
    /// It was sent SIGKILL; the next one follows then.
    Killed(Duration),
}

/// Whether the init process, or the process of the `exec`, has been seen to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InitLife {
    Lives,
    Ended,
}

/// What a timekeeper waits for.
enum Event {
    /// The init process has ended.
    Ended,
    /// The other timekeeper has ended, and the container has not.
    OtherLost,
    /// The timer has rung.
    Rung,
}

/// A timekeeper.
pub(super) struct Timekeeper {
    pub fds: TimekeeperFds,
    pub plan: TimePlan,
    pub members: MembersKind,
    /// What it samples under `time.idle`.
    pub activity: Option<ActivityKind>,
    /// The name of the cgroup of the `exec` whose time it keeps.
    pub exec: Option<String>,
    /// How much later it acts.
    pub lag: Duration,
    /// What it may write to its log.
    pub lines: EndLines,
}

/// The clock of a limit.
fn clock(sleep: SleepRule) -> (ClockId, TimerfdClockId) {
    match sleep {
        SleepRule::Counts => (ClockId::Boottime, TimerfdClockId::Boottime),
        SleepRule::Pauses => (ClockId::Monotonic, TimerfdClockId::Monotonic),
    }
}

/// The time on the clock of a limit, which no one can set.
pub fn now(sleep: SleepRule) -> Duration {
    let time = clock_gettime(clock(sleep).0);
    // The kernel's is never negative.
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

/// A timer on that clock.
pub fn timer(sleep: SleepRule) -> rustix::io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    timerfd_create(clock(sleep).1, flags)
}

/// Reads a clock's file. Twice: the runtime may be writing.
pub fn read(clock: impl AsFd) -> Option<ClockState> {
    let once = || {
        let mut text = [0; ClockState::LENGTH + 1];
        let length = rustix::io::pread(&clock, &mut text, 0).ok()?;
        ClockState::parse(&text[..length])
    };
    (0..100).find_map(|_| {
        let state = once()?;
        (once() == Some(state)).then_some(state)
    })
}

/// Writes since when the container is idle.
fn note_idle(clock: impl AsFd, since: Duration) -> rustix::io::Result<usize> {
    let since = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    let text = ClockState::time_text(since);
    rustix::io::pwrite(clock, text.as_bytes(), ClockState::IDLE_AT as u64)
}

/// Writes the cause of an end, or takes it back.
pub fn note(clock: impl AsFd, cause: Option<EndCause>) -> rustix::io::Result<usize> {
    let byte = cause.map_or(ClockState::RUNNING, EndCause::byte);
    rustix::io::pwrite(clock, &[byte], ClockState::CAUSE_AT as u64)
}

impl Timekeeper {
    /// Runs until the container has ended. Returns the exit code.
    pub fn keep(self) -> i32 {
        if self.plan.idle.lifetime().is_some() && self.activity.is_none() {
            // Without counts no such limit is kept.
            self.kill();
            return 1;
        }
        let (mut phase, mut init, mut look) = (Phase::Running, InitLife::Lives, LOOK);
        let mut idle = self.watch_activity(now(self.plan.sleep));
        loop {
            let now = now(self.plan.sleep);
            if let Some(idle) = &mut idle {
                self.sample(idle, now);
            }
            if init == InitLife::Ended && self.is_over() {
                return 0;
            }
            let due = self.due(phase, idle.as_ref());
            if now >= due {
                phase = self.act(phase, idle.as_ref(), now);
                continue;
            }
            let sample = idle.as_ref().map_or(Duration::MAX, IdleWatch::next);
            if ring_at(&self.fds.timer, due.min(now + look).min(sample)).is_err() {
                // Without a timer no time is kept.
                self.kill();
                return 1;
            }
            match self.wait(phase, init) {
                // What it has started has the same limit.
                Ok(Event::Ended) if self.exec.is_some() => (init, look) = (InitLife::Ended, SOON),
                Ok(Event::Ended) => {
                    // Without a pid namespace of its own, its other processes would have no limit from here on.
                    self.kill_members();
                    self.log_after(phase);
                    return 0;
                }
                // The other one has seen the end of all.
                Ok(Event::OtherLost) if init == InitLife::Ended && self.is_over() => return 0,
                Ok(Event::OtherLost) => phase = self.lose_other(),
                Ok(Event::Rung) if init == InitLife::Ended => look = (look * 2).min(AGAIN),
                Ok(Event::Rung) => {}
                Err(_) => {
                    self.kill();
                    return 1;
                }
            }
        }
    }

    /// Waits for the timer, the container's end, and the other timekeeper's.
    fn wait(&self, phase: Phase, init: InitLife) -> rustix::io::Result<Event> {
        let is_killed = matches!(phase, Phase::Killed(_));
        let first = match init {
            InitLife::Lives => &self.fds.init,
            InitLife::Ended => &self.fds.timer,
        };
        // Its end counts once: from then on it would always be readable.
        let other = match is_killed {
            true => &self.fds.timer,
            false => &self.fds.other,
        };
        let ready = |fds: &mut [PollFd<'_>], limit: Option<&Timespec>| {
            rustix::io::retry_on_intr(|| poll(fds, limit))
        };
        let watched = [first, &self.fds.timer, other];
        let mut fds = watched.map(|fd| PollFd::new(fd, PollFlags::IN));
        ready(&mut fds, None)?;
        let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        if is_killed || !is_ready(&fds[2]) {
            return Ok(match (init, is_ready(&fds[0])) {
                (InitLife::Lives, true) => Event::Ended,
                _ => Event::Rung,
            });
        }
        if init == InitLife::Ended {
            return Ok(Event::OtherLost);
        }
        // The other one ends with the init process: so that has ended by now, if it was that.
        let mut init = [PollFd::new(&self.fds.init, PollFlags::IN)];
        ready(&mut init, Some(&Timespec::default()))?;
        Ok(match is_ready(&init[0]) {
            true => Event::Ended,
            false => Event::OtherLost,
        })
    }

    /// Whether nothing is left of the `exec`, whose process has ended: then its cgroup is gone.
    fn is_over(&self) -> bool {
        let name = self.exec.as_deref();
        name.is_some_and(|name| cgroup::remove(&self.fds.activity[0], name))
    }

    /// Begins to watch for activity, if the plan has `time.idle`.
    fn watch_activity(&self, now: Duration) -> Option<IdleWatch> {
        let limit = Duration::from_secs(self.plan.idle.lifetime()?.seconds().into());
        let first = self.activity?.count(&self.fds.activity);
        Some(IdleWatch::begin(limit, self.plan.sleep, now, first))
    }

    /// Takes a sample of the container's activity, if one is due.
    fn sample(&self, idle: &mut IdleWatch, now: Duration) {
        let Some(kind) = self.activity.filter(|_| now >= idle.next()) else {
            return;
        };
        let before = idle.since();
        idle.take(now, kind.count(&self.fds.activity));
        if idle.since() != before {
            let _unnoted = note_idle(&self.fds.clock, idle.since());
        }
    }

    /// When the next step is due.
    fn due(&self, phase: Phase, idle: Option<&IdleWatch>) -> Duration {
        match phase {
            Phase::Running => {
                let idle = idle.map_or(Duration::MAX, IdleWatch::due);
                self.wall_due().min(idle.saturating_add(self.lag))
            }
            Phase::Signalled(at) | Phase::Killed(at) => at,
        }
    }

    /// When `time.wall` is over. A file that cannot be read grants no time.
    fn wall_due(&self) -> Duration {
        match read(&self.fds.clock) {
            Some(state) => Duration::from_millis(state.deadline).saturating_add(self.lag),
            None => Duration::ZERO,
        }
    }

    fn act(&self, phase: Phase, idle: Option<&IdleWatch>, now: Duration) -> Phase {
        match phase {
            Phase::Running => self.signal(idle, now),
            // The other one took back the cause that this one has read.
            Phase::Signalled(_) if !self.is_noted() && self.due(Phase::Running, idle) > now => {
                Phase::Running
            }
            // Without a look at the disk, which may hang: the line follows when the container has ended.
            Phase::Signalled(_) | Phase::Killed(_) => {
                self.kill();
                Phase::Killed(now + AGAIN)
            }
        }
    }

    /// Whether the cause of an end is noted.
    fn is_noted(&self) -> bool {
        read(&self.fds.clock).is_some_and(|state| state.cause.is_some())
    }

    /// The time is over: notes it, and sends SIGTERM. Noted first, and the deadline read again: `extend` writes the
    /// deadline first and reads the cause afterwards, so one of the two sees the other.
    fn signal(&self, idle: Option<&IdleWatch>, now: Duration) -> Phase {
        let signalled =
            Phase::Signalled(now + Duration::from_secs(self.plan.grace.seconds().into()));
        if self.is_noted() {
            // By the other one.
            return signalled;
        }
        let cause = match self.wall_due() > now {
            true => EndCause::Idle,
            false => EndCause::Wall,
        };
        let _unnoted = note(&self.fds.clock, Some(cause));
        if self.due(Phase::Running, idle) > now {
            let _unnoted = note(&self.fds.clock, None);
            return Phase::Running;
        }
        if self.lag.is_zero() {
            // Before the signal: what ends at once may be deleted at once. The disk may stop this one; the second one
            // kills without it.
            self.log();
        }
        let _ended = pidfd_send_signal(&self.fds.init, Signal::TERM);
        signalled
    }

    /// Writes the noted cause to the log, once it is not taken back any more.
    fn log(&self) {
        if let Some(cause) = read(&self.fds.clock).and_then(|state| state.cause) {
            self.lines.write(&self.fds.log, cause);
        }
    }

    /// The same after the container's end, if this one had a part in it.
    fn log_after(&self, phase: Phase) {
        if phase != Phase::Running {
            self.log();
        }
    }

    /// The other timekeeper was killed.
    fn lose_other(&self) -> Phase {
        if !self.is_noted() {
            let _unnoted = note(&self.fds.clock, Some(EndCause::TimekeeperLost));
        }
        self.kill();
        Phase::Killed(now(self.plan.sleep) + AGAIN)
    }

    /// Kills everything in the container, the init process first: its pid namespace ends with it.
    fn kill(&self) {
        let _ended = pidfd_send_signal(&self.fds.init, Signal::KILL);
        self.kill_members();
    }

    fn kill_members(&self) {
        let [one, other] = &self.fds.members;
        let thawed = self.exec.as_ref().map(|_| self.fds.activity[1].as_fd());
        self.members.kill([one.as_fd(), other.as_fd()], thawed);
    }
}

/// Sets a [`timer`] to ring once at this time.
pub fn ring_at(timer: impl AsFd, due: Duration) -> rustix::io::Result<()> {
    let once = Itimerspec {
        it_interval: Timespec::default(),
        it_value: Timespec::try_from(due).map_err(|_| rustix::io::Errno::OVERFLOW)?,
    };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &once).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::{Child, Command};

    use rustix::fs::MemfdFlags;
    use rustix::process::{Pid, PidfdFlags, pidfd_open};

    use super::super::activity::ActivityCount;
    use super::*;
    use crate::audit::Context;

    fn timekeeper(init: &Child, deadline: u64) -> Timekeeper {
        let clock = rustix::fs::memfd_create("clock", MemfdFlags::CLOEXEC).unwrap();
        let state = ClockState {
            deadline,
            cause: None,
            idle_since: Some(0),
        };
        rustix::io::write(&clock, state.to_text().as_bytes()).unwrap();
        let filler = || File::open("/dev/null").unwrap().into();
        let pid = Pid::from_child(init);
        Timekeeper {
            fds: TimekeeperFds {
                init: pidfd_open(pid, PidfdFlags::empty()).unwrap(),
                other: filler(),
                timer: filler(),
                clock,
                members: [filler(), filler()],
                activity: [filler(), filler(), filler(), filler()],
                log: rustix::fs::memfd_create("log", MemfdFlags::CLOEXEC).unwrap(),
            },
            lines: EndLines::of(&Context::default()),
            plan: TimePlan {
                wall: "5s".parse().unwrap(),
                idle: "2s".parse().unwrap(),
                grace: "1s".parse().unwrap(),
                sleep: SleepRule::Counts,
                most: None,
            },
            members: MembersKind::InitAlone,
            activity: None,
            exec: None,
            lag: Duration::ZERO,
        }
    }

    #[test]
    fn more_time_counts_until_the_signal_is_sent() {
        let mut init = Command::new("sleep").arg("60").spawn().unwrap();
        // `extend` came after the timekeeper had found that the time is over.
        let extended = timekeeper(&init, 9000);
        assert_eq!(
            extended.signal(None, Duration::from_secs(6)),
            Phase::Running
        );
        assert_eq!(read(&extended.fds.clock).unwrap().cause, None);
        assert_eq!(logged(&extended), "", "it goes on");
        // The other one's cause was read, and then taken back.
        let signalled = Phase::Signalled(Duration::from_secs(7));
        let kept = extended.act(signalled, None, Duration::from_secs(7));
        assert_eq!(kept, Phase::Running);
        assert!(init.try_wait().unwrap().is_none());
        // The control.
        let over = timekeeper(&init, 5000);
        let killed_at = Phase::Signalled(Duration::from_secs(7));
        assert_eq!(over.signal(None, Duration::from_secs(6)), killed_at);
        assert_eq!(read(&over.fds.clock).unwrap().cause, Some(EndCause::Wall));
        assert!(logged(&over).contains("\"cause\":\"time.wall\""));
        assert!(!init.wait().unwrap().success());
    }

    /// A disk that hangs stops whoever writes to it, so no kill may follow a write but the first one's before SIGTERM.
    #[test]
    fn no_kill_waits_for_the_disk_of_the_log() {
        let seconds = Duration::from_secs;
        let sleeper = || Command::new("sleep").arg("60").spawn().unwrap();
        // The second one, as the first one sits in its write.
        let mut init = sleeper();
        let second = Timekeeper {
            lag: LAG,
            ..timekeeper(&init, 5000)
        };
        note(&second.fds.clock, Some(EndCause::Wall)).unwrap();
        let kills_at = Phase::Signalled(seconds(7));
        assert_eq!(second.act(Phase::Running, None, seconds(6)), kills_at);
        assert!(init.try_wait().unwrap().is_none(), "it has its grace");
        let killed = second.act(kills_at, None, seconds(7));
        assert_eq!(killed, Phase::Killed(seconds(8)));
        assert!(!init.wait().unwrap().success());
        assert_eq!(
            second.act(killed, None, seconds(8)),
            Phase::Killed(seconds(9))
        );
        assert_eq!(logged(&second), "", "it was killed before any write");
        second.log_after(Phase::Running);
        assert_eq!(logged(&second), "", "it had no part in it");
        second.log_after(killed);
        let line = logged(&second);
        assert!(line.contains("\"cause\":\"time.wall\""), "{line}");
        second.log_after(killed);
        assert_eq!(logged(&second), line, "one line");
        // The second one alone: the first one is stopped.
        let mut init = sleeper();
        let alone = Timekeeper {
            lag: LAG,
            ..timekeeper(&init, 5000)
        };
        assert_eq!(alone.act(Phase::Running, None, seconds(6)), kills_at);
        assert!(!init.wait().unwrap().success());
        assert_eq!(logged(&alone), "");
        // The other one was killed.
        let mut init = sleeper();
        let left = timekeeper(&init, u64::MAX);
        let killed = left.lose_other();
        assert!(!init.wait().unwrap().success());
        assert_eq!(logged(&left), "");
        left.log_after(killed);
        assert!(logged(&left).contains(EndCause::TimekeeperLost.field()));
    }

    fn logged(keeper: &Timekeeper) -> String {
        let mut text = vec![0; 8192];
        let length = rustix::io::pread(&keeper.fds.log, &mut text, 0).unwrap();
        text.truncate(length);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn an_idle_container_ends_before_its_deadline() {
        let mut init = Command::new("sleep").arg("60").spawn().unwrap();
        let keeper = timekeeper(&init, 9000);
        let begun = Duration::from_secs(1);
        let idle = IdleWatch::begin(
            Duration::from_secs(2),
            SleepRule::Counts,
            begun,
            ActivityCount::default(),
        );
        let due = keeper.due(Phase::Running, Some(&idle));
        assert_eq!(due, Duration::from_secs(3));
        // Not yet: more activity was seen meanwhile.
        let early = Duration::from_millis(2900);
        assert_eq!(keeper.signal(Some(&idle), early), Phase::Running);
        assert!(init.try_wait().unwrap().is_none());
        let signalled = Phase::Signalled(Duration::from_secs(4));
        assert_eq!(keeper.act(Phase::Running, Some(&idle), due), signalled);
        let state = read(&keeper.fds.clock).unwrap();
        assert_eq!(state.cause, Some(EndCause::Idle));
        assert!(!init.wait().unwrap().success());
        // After the deadline it is the deadline's.
        let mut init = Command::new("sleep").arg("60").spawn().unwrap();
        let over = timekeeper(&init, 2000);
        over.act(Phase::Running, Some(&idle), due);
        assert_eq!(read(&over.fds.clock).unwrap().cause, Some(EndCause::Wall));
        assert!(!init.wait().unwrap().success());
        // The last activity is for the verbs.
        note_idle(&over.fds.clock, idle.since()).unwrap();
        assert_eq!(read(&over.fds.clock).unwrap().idle_since, Some(1000));
    }
}
