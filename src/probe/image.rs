//! What lies below an image: the layers of the engine's overlay, opened by the names that the kernel has for them.
//!
//! The names were root's when the engine mounted them. Nothing of a container's, and no annotation, says which directories are
//! opened, and every directory on the way to one is root's alone. Whether they are the root's is looked at again when they are
//! mounted ([`crate::enforce`]).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use oci_spec::runtime::Spec;
use rustix::fs::ResolveFlags;

use super::source::has_user_namespace;
use super::stat::mount_id;
use super::{open_path, real_path};
use crate::plan::ImageBase;
use crate::plan::layers::Stack;
use crate::plan::mountinfo::{MountLine, MountTable};
use crate::sys::mount::takes_handles;
use crate::sys::{path, procfs};

/// What lies below an image, and its layers, the top one first.
pub struct Image {
    /// In a plan.
    pub below: ImageBase,
    /// Of the engine's overlay; none for a directory, and where they cannot be had.
    pub layers: Vec<OwnedFd>,
    /// Whether files in them may have their content in a layer below.
    pub metacopy: bool,
}

/// Looks below a root file system. In a user namespace other than the node's the kernel finds nothing by a handle
/// (`ovl_can_decode_fh`), whatever lies below.
pub fn image(rootfs: &Path, spec: &Spec) -> io::Result<Image> {
    let alone = |below| Image {
        below,
        layers: Vec::new(),
        metacopy: false,
    };
    if has_user_namespace(spec) {
        let why = "in a user namespace the kernel keeps no hard links over an image";
        return Ok(alone(ImageBase::AsItIs(why.into())));
    }
    let root = open_path(rootfs, ResolveFlags::empty())?;
    let table = MountTable::parse(&procfs::bytes("/proc/self/mountinfo")?);
    let Some(line) = mount_id(&root).and_then(|id| table.by_id(id)) else {
        let why = "its mount is not among those of the node";
        return Ok(alone(ImageBase::AsItIs(why.into())));
    };
    // A FUSE server says that it has handles, and may forget them.
    let forgets = line.kind.starts_with("fuse");
    if !forgets && takes_handles(root.as_fd())? {
        return Ok(alone(ImageBase::Directory));
    }
    Ok(match layers(line, &root) {
        Ok((layers, metacopy)) => Image {
            below: ImageBase::Layers,
            layers,
            metacopy,
        },
        Err(why) => alone(ImageBase::AsItIs(why)),
    })
}

/// Opens the layers of an overlay whose whole root the image is.
fn layers(line: &MountLine, root: &OwnedFd) -> Result<(Vec<OwnedFd>, bool), String> {
    if line.kind != "overlay" {
        let kind = &line.kind;
        return Err(format!("its file system ({kind}) keeps no file handles"));
    }
    let real = real_path(root.as_fd()).map_err(|error| error.to_string())?;
    if line.inner(&real).as_deref() != Some(Path::new("/")) {
        return Err("it is a directory in an overlay, not an overlay mount itself".to_owned());
    }
    let stack = Stack::of(line)?;
    let opened = stack.directories.iter().map(|directory| {
        let failed = |why: String| format!("its layer {}: {why}", directory.display());
        let layer = open(directory).map_err(|error| failed(error.to_string()))?;
        match takes_handles(layer.as_fd()) {
            Ok(true) => Ok(layer),
            Ok(false) => Err(failed("its file system keeps no file handles".to_owned())),
            Err(error) => Err(failed(error.to_string())),
        }
    });
    Ok((opened.collect::<Result<_, String>>()?, stack.metacopy))
}

/// Opens a layer by a way that nobody but root can change. Whose the layer itself is, its image says.
fn open(directory: &Path) -> io::Result<OwnedFd> {
    let found = path::resolve_within_owned(directory, 0)?;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let layer = open_path(&found, resolve)?;
    let stat = rustix::fs::fstat(&layer)?;
    match rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
        true => Ok(layer),
        false => Err(io::ErrorKind::NotADirectory.into()),
    }
}
