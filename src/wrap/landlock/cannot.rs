//! PURE. What these walls lack compared with namespaces, and which policies they refuse because they cannot enforce
//! them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::plan::connect::closed_port;
use crate::plan::report::{DENIED, DENIED_IN};
use crate::plan::{DecidedPlan, NetworkPlan, Plan, ServiceTarget};
use crate::policy::{NetworkMode, Origin, SyscallProfile};

/// The first ABI with rules for TCP ports (Linux 6.7).
pub const LANDLOCK_LEAST_ABI: u32 = 4;
/// The first ABI with rules for device ioctls (Linux 6.10).
const DEVICE_REQUESTS: u32 = 5;
/// The first ABI with scopes for signals (Linux 6.12).
pub const LANDLOCK_SCOPES_ABI: u32 = 6;

/// What is weaker than with namespaces, one sentence each.
pub fn lacks(plan: &Plan, abi: u32) -> Vec<String> {
    let mut all: Vec<String> = [
        "paths outside of the sandbox are refused rather than absent: stat(2) and inotify(7) still show that they exist",
        "a readable directory with hidden entries or mounts below it cannot be listed, and entries made in it later are refused",
        "mounted files, and mounts below a written directory or made later, are visible, and nothing searched them for credentials",
        "extended attributes of hidden files, and the targets of links among them, can be read",
        "there is no private /tmp and no /dev/shm: TMPDIR and HOME are directories of this run, of any size",
        "/etc/hosts and /etc/resolv.conf are not visible, so that no name resolves, not even localhost: use 127.0.0.1",
        "there is no pid namespace: /proc shows other processes' names and command lines, and files such as /proc/keys",
        "the command uses the caller's terminal; your other programs see its pseudo-terminals, at most half of the machine's",
        "writes outside of the workspace are refused rather than discarded",
        "the command can write the project's .agentbox.toml: a changed file has no effect until you trust it again",
        "the command can write git hooks, .git/config, .vscode and other files that your tools run later: review them before you go on",
        "memory, processors and processes are not limited",
        match plan.network.inbound.is_empty() {
            true => "the command can open no IPv6, UDP or listening socket, and UNIX sockets only in pairs",
            false => "the command can open no IPv6 or UDP socket, UNIX sockets only in pairs, and servers only at the ports of --publish",
        },
    ]
    .map(str::to_owned)
    .into();
    all.push(
        match plan.network.mode {
            NetworkMode::Allowlist => {
                "only the proxy of HTTPS_PROXY reaches hosts, and no other server on the loopback is reachable; \
                 other users see the proxy's port on the loopback, and their connections are reset"
            }
            NetworkMode::Local => {
                "no host is reachable, and no other server on the loopback; the proxy of HTTPS_PROXY names the missing rule"
            }
            NetworkMode::None => "no host is reachable, not even the loopback",
        }
        .to_owned(),
    );
    if !plan.network.connect.is_empty() {
        let ports: Vec<String> = plan.network.connect.keys().map(u16::to_string).collect();
        all.push(format!(
            "the ports {} of --connect are open directly, over IPv4, at every address of this machine: without log lines, \
             budgets or a search for honey values",
            ports.join(", ")
        ));
    }
    if !plan.network.inbound.is_empty() {
        let ports: Vec<String> = plan.network.inbound.iter().map(u16::to_string).collect();
        all.push(format!(
            "at the ports {} of --publish the command's servers listen on 127.0.0.1; the command reaches whatever listens at these ports of \
             this machine, over IPv4: its own server, or before that another program's",
            ports.join(", ")
        ));
    }
    if plan.report.denied {
        all.push(format!(
            "there is no {DENIED_IN}/{DENIED}: denied hosts are at /denied of the proxy, denied system calls nowhere"
        ));
    }
    if plan.network.opens().is_some() {
        all.push(
            "system files do not get the certificate of the run's authority: only programs that read SSL_CERT_FILE or similar variables trust opened TLS"
                .to_owned(),
        );
    }
    if abi < LANDLOCK_SCOPES_ABI {
        all.push(format!(
            "Landlock ABI {abi} does not restrict signals (ABI {LANDLOCK_SCOPES_ABI}, Linux 6.12, does): the command can end processes of the same \
             user, and what it starts can outlast wrap and the time limit"
        ));
    }
    if abi < DEVICE_REQUESTS {
        all.push(format!(
            "Landlock ABI {abi} does not restrict device requests (ABI {DEVICE_REQUESTS}, Linux 6.10, does): only the filter does"
        ));
    }
    all
}

/// The time limits that need a cgroup, which these walls do not have.
fn time_without_cgroup(plan: &Plan) -> Option<&'static str> {
    if plan.exec_time.is_some() {
        return Some(
            "time.exec needs a cgroup, which these walls do not have, and no `exec` enters them: leave it out",
        );
    }
    let idle = plan.time.is_some_and(|time| time.idle.lifetime().is_some());
    idle.then_some(
        "time.idle (--idle-timeout) needs the processor time of a cgroup, which these walls do not have: use time.wall (--timeout)",
    )
}

/// Why inbound ports need a network namespace: here the command's server has the node's port itself.
fn publishes_elsewhere(network: &NetworkPlan) -> Option<String> {
    network.inbound.iter().find_map(|port| {
        // The command reaches what listens there, too.
        if let Some(why) = closed_port(*port) {
            return Some(format!(
                "--publish {port} would also lead to port {port} of this machine, which is {why}: use another port"
            ));
        }
        let own = SocketAddr::from((Ipv4Addr::LOCALHOST, *port));
        let also = SocketAddr::from((Ipv6Addr::LOCALHOST, *port));
        let Some(addresses) = network.published.get(port) else {
            return Some(format!(
                "network.inbound = \"{port}\" needs a network namespace, which these walls do not have: use --publish {port}"
            ));
        };
        let other = addresses.iter().find(|address| ![own, also].contains(address));
        let other = match addresses.contains(&own) {
            true => other,
            false => other.or(addresses.first()),
        };
        other.map(|address| {
            format!(
                "--publish {address}:{port} needs a network namespace, which these walls do not have: use --publish {port}, for port \
                 {port} of 127.0.0.1"
            )
        })
    })
}

/// What each field that a user may set needs, where these walls do not have it.
const NOT_KEPT: [(&str, &str); 2] = [
    ("limits.", "needs a cgroup"),
    ("filesystem.scratch", "needs a disk of its own"),
];

/// Why a field that no built-in policy set is not kept, if there is one.
fn not_kept(origins: &BTreeMap<String, String>) -> Option<String> {
    let set = origins
        .iter()
        .filter(|(_, origin)| !Origin::is_builtins(origin));
    let needs = |field: &str| NOT_KEPT.iter().find(|(start, _)| field.starts_with(start));
    let mut all = set.filter_map(|(field, origin)| Some((field, origin, needs(field)?.1)));
    let (field, origin, what) = all.next()?;
    Some(format!(
        "{field} ({origin}) {what}, which these walls do not have"
    ))
}

/// Why these walls cannot enforce a policy, if they cannot.
pub fn refusal(decided: &DecidedPlan, abi: u32) -> Option<String> {
    let plan = &decided.plan;
    if abi < LANDLOCK_LEAST_ABI {
        return Some(format!(
            "this kernel has Landlock ABI {abi}, and TCP ports need ABI {LANDLOCK_LEAST_ABI} (Linux 6.7)"
        ));
    }
    if let Some(why) = not_kept(&decided.origins) {
        return Some(why);
    }
    if decided.resolved.syscalls.profile == SyscallProfile::Debug {
        return Some(
            "syscalls.profile = \"debug\" needs a namespace of processes, which these walls do not have: use \"agent\""
                .to_owned(),
        );
    }
    if let Some(why) = time_without_cgroup(plan) {
        return Some(why.to_owned());
    }
    if plan.network.learns() {
        return Some(
            "report.learn = \"on\" needs a log that is kept, which these walls do not have: use \"off\""
                .to_owned(),
        );
    }
    if plan.network.asking.is_some() {
        return Some(
            "network.on-unknown = \"ask\" needs a terminal or `agentbox approve`, which these walls do not have: leave --ask out"
                .to_owned(),
        );
    }
    if plan.network.signing.is_some() {
        return Some(
            "--ssh-agent (network.ssh-keys) needs a UNIX socket, which these walls do not allow"
                .to_owned(),
        );
    }
    if let Some(socket) = plan.network.sockets.first() {
        return Some(format!(
            "--connect {socket} needs a UNIX socket, which these walls do not allow: use --connect PORT if the server listens on one"
        ));
    }
    if let Some(why) = publishes_elsewhere(&plan.network) {
        return Some(why);
    }
    let elsewhere = plan
        .network
        .connect
        .iter()
        .find_map(|(port, target)| match target {
            ServiceTarget::Machine => None,
            ServiceTarget::Host(host) => Some((port, host)),
        });
    if let Some((port, host)) = elsewhere {
        return Some(format!(
            "--connect {host}:{port} needs a network namespace, which these walls do not have: allow the host with --allow, for programs that use \
             the proxy variables"
        ));
    }
    if let Some(audit) = &plan.report.audit {
        return Some(format!(
            "report.audit = \"{}\" needs a log that is kept, which these walls do not have: use \"off\"",
            audit.policy
        ));
    }
    if let Some(device) = plan.devices.first() {
        return Some(format!(
            "the device {} needs a private /dev",
            device.display()
        ));
    }
    let private = plan.filesystem.mounts.iter().find(|m| m.is_private());
    private.map(|mount| {
        format!(
            "{} would be written and discarded, which needs a mount",
            mount.destination.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::plan::tests::{sample, sample_policy};
    use crate::plan::{ExecTime, TimePlan};
    use crate::policy::SleepRule;

    fn decided(plan: Plan, origins: &[(&str, &str)]) -> DecidedPlan {
        let origins = origins.iter();
        DecidedPlan {
            resolved: sample_policy(),
            origins: origins
                .map(|(field, origin)| ((*field).to_owned(), (*origin).to_owned()))
                .collect::<BTreeMap<_, _>>(),
            plan,
        }
    }

    /// Mounts of the sample that only namespaces could give are no matter here.
    fn plain() -> Plan {
        let mut plan = sample();
        plan.filesystem.mounts.clear();
        plan.devices = [].into();
        plan
    }

    #[test]
    fn a_policy_that_these_walls_cannot_enforce_is_refused_by_name() {
        let builtin = [("limits.pids", "built-in policy standard")];
        let refused =
            |plan: Plan, origins: &[(&str, &str)], abi| refusal(&decided(plan, origins), abi);
        assert_eq!(refused(plain(), &builtin, LANDLOCK_LEAST_ABI), None);
        let old = refused(plain(), &builtin, LANDLOCK_LEAST_ABI - 1).unwrap();
        assert!(old.contains("ABI 3") && old.contains("Linux 6.7"), "{old}");
        let limit = refused(plain(), &[("limits.pids", "--set")], LANDLOCK_LEAST_ABI).unwrap();
        assert!(
            limit.starts_with("limits.pids (--set) needs a cgroup"),
            "{limit}"
        );
        let mut socket = plain();
        let database = "/run/postgresql/.s.PGSQL.5432".parse().unwrap();
        socket.network.sockets.insert(database);
        let socket = refused(socket, &builtin, LANDLOCK_LEAST_ABI).unwrap();
        assert!(socket.contains("--connect PORT"), "{socket}");
        let scratch = refused(
            plain(),
            &[("filesystem.scratch", "--set")],
            LANDLOCK_LEAST_ABI,
        );
        assert!(scratch.unwrap().contains("needs a disk of its own"));
        // The origin of another field says nothing about limits.
        let other = refused(plain(), &[("network.mode", "--set")], LANDLOCK_LEAST_ABI);
        assert_eq!(other, None);
        let mut plan = plain();
        plan.network.connect = [(5432, ServiceTarget::Machine)].into();
        assert_eq!(refused(plan.clone(), &builtin, LANDLOCK_LEAST_ABI), None);
        let db = ServiceTarget::Host("db.test".parse().unwrap());
        plan.network.connect = [(5432, db)].into();
        let host = refused(plan, &builtin, LANDLOCK_LEAST_ABI).unwrap();
        assert!(
            host.contains("db.test:5432") && host.contains("--allow"),
            "{host}"
        );
        let publish = |outside: &[&str]| {
            let mut plan = plain();
            plan.network.inbound = [3000].into();
            let addresses = outside.iter().map(|address| address.parse().unwrap());
            plan.network.published = [(3000, addresses.collect())].into();
            refused(plan, &builtin, LANDLOCK_LEAST_ABI)
        };
        let mut inbound = plain();
        inbound.network.inbound = [3000].into();
        let why = refused(inbound, &builtin, LANDLOCK_LEAST_ABI).unwrap();
        assert!(why.contains("use --publish 3000"), "{why}");
        assert_eq!(publish(&["127.0.0.1:3000"]), None);
        assert_eq!(publish(&["127.0.0.1:3000", "[::1]:3000"]), None);
        for outside in [
            &["127.0.0.1:8080", "[::1]:8080"][..],
            &["127.0.0.1:3000", "[::1]:3000", "127.0.0.1:8080"],
            &["0.0.0.0:3000"],
            &["192.0.2.1:3000"],
            &["[::1]:3000"],
        ] {
            let why = publish(outside).unwrap();
            assert!(why.contains("use --publish 3000"), "{why}");
        }
        let time = |wall: &str, idle: &str| TimePlan {
            wall: wall.parse().unwrap(),
            idle: idle.parse().unwrap(),
            grace: "1s".parse().unwrap(),
            sleep: SleepRule::Counts,
            most: None,
        };
        let mut plan = plain();
        plan.time = Some(time("30m", "unlimited"));
        assert_eq!(refused(plan.clone(), &builtin, LANDLOCK_LEAST_ABI), None);
        plan.time = Some(time("30m", "5m"));
        let idle = refused(plan, &builtin, LANDLOCK_LEAST_ABI).unwrap();
        assert!(idle.contains("--idle-timeout"), "{idle}");
        let mut plan = plain();
        plan.exec_time = Some(ExecTime {
            limit: "5m".parse().unwrap(),
            grace: "1s".parse().unwrap(),
            sleep: SleepRule::Counts,
        });
        let exec = refused(plan, &builtin, LANDLOCK_LEAST_ABI).unwrap();
        assert!(exec.starts_with("time.exec needs a cgroup"), "{exec}");
        let mut plan = plain();
        plan.devices = ["/dev/fuse".into()].into();
        let device = refused(plan, &builtin, LANDLOCK_LEAST_ABI).unwrap();
        assert!(device.contains("/dev/fuse"), "{device}");
    }

    #[test]
    fn older_kernels_lack_more_and_each_lack_is_told() {
        let plan = plain();
        let count = |abi| lacks(&plan, abi).len();
        assert_eq!(count(LANDLOCK_SCOPES_ABI) + 1, count(DEVICE_REQUESTS));
        assert_eq!(count(DEVICE_REQUESTS) + 1, count(LANDLOCK_LEAST_ABI));
        let all = lacks(&plan, LANDLOCK_LEAST_ABI);
        for word in [
            "Linux 6.12",
            "Linux 6.10",
            "no other server on the loopback",
            ".agentbox.toml",
            "not even localhost: use 127.0.0.1",
        ] {
            assert!(
                all.iter().any(|lack| lack.contains(word)),
                "{word}: {all:?}"
            );
        }
        let mut plan = plan;
        plan.network.connect = [(5432, ServiceTarget::Machine)].into();
        let all = lacks(&plan, LANDLOCK_LEAST_ABI);
        let direct = |lack: &&String| lack.contains("5432") && lack.contains("directly");
        assert!(all.iter().any(|lack| direct(&lack)), "{all:?}");
        plan.network.inbound = [3000].into();
        let all = lacks(&plan, LANDLOCK_LEAST_ABI);
        let other = |lack: &&String| lack.contains("3000") && lack.contains("another program's");
        assert!(all.iter().any(|lack| other(&lack)), "{all:?}");
        plan.network.mode = NetworkMode::Allowlist;
        assert!(
            lacks(&plan, 9)
                .iter()
                .any(|lack| lack.contains("HTTPS_PROXY"))
        );
        plan.report.denied = true;
        assert!(
            lacks(&plan, 9)
                .iter()
                .any(|lack| lack.contains("/denied of the proxy"))
        );
    }
}
