//! SHELL. The environment of the command.

use std::collections::BTreeSet;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use anyhow::Result;

use super::bundle::GIT_CONFIG;
use super::git_signing::{self, OfferedKeys};
use super::layout::Layout;
use super::list::SystemList;
use super::person::{Environment, Person};
use super::request::WrapRequest;
use super::{secrets, variables};
use crate::cli::Walls;
use crate::plan::signing::SSH_VARIABLE;
use crate::policy::{Policy, SshFingerprint};

const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The environment of the command: variables that the list passes on, and requested ones.
///
/// If sudo or the like ran in between, HOME, USER, LOGNAME and SHELL come from the user's line of passwd(5), and PATH
/// gets the user's directories. A kept PATH that has some already stays.
pub fn passed(wanted: &WrapRequest, policy: &Policy) -> Result<Vec<String>> {
    variables::check_free(&requested_variables(wanted, &own())?, wanted.walls, policy)?;
    let env = of_run(wanted)?;
    let mut env = env.into_iter().map(|(k, v)| format!("{k}={v}")).collect();
    secrets::withhold(&mut env, &wanted.asked.secrets);
    Ok(env)
}

/// The caller's variables.
fn own() -> Vec<(String, String)> {
    std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .collect()
}

fn requested_variables(
    wanted: &WrapRequest,
    own: &[(String, String)],
) -> Result<Vec<(String, String)>> {
    variables::requested_variables(&wanted.variables, |name| {
        value(own, name).map(str::to_owned)
    })
}

/// Likewise, before a policy is known.
pub fn of_run(wanted: &WrapRequest) -> Result<Vec<(String, String)>> {
    let WrapRequest { list, person, .. } = wanted;
    let own = own();
    let mut env = own.clone();
    env.retain(|(key, _)| list.passes(key));
    match person.environment {
        Environment::Changed => {
            let login = of_login(list, person, value(&env, "PATH"));
            set_all(&mut env, login);
        }
        Environment::Own => {
            if let (None, Some(home)) = (value(&env, "HOME"), person.home()) {
                set_all(&mut env, [("HOME", home.display().to_string())]);
            }
        }
    }
    let asked = requested_variables(wanted, &own)?;
    set_all(&mut env, asked.iter().map(|(k, v)| (k.as_str(), v.clone())));
    if !env.iter().any(|(k, _)| k == "PATH") {
        env.push(("PATH".to_owned(), SYSTEM_PATH.to_owned()));
    }
    Ok(env)
}

/// The configuration of git for signatures with these keys. Says so if the user's git signs, and this run's cannot.
pub fn git_signing(wanted: &WrapRequest, keys: &BTreeSet<SshFingerprint>) -> Result<String> {
    let WrapRequest {
        person,
        cwd,
        ssh_agent,
        quiet,
        walls,
        ..
    } = wanted;
    let agent = ssh_agent.as_ref();
    let offers = |key: &[u8]| agent.is_some_and(|agent| agent.offers(key, keys));
    let relay = agent.map(|agent| OfferedKeys {
        offers: &offers,
        only: agent.only(keys),
    });
    let handed_on =
        person.looking(|| git_signing::handed_on(person, cwd, relay.as_ref(), *walls))?;
    match handed_on {
        Ok(text) => return Ok(text),
        Err(line) if !quiet && !is_of_openssh(&wanted.command[0]) => crate::log::complain(&line),
        Err(_) => {}
    }
    Ok(String::new())
}

/// Whether a command is one of OpenSSH's, which run no git.
fn is_of_openssh(command: &str) -> bool {
    const CLIENTS: [&str; 6] = ["ssh", "scp", "sftp", "ssh-add", "ssh-keygen", "ssh-keyscan"];
    let name = Path::new(command)
        .file_name()
        .and_then(|name| name.to_str());
    name.is_some_and(|name| CLIENTS.contains(&name))
}

/// Lines about variables that name a socket of the node which the sandbox lacks. To be called with the user's rights over files.
pub fn missing_sockets(environment: &[String], layout: &Layout, walls: Walls) -> Vec<String> {
    let pairs = environment.iter().filter_map(|pair| pair.split_once('='));
    let lines = pairs.filter_map(|(name, value)| {
        let path = variables::socket_path(value)?.canonicalize().ok()?;
        let is_socket = path.metadata().ok()?.file_type().is_socket();
        (is_socket && !layout.shows(&path)).then(|| {
            let cure = socket_cure(name, walls);
            format!("agentbox: the variable {name} names a socket that the sandbox does not have: {cure}")
        })
    });
    lines.collect()
}

/// What to do about such a variable. Landlock's walls allow no UNIX socket.
fn socket_cure(variable: &str, walls: Walls) -> &'static str {
    match (variable, walls) {
        (SSH_VARIABLE, Walls::Namespaces) => "--ssh-agent lets the command sign with your keys",
        ("GPG_AGENT_INFO", Walls::Namespaces) => {
            "gpg signs nothing here; --ssh-agent lets git sign with an SSH key (gpg.format=ssh)"
        }
        (SSH_VARIABLE | "GPG_AGENT_INFO", Walls::Landlock) => "nothing signs here: commit outside",
        _ => "leave it out, or programs try it in vain",
    }
}

/// Sets PATH from the layout, and the variables of visible toolchains.
pub fn add_toolchains(environment: &mut Vec<String>, list: &SystemList, layout: &Layout) {
    environment.retain(|pair| !pair.starts_with("PATH="));
    environment.push(format!("PATH={}", layout.path));
    if !environment
        .iter()
        .any(|pair| pair.starts_with("GIT_CONFIG_SYSTEM="))
    {
        environment.push(format!("GIT_CONFIG_SYSTEM={GIT_CONFIG}"));
    }
    for (key, value) in std::env::vars_os() {
        let (Some(key), Some(value)) = (key.to_str(), value.to_str()) else {
            continue;
        };
        let asked = environment.iter().any(|pair| {
            pair.strip_prefix(key)
                .is_some_and(|rest| rest.starts_with('='))
        });
        if asked || !list.names_toolchain(key) || !value.starts_with('/') {
            continue;
        }
        let real = Path::new(value).canonicalize();
        if real.is_ok_and(|real| layout.shows(&real)) {
            environment.push(format!("{key}={value}"));
        }
    }
}

fn value<'a>(env: &'a [(String, String)], name: &str) -> Option<&'a str> {
    let found = env.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str())
}

fn set_all<'a>(env: &mut Vec<(String, String)>, new: impl IntoIterator<Item = (&'a str, String)>) {
    for (key, value) in new {
        env.retain(|(k, _)| k != key);
        env.push((key.to_owned(), value));
    }
}

/// The variables that a login of the user would set.
fn of_login(list: &SystemList, person: &Person, path: Option<&str>) -> Vec<(&'static str, String)> {
    let Some(account) = &person.account else {
        return Vec::new();
    };
    let mut set = vec![
        ("USER", account.name.clone()),
        ("LOGNAME", account.name.clone()),
        ("SHELL", account.shell.clone()),
    ];
    let home = person.home();
    if let Some(home) = &home {
        set.push(("HOME", home.display().to_string()));
    }
    set.push(("PATH", login_path(list, home.as_deref(), path)));
    set.retain(|(_, value)| !value.is_empty());
    set
}

/// The kept PATH, if it has a directory of the home. Otherwise the usual directories of the home that exist, then
/// ENV_PATH of login.defs(5), then the caller's PATH.
fn login_path(list: &SystemList, home: Option<&Path>, kept: Option<&str>) -> String {
    let kept = kept.unwrap_or_default();
    let mut parts = kept.split(':');
    if home.is_some_and(|home| parts.any(|part| Path::new(part).starts_with(home))) {
        return kept.to_owned();
    }
    let own = home.map(|home| list.login_path(home)).unwrap_or_default();
    let mut all: Vec<String> = own.iter().map(|dir| dir.display().to_string()).collect();
    let defaults = std::fs::read_to_string("/etc/login.defs").unwrap_or_default();
    for part in env_path(&defaults)
        .unwrap_or(SYSTEM_PATH)
        .split(':')
        .chain(kept.split(':'))
    {
        // The user has no use for a directory that only root reads, such as one in root's home.
        let known = all.iter().any(|known| known == part);
        if !known && std::fs::read_dir(part).is_ok() {
            all.push(part.to_owned());
        }
    }
    all.join(":")
}

/// `ENV_PATH PATH=/usr/bin:...` of login.defs(5).
fn env_path(text: &str) -> Option<&str> {
    let mut lines = text.lines().map(str::trim);
    let value = lines.find_map(|line| line.strip_prefix("ENV_PATH"))?.trim();
    Some(value.strip_prefix("PATH=").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_login_is_read() {
        let text = "# ENV_PATH PATH=/no\nENV_SUPATH PATH=/sbin\nENV_PATH\tPATH=/a:/b\n";
        assert_eq!(env_path(text), Some("/a:/b"));
        assert_eq!(env_path("ENV_PATH /a"), Some("/a"));
        assert_eq!(env_path("UMASK 022"), None);
    }

    #[test]
    fn a_path_that_was_kept_stays_as_it_is() {
        let list = SystemList::builtin();
        let home = Some(Path::new("/home/alice"));
        let kept = "/home/alice/.local/bin:/usr/bin";
        assert_eq!(login_path(&list, home, Some(kept)), kept);
        let made = login_path(&list, home, Some("/none/such:/usr/bin"));
        let parts: Vec<&str> = made.split(':').collect();
        assert_eq!(
            parts.iter().filter(|p| **p == "/usr/bin").count(),
            1,
            "{made}"
        );
        assert!(!parts.contains(&"/none/such"), "{made}");
    }
}
