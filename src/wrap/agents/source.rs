//! SHELL. What the user has of an agent outside of sandboxes. It is read by descriptors, and no link that a sandbox may have made is
//! followed: a command of an earlier run must not choose which file the next one is given.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::list::{AgentDirectory, AgentFirstFile};
use super::outside::named_by;
use crate::plan::keys::{LOOKED_AT, is_private};
use crate::plan::never::{NeverList, VisibleCredentials};
use crate::sys::user_namespace::{is_unmapped, owner};
use crate::wrap::person::Person;
use crate::wrap::planted;

/// Bytes of a login. Those of today's agents have some thousands.
const LONGEST_LOGIN: u64 = 1 << 20;
/// Bytes of a file of settings, and of one that an agent keeps about itself, with the history of all projects.
const LONGEST_FILE: u64 = 16 << 20;
/// Files of settings, and their bytes together: commands and skills are texts.
const MOST_FILES: usize = 1024;
const MOST_BYTES: usize = 32 << 20;
/// Files and directories that are looked at.
const MOST_ENTRIES: usize = 4 * MOST_FILES;
/// Directories one in the other.
const DEEPEST: usize = 8;

/// A file to copy.
#[derive(Debug, PartialEq, Eq)]
pub struct AgentFile {
    /// Below the agent's directory.
    pub path: PathBuf,
    /// Where it is outside.
    pub from: PathBuf,
    /// Its content.
    pub content: Vec<u8>,
    /// Whether its owner may execute it.
    pub executable: bool,
}

/// A directory of the user's in which an agent keeps its files.
pub struct AgentSource<'a> {
    person: &'a Person,
    /// Without links.
    path: PathBuf,
}

impl<'a> AgentSource<'a> {
    /// The directory outside, if it is there: the one that the agent's variable names, or that in the home. An error is a reason.
    pub fn of(
        person: &'a Person,
        home: &Path,
        directory: &AgentDirectory,
    ) -> Result<Option<Self>, String> {
        let path = named_by(person, directory).unwrap_or_else(|| home.join(&directory.path));
        let path = planted::named(&path, person).map_err(|error| format!("{path:?}: {error}"))?;
        Ok(path.is_dir().then_some(Self { person, path }))
    }

    /// A login; `None` where there is none. An error if another user may have chosen its content.
    pub fn login(&self, name: &Path) -> Result<Option<AgentFile>, String> {
        let path = self.path.join(name);
        let refused = |why: &str| Err(format!("{path:?} {why}"));
        let file = match open(CWD, &path) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return refused("is a link: put the file itself there"),
            Err(error) => return refused(&format!("cannot be opened: {error}")),
        };
        let found = file
            .metadata()
            .map_err(|error| format!("{path:?}: {error}"))?;
        if !found.is_file() {
            return refused("is no file");
        }
        if !self.person.owns(&found) {
            return refused("is another user's: it must be your own");
        }
        if found.mode() & 0o022 != 0 {
            return refused("can be written by other users: chmod go-w it");
        }
        match content(file, LONGEST_LOGIN) {
            Ok(Some(content)) => Ok(Some(AgentFile {
                path: name.to_owned(),
                from: path,
                content,
                executable: false,
            })),
            Ok(None) => refused(&format!("is longer than {} KiB", LONGEST_LOGIN >> 10)),
            Err(error) => refused(&format!("cannot be read: {error}")),
        }
    }

    /// A file or directory of settings, with all files in it; to `skipped` goes what is not copied, and why.
    pub fn settings(&self, name: &Path, skipped: &mut Vec<String>) -> Vec<AgentFile> {
        let mut tree = SettingsTree {
            person: self.person,
            top: &self.path,
            files: Vec::new(),
            bytes: 0,
            seen: 0,
            skipped,
        };
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        if let Ok(top) = rustix::fs::openat2(CWD, &self.path, flags, Mode::empty(), links) {
            tree.add(top.as_fd(), name.to_owned(), 0);
        }
        tree.files
    }
}

/// What of a file that an agent keeps about itself is copied, if there is one. What is no JSON object has nothing to copy.
pub fn first(
    person: &Person,
    home: &Path,
    directory: &AgentDirectory,
    one: &AgentFirstFile,
) -> Option<AgentFile> {
    let path = match named_by(person, directory) {
        Some(named) => named.join(&one.path),
        None => home.join(&one.in_home),
    };
    let above = planted::named(path.parent()?, person).ok()?;
    let file = open(CWD, &above.join(path.file_name()?)).ok()?;
    let is_own = file
        .metadata()
        .is_ok_and(|found| found.is_file() && person.owns(&found));
    let content = content(file, LONGEST_FILE)
        .ok()
        .flatten()
        .filter(|_| is_own)?;
    Some(AgentFile {
        path: one.path.clone(),
        from: path,
        content: only(&content, &one.keys)?,
        executable: false,
    })
}

/// A JSON object with no other keys than these.
fn only(text: &[u8], keys: &[String]) -> Option<Vec<u8>> {
    let mut all: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(text).ok()?;
    all.retain(|key, _| keys.contains(key));
    serde_json::to_vec(&all).ok().filter(|_| !all.is_empty())
}

/// Files of settings, and what is left of the bounds.
struct SettingsTree<'a> {
    person: &'a Person,
    top: &'a Path,
    files: Vec<AgentFile>,
    bytes: usize,
    seen: usize,
    skipped: &'a mut Vec<String>,
}

impl SettingsTree<'_> {
    fn add(&mut self, above: BorrowedFd<'_>, path: PathBuf, depth: usize) {
        let Some(name) = path.file_name() else {
            return;
        };
        let file = match open(above, Path::new(name)) {
            Ok(file) => file,
            Err(Errno::NOENT) => return,
            Err(Errno::LOOP) => return self.skip(&path, "it is a link"),
            Err(error) => return self.skip(&path, &error.to_string()),
        };
        let Ok(found) = file.metadata() else {
            return;
        };
        // Without root's rights a stranger's file is shown like root's.
        let is_known = self.person.owns(&found) || !is_unmapped(found.uid());
        let owner = is_known.then(|| owner(found.uid()));
        if let Some(why) = doubt(self.person, owner, found.gid(), found.mode()) {
            return self.skip(&path, why);
        }
        self.seen += 1;
        if self.seen > MOST_ENTRIES || self.files.len() >= MOST_FILES {
            return self.skip(&path, "there is too much");
        }
        if found.is_dir() {
            return match credential(&self.top.join(&path), found.mode(), None) {
                Some(why) => self.skip(&path, why),
                None => self.add_all(&file.into(), &path, depth),
            };
        }
        if !found.is_file() {
            return;
        }
        let left = MOST_BYTES.saturating_sub(self.bytes) as u64;
        match content(file, LONGEST_FILE.min(left)) {
            Ok(Some(content)) => {
                let real = self.top.join(&path);
                if let Some(why) = credential(&real, found.mode(), Some(&content)) {
                    return self.skip(&path, why);
                }
                self.bytes += content.len();
                let executable = found.mode() & 0o100 != 0;
                self.files.push(AgentFile {
                    from: self.top.join(&path),
                    path,
                    content,
                    executable,
                });
            }
            Ok(_) => self.skip(&path, "there is too much"),
            Err(error) => self.skip(&path, &error.to_string()),
        }
    }

    fn add_all(&mut self, directory: &OwnedFd, path: &Path, depth: usize) {
        if depth >= DEEPEST {
            return self.skip(path, "it is too deep");
        }
        let entries = Dir::read_from(directory);
        let mut left = MOST_FILES;
        for entry in entries.into_iter().flatten().flatten() {
            let name = Path::new(std::ffi::OsStr::new(
                entry.file_name().to_str().unwrap_or(".."),
            ));
            if [Path::new("."), Path::new("..")].contains(&name) {
                continue;
            }
            if left == 0 {
                let path = self.top.join(path);
                return self.skipped.push(format!(
                    "{path:?} is copied in part: it has more than {MOST_FILES} entries"
                ));
            }
            left -= 1;
            self.add(directory.as_fd(), path.join(name), depth + 1);
        }
    }

    fn skip(&mut self, path: &Path, why: &str) {
        self.skipped
            .push(format!("{:?} is not copied: {why}", self.top.join(path)));
    }
}

/// Why others than the user and root may have written a file or directory of settings; `None` if none has. `owner` is
/// `None` if it is not known.
fn doubt(person: &Person, owner: Option<u32>, gid: u32, mode: u32) -> Option<&'static str> {
    if owner != Some(person.uid) && owner != Some(0) {
        return Some("it is another user's");
    }
    // The user's own group is often theirs alone, and has umask 002.
    let by_group = mode & 0o020 != 0 && gid != person.gid;
    (by_group || mode & 0o002 != 0).then_some("other users can write it")
}

/// Why a directory, or a file with this content, is hidden in every mount; `None` if it is not.
fn credential(path: &Path, mode: u32, content: Option<&[u8]>) -> Option<&'static str> {
    let (never, none) = (NeverList::builtin(), VisibleCredentials::new());
    let by_name = never.credential(path, &none);
    let Some(content) = content else {
        return by_name;
    };
    let is_harmless = never.settings.is_one(path) && never.settings.are_harmless(path, content);
    let beginning = content.get(..LOOKED_AT).unwrap_or(content);
    let is_key = never.keys.may_be(path, mode, &none) && is_private(beginning);
    by_name
        .filter(|_| !is_harmless)
        .or_else(|| is_key.then_some(never.keys.why.as_str()))
}

/// Opens a file or directory by no link, and without waiting, as for the other end of a pipe.
fn open(at: impl AsFd, path: &Path) -> Result<File, Errno> {
    let flags =
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW;
    let links = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(at, path, flags, Mode::empty(), links).map(File::from)
}

/// The content, unless it is longer.
fn content(file: File, most: u64) -> std::io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    file.take(most + 1).read_to_end(&mut content)?;
    Ok((content.len() as u64 <= most).then_some(content))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;
    use crate::wrap::person::Environment;

    fn person() -> Person {
        Person {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            groups: Vec::new(),
            account: None,
            environment: Environment::Changed,
        }
    }

    fn base() -> PathBuf {
        let base = std::env::temp_dir().join("agentbox-test-XXXXXX");
        nix::unistd::mkdtemp(&base).unwrap().canonicalize().unwrap()
    }

    #[test]
    fn a_login_is_the_users_own_file_and_no_link() {
        let (base, person) = (base(), person());
        let source = AgentSource {
            person: &person,
            path: base.clone(),
        };
        let path = base.join("auth.json");
        let login = || source.login(Path::new("auth.json"));
        assert_eq!(login(), Ok(None));
        let mode = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        fs::write(&path, "token").unwrap();
        mode(0o600);
        assert_eq!(login().unwrap().unwrap().content, b"token");
        let refused = |word: &str| {
            let why = login().unwrap_err();
            assert!(why.contains(word), "{word}: {why}");
        };
        mode(0o620);
        refused("chmod go-w");
        mode(0o600);
        fs::write(&path, vec![b'x'; LONGEST_LOGIN as usize + 1]).unwrap();
        refused("longer than 1024 KiB");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        refused("is no file");
        fs::remove_dir(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        refused("is no file");
        fs::remove_file(&path).unwrap();
        fs::write(base.join("other"), "secret").unwrap();
        symlink("other", &path).unwrap();
        refused("is a link");
        let stranger = Person {
            uid: person.uid + 1,
            ..person.clone()
        };
        fs::remove_file(&path).unwrap();
        fs::write(&path, "token").unwrap();
        let source = AgentSource {
            person: &stranger,
            path: base.clone(),
        };
        let why = source.login(Path::new("auth.json")).unwrap_err();
        assert!(why.contains("another user's"), "{why}");
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn settings_are_files_without_links() {
        let (base, person) = (base(), person());
        fs::create_dir_all(base.join("skills/a")).unwrap();
        fs::write(base.join("skills/a/run.sh"), "#!").unwrap();
        fs::set_permissions(
            base.join("skills/a/run.sh"),
            fs::Permissions::from_mode(0o755),
        )
        .unwrap();
        fs::write(base.join("settings.json"), "{}").unwrap();
        fs::write(base.join("secret"), "secret").unwrap();
        symlink("../secret", base.join("skills/link")).unwrap();
        symlink("..", base.join("skills/a/up")).unwrap();
        let source = AgentSource {
            person: &person,
            path: base.clone(),
        };
        let mut skipped = Vec::new();
        let all = source.settings(Path::new("skills"), &mut skipped);
        let [file] = &all[..] else { panic!("{all:?}") };
        assert_eq!(
            (file.path.as_path(), file.executable),
            (Path::new("skills/a/run.sh"), true)
        );
        assert_eq!(skipped.len(), 2, "{skipped:?}");
        let all = source.settings(Path::new("settings.json"), &mut skipped);
        assert_eq!((all.len(), all[0].executable), (1, false));
        assert!(
            source
                .settings(Path::new("missing"), &mut skipped)
                .is_empty()
        );
        assert_eq!(skipped.len(), 2, "{skipped:?}");
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn settings_that_other_users_can_write_are_not_copied() {
        let alice = Person {
            uid: 1000,
            gid: 1000,
            ..person()
        };
        let (strangers, written) = (
            Some("it is another user's"),
            Some("other users can write it"),
        );
        for (owner, gid, mode, expected) in [
            (Some(1000), 1000, 0o100644, None),
            (Some(1000), 1000, 0o040755, None),
            (Some(1000), 100, 0o100640, None),
            (Some(0), 0, 0o100755, None),
            // The user's own group.
            (Some(1000), 1000, 0o100664, None),
            (Some(1000), 100, 0o100664, written),
            (Some(0), 0, 0o100664, written),
            (Some(1000), 1000, 0o100646, written),
            (Some(0), 0, 0o041777, written),
            (Some(1001), 1000, 0o100600, strangers),
            (None, 1000, 0o100600, strangers),
        ] {
            let found = doubt(&alice, owner, gid, mode);
            assert_eq!(found, expected, "{owner:?} {gid} {mode:o}");
        }
    }

    #[test]
    fn settings_are_bounded_in_number_and_depth_and_the_user_is_told() {
        let (base, person) = (base(), person());
        let deep = ["d"; DEEPEST].join("/");
        fs::create_dir_all(base.join("deep").join(&deep)).unwrap();
        fs::write(base.join("deep").join(&deep).join("hidden"), "").unwrap();
        fs::write(base.join("deep/d/near"), "").unwrap();
        for directory in ["many/a", "many/b"] {
            fs::create_dir_all(base.join(directory)).unwrap();
            for at in 0..MOST_FILES / 2 + 1 {
                fs::write(base.join(directory).join(at.to_string()), "").unwrap();
            }
        }
        let source = AgentSource {
            person: &person,
            path: base.clone(),
        };
        let mut skipped = Vec::new();
        let all = source.settings(Path::new("deep"), &mut skipped);
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(
            matches!(&skipped[..], [one] if one.ends_with("is not copied: it is too deep")),
            "{skipped:?}"
        );
        skipped.clear();
        let all = source.settings(Path::new("many"), &mut skipped);
        assert_eq!(all.len(), MOST_FILES);
        assert_eq!(skipped.len(), 2, "{skipped:?}");
        let too_much = |why: &String| why.ends_with("is not copied: there is too much");
        assert!(skipped.iter().all(too_much), "{skipped:?}");
        // One directory with as many entries is whole, and with one more the user is told.
        for at in 0..MOST_FILES {
            let path = base.join("wide").join(at.to_string());
            fs::create_dir_all(&path).unwrap();
        }
        skipped.clear();
        source.settings(Path::new("wide"), &mut skipped);
        assert!(skipped.is_empty(), "{skipped:?}");
        fs::write(base.join("wide/more"), "").unwrap();
        source.settings(Path::new("wide"), &mut skipped);
        assert!(
            matches!(&skipped[..], [one] if one.ends_with("is copied in part: it has more than 1024 entries")),
            "{skipped:?}"
        );
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn settings_that_every_mount_hides_are_not_copied() {
        let (base, person) = (base(), person());
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\n";
        for (path, text) in [
            ("skills/a/.netrc", "machine x"),
            ("skills/a/.aws/credentials", "key"),
            ("skills/a/id_ed25519", key),
            ("skills/a/.npmrc", "//registry.example/:_authToken=x"),
            // None are these.
            ("skills/b/.npmrc", "engine-strict=true\n"),
            ("skills/b/id_rsa.md", "how to make one"),
            ("skills/b/SKILL.md", key),
        ] {
            fs::create_dir_all(base.join(path).parent().unwrap()).unwrap();
            fs::write(base.join(path), text).unwrap();
        }
        let source = AgentSource {
            person: &person,
            path: base.clone(),
        };
        let mut skipped = Vec::new();
        let all = source.settings(Path::new("skills"), &mut skipped);
        let mut names: Vec<_> = all.iter().filter_map(|file| file.path.to_str()).collect();
        names.sort_unstable();
        let harmless = ["skills/b/.npmrc", "skills/b/SKILL.md", "skills/b/id_rsa.md"];
        assert_eq!(names, harmless);
        assert_eq!(skipped.len(), 4, "{skipped:?}");
        fs::remove_dir_all(base).unwrap();
    }

    #[test]
    fn of_an_agents_own_file_no_other_key_is_copied() {
        let text = br#"{"theme":"dark","mcpServers":{"a":{"env":{"TOKEN":"x"}}},"projects":{}}"#;
        let keys = ["theme".to_owned(), "userID".to_owned()];
        assert_eq!(only(text, &keys).unwrap(), br#"{"theme":"dark"}"#);
        for none in [&b"{}"[..], b"[]", b"no", br#"{"projects":{}}"#] {
            assert_eq!(only(none, &keys), None);
        }
    }
}
