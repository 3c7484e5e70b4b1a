//! Finding runs, and reading their logs.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::chosen::{began, chosen};
use super::files::{self, Content};
use super::name::{BEFORE_ID, id_of};
use super::verified::{self, VERIFIED};
use super::{LINK, RunDir, RunLifetime, base, compare};
use crate::audit::whole::{self, Stage};
use crate::audit::{self, Context, EventDetail, Log, LogFault, LogLine};
use crate::render::identity::ContainerIdentity;
use crate::runtime::RuntimeError;
use crate::runtime::state::find;
use crate::runtime::state::identity;
use crate::runtime::state::record::{self, Record};
use crate::runtime::state::store::{self, ContainerPaths};
use crate::runtime::state::user_dirs::{self, DirUse};
use crate::sys::procfs;

/// A container's run, as found on disk.
#[derive(Debug, Clone)]
pub struct FoundRun {
    /// The newest run.
    pub run: RunDir,
    /// The container's id.
    pub id: String,
    /// The container's paths, while it exists.
    place: Option<ContainerPaths>,
    /// How many older runs of the same id are kept.
    pub earlier: usize,
}

/// The logs of a run.
#[derive(Debug, Clone, Default)]
pub struct Logs {
    /// One for each file that exists, or should exist.
    pub logs: Vec<Log>,
    /// Files of the run that differ from those in its log and its receipt.
    pub unlike: Vec<LogFault>,
}

impl FoundRun {
    /// A run of [`all`].
    pub fn of(run: &RunDir) -> Result<Self, RuntimeError> {
        let id = id_of(&run.name()).unwrap_or_default().to_owned();
        let dirs = store::with_id(&id)?;
        let own = dirs.iter().find(|dir| {
            let leads = std::fs::read_link(dir.join(LINK));
            leads.is_ok_and(|target| target == run.dir)
        });
        let root = own.and_then(|dir| record::root(dir));
        let place = root.and_then(|root| ContainerPaths::new(&root, &id).ok());
        Ok(Self {
            run: run.clone(),
            id,
            place,
            earlier: 0,
        })
    }

    /// The container's record, while the container exists.
    pub fn record_of_container(&self) -> Option<Result<Record, RuntimeError>> {
        let place = self.place.as_ref().filter(|_| self.is_there())?;
        Some(Record::read(&place.dir()))
    }

    /// Whether the container of this run still exists.
    pub fn is_there(&self) -> bool {
        let is_its = |place: &ContainerPaths| place.dir().exists() && RunDir::of(place) == self.run;
        self.place.as_ref().is_some_and(is_its)
    }

    /// The run's own logs, and those of its pod's sidecar, which are about all containers in that network.
    pub fn logs(&self) -> Result<Logs, RuntimeError> {
        // Read before the logs, which get their last line when the container is deleted.
        let mut logs = self.run.logs(self.stage())?;
        let record = match &self.place {
            Some(place) => Record::read(&place.dir()),
            None => self.run.record(),
        };
        let shared = record.ok().and_then(|record| {
            let first = record.shared_network()?.container.clone();
            Some((ContainerPaths::new(&record.root, &first).ok()?, first))
        });
        let Some((place, first)) = shared else {
            return Ok(logs);
        };
        let run = match place.dir().exists() {
            true => Some((RunDir::of(&place), Stage::There)),
            false => {
                // The newest that began before this run.
                let mut of_first = all()?
                    .into_iter()
                    .filter(|run| id_of(&run.name()) == Some(&first));
                let run = of_first.find(|run| run.started() <= self.run.started());
                run.map(|run| (run, Stage::Gone))
            }
        };
        if let Some((run, stage)) = run {
            let short: String = first.chars().take(12).collect();
            let theirs = run.logs(stage)?.logs.into_iter();
            logs.logs.extend(
                theirs
                    .filter(|log| log.file != audit::NODE)
                    .map(|log| log.of(&short)),
            );
        }
        Ok(logs)
    }

    fn stage(&self) -> Stage {
        match self.is_there() {
            true => Stage::There,
            false => Stage::Gone,
        }
    }

    /// Whether no other run's logs are read with it.
    pub fn is_alone(&self) -> bool {
        let record = self.run.record();
        !record.is_ok_and(|record| record.shared_network().is_some())
    }

    /// Bytes of its own logs; a change means new lines.
    pub fn size(&self) -> u64 {
        let sizes = audit::LOGS
            .iter()
            .filter_map(|name| self.run.file(name).metadata().ok());
        sizes.map(|metadata| metadata.len()).sum()
    }
}

impl Logs {
    /// All lines, in the order of time.
    pub fn lines(&self) -> Vec<&LogLine> {
        let mut lines: Vec<&LogLine> = self.logs.iter().flat_map(|log| &log.lines).collect();
        lines.sort_by(|a, b| a.time.cmp(&b.time));
        lines
    }

    /// The same without the attempts of `verify`, which are not the container's.
    pub fn without_verifys(&self) -> Vec<&LogLine> {
        let mut lines = self.lines();
        lines.retain(|line| !line.event.is_verifys());
        lines
    }

    /// The init process's exit status as a shell shows it, if known. The sidecar is not trusted for it: it reads the
    /// container's data.
    pub fn exit(&self) -> Option<i32> {
        let believed = self.logs.iter().filter(|log| log.file != audit::SIDECAR);
        let mut lines = believed.flat_map(|log| &log.lines);
        lines.find_map(|line| match &line.event.what {
            EventDetail::Container { exit, .. } => *exit,
            _ => None,
        })
    }

    /// The command of the init process. Only the runtime's log counts, whose first line has it.
    pub fn command(&self) -> Option<&audit::LoggedCommand> {
        let node = self.logs.iter().find(|log| log.file == audit::NODE)?;
        match &node.lines.first()?.event.what {
            EventDetail::Container { command, .. } => command.as_ref(),
            _ => None,
        }
    }

    /// Who the lines belong to.
    pub fn context(&self) -> Option<&Context> {
        let mut lines = self.logs.iter().flat_map(|log| &log.lines);
        lines.next().map(|line| &line.context)
    }

    /// All faults of the logs.
    pub fn faults(&self) -> Vec<&LogFault> {
        let of_logs = self.logs.iter().flat_map(|log| &log.faults);
        of_logs.chain(&self.unlike).collect()
    }
}

impl RunDir {
    /// Reads the logs, and checks each of them, how they fit together, and the receipt.
    pub(super) fn logs(&self, stage: Stage) -> Result<Logs, RuntimeError> {
        let mut logs = self.parsed()?;
        let has_begun = !logs.logs.is_empty() || self.file(record::FILE).exists();
        let is_bare = match (self.kept, stage) {
            // A container of a version without logs, or one whose directory is brand-new.
            (RunLifetime::GoesWithContainer, _) => logs.logs.is_empty(),
            (RunLifetime::Stays, Stage::There) => !has_begun,
            (RunLifetime::Stays, Stage::Gone) => false,
        };
        if !is_bare {
            whole::check(&mut logs.logs, stage);
        }
        if self.kept == RunLifetime::Stays {
            logs.unlike = compare::foreign(self, &logs.logs);
        }
        if stage == Stage::Gone {
            logs.unlike.extend(compare::faults(self)?);
            logs.unlike.extend(compare::unlike_log(self, &logs.logs));
            // While the container exists, its line may still come.
            logs.unlike.extend(self.unlike_report(&logs.logs)?);
        }
        Ok(logs)
    }

    /// Whether the log has the hash of `verify`'s report.
    fn unlike_report(&self, logs: &[Log]) -> Result<Option<LogFault>, RuntimeError> {
        let wanted = verified::last(logs).map(|(_, hash)| hash.to_owned());
        let found = match files::read(&self.file(VERIFIED))? {
            Content::Absent => None,
            Content::Bytes(text) => Some(audit::hash(&text)),
            Content::Foreign(why) => Some(why.to_owned()),
        };
        Ok(
            unlike(wanted.as_deref(), found.as_deref()).map(|why| LogFault {
                file: VERIFIED.to_owned(),
                line: 0,
                why: why.to_owned(),
            }),
        )
    }

    /// Its logs, as they are on disk.
    pub(super) fn parsed(&self) -> Result<Logs, RuntimeError> {
        let mut logs = Vec::new();
        for name in audit::LOGS {
            match files::read(&self.file(name))? {
                Content::Absent => {}
                Content::Bytes(text) => logs.push(Log::parse(name, &text)),
                Content::Foreign(why) => logs.push(Log::unread(name, why)),
            }
        }
        Ok(Logs {
            logs,
            ..Logs::default()
        })
    }

    /// The record that was saved with it.
    pub fn record(&self) -> Result<Record, RuntimeError> {
        Record::read(&self.dir)
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The name of its directory.
    pub fn name(&self) -> String {
        let name = self.dir.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// When it began, from its directory's name: `20260102T030405.678Z`.
    pub fn started(&self) -> String {
        self.name().chars().take(BEFORE_ID - 1).collect()
    }

    /// The names of its container, from its log.
    pub fn identity(&self, record: &Record) -> ContainerIdentity {
        match self.context() {
            Some(context) => identity_of(context),
            None => identity::of(record),
        }
    }

    pub(super) fn context(&self) -> Option<Context> {
        self.head().map(|line| line.context)
    }

    /// The first line of the runtime's log.
    pub(super) fn head(&self) -> Option<LogLine> {
        let file = files::open(&self.file(audit::NODE)).ok()?;
        let head = procfs::at_most(file, 64 << 10).ok()?;
        let line = head.split(|byte| *byte == b'\n').next()?;
        serde_json::from_slice(line).ok()
    }
}

/// The names in a line's context.
pub(super) fn identity_of(context: Context) -> ContainerIdentity {
    ContainerIdentity {
        engine: context.engine.unwrap_or_default().to_string(),
        name: context.name.map(|text| text.to_string()),
        pod: context.pod.map(|text| text.to_string()),
        namespace: context.namespace.map(|text| text.to_string()),
        image: context.image.map(|text| text.to_string()),
    }
}

/// All runs that are kept, the newest first.
pub fn all() -> Result<Vec<RunDir>, RuntimeError> {
    let Some(base) = base() else {
        return Ok(Vec::new());
    };
    user_dirs::check_way(&base, DirUse::Logs)?;
    let entries = match std::fs::read_dir(&base) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(RuntimeError::io(format!("read {base:?}"))(error)),
    };
    let names = entries
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| id_of(name).is_some()).collect();
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names
        .into_iter()
        .map(|name| kept_run(base.join(name)))
        .collect())
}

/// The run of this name, if it is kept.
pub fn named(name: &str) -> Result<Option<RunDir>, RuntimeError> {
    Ok(all()?.into_iter().find(|run| run.name() == name))
}

pub(super) fn kept_run(dir: PathBuf) -> RunDir {
    RunDir {
        dir,
        kept: RunLifetime::Stays,
    }
}

/// Finds a run by a container's id, name, or short id as engines show it. An existing container comes first, then the
/// start of a run, then the newest run of a deleted container. An ambiguous name is an error.
pub fn find(text: &str) -> Result<FoundRun, RuntimeError> {
    let runs = all()?;
    let names: Vec<String> = runs.iter().map(RunDir::name).collect();
    let there = find::container(text);
    if let Err(RuntimeError::Unknown(_)) = &there {
        let started = runs.iter().zip(&names);
        let started = started.filter(|(_, name)| began(name, text));
        let started: Vec<&RunDir> = started.map(|(run, _)| run).collect();
        match started[..] {
            [] => {}
            [only] => return FoundRun::of(only),
            _ => {
                let few: Vec<String> = started.iter().take(5).map(|run| run.name()).collect();
                let text = text.chars().take(80).collect();
                return Err(RuntimeError::Ambiguous(text, few.join(", ")));
            }
        }
    }
    let ids = || names.iter().filter_map(|name| id_of(name));
    match there {
        Ok(record) => {
            let place = ContainerPaths::new(&record.root, &record.id)?;
            let run = RunDir::of(&place);
            // A person chose this id: a deleted container may have it too, or have it for a name.
            if record.id == text && !find::is_of_engine(text) {
                chosen(text, &names, &runs)?;
            }
            let of_id = ids().filter(|id| *id == record.id).count();
            Ok(FoundRun {
                earlier: of_id.saturating_sub(usize::from(run.kept == RunLifetime::Stays)),
                run,
                id: record.id,
                place: Some(place),
            })
        }
        Err(RuntimeError::Unknown(_)) => {
            let at = chosen(text, &names, &runs)?;
            let at = at.and_then(|at| Some((runs.get(at)?, id_of(names.get(at)?)?, at + 1)));
            let (run, id, older) = at.ok_or_else(|| find::unknown_run(text, ids()))?;
            Ok(FoundRun {
                run: run.clone(),
                earlier: ids().skip(older).filter(|older| *older == id).count(),
                id: id.to_owned(),
                place: None,
            })
        }
        Err(error) => Err(error),
    }
}

/// What is wrong with a file whose hash the log has (`wanted`) or should have, if anything.
fn unlike(wanted: Option<&str>, found: Option<&str>) -> Option<&'static str> {
    match (wanted, found) {
        (wanted, found) if wanted == found => None,
        (Some(_), None) => Some("it is missing, and the log has its hash"),
        (None, Some(_)) => {
            Some("the log has no line of it: it was added, or `verify` was stopped in the middle")
        }
        _ => Some("its hash is not the one that the log has: it was changed since"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_missing_added_or_changed() {
        assert_eq!(unlike(None, None), None);
        assert_eq!(unlike(Some("a"), Some("a")), None);
        for (wanted, found, word) in [
            (Some("a"), None, "missing"),
            (None, Some("a"), "added"),
            (Some("a"), Some("b"), "changed"),
        ] {
            assert!(unlike(wanted, found).unwrap().contains(word), "{word}");
        }
    }

    #[test]
    fn a_run_is_known_by_its_start_with_and_without_milliseconds() {
        const NAME: &str = "20260102T030405.678Z-4b139df2fd23";
        for text in [
            "20260102T030405.678Z",
            "20260102T030405Z",
            "20260102T030405",
        ] {
            assert!(began(NAME, text), "{text}");
        }
        for text in [
            "",
            "2026",
            "20260102T03040",
            "20260102T030406",
            "20260102T030405.6",
            "20260102T030405.678",
            NAME,
        ] {
            assert!(!began(NAME, text), "{text}");
        }
        assert!(!began("short", "20260102T030405"));
    }
}
