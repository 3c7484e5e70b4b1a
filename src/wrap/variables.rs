//! PURE. The variables that `--env` and `--env-file` name.

use std::path::Path;

use anyhow::{Result, bail};

use super::error::WrapRefusal;
use super::landlock;
use super::settings::sealed_file::SealedFile;
use crate::cli::Walls;
use crate::plan::environment::is_of_proxies;
use crate::plan::signing::SSH_VARIABLE;
use crate::policy::{NetworkMode, Policy, Switch};

/// The variables of one source.
pub struct Variables {
    /// Files of variables.
    pub files: Vec<SealedFile>,
    /// `NAME=VALUE` or `NAME`.
    pub pairs: Vec<String>,
}

/// The variables of all sources, lowest first. A source's pairs come after its files. `own` are the caller's variables.
pub fn requested_variables(
    sources: &[Variables],
    own: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    for Variables { files, pairs } in sources {
        for file in files {
            from_file(file, &own, &mut all)?;
        }
        for pair in pairs {
            match Assignment::of(pair) {
                Some(assignment) => all.extend(assignment.pair(&own)),
                None => bail!(WrapRefusal::Env(pair.clone())),
            }
        }
    }
    Ok(all)
}

/// Refuses a variable that the run sets itself: the command would silently get another value than the requested one.
pub fn check_free(asked: &[(String, String)], walls: Walls, policy: &Policy) -> Result<()> {
    let network = &policy.network;
    let names_proxies = network.proxy_env == Switch::On && network.mode != NetworkMode::None;
    let signs = network
        .ssh_keys
        .iter()
        .any(|key| key.fingerprint().is_some());
    for (name, _) in asked {
        let why = if names_proxies && is_of_proxies(name) {
            "agentbox sets it to its own proxy (network.proxy-env), which goes through yours if it is set before the command: \
             NAME=URL agentbox wrap"
        } else if signs && name == SSH_VARIABLE {
            "it names the socket through which the listed keys sign (--ssh-agent): leave it out"
        } else if walls == Walls::Landlock && landlock::sets(name) {
            "under --walls landlock it names what is made for the run, since the rest of the node is closed to the command: leave it \
             out"
        } else {
            continue;
        };
        bail!(WrapRefusal::Taken {
            name: name.clone(),
            why
        });
    }
    Ok(())
}

/// The path of a socket that a variable may name: a path, one after `unix:`, or one before a colon as in GPG_AGENT_INFO.
pub fn socket_path(value: &str) -> Option<&Path> {
    let value = value.strip_prefix("unix:").unwrap_or(value);
    let value = value.strip_prefix("path=").unwrap_or(value);
    // DOCKER_HOST has unix:///path.
    let value = value.strip_prefix("//").unwrap_or(value);
    let path = value.split([':', ',', ';']).next().unwrap_or(value);
    path.starts_with('/').then(|| Path::new(path))
}

/// A requested variable.
#[derive(Debug, PartialEq, Eq)]
struct Assignment<'a> {
    name: &'a str,
    /// `None` for the caller's own value.
    value: Option<&'a str>,
}

impl<'a> Assignment<'a> {
    /// `NAME=VALUE` or `NAME`, as for `docker run --env`.
    fn of(text: &'a str) -> Option<Self> {
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let fits = !name.is_empty() && !text.contains('\0');
        fits.then_some(Self { name, value })
    }

    /// Refuses lines that are unsafe in a file that a command can have written. A name alone passes on the user's own
    /// value. PATH and HOME decide which directories of the node are visible.
    fn of_anybody(self) -> Result<Self, &'static str> {
        match (self.name, self.value) {
            (_, None) => Err(
                "a name alone passes your own variable on, and a command may have written this file: use --env NAME, or \
                 `agentbox trust` on the file",
            ),
            (name, _) if !is_plain(name) => Err(
                "not a variable's name, and a command may have written this file: review it with `agentbox trust FILE`",
            ),
            ("PATH" | "HOME", _) => Err(
                "PATH and HOME decide which directories are shown, and a command may have written this file: use --env, or \
                 `agentbox trust` on the file",
            ),
            _ => Ok(self),
        }
    }

    /// `None` if the caller does not have the variable.
    fn pair(&self, own: impl Fn(&str) -> Option<String>) -> Option<(String, String)> {
        let value = self.value.map(str::to_owned).or_else(|| own(self.name))?;
        Some((self.name.to_owned(), value))
    }
}

/// Whether a name is like a shell variable's: few other kinds of files have such lines.
fn is_plain(name: &str) -> bool {
    let mut all = name.chars();
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    all.next().is_some_and(first) && all.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn from_file(
    file: &SealedFile,
    own: impl Fn(&str) -> Option<String>,
    all: &mut Vec<(String, String)>,
) -> Result<()> {
    for (line, parsed) in lines(&file.text) {
        let judged = parsed.and_then(|assignment| match file.counts() {
            true => Ok(assignment),
            false => assignment.of_anybody(),
        });
        match judged {
            Ok(assignment) => all.extend(assignment.pair(&own)),
            Err(why) => bail!(WrapRefusal::EnvFile {
                path: file.path.clone(),
                line,
                why,
            }),
        }
    }
    Ok(())
}

/// The lines with assignments, by number. The format is Docker's (`docker run --help`, its opts/file.go): a line that
/// begins with `#` is a comment, values are literal, without quotes or substitution.
fn lines(text: &str) -> impl Iterator<Item = (usize, Result<Assignment<'_>, &'static str>)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let all = text.lines().map(str::trim_start).enumerate();
    all.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(index, line)| {
            let parsed = match Assignment::of(line) {
                None => Err("it names no variable"),
                Some(one) if one.name.contains(char::is_whitespace) => {
                    Err("there is a space in the variable's name")
                }
                Some(one) => Ok(one),
            };
            (index + 1, parsed)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_as_docker_reads_it() {
        let text = "\u{feff}# a comment\n\nA=1\n  B= two words \nC=\"quoted\"\nOWN\nMISSING\nE=\n#F=1\nG=a=b\r\n";
        let own = |name: &str| (name == "OWN").then(|| "mine".to_owned());
        let pairs = lines(text).filter_map(|(_, parsed)| parsed.unwrap().pair(own));
        let all: Vec<_> = pairs.map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            all,
            [
                "A=1",
                "B= two words ",
                "C=\"quoted\"",
                "OWN=mine",
                "E=",
                "G=a=b"
            ]
        );
    }

    #[test]
    fn what_names_no_variable_is_said_with_its_line() {
        for (text, line) in [
            ("A=1\n=x", 2),
            ("A b=1", 1),
            ("\nexport A=1", 2),
            ("\0=1", 1),
        ] {
            let wrong: Vec<_> = lines(text).filter(|(_, p)| p.is_err()).collect();
            assert_eq!(wrong.len(), 1, "{text:?}");
            assert_eq!(wrong[0].0, line, "{text:?}");
        }
    }

    #[test]
    fn a_variable_that_the_run_sets_is_refused() {
        let mut policy = crate::plan::tests::sample_policy();
        let check = |name: &str, walls, policy: &Policy| {
            let asked = [
                ("A".to_owned(), String::new()),
                (name.to_owned(), "x".to_owned()),
            ];
            check_free(&asked, walls, policy).is_ok()
        };
        let both = [Walls::Namespaces, Walls::Landlock];
        policy.network.mode = NetworkMode::Allowlist;
        for name in ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "no_proxy"] {
            assert_eq!(
                both.map(|w| check(name, w, &policy)),
                [false, false],
                "{name}"
            );
        }
        for name in ["HOME", "TMPDIR", "TMP", "TEMP", "GIT_CONFIG_SYSTEM"] {
            assert_eq!(
                both.map(|w| check(name, w, &policy)),
                [true, false],
                "{name}"
            );
        }
        for name in ["PATH", "HTTPS_PROXY_", "Https_Proxy", "FTP_PROXY"] {
            assert_eq!(
                both.map(|w| check(name, w, &policy)),
                [true, true],
                "{name}"
            );
        }
        // Variables that nothing sets are passed on.
        policy.network.mode = NetworkMode::None;
        assert_eq!(both.map(|w| check("HTTPS_PROXY", w, &policy)), [true, true]);
        policy.network.mode = NetworkMode::Local;
        assert_eq!(
            both.map(|w| check("HTTPS_PROXY", w, &policy)),
            [false, false]
        );
        policy.network.mode = NetworkMode::Allowlist;
        policy.network.proxy_env = Switch::Off;
        assert_eq!(both.map(|w| check("HTTPS_PROXY", w, &policy)), [true, true]);
    }

    #[test]
    fn a_variable_may_name_a_socket_in_several_ways() {
        for (value, path) in [
            ("/run/a.sock", Some("/run/a.sock")),
            ("unix:///var/run/docker.sock", Some("/var/run/docker.sock")),
            ("unix:/run/a.sock", Some("/run/a.sock")),
            ("unix:path=/run/bus,guid=1", Some("/run/bus")),
            ("/run/S.gpg-agent:12:1", Some("/run/S.gpg-agent")),
            ("tcp://127.0.0.1:2375", None),
            ("https://a.test/x", None),
            ("relative/a.sock", None),
            ("", None),
        ] {
            assert_eq!(socket_path(value), path.map(Path::new), "{value}");
        }
    }

    /// A command can have written the file, and would choose what the next run of it sees.
    #[test]
    fn a_file_that_anybody_may_have_written_sets_plain_values_alone() {
        let of_anybody = |text: &'static str| {
            let (_, parsed) = lines(text).next().unwrap();
            parsed.unwrap().of_anybody().map(drop)
        };
        assert_eq!(of_anybody("A=1"), Ok(()));
        for (line, word) in [
            ("A", "passes your own variable on"),
            ("PATH=/tmp", "PATH and HOME decide"),
            ("HOME=/tmp", "PATH and HOME decide"),
        ] {
            assert!(of_anybody(line).unwrap_err().contains(word), "{line}");
        }
    }
}
