//! Limits of a running container, written straight to its cgroup (cgroups(7), the kernel's admin-guide/cgroup-v1 and
//! cgroup-v2). Limits that are not requested stay. As with runc, 0 requests nothing, except for `cpu.idle` and
//! `cpu.burst`. Device rules are no limits and never change.

mod current;
pub mod refusal;
mod v1;
mod v2;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use oci_spec::runtime::LinuxResources;

use super::error::CgroupError;
use crate::cgroup::controllers::Controllers;
use crate::cgroup::hierarchies::Hierarchies;

pub use current::{CurrentLimits, repeat_current};

/// Writes the requested limits. A limit that this node cannot set is an error; earlier ones stay set.
pub fn apply(controllers: &Controllers, wanted: &LinuxResources) -> Result<(), CgroupError> {
    match controllers.unified() {
        Some(dir) => v2::apply(&Group::new(dir), wanted),
        None => v1::apply(controllers, wanted),
    }
}

/// Warns about kernel memory limits that cannot be set: the total on no node, sockets not on cgroup v2.
pub fn warn_of_kernel_memory(resources: &LinuxResources) {
    let memory = resources.memory().unwrap_or_default();
    if requested_value(memory.kernel()).is_some() {
        log::warn!("resources.memory.kernel is obsolete and has no effect");
    }
    let is_v1 = || Hierarchies::of_node().is_ok_and(|found| !found.is_unified());
    if requested_value(memory.kernel_tcp()).is_some() && !is_v1() {
        log::warn!("resources.memory.kernelTCP needs cgroup v1 and has no effect");
    }
}

/// The current limits, on cgroup v2, the only version with systemd's driver. Empty on cgroup v1.
pub fn current(controllers: &Controllers) -> CurrentLimits {
    let read = |file: &str| {
        let dir = controllers.unified()?;
        fs::read_to_string(dir.join(file)).ok()
    };
    // A missing controller limits nothing.
    CurrentLimits::parse(
        &read("cpu.max").unwrap_or_default(),
        &read("memory.max").unwrap_or_default(),
    )
}

/// A cgroup directory with files for limits.
struct Group {
    dir: PathBuf,
}

impl Group {
    fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    fn has(&self, file: &str) -> bool {
        self.dir.join(file).exists()
    }

    fn try_write(&self, file: &str, value: &str) -> io::Result<()> {
        // Not fs::write: a missing file must not be made.
        let mut options = fs::File::options();
        let mut file = options.write(true).open(self.dir.join(file))?;
        io::Write::write_all(&mut file, value.as_bytes())
    }

    fn write(&self, file: &str, value: impl ToString) -> Result<(), CgroupError> {
        let value = value.to_string();
        self.try_write(file, &value)
            .map_err(CgroupError::io(format!(
                "write {value:?} to {:?}",
                self.dir.join(file)
            )))
    }

    fn read(&self, file: &str) -> Result<String, CgroupError> {
        let path = self.dir.join(file);
        let text = fs::read_to_string(&path).map_err(CgroupError::io(format!("read {path:?}")))?;
        Ok(text.trim().to_owned())
    }

    /// Writes two values that the kernel accepts only in the right order: if it refuses the first, writes it again
    /// after the second.
    fn write_pair(
        &self,
        first: Option<Value<'_>>,
        second: Option<Value<'_>>,
    ) -> Result<(), CgroupError> {
        let (Some(first), Some(second)) = (&first, &second) else {
            return match first.or(second) {
                Some(one) => self.write(one.file, one.text),
                None => Ok(()),
            };
        };
        match self.try_write(first.file, &first.text) {
            Ok(()) => self.write(second.file, &second.text),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                self.write(second.file, &second.text)?;
                self.write(first.file, &first.text)
            }
            Err(_) => self.write(first.file, &first.text),
        }
    }
}

/// A value for a file.
struct Value<'a> {
    file: &'a str,
    text: String,
}

impl<'a> Value<'a> {
    fn new(file: &'a str, value: impl ToString) -> Self {
        Self {
            file,
            text: value.to_string(),
        }
    }
}

/// An integer, if it requests a limit.
fn requested_value<T: Default + PartialEq>(value: Option<T>) -> Option<T> {
    value.filter(|v| *v != T::default())
}

/// A limit in cgroup v2's words, where `-1` is `max`.
fn or_max(value: i64) -> String {
    if value < 0 {
        "max".to_owned()
    } else {
        value.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with these files; real cgroups are only in the integration tests.
    pub(super) fn group(name: &str, files: &[(&str, &str)]) -> Group {
        let dir =
            std::env::temp_dir().join(format!("agentbox-limits-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for (file, text) in files {
            fs::write(dir.join(file), text).unwrap();
        }
        Group { dir }
    }

    #[test]
    fn a_missing_file_is_an_error_and_is_not_made() {
        let group = group("absent", &[]);
        assert!(group.write("pids.max", 5).is_err());
        assert!(!group.has("pids.max"));
        fs::remove_dir_all(&group.dir).unwrap();
    }
}
