//! PURE. The filesystem wall as text.

use std::path::PathBuf;

use super::page::{Page, path, paths, size};
use crate::plan::{
    EphemeralContent, EphemeralMount, FilesystemPlan, ImageBase, MappedIds, MountReason,
    PlannedMount, ScratchStorage,
};
use crate::policy::RootAccess;
use crate::scratch::ext4::EmptyImage;
use crate::text::escape;

pub(super) fn explain(page: &mut Page, files: &FilesystemPlan) {
    let root = match files.root {
        RootAccess::ReadOnly => page.words(
            "the image, read-only",
            "an empty root, read-only, with these files of the node",
        ),
        RootAccess::Ephemeral => match files.image_below {
            Some(ImageBase::Layers) => "the engine's layers of the image; writes are discarded",
            _ => page.words(
                "the image; writes are discarded",
                "an empty root, with these files of the node; writes are discarded",
            ),
        },
        RootAccess::Engine => "the image; writes go to the engine's layer of this container",
    };
    let root = root.to_owned();
    page.head("files", root);
    if files.needs_scratch() {
        page.item(format_args!("discarded: {}", scratch(files)));
    }
    for directory in &files.ephemeral {
        let image = page.words("as in the image", "as listed here");
        let line = ephemeral(directory, image);
        page.item(line);
    }
    if let Some(ImageBase::AsItIs(why)) = &files.image_below {
        let why = escape(why);
        page.item(format_args!(
            "a new hard link to a file of the image becomes a copy: {why}"
        ));
    }
    mounts(page, &files.mounts);
    if !files.replaced.is_empty() {
        let place = page.words("engine's", "node's").to_owned();
        let names = all(&files.replaced);
        page.item(format_args!("{names}  agentbox's instead of the {place}"));
    }
    for exclude in &files.excludes {
        let (file, names) = (path(&exclude.file), all(&exclude.names));
        page.item(format_args!(
            "{file}  read-only: tells git to ignore the hidden files, besides its own lines: {names}"
        ));
    }
    for pruned in &files.pruned {
        let (place, source) = (path(&pruned.destination), path(&pruned.source));
        let why = escape(&pruned.why);
        page.item(format_args!("{place}  not mounted (from {source}): {why}"));
    }
    let masked = files.masked.iter().map(PathBuf::as_path);
    page.item(format_args!("empty: {}", page.list(masked, &KERNELS)));
    for seen in &files.seen {
        let names = paths(seen.files.iter().map(|file| file.path.as_path()));
        let directory = path(&seen.directory);
        page.item(format_args!(
            "{directory}  only the files that git has, read-only: {names}"
        ));
    }
    let readonly = files.readonly.iter().map(PathBuf::as_path);
    page.item(format_args!("read-only: {}", page.list(readonly, &KERNELS)));
    if !files.protected.is_empty() {
        let names = page.list(files.protected.iter().map(|one| one.path.as_path()), &[]);
        page.item(format_args!(
            "read-only, because the user's own tools run it later (filesystem.unprotected): {names}"
        ));
    }
}

/// Where each container has the same masked and read-only paths.
const KERNELS: [&str; 2] = ["/proc", "/sys"];

/// A screen names mounts one by one up to this number: `wrap` shows some forty files and directories as they are.
const SHOWN_MOUNTS: usize = 4;

fn mounts(page: &mut Page, mounts: &[PlannedMount]) {
    // The kernel's file systems are the same in every container, but a tmpfs of the engine is another writable place.
    let shown = mounts.iter().filter(|m| !m.is_the_kernels());
    let is_plain = |m: &&PlannedMount| {
        // A file of /etc is a link on some nodes.
        let same = m.source() == m.destination || m.destination.starts_with("/etc");
        m.why == MountReason::Programs && same && !m.is_writable() && !page.is_whole()
    };
    let (plain, other): (Vec<_>, Vec<_>) = shown.partition(is_plain);
    let (plain, first) = match plain.len() > SHOWN_MOUNTS {
        true => (plain, Vec::new()),
        false => (Vec::new(), plain),
    };
    for shown in first.into_iter().chain(other) {
        let why = match shown.why {
            MountReason::Engine => page.words("the engine's", "created for the run").to_owned(),
            _ => shown.why.to_string(),
        };
        page.item(mount(shown, &why));
    }
    if !plain.is_empty() {
        let names = page.list(plain.iter().map(|m| m.destination.as_path()), &["/etc"]);
        page.item(format_args!("read-only, for programs to run: {names}"));
    }
}

fn all<'a>(names: impl IntoIterator<Item = &'a PathBuf>) -> String {
    paths(names.into_iter().map(PathBuf::as_path))
}

fn ephemeral(directory: &EphemeralMount, image: &str) -> String {
    let content = match directory.content {
        EphemeralContent::Empty => "empty",
        EphemeralContent::EmptyHome => "empty and not executable",
        EphemeralContent::Image => image,
    };
    let place = path(&directory.path);
    format!("{place}  writable, {content} at first, discarded")
}

fn mount(mount: &PlannedMount, why: &str) -> String {
    let access = match (mount.is_writable(), mount.is_private()) {
        (false, _) => "read-only",
        (true, false) => "read-write",
        (true, true) => "writable, a copy of the volume, discarded",
    };
    let (place, source) = (path(&mount.destination), path(mount.source()));
    let ids = mount.bind().map_or(String::new(), |bind| owner(bind.ids));
    format!("{place}  {access}, from {source}: {why}{ids}")
}

/// The owner of files that root creates there.
fn owner(ids: MappedIds) -> String {
    match ids {
        MappedIds::Node => String::new(),
        MappedIds::OwnerAlone { uid, gid } => format!(
            "; root's files are {uid}:{gid}'s on the node, and other users of the node are not mapped (filesystem.idmap; a process \
             of user {uid} inside sees root's directory: \"off\" disables this)"
        ),
        MappedIds::Swapped { uid, gid } => format!(
            "; root's files are {uid}:{gid}'s on the node, and {uid}:{gid}'s are root's (filesystem.idmap; a process of user {uid} \
             inside sees root's directory: \"off\" disables this)"
        ),
    }
}

/// The size of the discarded data, where it is stored, and the field that limits it.
fn scratch(files: &FilesystemPlan) -> String {
    let most = size(files.scratch_bytes);
    match files.scratch_place {
        ScratchStorage::Memory => {
            format!("at most {most} in memory (filesystem.scratch, filesystem.scratch-on)")
        }
        ScratchStorage::Disk => {
            let number = EmptyImage::files(files.scratch_bytes);
            format!("at most {most} and {number} files, on disk (filesystem.scratch)")
        }
    }
}
