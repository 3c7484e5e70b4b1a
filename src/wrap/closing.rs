//! The closing lines of a run, after the command's own. Denied hosts have [`super::summary`].

use crate::log::complain;
use crate::plan::time::EndCause;
use crate::policy::FieldOption;
use crate::runtime::foreground::ended::ChildExit;

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
