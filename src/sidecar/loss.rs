//! The warden's line about a container that has lost its sidecar, and the sidecar's exit status for the warden.

use rustix::process::WaitIdStatus;

use crate::audit::chain;

/// The sidecar's exit status after a honeytoken that ends the container; 1 is any error.
pub(super) const HONEYTOKEN: u8 = 3;
/// The hint in the line's template.
pub(super) const FIND_THE_CAUSE: &str =
    "find what ended the sidecar: the node's OOM killer, or a process of root";
/// The hint after a honeytoken.
const HONEYTOKENS_HINT: &str = "the denial before this line names the honeytoken and the host";
const ENDED_BY_HONEYTOKEN: &str =
    "a honeytoken ended the container: its init process was sent SIGKILL";

/// How the sidecar ended.
pub(super) struct SidecarEnd {
    pub status: Option<WaitIdStatus>,
    /// Whether the warden killed it because it was stopped.
    pub stopped: bool,
}

/// The line.
pub(super) fn line(template: &str, time: &str, end: &SidecarEnd) -> String {
    let status = end.status.as_ref();
    let how = match status.map(|how| (how.exit_status(), how.terminating_signal())) {
        _ if end.stopped => "it was stopped, so the warden killed it".to_owned(),
        Some((Some(code), _)) if code == i32::from(HONEYTOKEN) => {
            let template = template.replacen(FIND_THE_CAUSE, HONEYTOKENS_HINT, 1);
            return chain::fill(&template, time, ENDED_BY_HONEYTOKEN);
        }
        Some((Some(code), _)) => format!("exit code {code}"),
        Some((_, Some(signal))) => format!("signal {signal}"),
        _ => "for an unknown reason".to_owned(),
    };
    let reason = format!("the container's sidecar died ({how}): its init process was sent SIGKILL");
    chain::fill(template, time, &reason)
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

    use super::*;
    use crate::audit::{Context, Event, EventDetail, LifeState, Verdict, WallName};

    /// How `sh -c SCRIPT` ends.
    fn end_of(script: &str) -> WaitIdStatus {
        let child = std::process::Command::new("sh")
            .args(["-c", script])
            .spawn();
        let child = WaitId::Pid(Pid::from_child(&child.unwrap()));
        waitid(child, WaitIdOptions::EXITED).unwrap().unwrap()
    }

    #[test]
    fn a_honeytokens_end_is_not_a_sidecar_that_died() {
        let what = EventDetail::life(LifeState::Ended);
        let event = Event {
            hint: Some(FIND_THE_CAUSE.into()),
            ..Event::new(WallName::Network, Verdict::Ended, what)
        };
        let template = chain::template(&Context::default(), event);
        let template = String::from_utf8(template).unwrap();
        let said = |script: &str, stopped| {
            let status = Some(end_of(script));
            let end = SidecarEnd { status, stopped };
            let line = line(&template, "2026-01-02T03:04:05.678Z", &end);
            assert!(line.contains("2026-01-02T03:04:05.678Z"), "{line}");
            line
        };
        let honey = said("exit 3", false);
        assert!(honey.contains(ENDED_BY_HONEYTOKEN), "{honey}");
        assert!(honey.contains(HONEYTOKENS_HINT), "{honey}");
        assert!(!honey.contains(FIND_THE_CAUSE), "{honey}");
        for (script, how) in [
            ("exit 1", "exit code 1"),
            ("exit 0", "exit code 0"),
            ("kill -9 $$", "signal 9"),
        ] {
            let died = said(script, false);
            assert!(died.contains(&format!("sidecar died ({how})")), "{died}");
            assert!(died.contains(FIND_THE_CAUSE), "{died}");
        }
        assert!(said("exit 3", true).contains("it was stopped"));
    }
}
