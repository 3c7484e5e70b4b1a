//! The warden: it ends a container when the sidecar ends, without any command, and never otherwise.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use agentbox::sidecar::{Loss, SidecarConfig, SidecarRecord, kill, request_namespace, spawn};
use rustix::process::{Pid, Signal, WaitOptions};

use crate::alone::alone;
use crate::inner_namespace::assert_no_children;
use crate::sidecar::{
    ID, Init, SOON, assert_descriptors, cgroup, config, is_alive, proc_file, program, ready,
};

fn guarded() -> SidecarConfig<'static> {
    SidecarConfig {
        loss: Loss::EndsContainer,
        ..config()
    }
}

/// The warden, as a record like a sidecar's.
fn warden(record: &SidecarRecord) -> SidecarRecord {
    let warden = record.warden.unwrap();
    SidecarRecord {
        pid: warden.pid,
        start_time: warden.start_time,
        warden: None,
        ..record.clone()
    }
}

fn signal(record: &SidecarRecord, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(record.pid).unwrap(), signal).unwrap();
}

/// Waits until they are gone, and reaps the test's own.
fn wait_end(records: &[&SidecarRecord]) {
    let deadline = Instant::now() + SOON;
    for record in records {
        while is_alive(record) {
            assert!(Instant::now() < deadline, "{} still lives", record.pid);
            std::thread::sleep(Duration::from_millis(2));
        }
        // ECHILD for processes that are not the test's.
        let _reaped = rustix::process::waitpid(Pid::from_raw(record.pid), WaitOptions::NOHANG);
    }
}

fn is_running(init: &mut Init) -> bool {
    init.process.try_wait().unwrap().is_none()
}

fn killed_by(init: &mut Init) -> Option<i32> {
    let deadline = Instant::now() + SOON;
    while is_running(init) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(2));
    }
    init.process.try_wait().unwrap().unwrap().signal()
}

#[test]
fn a_warden_may_kill_and_nothing_else() {
    alone(|| {
        let init = Init::start();
        let (record, end, cookie) = ready(&guarded(), &init);
        let warden = warden(&record);
        let status = proc_file(&warden, "status");
        let field = |name: &str| {
            let mut lines = status.lines();
            let line = lines.find(|line| line.starts_with(&format!("{name}:")));
            line.unwrap().split_once(':').unwrap().1.trim().to_owned()
        };
        assert_eq!(field("Name"), "agentbox-warden");
        for name in ["Uid", "Gid"] {
            assert_eq!(field(name), format!("{ID}\t{ID}\t{ID}\t{ID}"));
        }
        assert_eq!(field("Groups"), "");
        for name in ["CapInh", "CapBnd", "CapAmb"] {
            assert_eq!(field(name), "0000000000000000", "{name}");
        }
        // CAP_KILL is number 5.
        for name in ["CapPrm", "CapEff"] {
            assert_eq!(field(name), "0000000000000020", "{name}");
        }
        for (name, value) in [("NoNewPrivs", "1"), ("Seccomp", "2"), ("Threads", "1")] {
            assert_eq!(field(name), value, "{name}");
        }
        let root = fs::read_dir(format!("/proc/{}/root/", warden.pid)).unwrap();
        assert_eq!(root.count(), 0);
        // Pidfds of the sidecar and of init, and its signals. The sidecar has no calls to answer, so it closed their
        // socket.
        assert_descriptors(
            &warden,
            &["anon_inode:", "anon_inode:", "anon_inode:", "socket:"],
        );
        // The sidecar is the same as without a warden: first in its pid namespace, and it answers.
        let own = proc_file(&record, "status");
        assert!(own.contains(&format!("PPid:\t{}", warden.pid)), "{own}");
        let number = own.lines().find(|l| l.starts_with("NSpid:")).unwrap();
        assert!(number.ends_with("\t1"), "{number}");
        assert!(own.contains("CapEff:\t0000000000000000"), "{own}");
        let handover = request_namespace(end.as_fd(), SOON).unwrap();
        assert_eq!(handover.cookie, cookie);
        kill(&record).unwrap();
        init.end();
    });
}

#[test]
fn a_container_ends_with_its_sidecar() {
    alone(|| {
        for sent in [Signal::KILL, Signal::TERM] {
            let mut init = Init::start();
            let (record, _end, _) = ready(&guarded(), &init);
            let warden = warden(&record);
            // Signals from others have no effect on the warden. The sidecar, first in its namespace, dies only of
            // SIGKILL.
            for unheard in [Signal::TERM, Signal::INT, Signal::HUP, Signal::CHILD] {
                signal(&warden, unheard);
            }
            signal(&record, sent);
            if sent == Signal::TERM {
                std::thread::sleep(Duration::from_millis(50));
                assert!(is_running(&mut init) && is_alive(&record) && is_alive(&warden));
                signal(&record, Signal::KILL);
            }
            assert_eq!(killed_by(&mut init), Some(9), "{sent:?}");
            wait_end(&[&record, &warden]);
        }
        assert_no_children();
    });
}

#[test]
fn without_its_warden_a_sidecar_goes_on() {
    alone(|| {
        let mut init = Init::start();
        let (record, end, cookie) = ready(&guarded(), &init);
        let warden = warden(&record);
        signal(&warden, Signal::KILL);
        wait_end(&[&warden]);
        assert!(is_alive(&record) && is_running(&mut init));
        assert_eq!(request_namespace(end.as_fd(), SOON).unwrap().cookie, cookie);
        kill(&record).unwrap();
        assert!(is_running(&mut init));
        init.end();
        // A stopped warden does nothing, and is found by its record.
        let mut init = Init::start();
        let (record, _end, _) = ready(&guarded(), &init);
        let warden = self::warden(&record);
        signal(&warden, Signal::STOP);
        signal(&record, Signal::KILL);
        std::thread::sleep(Duration::from_millis(50));
        assert!(is_running(&mut init) && is_alive(&warden));
        kill(&record).unwrap();
        assert!(!is_alive(&warden) && is_running(&mut init));
        init.end();
    });
}

#[test]
fn both_end_with_init_or_by_order() {
    alone(|| {
        let init = Init::start();
        let (record, _end, _) = ready(&guarded(), &init);
        let warden = warden(&record);
        init.end();
        wait_end(&[&record, &warden]);
        kill(&record).unwrap();
        let mut init = Init::start();
        let (record, _end, _) = ready(&guarded(), &init);
        kill(&record).unwrap();
        assert!(!is_alive(&record) && !is_alive(&self::warden(&record)));
        assert!(is_running(&mut init));
        init.end();
    });
}

#[test]
fn a_warden_whose_sidecar_never_becomes_ready_leaves_nothing() {
    alone(|| {
        let mut config = guarded();
        config.cgroup = Some(cgroup());
        for wait in [0, 30] {
            let spawned = spawn(&config, program().as_fd()).unwrap();
            std::thread::sleep(Duration::from_millis(wait));
            let paths = spawned.record().cgroups.clone();
            spawned.abort().unwrap();
            for path in paths {
                assert!(!path.exists(), "{path:?}");
                let _shared = fs::remove_dir(path.parent().unwrap());
            }
        }
        let mut greedy = guarded();
        greedy.limits.open_files = 1 << 40;
        let init = Init::start();
        let spawned = spawn(&greedy, program().as_fd()).unwrap();
        let attach = init.attach();
        let error = spawned.attach(attach).unwrap_err();
        assert!(error.to_string().contains("resource limits"), "{error}");
        init.end();
        assert_no_children();
    });
}

#[test]
fn both_are_in_the_sidecars_cgroup() {
    // Pages of a newly linked program count as the process's own until they are on disk.
    program().sync_all().unwrap();
    alone(|| {
        let init = Init::start();
        let mut config = guarded();
        config.cgroup = Some(cgroup());
        let (record, _end, _) = ready(&config, &init);
        let pids = [warden(&record).pid, record.pid];
        for path in &record.cgroups {
            let members = fs::read_to_string(path.join("cgroup.procs")).unwrap();
            let mut members: Vec<i32> = members.lines().map(|l| l.parse().unwrap()).collect();
            members.sort_unstable();
            assert_eq!(members, pids, "{path:?}");
        }
        // Memory that it shares with no process: neither the sidecar's pages nor the program's file.
        let memory = proc_file(&warden(&record), "smaps_rollup");
        let own = memory.lines().find(|l| l.starts_with("Private_Dirty:"));
        println!("the warden's own memory: {}", own.unwrap());
        let own: u64 = own
            .unwrap()
            .split_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap();
        assert!(own < 256, "{memory}");
        crate::sidecar::remove_with_parents(&record);
        init.end();
    });
}
