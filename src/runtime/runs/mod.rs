//! What stays of a container: its logs, its record and its end, in one directory for each run.
//!
//! ```text
//! /var/lib/agentbox/runs/<start time>-<id>/    root's alone
//!   node.jsonl      the runtime's verbs wrote it
//!   sidecar.jsonl   the sidecar
//!   warden.jsonl    the warden: how the init process ended, or the sidecar that it needed
//!   ssh.jsonl       the relay to the user's SSH agent, if there is one
//!   sockets.jsonl   the relay to unix sockets of databases, if there is one
//!   time.jsonl      the timekeeper, if there is a time limit: why it ended the container
//!   record.json     the container's record: plan, policy, annotations
//!   filter          the seccomp program, as it was loaded
//!   verify.json     the last report of `agentbox verify` about it, if any
//!   receipt.json    the signed statement of all that, if the node has a key
//! ```
//! A user without root's rights has the same in `$XDG_STATE_HOME/agentbox/runs`, or `~/.local/state`. The link `run` in
//! the container's own directory leads there. If no such directory can be made, or the container would see it, the logs
//! lie in the container's own directory and are deleted with it. Nothing else depends on them.

mod chosen;
pub mod compare;
mod end;
pub mod events;
pub mod files;
mod name;
mod node_log;
mod omitted;
pub mod ports;
pub mod prune;
pub mod read;
pub mod receipt;
pub mod verified;

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::audit::{self, Context, Event, whole};
use crate::plan::{Plan, PlannedMount};
use crate::render::identity::ContainerIdentity;
use crate::runtime::RuntimeError;
use crate::runtime::create::error::CreateError;
use crate::runtime::input::node_files;
use crate::runtime::state::record::Record;
use crate::runtime::state::store::ContainerPaths;
use crate::runtime::state::user_dirs::{self, DirUse};
use crate::runtime::unprivileged;

/// For root.
const RUNS: &str = "/var/lib/agentbox/runs";
/// The program of the syscall wall, as it was loaded; saved when the container is deleted.
pub const FILTER: &str = "filter";
/// The link in the container's own directory.
const LINK: &str = "run";
/// In the log's first line, the hash of the run's name.
const RUN: &str = "run";
/// Two containers of one id may begin at the same time, under two engines.
const MOST_TRIES: i64 = 100;

/// A run's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunDir {
    dir: PathBuf,
    /// Whether it stays when the container is deleted.
    kept: RunLifetime,
}

/// Whether a run's directory outlives its container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RunLifetime {
    /// It is a directory of its own.
    Stays,
    /// It is the container's own directory.
    GoesWithContainer,
}

/// The first entries of a run's log.
pub struct RunStart<'a> {
    /// The container that it belongs to.
    pub context: Context,
    /// The first lines.
    pub events: Vec<Event>,
    /// The record so far.
    pub record: &'a Record,
}

impl RunStart<'_> {
    /// The logs of other writers: the walls.
    fn others(&self) -> impl Iterator<Item = &'static str> {
        let has_walls = self.record.plan().is_some();
        others(Some(self.record)).filter(move |_| has_walls)
    }
}

/// The logs of other writers that a run has.
fn others(record: Option<&Record>) -> impl Iterator<Item = &'static str> {
    let has =
        move |has: fn(&Plan) -> bool| record.is_none_or(|record| record.plan().is_some_and(has));
    let all = whole::OTHERS.into_iter();
    all.filter(move |name| match *name {
        audit::SSH => has(|plan| plan.network.signing.is_some()),
        audit::SOCKETS => has(|plan| !plan.network.sockets.is_empty()),
        audit::TIME => has(|plan| plan.time.is_some()),
        _ => true,
    })
}

/// The directory of the caller's runs.
pub fn base() -> Option<PathBuf> {
    let Some(_) = unprivileged::person().filter(|person| person.uid != 0) else {
        return Some(PathBuf::from(RUNS));
    };
    let named = |name| std::env::var_os(name).map(PathBuf::from);
    let state = named("XDG_STATE_HOME").filter(|dir| dir.is_absolute());
    let home = || named("HOME").filter(|dir| dir.is_absolute());
    let state = state.or_else(|| home().map(|home| home.join(".local/state")));
    state.map(|state| state.join("agentbox/runs"))
}

/// The directory of the caller's runs, if no other user may write it. It may have to be made.
///
/// # Errors
/// There is none, or other users may write it: a link, or such a directory, may be a trap.
pub fn private_base() -> Result<PathBuf, String> {
    let base = base().ok_or("neither XDG_STATE_HOME nor HOME names a directory")?;
    user_dirs::check(&base, DirUse::Logs).map_err(|error| crate::log::chain(&error))?;
    Ok(base)
}

impl RunDir {
    /// The container's own directory, until there is another.
    pub fn in_state(place: &ContainerPaths) -> Self {
        Self {
            dir: place.dir(),
            kept: RunLifetime::GoesWithContainer,
        }
    }

    /// Makes the directory of a container that is being created, with its first lines: on a full disk directories can
    /// be made, but not written. If this fails, the logs stay with the container, with a warning. If the node's file
    /// requires a log, the container is refused.
    pub fn begin(
        place: &ContainerPaths,
        mounts: &[PlannedMount],
        config: &Path,
        first: &RunStart<'_>,
    ) -> Result<Self, RuntimeError> {
        let why = match make(place, mounts).and_then(|run| run.begun(place, first)) {
            Ok(run) => return Ok(run),
            Err(why) => why,
        };
        if node_files::log(config)?.required {
            return Err(CreateError::NoLog(why).into());
        }
        log::warn!(
            "the log of container {} goes with the container: {why}; its walls stand as always",
            place.id.as_str()
        );
        let run = Self::in_state(place);
        run.warn_of(run.begin_log(first));
        Ok(run)
    }

    /// Writes its first lines, or removes it again. The record follows when the container is complete: ext4 writes a file to the disk at
    /// once if it replaces another (`auto_da_alloc`, ext4(5)).
    fn begun(self, place: &ContainerPaths, first: &RunStart<'_>) -> Result<Self, String> {
        let files = || {
            self.begin_log(first)
                .map_err(|error| format!("write {:?}: {error}", self.file(audit::NODE)))?;
            // Files of other processes: if one could not be made later, the container would fail.
            for name in first.others() {
                self.open(name).map_err(|error| crate::log::chain(&error))?;
            }
            Ok(())
        };
        let Err(why) = files() else { return Ok(self) };
        let link = place.dir().join(LINK);
        fs::remove_file(&link).map_err(|error| format!("{why}; {link:?}: {error}"))?;
        self.discard();
        Err(why)
    }

    /// The run of an existing container.
    pub fn of(place: &ContainerPaths) -> Self {
        match fs::read_link(place.dir().join(LINK)) {
            Ok(dir) if dir.is_absolute() => Self {
                dir,
                kept: RunLifetime::Stays,
            },
            // Older versions made none.
            Ok(_) | Err(_) => Self::in_state(place),
        }
    }

    /// The path of a file in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Opens a log of it for appending, for another process.
    pub fn open(&self, name: &str) -> Result<File, RuntimeError> {
        let path = self.file(name);
        let mut options = File::options();
        options.append(true).create(true).mode(0o600);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC);
        let opened = options.open(&path);
        opened.map_err(RuntimeError::io(format!("open {path:?}")))
    }

    /// Opens a log of one line to read and write, for another process.
    pub fn open_line(&self, name: &str) -> Result<File, RuntimeError> {
        let path = self.file(name);
        let mut options = File::options();
        options.read(true).write(true).create(true).mode(0o600);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC);
        let opened = options.open(&path);
        opened.map_err(RuntimeError::io(format!("open {path:?}")))
    }

    /// Saves the record of a complete container. If the node's file requires a log, a failure refuses the container.
    pub fn keep_complete(&self, record: &Record, config: &Path) -> Result<(), RuntimeError> {
        if self.kept == RunLifetime::GoesWithContainer {
            return Ok(());
        }
        match record.save(&self.dir) {
            Err(error) if node_files::log(config)?.required => {
                Err(CreateError::NoLog(crate::log::chain(&error)).into())
            }
            saved => {
                warn_of_record(saved);
                Ok(())
            }
        }
    }

    /// Saves the container's record with the run. A failure is only a warning: the record itself is elsewhere.
    pub fn keep(&self, record: &Record) {
        if self.kept == RunLifetime::Stays {
            warn_of_record(record.save(&self.dir));
        }
    }

    /// Removes a run that never began.
    pub fn discard(&self) {
        if self.kept == RunLifetime::Stays
            && let Err(error) = fs::remove_dir_all(&self.dir)
        {
            log::warn!("remove {:?}: {error}", self.dir);
        }
    }
}

fn warn_of_record(saved: Result<(), RuntimeError>) {
    if let Err(error) = saved {
        let why = crate::log::chain(&error);
        log::warn!("keep the record with the log: {why}");
    }
}

/// Makes a directory that no run had before.
fn make(place: &ContainerPaths, mounts: &[PlannedMount]) -> Result<RunDir, String> {
    let base = private_base()?;
    if let Some(mount) = written_over(&base, mounts) {
        let destination = mount.destination.display();
        return Err(format!("{base:?} may be written in it, at {destination}"));
    }
    let failed = |error: std::io::Error| format!("{base:?}: {error}");
    let link = place.dir().join(LINK);
    let now = chrono::Utc::now();
    for tried in 0..MOST_TRIES {
        let started = now + chrono::Duration::milliseconds(tried);
        let dir = base.join(name::of(started, &place.id));
        // Before the directory, so that it never looks like a deleted container's.
        symlink(&dir, &link).map_err(|error| format!("{link:?}: {error}"))?;
        let made = fs::DirBuilder::new().mode(0o700).create(&dir);
        if made.is_ok() {
            let kept = RunLifetime::Stays;
            return Ok(RunDir { dir, kept });
        }
        fs::remove_file(&link).map_err(|error| format!("{link:?}: {error}"))?;
        match made.map_err(|error| (error.kind(), error)) {
            Err((ErrorKind::NotFound, _)) => make_base(&base)?,
            Err((ErrorKind::AlreadyExists, _)) | Ok(()) => {}
            Err((_, error)) => return Err(failed(error)),
        }
    }
    Err(failed(ErrorKind::AlreadyExists.into()))
}

/// The mount through which a container could rewrite its log. A read-only mount does not count: `wrap --policy
/// permissive` shows the home.
fn written_over<'a>(base: &Path, mounts: &'a [PlannedMount]) -> Option<&'a PlannedMount> {
    let mut mounts = mounts.iter().filter(|mount| mount.is_writable());
    mounts.find(|mount| base.starts_with(mount.source()) || mount.source().starts_with(base))
}

/// The directory of all runs: no other user may look into it, because logs show where containers connect.
fn make_base(base: &Path) -> Result<(), String> {
    let above = base.parent().unwrap_or(base);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(above)
        .map_err(|error| format!("{above:?}: {error}"))?;
    user_dirs::make(base, DirUse::Logs).map_err(|error| crate::log::chain(&error))
}

/// Whose events these are.
pub fn context(record: &Record, identity: ContainerIdentity) -> Context {
    let ContainerIdentity {
        engine,
        name,
        pod,
        namespace,
        image,
    } = identity;
    let resolved = record.decided.as_ref().map(|decided| &decided.resolved);
    let policy = resolved.map_or_else(|| "unconfined".to_owned(), |policy| policy.name.to_string());
    // Policies always have a JSON form, with their fields in one order.
    let text = resolved.and_then(|policy| serde_json::to_vec(policy).ok());
    Context {
        container: record.id.clone().into(),
        engine: Some(engine.into()),
        name: name.map(Into::into),
        image: image.map(Into::into),
        pod: pod.map(Into::into),
        namespace: namespace.map(Into::into),
        policy: Some(policy.into()),
        policy_hash: text.map(|text| crate::audit::hash(&text)).map(Into::into),
        learn: record.plan().is_some_and(|plan| plan.network.learns()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::signing::SigningPlan;
    use crate::plan::tests::sample;
    use crate::plan::{
        BindAccess, BindMount, ExecTime, FileKind, MappedIds, MountKind, MountReason, ProgramMode,
        SourceIdentity,
    };
    use crate::policy::SleepRule;

    fn bind(source: &str, access: BindAccess) -> PlannedMount {
        let bind = BindMount {
            source: source.into(),
            judged: SourceIdentity {
                dev: 1,
                ino: 2,
                kind: FileKind::Directory,
            },
            access,
            programs: ProgramMode::Run,
            ids: MappedIds::Node,
        };
        PlannedMount {
            destination: "/data".into(),
            kind: MountKind::Bind(bind),
            why: MountReason::Other,
        }
    }

    #[test]
    fn a_log_is_not_kept_where_the_container_may_write_it() {
        let is_written = |source, access| {
            let mounts = [bind("/srv", BindAccess::ReadWrite), bind(source, access)];
            written_over(Path::new(RUNS), &mounts).is_some()
        };
        let sources = [
            "/",
            "/var/lib",
            "/var/lib/agentbox/runs",
            "/var/lib/agentbox/runs/20260102T030405.678Z-c1",
        ];
        for source in sources {
            assert!(is_written(source, BindAccess::ReadWrite), "{source}");
            assert!(!is_written(source, BindAccess::ReadOnly), "{source}");
        }
        for source in ["/var/lib/agentbox/runs2", "/var/lib/docker", "/srv/runs"] {
            assert!(!is_written(source, BindAccess::ReadWrite), "{source}");
        }
    }

    /// The logs that are made at the start of a run, and those whose ends its last line names.
    fn logs(record: &Record) -> [Vec<&'static str>; 2] {
        let start = RunStart {
            context: Context::default(),
            events: Vec::new(),
            record,
        };
        [start.others().collect(), others(Some(record)).collect()]
    }

    #[test]
    fn a_run_has_the_logs_of_the_writers_that_it_has() {
        let walls = [audit::SIDECAR, audit::WARDEN];
        // Without walls no other process writes. The last line still names those that would be there.
        let unconfined = logs(&Record::bare("c1"));
        assert_eq!(unconfined, [vec![], walls.to_vec()]);
        let mut plan = sample();
        let none = Record::with_plan("c1", plan.clone());
        assert_eq!(logs(&none), [walls; 2].map(Vec::from));
        plan.network.signing = Some(SigningPlan {
            keys: Default::default(),
        });
        let signing = Record::with_plan("c1", plan.clone());
        let with_ssh = [audit::SIDECAR, audit::WARDEN, audit::SSH];
        assert_eq!(logs(&signing), [with_ssh; 2].map(Vec::from));
        let socket = "/run/postgresql/.s.PGSQL.5432".parse().unwrap();
        plan.network.sockets.insert(socket);
        let limit = ExecTime {
            limit: "2m".parse().unwrap(),
            grace: "5s".parse().unwrap(),
            sleep: SleepRule::Counts,
        };
        plan.time = Some(limit.of_one());
        let all = Record::with_plan("c1", plan);
        assert_eq!(logs(&all), [whole::OTHERS; 2].map(Vec::from));
        let unread: Vec<&str> = others(None).collect();
        assert_eq!(unread, whole::OTHERS, "a record that cannot be read");
    }
}
