//! SHELL. Whether the command is the same program inside as outside. A link to a path that is not visible is an error:
//! no other program of the same name takes its place.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::error::WrapRefusal;
use super::layout::Layout;
use super::script;
use crate::sys::path;

/// Refuses a command that exists outside but would be missing or different inside. The runtime reports a command that
/// exists nowhere.
pub fn check(name: &str, path: &str, layout: &Layout) -> Result<()> {
    let Some(found) = search(name, path, &layout.cwd).found else {
        return Ok(());
    };
    let real = shown(name, &found, &found, layout)?;
    for interpreter in interpreters(&real, path, &layout.cwd) {
        shown(name, &interpreter, &real, layout)?;
    }
    Ok(())
}

/// What executing a command takes, as far as that is known before.
#[derive(Debug, Default)]
pub struct CommandFiles {
    /// The program that a shell would take, and what the kernel and env(1) execute for it: first the program.
    pub files: Vec<PathBuf>,
    /// Where PATH is searched before one of them is found: a file there would take its place.
    pub before: Vec<PathBuf>,
    /// Where else PATH is searched, if a file is a shell: its script has names of programs, and so chooses what runs.
    pub by_shell: Vec<PathBuf>,
    /// A name that leads to no file, or to one that depends on more than PATH.
    pub unknown: Option<String>,
}

impl CommandFiles {
    /// Those of a command.
    pub fn of(name: &str, path: &str, cwd: &Path) -> Self {
        /// Interpreters of interpreters that the kernel executes (BINPRM_MAX_RECURSION).
        const DEEPEST: usize = 5;
        let mut all = Self::default();
        let mut names = vec![name.to_owned()];
        for _ in 0..=DEEPEST {
            let found: Vec<PathBuf> = names
                .drain(..)
                .filter_map(|name| all.add(&name, path, cwd))
                .collect();
            for file in found {
                let script = Script::of(&file);
                names.extend(script.iter().map(|script| script.interpreter.clone()));
                match script.and_then(|script| script.program) {
                    Some(EnvProgram {
                        word: Some(word),
                        is_plain: true,
                    }) => names.push(word),
                    Some(_) => all.unknown = Some(file.display().to_string()),
                    None => {}
                }
            }
        }
        all.unknown = all.unknown.or(names.pop());
        if all.files.iter().any(|file| is_shell(file)) {
            let name = Path::new(name).file_name().unwrap_or_default();
            let entries = path.split(':').map(|entry| cwd.join(entry).join(name));
            all.by_shell = entries.map(|place| place.components().collect()).collect();
        }
        all
    }

    /// Whether a path, or a link, is on the way to one of the files.
    pub fn lead_by(&self, one: &Path) -> bool {
        let ways = |file: &PathBuf| path::ways(file).unwrap_or_default();
        let leads = |file: &PathBuf| file == one || ways(file).iter().any(|way| way == one);
        self.files.iter().any(leads)
    }

    fn add(&mut self, name: &str, path: &str, cwd: &Path) -> Option<PathBuf> {
        let Search { before, found } = search(name, path, cwd);
        self.before.extend(before);
        match &found {
            Some(file) => self.files.push(file.clone()),
            None => self.unknown = Some(name.to_owned()),
        }
        found
    }
}

fn is_shell(file: &Path) -> bool {
    const SHELLS: [&str; 11] = [
        "ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "mksh", "sh", "tcsh", "zsh",
    ];
    let name = file.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| SHELLS.contains(&name))
}

/// A search of PATH.
struct Search {
    /// Where the program is not.
    before: Vec<PathBuf>,
    found: Option<PathBuf>,
}

/// Looks for a program as a shell does: an entry of PATH that is empty is the working directory, and relative ones begin there.
fn search(name: &str, path: &str, cwd: &Path) -> Search {
    let mut before = Vec::new();
    if name.contains('/') {
        let found = Some(cwd.join(name)).filter(|place| place.is_file());
        return Search { before, found };
    }
    for entry in path.split(':') {
        let place: PathBuf = cwd.join(entry).join(name).components().collect();
        let meta = fs::metadata(&place);
        if meta.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0) {
            let found = Some(place);
            return Search { before, found };
        }
        before.push(place);
    }
    Search {
        before,
        found: None,
    }
}

/// The program's own path, if it and the links to it are visible. `by` is the file that names it.
fn shown(name: &str, found: &Path, by: &Path, layout: &Layout) -> Result<PathBuf> {
    let Some(real) = layout.real.of(found) else {
        // A link that is dangling outside too.
        return Ok(found.to_owned());
    };
    if !layout.shows(&real) || !layout.shows_name(found) {
        let (name, found) = (name.to_owned(), found.to_owned());
        // A sandbox chooses by the file that names the program, and by the links to it.
        let ways = |file: &Path| path::ways(file).unwrap_or_else(|_| vec![file.to_owned()]);
        let mut all = ways(by).into_iter().chain(ways(&found));
        let by = all.find(|way| layout.is_written(way));
        bail!(WrapRefusal::Hidden {
            name,
            found,
            real,
            by
        });
    }
    Ok(real)
}

/// The programs that execute a script, for a visible one: its interpreter and, for env(1), the program that PATH finds.
fn interpreters(real: &Path, path: &str, cwd: &Path) -> Vec<PathBuf> {
    let Some(Script {
        interpreter,
        program,
    }) = Script::of(real)
    else {
        return Vec::new();
    };
    let program = program.and_then(|program| search(&program.word?, path, cwd).found);
    let mut found = vec![PathBuf::from(interpreter)];
    found.extend(program);
    found.retain(|p| p.is_absolute());
    found
}

/// The first line of a script.
#[derive(Debug, PartialEq, Eq)]
struct Script {
    /// The kernel's: a path, from the working directory if it is relative.
    interpreter: String,
    /// What env(1) executes.
    program: Option<EnvProgram>,
}

/// What env(1) executes.
#[derive(Debug, PartialEq, Eq)]
struct EnvProgram {
    word: Option<String>,
    /// Whether that is all that env(1) is told: an option or a variable could change where it looks.
    is_plain: bool,
}

impl Script {
    fn of(file: &Path) -> Option<Self> {
        Self::of_words(&script::interpreter(file))
    }

    fn of_words(words: &[String]) -> Option<Self> {
        let (interpreter, rest) = words.split_first()?;
        // The kernel's path, of which a slash makes a path for `search`, too.
        let mut path = interpreter.clone();
        if !path.contains('/') {
            path.insert_str(0, "./");
        }
        let is_env = Path::new(interpreter)
            .file_name()
            .is_some_and(|name| name == "env");
        Some(Self {
            interpreter: path,
            program: is_env.then(|| EnvProgram::of_words(rest)),
        })
    }
}

impl EnvProgram {
    /// Without -S the kernel gives it the rest of the line as one word.
    fn of_words(words: &[String]) -> Self {
        let is_word = |word: &&String| !word.starts_with('-') && !word.contains('=');
        let is_plain = match words {
            [word] => is_word(&word),
            [split, word, ..] => split == "-S" && is_word(&word),
            [] => false,
        };
        Self {
            word: words.iter().find(is_word).cloned(),
            is_plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(line: &str) -> Option<Script> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Script::of_words(&words)
    }

    #[test]
    fn what_env_executes_is_known_if_it_is_told_nothing_else() {
        let program = |line: &str| {
            let program = script(line).unwrap().program.unwrap();
            (program.word.unwrap_or_default(), program.is_plain)
        };
        let plain = |word: &str| (word.to_owned(), true);
        assert_eq!(program("/usr/bin/env node"), plain("node"));
        assert_eq!(program("/usr/bin/env -S node --a"), plain("node"));
        for line in [
            "/usr/bin/env -S -u X runner",
            "/usr/bin/env -S PATH=/w node",
            "/usr/bin/env -Snode",
            "/usr/bin/env -i node",
            // A file with a blank in its name.
            "/usr/bin/env node --a",
            "/usr/bin/env",
        ] {
            assert!(!program(line).1, "{line}");
        }
        assert_eq!(script("/bin/sh -e").unwrap().program, None);
        assert_eq!(script("runner").unwrap().interpreter, "./runner");
        assert_eq!(script(""), None);
    }

    #[test]
    fn each_place_that_path_names_before_a_file_is_told() {
        let base =
            nix::unistd::mkdtemp(&std::env::temp_dir().join("agentbox-test-XXXXXX")).unwrap();
        let write = |name: &str, text: &str| {
            let path = base.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            path
        };
        let genuine = write("bin/claude", "#!/usr/bin/env runner\n");
        let runner = write("other/runner", "#!/bin/sh\n");
        let of = |path: &str| CommandFiles::of("claude", path, &base);
        let path = format!("{0}/none:{0}/bin:{0}/other:/usr/bin", base.display());
        let files = of(&path);
        assert_eq!(files.files[..2], [genuine.clone(), "/usr/bin/env".into()]);
        assert!(files.files.contains(&runner), "{files:?}");
        let before = ["none/claude", "none/runner", "bin/runner"].map(|name| base.join(name));
        assert_eq!(files.before, before);
        // A shell looks for the programs of its script in all of PATH.
        let all = [
            "none/claude",
            "bin/claude",
            "other/claude",
            "/usr/bin/claude",
        ];
        assert_eq!(files.by_shell, all.map(|name| base.join(name)));
        assert_eq!(
            of(&format!("{path}:nm")).by_shell[4],
            base.join("nm/claude")
        );
        assert_eq!(files.unknown, None);
        // An entry that is empty or relative begins at the working directory.
        for entry in ["", ".", "nm"] {
            let files = of(&format!("{entry}:{path}"));
            assert_eq!(
                files.before[0],
                base.join(entry)
                    .join("claude")
                    .components()
                    .collect::<PathBuf>()
            );
            assert_eq!(files.files[0], genuine);
        }
        let planted = write("nm/claude", "#!/bin/sh\n");
        assert_eq!(of(&format!("nm:{path}")).files[0], planted);
        assert_eq!(of("nm").files[0], planted);
        assert_eq!(of("/usr/bin").unknown.as_deref(), Some("claude"));
        // An interpreter that is not found, or that depends on more than PATH.
        fs::remove_file(runner).unwrap();
        assert_eq!(of(&path).unknown.as_deref(), Some("runner"));
        write("bin/claude", "#!/usr/bin/perl\n");
        assert!(of(&path).by_shell.is_empty());
        write("bin/claude", "#!/usr/bin/env -S -u X runner\n");
        assert_eq!(of(&path).unknown, Some(genuine.display().to_string()));
        write("bin/claude", &format!("#!{}\n", genuine.display()));
        assert!(of(&path).unknown.is_some());
        fs::remove_dir_all(base).unwrap();
    }

    /// The line would name any directory of the user's to show.
    #[test]
    fn no_directory_is_offered_to_which_a_link_of_a_sandbox_leads() {
        let base =
            nix::unistd::mkdtemp(&std::env::temp_dir().join("agentbox-test-XXXXXX")).unwrap();
        let base = base.canonicalize().unwrap();
        let (project, nvm) = (base.join("project/bin"), base.join("nvm"));
        let private = base.join("private");
        for directory in [&project, &nvm, &private] {
            fs::create_dir_all(directory).unwrap();
        }
        let write = |path: PathBuf, text: &str| {
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        };
        write(nvm.join("claude"), "#!/usr/bin/env node\n");
        write(private.join("any"), "#!/bin/sh\n");
        let mut layout = Layout::empty(&base.join("project"), &[]);
        layout.binds = vec![nvm.clone(), "/usr".into()];
        let by = |directories: &[&PathBuf]| {
            let path = directories.iter().map(|one| one.display().to_string());
            let path = path.collect::<Vec<_>>().join(":");
            let error = check("claude", &path, &layout).unwrap_err();
            match error.downcast_ref() {
                Some(WrapRefusal::Hidden { by, .. }) => by.clone(),
                other => panic!("{other:?}"),
            }
        };
        let link = |directory: &Path| {
            std::os::unix::fs::symlink(private.join("any"), directory.join("node")).unwrap();
        };
        link(&project);
        assert_eq!(by(&[&project, &nvm]), Some(project.join("node")));
        // The control: a link of the user's.
        link(&nvm);
        assert_eq!(by(&[&nvm]), None);
        fs::remove_dir_all(base).unwrap();
    }
}
