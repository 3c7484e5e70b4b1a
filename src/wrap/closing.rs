//! The closing lines of a run, after the command's own. Denied hosts have [`super::summary`].

use crate::log::complain;
use crate::plan::time::EndCause;
use crate::runtime::foreground::ended::ChildExit;

/// The command failed, and had no network. No sidecar answered there, so no line says which host was tried.
pub fn without_network(who: &str) {
    complain(&format!(
        "agentbox: the command had no network (network.mode=none, {who}); --allow HOST lets it reach one"
    ));
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
    complain(&format!("agentbox: the command was ended: {cause}"));
    ChildExit::with(TIMED_OUT)
}
