//! The closing lines of a run, after the command's own. Denied hosts have [`super::summary`].

use crate::log::complain;
use crate::plan::time::EndCause;
use crate::policy::FieldOption;
use crate::runtime::foreground::ended::ChildExit;

/// What is known of a run when its command has ended.
pub struct RunOutcome<'a> {
    /// `--quiet`
    pub quiet: bool,
    /// The command's exit status.
    pub status: i32,
    /// The walls can lead to sockets of databases, and the run had none.
    pub may_connect: bool,
    /// Who took the whole network away, if it was taken away.
    pub without_network: Option<&'a str>,
    /// The summary of denials has a line.
    pub denied: bool,
    /// Processes that the kernel killed for memory.
    pub killed: u64,
}

/// A line that explains how a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosingLine<'a> {
    /// The machine's database sockets are not visible inside.
    MachineSockets,
    /// It failed, and had no network, by this origin.
    WithoutNetwork(&'a str),
    /// The kernel killed so many processes for memory.
    Killed(u64),
}

impl<'a> RunOutcome<'a> {
    /// The lines, in their order.
    pub fn lines(&self) -> Vec<ClosingLine<'a>> {
        if self.quiet {
            return Vec::new();
        }
        let without = self.without_network.filter(|_| self.status != 0);
        // A denial explains a failure better.
        let sockets = self.may_connect && self.without_network.is_none() && !self.denied;
        let sockets = sockets.then_some(ClosingLine::MachineSockets);
        let killed = (self.killed > 0).then_some(ClosingLine::Killed(self.killed));
        let lines = sockets
            .into_iter()
            .chain(without.map(ClosingLine::WithoutNetwork));
        lines.chain(killed).collect()
    }
}

/// The command failed, and had no network. No sidecar answered there, so no line says which host was tried.
pub fn without_network(who: &str, answers: &[FieldOption]) {
    complain(&without_network_line(who, answers));
}

fn without_network_line(who: &str, answers: &[FieldOption]) -> String {
    let kept = match answers {
        [] => "",
        _ => ", --ask the hosts that you allowed in this project",
    };
    format!(
        "agentbox: the command had no network (network.mode=none, {who}); --allow HOST lets it reach one{kept}"
    )
}

/// The kernel killed processes of the command.
pub fn killed_for_memory(killed: u64) {
    let processes = match killed {
        1 => "a process".to_owned(),
        more => format!("{more} processes"),
    };
    complain(&format!(
        "agentbox: the kernel killed {processes} for limits.memory; --set limits.memory=SIZE sets another limit"
    ));
}

/// The exit status of a command that was ended: timeout(1)'s.
const TIMED_OUT: i32 = 124;

/// Says why the command was ended. The last line on standard error.
pub fn timed_out(cause: EndCause) -> ChildExit {
    complain(&format!("agentbox ended the command: {cause}"));
    ChildExit::with(TIMED_OUT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Field;

    /// A command that failed, for no known reason.
    const FAILED: RunOutcome<'static> = RunOutcome {
        quiet: false,
        status: 1,
        may_connect: true,
        without_network: None,
        denied: false,
        killed: 0,
    };

    #[test]
    fn a_failure_is_explained_by_what_the_run_knows() {
        use ClosingLine::{Killed, MachineSockets, WithoutNetwork};
        let without_network = Some("policy strict");
        for (outcome, lines) in [
            (RunOutcome { ..FAILED }, vec![MachineSockets]),
            // A denial, sockets that were named, and walls that lead to none.
            (
                RunOutcome {
                    denied: true,
                    ..FAILED
                },
                vec![],
            ),
            (
                RunOutcome {
                    may_connect: false,
                    ..FAILED
                },
                vec![],
            ),
            (
                RunOutcome {
                    without_network,
                    ..FAILED
                },
                vec![WithoutNetwork("policy strict")],
            ),
            (
                RunOutcome {
                    without_network,
                    denied: true,
                    killed: 2,
                    ..FAILED
                },
                vec![WithoutNetwork("policy strict"), Killed(2)],
            ),
            (
                RunOutcome {
                    killed: 1,
                    ..FAILED
                },
                vec![MachineSockets, Killed(1)],
            ),
            (
                RunOutcome {
                    without_network,
                    may_connect: false,
                    ..FAILED
                },
                vec![WithoutNetwork("policy strict")],
            ),
        ] {
            assert_eq!(outcome.lines(), lines);
            let quiet = RunOutcome {
                quiet: true,
                ..outcome
            };
            assert_eq!(quiet.lines(), []);
        }
    }

    #[test]
    fn a_command_that_succeeded_without_network_did_not_miss_it() {
        let outcome = RunOutcome {
            status: 0,
            without_network: Some("policy strict"),
            killed: 1,
            ..FAILED
        };
        // A killed process may be one that the command survived.
        assert_eq!(outcome.lines(), [ClosingLine::Killed(1)]);
    }

    #[test]
    fn a_command_without_network_learns_of_hosts_that_the_user_allowed_before() {
        let line = without_network_line("policy strict", &[]);
        assert!(line.ends_with("; --allow HOST lets it reach one"), "{line}");
        let answer = FieldOption::adding("allow", Field::NetworkAllow, "a.test");
        let line = without_network_line("policy strict", &[answer]);
        assert!(
            line.ends_with(", --ask the hosts that you allowed in this project"),
            "{line}"
        );
    }
}
