//! `agentbox doctor`: what `wrap`, engines and each kind of walls need on this node, tried without changes.
//!
//! [`facts`] uses the enforcing code itself: [`crate::probe::host`], the attempts at a user namespace and a cgroup, the
//! node file, the user's settings, the directories of records and logs. So both always agree. [`engines`] asks the
//! engines, or reads their files ([`registered`]). [`judge`] and [`judge_engines`] turn facts into lines, without I/O.

mod engines;
mod facts;
mod judge;
mod judge_engines;
mod registered;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::cli::GlobalOptions;
use crate::text::escape;

/// The version of the JSON form.
const FORM: u32 = 1;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// As needed.
    Ok,
    /// It works, with restrictions.
    Warning,
    /// The purposes in `needed_for` do not work.
    Missing,
}

impl CheckState {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Missing => "missing",
        }
    }
}

/// A purpose of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Purpose {
    /// `agentbox wrap` as this user.
    Wrap,
    /// `agentbox wrap --walls landlock` as this user.
    Landlock,
    /// Containers of Docker, containerd and podman.
    Engines,
}

/// One line of the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Its name, stable across versions.
    pub name: &'static str,
    /// Its result.
    pub state: CheckState,
    /// The purposes that do not work if the state is `missing`.
    pub needed_for: &'static [Purpose],
    /// The facts in words.
    pub found: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// All checks.
#[derive(Debug, Serialize)]
pub struct DoctorReport {
    /// The version of this format.
    version: u32,
    /// The user who ran the checks.
    user: u32,
    /// Whether `agentbox wrap` can work as this user.
    wrap: bool,
    /// Whether `agentbox wrap --walls landlock` can.
    landlock: bool,
    /// Whether containers of engines can work. Only root can tell: their records and logs are root's.
    engines: Option<bool>,
    checks: Vec<Check>,
}

impl DoctorReport {
    fn of(facts: &facts::DoctorFacts) -> Self {
        let checks = judge::checks(facts);
        let works = |purpose| {
            let mut missing = checks.iter().filter(|c| c.state == CheckState::Missing);
            !missing.any(|check| check.needed_for.contains(&purpose))
        };
        Self {
            version: FORM,
            user: facts.user,
            wrap: works(Purpose::Wrap),
            landlock: works(Purpose::Landlock),
            engines: facts.ordinary.is_none().then(|| works(Purpose::Engines)),
            checks,
        }
    }

    /// Whether `agentbox wrap` can work as this user.
    pub fn wrap_works(&self) -> bool {
        self.wrap
    }

    /// The table for a terminal.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for check in &self.checks {
            let state = check.state.as_str();
            text += &format!("{state:8} {:16} {}\n", check.name, escape(&check.found));
            if let Some(remedy) = &check.remedy {
                text += &format!("{:25} -> {}\n", "", escape(remedy));
            }
        }
        let word = |works: bool| match works {
            true => "works",
            false => "does not work",
        };
        text += &format!(
            "\nagentbox wrap: {}; with --walls landlock: {}; containers of engines: {}\n",
            word(self.wrap),
            word(self.landlock),
            match (self.engines, self.user) {
                (Some(works), _) => word(works),
                (None, 0) => "unknown without CAP_SYS_ADMIN",
                (None, _) => "unknown; run it as root",
            }
        );
        text
    }
}

/// Checks the node, as the caller.
///
/// # Errors
/// No child can be forked for the checks.
pub fn examine(global: &mut GlobalOptions) -> std::io::Result<DoctorReport> {
    Ok(DoctorReport::of(&facts::read(global)?))
}
