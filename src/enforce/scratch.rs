//! Private files, which are thrown away: the root's overlay, /tmp, home directories. All lie in one file system, in
//! memory or on a disk that no other process sees ([`crate::scratch::maker`]). It is freed with its last
//! mount.

use std::cell::OnceCell;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, ResolveFlags, Stat, Uid};
use rustix::io::Errno;
use rustix::mount::{OpenTreeFlags, UnmountFlags, open_tree, unmount};

use super::cover::{FollowLinks, attach, attach_at};
use super::error::EnforceError;
use super::file_system::{NewFileSystem, tmpfs_with};
use super::image::{self, ImageLayers};
use super::owner::UserNamespace;
use crate::kernel::mount_options::{Bits, MountReach, Propagation};
use crate::plan::{EphemeralContent, EphemeralMount, FilesystemPlan};
use crate::policy::RootAccess;
use crate::sys::mount::{change, copy};

/// Where the file system is attached while directories are made from it; every container has this path.
pub(super) const WORKBENCH: &str = "/dev";

/// The file system, attached to the workbench.
pub(super) struct Scratch<'a> {
    root: OverlayMount<'a>,
    user_namespace: UserNamespace,
    /// The layers of the engine's overlay that is the container's root.
    layers: Option<&'a ImageLayers>,
    /// Where an overlay over those layers is attached; private directories are parts of it.
    view: OnceCell<PathBuf>,
}

/// The lower layer of an overlay.
#[derive(Clone, Copy)]
enum LowerLayer<'a> {
    /// A directory that no other overlay uses.
    Directory(&'a Path),
    /// A directory over which an earlier overlay has used the same upper directory.
    Again(&'a Path),
    /// The image's layers; the engine writes the top one.
    Layers(&'a ImageLayers),
}

/// An overlay to mount: one to make here, or an existing one.
enum OverlayMount<'a> {
    Here(OwnedFd),
    Before(&'a OwnedFd),
}

impl<'a> Scratch<'a> {
    /// Attaches the file system; `None` if nothing is private.
    pub(super) fn open(
        plan: &FilesystemPlan,
        disk: Option<&'a OwnedFd>,
        (user_namespace, layers): (UserNamespace, Option<&'a ImageLayers>),
    ) -> Result<Option<Self>, EnforceError> {
        if !plan.needs_scratch() {
            return Ok(None);
        }
        let root = match disk {
            Some(disk) => OverlayMount::Before(disk),
            None => OverlayMount::Here(in_memory(plan.scratch_bytes)?),
        };
        let scratch = Self {
            root,
            user_namespace,
            layers,
            view: OnceCell::new(),
        };
        attach_at(scratch.fd(), Path::new(WORKBENCH))?;
        Ok(Some(scratch))
    }

    fn fd(&self) -> &OwnedFd {
        match &self.root {
            OverlayMount::Here(fd) => fd,
            OverlayMount::Before(fd) => fd,
        }
    }

    /// Detaches it from the workbench; the directories taken from it keep it alive.
    pub(super) fn close(self) -> Result<(), EnforceError> {
        unmount(WORKBENCH, UnmountFlags::DETACH)
            .map_err(EnforceError::step("detach the scratch file system"))
    }

    /// If the root is ephemeral: puts an overlay over the image in its place, and moves the kernel's file systems,
    /// which are mounted by now, there. The node sees none of this.
    pub(super) fn replace_root(&self, plan: &FilesystemPlan) -> Result<(), EnforceError> {
        if plan.root != RootAccess::Ephemeral {
            return Ok(());
        }
        let step = |what: &str| format!("{what} the ephemeral root");
        let old = FollowLinks::Never
            .open(Path::new("/"))
            .map_err(EnforceError::step(step("look at")))?;
        let like = rustix::fs::fstat(&old).map_err(EnforceError::step(step("look at")))?;
        self.upper("root", &like, None)
            .map_err(EnforceError::step(step("make")))?;
        // The overlay keeps its own reference; the workbench is cleared while /dev below it moves.
        let again = copy(self.fd(), MountReach::One).map_err(EnforceError::step(step("keep")))?;
        let new = self.over_root("root", &old)?;
        unmount(WORKBENCH, UnmountFlags::DETACH).map_err(EnforceError::step(step("leave")))?;
        attach(&new, &old).map_err(EnforceError::step(step("attach")))?;
        for path in plan.kernel_mounts() {
            move_to(&old, &new, path)
                .map_err(EnforceError::step(format!("move {path:?} to the new root")))?;
        }
        rustix::process::fchdir(&new)
            .and_then(|()| rustix::process::pivot_root(".", "."))
            // The old root now lies over the new one.
            .and_then(|()| unmount(".", UnmountFlags::DETACH))
            .and_then(|()| rustix::process::chdir("/"))
            .map_err(EnforceError::step(step("enter")))?;
        attach_at(&again, Path::new(WORKBENCH))
    }

    /// An overlay over the image, whose upper directory exists. `old` is the image's root.
    fn over_root(&self, name: &str, old: &OwnedFd) -> Result<OwnedFd, EnforceError> {
        let below = match self.layers {
            Some(layers) => LowerLayer::Layers(layers),
            None => LowerLayer::Directory(Path::new("/")),
        };
        let step = "mount an overlay over the image (the kernel takes two on one another)";
        let new = self.overlay(below, &UpperDirs::part(name), Bits::default());
        let new = new.map_err(EnforceError::step(step))?;
        if self.layers.is_some() {
            let old = copy(old, MountReach::One).map_err(EnforceError::step(step))?;
            image::check_same(&old, &new)?;
        }
        Ok(new)
    }

    /// A directory of the image in an overlay over all of its layers.
    fn of_view(&self, path: &Path) -> Result<OwnedFd, EnforceError> {
        let step = || format!("make the private {path:?} of the image's layers");
        let failed = EnforceError::step::<std::io::Error>;
        let view = match self.view.get() {
            Some(view) => view,
            None => {
                let old = FollowLinks::Never.open(Path::new("/"));
                let old = old.map_err(EnforceError::step(step()))?;
                let like = rustix::fs::fstat(&old).map_err(EnforceError::step(step()))?;
                self.upper("image", &like, None)
                    .map_err(EnforceError::step(step()))?;
                let new = self.over_root("image", &old)?;
                let place = self.attached(&new, "image.view").map_err(failed(step()))?;
                self.view.get_or_init(|| place)
            }
        };
        let relative = path.strip_prefix("/").unwrap_or(path);
        let directory = FollowLinks::Never.open(&view.join(relative));
        let part = directory.and_then(|directory| copy(&directory, MountReach::One));
        let part = part.map_err(EnforceError::step(step()))?;
        let private = Some(Propagation::Private);
        change(part.as_fd(), Bits::NO_PRIVILEGE, private, MountReach::One)
            .map_err(failed(step()))?;
        Ok(part)
    }

    /// Makes one private directory.
    pub(super) fn directory(&self, index: usize, dir: &EphemeralMount) -> Result<(), EnforceError> {
        let step = |what: &str| format!("{what} the private {}", dir.path.display());
        let opened = FollowLinks::Never.open(&dir.path);
        let is_images = |fd: &OwnedFd| match (dir.content, self.layers) {
            (EphemeralContent::Image, Some(_)) => image::is_on_root(fd),
            _ => Ok(false),
        };
        let like = match opened {
            Ok(fd) if is_images(&fd).map_err(EnforceError::step(step("look at")))? => {
                return attach_at(&self.of_view(&dir.path)?, &dir.path);
            }
            Ok(fd) => rustix::fs::fstat(&fd).map_err(EnforceError::step(step("look at")))?,
            // The image has no such directory, and the root file system is read-only: there is nothing to make
            // writable.
            Err(Errno::NOENT) => return Ok(()),
            // Following the link would make a directory writable that the plan does not name.
            Err(Errno::LOOP) => return Err(EnforceError::Link(dir.path.clone())),
            Err(e) => return Err(EnforceError::step(step("look at"))(e)),
        };
        let name = index.to_string();
        let mode = (dir.content == EphemeralContent::Empty).then_some(0o1777);
        self.upper(&name, &like, mode)
            .map_err(EnforceError::step(step("make")))?;
        let mount = match dir.content {
            EphemeralContent::Empty => self.part(&name, Bits::NO_PRIVILEGE),
            EphemeralContent::EmptyHome => {
                self.part(&name, Bits::NO_PRIVILEGE.and(Bits::NO_PROGRAM))
            }
            EphemeralContent::Image => {
                let (below, written) = (LowerLayer::Directory(&dir.path), UpperDirs::part(&name));
                self.overlay(below, &written, Bits::NO_PRIVILEGE)
                    .map_err(Into::into)
            }
        };
        let mount = mount.map_err(EnforceError::step(step("mount")))?;
        attach_at(&mount, &dir.path)
    }

    /// An overlay over a detached mount: reads show its directory, and writes are thrown away. The lower directory is
    /// attached where no other process changes names, so that no path of the container leads to it.
    pub(super) fn over(
        &self,
        tree: &OwnedFd,
        name: &str,
        (attributes, kept): (Bits, Option<&OwnedFd>),
    ) -> std::io::Result<OwnedFd> {
        let written = match kept {
            Some(kept) => UpperDirs::at(&self.attached(kept, &format!("{name}.kept"))?),
            None => {
                let like = rustix::fs::fstat(tree)?;
                self.upper(name, &like, None)?;
                UpperDirs::part(name)
            }
        };
        let lower = self.attached(tree, &format!("{name}.lower"))?;
        let below = match kept {
            Some(_) => LowerLayer::Again(&lower),
            None => LowerLayer::Directory(&lower),
        };
        let overlay = self.overlay(below, &written, Bits::default())?;
        let private = Some(Propagation::Private);
        change(overlay.as_fd(), attributes, private, MountReach::One)?;
        Ok(overlay)
    }

    /// Attaches a mount to the workbench under this name; returns its path.
    fn attached(&self, tree: &OwnedFd, name: &str) -> std::io::Result<PathBuf> {
        make_dir(self.fd(), name, 0o700)?;
        let place = Path::new(WORKBENCH).join(name);
        attach(tree, &FollowLinks::Never.open(&place)?)?;
        Ok(place)
    }

    /// Makes a directory to write to, with the owner of the directory that it replaces, and its mode unless one is
    /// given.
    fn upper(&self, name: &str, like: &Stat, mode: Option<u32>) -> rustix::io::Result<()> {
        let upper = format!("{name}.upper");
        make_dir(self.fd(), &upper, mode.unwrap_or(like.st_mode & 0o7777))?;
        if mode.is_none() {
            let (uid, gid) = (Uid::from_raw(like.st_uid), Gid::from_raw(like.st_gid));
            let none = AtFlags::empty();
            match rustix::fs::chownat(self.fd(), upper.as_str(), Some(uid), Some(gid), none) {
                // An owner that the container's user namespace does not map: its root stays the owner.
                Ok(()) | Err(Errno::INVAL) => {}
                Err(e) => return Err(e),
            }
        }
        make_dir(self.fd(), &format!("{name}.work"), 0o700)
    }

    /// The directory itself, as a mount with these attributes.
    fn part(&self, name: &str, attributes: Bits) -> std::io::Result<OwnedFd> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
        let tree = open_tree(CWD, format!("{WORKBENCH}/{name}.upper"), flags)?;
        let private = Some(Propagation::Private);
        change(tree.as_fd(), attributes, private, MountReach::One)?;
        Ok(tree)
    }

    fn overlay(
        &self,
        below: LowerLayer<'_>,
        written: &UpperDirs,
        attributes: Bits,
    ) -> rustix::io::Result<OwnedFd> {
        let fs = NewFileSystem::begin("overlay", Path::new("agentbox"))?;
        match below {
            LowerLayer::Directory(path) | LowerLayer::Again(path) => fs.set("lowerdir", path)?,
            LowerLayer::Layers(layers) => layers.put_below(&fs, &written.beside("layers"))?,
        }
        fs.set("upperdir", &written.upper)?;
        fs.set("workdir", &written.work)?;
        // Do not wait for the disk (since Linux 5.10): the files die with the container, or are a cache.
        fs.set_flag("volatile")?;
        self.keep_links(&fs, below)?;
        let made = fs.mount(attributes);
        if let LowerLayer::Layers(_) = below {
            rustix::process::chdir("/")?;
        }
        made
    }

    /// Options that keep a file's other names when it is written. The kernel finds the original of a file by its
    /// handle. It trusts handles of a file system without a UUID only with an option that forbids changes from below
    /// (`ovl_allow_offline_changes`). `xino=on` would do, but over memory it gives inode numbers beyond 2^53, which
    /// JavaScript cannot tell apart.
    fn keep_links(&self, fs: &NewFileSystem, below: LowerLayer<'_>) -> rustix::io::Result<()> {
        for option in link_options(self.user_namespace, below) {
            match option {
                OverlayOption::Flag(name) => fs.set_flag(name)?,
                OverlayOption::On(name) => fs.set(name, "on")?,
            }
        }
        Ok(())
    }
}

/// An option of an overlay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OverlayOption {
    Flag(&'static str),
    /// `NAME=on`.
    On(&'static str),
}

fn link_options(user_namespace: UserNamespace, below: LowerLayer<'_>) -> &'static [OverlayOption] {
    use OverlayOption::{Flag, On};
    if user_namespace != UserNamespace::Nodes {
        // Without it an overlay needs trusted.* attributes, which only the host's root may set. The other options
        // conflict with it, and there are no handles.
        return &[Flag("userxattr")];
    }
    match below {
        // A lower file's hard links stay one file. The kernel falls back by itself if there are no handles.
        LowerLayer::Directory(_) => &[On("redirect_dir"), On("index")],
        // `index` would refuse directories that the engine writes (EBUSY), and a cache that was remade (ESTALE).
        LowerLayer::Layers(_) | LowerLayer::Again(_) => &[On("redirect_dir")],
    }
}

/// The writable directories of an overlay.
struct UpperDirs {
    upper: PathBuf,
    work: PathBuf,
}

impl UpperDirs {
    /// In a part of the scratch.
    fn part(name: &str) -> Self {
        let at = |what: &str| Path::new(WORKBENCH).join(format!("{name}.{what}"));
        Self {
            upper: at("upper"),
            work: at("work"),
        }
    }

    /// Another directory of that part.
    fn beside(&self, what: &str) -> PathBuf {
        self.upper.with_extension(what)
    }

    /// In a separate directory.
    fn at(dir: &Path) -> Self {
        Self {
            upper: dir.join("upper"),
            work: dir.join("work"),
        }
    }
}

/// Moves the mount at a path below one root to the same path below another.
fn move_to(old: &OwnedFd, new: &OwnedFd, path: &Path) -> rustix::io::Result<()> {
    let relative = path.strip_prefix("/").unwrap_or(path);
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS | ResolveFlags::BENEATH;
    let open = |root: &OwnedFd| {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        rustix::fs::openat2(root, relative, flags, Mode::empty(), resolve)
    };
    attach(&open(old)?, &open(new)?)
}

fn in_memory(bytes: u64) -> Result<OwnedFd, EnforceError> {
    tmpfs_with(&memory_options(bytes))
}

fn memory_options(bytes: u64) -> [String; 5] {
    // Even an empty file costs the kernel about a kilobyte: so the number of files is limited with the bytes.
    let files = (bytes / 1024).max(1024);
    [
        format!("size={bytes}"),
        format!("nr_inodes={files}"),
        "mode=0755".to_owned(),
        "nosuid".to_owned(),
        "nodev".to_owned(),
    ]
}

fn make_dir(at: &OwnedFd, name: &str, mode: u32) -> rustix::io::Result<()> {
    rustix::fs::mkdirat(at, name, Mode::from_raw_mode(0o700))?;
    // mkdir(2) obeys the umask; chmod(2) does not.
    rustix::fs::chmodat(at, name, Mode::from_raw_mode(mode), AtFlags::empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_bounds_the_bytes_and_the_files() {
        let options = memory_options(1 << 30);
        assert_eq!(options[..2], ["size=1073741824", "nr_inodes=1048576"]);
        // A small one has room for the directories that every container makes.
        assert_eq!(memory_options(4096)[1], "nr_inodes=1024");
        for option in ["mode=0755", "nosuid", "nodev"] {
            assert!(options.iter().any(|one| one == option), "{option}");
        }
    }

    #[test]
    fn an_overlay_keeps_links_as_far_as_its_lower_layer_allows() {
        use OverlayOption::{Flag, On};
        let (nodes, other) = (UserNamespace::Nodes, UserNamespace::Own);
        let at = Path::new("/x");
        for (user_namespace, below, expected) in [
            (
                nodes,
                LowerLayer::Directory(at),
                &[On("redirect_dir"), On("index")][..],
            ),
            (nodes, LowerLayer::Again(at), &[On("redirect_dir")]),
            (other, LowerLayer::Directory(at), &[Flag("userxattr")]),
            (other, LowerLayer::Again(at), &[Flag("userxattr")]),
        ] {
            assert_eq!(link_options(user_namespace, below), expected);
        }
    }

    #[test]
    fn the_directories_of_an_overlay_lie_side_by_side() {
        let part = UpperDirs::part("root");
        assert_eq!(part.upper, Path::new("/dev/root.upper"));
        assert_eq!(part.work, Path::new("/dev/root.work"));
        assert_eq!(part.beside("layers"), Path::new("/dev/root.layers"));
        let own = UpperDirs::at(Path::new("/k"));
        assert_eq!((own.upper, own.work), ("/k/upper".into(), "/k/work".into()));
    }
}
