//! PURE. Which agent a command is.
//!
//! An agent's login is in the sandbox of a program that is called like it. So the name alone decides only where no sandbox can have
//! written the program: else a project could bring its own `claude`, and get the login of a user who meant the other one.

use std::path::PathBuf;

use super::list::AgentData;

/// The value by which no agent is chosen.
pub const NO_AGENT: &str = "none";

/// Who chose the agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentOrigin {
    /// `--agent`
    Option,
    /// `agent` of this file of settings.
    Setting(PathBuf),
    /// The command's name.
    Command,
}

/// Why the command's name chooses no agent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AgentDoubt {
    /// A file of the program lies where a sandbox or another user may have written it. A container may mount /opt writable.
    #[error(
        "{0:?} is not root's below /usr, nor in a directory of installers such as ~/.local/bin: a sandbox could have written it"
    )]
    Written(PathBuf),
    /// A file of the program is a shim.
    #[error("{0:?} is a shim, which lets the project choose the program")]
    Shim(PathBuf),
    /// A file of variables that does not count: some of them name code that the program runs.
    #[error("a sandbox could have written the variables of {0:?}: review it with `agentbox trust`")]
    Variables(PathBuf),
    /// It is unknown before the start which file is executed.
    #[error("cannot tell which file {0:?} runs: name the program by its path")]
    Unknown(String),
    /// The policy shows nothing but the workspace.
    #[error("policy {0} gives no login by a name")]
    Policy(String),
}

/// The decision.
#[derive(Debug, PartialEq, Eq)]
pub enum AgentChoice {
    /// There is none.
    None,
    /// This one.
    Agent(String, AgentOrigin),
    /// This one, if it was named.
    Doubt(String, AgentDoubt),
}

/// Decides. `requested` is what an option or settings say, `names` are those of the program, `doubt` tells why its name is not enough.
pub fn choose<E>(
    requested: Option<(String, AgentOrigin)>,
    names: &[String],
    doubt: impl FnOnce() -> Result<Option<AgentDoubt>, E>,
) -> Result<AgentChoice, E> {
    if let Some((name, origin)) = requested {
        return Ok(match name == NO_AGENT {
            true => AgentChoice::None,
            false => AgentChoice::Agent(name, origin),
        });
    }
    let Some((name, _)) = AgentData::by_command(names) else {
        return Ok(AgentChoice::None);
    };
    Ok(match doubt()? {
        None => AgentChoice::Agent(name.to_owned(), AgentOrigin::Command),
        Some(doubt) => AgentChoice::Doubt(name.to_owned(), doubt),
    })
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn decide(requested: Option<&str>, name: &str, doubt: Option<AgentDoubt>) -> AgentChoice {
        let requested = requested.map(|name| (name.to_owned(), AgentOrigin::Option));
        let found: Result<_, Infallible> = choose(requested, &[name.to_owned()], || Ok(doubt));
        found.unwrap()
    }

    #[test]
    fn a_name_chooses_where_no_sandbox_can_have_written_the_program() {
        let written = || Some(AgentDoubt::Written("/w/claude".into()));
        let by = |origin| AgentChoice::Agent("claude".to_owned(), origin);
        assert_eq!(decide(None, "claude", None), by(AgentOrigin::Command));
        assert_eq!(
            decide(None, "claude", written()),
            AgentChoice::Doubt("claude".to_owned(), written().unwrap())
        );
        // A user who names it means it.
        assert_eq!(
            decide(Some("claude"), "claude", written()),
            by(AgentOrigin::Option)
        );
        assert_eq!(
            decide(Some("claude"), "sh", written()),
            by(AgentOrigin::Option)
        );
        // A user who wants none has none.
        assert_eq!(decide(Some("none"), "claude", None), AgentChoice::None);
        assert_eq!(decide(None, "sh", written()), AgentChoice::None);
    }

    #[test]
    fn a_policy_can_want_a_name_of_its_own() {
        let doubt = AgentDoubt::Policy("strict".to_owned());
        let withheld = AgentChoice::Doubt("codex".to_owned(), doubt.clone());
        assert_eq!(decide(None, "codex", Some(doubt.clone())), withheld);
        let named = AgentChoice::Agent("codex".to_owned(), AgentOrigin::Option);
        assert_eq!(decide(Some("codex"), "codex", Some(doubt)), named);
    }
}
