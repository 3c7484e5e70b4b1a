//! SHELL. Paths that the user named: `--read`, `--write`, `--hide`.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rustix::fs::{AtFlags, CWD, StatxFlags};

use super::error::WrapRefusal;
use super::layout::Layout;
use super::machine_sockets::is_offered;
use super::person::Person;
use super::planted;
use super::request::WrapRequest;
use crate::cli::Walls;
use crate::kernel::mountinfo::MountTable;
use crate::plan::BindAccess;
use crate::plan::never::NeverList;
use crate::plan::signing::SSH_VARIABLE;
use crate::plan::wrapped::over_ceiling;
use crate::policy::connect::ServiceSocket;
use crate::policy::{ResolvedPolicy, typed_path};
use crate::probe::is_home;
use crate::sys::user_namespace::owner;

impl WrapRequest {
    /// With the file of settings that has the path of an error. The error itself names an option.
    pub fn named<T>(&self, done: Result<T>) -> Result<T> {
        done.map_err(|error| {
            let path = match error.downcast_ref() {
                Some(WrapRefusal::Named(_, path, _) | WrapRefusal::Summary { path, .. }) => path,
                _ => return error,
            };
            match self.paths_in_files.get(path) {
                Some(file) => error.context(format!("{file:?} has this path")),
                None => error,
            }
        })
    }
}

impl Layout {
    /// Adds the named paths. A path that cannot be visible is an error with its reason, never silently dropped.
    pub fn add_named(&mut self, wanted: &WrapRequest, resolved: &ResolvedPolicy) -> Result<()> {
        // Parents first: a named path below another named mount is visible through it.
        let mut read: Vec<&PathBuf> = wanted.read.iter().collect();
        read.sort();
        for path in read {
            let real = self.open_named("--read", path, wanted)?;
            refuse_both(path, &real, &wanted.write)?;
            let over = over_ceiling(resolved, &real, BindAccess::ReadOnly);
            refuse_over("--read", path, over)?;
            let apart = self.is_apart("--read", path, &real)?;
            if apart {
                self.apart.insert(real.clone());
            }
            if real.starts_with(&self.workspace) && !apart {
                self.close_in_workspace(path, real, wanted.walls)?;
            } else if apart || !self.shows(&real) {
                if NeverList::builtin().is_configuration(&real) {
                    // Judged like the list's own files of /etc.
                    self.system.insert(real.clone());
                }
                self.asked.insert(real.clone());
                self.binds.push(real);
            }
        }
        let mut write: Vec<&PathBuf> = wanted.write.iter().collect();
        write.sort();
        for path in write {
            let real = self.open_named("--write", path, wanted)?;
            let over = over_ceiling(resolved, &real, BindAccess::ReadWrite);
            refuse_over("--write", path, over)?;
            let apart = self.is_apart("--write", path, &real)?;
            // A path that the workspace shows is writable with it.
            if apart || self.shown_by(&real).as_ref() != Some(&self.workspace) {
                self.binds.retain(|bind| *bind != real);
                self.written.insert(real);
            }
        }
        for path in &wanted.hide {
            let real = real("--hide", path, &wanted.person)?;
            if self.workspace.starts_with(&real) {
                let why = "it is the workspace, or holds it".to_owned();
                bail!(WrapRefusal::Named("--hide", path.clone(), why));
            }
            self.refuse_linked("--hide", path, &real)?;
            self.masked.push(real);
        }
        Ok(())
    }

    /// Whether a path is a mount of the node below a visible path. Visible paths come without the mounts below them, so
    /// it needs a mount of its own. A path deeper on such a mount is an error: it has no mount point.
    fn is_apart(&self, option: &'static str, path: &Path, real: &Path) -> Result<bool> {
        let Some(place) = self.shown_by(real) else {
            return Ok(false);
        };
        let table = nodes_mounts()?;
        let id = rustix::fs::statx(CWD, real, AtFlags::empty(), StatxFlags::MNT_ID);
        let on = id.ok().and_then(|found| table.by_id(found.stx_mnt_id));
        // A mount that another one covers does not hold this path.
        if on.is_some_and(|on| on.point == place || !on.point.starts_with(&place)) {
            return Ok(false);
        }
        let below = table.below(&place);
        match below.iter().find(|point| real.starts_with(point)) {
            None => Ok(false),
            Some(point) if point == real => Ok(true),
            Some(point) => {
                let why = format!(
                    "it lies on the mount {point:?}, and mounts of the node below {place:?} are not shown: name that mount with \
                     {option}, and hide parts of it with --hide"
                );
                bail!(WrapRefusal::Named(option, path.to_owned(), why))
            }
        }
    }

    /// Makes a path in the workspace read-only: it is visible anyway, so `--read` must mean that.
    fn close_in_workspace(&mut self, path: &Path, real: PathBuf, walls: Walls) -> Result<()> {
        let why = if walls == Walls::Landlock {
            "it lies in the workspace, which is written, and no rule of Landlock takes a part of that away"
        } else if real == self.workspace {
            "it is the workspace: `--set filesystem.workspace=read-only` makes it read-only"
        } else {
            self.refuse_linked("--read", path, &real)?;
            self.readonly.push(real);
            return Ok(());
        };
        bail!(WrapRefusal::Named(
            "--read",
            path.to_owned(),
            why.to_owned()
        ))
    }

    /// Refuses a file that has another name where the command writes, since only the named one would be covered. An
    /// earlier run may have made a hard link.
    fn refuse_linked(&self, option: &'static str, path: &Path, real: &Path) -> Result<()> {
        let found = real.symlink_metadata();
        let linked = found.is_ok_and(|found| found.is_file() && found.nlink() > 1);
        if !linked || !self.is_written(real) {
            return Ok(());
        }
        let why = "it has another name by a hard link, which would stay as it is: make it a file by itself (cp -p FILE new; \
                   mv new FILE)";
        bail!(WrapRefusal::Named(option, path.to_owned(), why.to_owned()))
    }

    /// Resolves links. If the path itself is a link, it is made again, so that the name works inside too.
    fn open_named(
        &mut self,
        option: &'static str,
        path: &Path,
        wanted: &WrapRequest,
    ) -> Result<PathBuf> {
        let real = real(option, path, &wanted.person)?;
        let never = NeverList::builtin();
        let why = match never.refuses(&real) {
            _ if is_socket(&real) => Some(option_of_socket(&real, wanted.walls)),
            Some(_) if option == "--read" && never.is_configuration(&real) => not_public(&real),
            Some(why) => Some(why.to_owned()),
            None if is_never_named(&real) => {
                Some("name a directory in it, not all of it".to_owned())
            }
            None if self.workspace.starts_with(&real) && real != self.workspace => {
                Some("it holds the workspace".to_owned())
            }
            None => option_of_system(option, &real, never),
        };
        if let Some(why) = why {
            bail!(WrapRefusal::Named(option, path.to_owned(), why));
        }
        let is_link = path.is_absolute() && path.is_symlink();
        let above = path.parent().unwrap_or(path);
        if is_link && !self.shows(above) && above.canonicalize().is_ok_and(|real| real == above) {
            self.links.push((path.to_owned(), real.clone()));
        }
        Ok(real)
    }
}

fn is_socket(real: &Path) -> bool {
    let found = real.symlink_metadata();
    found.is_ok_and(|found| found.file_type().is_socket())
}

/// A socket is never shown as a file: the option that leads to its server, which Landlock's walls refuse.
fn option_of_socket(real: &Path, walls: Walls) -> String {
    let agent = std::env::var_os(SSH_VARIABLE).map(PathBuf::from);
    let is_agent = agent.and_then(|agent| agent.canonicalize().ok()).as_deref() == Some(real);
    let service = real
        .to_str()
        .and_then(|path| path.parse::<ServiceSocket>().ok());
    let is_service = service.is_some_and(|socket| is_offered(&socket));
    match walls {
        Walls::Namespaces if is_agent => {
            "it is your SSH agent: --ssh-agent lets the command sign with its keys".to_owned()
        }
        Walls::Namespaces if is_service => format!(
            "it is a server's socket: use --connect {}",
            typed_path(real)
        ),
        Walls::Landlock if is_service => {
            "it is a server's socket: use --connect PORT if the server listens on one".to_owned()
        }
        Walls::Namespaces | Walls::Landlock => {
            "it is a socket, and its server acts outside the walls".to_owned()
        }
    }
}

/// Whether `--read` and `--write` always refuse this path as a whole. Public files of /etc are the exception.
pub(super) fn is_never_named(real: &Path) -> bool {
    let never = NeverList::builtin();
    never.refuses(real).is_some() || is_home(real) || never.is_common(real)
}

/// The mounts of the node as this process sees them.
pub(super) fn nodes_mounts() -> Result<MountTable> {
    let text = crate::sys::procfs::bytes("/proc/self/mountinfo");
    let text = text.context("the mounts of the node cannot be read")?;
    Ok(MountTable::parse(&text))
}

/// Resolves a path. It has to be text: config.json could not name another one.
fn real(option: &'static str, path: &Path, person: &Person) -> Result<PathBuf> {
    let why = match planted::named(path, person).and_then(|real| real.canonicalize()) {
        Ok(real) if real.to_str().is_some() => return Ok(real),
        Ok(_) => "its path has bytes that are no UTF-8 text: rename it".to_owned(),
        Err(error) => error.to_string(),
    };
    bail!(WrapRefusal::Named(option, path.to_owned(), why))
}

/// Refuses a path of both options: `--read` would silently have no effect.
fn refuse_both(path: &Path, real: &Path, written: &[PathBuf]) -> Result<()> {
    let holds = |other: &&PathBuf| {
        other
            .canonicalize()
            .is_ok_and(|other| real.starts_with(other))
    };
    match written.iter().find(holds) {
        Some(other) => {
            let why = format!(
                "--write {other:?} lets it be written: leave one of the two out, or name what lies beside it"
            );
            bail!(WrapRefusal::Named("--read", path.to_owned(), why))
        }
        None => Ok(()),
    }
}

fn refuse_over(option: &'static str, path: &Path, over: Option<String>) -> Result<()> {
    match over {
        Some(why) => bail!(WrapRefusal::Named(option, path.to_owned(), why)),
        None => Ok(()),
    }
}

/// Public files of /etc that are never shown, and why.
const NOT_SHOWN: [(&str, &str); 4] = [
    ("gitconfig", "wrap makes this file itself"),
    (
        "hostname",
        "it has this machine's name, and wrap shows no such file",
    ),
    (
        "hosts",
        "it has hosts of this machine; wrap shows its own file there, --walls landlock none",
    ),
    (
        "resolv.conf",
        "it has name servers of this machine; wrap shows its own file there, --walls landlock none",
    ),
];
/// Entries checked in a directory of /etc; the largest in Debian have some hundreds.
const MOST_ENTRIES: usize = 4096;

/// Why a part of /etc is not visible: root alone must be able to write it, and everyone must be able to read all of it.
fn not_public(real: &Path) -> Option<String> {
    let etc = Path::new("/etc");
    if let Some((_, why)) = (NOT_SHOWN.iter()).find(|(name, _)| etc.join(name) == real) {
        return Some((*why).to_owned());
    }
    let never = NeverList::builtin();
    let mut waiting = vec![real.to_owned()];
    let mut seen = 0;
    while let Some(path) = waiting.pop() {
        seen += 1;
        let shown = path.display();
        if seen > MOST_ENTRIES {
            return Some(format!("it has more than {MOST_ENTRIES} entries"));
        }
        if !never.is_configuration(&path) {
            return Some(format!("{shown} is never shown"));
        }
        let meta = match path.symlink_metadata() {
            Ok(meta) => meta,
            Err(error) => return Some(format!("{shown}: {error}")),
        };
        let (kind, mode) = (meta.file_type(), meta.mode());
        // A link shows nothing by itself. Its target is visible or not on its own.
        if kind.is_symlink() && path != real {
            continue;
        }
        let readable = if kind.is_dir() { 0o5 } else { 0o4 };
        if owner(meta.uid()) != 0 || mode & 0o022 != 0 {
            return Some(format!("others than root may write {shown}"));
        }
        if !(kind.is_dir() || kind.is_file() && meta.nlink() == 1) || mode & readable != readable {
            return Some(format!(
                "{shown} is no file or directory that everybody may read{}",
                if path == real {
                    ""
                } else {
                    ": name the files in it that you need"
                }
            ));
        }
        if kind.is_dir() {
            match std::fs::read_dir(&path) {
                Ok(entries) => waiting.extend(entries.flatten().map(|entry| entry.path())),
                Err(error) => return Some(format!("{shown}: {error}")),
            }
        }
    }
    None
}

fn option_of_system(option: &str, real: &Path, never: &NeverList) -> Option<String> {
    let why = never.read_only(real).filter(|_| option == "--write")?;
    Some(format!("always read-only: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::empty(Path::new("/nohome/p"), &[])
    }

    #[test]
    fn read_closes_a_part_of_the_workspace_where_the_walls_can() {
        let mut all = layout();
        let mut close = |real: &str, walls| {
            let closed = all.close_in_workspace(Path::new("x"), real.into(), walls);
            closed.err().map(|error| error.to_string())
        };
        assert_eq!(close("/nohome/p/docs", Walls::Namespaces), None);
        let whole = close("/nohome/p", Walls::Namespaces).unwrap();
        assert!(whole.contains("filesystem.workspace=read-only"), "{whole}");
        let landlock = close("/nohome/p/docs", Walls::Landlock).unwrap();
        assert!(landlock.contains("no rule of Landlock"), "{landlock}");
        assert_eq!(all.readonly, [PathBuf::from("/nohome/p/docs")]);
    }

    #[test]
    fn a_path_of_read_and_of_write_is_refused() {
        let base = std::env::temp_dir().join("agentbox-test-XXXXXX");
        let dir = nix::unistd::mkdtemp(&base).unwrap();
        let dir = dir.canonicalize().unwrap();
        std::fs::create_dir(dir.join("a")).unwrap();
        let both = |real: &Path, written: &Path| {
            refuse_both(Path::new("x"), real, &[written.to_owned()]).is_err()
        };
        assert!(both(&dir, &dir) && both(&dir.join("a"), &dir));
        assert!(!both(&dir, &dir.join("a")), "what is written lies in it");
        assert!(!both(&dir, &dir.join("gone")));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_socket_is_told_the_option_that_leads_to_its_server() {
        let postgres = "/run/postgresql/.s.PGSQL.5432";
        for (path, said) in [
            (postgres, "--connect /run"),
            ("/tmp/.s.PGSQL.5432", "outside the walls"),
            ("/run/agent.7", "outside the walls"),
        ] {
            let why = option_of_socket(Path::new(path), Walls::Namespaces);
            assert!(why.contains(said), "{why}");
        }
        let why = option_of_socket(Path::new(postgres), Walls::Landlock);
        assert!(why.contains("--connect PORT"), "{why}");
        assert!(!is_socket(Path::new("/etc/passwd")));
    }

    #[test]
    fn a_place_of_root_is_never_written_and_may_be_read() {
        let never = NeverList::builtin();
        let why = |option, path: &str| option_of_system(option, Path::new(path), never);
        assert!(
            why("--write", "/usr/bin")
                .unwrap()
                .starts_with("always read-only")
        );
        assert_eq!(why("--read", "/usr/bin"), None);
        assert_eq!(why("--write", "/nosrv/data"), None);
    }

    #[test]
    fn files_that_wrap_makes_and_private_ones_of_etc_are_not_shown() {
        for (name, part) in [
            ("gitconfig", "makes this file itself"),
            ("hostname", "it has this machine's name"),
            ("hosts", "shows its own file there, --walls landlock none"),
            (
                "resolv.conf",
                "shows its own file there, --walls landlock none",
            ),
        ] {
            let why = not_public(&Path::new("/etc").join(name)).unwrap();
            assert!(
                why.contains(part) && !why.contains("or shows none"),
                "{why}"
            );
        }
        assert!(not_public(Path::new("/etc/nothing-is-here")).is_some());
    }
}
