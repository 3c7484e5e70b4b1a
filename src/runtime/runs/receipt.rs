//! Receipts of runs: what is signed, by which key, and which parts of a receipt are still true.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ring::rand::SystemRandom;

use super::files::{self, Content};
use super::read::{FoundRun, Logs};
use super::verified::{self, VERIFIED};
use super::{FILTER, RunDir, base};
use crate::audit::receipt::{
    Envelope, LogPart, RunReceipt, SigningKey, Statement, Subject, Times, UNKNOWN, VerifyOutcome,
};
use crate::audit::whole::Stage;
use crate::audit::{self, EventDetail, LifeState, Log, LogFault, PlainText};
use crate::runtime::RuntimeError;
use crate::runtime::files::write_whole;
use crate::runtime::state::record::{self, Record};
use crate::runtime::state::store::ContainerPaths;
use crate::runtime::state::user_dirs::{self, DirUse};

/// In a run's directory.
pub const RECEIPT: &str = "receipt.json";
/// Beside the directory of runs.
const KEY: &str = "receipt.key";
/// A key's file is shorter.
const LONGEST_KEY: u64 = 4096;
/// A receipt names this many faults of a log, and counts the others.
const MOST_FAULTS: usize = 20;

/// The path of the caller's key.
pub fn key_path() -> Result<PathBuf, RuntimeError> {
    let base = base().ok_or_else(|| RuntimeError::Input {
        path: KEY.into(),
        why: "neither XDG_STATE_HOME nor HOME names a directory for it".to_owned(),
    })?;
    Ok(base.with_file_name(KEY))
}

/// The key that signs; `None` if there is none.
pub fn key() -> Result<Option<SigningKey>, RuntimeError> {
    let path = key_path()?;
    let refuse = |why: String| RuntimeError::Input {
        path: path.clone(),
        why,
    };
    let mut options = File::options();
    options
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC);
    let file = match options.open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(RuntimeError::io(format!("open {path:?}"))(error)),
    };
    check_way(&path)?;
    let stat = file
        .metadata()
        .map_err(RuntimeError::io(format!("look at {path:?}")))?;
    let own = rustix::process::geteuid().as_raw();
    if !stat.is_file() || stat.uid() != own || stat.mode() & 0o077 != 0 {
        return Err(refuse(format!(
            "it must belong to user {own} with mode 0600; its owner is {} and its mode {:o}: if other users have read it, \
             remove it and run `agentbox key`",
            stat.uid(),
            stat.mode() & 0o7777
        )));
    }
    let mut text = String::new();
    let read = file.take(LONGEST_KEY).read_to_string(&mut text);
    read.map_err(RuntimeError::io(format!("read {path:?}")))?;
    let key = SigningKey::from_pem(&text).map_err(|error| refuse(error.to_string()))?;
    Ok(Some(key))
}

/// Refuses a key that other users could replace.
fn check_way(path: &Path) -> Result<(), RuntimeError> {
    let above = path.parent().unwrap_or(path);
    Ok(user_dirs::check_way(above, DirUse::Logs)?)
}

/// Makes the key if there is none. The file appears complete or not at all, and never replaces another.
pub fn make_key() -> Result<SigningKey, RuntimeError> {
    if let Some(key) = key()? {
        return Ok(key);
    }
    let path = key_path()?;
    check_way(&path)?;
    let io = |step: &str| RuntimeError::io(format!("{step} {path:?}"));
    if let Some(above) = path.parent() {
        // As for the runs: other users may not look in, but can reach their own directories below.
        let mut maker = std::fs::DirBuilder::new();
        let made = maker.recursive(true).mode(0o711).create(above);
        made.map_err(RuntimeError::io(format!("make {above:?}")))?;
    }
    let key = SigningKey::generate(&SystemRandom::new()).map_err(|error| RuntimeError::Input {
        path: path.clone(),
        why: error.to_string(),
    })?;
    let new = path.with_extension(format!("new-{}", std::process::id()));
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o600);
    let written = options
        .open(&new)
        .and_then(|mut file| file.write_all(key.to_pem().as_bytes()).and(file.sync_all()));
    let made = written.and_then(|()| std::fs::hard_link(&new, &path));
    // Another call may have made one meanwhile: that one counts.
    let removed = std::fs::remove_file(&new);
    match made {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => made.and(removed).map_err(io("make"))?,
    }
    self::key()?.ok_or_else(|| io("open")(ErrorKind::NotFound.into()))
}

impl RunDir {
    /// The key that signs the receipt, if this node has one. An unusable key is a warning: the container is deleted all
    /// the same.
    pub(super) fn signs(&self, place: &ContainerPaths) -> Option<SigningKey> {
        key().unwrap_or_else(|error| {
            no_receipt(place, &error);
            None
        })
    }

    /// Signs the receipt. A failure is a warning, and `audit` reports the missing receipt.
    pub(super) fn sign(&self, place: &ContainerPaths, key: &SigningKey) {
        let signed = self.record().and_then(|record| {
            let envelope = self.receipt(key, &record, Stage::Gone, self.signed_faults()?)?;
            let text = serde_json::to_vec(&envelope).map_err(std::io::Error::from);
            let text = text.map_err(RuntimeError::io("write the receipt as JSON"))?;
            write_whole(&self.file(RECEIPT), &text)
        });
        if let Err(error) = signed {
            no_receipt(place, &error);
        }
    }

    /// The faults that the receipt of a deleted container names: all but the receipt's own absence.
    fn signed_faults(&self) -> Result<Vec<PlainText>, RuntimeError> {
        let logs = self.logs(Stage::Gone)?;
        let found = logs.faults().into_iter();
        let faults: Vec<&LogFault> = found.filter(|fault| fault.file != RECEIPT).collect();
        let named = faults.iter().take(MOST_FAULTS);
        let mut named: Vec<PlainText> = named.map(|fault| fault.to_string().into()).collect();
        if let more @ 1.. = faults.len().saturating_sub(MOST_FAULTS) {
            named.push(format!("{more} more").into());
        }
        Ok(named)
    }

    pub(super) fn keep_filter(&self, place: &ContainerPaths) -> Result<(), RuntimeError> {
        match std::fs::read(place.filter()) {
            Ok(program) => write_whole(&self.file(FILTER), &program),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(RuntimeError::io("read the container's filter")(error)),
        }
    }
}

fn no_receipt(place: &ContainerPaths, error: &RuntimeError) {
    let (id, why) = (place.id.as_str(), crate::log::chain(error));
    log::warn!("container {id} has no receipt: {why}");
}

/// The receipt that was signed at a run's end.
pub(super) fn kept_receipt(run: &RunDir) -> Result<Option<Envelope>, RuntimeError> {
    let path = run.file(RECEIPT);
    let parsed = match files::read(&path)? {
        Content::Absent => return Ok(None),
        Content::Bytes(text) => serde_json::from_slice(&text).map_err(|error| error.to_string()),
        Content::Foreign(why) => Err(why.to_owned()),
    };
    let parsed = parsed.map_err(|why| RuntimeError::Input { path, why });
    Ok(Some(parsed?))
}

/// The receipt of a run: the one signed at its end, or one that is signed now. `None`: there is none, and faulty logs are
/// not signed now, because their receipt would be taken for a proof of them.
pub fn of(found: &FoundRun, logs: &Logs) -> Result<Option<Envelope>, RuntimeError> {
    let run = &found.run;
    let is_whole = logs.faults().is_empty();
    match kept_receipt(run) {
        Ok(Some(kept)) => return Ok(Some(kept)),
        // An unreadable receipt is one of the faults.
        Ok(None) | Err(_) if !is_whole => return Ok(None),
        Ok(None) => {}
        Err(error) => return Err(error),
    }
    let key = key()?.ok_or_else(|| RuntimeError::Input {
        path: key_path().unwrap_or_else(|_| KEY.into()),
        why: "this node has no key to sign with: make one with `agentbox key`".to_owned(),
    })?;
    let (record, stage) = match found.record_of_container() {
        Some(record) => (record?, Stage::There),
        None => (run.record()?, Stage::Gone),
    };
    run.receipt(&key, &record, stage, Vec::new()).map(Some)
}

impl RunDir {
    fn receipt(
        &self,
        key: &SigningKey,
        record: &Record,
        stage: Stage,
        faults: Vec<PlainText>,
    ) -> Result<Envelope, RuntimeError> {
        let logs = self.parsed()?;
        let mut subjects = Vec::new();
        for log in &logs.logs {
            subjects.extend(self.subject(&log.file)?);
        }
        // The record of an existing container still changes.
        if stage == Stage::Gone {
            subjects.extend(self.subject(record::FILE)?);
            subjects.extend(self.subject(FILTER)?);
            subjects.extend(self.subject(VERIFIED)?);
        }
        let context = logs.context().cloned().unwrap_or_default();
        let image = context.image.as_deref().and_then(image_subject);
        subjects.extend(image);
        let plan = record.plan().map(serde_json::to_vec);
        let plan = plan.transpose().map_err(std::io::Error::from);
        let receipt = RunReceipt {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("AGENTBOX_COMMIT").unwrap_or(UNKNOWN).to_owned(),
            kernel: rustix::system::uname()
                .release()
                .to_string_lossy()
                .into_owned(),
            run: self.name(),
            container: context,
            plan: plan
                .map_err(RuntimeError::io("write the plan as JSON"))?
                .map(|plan| audit::hash(&plan)),
            log: logs.logs.iter().filter_map(part).collect(),
            faults,
            times: times(&logs.logs),
            exit: logs.exit(),
            verified: verified_of(&logs.logs),
        };
        let statement = serde_json::to_vec(&Statement::new(subjects, receipt));
        let statement = statement.map_err(std::io::Error::from);
        let statement = statement.map_err(RuntimeError::io("write the receipt as JSON"))?;
        Ok(Envelope::sign(&statement, key))
    }

    fn subject(&self, name: &str) -> Result<Option<Subject>, RuntimeError> {
        let path = self.file(name);
        match files::read(&path)? {
            Content::Bytes(content) => Ok(Some(Subject::of(name, &content))),
            Content::Absent => Ok(None),
            Content::Foreign(why) => Err(RuntimeError::Input {
                path,
                why: why.to_owned(),
            }),
        }
    }
}

/// The last result of `verify`, if it ran.
fn verified_of(logs: &[Log]) -> Option<VerifyOutcome> {
    let (line, _) = verified::last(logs)?;
    match line.event.what.clone() {
        EventDetail::Verified {
            result,
            held,
            not_held,
            not_tried,
            report,
        } => Some(VerifyOutcome {
            time: line.time.to_string(),
            result,
            held,
            not_held,
            not_tried,
            report,
        }),
        _ => None,
    }
}

/// An image with a digest in its name.
fn image_subject(image: &str) -> Option<Subject> {
    let (_, digest) = image.split_once("@sha256:")?;
    let is_digest = digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_digest.then(|| Subject {
        name: image.to_owned(),
        digest: [("sha256".to_owned(), digest.to_owned())].into(),
    })
}

fn part(log: &Log) -> Option<LogPart> {
    let mut counts = BTreeMap::new();
    for line in &log.lines {
        let (wall, verdict) = (line.event.wall.as_str(), line.event.verdict.as_str());
        let key = match line.event.is_verifys() {
            false => format!("{wall} {verdict}"),
            true => format!("verify: {wall} {verdict}"),
        };
        *counts.entry(key).or_default() += line.event.times();
    }
    Some(LogPart {
        end: log.head.clone()?,
        counts,
    })
}

fn times(logs: &[Log]) -> Times {
    let lines = || logs.iter().flat_map(|log| &log.lines);
    let first = |wanted: LifeState| {
        let is_it = |line: &&audit::LogLine| matches!(&line.event.what, EventDetail::Container { state, .. } if *state == wanted);
        lines().find(is_it).map(|line| line.time.to_string())
    };
    Times {
        created: first(LifeState::Created),
        started: first(LifeState::Started),
        ended: first(LifeState::Ended).or_else(|| first(LifeState::Deleted)),
        signed: chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_counts_by_its_digest_alone() {
        let digest = "0".repeat(64);
        let subject = image_subject(&format!("a.test/b@sha256:{digest}")).unwrap();
        assert_eq!(subject.digest["sha256"], digest);
        for image in ["a.test/b:1", "b@sha256:1", "b@sha256:"] {
            assert_eq!(image_subject(image), None, "{image}");
        }
    }
}
