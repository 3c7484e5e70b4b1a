//! What is kept of each `exec` with a time limit, in the container's directory: for the verb that ends what its timekeepers could
//! not, and that logs why it ended.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};

use super::time;
use crate::audit::{Event, EventDetail, LoggedCommand, ProcessState, Verdict, WallName};
use crate::plan::TimePlan;
use crate::plan::time::EndCause;
use crate::policy::Field;
use crate::runtime::clock;
use crate::runtime::error::RuntimeError;
use crate::runtime::files::write_whole;
use crate::runtime::runs::RunDir;
use crate::runtime::state::record::ProcessId;
use crate::runtime::state::store::ContainerPaths;
use crate::sidecar::timekeeper::{self, TimekeeperRecord};

/// The beginnings and the ends of the files' names.
const PREFIX: &str = "exec-";
const RECORD: &str = ".json";
const CLOCK: &str = ".clock";
const LOGGED: &str = ".logged";
/// How long a verb waits for killed processes to leave their cgroup.
const EMPTY_WITHIN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(5);

/// One `exec` with a time limit.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ExecRecord {
    /// Its cgroup.
    pub(super) cgroup: PathBuf,
    /// The cgroup's name, which no other `exec` has.
    pub(super) name: String,
    /// The verb that starts it.
    pub(super) runtime: ProcessId,
    /// Its process, once it has a timekeeper.
    pub(super) process: Option<ProcessId>,
    /// Its timekeeper, before its program runs.
    pub(super) keeper: Option<TimekeeperRecord>,
    /// For the log.
    pub(super) command: LoggedCommand,
    /// The limit.
    pub(super) plan: TimePlan,
}

/// Its timekeepers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeeperLife {
    /// One lives at least; it may be stopped.
    Lives,
    /// Both have ended, or were killed.
    Ended,
}

/// What a verb does about an `exec`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SweepStep {
    /// Its time is kept, or it is just being started.
    Leave,
    /// It has ended, unless its timekeepers were lost.
    Finish,
    /// Its timekeepers are stopped beyond its time.
    EndOverdue,
}

impl ExecRecord {
    fn file(&self, place: &ContainerPaths, end: &str) -> PathBuf {
        place.dir().join(format!("{PREFIX}{}{end}", self.name))
    }

    /// Its clock, as a container's.
    pub(super) fn clock(&self, place: &ContainerPaths) -> PathBuf {
        self.file(place, CLOCK)
    }

    pub(super) fn save(&self, place: &ContainerPaths) -> Result<(), RuntimeError> {
        let path = self.file(place, RECORD);
        let text = serde_json::to_vec(self).map_err(|error| RuntimeError::Input {
            path: path.clone(),
            why: error.to_string(),
        })?;
        write_whole(&path, &text)
    }

    /// All of a container.
    fn all(place: &ContainerPaths) -> Vec<Self> {
        let entries = fs::read_dir(place.dir()).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path()).filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(RECORD))
        });
        paths.filter_map(|path| Self::read(&path)).collect()
    }

    fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Why its time ended it, if it did.
    fn cause(&self, place: &ContainerPaths) -> Option<EndCause> {
        let clock = fs::File::open(self.clock(place)).ok()?;
        timekeeper::read(clock)?.cause
    }

    /// Takes the cause, which one caller gets and logs.
    fn take_cause(&self, place: &ContainerPaths) -> Option<EndCause> {
        let cause = self.cause(place)?;
        let first = fs::File::create_new(self.file(place, LOGGED));
        first.ok().map(|_| cause)
    }

    fn step(&self, place: &ContainerPaths) -> SweepStep {
        let Some(keeper) = self.keeper else {
            return match self.runtime.is_alive() {
                true => SweepStep::Leave,
                // It may have begun the keepers and ended since this was read. It writes no more.
                false => match Self::read(&self.file(place, RECORD)) {
                    Some(now) if now.keeper.is_some() => now.step(place),
                    _ => SweepStep::Finish,
                },
            };
        };
        let state = fs::File::open(self.clock(place)).ok();
        let state = state.and_then(timekeeper::read);
        let overdue = clock::overdue(state, self.plan, timekeeper::now(self.plan.sleep));
        let keepers = match keeper.lives() {
            true => KeeperLife::Lives,
            false => KeeperLife::Ended,
        };
        step(keepers, overdue)
    }

    /// Ends what is left, and removes the cgroup. False if a process is still in it.
    fn finish(&self, place: &ContainerPaths, cause: EndCause) -> bool {
        if self.remove_cgroup() {
            return true;
        }
        let noted = clock::opened(&self.clock(place), OFlags::RDWR);
        if let (None, Ok(clock)) = (self.cause(place), noted)
            && let Err(error) = timekeeper::note(clock, Some(cause))
        {
            log::debug!("note the end: {error}");
        }
        log::warn!("an exec process is ended: {}", words(cause));
        match time::members(&self.cgroup) {
            Ok(members) => {
                let thawed = time::thawed().ok();
                members.kill(thawed.as_ref().map(AsFd::as_fd));
            }
            Err(error) => log::warn!("{}", crate::log::chain(&error)),
        }
        self.await_removal()
    }

    /// Waits briefly until its processes have left its cgroup, and removes it. True if it is gone.
    fn await_removal(&self) -> bool {
        let end = Instant::now() + EMPTY_WITHIN;
        while !self.remove_cgroup() {
            if Instant::now() >= end {
                return false;
            }
            std::thread::sleep(PAUSE);
        }
        true
    }

    /// Removes its cgroup, unless a process is in it. True if it is gone.
    fn remove_cgroup(&self) -> bool {
        timekeeper::remove(rustix::fs::CWD, &self.cgroup)
    }

    /// Removes what was made for a process that never ran, if it has left its cgroup by now.
    pub(super) fn remove_empty(&self, place: &ContainerPaths) {
        if self.await_removal() {
            self.forget(place);
        }
    }

    /// Removes its files, the record last: it names the others. The mark of the log goes after the cause, which it belongs to.
    fn forget(&self, place: &ContainerPaths) {
        for end in [CLOCK, LOGGED, RECORD] {
            let path = self.file(place, end);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    log::debug!("remove {path:?}: {error}");
                }
                _ => {}
            }
        }
    }

    fn end_keeper(&self) {
        let ended = self.keeper.map_or(Ok(()), |keeper| keeper.end());
        if let Err(error) = ended {
            log::warn!("end the timekeeper: {}", crate::log::chain(&error));
        }
    }

    /// The line of the log.
    fn event(&self, cause: EndCause) -> Event {
        let what = EventDetail::process(ProcessState::Ended, self.command.clone(), None);
        Event {
            pid: self.process.map(|process| process.pid),
            cause: Some(Field::TimeExec.to_string().into()),
            reason: Some(format!("{}: {}", words(cause), self.plan.wall).into()),
            ..Event::new(WallName::Life, Verdict::Ended, what)
        }
    }
}

fn step(keepers: KeeperLife, overdue: Option<EndCause>) -> SweepStep {
    match (keepers, overdue) {
        (KeeperLife::Lives, None) => SweepStep::Leave,
        (KeeperLife::Lives, Some(_)) => SweepStep::EndOverdue,
        (KeeperLife::Ended, _) => SweepStep::Finish,
    }
}

/// The cause in words.
fn words(cause: EndCause) -> &'static str {
    match cause {
        EndCause::TimekeeperLost => "the process that keeps its time was killed (time.exec)",
        EndCause::Wall | EndCause::Idle => "its time was over (time.exec)",
    }
}

/// How many have timekeepers.
pub(super) fn living(place: &ContainerPaths) -> usize {
    let all = ExecRecord::all(place).into_iter();
    all.filter(|one| one.keeper.is_some_and(|keeper| keeper.lives()))
        .count()
}

/// Ends each `exec` whose timekeepers were both killed, or stopped beyond its time, and logs those that were ended.
/// Verbs call it first.
pub fn sweep(place: &ContainerPaths) {
    for one in ExecRecord::all(place) {
        let cause = match one.step(place) {
            SweepStep::Leave => continue,
            SweepStep::Finish => EndCause::TimekeeperLost,
            SweepStep::EndOverdue => EndCause::Wall,
        };
        let is_over = one.finish(place, cause);
        if let Some(cause) = one.take_cause(place) {
            RunDir::of(place).note(vec![one.event(cause)]);
        }
        if is_over {
            one.end_keeper();
            one.forget(place);
        }
    }
}

/// At the container's end: ends the timekeepers, and returns the lines that the log lacks.
pub fn end_all(place: &ContainerPaths) -> Vec<Event> {
    let all = ExecRecord::all(place);
    all.iter().for_each(ExecRecord::end_keeper);
    let logged = all
        .iter()
        .filter_map(|one| Some(one.event(one.take_cause(place)?)));
    logged.collect()
}

/// Why the time of this process ended it, for its caller, who then logs it.
pub(super) fn take_ended(place: &ContainerPaths, pid: i32) -> Option<String> {
    let all = ExecRecord::all(place);
    let mut all = all.iter();
    let one = all.find(|one| one.process.is_some_and(|process| process.pid == pid))?;
    Some(words(one.take_cause(place)?).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exec_is_left_alone_while_its_time_is_kept() {
        assert_eq!(step(KeeperLife::Lives, None), SweepStep::Leave);
        // Both of its timekeepers are stopped.
        assert_eq!(
            step(KeeperLife::Lives, Some(EndCause::Wall)),
            SweepStep::EndOverdue
        );
        // They are killed, or have ended with it.
        assert_eq!(step(KeeperLife::Ended, None), SweepStep::Finish);
        assert_eq!(
            step(KeeperLife::Ended, Some(EndCause::Wall)),
            SweepStep::Finish
        );
    }
}
