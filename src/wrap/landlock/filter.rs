//! The filter: the policy's, and policies/syscalls/landlock.toml for resources shared with the node, with
//! landlock_clients.toml or landlock_servers.toml.

use std::collections::BTreeSet;

use oci_spec::runtime::{LinuxSeccomp, LinuxSeccompAction, LinuxSeccompFilterFlag};

use crate::data::{BuiltinTable, table};
use crate::plan::Plan;
use crate::runtime::RuntimeError;
use crate::runtime::filter::{self, FilterRequest};
use crate::seccomp::SyscallFilter;
use crate::sys::seccomp::can_wait_killable;

/// Without published ports.
const CLIENTS: BuiltinTable = table!("syscalls/landlock_clients");
/// With published ports.
const SERVERS: BuiltinTable = table!("syscalls/landlock_servers");

/// The common profile, with one of these.
fn profile(own: BuiltinTable) -> LinuxSeccomp {
    let read = |table: BuiltinTable| -> LinuxSeccomp {
        table.read().expect("a test parses the built-in profiles")
    };
    let (mut all, own) = (read(table!("syscalls/landlock")), read(own));
    let rules = all.syscalls().iter().chain(own.syscalls()).flatten();
    let rules = rules.cloned().collect::<Vec<_>>();
    all.set_syscalls(Some(rules));
    all
}

fn of(plan: &Plan) -> LinuxSeccomp {
    profile(match plan.network.inbound.is_empty() {
        true => CLIENTS,
        false => SERVERS,
    })
}

/// Compiles the filter. Loading it gives a listener.
pub fn compile(plan: &Plan) -> Result<SyscallFilter, RuntimeError> {
    let mut profile = of(plan);
    if can_wait_killable() {
        // Otherwise a signal ends a call that this process is making: the caller gets EINTR, or makes it once more.
        let flag = LinuxSeccompFilterFlag::SeccompFilterFlagWaitKillableRecv;
        profile.set_flags(Some(vec![flag]));
    }
    let filter = filter::compile(Some(FilterRequest::unlogged(plan)), Some(&profile))?;
    Ok(filter.expect("a policy's side always makes one"))
}

/// Calls that this process hears of to say what was refused. Landlock allows no port besides the plan's, whatever a policy allows.
const NOTED: [&str; 2] = ["bind", "connect"];

/// Calls in a policy's `syscalls.allow` that these walls deny anyway.
pub fn denied_anyway(plan: &Plan) -> BTreeSet<String> {
    let profile = of(plan);
    let denied: BTreeSet<&String> = profile
        .syscalls()
        .iter()
        .flatten()
        .filter(|rule| {
            rule.action() != LinuxSeccompAction::ScmpActAllow
                && rule.args().as_ref().is_none_or(Vec::is_empty)
        })
        .flat_map(|rule| rule.names())
        .filter(|name| !NOTED.contains(&name.as_str()))
        .collect();
    let asked = plan
        .syscalls
        .allow
        .iter()
        .map(|name| name.as_str().to_owned());
    asked.filter(|name| denied.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp::{ARCH_X86_64, SyscallData, SyscallVerdict};

    fn verdict(number: libc::c_long, args: [u64; 6]) -> SyscallVerdict {
        verdict_of(&profile(CLIENTS), number, args)
    }

    fn verdict_of(profile: &LinuxSeccomp, number: libc::c_long, args: [u64; 6]) -> SyscallVerdict {
        let filter = crate::seccomp::compile(&crate::seccomp::FilterInput {
            ours: None,
            engine: Some(profile),
        });
        let call = SyscallData {
            number: u32::try_from(number).unwrap(),
            arch: ARCH_X86_64,
            args,
        };
        filter.unwrap().unwrap().verdict(&call)
    }

    #[test]
    fn a_socket_is_made_by_us_or_not_at_all() {
        let socket = |family: u64, kind: u64, protocol: u64| {
            verdict(libc::SYS_socket, [family, kind, protocol, 0, 0, 0])
        };
        for kind in [1, 1 | 0o2_000_000, 1 | 0o4_000] {
            assert_eq!(socket(2, kind, 0), SyscallVerdict::Notify(0));
            // The kernel reads an int.
            assert_eq!(
                socket(2 | 1 << 32, kind | 1 << 33, 6),
                SyscallVerdict::Notify(0)
            );
        }
        for (family, kind) in [
            (2, 2),
            (1, 1),
            (1, 2),
            (10, 1),
            (10, 2),
            (16, 3),
            (1 | 1 << 40, 1),
        ] {
            assert!(socket(family, kind, 0).is_denial(), "{family} {kind}");
            assert!(matches!(
                socket(family, kind, 0),
                SyscallVerdict::Errno(1..)
            ));
        }
    }

    #[test]
    fn servers_are_made_by_us_where_ports_are_published_and_nowhere_else() {
        for number in [libc::SYS_bind, libc::SYS_listen] {
            let of = |own| verdict_of(&profile(own), number, [3, 0, 16, 0, 0, 0]);
            assert_eq!(of(SERVERS), SyscallVerdict::Notify(0));
        }
        // Noted alone: Landlock refuses it.
        let bind = verdict(libc::SYS_bind, [3, 0, 16, 0, 0, 0]);
        assert_eq!(bind, SyscallVerdict::Notify(0));
        let listen = verdict(libc::SYS_listen, [3, 0, 0, 0, 0, 0]);
        assert_eq!(listen, SyscallVerdict::Errno(13));
        for number in [libc::SYS_accept, libc::SYS_accept4] {
            let of = |own| verdict_of(&profile(own), number, [3, 0, 0, 0, 0, 0]);
            assert_eq!(of(SERVERS), SyscallVerdict::Allow);
            assert_eq!(of(CLIENTS), SyscallVerdict::Errno(13));
        }
        // No server that starts later shares its port.
        let reuse = |own| verdict_of(&profile(own), libc::SYS_setsockopt, [3, 1, 15, 0, 4, 0]);
        assert_eq!(reuse(SERVERS), SyscallVerdict::Errno(92));
        assert_eq!(reuse(CLIENTS), SyscallVerdict::Allow);
        // All else is the same.
        let rest = |own, count: usize| {
            let all = profile(own).syscalls().clone().unwrap();
            all[..all.len() - count].to_vec()
        };
        assert_eq!(rest(SERVERS, 2), rest(CLIENTS, 2));
    }

    #[test]
    fn only_calls_that_open_a_file_as_terminals_are_opened_are_answered_by_us() {
        let extra = libc::O_NOCTTY | libc::O_CLOEXEC | libc::O_NONBLOCK | 0o100_000;
        let verdicts = |flags: i32| {
            let flags = u64::from(flags.cast_unsigned());
            [
                verdict(libc::SYS_open, [1, flags, 0, 0, 0, 0]),
                verdict(libc::SYS_openat, [3, 1, flags, 0, 0, 0]),
                verdict(libc::SYS_openat, [3, 1, flags | 1 << 32, 0, 0, 0]),
            ]
        };
        for flags in [libc::O_RDWR, libc::O_RDWR | extra] {
            assert_eq!(verdicts(flags), [SyscallVerdict::Notify(0); 3]);
        }
        for flags in [
            libc::O_RDONLY,
            libc::O_WRONLY | extra,
            libc::O_RDWR | libc::O_CREAT,
            libc::O_RDWR | libc::O_TRUNC,
            libc::O_RDWR | libc::O_PATH,
            libc::O_RDWR | libc::O_DIRECTORY,
        ] {
            assert_eq!(verdicts(flags), [SyscallVerdict::Allow; 3], "{flags:o}");
        }
    }

    #[test]
    fn no_socket_is_lingered_over_or_exchanged_for_one_that_landlock_does_not_judge() {
        let set = |level: u64, name: u64| verdict(libc::SYS_setsockopt, [3, level, name, 0, 8, 0]);
        // The kernel reads ints.
        for high in [0, 1 << 32] {
            assert_eq!(set(1 | high, 13 | high), SyscallVerdict::Errno(0));
            assert_eq!(set(6 | high, 31 | high), SyscallVerdict::Errno(92));
        }
        // SO_REUSEADDR, TCP_NODELAY, and the same numbers of the other level.
        for (level, name) in [(1, 2), (6, 1), (6, 13), (1, 31)] {
            assert_eq!(set(level, name), SyscallVerdict::Allow, "{level} {name}");
        }
    }

    #[test]
    fn what_connects_or_reaches_others_by_the_way_is_denied() {
        let denied = |number, args| matches!(verdict(number, args), SyscallVerdict::Errno(1..));
        let fast_open = 0x2000_0000;
        assert!(denied(libc::SYS_sendto, [3, 0, 0, fast_open, 0, 0]));
        assert!(denied(
            libc::SYS_sendmsg,
            [3, 0, fast_open | 0x4000, 0, 0, 0]
        ));
        assert!(denied(libc::SYS_sendmmsg, [3, 0, 1, fast_open, 0, 0]));
        assert!(denied(libc::SYS_socketpair, [1, 2, 0, 0, 0, 0]));
        assert!(!denied(libc::SYS_socketpair, [1, 1, 0, 0, 0, 0]));
        assert!(!denied(libc::SYS_sendto, [3, 0, 0, 0x4000, 0, 0]));
        assert!(denied(libc::SYS_prlimit64, [77, 0, 0x1000, 0, 0, 0]));
        assert!(!denied(libc::SYS_prlimit64, [0, 7, 0x1000, 0, 0, 0]));
        assert!(!denied(libc::SYS_prlimit64, [77, 7, 0, 0x1000, 0, 0]));
        for flag in [0x0002_0000_u64, 0x1000_0000, 0x4000_0000] {
            assert!(denied(libc::SYS_clone, [flag | 17, 0, 0, 0, 0, 0]));
        }
        assert!(!denied(libc::SYS_clone, [0x0120_0011, 0, 0, 0, 0, 0]));
        for number in [
            libc::SYS_ptrace,
            libc::SYS_io_uring_setup,
            libc::SYS_shmget,
            libc::SYS_listen,
            libc::SYS_accept,
            libc::SYS_accept4,
        ] {
            assert!(denied(number, [0; 6]), "{number}");
        }
    }
}
