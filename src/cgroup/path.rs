//! Checks that the cgroup in a spec is the container's own, because everything in it is killed with the container.
//! Otherwise the container is not created.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use oci_spec::runtime::Spec;

use super::error::{CgroupError, PathRefusal};
use crate::cgroup::controllers::Controllers;
use crate::cgroup::hierarchies::Hierarchies;
use crate::cgroup::remove;
use crate::sys::procfs;

/// The cgroup path in a spec.
pub fn named(spec: &Spec) -> Option<PathBuf> {
    let path = spec.linux().as_ref().and_then(|l| l.cgroups_path().clone());
    path.filter(|p| !p.as_os_str().is_empty())
}

/// Gives a spec without a cgroup path one: libcontainer's has only the id, which another `--root` may use too.
pub fn name(spec: &mut Spec, key: &str) {
    if named(spec).is_none()
        && let Some(linux) = spec.linux_mut()
    {
        let path = format!("/agentbox-{}", key);
        linux.set_cgroups_path(Some(PathBuf::from(path)));
    }
}

/// Refuses paths that are no systemd unit: libcontainer would make a cgroup of another name. The words are runc's.
pub fn check_systemd(spec: &Spec) -> Result<(), CgroupError> {
    let Some(path) = named(spec) else {
        return Ok(());
    };
    let parts = path.to_str().map_or(0, |p| p.split(':').count());
    if parts == 3 {
        return Ok(());
    }
    Err(CgroupError::NotAUnit(path))
}

/// Warns of properties that a spec requests for the container's scope: libcontainer starts the scope with a fixed list,
/// and systemd accepts most of them only then.
pub fn warn_of_properties(spec: &Spec) {
    let names = unset_properties(spec);
    if !names.is_empty() {
        log::warn!(
            "annotations that are not applied to the container's systemd scope: {}",
            names.join(", ")
        );
    }
}

fn unset_properties(spec: &Spec) -> Vec<String> {
    let all = spec.annotations().iter().flatten().map(|(key, _)| key);
    let mut names: Vec<String> = all
        .filter(|key| key.starts_with("org.systemd.property."))
        .cloned()
        .collect();
    names.sort_unstable();
    names
}

/// Refuses a cgroup path that is a hierarchy's root, leads out of it, or already has processes in or below it (as runc
/// 1.2 does).
pub fn check(spec: &Spec) -> Result<(), CgroupError> {
    let hierarchies = Hierarchies::of_node()?;
    check_unified(spec, hierarchies)?;
    let Some(path) = named(spec) else {
        return Ok(());
    };
    let refused = |why| CgroupError::NotItsOwn {
        path: path.clone(),
        why,
    };
    let is_slice = path
        .to_str()
        .is_some_and(|p| p.matches(':').count() == 2 && !p.contains('/'));
    if is_slice {
        // slice:prefix:name: systemd makes this cgroup, and refuses to share it.
        return Ok(());
    }
    let relative = path.strip_prefix("/").unwrap_or(&path);
    let plain = relative
        .components()
        .all(|c| matches!(c, Component::Normal(_)));
    if !plain || relative.as_os_str().is_empty() {
        return Err(refused(PathRefusal::NotBelow));
    }
    for mount in hierarchies.points() {
        if !mount.join(relative).exists() {
            continue;
        }
        if let Some(busy) = populated(&mount.join(relative), 0) {
            return Err(refused(PathRefusal::Busy(busy)));
        }
    }
    match frozen(hierarchies, relative) {
        Some(above) => Err(refused(PathRefusal::Frozen(above))),
        None => Ok(()),
    }
}

/// The frozen cgroup: this one, or a parent, whose state applies to all below.
fn frozen(hierarchies: &Hierarchies, relative: &Path) -> Option<PathBuf> {
    let files = [
        (hierarchies.v1("freezer"), "freezer.state"),
        (hierarchies.v2(), "cgroup.freeze"),
    ];
    let mut known = files
        .into_iter()
        .filter_map(|(mount, file)| Some((mount?, file)));
    known.find_map(|(mount, file)| {
        let parts = relative.ancestors().filter(|a| !a.as_os_str().is_empty());
        let mut dirs = parts.map(|part| mount.join(part));
        dirs.find(|dir| {
            let state = procfs::text(dir.join(file)).unwrap_or_default();
            matches!(state.trim(), "FROZEN" | "FREEZING" | "1")
        })
    })
}

/// Removes the cgroups that the container made below its own, which libcontainer does not remove and which make it
/// fail. Its processes have been killed.
pub fn remove_below(controllers: &Controllers) -> Result<(), CgroupError> {
    let hierarchies = Hierarchies::read()?;
    let roots = hierarchies.points();
    // Never a shared one.
    let own = controllers.all().into_iter();
    let mut own = own.filter(|dir| !roots.contains(dir));
    own.try_for_each(remove::below)
}

/// Whether there are processes in a container's cgroup or below it.
pub fn has_processes(controllers: &Controllers) -> bool {
    let mut all = controllers.all().into_iter();
    all.any(|dir| populated(dir, 0).is_some())
}

/// `resources.unified` means files of cgroup v2, which libcontainer ignores on v1 (runc refuses them).
fn check_unified(spec: &Spec, hierarchies: &Hierarchies) -> Result<(), CgroupError> {
    let resources = spec.linux().as_ref().and_then(|l| l.resources().as_ref());
    let asked = resources.and_then(|r| r.unified().as_ref());
    if hierarchies.is_unified() || asked.is_none_or(HashMap::is_empty) {
        return Ok(());
    }
    Err(CgroupError::UnifiedOnV1)
}

/// Applies `resources.memory.disableOOMKiller`, which libcontainer drops; cgroup v2 has no equivalent.
pub fn keep_from_oom_killer(spec: &Spec) -> Result<(), CgroupError> {
    let resources = spec.linux().as_ref().and_then(|l| l.resources().as_ref());
    let memory = resources.and_then(|r| r.memory().as_ref());
    let asked = memory.and_then(|m| m.disable_oom_killer());
    let (Some(true), Some(path)) = (asked, named(spec)) else {
        return Ok(());
    };
    let relative = path.strip_prefix("/").unwrap_or(&path);
    let hierarchies = Hierarchies::of_node()?;
    let files = hierarchies.points().into_iter();
    let files = files.map(|mount| mount.join(relative).join("memory.oom_control"));
    for file in files.filter(|f| f.exists()) {
        let step = format!("disable the OOM killer in {file:?}");
        fs::write(&file, "1").map_err(CgroupError::io(step))?;
    }
    Ok(())
}

/// Removes a cgroup, and those below it, from every hierarchy. Its processes have been killed; they may take a moment
/// to end.
pub fn remove(relative: &Path) -> Result<(), CgroupError> {
    let relative = relative.strip_prefix("/").unwrap_or(relative);
    let plain = relative
        .components()
        .all(|c| matches!(c, Component::Normal(_)));
    if !plain || relative.as_os_str().is_empty() {
        return Ok(());
    }
    let hierarchies = Hierarchies::read()?;
    let mut all = hierarchies.points().into_iter();
    all.try_for_each(|mount| remove::tree(&mount.join(relative)))
}

/// The first cgroup in or below `dir` that has processes.
fn populated(dir: &Path, depth: u32) -> Option<PathBuf> {
    let procs = procfs::text(dir.join("cgroup.procs")).ok()?;
    if !procs.trim().is_empty() {
        return Some(dir.to_owned());
    }
    if !has_more_below(dir) {
        return None;
    }
    let below = fs::read_dir(dir).ok()?.flatten();
    let dirs = below.filter(|e| depth < 16 && e.file_type().is_ok_and(|t| t.is_dir()));
    dirs.into_iter()
        .find_map(|e| populated(&e.path(), depth + 1))
}

/// Whether a cgroup may have others below it: kernfs counts the directories in a directory's links, beside its own two
/// (`kernfs_refresh_inode`).
fn has_more_below(dir: &Path) -> bool {
    fs::metadata(dir).map_or(true, |meta| meta.nlink() != 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::state::store::ContainerPaths;

    fn at(path: &str) -> Result<(), CgroupError> {
        let mut spec = Spec::default();
        let mut linux = spec.linux().clone().unwrap_or_default();
        linux.set_cgroups_path(Some(path.into()));
        spec.set_linux(Some(linux));
        check(&spec)
    }

    #[test]
    fn properties_of_systemds_scope_are_named() {
        let mut spec = Spec::default();
        let keys = [
            "org.systemd.property.TimeoutStopUSec",
            "org.example",
            "org.systemd.property.After",
        ];
        let annotations = keys.map(|k| (k.to_owned(), "1".to_owned()));
        spec.set_annotations(Some(annotations.into()));
        assert_eq!(unset_properties(&spec), [keys[2], keys[0]]);
    }

    #[test]
    fn two_roots_with_one_id_get_two_cgroups() {
        let cgroup = |root: &str| {
            let mut spec = Spec::default();
            if let Some(linux) = spec.linux_mut() {
                linux.set_cgroups_path(None);
            }
            let place = ContainerPaths::new(Path::new(root), "one").unwrap();
            name(&mut spec, place.key());
            named(&spec).unwrap()
        };
        assert_ne!(cgroup("/run/a"), cgroup("/run/b"));
        assert_eq!(cgroup("/run/a"), cgroup("/run/a"));
    }

    #[test]
    fn a_path_out_of_the_hierarchy_or_its_root_is_refused() {
        for bad in ["/", "/../x", "a/../..", "/a/./../b"] {
            assert!(at(bad).is_err(), "{bad}");
        }
        for good in [
            "",
            "/docker/0123",
            "system.slice:docker:0123",
            "nobody/here",
        ] {
            assert!(at(good).is_ok(), "{good}");
        }
    }
}
