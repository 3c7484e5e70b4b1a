//! PURE. Options of mounts that are no binds: only options that cannot loosen anything, and the size of a file system
//! in memory.

use std::collections::BTreeSet;

use super::mount::KernelFileSystem;

/// The options of a kernel file system: the requested ones that cannot loosen anything, and those that every container
/// has.
pub(super) fn of_kernel(what: KernelFileSystem, asked: &[String], most: u64) -> Vec<String> {
    match what {
        KernelFileSystem::Proc | KernelFileSystem::Mqueue => {
            only(asked, &[], &["nosuid", "nodev", "noexec"])
        }
        KernelFileSystem::Sysfs | KernelFileSystem::Cgroup | KernelFileSystem::Cgroup2 => {
            only(asked, &[], &["nosuid", "nodev", "noexec", "ro"])
        }
        KernelFileSystem::Devpts => keep(asked, &["nosuid", "noexec"]),
        KernelFileSystem::Dev => bounded(keep(asked, &["nosuid", "noexec"]), most),
        KernelFileSystem::Shm if has_size(asked) => keep(asked, &["nosuid", "nodev"]),
        KernelFileSystem::Shm => bounded(keep(asked, &["nosuid", "nodev"]), most),
    }
}

/// The engine's options that cannot loosen anything, plus `add`.
pub(super) fn keep(asked: &[String], add: &[&str]) -> Vec<String> {
    const KEYS: &[&str] = &[
        "size",
        "mode",
        "uid",
        "gid",
        "nr_inodes",
        "nr_blocks",
        "ptmxmode",
    ];
    const WORDS: &[&str] = &[
        "nosuid",
        "nodev",
        "noexec",
        "ro",
        "rw",
        "newinstance",
        "relatime",
        "strictatime",
        "noatime",
        "nodiratime",
    ];
    let harmless = |option: &&String| match option.split_once('=') {
        Some((key, value)) => {
            KEYS.contains(&key)
                && value
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'%')
        }
        None => WORDS.contains(&option.as_str()),
    };
    let mut out: Vec<String> = asked.iter().filter(harmless).cloned().collect();
    out.extend(add.iter().map(ToString::to_string));
    let mut seen = BTreeSet::new();
    out.retain(|o| seen.insert(o.clone()));
    out
}

/// `fixed`, plus the engine's options that are in `also`.
fn only(asked: &[String], also: &[&str], fixed: &[&str]) -> Vec<String> {
    let mut out: Vec<String> = fixed.iter().map(ToString::to_string).collect();
    out.extend(asked.iter().filter(|o| also.contains(&o.as_str())).cloned());
    out
}

/// The options of a tmpfs with at most this many bytes, and files in proportion. Without a limit of the container, its
/// content is the node's memory, and a tmpfs without a size may take half of that.
pub(super) fn bounded(options: Vec<String>, most: u64) -> Vec<String> {
    let size = options.iter().rev().find_map(|o| o.strip_prefix("size="));
    let size = size.and_then(bytes).map_or(most, |asked| asked.min(most));
    let files = options
        .iter()
        .rev()
        .find_map(|o| o.strip_prefix("nr_inodes="));
    let enough = (size / 1024).max(1024);
    let files = files.and_then(bytes).map_or(enough, |n| n.min(enough));
    let other = |o: &String| {
        !["size=", "nr_inodes=", "nr_blocks="]
            .iter()
            .any(|k| o.starts_with(k))
    };
    let mut out: Vec<String> = options.into_iter().filter(other).collect();
    out.extend([format!("size={size}"), format!("nr_inodes={files}")]);
    out
}

/// Whether a tmpfs has a size that is no share of the node's memory.
fn has_size(options: &[String]) -> bool {
    let size = options.iter().rev().find_map(|o| o.strip_prefix("size="));
    size.and_then(bytes).is_some()
}

/// `64k`, `16m`, `1g` as in tmpfs(5). `None` for a share of memory, for 0, which means no limit, and for other text.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        _ => return None,
    };
    let number: u64 = digits.parse().ok()?;
    number.checked_mul(1 << shift).filter(|n| *n > 0)
}
