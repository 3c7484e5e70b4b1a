//! PURE. The bundle's config.json: what an engine would write for these directories.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use oci_spec::runtime::Box as TerminalSize;
use oci_spec::runtime::{
    LinuxBuilder, LinuxNamespaceBuilder, LinuxNamespaceType, Mount, MountBuilder, ProcessBuilder,
    RootBuilder, Spec, SpecBuilder, UserBuilder,
};

use super::layout::Layout;
use super::person::Person;
use crate::plan::{CapabilitySets, process};
use crate::policy::Capability;

/// The command and its surroundings.
pub struct Command<'a> {
    /// Program and arguments.
    pub args: &'a [String],
    /// Environment.
    pub environment: Vec<String>,
    /// The user who runs it.
    pub person: &'a Person,
    /// The size of its pseudo-terminal, if it gets one: the caller's.
    pub terminal: Option<TerminalSize>,
    /// The container's id.
    pub id: &'a str,
    /// Parent of the container's cgroup: the root, or the user's.
    pub cgroup: PathBuf,
}

/// Builds the spec. An error if a path that it masks or makes read-only is no UTF-8 text.
pub fn build(layout: &Layout, command: &Command<'_>) -> Result<Spec> {
    let mut spec = SpecBuilder::default()
        .version("1.2.0")
        .root(
            RootBuilder::default()
                .path("rootfs")
                .readonly(true)
                .build()
                .expect("path and readonly are set"),
        )
        .hostname("agentbox")
        .mounts(mounts(layout))
        .build()
        .expect("the other fields have defaults");
    let mut linux = LinuxBuilder::default()
        .namespaces(namespaces())
        .cgroups_path(command.cgroup.join(format!("agentbox-{}", command.id)))
        .masked_paths(texts(&layout.masked)?)
        .readonly_paths(texts(&layout.readonly)?)
        .build()
        .expect("the other fields have defaults");
    linux.set_seccomp(None);
    spec.set_linux(Some(linux));
    spec.set_process(Some(wrapped(layout, command)));
    Ok(spec)
}

/// A replacement character in a path would name another file, and leave this one as it is.
fn texts(paths: &[PathBuf]) -> Result<Vec<String>> {
    let texts = paths.iter().map(|path| {
        let text = path.to_str().map(str::to_owned);
        text.ok_or_else(|| anyhow!("{path:?} has bytes that are no UTF-8 text: rename it"))
    });
    texts.collect()
}

fn wrapped(layout: &Layout, command: &Command<'_>) -> oci_spec::runtime::Process {
    let user = UserBuilder::default()
        .uid(command.person.uid)
        .gid(command.person.gid)
        .additional_gids(command.person.groups.clone())
        .build()
        .expect("both ids are set");
    // As under an engine: root gets the capabilities that the policy may keep, an ordinary user none.
    let mut sets = CapabilitySets::default();
    if command.person.uid == 0 {
        let all = BTreeSet::from(Capability::ORDINARY);
        sets = CapabilitySets {
            bounding: all.clone(),
            effective: all.clone(),
            permitted: all,
            ..sets
        };
    }
    let mut process = ProcessBuilder::default()
        .args(command.args.to_vec())
        .env(command.environment.clone())
        .cwd(layout.cwd.clone())
        .user(user)
        .terminal(command.terminal.is_some())
        .no_new_privileges(true)
        .capabilities(process::to_spec(&sets))
        .build()
        .expect("the other fields have defaults");
    // The program may read it before the relay has the terminal.
    process.set_console_size(command.terminal);
    // The default is 1,024 open files, soft and hard. Without it the command has the caller's limit.
    process.set_rlimits(None);
    process
}

fn mounts(layout: &Layout) -> Vec<Mount> {
    let dev = ["nosuid", "strictatime", "mode=755", "size=65536k"];
    let quiet = ["nosuid", "noexec", "nodev"];
    let mut all = vec![
        mount("/proc", "proc", Path::new("proc"), &quiet),
        mount("/dev", "tmpfs", Path::new("tmpfs"), &dev),
        mount(
            "/dev/pts",
            "devpts",
            Path::new("devpts"),
            &[
                "nosuid",
                "noexec",
                "newinstance",
                "ptmxmode=0666",
                "mode=0620",
            ],
        ),
        mount(
            "/dev/shm",
            "tmpfs",
            Path::new("shm"),
            &["nosuid", "noexec", "nodev", "mode=1777", "size=67108864"],
        ),
        mount("/dev/mqueue", "mqueue", Path::new("mqueue"), &quiet),
        mount(
            "/sys",
            "sysfs",
            Path::new("sysfs"),
            &["nosuid", "noexec", "nodev", "ro"],
        ),
        mount(
            "/run",
            "tmpfs",
            Path::new("tmpfs"),
            &["nosuid", "nodev", "mode=755", "size=1048576"],
        ),
    ];
    let own = layout.agent_mounts();
    let is_below = |path: &&PathBuf| own.keys().any(|place| path.starts_with(place));
    let (below, binds): (Vec<_>, Vec<_>) = layout.binds.iter().partition(is_below);
    all.extend(binds.into_iter().map(|path| bind(path, "ro")));
    // The network wall mounts its own files over these.
    all.extend(
        ["/etc/hosts", "/etc/resolv.conf"]
            .map(|path| mount(path, "bind", Path::new("/dev/null"), &["bind", "ro"])),
    );
    // Parents first: one may contain another.
    let mut written: Vec<&PathBuf> = layout.written.iter().chain([&layout.workspace]).collect();
    written.extend(&layout.caches);
    written.sort();
    all.extend(written.into_iter().map(|path| bind(path, "rw")));
    let options = ["bind", "rprivate", "rw"];
    all.extend(
        own.iter()
            .map(|(at, own)| mount(at, "bind", &own.source, &options)),
    );
    all.extend(below.into_iter().map(|path| bind(path, "ro")));
    all
}

fn bind(path: &Path, access: &str) -> Mount {
    mount(path, "bind", path, &["bind", "rprivate", access])
}

fn mount(destination: impl AsRef<Path>, kind: &str, source: &Path, options: &[&str]) -> Mount {
    MountBuilder::default()
        .destination(destination.as_ref())
        .typ(kind)
        .source(source)
        .options(options.iter().map(ToString::to_string).collect::<Vec<_>>())
        .build()
        .expect("all fields of a mount are set")
}

fn namespaces() -> Vec<oci_spec::runtime::LinuxNamespace> {
    let new = |typ| {
        LinuxNamespaceBuilder::default()
            .typ(typ)
            .build()
            .expect("the type is set")
    };
    use LinuxNamespaceType::{Cgroup, Ipc, Mount, Pid, Uts};
    // No network namespace: the sidecar dials from the node's own.
    [Pid, Ipc, Uts, Mount, Cgroup].map(new).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wrap::person::Environment;

    fn built(uid: u32, change: impl FnOnce(&mut Layout)) -> Spec {
        let mut layout = Layout::empty(Path::new("/w"), &[]);
        change(&mut layout);
        let person = Person {
            uid,
            gid: uid,
            groups: vec![8],
            account: None,
            environment: Environment::Own,
        };
        let command = Command {
            args: &["true".to_owned()],
            environment: Vec::new(),
            person: &person,
            terminal: None,
            id: "c1",
            cgroup: "/u".into(),
        };
        build(&layout, &command).unwrap()
    }

    /// Mount points from the first bind mount on.
    fn binds(spec: &Spec) -> Vec<String> {
        let all = spec.mounts().iter().flatten();
        let binds = all.filter(|mount| mount.typ().as_deref() == Some("bind"));
        let words = binds.map(|mount| {
            let options = mount.options().as_ref().unwrap();
            format!(
                "{} {}",
                mount.destination().display(),
                options.last().unwrap()
            )
        });
        words.collect()
    }

    #[test]
    fn binds_come_before_what_is_written_in_them() {
        let spec = built(1000, |layout| {
            layout.binds = ["/usr", "/home/u"].map(PathBuf::from).into();
            layout.written.insert("/home/u/out".into());
            layout.caches.insert("/home/u/.cache".into());
            layout.workspace = "/home/u/p".into();
        });
        assert_eq!(
            binds(&spec),
            [
                "/usr ro",
                "/home/u ro",
                "/etc/hosts ro",
                "/etc/resolv.conf ro",
                "/home/u/.cache rw",
                "/home/u/out rw",
                "/home/u/p rw",
            ]
        );
    }

    #[test]
    fn a_path_that_cannot_be_written_down_is_masked_or_an_error() {
        use std::ffi::OsStr;
        use std::os::unix::ffi::OsStrExt;
        let odd = PathBuf::from(OsStr::from_bytes(b"/w/priv\xe9"));
        let error = texts(&["/w/a".into(), odd]).unwrap_err().to_string();
        assert!(error.contains("priv\\xE9"), "{error}");
    }

    #[test]
    fn the_root_is_read_only_and_the_network_is_left_to_the_sidecar() {
        let spec = built(1000, |layout| {
            layout.masked.push("/w/.netrc".into());
            layout.readonly.push("/w/.agentbox.toml".into());
        });
        assert_eq!(spec.root().as_ref().unwrap().readonly(), Some(true));
        let linux = spec.linux().as_ref().unwrap();
        let kinds: Vec<_> = linux
            .namespaces()
            .iter()
            .flatten()
            .map(|n| n.typ())
            .collect();
        use LinuxNamespaceType::{Cgroup, Ipc, Mount, Pid, Uts};
        assert_eq!(kinds, [Pid, Ipc, Uts, Mount, Cgroup]);
        assert_eq!(linux.masked_paths(), &Some(vec!["/w/.netrc".to_owned()]));
        let readonly = Some(vec!["/w/.agentbox.toml".to_owned()]);
        assert_eq!(linux.readonly_paths(), &readonly);
        assert_eq!(
            linux.cgroups_path().as_deref(),
            Some(Path::new("/u/agentbox-c1"))
        );
    }

    #[test]
    fn only_root_gets_capabilities_and_nobody_new_ones() {
        for (uid, has) in [(0, true), (1000, false)] {
            let spec = built(uid, |_| {});
            let process = spec.process().as_ref().unwrap();
            assert_eq!(process.no_new_privileges(), Some(true));
            assert_eq!(process.user().additional_gids(), &Some(vec![8]));
            let sets = CapabilitySets::of(process.capabilities().as_ref());
            assert_eq!(!sets.effective.is_empty(), has, "{uid}");
            assert_eq!(sets.bounding, sets.effective);
            assert!(sets.ambient.is_empty() && sets.inheritable.is_empty());
        }
    }
}
