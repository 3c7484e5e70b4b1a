//! SHELL. The directory of one run: HOME and TMPDIR of the command, and its generated files.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{CWD, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::path::Arg;

use super::rules::LandlockRule;
use super::split::judged;
use crate::audit;
use crate::enforce::program::ContainerProgram;
use crate::enforce::trust::TrustStore;
use crate::plan::trust::{ALL, AUTHORITY, TRUST_IN};
use crate::plan::{DecidedPlan, SourceIdentity};
use crate::policy::Tool;
use crate::wrap::agents::home::AgentHome;
use crate::wrap::error::WrapRefusal;
use crate::wrap::person::Person;

/// Variables that hold its directories for the command.
pub const OWN_VARIABLES: [&str; 4] = ["HOME", "TMPDIR", "TMP", "TEMP"];

const NAME: &str = "agentbox-wrap-";
const LOCK: &str = "lock";
/// HOME of the command.
const HOME: &str = "home";
/// TMPDIR of the command.
const TEMPORARY: &str = "tmp";
/// In HOME: the trusted certificates.
const TRUST: &str = ".agentbox";

/// What the command finds in its HOME.
pub struct RunHome {
    /// The configuration of git.
    pub git: String,
    /// What an agent is given.
    pub agent: Option<AgentHome>,
}

impl RunHome {
    /// The program that is executed.
    pub fn program(&self) -> ContainerProgram {
        AgentHome::program_of(self.agent.as_ref())
    }
}

/// A run's directory for temporary files, removed when dropped.
///
/// It is the user's, whose other processes may exchange it for another at any time. So it is made and removed with the
/// user's rights, since root would follow the user's links, and used by descriptor: by name, a link in its place would
/// lead the command's files, and the rules for them, elsewhere.
pub struct RunTempDir {
    dir: PathBuf,
    /// The directory itself, HOME and TMPDIR of the command.
    opened: File,
    home: File,
    temporary: File,
    person: Person,
    /// Held while in use: a process that gets the lock may remove the directory.
    _lock: File,
}

impl RunTempDir {
    /// Makes it below TMPDIR, and removes directories of killed runs.
    pub fn new(person: &Person) -> Result<Self> {
        person.looking(|| Self::make(person))?
    }

    fn make(person: &Person) -> Result<Self> {
        let base = std::env::temp_dir();
        let base = base
            .canonicalize()
            .with_context(|| format!("open the directory for temporary files {base:?} (TMPDIR)"))?;
        remove_abandoned(&base, person);
        let dir = nix::unistd::mkdtemp(&base.join(format!("{NAME}XXXXXX")))
            .with_context(|| format!("make a directory in {base:?}"))?;
        let opened = open_directory(CWD, &dir)?;
        let is_private = |meta: &fs::Metadata| person.owns(meta) && meta.mode() & 0o077 == 0;
        if !opened.metadata().is_ok_and(|meta| is_private(&meta)) {
            bail!("{dir:?} changed when it was made");
        }
        let lock = create(&opened, LOCK, OFlags::WRONLY)?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .with_context(|| format!("lock {dir:?}"))?;
        let own = |name: &str| {
            let step = || format!("make {:?}", dir.join(name));
            rustix::fs::mkdirat(&opened, name, Mode::RWXU).with_context(step)?;
            open_directory(opened.as_fd(), Path::new(name))
        };
        Ok(Self {
            home: own(HOME)?,
            temporary: own(TEMPORARY)?,
            opened,
            dir,
            person: person.clone(),
            _lock: lock,
        })
    }

    /// Refuses a directory that the command could write: it contains the log and the locks of other runs.
    pub fn check_outside(&self, rules: &[LandlockRule]) -> Result<()> {
        let mut written = rules.iter().filter(|rule| rule.access.writes());
        match written.find(|rule| self.dir.starts_with(&rule.path)) {
            Some(rule) => bail!(WrapRefusal::NotByLandlock(format!(
                "the directory for temporary files {:?} lies in {:?}, which the command may write: set TMPDIR to another",
                self.dir.parent().unwrap_or(&self.dir),
                rule.path
            ))),
            None => Ok(()),
        }
    }

    /// HOME of the command.
    pub fn home(&self) -> PathBuf {
        self.dir.join(HOME)
    }

    /// TMPDIR of the command.
    pub fn temporary(&self) -> PathBuf {
        self.dir.join(TEMPORARY)
    }

    /// The directories that the command writes, and which they must be.
    pub fn own(&self) -> Result<[(PathBuf, SourceIdentity); 2]> {
        let identity = |opened: &File| {
            let found = opened.metadata().ok().and_then(|meta| judged(&meta));
            found.context("look at the run's directory")
        };
        Ok([
            (self.home(), identity(&self.home)?),
            (self.temporary(), identity(&self.temporary)?),
        ])
    }

    /// Where the command's trusted certificates are.
    fn trust(&self) -> PathBuf {
        self.home().join(TRUST)
    }

    /// Writes the command's trusted certificates. No other file of the command can get the certificate of its own
    /// authority.
    pub fn keep_trust(&self, trust: &TrustStore) -> Result<()> {
        let all = trust.added_to(trust.nodes.as_bytes());
        let step = || format!("make {:?}", self.trust());
        rustix::fs::mkdirat(&self.home, TRUST, Mode::RWXU).with_context(step)?;
        let own = open_directory(self.home.as_fd(), Path::new(TRUST))?;
        for (name, text) in [(AUTHORITY, trust.authority.as_bytes()), (ALL, &all)] {
            write(&own, name, text)?;
        }
        Ok(())
    }

    /// Fills the command's HOME. An agent's directories are links in it, since nothing is mounted.
    pub fn fill_home(&self, content: &RunHome, environment: &mut [String]) -> Result<()> {
        write(&self.home, ".gitconfig", content.git.as_bytes())?;
        let Some(agent) = &content.agent else {
            return Ok(());
        };
        // By its descriptor, whatever has its name by now.
        let home = PathBuf::from(format!("/proc/self/fd/{}", self.home.as_raw_fd()));
        for (place, own) in &agent.mounts {
            let link = home.join(place.strip_prefix(&agent.inside).unwrap_or(place));
            let step = || format!("make the link {link:?}");
            fs::create_dir_all(link.parent().unwrap_or(&home)).with_context(step)?;
            std::os::unix::fs::symlink(&own.source, &link).with_context(step)?;
            for (name, _) in agent.variables.iter().filter(|(_, named)| named == place) {
                let named = environment
                    .iter_mut()
                    .filter(|pair| pair.split('=').next() == Some(name));
                let inside = self.home().join(link.strip_prefix(&home).unwrap_or(&link));
                named.for_each(|pair| *pair = format!("{name}={}", inside.display()));
            }
        }
        Ok(())
    }

    /// Changes variables that name trusted certificates to this directory. Under namespaces, mounts put the files in
    /// their place.
    pub fn lead_to_trust(&self, environment: &mut [String]) {
        let own = self.trust();
        for entry in environment {
            if let Some((name, value)) = entry.split_once('=')
                && let Ok(file) = Path::new(value).strip_prefix(TRUST_IN)
            {
                *entry = format!("{name}={}", own.join(file).display());
            }
        }
    }

    /// Where the bundle is made that the plan is made from, if the user makes it.
    pub fn bundle(&self) -> PathBuf {
        self.dir.join("bundle")
    }

    /// The fields of this run in each log line.
    pub fn context(&self, decided: &DecidedPlan) -> audit::Context {
        let text = serde_json::to_vec(&decided.resolved).ok();
        let name = self.dir.file_name().unwrap_or_default();
        audit::Context {
            container: name.to_string_lossy().into_owned().into(),
            engine: Some(Tool::WRAP.into()),
            policy: Some(decided.resolved.name.to_string().into()),
            policy_hash: text.map(|text| audit::hash(&text)).map(Into::into),
            // These walls refuse it.
            learn: false,
            ..audit::Context::default()
        }
    }

    /// Where the sidecar's log is.
    pub fn journal_path(&self) -> PathBuf {
        self.dir.join(audit::SIDECAR)
    }

    /// The sidecar's log.
    pub fn journal(&self) -> Result<File> {
        create(
            &self.opened,
            audit::SIDECAR,
            OFlags::WRONLY | OFlags::APPEND,
        )
    }
}

impl Drop for RunTempDir {
    fn drop(&mut self) {
        if let Err(error) = self.person.looking(|| remove(&self.dir)) {
            log::warn!("remove {:?}: {error}", self.dir);
        }
    }
}

/// Opens a directory, and no link to one.
fn open_directory(above: BorrowedFd<'_>, name: &Path) -> Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::fs::openat(above, name, flags, Mode::empty());
    Ok(opened.with_context(|| format!("open {name:?}"))?.into())
}

/// Makes a file in a directory; one that is there is an error, also a link.
fn create(directory: &File, name: &str, access: OFlags) -> Result<File> {
    let flags = access | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let made = rustix::fs::openat(directory, name, flags, Mode::RUSR | Mode::WUSR);
    Ok(made.with_context(|| format!("make {name:?}"))?.into())
}

/// Writes a new file in a directory.
fn write(directory: &File, name: &str, text: &[u8]) -> Result<()> {
    let written = create(directory, name, OFlags::WRONLY)?.write_all(text);
    written.with_context(|| format!("write {name:?}"))
}

/// Removes a run's directory. Its files belong to the current user, so missing permissions can be added.
fn remove(dir: &Path) {
    if fs::remove_dir_all(dir).is_ok() {
        return;
    }
    open_up(CWD, dir, 0);
    if let Err(error) = fs::remove_dir_all(dir) {
        log::warn!("remove {dir:?}: {error}");
    }
}

/// Adds permissions to directories, by descriptor and never again by path. A process that outlived its `wrap` may
/// replace a directory by a link at any time.
fn open_up(above: BorrowedFd<'_>, name: impl Arg, depth: usize) {
    const DEEPEST: usize = 64;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(found) = rustix::fs::openat(above, name, flags, Mode::empty()) else {
        return;
    };
    // fchmod(2) refuses O_PATH descriptors, and other kinds cannot open a directory without permissions.
    let itself = format!("/proc/self/fd/{}", found.as_raw_fd());
    if depth > DEEPEST || rustix::fs::chmod(itself, Mode::RWXU).is_err() {
        return;
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listed = rustix::fs::openat(&found, ".", flags, Mode::empty()).and_then(Dir::new);
    for entry in listed.into_iter().flatten().flatten() {
        let is_other = ![c".", c".."].contains(&entry.file_name());
        // Some file systems do not report an entry's type.
        let may_be_one = matches!(entry.file_type(), FileType::Directory | FileType::Unknown);
        if is_other && may_be_one {
            open_up(found.as_fd(), entry.file_name(), depth + 1);
        }
    }
}

/// Opens without blocking, for example on a FIFO.
fn open_lock(path: &Path) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    file.metadata().is_ok_and(|m| m.is_file()).then_some(file)
}

/// Removes directories of this user's killed runs.
fn remove_abandoned(base: &Path, person: &Person) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let is_ours = entry
            .file_name()
            .as_encoded_bytes()
            .starts_with(NAME.as_bytes())
            && fs::symlink_metadata(entry.path()).is_ok_and(|m| m.is_dir() && person.owns(&m));
        // A directory without a lock is still being made, or is not a run's: a run makes the lock at once.
        let lock = is_ours
            .then(|| open_lock(&entry.path().join(LOCK)))
            .flatten();
        let free = |lock| rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if lock.as_ref().is_some_and(free) {
            remove(&entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::enforce::open;
    use super::super::rules::{LandlockAccess, LandlockReason};
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn what_takes_the_place_of_home_gets_no_file_and_no_rule() {
        let place = RunTempDir::new(&Person::of_caller(Path::new("/")).unwrap()).unwrap();
        let own = place.own().unwrap();
        let (old, other) = (place.dir.join("old"), place.dir.join("other"));
        fs::rename(place.home(), &old).unwrap();
        fs::create_dir(&other).unwrap();
        std::os::unix::fs::symlink(&other, place.home()).unwrap();
        let content = RunHome {
            git: "text".to_owned(),
            agent: None,
        };
        place.fill_home(&content, &mut []).unwrap();
        assert!(fs::read_dir(&other).unwrap().next().is_none());
        assert_eq!(fs::read_to_string(old.join(".gitconfig")).unwrap(), "text");
        let rules = own.map(|(path, identity)| LandlockRule {
            path,
            judged: Some(identity),
            access: LandlockAccess::ReadWriteExecute,
            why: LandlockReason::Run,
            part: false,
        });
        let opened = rules.each_ref().map(|rule| open(rule).is_ok());
        // The control: TMPDIR is what it was.
        assert_eq!(opened, [false, true]);
    }

    #[test]
    fn what_is_opened_up_is_the_directory_and_never_what_a_link_names() {
        let base =
            nix::unistd::mkdtemp(&std::env::temp_dir().join("agentbox-test-XXXXXX")).unwrap();
        let (own, other) = (base.join("own"), base.join("other"));
        let closed = fs::Permissions::from_mode(0o500);
        for dir in [&own.join("a/b"), &other] {
            fs::create_dir_all(dir).unwrap();
        }
        std::os::unix::fs::symlink(&other, own.join("link")).unwrap();
        for dir in [&own.join("a/b"), &own.join("a"), &other] {
            fs::set_permissions(dir, closed.clone()).unwrap();
        }
        open_up(CWD, &own, 0);
        assert_eq!([mode(&own.join("a")), mode(&own.join("a/b"))], [0o700; 2]);
        assert_eq!(mode(&other), 0o500);
        // Nor if the name itself is a link, as when it was replaced after it was listed.
        open_up(CWD, own.join("link"), 0);
        assert_eq!(mode(&other), 0o500);
        // The control: chmod by path does change it.
        fs::set_permissions(own.join("link"), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(mode(&other), 0o700);
        fs::remove_dir_all(base).unwrap();
    }
}
