//! SHELL. The request for a run: the command line, the settings files below it, the workspace and the user.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::agents::Agent;
use super::agents::choice::AgentOrigin;
use super::caches::Caches;
use super::list::SystemList;
use super::person::Person;
use super::proxy::EnvironmentProxy;
use super::settings::sealed_file::{SealedFile, SealedFileKind};
use super::settings::{self, SettingsSource};
use super::ssh_agent::FoundAgent;
use super::variable_files;
use super::variables::Variables;
use super::{repository, secrets, workspace};
use crate::cli::{self, Walls};
use crate::policy::{Field, FieldOption, OnUnknown, PolicyOption, Publish, UserProxy, WrapOptions};
use crate::runtime::unprivileged;

/// All that the caller requests from `wrap`.
pub struct WrapRequest {
    /// Program and arguments.
    pub command: Vec<String>,
    /// The sandbox's name.
    pub name: Option<String>,
    /// Which kind of walls.
    pub walls: Walls,
    /// The user who the command runs as.
    pub person: Person,
    /// The built-in list.
    pub list: SystemList,
    /// The working directory, without links.
    pub cwd: PathBuf,
    /// The workspace, which contains it.
    pub workspace: PathBuf,
    /// Requests of the policy.
    pub asked: WrapOptions,
    /// Variables, the lowest source first.
    pub variables: Vec<Variables>,
    /// Paths of `--read`.
    pub read: Vec<PathBuf>,
    /// Paths of `--write`.
    pub write: Vec<PathBuf>,
    /// Paths of `--hide`.
    pub hide: Vec<PathBuf>,
    /// Ports of `--publish`.
    pub publish: Vec<Publish>,
    /// Which caches are visible.
    pub caches: Caches,
    /// Whether neither progress nor notices are printed.
    pub quiet: bool,
    /// Where the summary goes.
    pub summary: Option<PathBuf>,
    /// Files that decide about the run, without links. The command cannot write them.
    pub included: Vec<PathBuf>,
    /// Paths that a file of settings has, with that file, for errors.
    pub paths_in_files: BTreeMap<PathBuf, PathBuf>,
    /// What each file of settings adds, for `explain`.
    pub from_files: Vec<String>,
    /// Lines for standard error, as about a project's file that does not count. `--quiet` leaves them out.
    pub notices: Vec<String>,
    /// Lines about what the command can do outside of the walls. They are always printed.
    pub warnings: Vec<String>,
    /// The agent that an option or settings name, and which.
    pub agent_requested: Option<(String, AgentOrigin)>,
    /// The agent that the command is.
    pub agent: Option<Agent>,
    /// The SSH agent that `--ssh-agent` names.
    pub ssh_agent: Option<FoundAgent>,
    /// The upstream proxy of the user's environment.
    pub proxy: EnvironmentProxy,
}

impl WrapRequest {
    /// Reads the command line and the files. Lists add up. For other values the command line wins over the project, and
    /// the project over the user.
    pub fn of(args: &cli::Wrap) -> Result<Self> {
        let list = SystemList::builtin();
        let directory = workspace::requested_directory(args.workspace.as_deref())?;
        let person = Person::of_caller(&directory)?;
        let (cwd, workspace) = person.looking(|| {
            let cwd = workspace::choose(&directory, &list, &person)?;
            // A requested directory is used as it is.
            let top = || repository::top(&cwd, &person).filter(|_| args.workspace.is_none());
            let workspace = top().unwrap_or_else(|| cwd.clone());
            anyhow::Ok((cwd, workspace))
        })??;
        let found = person.looking(|| settings::find(&person, &workspace))??;
        let (mut asked, policy_file) =
            person.looking(|| requested_policy(args, &found.sources, &person))??;
        let places = variable_files::places(&cwd, &workspace);
        let proxy = person.looking(|| EnvironmentProxy::of_caller(&person, &places))?;
        asked.proxy = proxy.named().map(UserProxy::upstream);
        let variables = person.looking(|| option_variables(args, &person))??;
        let mut wanted = Self {
            command: args.command.clone(),
            name: args.name.clone(),
            walls: Walls::default(),
            person,
            list,
            cwd,
            workspace,
            asked,
            variables: Vec::new(),
            read: Vec::new(),
            write: Vec::new(),
            hide: Vec::new(),
            publish: Vec::new(),
            caches: Caches::default(),
            quiet: false,
            summary: None,
            included: policy_file.into_iter().collect(),
            paths_in_files: BTreeMap::new(),
            from_files: Vec::new(),
            notices: found.notice.into_iter().collect(),
            warnings: Vec::new(),
            agent_requested: None,
            agent: None,
            ssh_agent: None,
            proxy,
        };
        for source in found.sources {
            wanted.add(source);
        }
        wanted.add_line(args, variables);
        let withheld = secrets::withheld(&wanted)?;
        wanted.notices.extend(withheld);
        Ok(wanted)
    }

    /// The caller, and the policy requests of their own settings: no options, and no file of a project.
    pub fn of_settings_alone() -> Result<(Person, WrapOptions)> {
        let person = Person::of_caller(&workspace::requested_directory(None)?)?;
        let asked = person.looking(|| {
            let sources: Vec<_> = settings::of_person(&person)?.into_iter().collect();
            requested_policy(&cli::Wrap::default(), &sources, &person)
        })??;
        Ok((person, asked.0))
    }

    /// The published ports inside, and their addresses outside. A machine without IPv6 has no `::1`.
    pub fn published(&self) -> BTreeMap<u16, BTreeSet<SocketAddr>> {
        let mut all: BTreeMap<u16, BTreeSet<SocketAddr>> = BTreeMap::new();
        for published in &self.publish {
            let outside = published.outside();
            let is_named = outside.len() == 1;
            let there = outside
                .into_iter()
                .filter(|address| is_named || address.is_ipv4() || has_ipv6());
            all.entry(published.inside()).or_default().extend(there);
        }
        all
    }

    /// Says what the user is to know before the command starts.
    pub fn tell(&self) -> Result<()> {
        for warning in &self.warnings {
            crate::log::complain(warning);
        }
        if self.quiet {
            return Ok(());
        }
        for notice in &self.notices {
            crate::log::complain(notice);
        }
        let gpg = self.person.looking(|| {
            let top = repository::top(&self.cwd, &self.person)?;
            repository::gpg_notice(self.person.home().as_deref(), &top, self.walls)
        })?;
        gpg.into_iter().for_each(crate::log::complain);
        Ok(())
    }

    /// Prints one line on a terminal, once for a user: without a cgroup nothing limits a runaway command.
    pub fn say_what_is_lacking(&self) {
        let is_seen = !self.quiet && rustix::termios::isatty(rustix::stdio::stderr());
        let lacks = unprivileged::inside().is_some() && unprivileged::cgroup().is_none();
        if is_seen && lacks && settings::places::is_first_time(&self.person, "limits") {
            crate::log::complain(
                "agentbox: without root, limits of memory, processors and processes are not enforced (shown once; see `agentbox explain`)",
            );
        }
    }

    fn add(&mut self, source: SettingsSource) {
        let SettingsSource {
            path,
            settings,
            files,
            is_answers,
        } = source;
        self.included
            .extend(files.iter().map(|file| file.path.clone()));
        let is_variables = |file: &SealedFile| settings.env_file.contains(&file.named);
        let variables = files.into_iter().filter(is_variables).collect();
        let effects = settings.effects();
        let unless = match is_answers {
            true => " (under a policy without a network only with --ask)",
            false => "",
        };
        let effects = effects.iter();
        let effects = effects.map(|effect| format!("{path:?} {effect}{unless}"));
        self.from_files.extend(effects);
        if let Some(agent) = settings.agent {
            self.agent_requested = Some((agent, AgentOrigin::Setting(path.clone())));
        }
        self.walls = settings.walls.unwrap_or(self.walls);
        self.caches = settings.caches.unwrap_or(self.caches);
        self.quiet = settings.quiet.unwrap_or(self.quiet);
        let lists = [&settings.read, &settings.write, &settings.hide];
        let paths = lists.into_iter().flatten().chain(&settings.summary);
        self.paths_in_files
            .extend(paths.map(|named| (named.clone(), path.clone())));
        self.summary = settings.summary.or(self.summary.take());
        self.read.extend(settings.read);
        self.write.extend(settings.write);
        self.hide.extend(settings.hide);
        self.publish.extend(settings.publish);
        self.variables.push(Variables {
            files: variables,
            pairs: settings.env,
        });
    }

    fn add_line(&mut self, args: &cli::Wrap, variables: Vec<SealedFile>) {
        if let Some(agent) = &args.agent {
            self.agent_requested = Some((agent.clone(), AgentOrigin::Option));
        }
        self.walls = args.walls.unwrap_or(self.walls);
        self.caches = caches(args).unwrap_or(self.caches);
        self.quiet |= args.quiet;
        self.summary = args.summary.clone().or(self.summary.take());
        self.read.extend(args.read.clone());
        self.write.extend(args.write.clone());
        self.hide.extend(args.hide.clone());
        self.publish.extend(args.publish.clone());
        self.included
            .extend(variables.iter().map(|file| file.path.clone()));
        self.variables.push(Variables {
            files: variables,
            pairs: args.env.clone(),
        });
    }
}

/// The files of `--env-file`. Call it with the user's rights over files.
fn option_variables(args: &cli::Wrap, person: &Person) -> Result<Vec<SealedFile>> {
    let files = args.env_file.iter();
    files
        .map(|file| SealedFile::read(person, file, SealedFileKind::Variables))
        .collect()
}

/// The requests of the policy, and the policy's file. Call it with the user's rights over files.
fn requested_policy(
    args: &cli::Wrap,
    sources: &[SettingsSource],
    person: &Person,
) -> Result<(WrapOptions, Option<PathBuf>)> {
    let name_of = |source: &SettingsSource| source.path.display().to_string();
    let mut asked = WrapOptions {
        options: options(args)?,
        ..WrapOptions::default()
    };
    for source in sources {
        let fields = source.settings.fields(&name_of(source))?;
        match source.is_answers {
            true => asked.answers = fields,
            false => asked.settings.push(fields),
        }
        asked.secrets.extend(source.settings.secrets.clone());
    }
    asked.settings.retain(|fields| !fields.is_empty());
    let mut file = None;
    let mut chosen = |name: &str, read: &dyn Fn() -> Result<(PathBuf, String)>| {
        if !settings::is_file(name) {
            return Ok(PolicyOption::Named(name.to_owned()));
        }
        let (path, text) = read()?;
        file = Some(path);
        anyhow::Ok(PolicyOption::File {
            path: name.to_owned(),
            text,
        })
    };
    if let Some(name) = &args.policy {
        let policy = chosen(name, &|| {
            let file = SealedFile::read(person, name.as_ref(), SealedFileKind::Policy)?;
            file.require()?;
            Ok((file.path, file.text))
        });
        asked.policy = Some(policy?);
        return Ok((asked, file));
    }
    let named = |source: &SettingsSource| source.settings.policy.clone();
    let mut highest_first = sources.iter().rev();
    if let Some((source, name)) = highest_first.find_map(|s| Some((s, named(s)?))) {
        let of = name_of(source);
        let policy = chosen(&name, &|| source.policy_file(person, &name));
        asked.policy = Some(policy.with_context(|| format!("policy of {of}"))?);
        asked.policy_of = Some(of);
    }
    Ok((asked, file))
}

/// The caches that the command line names; `None` leaves the settings'.
fn caches(args: &cli::Wrap) -> Option<Caches> {
    match (args.no_caches, args.keep_caches) {
        (true, _) => Some(Caches::Hidden),
        (false, true) => Some(Caches::Kept),
        (false, false) => None,
    }
}

fn options(args: &cli::Wrap) -> Result<Vec<FieldOption>> {
    let mut options = Vec::new();
    for text in &args.set {
        options.push(FieldOption::set(text)?);
    }
    for hosts in &args.allow {
        options.extend(FieldOption::typed_allow(hosts, &chrono::Local::now()));
    }
    for hosts in &args.deny {
        options.push(FieldOption::adding("--deny", Field::NetworkDeny, hosts));
    }
    for published in &args.publish {
        let port = published.inside().to_string();
        options.push(FieldOption::adding(
            "--publish",
            Field::NetworkInbound,
            &port,
        ));
    }
    for service in &args.connect {
        let service = service.to_string();
        options.push(FieldOption::adding(
            "--connect",
            Field::NetworkConnect,
            &service,
        ));
    }
    for name in &args.unprotect {
        options.push(FieldOption::adding(
            "--unprotect",
            Field::FilesystemUnprotected,
            name.as_str(),
        ));
    }
    if let Some(timeout) = &args.timeout {
        options.push(FieldOption::setting("--timeout", Field::TimeWall, timeout));
    }
    if let Some(idle) = &args.idle_timeout {
        options.push(FieldOption::setting(
            "--idle-timeout",
            Field::TimeIdle,
            idle,
        ));
    }
    if args.ask {
        let ask = OnUnknown::Ask.to_string();
        options.push(FieldOption::setting("--ask", Field::NetworkOnUnknown, &ask));
    }
    Ok(options)
}

/// Whether this machine's loopback has an IPv6 address. The sidecar reports other errors.
fn has_ipv6() -> bool {
    let bound = TcpListener::bind((Ipv6Addr::LOCALHOST, 0));
    let lacks = |error: std::io::Error| {
        let code = error.raw_os_error();
        matches!(code, Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
    };
    !bound.is_err_and(lacks)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn parsed(line: &[&str]) -> cli::Wrap {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            wrap: cli::Wrap,
        }
        let words = ["wrap"].iter().chain(line).chain(&["--", "true"]);
        Line::parse_from(words).wrap
    }

    #[test]
    fn each_option_sets_its_field() {
        let line = [
            "--set",
            "privileges.set-id=off",
            "--allow",
            "a.example",
            "--deny",
            "b.example",
            "--publish",
            "8080:80",
            "--connect",
            "5432",
            "--unprotect",
            "./.git/hooks/",
            "--timeout",
            "1h",
            "--idle-timeout",
            "5m",
            "--ask",
        ];
        let words = options(&parsed(&line)).unwrap().into_iter().map(|one| {
            let adds = if one.adds { "+=" } else { "=" };
            format!("{}: {}{adds}{}", one.option, one.field, one.value)
        });
        assert_eq!(
            words.collect::<Vec<_>>(),
            [
                "--set privileges.set-id: privileges.set-id=off",
                "--allow: network.allow+=a.example",
                "--deny: network.deny+=b.example",
                // The port inside.
                "--publish: network.inbound+=80",
                "--connect: network.connect+=5432",
                "--unprotect: filesystem.unprotected+=.git/hooks",
                "--timeout: time.wall=1h",
                "--idle-timeout: time.idle=5m",
                "--ask: network.on-unknown=ask",
            ]
        );
        assert!(options(&parsed(&[])).unwrap().is_empty());
        assert!(options(&parsed(&["--set", "no-field=1"])).is_err());
        let engines = options(&parsed(&["--set", "filesystem.write=+,/data"])).unwrap_err();
        assert!(
            engines.to_string().contains("wrap has --write"),
            "{engines}"
        );
    }

    #[test]
    fn the_command_line_names_the_caches_or_leaves_them_to_the_settings() {
        assert_eq!(caches(&parsed(&["--no-caches"])), Some(Caches::Hidden));
        assert_eq!(caches(&parsed(&["--keep-caches"])), Some(Caches::Kept));
        assert_eq!(caches(&parsed(&[])), None);
    }
}
