//! PURE. Whether to mount a bind mount's source, and whether it may be written, judged by all its names on the node.

use std::path::Path;

use super::facts::SourceFacts;
use super::file::FileKind;
use super::never::{NeverList, VisibleCredentials};

/// Why a bind mount is refused under every policy.
pub(super) fn refusal(
    never: &NeverList,
    meant: &VisibleCredentials,
    destination: &Path,
    facts: &SourceFacts,
) -> Option<String> {
    by_nature(never, destination, facts)
        .or_else(|| by_name(never, meant, facts))
        .or_else(|| by_inner(never, meant, facts))
        .or_else(|| {
            let why = facts.nameless.as_ref()?;
            Some(format!("it cannot be identified: {why}"))
        })
        .or_else(|| by_link(never, facts))
}

/// Refusals by destination, type and file system, under any name.
pub(super) fn by_nature(
    never: &NeverList,
    destination: &Path,
    facts: &SourceFacts,
) -> Option<String> {
    if is_kernel_place(destination)
        || destination == Path::new("/")
        || destination == Path::new("/dev")
    {
        return Some(format!(
            "it would replace {} of the container",
            destination.display()
        ));
    }
    match facts.kind {
        FileKind::Socket => {
            return Some("it is a socket: its server acts outside the walls".to_owned());
        }
        FileKind::Device => return Some("it is a device".to_owned()),
        FileKind::Fifo => return Some("it is a pipe to a process outside".to_owned()),
        FileKind::Directory | FileKind::File => {}
    }
    if let Some(same) = &facts.same_as {
        return Some(format!("it is {} under another name", same.display()));
    }
    let mut systems = std::iter::once(&facts.file_system).chain(&facts.layers);
    let (kind, why) = systems.find_map(|s| Some((&s.kind, never.kernel(s)?)))?;
    Some(format!("a file system of type {kind:?}: {why}"))
}

/// The first of its names that is never mounted.
fn by_name(never: &NeverList, meant: &VisibleCredentials, facts: &SourceFacts) -> Option<String> {
    facts.all_names().find_map(|name| {
        let why = never.refuses_but(name, meant)?;
        Some(reason_by_name(name, facts, why))
    })
}

/// A credential by its path within its file system, if no mount of the node shows that name.
fn by_inner(never: &NeverList, meant: &VisibleCredentials, facts: &SourceFacts) -> Option<String> {
    facts.inner.iter().find_map(|inner| {
        let why = never.credential_above(inner, meant)?;
        Some(format!(
            "it is {} of its file system: {why}",
            inner.display()
        ))
    })
}

/// A link that an agent may have made: not root's, or in a directory that a container may have had writable.
pub(super) fn by_link(never: &NeverList, facts: &SourceFacts) -> Option<String> {
    let nodes_own = |path: &Path| path.parent().is_some_and(|parent| never.is_closed(parent));
    let link = facts
        .links
        .iter()
        .find(|link| link.owner != 0 || !nodes_own(&link.path))?;
    Some(format!(
        "the link {} on the way to it may be a container's making: name {} itself",
        link.path.display(),
        facts.path.display()
    ))
}

/// Why it is read-only under every policy.
pub(super) fn read_only(never: &NeverList, facts: &SourceFacts) -> Option<String> {
    if let Some(program) = &facts.runtime {
        return Some(format!(
            "{} is the runtime's own program, which runs as root",
            program.display()
        ));
    }
    facts.all_names().find_map(|name| {
        let why = never.read_only(name)?;
        Some(reason_by_name(name, facts, why))
    })
}

fn reason_by_name(name: &Path, facts: &SourceFacts, why: &str) -> String {
    match name == facts.path {
        true => format!("{}: {why}", name.display()),
        false => format!("it is {} under another name: {why}", name.display()),
    }
}

/// Destinations where a mount would hide or replace the kernel's files, and all below them.
pub(super) fn is_kernel_place(destination: &Path) -> bool {
    ["/proc", "/sys"].iter().any(|p| destination.starts_with(p))
        || (destination.starts_with("/dev/") && destination != Path::new("/dev/shm"))
        || destination == Path::new("/dev")
}
