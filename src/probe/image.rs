//! The layers of the image's overlay, opened by their names in the kernel's mount table.
//!
//! Root chose the names when the engine mounted the overlay. No container and no annotation chooses the directories,
//! and only root can change a directory on their paths. Whether they are the root's layers is checked again when they
//! are mounted ([`crate::enforce`]).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use oci_spec::runtime::Spec;
use rustix::fs::ResolveFlags;

use super::source::has_user_namespace;
use super::stat::mount_id;
use super::{open_path, real_path};
use crate::kernel::mountinfo::{MountLine, MountTable};
use crate::plan::ImageBase;
use crate::plan::layers::Stack;
use crate::sys::mount::takes_handles;
use crate::sys::{path, procfs};

/// The base of an image, and its layers, the top one first.
pub struct Image {
    /// The base, as the plan names it.
    pub below: ImageBase,
    /// Layers of the engine's overlay; empty for a plain directory, or if they cannot be opened.
    pub layers: Vec<OwnedFd>,
    /// Whether the layers may have metadata-only files (`metacopy`), with the content in a lower layer.
    pub metacopy: bool,
}

/// Finds the base of a root file system. In a user namespace other than the node's, the kernel decodes no file handles
/// (`ovl_can_decode_fh`) for any base.
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
    // A FUSE server may forget the handles that it claims to have.
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

/// Opens the layers of an overlay. The image must be the overlay's root.
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

/// Opens a layer by a path that only root can change. The image decides who owns the layer itself.
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
