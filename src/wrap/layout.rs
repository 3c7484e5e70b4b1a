//! SHELL. Which of the node's directories and links the wrapped command sees.

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Result, bail};

use super::agents::home::AgentHome;
use super::credentials;
use super::error::WrapRefusal;
use super::list::SystemList;
use super::named::nodes_mounts;
use super::person::Person;
use super::repository;
use super::settings::places::PROJECT_FILE;
use super::toolchain::Toolchains;
use crate::kernel::paths::is_outside;
use crate::plan::OmittedMount;
use crate::plan::never::NeverList;
use crate::plan::wrap_plan::WrapPlan;
use crate::policy::WrapOptions;
use crate::probe::{can_be_judged, is_home};
use crate::sys::path::RealPaths;

/// The parts of the node's file system that the command sees. Paths are the same inside and outside.
pub struct Layout {
    /// Bind mounts of the node's directories and files, read-only, parents first.
    pub binds: Vec<PathBuf>,
    /// The binds that the list names.
    pub system: BTreeSet<PathBuf>,
    /// Toolchains of PATH that are not mounted, and why.
    pub dropped: Vec<OmittedMount>,
    /// The binds that `--read` named.
    pub asked: BTreeSet<PathBuf>,
    /// Binds that are mounts of the node below another visible path. That path does not show them without a mount of
    /// their own.
    pub apart: BTreeSet<PathBuf>,
    /// Caches that are read; what is written to them lasts for this run.
    pub caches: BTreeSet<PathBuf>,
    /// Packages that installers of toolchains fetched.
    pub packages: BTreeSet<PathBuf>,
    /// Where writes to caches are kept.
    pub kept: Option<PathBuf>,
    /// What an agent has of its own.
    pub agent: Option<AgentHome>,
    /// Paths of `--write`.
    pub written: BTreeSet<PathBuf>,
    /// Virtual environments on PATH, and the Python that each needs.
    pub venvs: Vec<(PathBuf, PathBuf)>,
    /// PATH, with links to directories resolved.
    pub path: String,
    /// Links to make again: path and target.
    pub links: Vec<(PathBuf, PathBuf)>,
    /// Paths to hide.
    pub masked: Vec<PathBuf>,
    /// The workspace.
    pub workspace: PathBuf,
    /// The working directory, in the workspace.
    pub cwd: PathBuf,
    /// Read-only parts of a git directory elsewhere: what git runs, and what names it.
    pub readonly: Vec<PathBuf>,
    /// The system's git configuration inside.
    pub git: String,
    /// HOME of the command, if it is a usable path.
    pub home: Option<PathBuf>,
    /// Where paths lead, to decide what is visible. Mounts are judged by the files that were opened.
    pub real: RealPaths,
}

/// How much of the node the command sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeView {
    /// The paths of the list.
    Listed,
    /// The paths of the list, and the user's whole home.
    Home,
}

impl Layout {
    /// Looks at the node.
    pub fn of(
        list: &SystemList,
        workspace: &Path,
        environment: &[String],
        shown: NodeView,
    ) -> Self {
        let mut layout = Self::empty(workspace, environment);
        for path in &list.system {
            layout.add(path);
        }
        for name in &list.etc {
            layout.add(&Path::new("/etc").join(name));
        }
        // Only the list's: the caller's are added later.
        layout.system = layout.binds.iter().cloned().collect();
        if shown == NodeView::Home {
            layout.add_home();
        }
        layout.add_toolchains(list);
        if let (Some(home), NodeView::Listed) = (&layout.home, shown) {
            layout.packages = list.packages.iter().map(|part| home.join(part)).collect();
        }
        // Hide credentials by name, wherever the home is: the search inside a mount has a depth limit.
        if let Some(home) = &layout.home {
            let hidden = credentials::hidden(home, &[&layout.workspace, home]);
            layout.masked.extend(hidden);
        }
        layout
    }

    /// The workspace alone.
    pub(super) fn empty(workspace: &Path, environment: &[String]) -> Self {
        let home = variable(environment, "HOME").map(PathBuf::from);
        Self {
            binds: Vec::new(),
            system: BTreeSet::new(),
            dropped: Vec::new(),
            asked: BTreeSet::new(),
            apart: BTreeSet::new(),
            caches: BTreeSet::new(),
            packages: BTreeSet::new(),
            kept: None,
            agent: None,
            written: BTreeSet::new(),
            venvs: Vec::new(),
            path: variable(environment, "PATH").unwrap_or_default().to_owned(),
            links: Vec::new(),
            masked: Vec::new(),
            workspace: workspace.to_owned(),
            cwd: workspace.to_owned(),
            readonly: Vec::new(),
            git: String::new(),
            home: home.filter(|h| h.is_absolute()),
            real: RealPaths::default(),
        }
    }

    /// Mounts each file that decides about runs on itself, so that the command cannot write, replace or move it. A new
    /// settings file from the command does not count, because no user has trusted it.
    pub fn close_settings(&mut self, included: &[PathBuf]) {
        let file = self.workspace.join(PROJECT_FILE);
        if file.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
            self.readonly.push(file);
        }
        let is_written = |file: &&PathBuf| self.writable().any(|place| file.starts_with(place));
        let inside = included.iter().filter(is_written);
        let inside: Vec<PathBuf> = inside.filter(|file| file.is_file()).cloned().collect();
        self.readonly.extend(inside);
    }

    /// Sorts the binds. Drops the workspace, and binds that another bind contains.
    pub fn settle(&mut self) {
        self.binds.sort();
        self.binds.dedup();
        let all: BTreeSet<PathBuf> = self.binds.iter().cloned().collect();
        let is_shown = |b: &Path| b.ancestors().skip(1).any(|a| all.contains(a));
        self.binds
            .retain(|b| *b != self.workspace && (self.apart.contains(b) || !is_shown(b)));
    }

    /// Adds the system's link to /run, by which clients find the sockets of databases.
    pub fn add_run_link(&mut self) {
        let link = Path::new("/var/run");
        let covers = |place: &PathBuf| link.starts_with(place) || place.starts_with(link);
        let is_covered = self.binds.iter().chain(self.writable()).any(covers);
        if !is_covered {
            self.links.push((link.to_owned(), PathBuf::from("/run")));
        }
    }

    /// The places where the command's writes last.
    pub fn writable(&self) -> impl Iterator<Item = &PathBuf> {
        self.written.iter().chain([&self.workspace])
    }

    /// Whether the command can write a path, so that an earlier one may have made it.
    pub fn is_written(&self, path: &Path) -> bool {
        self.writable().any(|place| path.starts_with(place))
    }

    /// Whether a path without links is visible.
    pub fn shows(&self, real: &Path) -> bool {
        self.shown_by(real).is_some()
    }

    /// The innermost visible place that contains a path without links. It has no links itself.
    pub fn shown_by(&self, real: &Path) -> Option<PathBuf> {
        let places = self
            .binds
            .iter()
            .chain(&self.written)
            .chain([&self.workspace]);
        let holding = places.filter_map(|place| {
            let holding = match !is_outside(real, place) && real.starts_with(place) {
                true => Some(place.clone()),
                false => self.real.of(place).filter(|place| real.starts_with(place)),
            };
            // Only then: both lists may be long.
            holding.filter(|_| !self.masked.contains(place))
        });
        holding.max_by_key(|place| place.components().count())
    }

    /// Whether a path leads to a visible one by the name given.
    pub fn shows_name(&self, path: &Path) -> bool {
        self.shows(path) || self.links.iter().any(|(link, _)| path.starts_with(link))
    }

    /// Adds a directory or file as a bind mount, and a link as a link.
    fn add(&mut self, path: &Path) {
        let Ok(meta) = fs::symlink_metadata(path) else {
            return;
        };
        if !meta.is_symlink() {
            self.binds.push(path.to_owned());
        } else if path.parent() == Some(Path::new("/")) {
            if let Ok(target) = fs::read_link(path) {
                self.links.push((path.to_owned(), target));
            }
        } else if path.exists() {
            // A link inside /etc is mounted as its target.
            self.binds.push(path.to_owned());
        }
    }

    /// Adds the git directory that the workspace needs, if it lies elsewhere.
    pub fn add_repository(&mut self, person: &Person) {
        match repository::elsewhere(&self.workspace, person) {
            Ok(Some(elsewhere)) => {
                self.readonly.extend(elsewhere.closed);
                self.binds.extend(elsewhere.read);
                self.written.extend(elsewhere.written);
            }
            Ok(None) => {}
            Err((named, why)) => self.drop(&named, why),
        }
        let home = self.home.clone().or_else(|| person.home());
        self.git = repository::configuration(home.as_deref(), &self.workspace);
    }

    /// Adds the user's own home. It is judged, and searched for credentials, like an engine's mount.
    fn add_home(&mut self) {
        let Some(home) = self.home.clone().filter(|home| home.is_dir()) else {
            return;
        };
        let never = NeverList::builtin();
        match never.refuses(&home) {
            None => self.binds.push(home),
            Some(why) => self.drop(&home, why.to_owned()),
        }
    }

    /// Without root's rights, a visible home with mounts in it is an error. The init process would lay an overlay over
    /// the home, from a copy of its mount without the mounts below it (EINVAL, mount_namespaces(7)).
    pub fn check_home(&self, policy: &str) -> Result<()> {
        let Some(home) = self.home.as_ref().filter(|home| self.binds.contains(home)) else {
            return Ok(());
        };
        let real = home.canonicalize().unwrap_or_else(|_| home.clone());
        match nodes_mounts()?.below(&real).pop_first() {
            None => Ok(()),
            Some(mount) => bail!(WrapRefusal::MountInHome {
                policy: policy.to_owned(),
                home: home.clone(),
                mount,
            }),
        }
    }

    fn add_toolchains(&mut self, list: &SystemList) {
        let (workspace, path) = (self.workspace.clone(), self.path.clone());
        let found = Toolchains::of(list, (&workspace, &self.real), self.home.as_deref(), &path);
        let Toolchains {
            parts, path, venvs, ..
        } = found;
        self.path = path.join(":");
        for part in parts.iter().filter(|p| !p.starts_with(&workspace)) {
            match self.no_toolchain(part) {
                None => self.binds.push(part.clone()),
                Some(why) => self.drop(part, why),
            }
        }
        self.venvs = venvs;
    }

    /// Refuses a virtual environment without its Python: it would silently use the system's.
    pub fn check_venvs(&self) -> Result<()> {
        for (venv, python) in &self.venvs {
            if !self.shows(venv) || !self.shows(python) {
                let hidden = if self.shows(venv) { python } else { venv };
                let (venv, hidden) = (venv.clone(), hidden.clone());
                let by = self.is_written(&venv).then(|| venv.clone());
                bail!(WrapRefusal::Venv { venv, hidden, by });
            }
        }
        Ok(())
    }

    /// Why a directory of PATH is not mounted. Mounts are judged again by the files that were opened. This check leaves
    /// out directories that would stop all of `wrap`, or would hide the list's own mounts.
    fn no_toolchain(&self, part: &Path) -> Option<String> {
        let never = NeverList::builtin();
        let mut parts = part.components();
        if !parts.all(|c| matches!(c, Component::RootDir | Component::Normal(_))) {
            return Some("its path has `..` in it".to_owned());
        }
        let real = match can_be_judged(part).and_then(|()| part.canonicalize()) {
            Ok(real) => real,
            Err(error) => return Some(format!("it cannot be opened without magic links: {error}")),
        };
        let home = self.home.as_ref();
        let real_home = home.and_then(|home| self.real.of(home));
        let mut homes = home.into_iter().chain(&real_home);
        if is_home(&real) || homes.any(|h| h.starts_with(&real) || h.starts_with(part)) {
            return Some("a home directory or its parent cannot be a toolchain".into());
        }
        if never.is_common(&real) {
            return Some(format!(
                "{} as a whole cannot be a toolchain",
                real.display()
            ));
        }
        let mut names = [part, &real].into_iter();
        names.find_map(|name| {
            let why = never.refuses(name)?;
            Some(format!("{}: {why}", name.display()))
        })
    }

    fn drop(&mut self, part: &Path, why: String) {
        if !self.dropped.iter().any(|d| d.destination == part) {
            self.dropped.push(OmittedMount {
                destination: part.to_owned(),
                source: part.to_owned(),
                why,
                of_every_engine: false,
            });
        }
    }

    /// The planner's view of the binds.
    pub fn wrapped(&self, requests: WrapOptions) -> WrapPlan {
        let judged = self.binds.iter().filter(|b| !self.system.contains(*b));
        WrapPlan {
            system: self.system.clone(),
            judged: judged.cloned().collect(),
            asked: self.asked.clone(),
            caches: self.caches.clone(),
            packages: self.packages.clone(),
            kept: self.kept.clone(),
            agent: self.agent_mounts().clone(),
            written: self.written.clone(),
            dropped: self.dropped.clone(),
            requests,
            ..WrapPlan::default()
        }
    }

    /// Directories that the root has before anything is mounted.
    pub fn directories(&self) -> BTreeSet<PathBuf> {
        let mut all: BTreeSet<PathBuf> = [
            "/dev", "/etc", "/proc", "/sys", "/tmp", "/run", "/var/tmp", "/home", "/root",
        ]
        .map(PathBuf::from)
        .into();
        all.extend(self.home.clone());
        all.insert(self.workspace.clone());
        // Parents of mounts in the home: made here, since the runtime would make them root's.
        let homes = self.home.iter().flat_map(|home| {
            let places = self
                .binds
                .iter()
                .chain(&self.caches)
                .chain(&self.written)
                .chain(self.agent_mounts().keys())
                .chain([&self.workspace]);
            let below = places.filter(move |place| *place != home && place.starts_with(home));
            below.filter_map(|place| place.parent())
        });
        all.extend(homes.map(Path::to_owned));
        // Below a bind mount, the directory is the node's own.
        let binds: HashSet<&Path> = self.binds.iter().map(PathBuf::as_path).collect();
        all.retain(|d| !d.ancestors().any(|above| binds.contains(above)));
        all
    }
}

fn variable<'a>(environment: &'a [String], name: &str) -> Option<&'a str> {
    environment
        .iter()
        .find_map(|e| e.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::TestDir;

    /// A workspace in a home; nothing of it is on this machine.
    fn layout(binds: &[&str]) -> Layout {
        let environment = ["HOME=/nohome/u".to_owned(), "PATH=/nobin".to_owned()];
        let mut layout = Layout::empty(Path::new("/nohome/u/p"), &environment);
        layout.binds = binds.iter().map(PathBuf::from).collect();
        layout
    }

    #[test]
    fn a_bind_that_another_one_shows_is_dropped_and_a_mount_of_the_node_is_not() {
        let mut all = layout(&["/nousr/lib", "/nohome/u/p", "/nousr", "/nousr", "/nousr/m"]);
        all.apart.insert("/nousr/m".into());
        all.settle();
        assert_eq!(all.binds, ["/nousr", "/nousr/m"].map(PathBuf::from));
    }

    #[test]
    fn a_path_is_shown_by_the_innermost_place_that_is_not_hidden() {
        let mut all = layout(&["/nousr"]);
        all.written.insert("/nohome/u/p/out".into());
        let by = |all: &Layout, path: &str| all.shown_by(Path::new(path));
        assert_eq!(by(&all, "/nousr/bin/x"), Some("/nousr".into()));
        assert_eq!(by(&all, "/nohome/u/p/x"), Some("/nohome/u/p".into()));
        assert_eq!(
            by(&all, "/nohome/u/p/out/x"),
            Some("/nohome/u/p/out".into())
        );
        for hidden in ["/nohome/u", "/nohome/u/pp", "/nousrs", "/"] {
            assert_eq!(by(&all, hidden), None, "{hidden}");
        }
        all.masked.push("/nousr".into());
        assert!(!all.shows(Path::new("/nousr/bin/x")));
        all.links.push(("/nolink".into(), "/nousr".into()));
        assert!(all.shows_name(Path::new("/nolink/x")) && !all.shows_name(Path::new("/nolinks")));
    }

    #[test]
    fn parents_in_the_home_are_made_and_nothing_below_a_bind() {
        let mut all = layout(&["/nohome/u/.cargo/bin", "/var"]);
        all.caches.insert("/nohome/u/.cache/pip".into());
        let made = all.directories();
        for path in [
            "/nohome/u",
            "/nohome/u/p",
            "/nohome/u/.cargo",
            "/nohome/u/.cache",
            "/tmp",
        ] {
            assert!(made.contains(Path::new(path)), "{path}");
        }
        // The node has its own directory there.
        assert!(!made.contains(Path::new("/var/tmp")), "{made:?}");
        assert!(!made.contains(Path::new("/nohome/u/.cargo/bin")));
    }

    #[test]
    fn whole_homes_and_odd_paths_are_no_toolchains() {
        let all = layout(&[]);
        let why = |path: &str| all.no_toolchain(Path::new(path)).unwrap_or_default();
        assert!(why("/usr/../etc").contains("`..`"));
        assert!(why("/nohere/bin").contains("cannot be opened"));
        assert!(why("/root").contains("home directory"));
        assert!(why("/").contains("home directory") && !why("/etc").is_empty());
        assert_eq!(why("/usr/bin"), "");
    }

    /// A home, a project, another one's files, and an ordinary directory of PATH. Removed when dropped.
    struct Node(TestDir);

    impl Node {
        fn new() -> Self {
            let base = TestDir::unique();
            for part in ["home/.ssh", "p1/src", "p1/.venv/bin", "other/bin", "tools"] {
                fs::create_dir_all(base.0.join(part)).unwrap();
            }
            Self(base)
        }

        fn at(&self, part: &str) -> PathBuf {
            self.0.0.join(part)
        }

        /// What PATH with one more directory shows besides the list's directories, and why that one is not mounted.
        fn shows(&self, entry: &Path) -> (BTreeSet<PathBuf>, Option<String>) {
            let (home, tools) = (self.at("home"), self.at("tools"));
            let environment = [
                format!("HOME={}", home.display()),
                format!("PATH={}:{}", tools.display(), entry.display()),
            ];
            let list = SystemList::builtin();
            let layout = Layout::of(&list, &self.at("p1/src"), &environment, NodeView::Listed);
            let binds = layout.binds.into_iter();
            let binds = binds.filter(|bind| !layout.system.contains(bind));
            let mut dropped = layout.dropped.into_iter();
            let own = dropped.find(|one| one.destination == entry);
            (binds.collect(), own.map(|one| one.why))
        }

        /// Its files are not shown, whatever the directory leads to.
        #[track_caller]
        fn is_refused(&self, entry: &Path) -> String {
            let (binds, why) = self.shows(entry);
            assert_eq!(binds, [self.at("tools")].into(), "{}", entry.display());
            why.unwrap_or_else(|| panic!("no reason for {}", entry.display()))
        }
    }

    /// C1; a few of them are tried in a rig.
    #[test]
    fn what_no_policy_shows_is_not_shown_by_path() {
        let node = Node::new();
        for part in ["home", "home/.ssh", "tools/../home/.ssh"] {
            node.is_refused(&node.at(part));
        }
        for whole in ["/run", "/etc", "/", "/srv", "/proc/1", "/root", "/tmp"] {
            node.is_refused(Path::new(whole));
        }
        // The control.
        let more = node.at("other/bin");
        let (binds, why) = node.shows(&more);
        assert_eq!((binds, why), ([node.at("tools"), more].into(), None));
    }

    /// C1: an agent may replace a directory of its project that is on PATH.
    #[test]
    fn a_link_on_path_that_an_agent_left_leads_nowhere() {
        let node = Node::new();
        let bin = node.at("p1/.venv/bin");
        let (binds, why) = node.shows(&bin);
        assert_eq!((binds, why), ([node.at("tools"), bin.clone()].into(), None));
        fs::remove_dir(&bin).unwrap();
        // A target that only the search of mounts refuses is tried in a rig.
        for target in ["/run", "/etc", "/root", "/proc", "/"] {
            std::os::unix::fs::symlink(target, &bin).unwrap();
            node.is_refused(&bin);
            fs::remove_file(&bin).unwrap();
        }
    }

    #[test]
    fn the_planner_judges_all_binds_but_the_lists() {
        let mut all = layout(&["/nousr", "/noopt"]);
        all.system.insert("/nousr".into());
        all.drop(Path::new("/nobin"), "a reason".to_owned());
        all.drop(Path::new("/nobin"), "another".to_owned());
        let plan = all.wrapped(WrapOptions::default());
        assert_eq!(plan.judged, [PathBuf::from("/noopt")].into());
        assert_eq!(plan.system, [PathBuf::from("/nousr")].into());
        assert_eq!(plan.dropped.len(), 1);
        assert_eq!(plan.dropped[0].why, "a reason");
    }
}
