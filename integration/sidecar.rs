//! The sidecar is confined, answers once, ends with init, and nothing opens without it.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use agentbox::network::{InnerMode, enter};
use agentbox::sidecar::{
    AttachRequest, CgroupConfig, CgroupLimits, Duty, Loss, ProtocolError, SidecarConfig,
    SidecarError, SidecarRecord, SidecarRlimits, StartingSidecar, kill, remove, request_namespace,
    spawn,
};
use agentbox::sys::{process, socket};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions};

use crate::alone::alone;
use crate::command::lives;
use crate::inner_namespace::{assert_no_children, config as inner_config, make};

pub const ID: u32 = 2_000_000_123;
pub const SOON: Duration = Duration::from_secs(30);

pub fn program() -> fs::File {
    // The release build if hack/test runs: its size is measured.
    let built = std::env::var_os("AGENTBOX_BIN").unwrap_or(env!("CARGO_BIN_EXE_agentbox").into());
    fs::File::open(built).unwrap()
}

pub fn config() -> SidecarConfig<'static> {
    SidecarConfig {
        uid: ID,
        gid: ID,
        limits: SidecarRlimits {
            open_files: 1000,
            file_bytes: 65_536,
        },
        cgroup: None,
        log: None,
        duty: Duty::Wait,
        loss: Loss::Tolerated,
        reading: None,
    }
}

/// Stands in for a container's init.
pub struct Init {
    pub process: Child,
    pidfd: OwnedFd,
}

impl Init {
    pub fn start() -> Self {
        let process = Command::new("sleep").arg("50").spawn().unwrap();
        let pidfd = rustix::process::pidfd_open(Pid::from_child(&process), PidfdFlags::empty());
        Self {
            process,
            pidfd: pidfd.unwrap(),
        }
    }

    pub fn end(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub fn attach(&self) -> AttachRequest<'_> {
        AttachRequest {
            netns: None,
            init_pidfd: self.pidfd.as_fd(),
            inner: Some(make(&inner_config(InnerMode::Loopback))),
            shown: None,
            watched: Vec::new(),
            counts: Vec::new(),
            calls: None,
            serving: None,
        }
    }
}

/// Starts a sidecar until it is ready. Returns its record, init's end of the socket, and the cookie.
pub fn ready(config: &SidecarConfig<'_>, init: &Init) -> (SidecarRecord, OwnedFd, u64) {
    let mut spawned = spawn(config, program().as_fd()).unwrap();
    let end = spawned.take_init_end().unwrap();
    let attach = init.attach();
    let cookie = attach.inner.as_ref().unwrap().cookie;
    (spawned.attach(attach).unwrap(), end, cookie)
}

fn refuse(spawned: StartingSidecar) -> SidecarError {
    let init = Init::start();
    let error = spawned.attach(init.attach()).unwrap_err();
    init.end();
    assert_no_children();
    error
}

pub fn proc_file(record: &SidecarRecord, name: &str) -> String {
    fs::read_to_string(format!("/proc/{}/{name}", record.pid)).unwrap()
}

fn namespace(pid: &str, kind: &str) -> std::path::PathBuf {
    fs::read_link(format!("/proc/{pid}/ns/{kind}")).unwrap()
}

pub fn is_alive(record: &SidecarRecord) -> bool {
    lives(record.pid)
}

/// Waits for its end and reaps it. Returns its exit code, if it has one.
fn wait_end(record: &SidecarRecord) -> Option<i32> {
    let deadline = Instant::now() + SOON;
    while is_alive(record) {
        assert!(Instant::now() < deadline, "the sidecar still lives");
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = rustix::process::waitpid(Pid::from_raw(record.pid), WaitOptions::empty());
    ended.unwrap().unwrap().1.exit_status()
}

/// Waits until it has exactly these descriptors: it closes the others just after it answered.
pub fn assert_descriptors(record: &SidecarRecord, expected: &[&str]) {
    let deadline = Instant::now() + SOON;
    while descriptors(record) != expected && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(descriptors(record), expected);
}

/// The targets of its descriptors, sorted.
fn descriptors(record: &SidecarRecord) -> Vec<String> {
    let mut found: Vec<String> = fs::read_dir(format!("/proc/{}/fd", record.pid))
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let target = fs::read_link(&path).unwrap().to_string_lossy().into_owned();
            target.split('[').next().unwrap().to_owned()
        })
        .collect();
    found.sort();
    found
}

#[test]
fn has_no_privilege_no_file_and_no_foreign_descriptor() {
    alone(|| {
        let init = Init::start();
        let (record, end, _) = ready(&config(), &init);
        let status = proc_file(&record, "status");
        let field = |name: &str| {
            let line = status
                .lines()
                .find(|line| line.starts_with(&format!("{name}:")));
            line.unwrap().split_once(':').unwrap().1.trim().to_owned()
        };
        for name in ["Uid", "Gid"] {
            assert_eq!(field(name), format!("{ID}\t{ID}\t{ID}\t{ID}"));
        }
        assert_eq!(field("Groups"), "");
        for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(field(name), "0000000000000000", "{name}");
        }
        for (name, value) in [("NoNewPrivs", "1"), ("Seccomp", "2"), ("Threads", "1")] {
            assert_eq!(field(name), value, "{name}");
        }
        assert!(field("NSpid").ends_with("\t1"), "{}", field("NSpid"));
        assert_eq!(record.landlock_abi, process::landlock_abi().unwrap());
        // Not dumpable: its files in /proc are root's.
        let owner = fs::metadata(format!("/proc/{}/mem", record.pid)).unwrap();
        assert_eq!(std::os::unix::fs::MetadataExt::uid(&owner), 0);
        for kind in ["pid", "mnt", "ipc", "uts"] {
            assert_ne!(
                namespace("self", kind),
                namespace(&record.pid.to_string(), kind)
            );
        }
        let mounts = proc_file(&record, "mounts");
        assert_eq!(mounts.lines().count(), 1, "{mounts}");
        assert!(
            mounts.starts_with("none / tmpfs ro,nosuid,nodev,noexec"),
            "{mounts}"
        );
        let root = fs::read_dir(format!("/proc/{}/root/", record.pid)).unwrap();
        assert_eq!(root.count(), 0);
        let null = "/dev/null";
        let expected = ["/", null, null, null, "anon_inode:", "net:", "socket:"];
        assert_descriptors(&record, &expected);
        drop(end);
        kill(&record).unwrap();
        init.end();
    });
}

#[test]
#[ignore = "a figure of the release build: hack/test"]
fn is_small() {
    alone(|| {
        let init = Init::start();
        let (record, _end, _) = ready(&config(), &init);
        let status = proc_file(&record, "status");
        let resident = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        println!("the sidecar's resident set: {resident}");
        let kilobytes: u64 = resident.split_whitespace().nth(1).unwrap().parse().unwrap();
        assert!(kilobytes < 4096, "{resident}");
        kill(&record).unwrap();
        init.end();
    });
}

#[test]
fn hands_the_namespace_over_once() {
    alone(|| {
        let init = Init::start();
        let (record, end, cookie) = ready(&config(), &init);
        let handover = request_namespace(end.as_fd(), SOON).unwrap();
        assert_eq!(handover.cookie, cookie);
        let again = request_namespace(end.as_fd(), SOON).unwrap_err();
        assert!(matches!(again, ProtocolError::Gone { .. }), "{again}");
        assert!(is_alive(&record));
        // The sysfs and the socket are closed; it keeps the namespace.
        let null = "/dev/null";
        assert_descriptors(&record, &[null, null, null, "anon_inode:", "net:"]);
        enter(handover.netns.as_fd(), handover.cookie).unwrap();
        kill(&record).unwrap();
        init.end();
    });
}

#[test]
fn a_wrong_question_gets_no_namespace() {
    alone(|| {
        let init = Init::start();
        let (record, end, _) = ready(&config(), &init);
        socket::send(end.as_fd(), b"agentbox-enter-2", &[]).unwrap();
        assert!(request_namespace(end.as_fd(), SOON).is_err());
        assert!(is_alive(&record));
        kill(&record).unwrap();
        init.end();
    });
}

#[test]
fn a_killed_sidecar_opens_nothing() {
    alone(|| {
        let init = Init::start();
        let (record, end, _) = ready(&config(), &init);
        kill(&record).unwrap();
        let refused = request_namespace(end.as_fd(), SOON).unwrap_err();
        assert!(matches!(refused, ProtocolError::Gone { .. }), "{refused}");
        init.end();
    });
}

#[test]
fn a_stopped_sidecar_opens_nothing_and_can_still_be_killed() {
    alone(|| {
        let init = Init::start();
        let (record, end, _) = ready(&config(), &init);
        rustix::process::kill_process(Pid::from_raw(record.pid).unwrap(), Signal::STOP).unwrap();
        let refused = request_namespace(end.as_fd(), Duration::from_millis(200)).unwrap_err();
        assert!(
            matches!(refused, ProtocolError::TimedOut { .. }),
            "{refused}"
        );
        kill(&record).unwrap();
        assert!(!is_alive(&record));
        init.end();
    });
}

#[test]
fn only_a_kill_ends_it_before_init_does() {
    alone(|| {
        let init = Init::start();
        let (record, end, _) = ready(&config(), &init);
        let pid = Pid::from_raw(record.pid).unwrap();
        for signal in [
            Signal::TERM,
            Signal::INT,
            Signal::HUP,
            Signal::USR1,
            Signal::PIPE,
        ] {
            rustix::process::kill_process(pid, signal).unwrap();
        }
        // Init has executed: its end closed with the exec.
        drop(end);
        std::thread::sleep(Duration::from_millis(50));
        assert!(is_alive(&record));
        init.end();
        assert_eq!(wait_end(&record), Some(0));
        // `delete` may do the same afterwards.
        kill(&record).unwrap();
        remove(&record).unwrap();
        assert_no_children();
    });
}

#[test]
fn dials_from_the_engines_namespace() {
    alone(|| {
        let engine = make(&inner_config(InnerMode::Loopback));
        let init = Init::start();
        let spawned = spawn(&config(), program().as_fd()).unwrap();
        let attach = AttachRequest {
            netns: Some(engine.netns.as_fd()),
            ..init.attach()
        };
        let record = spawned.attach(attach).unwrap();
        let its = namespace(&record.pid.to_string(), "net");
        assert_ne!(namespace("self", "net"), its);
        enter(engine.netns.as_fd(), engine.cookie).unwrap();
        // In the same namespace at the same time, the numbers can be compared.
        assert_eq!(namespace("thread-self", "net"), its);
        kill(&record).unwrap();
        init.end();
    });
}

#[test]
fn what_it_cannot_set_is_the_error_of_create() {
    alone(|| {
        let mut greedy = config();
        greedy.limits.open_files = 1 << 40;
        let error = refuse(spawn(&greedy, program().as_fd()).unwrap());
        assert!(error.to_string().contains("resource limits"), "{error}");
        let error =
            refuse(spawn(&config(), fs::File::open("/etc/passwd").unwrap().as_fd()).unwrap());
        assert!(matches!(error, SidecarError::Gone), "{error}");
        for id in [0, u32::MAX] {
            let mut root = config();
            root.uid = id;
            let error = spawn(&root, program().as_fd()).unwrap_err();
            assert!(matches!(error, SidecarError::BadIdentity { .. }), "{error}");
        }
    });
}

#[test]
fn dies_with_a_runtime_that_dies_before_it_is_ready() {
    alone(|| {
        let (ours, theirs) = socket::pair().unwrap();
        let (hold, held) = socket::pair().unwrap();
        let runtime = process::fork_into(|| {
            let spawned = spawn(&config(), program().as_fd()).unwrap();
            // Like libcontainer's init, a child keeps every socket of the runtime open.
            process::fork_into(|| {
                drop(socket::receive(held.as_fd(), &mut [0; 1]));
                0
            })
            .unwrap();
            socket::send(theirs.as_fd(), b"x", &[spawned.pidfd()]).unwrap();
            // Without destructors, as if it were killed.
            std::mem::forget(spawned);
            0
        });
        let received = socket::receive(ours.as_fd(), &mut [0; 1]).unwrap();
        rustix::process::waitpid(Some(runtime.unwrap()), WaitOptions::empty()).unwrap();
        assert!(socket::wait_readable(received.fds[0].as_fd(), SOON).unwrap());
        drop(hold);
    });
}

#[test]
fn a_dropped_or_aborted_sidecar_leaves_nothing() {
    alone(|| {
        drop(spawn(&config(), program().as_fd()).unwrap());
        spawn(&config(), program().as_fd())
            .unwrap()
            .abort()
            .unwrap();
        assert_no_children();
    });
}

pub fn cgroup() -> CgroupConfig {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    CgroupConfig {
        parent: format!("/agentbox-test-{}", now.as_nanos()).into(),
        name: "agentbox-sidecar-x".to_owned(),
        limits: CgroupLimits {
            memory_bytes: 16 << 20,
            pids: 4,
            cpu_quota_us: 50_000,
            cpu_period_us: 100_000,
        },
    }
}

pub fn remove_with_parents(record: &SidecarRecord) {
    kill(record).unwrap();
    remove(record).unwrap();
    remove(record).unwrap();
    for path in &record.cgroups {
        assert!(!path.exists(), "{path:?}");
        fs::remove_dir(path.parent().unwrap()).unwrap();
    }
}

#[test]
fn has_a_limited_cgroup_of_its_own() {
    alone(|| {
        let init = Init::start();
        let mut config = config();
        config.cgroup = Some(cgroup());
        let (record, _end, _) = ready(&config, &init);
        println!("{:?}, not limited: {:?}", record.cgroups, record.unlimited);
        assert!(!record.cgroups.is_empty());
        for path in &record.cgroups {
            let members = fs::read_to_string(path.join("cgroup.procs")).unwrap();
            assert_eq!(members.trim(), record.pid.to_string(), "{path:?}");
        }
        let read = |names: &[&str]| {
            let files = record
                .cgroups
                .iter()
                .flat_map(|path| names.iter().map(|n| path.join(n)));
            files
                .into_iter()
                .find_map(|file| fs::read_to_string(file).ok())
        };
        for (controller, names, value) in [
            (
                "memory",
                ["memory.limit_in_bytes", "memory.max"],
                "16777216\n",
            ),
            ("pids", ["pids.max", "pids.max"], "4\n"),
        ] {
            let missing = record
                .unlimited
                .iter()
                .any(|gap| gap.starts_with(controller));
            let expected = (!missing).then(|| value.to_owned());
            assert_eq!(read(&names), expected, "{controller}");
        }
        // The name is taken: a second sidecar with it is refused.
        let error = spawn(&config, program().as_fd()).and_then(|other| other.attach(init.attach()));
        assert!(error.is_err());
        remove_with_parents(&record);
        init.end();
    });
}

#[test]
fn a_unified_node_without_controllers_is_reported_and_it_is_born_in_its_cgroup() {
    alone(|| {
        if !unmount_v1() {
            println!("skipped: no cgroup2 file system is mounted");
            return;
        }
        let init = Init::start();
        let mut config = config();
        config.cgroup = Some(cgroup());
        let (record, _end, _) = ready(&config, &init);
        assert_eq!(record.cgroups.len(), 1);
        let below = record.cgroups[0].strip_prefix("/sys/fs/cgroup").unwrap();
        let below = below.strip_prefix("unified").unwrap_or(below);
        let line = format!("0::{}", Path::new("/").join(below).display());
        assert!(
            proc_file(&record, "cgroup").lines().any(|one| one == line),
            "{line}"
        );
        remove_with_parents(&record);
        init.end();
    });
}

/// Leaves only the cgroup v2 mount in this mount namespace; `false` if there is none.
fn unmount_v1() -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let field = |line: &str, at: usize| line.split(' ').nth(at).unwrap().to_owned();
    for line in mounts.lines().filter(|line| field(line, 2) == "cgroup") {
        rustix::mount::unmount(field(line, 1), UnmountFlags::DETACH).unwrap();
    }
    mounts.lines().any(|line| field(line, 2) == "cgroup2")
}
