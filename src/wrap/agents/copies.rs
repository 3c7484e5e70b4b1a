//! SHELL. What is copied into an agent's home for sandboxes, and taken away again when it is gone outside.
//!
//! The agent writes in its directories, so that each file is reached by descriptors and no link. Runs take turns.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::list::AgentDirectory;
use super::source::AgentFile;
use crate::audit::hash;
use crate::plan::wrap_plan::layer_of;
use crate::runtime::files::patiently;
use crate::wrap::error::WrapRefusal;
use crate::wrap::person::Person;
use crate::wrap::settings::own_dir::OwnDir;

/// What was copied: a [`CopyRecord`] by the path below the home.
const COPIED: &str = "copied.json";
/// A file that is not in its place yet. Only the holder of the lock has one.
const HALF: &str = ".half";
/// How often the lock of another run that copies is tried: ten seconds, with the pauses.
const TRIES: u32 = 2000;

/// A file to copy into a directory of the agent's.
pub struct AgentCopy {
    /// The directory's path below the home.
    pub directory: PathBuf,
    /// The file.
    pub file: AgentFile,
    /// When it is copied.
    pub when: CopyTime,
}

/// When a file is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyTime {
    /// Where it is missing.
    First,
    /// Likewise, and when the one outside has changed since.
    Changed,
}

/// A file that was copied: a login or a change of the agent's own in a sandbox stays until the user changes or removes the one outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CopyRecord {
    sha256: String,
    /// Where it was; `None` if it stays without that file.
    from: Option<PathBuf>,
    /// The directory of the agent's, below the home.
    directory: PathBuf,
}

/// What the home of an agent gets.
pub struct AgentCopies {
    own: OwnDir,
    /// What was copied before.
    copied: BTreeMap<PathBuf, CopyRecord>,
    /// What is copied now.
    pub files: Vec<AgentCopy>,
    /// Logins that are masked: the directory, and the file in it. A mask needs a file to lie on, also one that the agent would make.
    pub masked: Vec<(PathBuf, PathBuf)>,
}

impl AgentCopies {
    /// Those into this directory.
    pub fn of(own: OwnDir) -> Self {
        // No other program writes the file; without it all is copied once more.
        let text = std::fs::read(own.path().join(COPIED)).unwrap_or_default();
        Self {
            copied: serde_json::from_slice(&text).unwrap_or_default(),
            own,
            files: Vec::new(),
            masked: Vec::new(),
        }
    }

    /// The home.
    pub fn path(&self) -> &Path {
        self.own.path()
    }

    /// Makes a directory of the agent's where it is missing; its path without links.
    pub fn layer(&self, person: &Person, directory: &Path) -> Result<PathBuf> {
        let path = self.own.path().join(layer_of(directory));
        let step = || format!("make {path:?}: remove what is in its place");
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error).with_context(step),
        }
        let found = File::from(open_plain(&path).with_context(step)?);
        let found = found.metadata().with_context(step)?;
        match person.owns(&found) {
            true => Ok(path),
            false => Err(anyhow!(WrapRefusal::File {
                path,
                why: "must be your own".to_owned()
            })),
        }
    }

    /// Adds a file of the user's that is copied when it has changed.
    pub fn add(&mut self, directory: &AgentDirectory, file: AgentFile) {
        self.files.push(AgentCopy {
            directory: directory.path.clone(),
            file,
            when: CopyTime::Changed,
        });
    }

    /// Whether a directory of the agent's has a file that stays.
    pub fn has(&self, directory: &Path, name: &Path) -> bool {
        let stays = self
            .copied
            .get(&directory.join(name))
            .is_none_or(|copied| !copied.is_gone());
        let layer = open_plain(&self.own.path().join(layer_of(directory)));
        let kind = layer.and_then(|layer| kind_of(&layer, name));
        stays && kind == Ok(Some(FileType::RegularFile))
    }

    /// Copies in what has changed outside, and removes what is gone there. To be called with the user's rights over files.
    pub fn copy_in(&self, person: &Person) -> Result<()> {
        let own = open_plain(self.path()).with_context(|| format!("open {:?}", self.path()))?;
        take_turn(&own).with_context(|| format!("lock {:?}", self.path()))?;
        // Another run may have written since.
        let mut copied = Self::of(OwnDir::at(self.path().to_owned())).copied;
        let before = copied.clone();
        self.remove_gone(&own, &mut copied)?;
        for (directory, name) in &self.masked {
            let step = || self.step("hide", &directory.join(name));
            let layer = open_layer(&own, directory).with_context(step)?;
            match kind_of(&layer, name).with_context(step)? {
                Some(FileType::RegularFile | FileType::Directory) => {}
                Some(_) => bail!("{}: it is not a file", step()),
                None => put(&own, &layer, &empty(name)).with_context(step)?,
            }
        }
        for AgentCopy {
            directory,
            file,
            when,
        } in &self.files
        {
            let name = directory.join(&file.path);
            let step = || self.step("copy", &name);
            let layer = open_layer(&own, directory).with_context(step)?;
            let record = CopyRecord {
                sha256: hash(&file.content),
                from: (*when == CopyTime::Changed).then(|| file.from.clone()),
                directory: directory.clone(),
            };
            let is_there = !matches!(kind_of(&layer, &file.path), Ok(None) | Err(_));
            let is_known = copied
                .get(&name)
                .is_some_and(|known| known.sha256 == record.sha256);
            if !is_there || (*when == CopyTime::Changed && !is_known) {
                put(&own, &layer, file).with_context(step)?;
            } else if !is_known {
                continue;
            }
            copied.insert(name, record);
        }
        if copied == before {
            return Ok(());
        }
        self.own.put(
            person,
            &self.path().join(COPIED),
            &serde_json::to_vec(&copied)?,
        )
    }

    /// Removes copies of files that the user has removed: a login that was ended outside is ended in sandboxes, too.
    fn remove_gone(&self, own: &OwnedFd, copied: &mut BTreeMap<PathBuf, CopyRecord>) -> Result<()> {
        let is_given = |name: &PathBuf| {
            let mut files = self.files.iter();
            files.any(|copy| copy.directory.join(&copy.file.path) == *name)
        };
        let gone: Vec<_> = copied
            .iter()
            .filter(|(name, record)| record.is_gone() && !is_given(name))
            .map(|(name, record)| (name.clone(), record.directory.clone()))
            .collect();
        for (name, directory) in gone {
            let step = || self.step("remove", &name);
            let below = name.strip_prefix(&directory).with_context(step)?;
            match remove(own, &directory, below) {
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
                Err(error) => return Err(error).with_context(step),
            }
            copied.remove(&name);
        }
        Ok(())
    }

    fn step(&self, what: &str, name: &Path) -> String {
        format!(
            "{what} {name:?} for the agent: remove what is in its place in {:?}, or all of that",
            self.path()
        )
    }
}

impl CopyRecord {
    fn is_gone(&self) -> bool {
        let found = self.from.as_ref().map(|from| from.symlink_metadata());
        found.is_some_and(|found| found.is_err_and(|error| error.kind() == ErrorKind::NotFound))
    }
}

/// Waits until no other run copies: the lock ends with the descriptor.
fn take_turn(own: &OwnedFd) -> std::io::Result<()> {
    patiently(TRIES, || {
        rustix::fs::flock(own, FlockOperation::NonBlockingLockExclusive)
    })
}

fn empty(name: &Path) -> AgentFile {
    AgentFile {
        path: name.to_owned(),
        from: PathBuf::new(),
        content: Vec::new(),
        executable: false,
    }
}

/// Writes a file beside the agent's directories, where no sandbox sees it, and moves it in: what the agent has in its place, a link
/// too, is replaced and not followed.
fn put(own: &OwnedFd, layer: &OwnedFd, file: &AgentFile) -> Result<()> {
    let mode = if file.executable {
        Mode::RWXU
    } else {
        Mode::RUSR | Mode::WUSR
    };
    // That of a run that was killed.
    match rustix::fs::unlinkat(own, HALF, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut written = File::from(rustix::fs::openat(own, HALF, flags, mode)?);
    written.write_all(&file.content)?;
    let mut above = rustix::io::dup(layer)?;
    for part in file.path.parent().into_iter().flat_map(Path::components) {
        let part = Path::new(part.as_os_str());
        match rustix::fs::mkdirat(&above, part, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        above = open_below(&above, part)?;
    }
    let name = file.path.file_name().unwrap_or_default();
    Ok(rustix::fs::renameat(own, HALF, &above, name)?)
}

fn remove(own: &OwnedFd, directory: &Path, below: &Path) -> rustix::io::Result<()> {
    let layer = open_layer(own, directory)?;
    let above = below.parent().unwrap_or(Path::new(""));
    let above = match above.as_os_str().is_empty() {
        true => layer,
        false => open_below(&layer, above)?,
    };
    let name = below.file_name().unwrap_or_default();
    rustix::fs::unlinkat(&above, name, AtFlags::empty())
}

/// What is at a path, by no link but itself.
fn kind_of(layer: &OwnedFd, path: &Path) -> rustix::io::Result<Option<FileType>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let links = ResolveFlags::NO_SYMLINKS | ResolveFlags::BENEATH;
    match rustix::fs::openat2(layer, path, flags, Mode::empty(), links) {
        Ok(found) => {
            let mode = rustix::fs::fstat(&found)?.st_mode;
            Ok(Some(FileType::from_raw_mode(mode)))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

fn open_layer(own: &OwnedFd, directory: &Path) -> rustix::io::Result<OwnedFd> {
    open_below(own, Path::new(&layer_of(directory)))
}

/// A directory below another one, by no link.
fn open_below(at: &OwnedFd, path: &Path) -> rustix::io::Result<OwnedFd> {
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    rustix::fs::openat2(at, path, DIRECTORY, Mode::empty(), beneath)
}

/// A directory, by no link.
fn open_plain(path: &Path) -> rustix::io::Result<OwnedFd> {
    let links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, path, DIRECTORY, Mode::empty(), links)
}

const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;
    use crate::wrap::person::Environment;

    struct Home {
        base: PathBuf,
        person: Person,
    }

    impl Home {
        fn new() -> Self {
            let base = std::env::current_dir()
                .unwrap()
                .join("target/copies-XXXXXX");
            let base = nix::unistd::mkdtemp(&base).unwrap().canonicalize().unwrap();
            let person = Person {
                uid: rustix::process::geteuid().as_raw(),
                gid: rustix::process::getegid().as_raw(),
                groups: Vec::new(),
                account: None,
                environment: Environment::Changed,
            };
            fs::create_dir(base.join("outside")).unwrap();
            Self { base, person }
        }

        /// A run, for which these files are there outside, and these logins are masked.
        fn run(&self, given: &[&str], masked: &[&str]) -> Result<()> {
            let own = OwnDir::made(&self.base.join("own"), &self.person)?;
            let mut copies = AgentCopies::of(own);
            copies.layer(&self.person, Path::new(".claude"))?;
            for name in given {
                let from = self.base.join("outside").join(name);
                copies.files.push(AgentCopy {
                    directory: ".claude".into(),
                    file: AgentFile {
                        path: name.into(),
                        content: fs::read(&from).unwrap(),
                        from,
                        executable: false,
                    },
                    when: CopyTime::Changed,
                });
            }
            let masked = masked.iter().map(|name| (".claude".into(), name.into()));
            copies.masked.extend(masked);
            copies.copy_in(&self.person)
        }

        fn outside(&self, name: &str) -> PathBuf {
            self.base.join("outside").join(name)
        }

        fn inside(&self, name: &str) -> PathBuf {
            self.base.join("own/.claude").join(name)
        }
    }

    #[test]
    fn what_is_removed_outside_is_removed_inside_and_what_was_made_inside_stays() {
        let home = Home::new();
        fs::write(home.outside("login"), "token").unwrap();
        fs::write(home.outside("settings"), "{}").unwrap();
        home.run(&["login", "settings"], &[]).unwrap();
        assert_eq!(fs::read_to_string(home.inside("login")).unwrap(), "token");
        // Renewed inside, it stays until the one outside has changed or is gone.
        fs::write(home.inside("login"), "renewed").unwrap();
        home.run(&["login", "settings"], &[]).unwrap();
        assert_eq!(fs::read_to_string(home.inside("login")).unwrap(), "renewed");
        fs::write(home.inside("made"), "inside").unwrap();
        fs::remove_file(home.outside("login")).unwrap();
        home.run(&["settings"], &[]).unwrap();
        assert!(!home.inside("login").exists());
        assert!(home.inside("made").exists() && home.inside("settings").exists());
        // A login of the agent's own is none of the user's, whatever is gone.
        fs::write(home.inside("login"), "own").unwrap();
        home.run(&["settings"], &[]).unwrap();
        assert_eq!(fs::read_to_string(home.inside("login")).unwrap(), "own");
        // A file that is there, but is not given to this run, stays.
        home.run(&[], &[]).unwrap();
        assert!(home.inside("settings").exists());
        // No link of the agent's is followed.
        fs::create_dir_all(home.outside("skills")).unwrap();
        fs::write(home.outside("skills/one"), "1").unwrap();
        home.run(&["skills/one"], &[]).unwrap();
        fs::remove_dir_all(home.inside("skills")).unwrap();
        fs::create_dir(home.base.join("victim")).unwrap();
        fs::write(home.base.join("victim/one"), "1").unwrap();
        symlink(home.base.join("victim"), home.inside("skills")).unwrap();
        fs::remove_dir_all(home.outside("skills")).unwrap();
        home.run(&[], &[]).unwrap();
        assert!(home.base.join("victim/one").exists());
        // Nor does a record that a sandbox has left lead out of the home.
        for (name, directory) in [
            ("../victim/one", ".."),
            (".claude/../../victim/one", ".claude"),
        ] {
            let record = CopyRecord {
                sha256: String::new(),
                from: Some(home.outside("none")),
                directory: directory.into(),
            };
            let planted = BTreeMap::from([(PathBuf::from(name), record)]);
            let text = serde_json::to_vec(&planted).unwrap();
            fs::write(home.base.join("own").join(COPIED), text).unwrap();
            home.run(&[], &[]).unwrap_err();
            assert!(home.base.join("victim/one").exists(), "{name}");
        }
        fs::remove_dir_all(&home.base).unwrap();
    }

    #[test]
    fn a_masked_login_has_a_file_for_its_mask_and_no_link() {
        let home = Home::new();
        home.run(&[], &["login"]).unwrap();
        let made = fs::metadata(home.inside("login")).unwrap();
        assert_eq!((made.len(), made.mode() & 0o777), (0, 0o600));
        fs::write(home.inside("login"), "made inside").unwrap();
        home.run(&[], &["login"]).unwrap();
        fs::remove_file(home.inside("login")).unwrap();
        symlink("elsewhere", home.inside("login")).unwrap();
        let why = format!("{:#}", home.run(&[], &["login"]).unwrap_err());
        assert!(why.contains("remove what is in its place"), "{why}");
        assert!(!home.inside("elsewhere").exists());
        fs::remove_dir_all(&home.base).unwrap();
    }
}
