//! SHELL. The user's own secrets: their values, read outside of the sandbox when it is made, and the variables that stay
//! outside with them.
//!
//! A value comes from where no sandbox writes: else an agent could choose the key that later runs use, or the program
//! that runs outside of the walls.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use zeroize::Zeroizing;

use super::agents::program::ProgramPlaces;
use super::command::CommandFiles;
use super::own_file;
use super::person::Person;
use super::request::WrapRequest;
use super::settings::places;
use super::settings::sealed_file::is_closed;
use super::variables;
use crate::log::progress::Progress;
use crate::plan::secrets::not_seen_under;
use crate::policy::{
    Field, NodeSecret, ResolvedPolicy, SecretCommand, Switch, UserSource, VariableName,
};
use crate::runtime::{RuntimeError, unprivileged};
use crate::sys::bounded::{self, OutputLimits, ProgramUser};
use crate::sys::clocks;
use crate::sys::program;
use crate::sys::user_namespace::Ids;
use crate::text::few;

/// Most bytes of a command's output. Password stores print notes below the password.
const LONGEST_OUTPUT: usize = 64 << 10;

/// The PATH of a command's interpreter, which is the system's.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl WrapRequest {
    /// The value of a secret, with what follows its first line. Other secrets are not the user's.
    pub fn secret(&self, secret: &NodeSecret) -> Result<Option<Zeroizing<Vec<u8>>>, RuntimeError> {
        let refused = |why: String| RuntimeError::Secret {
            name: secret.name.clone(),
            why,
        };
        let Some(source) = secret.of_user() else {
            return Ok(None);
        };
        let read = match source {
            UserSource::File(file) => {
                let looked = self.person.looking(|| file_of(&self.person, file.as_ref()));
                looked.map_err(|error| refused(error.to_string()))?
            }
            UserSource::Variable(name) => variable(name),
            UserSource::Command(command) => self.output(command),
        };
        read.map(Some).map_err(refused)
    }

    /// What a program prints. It runs outside of all walls, as the user, in `/`.
    fn output(&self, command: &SecretCommand) -> Result<Zeroizing<Vec<u8>>, String> {
        let SecretCommand {
            program,
            arguments,
            variables,
            seconds,
        } = command;
        let person = &self.person;
        let checked = person.looking(|| self.check_program(program.as_ref()));
        checked.map_err(|error| error.to_string())??;
        let listed: Vec<&str> = variables.iter().map(VariableName::as_str).collect();
        let mut started = program::command(program.as_ref(), &listed);
        started.args(arguments).current_dir("/");
        started.env("USER", person.name());
        started.env("LOGNAME", person.name());
        if let Some(home) = places::home(person) {
            started.env("HOME", home);
        }
        let limits = OutputLimits {
            time: Duration::from_secs(seconds.get().into()),
            bytes: LONGEST_OUTPUT,
        };
        let begun = Instant::now();
        let mut progress = Progress::begin(|| format!("waiting for the command {program}"));
        let mut waiting =
            || progress.tell(|| format!("{} s of {seconds}", begun.elapsed().as_secs()));
        let read = bounded::output(&mut started, user(person), limits, &mut waiting);
        drop(progress);
        read.map_err(|error| {
            let hint = match error {
                bounded::OutputError::Time(_) => {
                    "; it cannot ask at the terminal, and command-seconds sets its time limit"
                }
                _ => "",
            };
            format!("the command {program} {error}{hint}")
        })
    }

    /// Refuses a program that a sandbox, or another user, could have written, also through its interpreter.
    fn check_program(&self, program: &Path) -> Result<(), String> {
        let name = program.display().to_string();
        if !program.exists() {
            return Err(format!(
                "the command {name} cannot be run: there is no such file"
            ));
        }
        let files = CommandFiles::of(&name, PATH, Path::new("/"));
        if let Some(unknown) = files.unknown {
            return Err(format!(
                "the command {name} cannot be run: cannot tell which file {unknown} runs; name a program by its path"
            ));
        }
        let places = ProgramPlaces::of(&self.person, &self.list, self.written());
        match places.written_by_a_sandbox(files.files.iter().chain(&files.before)) {
            None => Ok(()),
            Some(path) => Err(format!(
                "the command {name} is not run: a sandbox or another user could have written {path:?}; use one of the system's, or keep \
                 it in ~/.config/agentbox"
            )),
        }
    }
}

/// The user who runs a command: never more than the sandbox's own.
fn user(person: &Person) -> ProgramUser {
    let ids = Ids {
        uid: person.uid,
        gid: person.gid,
    };
    if unprivileged::inside().is_some() {
        return ProgramUser::Below(ids);
    }
    match person.uid == rustix::process::geteuid().as_raw() {
        true => ProgramUser::Caller,
        false => ProgramUser::Other {
            ids,
            groups: person.groups.clone(),
        },
    }
}

fn file_of(person: &Person, file: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    // Other closed places are shown to sandboxes, which have the user's id.
    let own = places::closed_settings(person);
    let is_own = own.is_some_and(|own| file.canonicalize().is_ok_and(|file| file.starts_with(own)));
    if !is_own || !is_closed(person, file) {
        return Err(format!(
            "the file {file:?} is missing, or lies where a sandbox or another user could read or write it: keep it in ~/.config/agentbox, \
             mode 0600"
        ));
    }
    let read = own_file::read_private(file, person);
    read.map_err(|error| format!("{error:#}"))
}

fn variable(name: &VariableName) -> Result<Zeroizing<Vec<u8>>, String> {
    let value = std::env::var_os(OsStr::new(name.as_str()));
    let value = value.filter(|value| !value.is_empty());
    value
        .map(|value| Zeroizing::new(value.into_vec()))
        .ok_or_else(|| {
            format!("your variable {name} is not set, or empty: set it, or name another source")
        })
}

/// Takes variables with the user's secrets out of an environment: their values never go in, whether or not a run uses them.
pub fn withhold(environment: &mut Vec<String>, secrets: &[NodeSecret]) {
    environment.retain(|pair| {
        let name = pair.split('=').next().unwrap_or(pair);
        !secrets.iter().any(|secret| names(secret, name))
    });
}

/// Whether a variable has a secret's value, or stands for it.
fn names(secret: &NodeSecret, variable: &str) -> bool {
    let source = match secret.of_user() {
        Some(UserSource::Variable(name)) => Some(name),
        Some(UserSource::File(_) | UserSource::Command(_)) | None => None,
    };
    let mut all = secret.env.iter().chain(source);
    all.any(|name| name.as_str() == variable)
}

/// Lines about variables that the user names and that stay outside.
pub fn withheld(wanted: &WrapRequest) -> Result<Vec<String>> {
    let secrets = &wanted.asked.secrets;
    if secrets.is_empty() {
        return Ok(Vec::new());
    }
    // Their values do not matter.
    let named = variables::requested_variables(&wanted.variables, |_| Some(String::new()))?;
    let mut lines = Vec::new();
    for (variable, _) in named {
        if let Some(secret) = secrets.iter().find(|secret| names(secret, &variable)) {
            lines.push(format!(
                "agentbox: the variable {variable} is not passed on: secret {} of your settings keeps the key outside",
                secret.name
            ));
        }
    }
    lines.dedup();
    Ok(lines)
}

/// Says which secrets and rules change nothing in this run.
pub fn tell(wanted: &WrapRequest, resolved: &ResolvedPolicy) {
    if wanted.quiet {
        return;
    }
    say_what_is_not_used(wanted, resolved);
    say_what_is_over(resolved);
}

/// Says which secrets of the user a run would use, if its policy and its rules let it.
fn say_what_is_not_used(wanted: &WrapRequest, resolved: &ResolvedPolicy) {
    let network = &resolved.policy.network;
    if network.user_secrets == Switch::On {
        let unused = not_seen_under(&wanted.asked.secrets, network);
        for warning in unused {
            crate::log::complain(&format!("agentbox: {warning}"));
        }
        return;
    }
    let origin = resolved.origins.get(&Field::NetworkUserSecrets);
    let origin = origin.map_or_else(|| "the policy".to_owned(), ToString::to_string);
    for secret in &wanted.asked.secrets {
        if secret.is_for(network) {
            crate::log::complain(&format!(
                "agentbox: secret {} is not used: {} is off ({origin}), so requests go without the key",
                secret.name,
                Field::NetworkUserSecrets,
            ));
        }
    }
}

/// Says which rules and secrets had ended before the run began: each use of them is refused.
fn say_what_is_over(resolved: &ResolvedPolicy) {
    for line in over(resolved.expired(clocks::read())) {
        crate::log::complain(&format!("agentbox: {line}"));
    }
}

/// A line for the rules, and one for the secrets.
fn over([rules, secrets]: [Vec<String>; 2]) -> Vec<String> {
    let line = |kind: &str, all: Vec<String>| {
        (!all.is_empty()).then(|| {
            let all = few(&all, 120);
            format!("{kind} that have expired: {all}; give a later end")
        })
    };
    let lines = [line("rules", rules), line("secrets", secrets)];
    lines.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{SecretPlace, SecretSource};

    fn secret(source: SecretSource, env: Option<&str>) -> NodeSecret {
        NodeSecret {
            name: "model".parse().unwrap(),
            source,
            policies: Default::default(),
            requests: ["GET https://api.example.com/*".parse().unwrap()].into(),
            place: SecretPlace::Header("x-api-key: {}".parse().unwrap()),
            env: env.map(|name| name.parse().unwrap()),
            uses: None,
            until: None,
        }
    }

    #[test]
    fn rules_and_secrets_whose_end_is_past_are_said_and_others_are_not() {
        let of_variable = || SecretSource::User(UserSource::Variable("MY_KEY".parse().unwrap()));
        let until = |date: &str| NodeSecret {
            until: Some(date.parse().unwrap()),
            ..secret(of_variable(), None)
        };
        let mut resolved = crate::plan::tests::sample_resolved();
        let rules = [
            "a.test until 2020-01-01T00:00:00Z",
            "b.test until 2030-01-01T00:00:00Z",
            "c.test for 10m",
        ];
        resolved.policy.network.temporary = rules.map(|rule| rule.parse().unwrap()).into();
        resolved.secrets = vec![until("2020-01-02T00:00:00Z"), until("2030-01-01T00:00:00Z")];
        let at = |date: &str| crate::rules::ClockReading {
            boot_ms: 0,
            unix: date.parse::<crate::rules::EndDate>().unwrap().unix(),
        };
        let said = [
            "rules that have expired: a.test until 2020-01-01T00:00:00Z; give a later end",
            "secrets that have expired: model until 2020-01-02T00:00:00Z; give a later end",
        ];
        let over = |date: &str| over(resolved.expired(at(date)));
        assert_eq!(over("2026-01-01T00:00:00Z"), said);
        assert!(over("2019-01-01T00:00:00Z").is_empty());
    }

    #[test]
    fn the_variable_of_a_secret_and_its_source_stay_outside() {
        let of_variable = UserSource::Variable("MY_KEY".parse().unwrap());
        let of_variable = secret(SecretSource::User(of_variable), Some("API_KEY"));
        let of_file = secret(
            SecretSource::File("/etc/agentbox/model".parse().unwrap()),
            Some("OTHER_KEY"),
        );
        let all = [
            "MY_KEY=1",
            "API_KEY=2",
            "OTHER_KEY=3",
            "MY_KEYS=4",
            "my_key=5",
            "API_KEY",
            "X=API_KEY",
        ];
        let left = |secrets: &[NodeSecret]| {
            let mut environment = all.map(str::to_owned).to_vec();
            withhold(&mut environment, secrets);
            environment
        };
        assert_eq!(left(&[]), all);
        let rest = ["MY_KEYS=4", "my_key=5", "X=API_KEY"];
        assert_eq!(left(&[of_variable.clone(), of_file.clone()]), rest);
        // A value that only its file has: its variable alone stays outside.
        assert!(names(&of_file, "OTHER_KEY") && !names(&of_file, "MY_KEY"));
    }
}
