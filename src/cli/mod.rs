//! The command line as plain data. Its only behaviour is the exit status of a misuse.
//!
//! Verbs, flags and their meaning are runc's (`man runc`), because engines and people type those. agentbox adds
//! `--policy`, `--config`, the `--network-...` options of `update`, and the verbs in `own.rs`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::engines::root::DEFAULT_ROOT;
use crate::log::{ErrorReader, LogFormat};

mod container;
mod help;
mod own;
mod setup;
mod tips;
mod update;
mod wrap;

pub use container::{
    AnyArgs, Create, Delete, Events, Exec, Id, Kill, List, Ps, Run, SpecArgs, TableFormat,
};
pub use help::command;
pub use own::{
    Approvals, Approve, Audit, AuditFormat, Deny, Explain, Extend, NetworkArgs, PolicyArgs,
    PolicyCheck, PolicyList, PolicyPresets, PolicyShow, PolicyVerb, Receipt, ReceiptVerb, Suggest,
    TextFormat, Trust, Verify, VerifyReceipt,
};
pub use setup::{Doctor, Install, SystemOptions, Uninstall};
pub use update::Update;
pub use wrap::{AGENTS, Walls, Wrap};

/// An OCI runtime with a sandbox for AI agents.
#[derive(Debug, Parser)]
#[command(
    name = "agentbox",
    disable_version_flag = true,
    subcommand_required = false,
    after_help = "docs/start.md has the first ten minutes, docs/howto.md the usual tasks."
)]
pub struct Cli {
    /// Options that precede the verb.
    #[command(flatten)]
    pub global: GlobalOptions,
    /// The verb.
    #[command(subcommand)]
    pub verb: Option<Verb>,
}

impl Cli {
    /// Reads this process's command line.
    ///
    /// # Errors
    /// The line cannot be parsed, or asks for help.
    pub fn read() -> Result<Self, clap::Error> {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        Self::read_quickly(&arguments).map_or_else(|| Self::read_from(&arguments), Ok)
    }

    fn read_from(arguments: &[OsString]) -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(arguments);
        // Build the overview only for help.
        let matches = matches.or_else(|error| match error.kind() {
            ErrorKind::DisplayHelp => help::command().try_get_matches_from(arguments),
            _ => Err(tips::add(error, arguments, Self::command)),
        })?;
        let mut cli = Self::from_arg_matches(&matches).map_err(|e| e.format(&mut command))?;
        cli.global.root_given = is_given(&matches, "root");
        Ok(cli)
    }

    /// Reads the command line of a verb that engines or users call for each command, without building the other verbs.
    /// Leaves every other line, help and all errors to [`Self::read_from`]: a command with fewer verbs accepts no line that
    /// the whole one refuses.
    fn read_quickly(arguments: &[OsString]) -> Option<Self> {
        let VerbReader {
            name,
            augment,
            read,
        } = arguments
            .iter()
            .skip(1)
            .find_map(|word| FREQUENT.iter().find(|verb| word == verb.name))?;
        let verb = augment(clap::Command::new(*name));
        let command = clap::Command::new("agentbox").disable_version_flag(true);
        let command = GlobalOptions::augment_args(command).subcommand(verb);
        let matches = command.try_get_matches_from(arguments).ok()?;
        let mut global = GlobalOptions::from_arg_matches(&matches).ok()?;
        global.root_given = is_given(&matches, "root");
        let verb = match matches.subcommand() {
            Some((_, found)) => Some(read(found).ok()?),
            None => None,
        };
        Some(Self { global, verb })
    }
}

fn is_given(matches: &ArgMatches, name: &str) -> bool {
    matches.value_source(name) == Some(ValueSource::CommandLine)
}

/// How to read a verb.
struct VerbReader {
    name: &'static str,
    /// Adds its arguments to a command.
    augment: fn(clap::Command) -> clap::Command,
    read: fn(&ArgMatches) -> Result<Verb, clap::Error>,
}

/// The verbs that engines and users call for each container or command. To build the command line of all verbs takes as
/// long as to delete a container, and `wrap` without root's rights reads its line twice ([`crate::runtime::unprivileged`]).
const FREQUENT: [VerbReader; 8] = [
    VerbReader {
        name: "create",
        augment: Create::augment_args,
        read: |m| Create::from_arg_matches(m).map(Verb::Create),
    },
    VerbReader {
        name: "start",
        augment: Id::augment_args,
        read: |m| Id::from_arg_matches(m).map(Verb::Start),
    },
    VerbReader {
        name: "state",
        augment: Id::augment_args,
        read: |m| Id::from_arg_matches(m).map(Verb::State),
    },
    VerbReader {
        name: "kill",
        augment: Kill::augment_args,
        read: |m| Kill::from_arg_matches(m).map(Verb::Kill),
    },
    VerbReader {
        name: "delete",
        augment: Delete::augment_args,
        read: |m| Delete::from_arg_matches(m).map(Verb::Delete),
    },
    VerbReader {
        name: "exec",
        augment: Exec::augment_args,
        read: |m| Exec::from_arg_matches(m).map(Box::new).map(Verb::Exec),
    },
    VerbReader {
        name: "run",
        augment: Run::augment_args,
        read: |m| Run::from_arg_matches(m).map(Verb::Run),
    },
    VerbReader {
        name: "wrap",
        augment: Wrap::augment_args,
        read: |m| Wrap::from_arg_matches(m).map(Box::new).map(Verb::Wrap),
    },
];

/// Options that precede the verb.
#[derive(Debug, Clone, Args)]
pub struct GlobalOptions {
    /// Directory of container state; without it, IDs of all engines
    #[arg(long, default_value = DEFAULT_ROOT, value_name = "DIR")]
    pub root: PathBuf,
    /// Whether `--root` was given on the command line.
    #[arg(skip)]
    pub root_given: bool,
    /// Log file [default: standard error]
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Log format [default: text; plain sentences on a terminal]
    #[arg(long, value_enum)]
    pub log_format: Option<LogFormat>,
    /// Log debug messages, libcontainer's included
    #[arg(long)]
    pub debug: bool,
    /// Manage cgroups by systemd (cgroupsPath is `slice:prefix:name`)
    #[arg(long)]
    pub systemd_cgroup: bool,
    /// Accepted for compatibility with runc; `true` is refused
    #[arg(long, default_value = "auto", value_name = "auto|true|false")]
    pub rootless: String,
    /// Accepted for compatibility with runc and ignored
    #[arg(long, value_name = "FILE", hide = true)]
    pub criu: Option<PathBuf>,
    /// Default policy, and ceiling for annotations
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Node file [default: /etc/agentbox/config.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the version and exit
    #[arg(long, short = 'v')]
    pub version: bool,
}

/// The exit status of `wrap` if `wrap` itself fails, as with `docker run`.
pub const OWN_FAILURE: u8 = 125;

/// The exit status of a command line that cannot be parsed: 1, as with runc. For `policy`, `verify` and `doctor` it is
/// 2: their status 1 means "denied", "not held" and "does not work". For `receipt verify` it is 2, since 1 is a wrong
/// signature. For `wrap`, whose status is its command's, it is 125.
pub fn misuse(arguments: impl Iterator<Item = std::ffi::OsString>) -> u8 {
    let understood = Cli::command()
        .ignore_errors(true)
        .try_get_matches_from(arguments);
    match understood.as_ref().map(clap::ArgMatches::subcommand) {
        Ok(Some(("policy" | "verify" | "doctor", _))) => 2,
        Ok(Some(("receipt", receipt))) if receipt.subcommand_name() == Some("verify") => 2,
        Ok(Some(("wrap", _))) => OWN_FAILURE,
        Ok(_) | Err(_) => 1,
    }
}

impl Cli {
    /// Who reads standard error in a pipe: engines read that of runc's verbs.
    pub fn error_reader(&self) -> ErrorReader {
        match &self.verb {
            // No engine changes rules.
            Some(Verb::Update(update)) if update.changes_rules() => ErrorReader::User,
            Some(
                Verb::Create(_)
                | Verb::Start(_)
                | Verb::Run(_)
                | Verb::Exec(_)
                | Verb::Kill(_)
                | Verb::Delete(_)
                | Verb::State(_)
                | Verb::List(_)
                | Verb::Ps(_)
                | Verb::Pause(_)
                | Verb::Resume(_)
                | Verb::Update(_)
                | Verb::Events(_)
                | Verb::Checkpoint(_)
                | Verb::Restore(_)
                | Verb::Features
                | Verb::Spec(_),
            ) => ErrorReader::Engine,
            None
            | Some(
                Verb::Explain(_)
                | Verb::Policy(_)
                | Verb::Network(_)
                | Verb::Audit(_)
                | Verb::Suggest(_)
                | Verb::Receipt(_)
                | Verb::Key
                | Verb::Approvals(_)
                | Verb::Approve(_)
                | Verb::Deny(_)
                | Verb::Extend(_)
                | Verb::Verify(_)
                | Verb::Doctor(_)
                | Verb::Install(_)
                | Verb::Uninstall(_)
                | Verb::Trust(_)
                | Verb::Wrap(_),
            ) => ErrorReader::User,
        }
    }
}

/// The end of `wrap --help`.
const WRAP_EXAMPLES: &str = "\
Examples:
  agentbox wrap -- make test
  agentbox wrap -- claude
  agentbox wrap --allow @github,api.example.com --ask -- ./agent
  agentbox wrap --read ~/data --write ~/out -- python3 job.py
  agentbox wrap --policy strict --dry-run -- true";

/// A verb and its options.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Create a container from a bundle; `start` runs its program
    Create(Create),
    /// Start a created container, and return when its program runs
    Start(Id),
    /// Create and start a container, and wait for its end
    Run(Run),
    /// Run a program in a running container, behind its walls
    Exec(Box<Exec>),
    /// Send a signal to a container's init process
    Kill(Kill),
    /// Delete a stopped container
    Delete(Delete),
    /// Print a container's state as OCI JSON
    State(Id),
    /// List the containers below --root, or all with --all
    List(List),
    /// List the processes of a container
    Ps(Ps),
    /// Suspend all processes of a container
    Pause(Id),
    /// Resume a paused container
    Resume(Id),
    /// Change a running container's limits or network rules
    Update(Box<Update>),
    /// Stream resource usage and out-of-memory events as JSON
    Events(Events),
    /// Not supported: a saved container could not be restored
    #[command(disable_help_flag = true)]
    Checkpoint(AnyArgs),
    /// Not supported
    #[command(disable_help_flag = true)]
    Restore(AnyArgs),
    /// Print the supported features as OCI JSON
    Features,
    /// Write an example config.json
    Spec(SpecArgs),
    /// Show what is enforced, and why
    Explain(Explain),
    /// List, print and test policies
    Policy(PolicyArgs),
    /// Show a container's rules, connections and denials
    Network(NetworkArgs),
    /// Show what was allowed and denied, also after the end
    Audit(Audit),
    /// Print the rules that would have allowed a run's denials
    Suggest(Suggest),
    /// Print or check the signed record of a run (receipt)
    Receipt(Receipt),
    /// Print the public key for receipts; create it if missing
    Key,
    /// List connections that wait for approval
    Approvals(Approvals),
    /// Approve a host under network.on-unknown=ask, within the ceiling
    Approve(Approve),
    /// Deny a host under network.on-unknown=ask, and close its connections
    Deny(Deny),
    /// Give a container more time, within the ceiling
    Extend(Extend),
    /// Attack a sandbox harmlessly, and report which walls held
    ///
    /// Exit status: 0 all held, 1 a wall failed or none was promised, 2 a wall could not be tested
    Verify(Verify),
    /// Check what this machine lacks for `wrap` and for engines
    ///
    /// Exit status: 0 `agentbox wrap` works as this user, 1 it does not, 2 the command line is wrong
    Doctor(Doctor),
    /// Install agentbox, and register it with this machine's engines
    Install(Install),
    /// Remove what `install` added
    Uninstall(Uninstall),
    /// Review a project's .agentbox.toml, and trust it
    Trust(Trust),
    /// Run a command behind the walls, without engine or image
    #[command(after_help = WRAP_EXAMPLES)]
    Wrap(Box<Wrap>),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Former fault: clap named `checkpoint`.
    #[test]
    fn verbs_that_only_packages_answer_say_so() {
        let error = |verb: &str| {
            let line = ["agentbox", verb, "bash"].map(OsString::from);
            Cli::read_from(&line).unwrap_err().to_string()
        };
        for verb in ["completion", "completions", "man"] {
            let said = error(verb);
            assert!(
                said.contains("--example reference") && !said.contains("checkpoint"),
                "{said}"
            );
        }
        assert!(error("version").contains("agentbox --version"));
        // The control.
        assert!(error("checkpont").contains("'checkpoint'"));
    }

    /// As after `docker run`, and as with other sandboxes.
    #[test]
    fn a_command_without_its_verb_gets_a_tip() {
        let error = |line: &str| {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            Cli::read_from(&words).unwrap_err().to_string()
        };
        const TIP: &str = "agentbox wrap -- COMMAND";
        for line in [
            "agentbox run make all",
            "agentbox --debug run make all",
            "agentbox claude",
            "agentbox make test",
        ] {
            assert!(error(line).contains(TIP), "{line}: {}", error(line));
        }
        // The controls: words of other verbs.
        for line in [
            "agentbox stop c1",
            "agentbox policy nope",
            "agentbox state c1 c2",
        ] {
            assert!(!error(line).contains(TIP), "{line}: {}", error(line));
        }
    }

    #[test]
    fn a_number_of_descriptors_is_not_negative() {
        for verb in [("create", "id"), ("run", "id"), ("exec", "id true")] {
            let parsed = |number| {
                let line = format!("agentbox {} --preserve-fds={number} {}", verb.0, verb.1);
                Cli::try_parse_from(line.split(' ').map(str::to_owned))
            };
            assert!(parsed(1).is_ok(), "{verb:?}");
            assert!(parsed(-1).is_err(), "{verb:?}");
        }
    }

    /// Together one of them could be done and the other refused.
    #[test]
    fn update_changes_rules_or_opens_ports() {
        let parsed = |words: &[&str]| {
            let all = ["agentbox", "update", "--inbound-add", "80"];
            Cli::try_parse_from(all.iter().chain(words).chain(&["id"])).is_ok()
        };
        assert!(parsed(&[]));
        for rules in ["allow", "add", "remove", "deny"] {
            let option = format!("--network-{rules}");
            assert!(!parsed(&[&option, "a.test"]), "{option}");
        }
    }

    #[test]
    fn a_misuse_has_the_exit_status_of_its_verb() {
        let status = |line: &str| {
            let words = line.split(' ').map(std::ffi::OsString::from);
            assert!(Cli::try_parse_from(words.clone()).is_err(), "{line}");
            misuse(words)
        };
        for line in [
            "agentbox policy --nope",
            "agentbox policy chekc",
            "agentbox policy check --nope",
            "agentbox policy check strict --port 0 --host a.test",
            "agentbox --policy strict policy check",
            "agentbox --root policy policy show",
            "agentbox verify --nope",
            "agentbox doctor --nope",
            "agentbox receipt verify r.json",
        ] {
            assert_eq!(status(line), 2, "{line}");
        }
        for line in [
            "agentbox state policy --nope",
            "agentbox state other --nope",
            "agentbox --policy policy state --nope",
            "agentbox --root policy list --nope",
            "agentbox --nope policy",
            "agentbox polic",
            "agentbox receipt --nope",
        ] {
            assert_eq!(status(line), 1, "{line}");
        }
    }

    #[test]
    fn a_host_after_a_policy_gets_the_tip_to_write_host() {
        let said = |line: &str| Cli::read_from(&words(line)).unwrap_err().to_string();
        let tip = "for a host, use --host a.test";
        assert!(said("agentbox policy check standard a.test").contains(tip));
        for other in [
            "agentbox policy check standard --nope",
            "agentbox policy show standard a.test",
        ] {
            assert!(!said(other).contains("for a host"), "{other}");
        }
    }

    #[test]
    fn an_unknown_option_has_no_tip_to_pass_it_as_a_value() {
        let said = |line: &str| Cli::read_from(&words(line)).unwrap_err().to_string();
        for line in [
            "agentbox audit --foo",
            "agentbox wrap --foo",
            "agentbox policy show --foo",
            "agentbox kill --foo=1 id",
        ] {
            let said = said(line);
            assert!(said.contains("unexpected argument '--foo'"), "{said}");
            assert!(!said.contains("-- --foo"), "{said}");
            assert!(!said.contains("as a value"), "{said}");
        }
        // The other tips stay.
        let said = said("agentbox audit --deneid");
        assert!(said.contains("'--denied'"), "{said}");
    }

    /// Every verb that has `--json` or `--format json`.
    fn collect_json<'a>(
        command: &'a clap::Command,
        path: &str,
        into: &mut Vec<(String, &'a clap::Command)>,
    ) {
        for verb in command.get_subcommands() {
            let path = format!("{path} {}", verb.get_name());
            let has = |name: &str| verb.get_arguments().any(|arg| arg.get_id() == name);
            if has("json") || has("format") {
                into.push((path.clone(), verb));
            }
            collect_json(verb, &path, into);
        }
    }

    #[test]
    fn json_has_both_spellings_in_every_verb_that_has_one() {
        let command = Cli::command();
        let mut verbs = Vec::new();
        collect_json(&command, "agentbox", &mut verbs);
        assert!(verbs.len() >= 10, "{verbs:?}");
        for (path, verb) in verbs {
            let needs_id = verb.get_positionals().any(|arg| arg.is_required_set());
            let needed = match path.as_str() {
                "agentbox trust" => " --list",
                "agentbox policy check" => " --host h",
                _ if needs_id => " id",
                _ => "",
            };
            let parsed =
                |words: &str| Cli::try_parse_from(format!("{path}{words}{needed}").split(' '));
            let read = |words: &str| {
                let cli = parsed(words).unwrap_or_else(|error| panic!("{path}{words}: {error}"));
                let text = format!("{:?}", cli.verb);
                // One of the two decides; the other is what was typed.
                match path.as_str() {
                    "agentbox explain"
                    | "agentbox verify"
                    | "agentbox doctor"
                    | "agentbox trust"
                    | "agentbox policy check"
                    | "agentbox policy list"
                    | "agentbox policy show"
                    | "agentbox policy presets" => text.contains("json: true"),
                    _ => text.contains("format: Json"),
                }
            };
            for json in [" --json", " --format json", " --format=json", " -f json"] {
                assert!(read(json), "{path}{json}");
            }
            assert!(!read(""), "{path}");
            assert!(parsed(" --json --format json").is_err(), "{path}");
        }
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn a_quick_read_has_the_same_result() {
        for line in [
            "agentbox create one",
            "agentbox --root /r --log-format json create --bundle /b --pid-file /p one",
            "agentbox --root create start one",
            "agentbox start create",
            "agentbox delete --force start",
            "agentbox kill --all one KILL",
            "agentbox state -- one",
            "agentbox --systemd-cgroup --policy strict delete one",
            "agentbox --root create",
            "agentbox exec one true",
            "agentbox exec create start",
            "agentbox exec -t --user 1:2 --env A=b --cwd / one sh -c exec",
            "agentbox --root wrap exec one -- wrap",
            "agentbox run create",
            "agentbox run --detach --bundle /b one",
            "agentbox wrap true",
            "agentbox wrap -- true --version -v",
            "agentbox wrap --policy strict --allow a.test,b.test --allow @github -- kill -9 1",
            "agentbox wrap --walls landlock --workspace /w -- run --root /r",
            "agentbox --config /c wrap --dry-run -- wrap wrap",
            "agentbox wrap kill --help",
            "agentbox wrap -- --help",
        ] {
            let all = Cli::read_from(&words(line)).unwrap();
            if let Some(quick) = Cli::read_quickly(&words(line)) {
                assert_eq!(format!("{quick:?}"), format!("{all:?}"), "{line}");
            }
        }
        for line in [
            "agentbox create one",
            "agentbox --root /r start one",
            "agentbox exec one kill",
            "agentbox run one",
            "agentbox wrap -- kill",
            "agentbox --root /r wrap -- start",
        ] {
            assert!(Cli::read_quickly(&words(line)).is_some(), "{line}");
        }
        // The whole command line handles help, errors and all other verbs.
        for line in [
            "agentbox help create",
            "agentbox create --help",
            "agentbox create",
            "agentbox create --no-such one",
            "agentbox create one two",
            "agentbox wrap --help",
            "agentbox wrap --walls no -- true",
            "agentbox wrap",
            "agentbox exec",
            "agentbox run one two",
            "agentbox wrap --allow",
            "agentbox list",
            "agentbox",
        ] {
            assert!(Cli::read_quickly(&words(line)).is_none(), "{line}");
        }
    }
}
