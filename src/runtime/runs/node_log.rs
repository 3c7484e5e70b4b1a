//! The log of the runtime's own verbs, `node.jsonl`: each verb adds its lines and exits.
//!
//! Several verbs may run at once. So each locks the file, continues the chain after its last line, and writes its lines
//! in one go. An incomplete last line was never acknowledged, and is cut off. Nothing here waits long, and no failure
//! fails a verb: a line that cannot be written is one warning in the runtime's log.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::FlockOperation;

use super::name::id_of;
use super::{RUN, RunDir, RunLifetime, RunStart, files};
use crate::audit::{
    self, Chain, Context, Event, EventDetail, LifeState, LogHead, LogLine, Verdict, WallName, whole,
};
use crate::runtime::files::patiently;

/// The file's limit in bytes, and the part that is reserved for decisions and the last lines.
const MOST_BYTES: u64 = 1 << 20;
const RESERVED: u64 = 256 << 10;
/// The longest line: the last one is searched in the last bytes of the file.
const TAIL: u64 = 64 << 10;
/// How often a lock is tried that another verb holds.
const TRIES: u32 = 40;

impl RunDir {
    /// Adds the first lines, which name the container.
    pub(super) fn begin_log(&self, first: &RunStart<'_>) -> io::Result<()> {
        let mut events = first.events.clone();
        if self.kept == RunLifetime::Stays
            && let Some(EventDetail::Container { kept, .. }) =
                events.first_mut().map(|e| &mut e.what)
        {
            // It tells two runs of one container apart.
            kept.insert(RUN.into(), audit::hash(self.name().as_bytes()).into());
        }
        self.append(Some(&first.context), events)
    }

    /// Adds lines to the log of an existing container.
    pub fn note(&self, events: Vec<Event>) {
        self.warn_of(self.append(None, events));
    }

    /// Whether it has the line of the deletion, its last one.
    pub(super) fn is_over(&self) -> bool {
        let file = files::open(&self.file(audit::NODE));
        let end = file.and_then(|file| end_of(&file, file.metadata()?.len()));
        end.is_ok_and(|end| end.is_over)
    }

    /// Adds a line about a change in the container's life.
    pub fn note_life(&self, state: LifeState) {
        self.note(vec![life(EventDetail::life(state))]);
    }

    pub(super) fn warn_of(&self, written: io::Result<()>) {
        if let Err(error) = written {
            // A container of an older version has no log.
            if error.kind() == io::ErrorKind::NotFound
                && self.kept == RunLifetime::GoesWithContainer
            {
                return log::debug!("{:?}: {error}", self.file(audit::NODE));
            }
            let path = self.file(audit::NODE);
            log::warn!(
                "the log {path:?} lacks this: {error}; the container's walls stand as always"
            );
        }
    }

    /// Who the log belongs to if its first line was removed, which `audit` reports.
    pub(super) fn whose(&self) -> Context {
        let name = self.name();
        Context {
            container: id_of(&name).unwrap_or_default().into(),
            ..Context::default()
        }
    }

    fn append(&self, context: Option<&Context>, events: Vec<Event>) -> io::Result<()> {
        let mut options = File::options();
        // Do not make the file when continuing a log: the run may have been removed.
        options
            .read(true)
            .append(true)
            .create(context.is_some())
            .mode(0o600);
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC);
        let file = options.open(self.file(audit::NODE))?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        lock(&file)?;
        let length = file.metadata()?.len();
        let End {
            mut chain,
            whole,
            is_over,
        } = end_of(&file, length)?;
        if is_over {
            // A deletion that failed after this line is tried again.
            log::debug!("the log {:?} has its last line", self.file(audit::NODE));
            return Ok(());
        }
        if whole < length {
            file.set_len(whole)?;
        }
        let found;
        let context = match context {
            Some(context) => context,
            None => {
                found = first_context(&file)?.unwrap_or_else(|| self.whose());
                &found
            }
        };
        let time = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let mut text = Vec::new();
        for event in events {
            let line = chain.render(&time, context, &event);
            let most = most(&event);
            if whole + (text.len() + line.len()) as u64 <= most {
                chain.commit(&line);
                text.extend(line);
            } else {
                log::debug!("the log {:?} is full", self.file(audit::NODE));
            }
        }
        let written = io::Write::write_all(&mut &file, &text);
        // All or nothing: half a line would look like tampering.
        written.or_else(|error| file.set_len(whole).and(Err(error)))
    }
}

/// The file size up to which this event still gets a line. Endless signals or exec processes leave room for decisions,
/// and nothing uses up the room of the last lines.
fn most(event: &Event) -> u64 {
    match &event.what {
        EventDetail::Container {
            state: LifeState::Ended | LifeState::Deleted,
            ..
        }
        | EventDetail::Limit { .. } => MOST_BYTES,
        EventDetail::Approval { .. } | EventDetail::Rules { .. } => MOST_BYTES - RESERVED / 2,
        _ => MOST_BYTES - RESERVED,
    }
}

/// An event of the container's life.
pub fn life(what: EventDetail) -> Event {
    let verdict = match &what {
        EventDetail::Container {
            state: LifeState::Ended | LifeState::Deleted,
            ..
        } => Verdict::Ended,
        _ => Verdict::Noted,
    };
    Event::new(WallName::Life, verdict, what)
}

fn lock(file: &File) -> io::Result<()> {
    let take = || rustix::fs::fcntl_lock(file.as_fd(), FlockOperation::NonBlockingLockExclusive);
    patiently(TRIES, take)
}

/// Where a log continues.
struct End {
    chain: Chain,
    /// Its length up to the last complete line.
    whole: u64,
    /// Whether the last line is the deletion's.
    is_over: bool,
}

fn end_of(file: &File, length: u64) -> io::Result<End> {
    let from = length.saturating_sub(TAIL);
    let mut tail = vec![0; usize::try_from(length - from).unwrap_or_default()];
    file.read_exact_at(&mut tail, from)?;
    let Some(end) = tail.iter().rposition(|byte| *byte == b'\n') else {
        // Empty, or an incomplete first line.
        return Ok(End {
            chain: Chain::default(),
            whole: 0,
            is_over: false,
        });
    };
    let begin = tail[..end].iter().rposition(|byte| *byte == b'\n');
    let text = &tail[begin.map_or(0, |begin| begin + 1)..end];
    let line = serde_json::from_slice::<LogLine>(text).ok();
    let deleted = |line: &LogLine| matches!(&line.event.what, EventDetail::Container { state, .. } if *state == LifeState::Deleted);
    Ok(End {
        is_over: line.as_ref().is_some_and(deleted),
        chain: Chain::after(line.map(|line| line.seq).unwrap_or_default(), text),
        whole: from + end as u64 + 1,
    })
}

/// The end of a log that another process wrote, up to its last complete line.
pub(super) fn head(path: &Path, name: &str) -> LogHead {
    let end = files::open(path).and_then(|file| end_of(&file, file.metadata()?.len()));
    match end {
        Ok(End { chain, .. }) => LogHead {
            file: name.into(),
            seq: chain.seq(),
            head: chain.head().into(),
        },
        // It never existed, or is not a file any more: `audit` reports it.
        Err(_) => whole::no_line(name),
    }
}

/// Who the log belongs to, from its first line.
fn first_context(file: &File) -> io::Result<Option<Context>> {
    let mut head = vec![0; TAIL as usize];
    let length = file.read_at(&mut head, 0)?;
    let line = head[..length].split(|byte| *byte == b'\n').next();
    let line = serde_json::from_slice::<LogLine>(line.unwrap_or_default());
    Ok(line.ok().map(|line| line.context))
}
