//! `exec --cgroup`: below which cgroups of the container the process is to be.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{Mode, OFlags};

use super::RuntimeError;
use super::controllers::Controllers;
use super::record::ProcessId;

/// Where the process goes.
#[derive(Default)]
pub struct Membership {
    /// cgroup.procs files to which the process writes itself, as its own first step.
    pub descriptors: Vec<OwnedFd>,
    /// A cgroup below the container's that libcontainer is to use at once. Under cgroup v2 the container's own cannot
    /// take a process when it hands on controllers to those below it (cgroups(7), "no internal processes").
    pub for_libcontainer: Option<String>,
}

/// Opens what `--cgroup` names: `PATH`, or `CONTROLLER[,CONTROLLER...]:PATH` under cgroup v1; `PATH` is relative to the
/// container's cgroup, also when it begins with `/`. Without it, cgroup v2 may need the first process's own cgroup.
pub fn open(
    text: Option<&str>,
    controllers: &Controllers,
    init: ProcessId,
) -> Result<Membership, RuntimeError> {
    let bad = |why: String| {
        RuntimeError::Unsupported(format!("--cgroup {:?}: {why}", text.unwrap_or("")))
    };
    let Some(given) = text.filter(|t| !t.is_empty()) else {
        return match controllers.unified() {
            Some(dir) => Ok(Membership {
                for_libcontainer: moved(dir, init)?,
                ..Membership::default()
            }),
            None => Ok(Membership::default()),
        };
    };
    let (names, path) = given
        .split_once(':')
        .map_or((None, given), |(n, p)| (Some(n), p));
    let path = Path::new(path.trim_start_matches('/'));
    if path
        .components()
        .any(|c| !matches!(c, Component::Normal(_) | Component::CurDir))
    {
        return Err(bad("it is not a sub cgroup path".to_owned()));
    }
    if let Some(dir) = controllers.unified() {
        if names.is_some() {
            return Err(bad(
                "cgroup v2 has one hierarchy for all controllers".to_owned()
            ));
        }
        let place = dir.join(path);
        fs::metadata(&place).map_err(RuntimeError::io(format!("open the cgroup {place:?}")))?;
        return Ok(Membership {
            for_libcontainer: Some(path.display().to_string()).filter(|p| !p.is_empty()),
            ..Membership::default()
        });
    }
    let dirs = match names {
        None => controllers.v1.values().map(|d| d.as_path()).collect(),
        Some(names) => names
            .split(',')
            .map(|n| {
                controllers
                    .v1(n)
                    .ok_or_else(|| bad(format!("unknown controller {n:?}")))
            })
            .collect::<Result<Vec<_>, _>>()?,
    };
    let procs = |dir: &Path| {
        let file = dir.join(path).join("cgroup.procs");
        rustix::fs::open(&file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(RuntimeError::io(format!("open {file:?}")))
    };
    Ok(Membership {
        descriptors: dirs.into_iter().map(procs).collect::<Result<_, _>>()?,
        for_libcontainer: None,
    })
}

/// Where the first process has gone, if the container's cgroup cannot take processes any more.
fn moved(dir: &Path, init: ProcessId) -> Result<Option<String>, RuntimeError> {
    let handed_on = fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
    if handed_on.trim().is_empty() {
        return Ok(None);
    }
    let now = Controllers::of(init.pid)?;
    let below = now.v2.as_deref().and_then(|d| d.strip_prefix(dir).ok());
    Ok(below
        .map(|b| b.display().to_string())
        .filter(|b| !b.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOBODY: ProcessId = ProcessId {
        pid: i32::MAX,
        start_time: 0,
    };

    fn node(name: &str) -> (std::path::PathBuf, Controllers) {
        let dir =
            std::env::temp_dir().join(format!("agentbox-membership-{name}-{}", std::process::id()));
        for controller in ["cpu", "memory"] {
            fs::create_dir_all(dir.join(controller).join("sub")).unwrap();
            fs::write(dir.join(controller).join("cgroup.procs"), "").unwrap();
        }
        fs::write(dir.join("cpu/sub/cgroup.procs"), "").unwrap();
        let v1 = ["cpu", "memory"].map(|c| (c.to_owned(), dir.join(c)));
        (
            dir,
            Controllers {
                v1: v1.into(),
                v2: None,
            },
        )
    }

    #[test]
    fn a_path_is_below_the_containers_cgroup_and_exists() {
        let (dir, controllers) = node("v1");
        let count = |text| open(Some(text), &controllers, NOBODY).map(|m| m.descriptors.len());
        assert_eq!(count("/").unwrap(), 2);
        assert_eq!(count("cpu:sub").unwrap(), 1);
        assert_eq!(count("cpu,memory:/").unwrap(), 2);
        for bad in [
            "..",
            "sub/../..",
            "nonexistent",
            "sub",
            "pids:/",
            "cpu:nonexistent",
        ] {
            assert!(count(bad).is_err(), "{bad}");
        }
        assert!(
            open(None, &controllers, NOBODY)
                .unwrap()
                .descriptors
                .is_empty()
        );
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn cgroup_v2_is_left_to_libcontainer() {
        let (dir, _) = node("v2");
        let controllers = Controllers {
            v1: [].into(),
            v2: Some(dir.join("cpu")),
        };
        let found = open(Some("/sub"), &controllers, NOBODY).unwrap();
        assert_eq!(found.for_libcontainer.as_deref(), Some("sub"));
        assert!(open(Some("cpu:/sub"), &controllers, NOBODY).is_err());
        fs::remove_dir_all(dir).unwrap();
    }
}
