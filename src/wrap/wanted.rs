//! SHELL. What a run is asked for: the command line, the files of settings below it, and whose work it is where.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv6Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::caches::Caches;
use super::list::List;
use super::person::Person;
use super::settings::{self, Source};
use super::variables::Variables;
use super::{WrapRefused, own_file, planted, repository, workspace};
use crate::cli::{self, Walls};
use crate::policy::{Asked, AskedOption, AskedPolicy, Field, OnUnknown, Publish};

/// All that is asked for.
pub struct Wanted {
    /// Program and arguments.
    pub command: Vec<String>,
    /// How the sandbox is called.
    pub name: Option<String>,
    /// What the walls are made of.
    pub walls: Walls,
    /// Who the command runs as.
    pub person: Person,
    /// The built-in list.
    pub list: List,
    /// The working directory, without links.
    pub cwd: PathBuf,
    /// The workspace, in which that is.
    pub workspace: PathBuf,
    /// What is asked of the policy.
    pub asked: Asked,
    /// Variables, the lowest source first.
    pub variables: Vec<Variables>,
    /// What `--read`, `--write` and `--hide` name.
    pub read: Vec<PathBuf>,
    /// Likewise.
    pub write: Vec<PathBuf>,
    /// Likewise.
    pub hide: Vec<PathBuf>,
    /// What `--publish` names.
    pub publish: Vec<Publish>,
    /// Whether caches are seen.
    pub caches: Caches,
    /// Whether refusals go unsaid.
    pub quiet: bool,
    /// Where the summary goes.
    pub summary: Option<PathBuf>,
    /// Files that a project's settings name: no command writes them.
    pub included: Vec<PathBuf>,
    /// What each file of settings adds, for `explain`.
    pub from_files: Vec<String>,
    /// A line about a project's file that does not count.
    pub notice: Option<String>,
}

impl Wanted {
    /// Finds it out. Lists of the files and of the command line add up; of other values the command line's counts before the
    /// project's, and that before the person's.
    pub fn of(args: &cli::Wrap) -> Result<Self> {
        let list = List::builtin();
        let directory = workspace::asked(args.workspace.as_deref())?;
        let person = Person::of_caller(&directory)?;
        let (cwd, workspace) = person.looking(|| {
            let cwd = workspace::choose(&directory, &list, &person)?;
            // A directory that was named is meant as it is.
            let top = || repository::top(&cwd, &person).filter(|_| args.workspace.is_none());
            let workspace = top().unwrap_or_else(|| cwd.clone());
            anyhow::Ok((cwd, workspace))
        })??;
        let found = person.looking(|| settings::find(&person, &workspace))??;
        let asked = person.looking(|| asked(args, &found.sources, &workspace, &person))??;
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
            included: Vec::new(),
            from_files: Vec::new(),
            notice: found.notice,
        };
        for source in found.sources {
            wanted.add(source);
        }
        wanted.add_line(args);
        Ok(wanted)
    }

    /// The ports inside that are published, and where. A machine without IPv6 has no `::1`.
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

    /// Says that a project's file does not count.
    pub fn tell(&self) {
        if let Some(notice) = &self.notice {
            crate::log::complain(notice);
        }
    }

    fn add(&mut self, source: Source) {
        let Source {
            path,
            settings,
            included,
        } = source;
        self.included.extend(included);
        let effects = settings.effects();
        let effects = effects.iter().map(|effect| format!("{path:?} {effect}"));
        self.from_files.extend(effects);
        self.walls = settings.walls.unwrap_or(self.walls);
        self.caches = settings.caches.unwrap_or(self.caches);
        self.quiet = settings.quiet.unwrap_or(self.quiet);
        self.summary = settings.summary.or(self.summary.take());
        self.read.extend(settings.read);
        self.write.extend(settings.write);
        self.hide.extend(settings.hide);
        self.publish.extend(settings.publish);
        self.variables.push(Variables {
            files: settings.env_file,
            pairs: settings.env,
        });
    }

    fn add_line(&mut self, args: &cli::Wrap) {
        self.walls = args.walls.unwrap_or(self.walls);
        self.caches = match (args.no_caches, args.keep_caches) {
            (true, _) => Caches::Hidden,
            (false, true) => Caches::Kept,
            (false, false) => self.caches,
        };
        self.quiet |= args.quiet;
        self.summary = args.summary.clone().or(self.summary.take());
        self.read.extend(args.read.clone());
        self.write.extend(args.write.clone());
        self.hide.extend(args.hide.clone());
        self.publish.extend(args.publish.clone());
        self.variables.push(Variables {
            files: args.env_file.clone(),
            pairs: args.env.clone(),
        });
    }
}

/// What is asked of the policy. To be called with the person's rights over files.
fn asked(args: &cli::Wrap, sources: &[Source], workspace: &Path, person: &Person) -> Result<Asked> {
    let name_of = |source: &Source| source.path.display().to_string();
    let mut asked = Asked {
        options: options(args)?,
        ..Asked::default()
    };
    for source in sources {
        let fields = source.settings.fields(&name_of(source))?;
        asked.settings.push(fields);
    }
    asked.settings.retain(|fields| !fields.is_empty());
    if let Some(name) = &args.policy {
        asked.policy = Some(policy(name, workspace, person)?);
        return Ok(asked);
    }
    let named = |source: &Source| source.settings.policy.clone();
    let mut highest_first = sources.iter().rev();
    if let Some((source, name)) = highest_first.find_map(|s| Some((s, named(s)?))) {
        let file = name_of(source);
        asked.policy =
            Some(policy(&name, workspace, person).with_context(|| format!("policy of {file}"))?);
        asked.policy_of = Some(file);
    }
    Ok(asked)
}

fn options(args: &cli::Wrap) -> Result<Vec<AskedOption>> {
    let mut options = Vec::new();
    for text in &args.set {
        options.push(AskedOption::set(text)?);
    }
    for hosts in &args.allow {
        options.push(AskedOption::adding("--allow", Field::NetworkAllow, hosts));
    }
    for hosts in &args.deny {
        options.push(AskedOption::adding("--deny", Field::NetworkDeny, hosts));
    }
    for published in &args.publish {
        let port = published.inside().to_string();
        options.push(AskedOption::adding(
            "--publish",
            Field::NetworkInbound,
            &port,
        ));
    }
    if args.ask {
        let ask = OnUnknown::Ask.to_string();
        options.push(AskedOption::setting("--ask", Field::NetworkOnUnknown, &ask));
    }
    Ok(options)
}

/// A policy by its name, or a file by its path.
fn policy(text: &str, workspace: &Path, person: &Person) -> Result<AskedPolicy> {
    if !settings::is_file(text) {
        return Ok(AskedPolicy::Named(text.to_owned()));
    }
    let written = [workspace.to_owned()];
    let real = planted::real(text.as_ref(), &written).map_err(|why| WrapRefused::File {
        path: text.into(),
        why: format!("cannot be read: {why}"),
    })?;
    Ok(AskedPolicy::File {
        path: text.to_owned(),
        text: own_file::read_trusted(&real, person)?,
    })
}
/// Whether this machine's loopback has an address of IPv6. An error of another kind is the sidecar's to tell.
fn has_ipv6() -> bool {
    let bound = TcpListener::bind((Ipv6Addr::LOCALHOST, 0));
    let lacks = |error: std::io::Error| {
        let code = error.raw_os_error();
        matches!(code, Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL))
    };
    !bound.is_err_and(lacks)
}
