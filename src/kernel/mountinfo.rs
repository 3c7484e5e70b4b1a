//! PURE. The mount at a path, from /proc/self/mountinfo (proc_pid_mountinfo(5)), and the names of a file through other
//! mounts.
//!
//! A path shows where a mount is, not what it contains. A Docker volume with a device, a kubelet's subPath and every
//! other bind mount shows part of a file system that is also mounted elsewhere, under a more telling name.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::paths::is_outside;

/// The node's mounts.
#[derive(Debug, Default)]
pub struct MountTable {
    lines: Vec<MountLine>,
}

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountLine {
    /// Its number, as in statx(2).
    pub id: u64,
    /// Major and minor number of the file system, as text.
    pub device: String,
    /// The part of the file system that is mounted.
    pub root: PathBuf,
    /// The mount point.
    pub point: PathBuf,
    /// Type of the file system.
    pub kind: String,
    /// Options of the file system, with escapes.
    options: Vec<u8>,
}

/// The layers of an overlay.
#[derive(Debug, PartialEq, Eq)]
pub struct Layers {
    /// The directories as passed to the kernel.
    pub directories: Vec<PathBuf>,
}

impl MountTable {
    /// Reads the file's text. A line that cannot be parsed is skipped: files on its mount are then unknown.
    pub fn parse(text: &[u8]) -> Self {
        let lines = text.split(|b| *b == b'\n');
        Self {
            lines: lines.filter_map(line).collect(),
        }
    }

    /// The mount with this number.
    pub fn by_id(&self, id: u64) -> Option<&MountLine> {
        self.lines.iter().find(|l| l.id == id)
    }

    /// All mounts, in file order: of several at one mount point the last is on top.
    pub fn mounts(&self) -> &[MountLine] {
        &self.lines
    }

    /// The mount points below a path, without those below another one of them.
    pub fn below(&self, path: &Path) -> BTreeSet<PathBuf> {
        let points = self.lines.iter().map(|line| &line.point);
        let all: BTreeSet<&PathBuf> = points
            .filter(|point| point.starts_with(path) && *point != path)
            .collect();
        let above = |point: &Path| {
            point
                .ancestors()
                .skip(1)
                .any(|a| all.contains(&a.to_owned()))
        };
        let top = all.iter().filter(|point| !above(point));
        top.map(|point| (*point).clone()).collect()
    }

    /// The deepest other mount that contains the path, which `line` may cover.
    pub fn covered_by(&self, line: &MountLine, path: &Path) -> Option<&MountLine> {
        let others = self.lines.iter().filter(|other| other.id != line.id);
        others
            .filter(|other| path.starts_with(&other.point))
            .max_by_key(|other| other.point.components().count())
    }

    /// The node's root. Of several, the last is on top.
    fn top(&self) -> Option<&MountLine> {
        self.lines.iter().rfind(|l| l.point == Path::new("/"))
    }

    /// Whether a mount shows the file system that the node's root is on.
    pub fn is_of_root(&self, line: &MountLine) -> bool {
        self.top().is_some_and(|top| top.device == line.device)
    }

    /// The other paths under which the node's mounts show the file at `real`, a path on the mount `line`. `None` if
    /// `real` is not on it: the mount is not where the path says.
    pub fn names(&self, line: &MountLine, real: &Path) -> Option<BTreeSet<PathBuf>> {
        let inner = line.inner(real)?;
        let top = self.top();
        // A second mount of the whole root: the files below have their names below "/".
        let again = |other: &MountLine| {
            top.is_some_and(|t| {
                other.id != t.id && other.device == t.device && other.root == t.root
            })
        };
        let others = self
            .lines
            .iter()
            .filter(|other| other.device == line.device && other.id != line.id && !again(other));
        let names = others.filter_map(|other| {
            if is_outside(&inner, &other.root) {
                return None;
            }
            let rest = inner.strip_prefix(&other.root).ok()?;
            Some(join(&other.point, rest))
        });
        Some(names.filter(|name| name != real).collect())
    }
}

impl MountLine {
    /// Whether the file system has this option, which has no value.
    pub fn has_option(&self, word: &str) -> bool {
        let mut all = self.options.split(|b| *b == b',');
        all.any(|option| option == word.as_bytes())
    }

    /// The path of `real` within the file system.
    pub fn inner(&self, real: &Path) -> Option<PathBuf> {
        let rest = real.strip_prefix(&self.point).ok()?;
        Some(join(&self.root, rest))
    }

    /// The options of the file system, each with its value, without escapes. A comma in quotes does not separate
    /// options (`context="u:r:t:s0:c1,c2"`).
    pub fn file_system_options(&self) -> Vec<(Vec<u8>, Option<Vec<u8>>)> {
        let mut quoted = false;
        let all = self.options.split(|byte| {
            quoted ^= *byte == b'"';
            *byte == b',' && !quoted
        });
        let pairs = all.map(|option| match option.iter().position(|b| *b == b'=') {
            Some(at) => (option[..at].to_vec(), Some(unescape(&option[at + 1..]))),
            None => (option.to_vec(), None),
        });
        pairs.collect()
    }

    /// The layers of an overlay (Documentation/filesystems/overlayfs.rst); `None` for another file system.
    pub fn layers(&self) -> Option<Layers> {
        if self.kind != "overlay" {
            return None;
        }
        let mut directories = Vec::new();
        for (name, value) in self.file_system_options() {
            let value = value.unwrap_or_default();
            match name.as_slice() {
                b"lowerdir" => directories.extend(split_layers(&value)),
                // Added one at a time since Linux 6.8.
                b"lowerdir+" | b"datadir+" | b"upperdir" => directories.push(path(&value)),
                _ => {}
            }
        }
        Some(Layers { directories })
    }
}

/// Joins two paths, without a slash at the end if `rest` is empty.
pub fn join(base: &Path, rest: &Path) -> PathBuf {
    match rest.as_os_str().is_empty() {
        true => base.to_owned(),
        false => base.join(rest),
    }
}

/// A path of these bytes.
pub fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

fn line(text: &[u8]) -> Option<MountLine> {
    let mut fields = text.split(|b| *b == b' ');
    let mut next = || fields.next();
    let id = std::str::from_utf8(next()?).ok()?.parse().ok()?;
    next()?;
    let device = std::str::from_utf8(next()?).ok()?.to_owned();
    let root = unescape(next()?);
    // The directory was removed or replaced since: its old path still shows what it contains.
    let root = root.strip_suffix(b"//deleted").unwrap_or(&root);
    let point = path(&unescape(next()?));
    // Any number of fields, up to a lone dash.
    while next()? != b"-" {}
    // FUSE lets any user choose part of the type.
    let kind = String::from_utf8_lossy(&unescape(next()?)).into_owned();
    next()?;
    let options = next().unwrap_or_default().to_owned();
    Some(MountLine {
        id,
        device,
        root: path(root),
        point,
        kind,
        options,
    })
}

/// A path from a field of the file.
pub fn path_of(field: &str) -> PathBuf {
    path(&unescape(field.as_bytes()))
}

/// Decodes `\040` and the like: the kernel escapes a space, a tab, a newline, a backslash and, in options, a comma.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let octal = |b: &u8| (b'0'..=b'7').contains(b);
        match (first, tail) {
            (b'\\', [a, b, c, after @ ..]) if [a, b, c].into_iter().all(octal) => {
                out.push((a & 3) << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

/// Colons separate lower layers; a backslash before a colon makes it part of the name.
pub fn split_layers(value: &[u8]) -> Vec<PathBuf> {
    let mut out = vec![Vec::new()];
    let mut bytes = value.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b':' => out.push(Vec::new()),
            b'\\' if bytes.peek().is_some() => {
                let next = bytes.next();
                out.last_mut().expect("it begins with one").extend(next);
            }
            _ => out.last_mut().expect("it begins with one").push(byte),
        }
    }
    // Two colons start the data-only layers.
    out.retain(|layer| !layer.is_empty());
    out.iter().map(|layer| path(layer)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A node with /var/lib on its own disk, many kinds of bind mounts, and a second mount of its whole root.
    const NODE: &str = "\
1 1 0:2 / / rw - rootfs rootfs rw
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 8:2 / /var/lib rw - ext4 /dev/sdb1 rw
31 21 8:1 / /run/again rw - ext4 /dev/sda1 rw
40 30 8:1 /etc/kubernetes /var/lib/docker/volumes/v/_data rw - ext4 /dev/sda1 rw
41 30 8:1 /home/me/a\\040b/.ssh//deleted /srv/x\\134y rw - ext4 /dev/sda1 rw
42 30 0:50 / /var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/s rw shared:7 master:2 - tmpfs tmpfs rw
43 30 0:50 /..data/token /var/lib/kubelet/pods/u/volume-subpaths/s/c/0 rw - tmpfs tmpfs rw
44 21 0:60 / /srv/o rw - overlay over\\040lay rw,lowerdir=/etc:/srv/a\\134:b::/data,upperdir=/srv/up\\054,workdir=/w
45 21 0:61 / /srv/p rw - overlay overlay ro,lowerdir+=/a:b,datadir+=/c
50 21 0:4 net:[4026532000] /run/netns/x rw - nsfs nsfs rw
51 21 8:2 /lib/other /srv/other rw - ext4 /dev/sdb1 rw
half a line
";

    fn names(table: &MountTable, id: u64, real: &str) -> Vec<String> {
        let line = table.by_id(id).unwrap();
        let names = table.names(line, Path::new(real)).unwrap();
        names.iter().map(|n| n.display().to_string()).collect()
    }

    #[test]
    fn a_bind_has_the_names_of_the_file_it_shows() {
        let table = MountTable::parse(NODE.as_bytes());
        for (id, real, expect) in [
            (21, "/srv/project", &[][..]),
            (
                21,
                "/etc/kubernetes/pki",
                &["/var/lib/docker/volumes/v/_data/pki"],
            ),
            (40, "/var/lib/docker/volumes/v/_data", &["/etc/kubernetes"]),
            (
                40,
                "/var/lib/docker/volumes/v/_data/pki",
                &["/etc/kubernetes/pki"],
            ),
            (41, "/srv/x\\y/id", &["/home/me/a b/.ssh/id"]),
            (
                43,
                "/var/lib/kubelet/pods/u/volume-subpaths/s/c/0",
                &["/var/lib/kubelet/pods/u/volumes/kubernetes.io~secret/s/..data/token"],
            ),
            // A second way to the root's own files has their names below "/".
            (31, "/run/again/srv", &["/srv"]),
            // /srv/other is on the second disk, so the root's disk does not name it.
            (51, "/srv/other", &["/var/lib/lib/other"]),
        ] {
            assert_eq!(names(&table, id, real), expect, "{real}");
        }
    }

    #[test]
    fn a_path_that_is_not_on_its_mount_has_no_names() {
        let table = MountTable::parse(NODE.as_bytes());
        let volume = table.by_id(40).unwrap();
        assert_eq!(table.names(volume, Path::new("/srv/elsewhere")), None);
        assert!(table.by_id(99).is_none());
        assert!(table.is_of_root(volume) && !table.is_of_root(table.by_id(30).unwrap()));
    }

    #[test]
    fn only_the_topmost_mounts_below_a_path_are_listed_whatever_their_name() {
        let more = b"60 30 0:70 / /var/lib/kubelet/x rw - fuse.\xff x rw\n";
        let table = MountTable::parse(&[NODE.as_bytes(), more].concat());
        let below = |path: &str| -> Vec<String> {
            let found = table.below(Path::new(path));
            found.iter().map(|p| p.display().to_string()).collect()
        };
        assert_eq!(below("/var"), ["/var/lib"]);
        let kubelet = below("/var/lib/kubelet");
        assert_eq!((kubelet.len(), &*kubelet[2]), (3, "/var/lib/kubelet/x"));
        assert_eq!(below("/srv/o"), [""; 0]);
        assert_eq!(below("/sr"), [""; 0]);
    }

    #[test]
    fn an_overlay_names_its_layers() {
        let table = MountTable::parse(NODE.as_bytes());
        let layers = |id: u64| {
            let layers = table.by_id(id).unwrap().layers();
            layers.map(|l| l.directories)
        };
        let of = |paths: &[&str]| Some(paths.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(layers(44), of(&["/etc", "/srv/a:b", "/data", "/srv/up,"]));
        assert_eq!(layers(45), of(&["/a:b", "/c"]));
        assert_eq!(layers(21), None);
    }
}
