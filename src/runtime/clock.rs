//! The clock of a container with a time limit: its file, its timekeeper, what is left, and `extend`.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{Mode, OFlags, open};

use crate::audit::{self, Event, EventDetail, Verdict, WallName};
use crate::cgroup::controllers::Controllers;
use crate::plan::TimePlan;
use crate::plan::time::{ClockState, EndCause, TimeLeft};
use crate::policy::{Field, Lifetime, TimeLimit};
use crate::rules::ClockReading;
use crate::runtime::RuntimeError;
use crate::runtime::create::error::CreateError;
use crate::runtime::files::write_whole;
use crate::runtime::network::companion;
use crate::runtime::runs::{self, RunDir, events};
use crate::runtime::signal;
use crate::runtime::state::identity;
use crate::runtime::state::record::{ProcessId, Record};
use crate::runtime::state::store::ContainerPaths;
use crate::runtime::status;
use crate::sidecar::timekeeper::{
    self, ActivityFiles, CgroupMembers, EndLines, ProcessorFile, TimekeeperConfig, TimekeeperRecord,
};
use crate::sys::clocks;

/// How much later than its SIGKILL a container counts as overdue: its timekeepers were stopped.
const OVERDUE: Duration = Duration::from_secs(5);

/// The same beyond `time.idle`, whose timekeepers sample each ten seconds.
const IDLE_OVERDUE: Duration = Duration::from_secs(25);

/// How long a verb waits for an overdue container, which may be in an uninterruptible call: the next verb looks again.
const ENDS: Duration = Duration::from_secs(1);

/// The clocks by which rules and secrets end.
pub fn reading() -> ClockReading {
    clocks::read()
}

/// A record without the rules that have expired: it has them until the next `update`.
pub fn current(mut record: Record) -> Record {
    if let Some(plan) = record.plan_mut() {
        plan.network.rules.expire(reading());
    }
    record
}

/// The clock's file, in the container's directory.
fn path(place: &ContainerPaths) -> PathBuf {
    place.dir().join("clock")
}

/// Sets the clock, and starts the timekeeper. `traffic` are the counts of packets of the container's network.
pub fn begin(
    place: &ContainerPaths,
    record: &Record,
    plan: TimePlan,
    init: ProcessId,
    traffic: Vec<OwnedFd>,
) -> Result<TimekeeperRecord, RuntimeError> {
    let begun = timekeeper::now(plan.sleep);
    let deadline = plan.wall.lifetime().map_or(Duration::MAX, |wall| {
        begun + Duration::from_secs(wall.seconds().into())
    });
    let idle = plan.idle.lifetime();
    let state = ClockState {
        deadline: millis(deadline),
        cause: None,
        idle_since: idle.map(|_| millis(begun)),
    };
    let log = RunDir::of(place).open_line(audit::TIME)?;
    let path = path(place);
    write_whole(&path, state.to_text().as_bytes())?;
    let clock = opened(&path, OFlags::RDWR)?;
    let pid = rustix::process::Pid::from_raw(init.pid).ok_or(RuntimeError::NotRunning)?;
    let init = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
        .map_err(RuntimeError::io("open the container's process"))?;
    let exe = opened(&PathBuf::from("/proc/self/exe"), OFlags::PATH)?;
    let (born_in, enters) = sidecars_cgroup(record)?;
    let controllers = record.controllers()?;
    let activity = idle.map(|_| activity(&controllers, traffic)).transpose()?;
    let config = TimekeeperConfig {
        id: companion::timekeeper_uid(&place.dir()),
        plan,
        init: init.as_fd(),
        clock: clock.as_fd(),
        log: log.as_fd(),
        lines: lines(record),
        members: members(&controllers)?,
        activity,
        exec: None,
        born_in: born_in.as_ref().map(AsFd::as_fd),
        enters,
    };
    Ok(timekeeper::start(config, exe.as_fd())?)
}

/// The container's processes.
fn members(controllers: &Controllers) -> Result<CgroupMembers, RuntimeError> {
    if let Some(directory) = controllers.unified() {
        let kill = opened(&directory.join("cgroup.kill"), OFlags::WRONLY)?;
        return Ok(CgroupMembers::Kill(kill));
    }
    let freezer = controllers.v1("freezer");
    // Not the freezer's list, if there is another: those of an `exec` under `time.exec` are in cgroups below it.
    let others = controllers.v1.iter().filter(|(name, _)| *name != "freezer");
    let mut others = others.map(|(_, directory)| directory.as_path());
    let Some(directory) = others.next().or(freezer) else {
        return Ok(CgroupMembers::InitAlone);
    };
    let state = freezer.map(|directory| opened(&directory.join("freezer.state"), OFlags::WRONLY));
    Ok(CgroupMembers::Listed {
        directory: opened(directory, OFlags::DIRECTORY)?,
        freezer: state.transpose()?,
    })
}

/// The kernel's counts of what the container does.
fn activity(
    controllers: &Controllers,
    network: Vec<OwnedFd>,
) -> Result<ActivityFiles, RuntimeError> {
    let counted = |path: PathBuf| opened(&path, OFlags::RDONLY);
    let (processor, freezer) = match (controllers.unified(), controllers.v1("cpuacct")) {
        (Some(directory), _) => {
            let processor = ProcessorFile::Stat(counted(directory.join("cpu.stat"))?);
            (processor, Some(directory.join("cgroup.events")))
        }
        (None, Some(directory)) => {
            let processor = ProcessorFile::Usage(counted(directory.join("cpuacct.usage"))?);
            let freezer = controllers.v1("freezer");
            (processor, freezer.map(|at| at.join("freezer.state")))
        }
        (None, None) => return Err(CreateError::NoActivity("processor time of its cgroup").into()),
    };
    if network.is_empty() {
        return Err(CreateError::NoActivity("packets of its network").into());
    }
    Ok(ActivityFiles {
        processor,
        network,
        freezer: freezer.map(counted).transpose()?,
    })
}

/// Where the timekeeper runs: the sidecar's v2 cgroup, or its v1 cgroups. Without a sidecar it stays in the caller's.
pub(super) fn sidecars_cgroup(
    record: &Record,
) -> Result<(Option<OwnedFd>, Vec<PathBuf>), RuntimeError> {
    let directories = record.sidecar.iter().flat_map(|sidecar| &sidecar.cgroups);
    let (mut born_in, mut enters) = (None, Vec::new());
    for directory in directories {
        match directory.join("tasks").exists() {
            true => enters.push(directory.clone()),
            false => born_in = Some(opened(directory, OFlags::DIRECTORY)?),
        }
    }
    Ok((born_in, enters))
}

pub(super) fn opened(path: &std::path::Path, flags: OFlags) -> Result<OwnedFd, RuntimeError> {
    open(path, flags | OFlags::CLOEXEC, Mode::empty())
        .map_err(RuntimeError::io(format!("open {path:?}")))
}

pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The clock of a container that has a time limit.
fn state(place: &ContainerPaths) -> Option<ClockState> {
    timekeeper::read(File::open(path(place)).ok()?)
}

/// Why a timekeeper, or a verb in its place, has ended the container, if one has.
pub fn ended(place: &ContainerPaths) -> Option<EndCause> {
    state(place)?.cause
}

/// The line of the log about that, if no timekeeper has written it: the disk was full, or an older version made them. Asked
/// when they have ended, so that none writes it later.
pub fn unlogged(place: &ContainerPaths, cause: EndCause) -> Option<Event> {
    let log = std::fs::metadata(RunDir::of(place).file(audit::TIME));
    let is_logged = log.is_ok_and(|log| log.len() > 0);
    (!is_logged).then(|| timekeeper::event(cause))
}

/// What may stand in the timekeepers' log.
fn lines(record: &Record) -> EndLines {
    EndLines::of(&runs::context(record, identity::of(record)))
}

/// Writes the line in their place.
fn log_end(place: &ContainerPaths, record: &Record, cause: EndCause) {
    match RunDir::of(place).open_line(audit::TIME) {
        Ok(log) => lines(record).write(log, cause),
        Err(error) => log::debug!("log the end: {}", crate::log::chain(&error)),
    }
}

/// The time that is left, if the container has a limit and runs.
pub fn left(place: &ContainerPaths, record: &Record) -> TimeLeft {
    let plan = record.plan().and_then(|plan| plan.time);
    let lives = record.init.is_some_and(ProcessId::is_alive);
    match plan.filter(|_| lives).zip(state(place)) {
        Some((plan, state)) => remaining(state, plan, timekeeper::now(plan.sleep)),
        None => TimeLeft::default(),
    }
}

fn remaining(state: ClockState, plan: TimePlan, now: Duration) -> TimeLeft {
    let until = |due: Duration| due.saturating_sub(now).as_secs();
    let deadline = plan.wall.lifetime().map(|_| state.deadline);
    let idle = plan.idle.lifetime().zip(state.idle_since);
    TimeLeft {
        seconds_left: deadline.map(|due| until(Duration::from_millis(due))),
        idle_seconds_left: idle.map(|(idle, since)| until(idle_due(idle, since))),
    }
}

/// When a container that is idle since then has been so for too long.
fn idle_due(limit: Lifetime, since: u64) -> Duration {
    Duration::from_millis(since) + Duration::from_secs(limit.seconds().into())
}

/// Whether its time is kept, if it has a limit.
pub fn is_kept(record: &Record) -> bool {
    let has_limit = record.plan().is_some_and(|plan| plan.time.is_some());
    !has_limit
        || record
            .timekeeper
            .is_some_and(|timekeeper| timekeeper.is_whole())
}

/// Ends a container whose timekeepers were both killed, or stopped beyond its time. Verbs call it first.
pub fn enforce(place: &ContainerPaths, record: &Record) {
    let plan = record.plan().and_then(|plan| plan.time);
    let (Some(plan), Some(timekeeper)) = (plan, record.timekeeper) else {
        return;
    };
    // Looked at before the init process, with which they end.
    let lives = timekeeper.lives();
    let overdue = overdue(state(place), plan, timekeeper::now(plan.sleep));
    let cause = match (lives, overdue) {
        (_, Some(cause)) => cause,
        (false, None) => EndCause::TimekeeperLost,
        (true, None) => return,
    };
    let Some(init) = record.init.filter(|init| init.is_alive()) else {
        return;
    };
    if ended(place).is_none()
        && let Ok(clock) = opened(&path(place), OFlags::RDWR)
        && let Err(error) = timekeeper::note(clock, Some(cause))
    {
        log::debug!("note the end: {error}");
    }
    log::warn!("the container is ended: {cause}");
    let killed = signal::kill_process(init).and_then(|()| {
        let container = status::load(place)?;
        signal::kill_all(&container, rustix::process::Signal::KILL)
    });
    // The disk may hang: no kill waits for it.
    log_end(place, record, ended(place).unwrap_or(cause));
    match killed {
        Ok(()) => signal::wait_for_end_within(init, ENDS),
        Err(error) => log::warn!("end the container: {}", crate::log::chain(&error)),
    }
}

/// Adds time to a running container's limit, within the shortest of the ceilings. Returns the new limit.
///
/// The deadline is written first, and the cause read afterwards; a timekeeper does the reverse. So one of the two sees
/// the other.
pub fn extend(place: &ContainerPaths, by: Lifetime) -> Result<Lifetime, RuntimeError> {
    let _lock = place.lock_existing()?;
    let mut record = Record::read(&place.dir())?;
    let refuse = |why: String| RuntimeError::State {
        verb: "extend the time of",
        id: place.id.as_str().to_owned(),
        why,
    };
    let plan = record.plan().and_then(|plan| plan.time);
    let Some((plan, wall)) = plan.and_then(|plan| Some((plan, plan.wall.lifetime()?))) else {
        return Err(refuse("it has no time limit (time.wall)".to_owned()));
    };
    let Some(before) = state(place).filter(|_| record.init.is_some_and(ProcessId::is_alive)) else {
        return Err(refuse("it does not run".to_owned()));
    };
    let over = |cause: EndCause| refuse(format!("it is ended: {cause}"));
    before.cause.map_or(Ok(()), |cause| Err(over(cause)))?;
    let wall = longer(wall, plan.most, by).map_err(refuse)?;
    let added = Duration::from_secs(by.seconds().into());
    let deadline = millis(Duration::from_millis(before.deadline) + added);
    let clock = opened(&path(place), OFlags::RDWR)?;
    let mut save = |time| {
        if let Some(changed) = record.plan_mut() {
            changed.time = Some(time);
        }
        record.save(&place.dir())
    };
    // First, so that no time is given that the ceiling does not see.
    save(TimePlan {
        wall: TimeLimit::Is(wall),
        ..plan
    })?;
    set(&clock, deadline)?;
    if let Some(cause) = settled_cause(&clock) {
        set(&clock, before.deadline)?;
        save(plan)?;
        return Err(over(cause));
    }
    RunDir::of(place).note(vec![extended(wall)]);
    Ok(wall)
}

fn set(clock: &OwnedFd, deadline: u64) -> Result<(), RuntimeError> {
    let text = ClockState::time_text(deadline);
    rustix::io::pwrite(clock, text.as_bytes(), 0)
        .map(drop)
        .map_err(RuntimeError::io("set the container's clock"))
}

/// The cause of an end, if it stays: a timekeeper that sees a later deadline takes its cause back at once.
fn settled_cause(clock: &OwnedFd) -> Option<EndCause> {
    const ROUNDS: u32 = 20;
    const PAUSE: Duration = Duration::from_millis(5);
    for _ in 0..ROUNDS {
        timekeeper::read(clock)?.cause?;
        std::thread::sleep(PAUSE);
    }
    timekeeper::read(clock)?.cause
}

/// The line of the log about more time.
fn extended(wall: Lifetime) -> Event {
    let limits = vec![format!("{}={wall}", Field::TimeWall)].into();
    Event {
        reason: Some(format!("set by {}", events::who()).into()),
        ..Event::new(
            WallName::Resources,
            Verdict::Noted,
            EventDetail::Update { limits },
        )
    }
}

/// The limit with more time, or why it is refused.
fn longer(wall: Lifetime, most: Option<Lifetime>, by: Lifetime) -> Result<Lifetime, String> {
    let wall = wall.seconds().checked_add(by.seconds());
    let wall = wall
        .and_then(Lifetime::of)
        .ok_or("no limit is longer than 366d")?;
    match most.filter(|most| wall > *most) {
        Some(most) => Err(format!(
            "time.wall would be {wall}, and the ceiling has {most}: raise it in the ceiling's policy, or start again"
        )),
        None => Ok(wall),
    }
}

/// Why a container should have ended, if it should. A clock that cannot be read grants no time. Nobody saw what a container
/// did whose timekeepers were stopped for longer than `time.idle`, so it counts as idle.
pub(super) fn overdue(
    state: Option<ClockState>,
    plan: TimePlan,
    now: Duration,
) -> Option<EndCause> {
    let Some(state) = state else {
        return Some(EndCause::Wall);
    };
    let grace = Duration::from_secs(plan.grace.seconds().into());
    if now > Duration::from_millis(state.deadline) + grace + OVERDUE {
        return Some(EndCause::Wall);
    }
    let limit = plan.idle.lifetime()?;
    let due = idle_due(limit, state.idle_since.unwrap_or_default());
    (now > due + grace + IDLE_OVERDUE).then_some(EndCause::Idle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::SleepRule;

    fn plan(wall: &str, idle: &str) -> TimePlan {
        TimePlan {
            wall: wall.parse().unwrap(),
            idle: idle.parse().unwrap(),
            grace: "10s".parse().unwrap(),
            sleep: SleepRule::Counts,
            most: None,
        }
    }

    fn clock(deadline: u64, idle_since: Option<u64>) -> ClockState {
        ClockState {
            deadline,
            cause: None,
            idle_since,
        }
    }

    #[test]
    fn a_container_is_overdue_after_its_grace_and_without_a_clock() {
        let now = Duration::from_secs(100);
        let of = |plan, deadline, idle| overdue(Some(clock(deadline, idle)), plan, now);
        let wall = plan("30m", "unlimited");
        assert_eq!(of(wall, 86_000, None), None);
        assert_eq!(of(wall, 84_999, None), Some(EndCause::Wall));
        assert_eq!(of(wall, u64::MAX, None), None);
        assert_eq!(overdue(None, wall, now), Some(EndCause::Wall));
        // 20 s of limit, 10 s of grace, 25 s of patience.
        let idle = plan("unlimited", "20s");
        assert_eq!(of(idle, u64::MAX, Some(45_000)), None);
        assert_eq!(of(idle, u64::MAX, Some(44_999)), Some(EndCause::Idle));
        assert_eq!(of(idle, u64::MAX, None), Some(EndCause::Idle));
        assert_eq!(of(idle, u64::MAX, Some(u64::MAX)), None);
        let both = plan("30m", "20s");
        assert_eq!(of(both, 84_999, Some(99_000)), Some(EndCause::Wall));
    }

    #[test]
    fn what_is_left_is_told_for_each_limit() {
        let now = Duration::from_secs(100);
        let of = |plan| {
            let left = remaining(clock(160_000, Some(90_000)), plan, now);
            (left.seconds_left, left.idle_seconds_left)
        };
        assert_eq!(of(plan("30m", "unlimited")), (Some(60), None));
        assert_eq!(of(plan("unlimited", "20s")), (None, Some(10)));
        assert_eq!(of(plan("30m", "5s")), (Some(60), Some(0)));
    }

    #[test]
    fn a_limit_grows_up_to_the_ceilings() {
        let longer = |wall: &str, most: Option<&str>, by: &str| {
            let of = |text: &str| text.parse().unwrap();
            longer(of(wall), most.map(of), of(by))
        };
        let hour = Some("1h");
        assert_eq!(longer("30m", hour, "30m").unwrap().to_string(), "1h");
        assert!(longer("30m", hour, "31m").unwrap_err().contains("1h"));
        assert_eq!(longer("1h", None, "1d").unwrap().to_string(), "25h");
        assert!(longer("366d", None, "1s").is_err());
    }
}
