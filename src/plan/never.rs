//! PURE. The list of paths that no policy mounts or makes writable: `policies/never.toml`.

use std::collections::{BTreeSet, HashSet};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use serde::Deserialize;

use super::file::FileSystem;
use super::keys::Keys;
use super::settings::FilesByContent;
use crate::data::table;
use crate::kernel::paths::{is_of_component, is_outside};
use crate::policy::Filesystem;

/// The parsed list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NeverList {
    /// Paths of the node that are never mounted.
    pub host: Vec<NeverPath>,
    /// Paths of the node that are never writable.
    #[serde(default)]
    pub read_only: Vec<ReadOnlyPath>,
    #[serde(default)]
    file_system: Vec<NeverFileSystem>,
    #[serde(default)]
    own: Credentials,
    credentials: Credentials,
    /// Private keys, which are recognised by their content.
    #[serde(default)]
    pub keys: Keys,
    /// Files that are checked by their content.
    #[serde(default)]
    pub settings: FilesByContent,
}

/// A path of the node that no container gets, with everything below it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NeverPath {
    /// The path.
    pub path: PathBuf,
    /// The reason, as a clause.
    pub why: String,
    /// Patterns below the path to which the entry does not apply; `*` stands for one component.
    #[serde(default)]
    pub except: Vec<String>,
}

/// A path of the node that no container writes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadOnlyPath {
    /// The path.
    pub path: PathBuf,
    /// The reason, as a clause.
    pub why: String,
    /// The entry is for the directory itself, not for paths below it.
    #[serde(default)]
    pub whole: bool,
    /// Patterns below the path to which the entry does not apply; `*` stands for one component.
    #[serde(default)]
    pub except: Vec<String>,
    /// Patterns below the path that the entry covers in spite of `whole`; `.*` stands for one component with a leading
    /// dot.
    #[serde(default)]
    pub also: Vec<String>,
}

/// A file system in which the kernel shows its own state.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NeverFileSystem {
    /// Its name in mountinfo.
    kind: String,
    /// Its number in statfs(2), if no other file system has it.
    magic: Option<i64>,
    /// The reason, as a clause.
    why: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(from = "ListedCredentials")]
struct Credentials {
    why: String,
    paths: Vec<PathBuf>,
    /// The last components of the paths, in small letters: nearly every path ends with none of them.
    last: HashSet<Vec<u8>>,
}

/// A group of the list.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListedCredentials {
    why: String,
    paths: Vec<PathBuf>,
}

impl From<ListedCredentials> for Credentials {
    fn from(ListedCredentials { why, paths }: ListedCredentials) -> Self {
        let last = paths.iter().map(|path| last_name(path)).collect();
        Self { why, paths, last }
    }
}

/// The last component of a path, in small letters, as [`ends_with`] compares it; empty if it has none.
fn last_name(path: &Path) -> Vec<u8> {
    let last = path.components().next_back();
    last.map_or_else(Vec::new, |last| {
        last.as_os_str().as_bytes().to_ascii_lowercase()
    })
}

/// Names of credentials that a container is allowed to see, as the list spells them.
pub type VisibleCredentials = BTreeSet<PathBuf>;

impl Filesystem {
    /// The credentials that the policy makes visible.
    pub fn visible_credentials(&self) -> VisibleCredentials {
        let names = self.credentials.iter();
        names.map(|name| PathBuf::from(name.as_str())).collect()
    }
}

impl NeverList {
    /// The built-in list.
    pub fn builtin() -> &'static Self {
        static LIST: LazyLock<NeverList> = LazyLock::new(|| {
            table!("never")
                .read()
                .expect("a test parses the built-in list")
        });
        &LIST
    }

    /// Why `real` (a path without links) is never mounted; `None` if it may be.
    pub fn refuses(&self, real: &Path) -> Option<&str> {
        self.refuses_but(real, &VisibleCredentials::new())
    }

    /// The same, with some credentials allowed to be visible.
    pub fn refuses_but(&self, real: &Path, meant: &VisibleCredentials) -> Option<&str> {
        let host = self.host.iter().find(|h| h.covers(real));
        host.map(|h| h.why.as_str())
            .or_else(|| self.credential_above(real, meant))
    }

    /// Whether `real` is in /etc and refused for no other reason: its world-readable files can be shown by name.
    pub fn is_configuration(&self, real: &Path) -> bool {
        let etc = Path::new("/etc");
        let mut others = self.host.iter().filter(|host| host.path != etc);
        real != etc
            && real.starts_with(etc)
            && !others.any(|host| host.covers(real))
            && self
                .credential_above(real, &VisibleCredentials::new())
                .is_none()
    }

    /// Why a path is a credential or is in a directory of credentials; `None` if it is not.
    pub fn credential_above(&self, path: &Path, meant: &VisibleCredentials) -> Option<&str> {
        let mut above = path.ancestors();
        above.find_map(|a| self.credential(a, meant))
    }

    /// Why a file at this path must be masked, being a credential itself; `None` if it need not.
    pub fn credential(&self, path: &Path, meant: &VisibleCredentials) -> Option<&str> {
        let parts = self.credential_parts(path, meant)?;
        let is_own = self.own.parts(path, &VisibleCredentials::new()) == Some(parts);
        let group = if is_own { &self.own } else { &self.credentials };
        Some(&group.why)
    }

    /// How many of its last components identify a path as a credential; `None` if it is none.
    pub fn credential_parts(&self, path: &Path, meant: &VisibleCredentials) -> Option<usize> {
        let own = self.own.parts(path, &VisibleCredentials::new());
        own.max(self.credentials.parts(path, meant))
    }

    /// Why no container may write `real`; `None` if one may.
    pub fn read_only(&self, real: &Path) -> Option<&str> {
        let found = self.read_only.iter().find(|r| r.covers(real));
        found
            .map(|r| r.why.as_str())
            .or_else(|| self.own.may_come_below(real))
    }

    /// Whether `real` is a shared directory whose parts have owners: /home, /srv, /var.
    pub fn is_common(&self, real: &Path) -> bool {
        self.read_only.iter().any(|r| r.whole && r.path == real)
    }

    /// Why a file system is never mounted, if it is not: the kernel's own, at any mount point.
    pub fn kernel(&self, found: &FileSystem) -> Option<&str> {
        let is_it = |k: &&NeverFileSystem| {
            k.kind == found.kind || k.magic.is_some_and(|magic| magic == found.magic)
        };
        self.file_system.iter().find(is_it).map(|k| k.why.as_str())
    }

    /// Whether no container can write a directory, under any policy: a link there is the node's own.
    pub fn is_closed(&self, directory: &Path) -> bool {
        self.read_only.iter().any(|r| r.covers(directory))
            || self.host.iter().any(|h| h.covers(directory))
    }

    /// Names of credentials, relative to a home directory.
    pub fn credentials(&self) -> impl Iterator<Item = &Path> {
        let all = self.own.paths.iter().chain(&self.credentials.paths);
        all.map(PathBuf::as_path)
    }

    /// The last components of all credential names.
    pub fn last_names(&self) -> FileNameFilter {
        let names = self.credentials().filter_map(Path::file_name);
        FileNameFilter {
            names: names
                .map(|name| name.as_bytes().to_ascii_lowercase())
                .collect(),
            keys: self.keys.clone(),
        }
    }

    /// Entries of the list strictly below `real`: they are masked when `real` is mounted.
    pub fn below<'a>(&'a self, real: &'a Path) -> impl Iterator<Item = (&'a Path, &'a str)> {
        let all = self.host.iter().filter(|h| !is_outside(&h.path, real));
        all.filter_map(move |h| {
            let rest = h.path.strip_prefix(real).ok()?;
            (rest.components().next().is_some()).then_some((rest, h.why.as_str()))
        })
    }
}

impl Credentials {
    /// Why a directory is read-only where a credential may be created: a missing file cannot be hidden.
    fn may_come_below(&self, real: &Path) -> Option<&str> {
        let beginnings = self.paths.iter().flat_map(|path| path.ancestors().skip(1));
        let mut beginnings = beginnings.filter(|path| !path.as_os_str().is_empty());
        beginnings
            .any(|path| ends_with(real, path))
            .then_some(self.why.as_str())
    }

    /// How many of its last components identify a path as one of these.
    fn parts(&self, path: &Path, meant: &VisibleCredentials) -> Option<usize> {
        if !self.last.contains(&last_name(path)) {
            return None;
        }
        let names = self.paths.iter().filter(|name| ends_with(path, name));
        // A longer name that is meant says more than a short one of the same file.
        let is_meant = |name: &Path| {
            meant
                .iter()
                .any(|own| ends_with(own, name) && ends_with(path, own))
        };
        let found = names.filter(|name| !is_meant(name));
        found.map(|c| c.components().count()).max()
    }
}

/// A quick filter by file name: it rules out nearly every file.
pub struct FileNameFilter {
    names: HashSet<Vec<u8>>,
    keys: Keys,
}

impl FileNameFilter {
    /// Whether a file of this name may be a credential.
    pub fn contains(&self, name: &[u8]) -> bool {
        self.names.contains(&name.to_ascii_lowercase()) || self.keys.named(name).is_some()
    }
}

/// Whether a path ends with a name, ignoring case: a file system may fold letters.
pub(super) fn ends_with(path: &Path, name: &Path) -> bool {
    // Asked for each path and each name, and nearly always answered by the last letter or the last component.
    let (ends, wanted) = (path.as_os_str().as_bytes(), name.as_os_str().as_bytes());
    if let ([.., end], [.., want]) = (ends, wanted)
        && is_of_component(*end)
        && is_of_component(*want)
        && (!end.eq_ignore_ascii_case(want)
            || !last_component(ends).eq_ignore_ascii_case(last_component(wanted)))
    {
        return false;
    }
    let mut parts = path.components().rev();
    name.components().rev().all(|want| {
        let have = parts.next();
        have.is_some_and(|have| have.as_os_str().eq_ignore_ascii_case(want.as_os_str()))
    })
}

/// Of a path whose last byte belongs to it.
fn last_component(path: &[u8]) -> &[u8] {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    slash.map_or(path, |slash| &path[slash + 1..])
}

impl NeverPath {
    fn covers(&self, real: &Path) -> bool {
        if is_outside(real, &self.path) {
            return false;
        }
        // Everything is below "/": this entry covers only "/" itself.
        if self.path == Path::new("/") {
            return real == Path::new("/");
        }
        match real.strip_prefix(&self.path) {
            Ok(rest) => !self
                .except
                .iter()
                .any(|pattern| matches_or_below(pattern, rest)),
            Err(_) => false,
        }
    }
}

impl ReadOnlyPath {
    fn covers(&self, real: &Path) -> bool {
        if is_outside(real, &self.path) {
            return false;
        }
        let Ok(rest) = real.strip_prefix(&self.path) else {
            return false;
        };
        let named = |patterns: &[String]| patterns.iter().any(|p| matches_or_below(p, rest));
        match self.whole {
            true => real == self.path || named(&self.also),
            false => !named(&self.except),
        }
    }
}

/// Whether `rest` matches the pattern, or is below it.
fn matches_or_below(pattern: &str, rest: &Path) -> bool {
    let mut components = rest.components();
    pattern.split('/').all(|want| match components.next() {
        Some(Component::Normal(have)) => match want {
            "*" => true,
            ".*" => have.as_encoded_bytes().starts_with(b"."),
            _ => have == want,
        },
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_list_parses_and_covers_what_the_documentation_promises() {
        let never = NeverList::builtin();
        for path in [
            "/",
            "/etc",
            "/etc/shadow",
            "/proc/sys",
            "/sys",
            "/dev/mem",
            "/run/docker.sock",
            "/var/lib/docker",
            "/var/lib/docker/overlay2/x/merged",
            "/var/lib/kubelet/pki",
            "/home/me/.ssh",
            "/root/.aws/config",
            "/home/me/.config/gcloud",
            "/home/me/.docker/config.json",
            "/srv/.netrc",
            "/var/lib/kubelet/pods/u/volumes/kubernetes.io~projected/kube-api-access-x",
        ] {
            assert!(never.refuses(Path::new(path)).is_some(), "{path} is let in");
        }
        for path in [
            "/home/me",
            "/home/me/project",
            "/srv",
            "/usr/lib",
            "/var/lib/docker/volumes/v/_data",
            "/var/lib/docker/volumes/v/_data/below",
            "/etcetera",
            "/home/me/.config",
            "/home/me/ssh",
            "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/cache",
        ] {
            assert_eq!(never.refuses(Path::new(path)), None, "{path} is refused");
        }
    }

    #[test]
    fn the_last_component_rules_out_no_credential() {
        let never = NeverList::builtin();
        let none = VisibleCredentials::new();
        let all: Vec<PathBuf> = never.credentials().map(Path::to_path_buf).collect();
        for name in &all {
            assert!(name.file_name().is_some(), "{name:?}");
            let upper = name.to_str().unwrap().to_uppercase();
            for path in ["/home/me/", "/home/me/x/../", "/home/me//./"] {
                for name in [name.to_str().unwrap(), &upper, &format!("{upper}/.")] {
                    let path = PathBuf::from(format!("{path}{name}"));
                    let longest = all.iter().filter(|name| ends_with(&path, name));
                    let longest = longest.map(|name| name.components().count()).max();
                    assert!(longest.is_some(), "{path:?}");
                    assert_eq!(never.credential_parts(&path, &none), longest, "{path:?}");
                }
            }
        }
    }

    #[test]
    fn an_exception_does_not_cover_its_siblings_or_parents() {
        let never = NeverList::builtin();
        for path in [
            "/var/lib/docker/volumes",
            "/var/lib/docker/volumes/v",
            "/var/lib/docker/volumes/v/other",
        ] {
            assert!(never.refuses(Path::new(path)).is_some(), "{path} is let in");
        }
    }

    #[test]
    fn entries_below_a_kept_mount_are_listed_for_masking() {
        let never = NeverList::builtin();
        let below: Vec<_> = never
            .below(Path::new("/var/lib"))
            .map(|(p, _)| p.to_path_buf())
            .collect();
        assert!(
            below.contains(&PathBuf::from("docker")) && below.contains(&PathBuf::from("kubelet"))
        );
        let none = VisibleCredentials::new();
        assert_eq!(
            never.credential(Path::new("u/.ssh"), &none),
            Some("it holds credentials")
        );
        assert_eq!(never.credential(Path::new("u/.ssh/id_rsa"), &none), None);
        let meant = VisibleCredentials::from([".codex/auth.json".into()]);
        let login = Path::new("/home/me/.codex/auth.json");
        assert!(never.refuses(login).is_some());
        assert_eq!(never.refuses_but(login, &meant), None);
        assert!(
            never
                .refuses_but(Path::new("/home/me/.ssh/.codex/auth.json"), &meant)
                .is_some()
        );
        // Agents' files are known in every directory, and one that is meant is so by its whole name alone.
        let meant = VisibleCredentials::from([".claude/.credentials.json".into()]);
        for (path, is_hidden) in [
            ("/home/me/.claude/.credentials.json", false),
            ("/home/me/cfg/.credentials.json", true),
            ("/home/me/.codex/.credentials.json", true),
            ("/srv/x/oauth_creds.json", true),
            ("/srv/x/oauth-keys.env", true),
            ("/srv/x/credentials.json", false),
        ] {
            let found = never.credential(Path::new(path), &meant);
            assert_eq!(found.is_some(), is_hidden, "{path}");
        }
    }

    /// L6: a file system that folds letters finds a file under any case.
    #[test]
    fn letters_of_any_case_name_a_credential() {
        let (never, none) = (NeverList::builtin(), VisibleCredentials::new());
        let last = never.last_names();
        for path in ["me/.SSH", "me/.Aws", "me/.Config/GH", "x/.NetRC"] {
            let path = Path::new(path);
            assert!(never.credential(path, &none).is_some(), "{path:?}");
            let name = path.file_name().unwrap().as_bytes();
            assert!(last.contains(name), "{path:?}");
        }
        for path in ["me/SSH", "me/.config/ghx", "GH"] {
            assert_eq!(never.credential(Path::new(path), &none), None, "{path}");
        }
        let meant = VisibleCredentials::from([".ssh".into()]);
        assert_eq!(never.credential(Path::new("me/.SSH"), &meant), None);
    }

    #[test]
    fn the_end_of_a_path_is_that_of_its_components() {
        let some = ["", ".", "..", "a", "b", "aB", ".a", "a.", ".b.", "ab"];
        let mut paths: Vec<String> = Vec::new();
        for base in some {
            for next in some {
                for slash in ["/", "//", "/./"] {
                    paths.extend([
                        format!("{base}{slash}{next}"),
                        format!("/{base}{slash}{next}"),
                    ]);
                    paths.push(format!("{base}{slash}{next}/"));
                }
            }
        }
        let by_components = |path: &Path, name: &Path| {
            let mut parts = path.components().rev();
            name.components().rev().all(|want| {
                let have = parts.next();
                have.is_some_and(|have| have.as_os_str().eq_ignore_ascii_case(want.as_os_str()))
            })
        };
        for one in paths.iter().map(Path::new) {
            for other in paths.iter().map(Path::new) {
                let ends = ends_with(one, other);
                assert_eq!(ends, by_components(one, other), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn the_directories_above_every_listed_path_are_closed() {
        let never = NeverList::builtin();
        let listed = never.host.iter().map(|h| &h.path);
        for path in listed.chain(never.read_only.iter().map(|r| &r.path)) {
            for above in path.ancestors().skip(1) {
                assert!(never.is_closed(above), "{above:?}, above {path:?}");
            }
        }
        // No path is listed twice.
        let all: Vec<_> = never.host.iter().map(|h| &h.path).collect();
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
    }

    #[test]
    fn roots_programs_on_the_node_are_never_writable_and_projects_are() {
        let never = NeverList::builtin();
        for path in [
            "/usr",
            "/usr/local/bin",
            "/bin",
            "/sbin",
            "/lib/systemd",
            "/lib64",
            "/opt",
            "/root",
            "/home",
            "/var",
            "/var/spool",
            "/var/spool/cron",
            "/var/lib",
            "/var/lib/dpkg/info",
            "/srv",
            "/var/log",
            "/var/lib/postgresql/data",
            "/var/lib/jenkins",
            "/var/lib/jenkins/plugins",
            "/var/lib/jenkins/workspace",
            "/var/cache/apt/archives",
            "/root/.config/systemd/user",
            "/root/.bashrc",
            "/var/roothome/.profile",
        ] {
            let path = Path::new(path);
            assert!(never.read_only(path).is_some(), "{path:?} is writable");
            assert_eq!(never.refuses(path), None, "{path:?} is refused");
        }
        for path in [
            "/home/me",
            "/home/me/project",
            "/root/project",
            "/root/project/.git",
            "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/pvc/mount",
            "/var/lib/rancher/k3s/storage/pvc",
            "/srv/x",
            "/opt/x",
            "/var/www",
            "/var/www/x",
            "/data",
            "/var/tmp/x",
            "/var/lib/docker/volumes/v/_data",
            "/var/lib/jenkins/workspace/x",
            "/library",
            "/usrlocal",
        ] {
            let path = Path::new(path);
            assert_eq!(never.read_only(path), None, "{path:?} is read-only");
            assert_eq!(never.refuses(path), None, "{path:?} is refused");
        }
        for path in [
            "/var/backups",
            "/var/lib/etcd/member",
            "/var/lib/rancher/k3s/server",
            "/var/lib/k0s/pki",
            "/var/lib/libvirt/images",
            "/run/agentbox/index",
            "/efi/EFI",
            "/home/me/.claude.json",
            "/home/me/.gemini/oauth_creds.json",
            "/home/me/.config/github-copilot/apps.json",
            "/home/me/.m2/settings.xml",
            "/var/snap/microk8s/current/credentials",
        ] {
            assert!(never.refuses(Path::new(path)).is_some(), "{path} is let in");
        }
    }

    #[test]
    fn the_kernels_file_systems_are_known_by_number_and_by_name() {
        let never = NeverList::builtin();
        let of = |kind: &str, magic: i64| {
            let found = FileSystem {
                kind: kind.to_owned(),
                magic,
            };
            never.kernel(&found).is_some()
        };
        assert!(of("proc", 0) && of("", 0x9fa0) && of("fuse", 0x6367_7270));
        // A tmpfs by its number.
        assert!(of("devtmpfs", 0x0102_1994) && !of("tmpfs", 0x0102_1994));
        for (kind, magic) in [
            ("ext4", 0xef53),
            ("overlay", 0x794c_7630),
            ("nfs4", 0x6969),
            ("", 0),
        ] {
            assert!(!of(kind, magic), "{kind}");
        }
    }
}
