//! PURE. The mounts that have protected files, and mounts that are such files themselves.
//!
//! The user's tools run outside in every directory of the node that a container wrote. An engine's own storage has none:
//! named and anonymous volumes, a pod's scratch, and what is discarded with the container.

use std::path::Path;

use super::anonymous::is_anonymous;
use super::facts::{BundleFacts, SourceFacts};
use super::file::{FileKind, HiddenDirectory};
use super::filesystem::FilesystemPlan;
use super::guarded_mount::{GuardedMount, GuardedPart};
use super::mount::{BindAccess, PlannedMount};
use super::never::VisibleCredentials;
use super::protect::{ProtectedBase, ProtectedList, ProtectedPlace, StartSearch, is_protected};
use super::reason::MountReason;
use super::sorted_mounts::MountRules;
use super::wrap_plan::WrapPlan;
use crate::policy::{Field, Tool};

/// Where agents put whole work trees below their directories.
const WORK_TREES: &[u8] = b"worktrees";

impl FilesystemPlan {
    /// Whether a mount shows writable files of the node's users: the workspace, paths that the user named, and an engine's
    /// binds.
    pub fn is_users(&self, wrapped: &WrapPlan, mount: &PlannedMount, facts: &SourceFacts) -> bool {
        let is_workspace = self.workspace.as_ref() == Some(&mount.destination);
        let is_bound = || mount.why == MountReason::Other && !is_anonymous(facts);
        (is_workspace || wrapped.written.contains(&mount.destination) || is_bound())
            && mount.is_writable()
            && !mount.is_private()
    }

    /// Records the mounts to search again at the end, each with its state now.
    pub(super) fn watch(&mut self, bundle: &BundleFacts) {
        let watched = self.mounts.iter().filter_map(|mount| {
            if self.keeps_repositories(mount) {
                return Some(GuardedMount::of_repositories(mount.destination.clone()));
            }
            let bind = mount
                .bind()
                .filter(|b| b.judged.kind == FileKind::Directory)?;
            let mut sources = bundle.sources.iter().flatten();
            let facts = sources.find(|s| bind.is_of(&s.path, (s.dev, s.ino)))?;
            let is_users = self.is_users(&bundle.wrapped, mount, facts);
            is_users.then(|| GuardedMount {
                destination: mount.destination.clone(),
                files: facts.protected.found.iter().map(|one| one.file).collect(),
                waiting: facts.protected.state.iter().map(|one| one.file).collect(),
                known: facts.protected.known.clone(),
                remotes: facts.protected.remotes.clone(),
                tops: facts.protected.tops.clone(),
                gits: facts.protected.gits.clone(),
                hidden: self.hidden_in(&mount.destination, facts),
                searched: searched(facts),
                part: GuardedPart::All,
            })
        });
        self.watched = watched.collect();
    }

    /// Whether what a container writes here stays where no user looks: in an agent's home, or in a layer over a cache.
    fn keeps_repositories(&self, mount: &PlannedMount) -> bool {
        let access = mount.bind().map(|bind| bind.access);
        match access {
            Some(BindAccess::Private) => self.kept.is_some(),
            Some(BindAccess::ReadWrite) => matches!(mount.why, MountReason::Agent(_)),
            Some(BindAccess::ReadOnly) | None => false,
        }
    }

    /// The directories of a mount that its container sees empty.
    fn hidden_in(&self, destination: &Path, facts: &SourceFacts) -> Vec<HiddenDirectory> {
        let hidden = facts.protected.hidden.iter();
        let hidden = hidden.filter(|one| self.found.contains(&destination.join(&one.path)));
        hidden.cloned().collect()
    }
}

fn searched(facts: &SourceFacts) -> StartSearch {
    match (&facts.unsearched, &facts.protected.unread) {
        (None, _) => StartSearch::Complete,
        (Some(_), None) => StartSearch::ByName,
        (Some(_), Some(_)) => StartSearch::Stopped,
    }
}

/// Why a mount's source is not written, being protected itself: a listed file or directory, one in it, or a directory
/// that a listed path leads through, such as an agent's own. A search inside would not see its name.
pub(super) fn protected_itself(
    rules: MountRules<'_>,
    facts: &SourceFacts,
    tool: Tool,
) -> Option<String> {
    if !facts
        .all_names()
        .any(|name| may_be_protected(name, facts.kind))
    {
        return None;
    }
    let files = &rules.policy.filesystem;
    let none = VisibleCredentials::new();
    let is_given = |name: &Path| {
        let is_credential = rules.never.credential_above(name, &none).is_some();
        is_credential && rules.never.credential_above(name, rules.meant).is_none()
    };
    if facts.all_names().any(is_given) {
        return None;
    }
    let all = ProtectedList::builtin().all().iter();
    let places = all.filter(|place| {
        place.is_path()
            && is_protected(&files.unprotected, place.name())
            && facts
                .all_names()
                .any(|name| is_itself(place, name, facts.kind))
    });
    let places: Vec<&ProtectedPlace> = places.collect();
    let first = places.first()?;
    let names: Vec<&str> = places.iter().map(|place| place.name()).collect();
    Some(format!(
        "{}: {}; {} lets it be written",
        facts.path.display(),
        first.why,
        match tool {
            Tool::Wrap => tool.adds(Field::FilesystemUnprotected, &names),
            Tool::Engine | Tool::Annotating | Tool::Pod | Tool::PodmanPod =>
                format!("{}={}", Field::FilesystemUnprotected, names.join(",")),
        }
    ))
}

/// Whether it is worth a comparison with the list: most directories are not.
fn may_be_protected(name: &Path, kind: FileKind) -> bool {
    let is_one = |part: &[u8]| {
        let end = part.len().saturating_sub(4);
        part.starts_with(b".") || part[end..].eq_ignore_ascii_case(b".git")
    };
    let mut parts = name.iter().map(std::ffi::OsStr::as_encoded_bytes);
    kind != FileKind::Directory || parts.any(is_one)
}

/// Whether a path is an entry of the list, lies in it, or is a directory on the way to it.
fn is_itself(place: &ProtectedPlace, path: &Path, kind: FileKind) -> bool {
    let parts = |path: &Path| -> Vec<Vec<u8>> {
        let all = path.iter().filter(|part| *part != "/");
        all.map(|part| part.as_encoded_bytes().to_ascii_lowercase())
            .collect()
    };
    let (path, below) = (parts(path), parts(place.below()));
    match place.base() {
        ProtectedBase::Git(_) => {
            let git = path.iter().position(|part| part == b".git");
            let git = git.map(|at| &path[at + 1..]);
            let inside = |rest: &[Vec<u8>]| rest.windows(below.len()).any(|some| some == below);
            let bare = path.windows(2).any(|two| {
                let [above, part] = two else { return false };
                above.ends_with(b".git") && below == [part.clone()]
            });
            bare || git.is_some_and(inside)
        }
        ProtectedBase::Top(_) => {
            let is_file = !place.file_only || kind == FileKind::File;
            let mut places = path.windows(below.len()).enumerate();
            let inside = places.any(|(at, some)| {
                let rest = path.get(at + below.len());
                some == below && is_file && rest.is_none_or(|rest| rest != WORK_TREES)
            });
            // Any directory may be called `mise`.
            let is_hidden = below.first().is_some_and(|part| part.starts_with(b"."));
            let mut ways = 1..below.len();
            let mut leads = || is_hidden && ways.any(|parts| path.ends_with(&below[..parts]));
            inside || kind == FileKind::Directory && leads()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_known_by_the_names_of_its_source() {
        let first = |path: &str, kind| {
            let all = ProtectedList::builtin().all().iter();
            let mut all = all.filter(|place| is_itself(place, Path::new(path), kind));
            all.next().map(ProtectedPlace::name)
        };
        for (path, name) in [
            ("/home/me/p/.git/hooks", ".git/hooks"),
            ("/home/me/p/.git/modules/x/hooks/below", ".git/hooks"),
            ("/srv/p.git/hooks", ".git/hooks"),
            ("/home/me/p/.vscode", ".vscode"),
            ("/home/me/p/.VSCode/below", ".vscode"),
            ("/home/me/.codex", ".codex"),
            ("/home/me/.claude", ".claude/settings.json"),
            ("/home/me/.claude/skills/x", ".claude/skills"),
            ("/home/me/p/.github", ".github/hooks"),
            ("/home/me/.config", ".config/mise.toml"),
            ("/home/me/.config/git", ".config/git"),
            ("/home/me/.claude/plugins/x", ".claude/plugins"),
            ("/home/me/.config/systemd", ".config/systemd/user"),
            ("/home/me/.local/bin", ".local/bin"),
            ("/home/me/.vim/plugin", ".vim"),
            // Directories of agents (`policies/agents`).
            ("/home/me/.gemini", ".gemini"),
            ("/home/me/.qwen", ".qwen"),
            ("/home/me/.config/opencode", ".config/opencode"),
            (
                "/home/me/.local/share/opencode",
                ".local/share/opencode/bin",
            ),
        ] {
            assert_eq!(first(path, FileKind::Directory), Some(name), "{path}");
            assert!(
                may_be_protected(Path::new(path), FileKind::Directory),
                "{path}"
            );
        }
        for (path, name) in [
            ("/home/me/p/.git/hooks/pre-commit", ".git/hooks"),
            ("/home/me/p/.git/config", ".git/config"),
            ("/home/me/p/.envrc", ".envrc"),
            ("/home/me/tree/.git", ".git"),
            ("/home/me/p/.vscode/tasks.json", ".vscode"),
            ("/home/me/.bashrc", ".bashrc"),
        ] {
            assert_eq!(first(path, FileKind::File), Some(name), "{path}");
        }
        assert!(!may_be_protected(
            Path::new("/home/me/p"),
            FileKind::Directory
        ));
        for path in [
            // The search inside knows a git directory.
            "/home/me/p/.git",
            "/home/me/p/.git/modules/x",
            "/srv/p.git",
            "/srv/p.git/main/src/hooks",
            "/home/me/p",
            "/home/me/src/mise",
            "/home/me/hooks",
            "/home/me/.codex/worktrees/1/p",
            "/home/me/.config/other",
            "/",
        ] {
            assert_eq!(first(path, FileKind::Directory), None, "{path}");
        }
    }
}
