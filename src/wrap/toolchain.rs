//! SHELL. What the directories of PATH need to work: the rest of their toolchains, by the rules of policies/wrap.toml.
//!
//! The user chose the directories of PATH. An agent may have chosen what they lead to (links, first lines of scripts,
//! the base of a virtual environment). So those are followed only into places of the list.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::list::SystemList;
use super::script;
use crate::plan::never::NeverList;
use crate::probe::is_home;
use crate::sys::path::RealPaths;

/// Entries checked per directory.
const MOST_ENTRIES: usize = 4096;

/// The results so far.
pub struct Toolchains<'a> {
    list: &'a SystemList,
    workspace: &'a Path,
    real: &'a RealPaths,
    homes: Vec<PathBuf>,
    /// Directories and files to make visible, not judged yet.
    pub parts: BTreeSet<PathBuf>,
    /// PATH, with linked directories by their own paths.
    pub path: Vec<String>,
    /// Virtual environments on PATH, and the Python that each needs.
    pub venvs: Vec<(PathBuf, PathBuf)>,
}

impl<'a> Toolchains<'a> {
    /// Looks at each directory of `path`.
    pub fn of(
        list: &'a SystemList,
        (workspace, real): (&'a Path, &'a RealPaths),
        home: Option<&Path>,
        path: &str,
    ) -> Self {
        let mut homes: Vec<PathBuf> = home.map(Path::to_owned).into_iter().collect();
        homes.extend(home.and_then(|home| real.of(home)));
        let mut found = Self {
            list,
            workspace,
            real,
            homes,
            parts: BTreeSet::new(),
            path: Vec::new(),
            venvs: Vec::new(),
        };
        let mut seen = BTreeSet::new();
        for name in path.split(':').filter(|name| seen.insert(*name)) {
            let entry = found.directory(Path::new(name));
            let entry = entry.and_then(|dir| dir.to_str().map(str::to_owned));
            found.path.push(entry.unwrap_or_else(|| name.to_owned()));
        }
        found
    }

    /// Adds one directory of PATH. Returns its own path if that differs.
    fn directory(&mut self, dir: &Path) -> Option<PathBuf> {
        if !dir.is_absolute() || self.is_system(dir) || !dir.is_dir() {
            return None;
        }
        self.venv(dir);
        // The workspace shows it already.
        if dir.starts_with(self.workspace) {
            return None;
        }
        if let Some(known) = self.list.known(dir) {
            let needs = known.needs.iter().map(|need| known.base.join(need));
            self.parts.extend(needs.filter(|part| part.exists()));
            for target in targets(dir) {
                self.follow(&target, &known.base, known.follow);
            }
            return None;
        }
        let real = self.real.of(dir)?;
        if real == dir {
            let part = self.around(dir).unwrap_or(dir);
            self.parts.insert(part.to_owned());
            return None;
        }
        if self.is_system(&real) {
            return Some(real);
        }
        match self.place(&real) {
            Some(place) => {
                self.parts.insert(place);
                Some(real)
            }
            // An agent may have made the link: it is reported with the reason.
            None => {
                self.parts.insert(dir.to_owned());
                None
            }
        }
    }

    /// `X` of a directory `X/bin` that needs its neighbours.
    fn around<'d>(&self, dir: &'d Path) -> Option<&'d Path> {
        let above = dir.parent().filter(|_| dir.ends_with("bin"))?;
        let has = |name: &PathBuf| above.join(name).exists();
        let whole = self.list.beside_bin.iter().any(has) && !has(&PathBuf::from(".git"));
        let holds = |path: &Path| path.starts_with(above);
        let too_much = is_home(above)
            || holds(self.workspace)
            || self.homes.iter().any(|home| holds(home))
            || NeverList::builtin().is_common(above);
        (whole && !too_much).then_some(above)
    }

    /// Follows a link in a directory of PATH, or the interpreter of a script there.
    fn follow(&mut self, target: &Path, base: &Path, patterns: &[PathBuf]) {
        let Some(real) = self.real.of(target) else {
            return;
        };
        let mut bases = vec![base.to_owned()];
        bases.extend(self.real.of(base));
        // A venv's python is a link out of it: each step is followed.
        let step = fs::read_link(target).ok();
        let step = step.map(|step| target.parent().unwrap_or(target).join(step));
        for leads in [Some(target), step.as_deref(), Some(real.as_path())]
            .into_iter()
            .flatten()
        {
            let below = bases
                .iter()
                .find_map(|base| prefix_of(base, patterns, leads));
            self.parts.extend(below.or_else(|| self.place(leads)));
            if let Some(dir) = leads.parent() {
                self.venv(dir);
            }
        }
    }

    /// The Python of a virtual environment, if the directory belongs to one.
    fn venv(&mut self, bin: &Path) {
        let Some(venv) = bin.parent() else {
            return;
        };
        let config = venv.join("pyvenv.cfg");
        if self.venvs.iter().any(|(known, _)| known == venv) || !config.is_file() {
            return;
        }
        let base = script::venv_home(&config).map(PathBuf::from);
        let base = base.filter(|base| base.is_absolute() && base.is_dir());
        let pythons = ["python3", "python"].map(|name| bin.join(name));
        for needed in base.into_iter().chain(pythons) {
            let Some(real) = self.real.of(&needed) else {
                continue;
            };
            if !self.is_system(&real) && !real.starts_with(venv) {
                self.parts.extend(self.place(&real));
            }
            self.venvs.push((venv.to_owned(), real));
        }
    }

    /// The listed place that contains a path.
    fn place(&self, path: &Path) -> Option<PathBuf> {
        let bases = self.homes.iter().map(PathBuf::as_path);
        let mut bases = bases.chain([Path::new("/")]);
        bases.find_map(|base| {
            let absolute = base == Path::new("/");
            let places = self.list.places.iter();
            let places = places.filter(|place| place.is_absolute() == absolute);
            let places: Vec<PathBuf> = places
                .map(|p| p.strip_prefix("/").unwrap_or(p).to_owned())
                .collect();
            prefix_of(base, &places, path)
        })
    }

    fn is_system(&self, path: &Path) -> bool {
        self.list.system.iter().any(|s| path.starts_with(s))
    }
}

/// The links of a directory and the interpreters of its scripts, without duplicates: a version manager has hundreds of
/// scripts with the same first line.
fn targets(dir: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let target = |entry: fs::DirEntry| match script::is_file(&entry) {
        true => script::interpreter(&entry.path())
            .first()
            .map(PathBuf::from),
        false => Some(entry.path()),
    };
    entries.take(MOST_ENTRIES).filter_map(target).collect()
}

/// The prefix of a path that matches a pattern below `base`; `*` stands for one component.
pub fn prefix_of(base: &Path, patterns: &[PathBuf], path: &Path) -> Option<PathBuf> {
    let rest = path.strip_prefix(base).ok()?;
    patterns.iter().find_map(|pattern| {
        let mut found = base.to_owned();
        let mut have = rest.components();
        for want in pattern.components() {
            let part = have.next()?;
            let plain = matches!(part, std::path::Component::Normal(_));
            if !plain || (want.as_os_str() != "*" && want != part) {
                return None;
            }
            found.push(part);
        }
        Some(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_and_links_are_followed_once() {
        let dir = nix::unistd::mkdtemp(&std::env::temp_dir().join("agentbox-test-XXXXXX")).unwrap();
        for name in ["one", "two"] {
            fs::write(dir.join(name), "#!/usr/bin/env bash\n").unwrap();
        }
        fs::write(dir.join("program"), "\x7fELF").unwrap();
        std::os::unix::fs::symlink("/usr/bin/true", dir.join("link")).unwrap();
        let found = targets(&dir);
        let want = [PathBuf::from("/usr/bin/env"), dir.join("link")];
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(found, BTreeSet::from(want));
    }

    #[test]
    fn a_pattern_names_the_beginning_of_a_path() {
        let patterns = [PathBuf::from(".local/share/*"), PathBuf::from("miniconda3")];
        let of = |path: &str| prefix_of(Path::new("/home/me"), &patterns, Path::new(path));
        let claude = Some(PathBuf::from("/home/me/.local/share/claude"));
        assert_eq!(of("/home/me/.local/share/claude/versions/1"), claude);
        assert_eq!(
            of("/home/me/miniconda3"),
            Some("/home/me/miniconda3".into())
        );
        for not in [
            "/home/me/.local/share",
            "/home/me/x",
            "/home/you/miniconda3",
            "/home/me/.local/share/..",
        ] {
            assert_eq!(of(not), None, "{not}");
        }
    }
}
