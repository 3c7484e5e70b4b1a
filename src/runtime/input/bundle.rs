//! Reading config.json: bounded, from a regular file, with errors that name the file.

use std::fs::File;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxNamespaceType, Spec};

use crate::runtime::RuntimeError;
use crate::sys::procfs;

/// No engine writes more; Docker's with a seccomp profile is 10 KiB.
const LARGEST: u64 = 16 << 20;

/// A bundle as it lies on disk.
pub struct Bundle {
    /// Its directory, absolute and without links.
    pub dir: PathBuf,
    /// Its root file system, absolute and without links.
    pub rootfs: PathBuf,
    /// Its config.json.
    pub spec: Spec,
}

impl Bundle {
    /// Reads a bundle.
    pub fn read(dir: &Path) -> Result<Self, RuntimeError> {
        let dir = dir
            .canonicalize()
            .map_err(RuntimeError::io(format!("open the bundle {dir:?}")))?;
        let path = dir.join("config.json");
        let mut spec: Spec = crate::runtime::input::lenient::read(&path)?;
        let bad = |why: &str| RuntimeError::Input {
            path: path.clone(),
            why: why.to_owned(),
        };
        if !spec.version().starts_with("1.") {
            return Err(bad(&format!("ociVersion {:?} is not 1.x", spec.version())));
        }
        let root = spec
            .root()
            .as_ref()
            .ok_or_else(|| bad("no `root` section"))?;
        let args = spec
            .process()
            .as_ref()
            .ok_or_else(|| bad("no `process` section"))?
            .args();
        if args
            .as_ref()
            .is_none_or(|a| a.first().is_none_or(String::is_empty))
        {
            return Err(bad("process.args is empty"));
        }
        let rootfs = dir.join(root.path());
        let rootfs = rootfs.canonicalize().map_err(RuntimeError::io(format!(
            "open the root file system {rootfs:?}"
        )))?;
        contradictions(&spec).map_err(|why| bad(&why))?;
        if !rootfs.is_dir() {
            return Err(bad(&format!(
                "the root file system {rootfs:?} is no directory"
            )));
        }
        // libcontainer makes links in /dev and removes ptmx there by its path on the node, where a link leads to the
        // node's directories. Masks would miss a /proc or /sys elsewhere (CVE-2023-27561).
        for name in ["dev", "proc", "sys"] {
            if rootfs.join(name).is_symlink() {
                return Err(bad(&format!(
                    "filesystem {name:?} must be mounted on ordinary directory: the image's /{name} ({rootfs:?}) is a \
                     symbolic link"
                )));
            }
        }
        // config.md "Mounts": the source of a bind mount is absolute or relative to the bundle.
        let binds = spec.mounts_mut().iter_mut().flatten();
        for mount in binds.filter(|m| crate::probe::is_bind(m)) {
            let source = mount.source().clone().unwrap_or_default();
            if source.is_relative() && !source.as_os_str().is_empty() {
                mount.set_source(Some(dir.join(source)));
            }
        }
        Ok(Self { dir, rootfs, spec })
    }
}

/// Contradictions that the specification makes an error, and libcontainer accepts.
fn contradictions(spec: &Spec) -> Result<(), String> {
    let process = spec.process().as_ref();
    if let Some(cwd) = process.map(|p| p.cwd()).filter(|cwd| !cwd.is_absolute()) {
        return Err(format!("process.cwd {cwd:?} is not absolute"));
    }
    let limits = process.and_then(|p| p.rlimits().as_ref());
    let limits = limits.into_iter().flatten().map(|l| l.typ());
    if let Some(twice) = first_twice(limits) {
        return Err(format!("process.rlimits has {twice:?} twice"));
    }
    let namespaces = spec.linux().as_ref().and_then(|l| l.namespaces().as_ref());
    let namespaces = namespaces.into_iter().flatten().map(|n| n.typ());
    match first_twice(namespaces) {
        Some(twice) => Err(format!("linux.namespaces has {twice:?} twice")),
        None => Ok(()),
    }
}

fn first_twice<T: PartialEq>(mut items: impl Iterator<Item = T>) -> Option<T> {
    let mut seen = Vec::new();
    items.find_map(|item| {
        let twice = seen.contains(&item);
        if twice {
            return Some(item);
        }
        seen.push(item);
        None
    })
}

/// Reads a JSON file of at most 16 MiB. serde_json bounds the depth at 128.
pub fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, RuntimeError> {
    parse_json(&read_file(path)?, path)
}

/// Reads JSON of at most 16 MiB that a caller may also give through a pipe: process.json, resources.
pub fn read_stream<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, RuntimeError> {
    let is_pipe = std::fs::metadata(path)
        .is_ok_and(|m| std::os::unix::fs::FileTypeExt::is_fifo(&m.file_type()));
    if !is_pipe {
        return read_json(path);
    }
    let file = File::open(path).map_err(RuntimeError::io(format!("open {path:?}")))?;
    parse_json(&read_open(file, path)?, path)
}

fn parse_json<T: serde::de::DeserializeOwned>(text: &[u8], path: &Path) -> Result<T, RuntimeError> {
    serde_json::from_slice(text).map_err(|e| RuntimeError::Input {
        path: path.to_owned(),
        why: e.to_string(),
    })
}

/// Reads a regular file of at most 16 MiB.
pub fn read_file(path: &Path) -> Result<Vec<u8>, RuntimeError> {
    read_open(open_regular(path)?, path)
}

/// Opens a regular file only.
pub fn open_regular(path: &Path) -> Result<File, RuntimeError> {
    let opened = procfs::open_regular(path);
    let opened = opened.map_err(RuntimeError::io(format!("open {path:?}")))?;
    opened.ok_or_else(|| RuntimeError::Input {
        path: path.to_owned(),
        why: "it is not a regular file".to_owned(),
    })
}

/// Reads an open file to its end, at most 16 MiB.
pub fn read_open(file: File, path: &Path) -> Result<Vec<u8>, RuntimeError> {
    let text = procfs::at_most(file, LARGEST + 1);
    let text = text.map_err(RuntimeError::io(format!("read {path:?}")))?;
    if text.len() as u64 > LARGEST {
        return Err(RuntimeError::Input {
            path: path.to_owned(),
            why: format!("it is larger than {} MiB", LARGEST >> 20),
        });
    }
    Ok(text)
}

/// Whether the processes of the container with this directory end with its init process (pid_namespaces(7)): it was given a
/// pid namespace. `false` if unknown.
pub fn has_pid_namespace(dir: &Path) -> bool {
    let Ok(spec) = read_json::<Spec>(&dir.join("config.json")) else {
        return false;
    };
    let namespaces = spec.linux().as_ref().and_then(|l| l.namespaces().as_ref());
    namespaces
        .into_iter()
        .flatten()
        .any(|n| n.typ() == LinuxNamespaceType::Pid && n.path().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_contradiction_is_named() {
        let found = |process: serde_json::Value, namespaces: &[&str]| {
            let namespaces: Vec<_> = namespaces
                .iter()
                .map(|kind| serde_json::json!({ "type": kind }))
                .collect();
            let spec: Spec = serde_json::from_value(serde_json::json!({
                "ociVersion": "1.0.2", "process": process, "linux": {"namespaces": namespaces},
            }))
            .unwrap();
            contradictions(&spec).err()
        };
        let process = |cwd: &str, limits: &[&str]| {
            let limits: Vec<_> = limits
                .iter()
                .map(|kind| serde_json::json!({"type": kind, "hard": 1, "soft": 1}))
                .collect();
            serde_json::json!({"cwd": cwd, "user": {"uid": 0, "gid": 0}, "rlimits": limits})
        };
        let good = process("/", &["RLIMIT_NOFILE", "RLIMIT_CORE"]);
        assert_eq!(found(good.clone(), &["pid", "mount"]), None);
        for (process, namespaces, word) in [
            (
                process("work", &[]),
                &[][..],
                "process.cwd \"work\" is not absolute",
            ),
            (
                process("/", &["RLIMIT_CORE", "RLIMIT_CORE"]),
                &[],
                "process.rlimits",
            ),
            (good, &["pid", "mount", "pid"], "linux.namespaces"),
        ] {
            let why = found(process, namespaces).unwrap();
            assert!(why.starts_with(word), "{why}");
        }
    }

    #[test]
    fn a_pid_namespace_that_is_joined_is_not_the_containers_own() {
        let dir = nix::unistd::mkdtemp(&std::env::temp_dir().join("agentbox-test-XXXXXX")).unwrap();
        assert!(!has_pid_namespace(&dir));
        for (namespace, own) in [
            (r#"{"type":"pid"}"#, true),
            (r#"{"type":"pid","path":"/proc/1/ns/pid"}"#, false),
            (r#"{"type":"mount"}"#, false),
        ] {
            let spec =
                format!(r#"{{"ociVersion":"1.0.2","linux":{{"namespaces":[{namespace}]}}}}"#);
            std::fs::write(dir.join("config.json"), spec).unwrap();
            assert_eq!(has_pid_namespace(&dir), own, "{namespace}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}
