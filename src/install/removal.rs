//! SHELL. The steps of a removal: only files in the record. It reads, and changes nothing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::containerd::{self, Registration};
use super::docker::EntryState;
use super::error::InstallError;
use super::files::{self, TextFile};
use super::plan::reload_docker;
use super::record::{InstallRecord, RecordKind};
use super::step::{InstallPlan, Judge, NewText, SystemCommand};
use super::{APPARMOR, CONFIG, CONFIG_DIGEST, RECORD, TargetSystem, backup, docker, own, podman};
use crate::engines::daemon::{CONTAINERD_CONFIG, DOCKER_CONFIG, PODMAN_CONFIG};
use crate::text::{bounded, escape};

/// Whether sandboxes prevent a removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunningSandboxes {
    /// They do.
    Refuse,
    /// `--force`
    Ignore,
}

/// The steps that remove an installation; none if there is none.
///
/// # Errors
/// Sandboxes run, or a file cannot be changed: then nothing may be changed.
pub fn removal(
    system: &TargetSystem,
    running: RunningSandboxes,
) -> Result<InstallPlan, InstallError> {
    let mut plan = InstallPlan::default();
    if running == RunningSandboxes::Refuse {
        refuse_running(system)?;
    }
    let Some(record) = system.text(RECORD)? else {
        plan.notes
            .push("nothing to do: `agentbox install` has installed nothing here".to_owned());
        return Ok(plan);
    };
    refuse_defaults(system)?;
    let record = InstallRecord::parse(&record);
    let mut removal = Removal {
        system,
        record,
        plan,
    };
    removal.docker()?;
    removal.containerd()?;
    removal.apparmor();
    removal.own_files()?;
    removal.config()?;
    removal.forget();
    Ok(removal.plan)
}

/// Refuses while there are sandboxes: without the program they can be neither inspected, stopped nor removed.
fn refuse_running(system: &TargetSystem) -> Result<(), InstallError> {
    let mut indexes = vec![(system.real("/run/agentbox/index"), 0)];
    let below = |path: &str| {
        fs::read_dir(system.real(path))
            .into_iter()
            .flatten()
            .flatten()
    };
    // Count only directories of their own user: other users could block a removal.
    let users = below("/run/user").filter_map(|entry| {
        let uid = entry.file_name().to_str()?.parse().ok()?;
        Some((entry.path().join("agentbox"), uid))
    });
    let shared = below("/dev/shm").filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let uid = name.strip_prefix("agentbox-")?.parse().ok()?;
        Some((entry.path(), uid))
    });
    let own = users
        .chain(shared)
        .filter(|(path, uid)| is_users(path, *uid));
    indexes.extend(own.map(|(path, uid)| (path.join("index"), uid)));
    let sandboxes = |(index, uid): &(PathBuf, u32)| {
        let entries = fs::read_dir(index).into_iter().flatten().flatten();
        let keys = entries
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok());
        keys.map(|key| named(&key, *uid)).collect::<Vec<_>>()
    };
    let mut names: Vec<String> = indexes.iter().flat_map(sandboxes).collect();
    names.sort();
    match names.is_empty() {
        true => Ok(()),
        false => Err(InstallError::Running {
            count: names.len(),
            names: bounded(&escape(&names.join(", ")), 200),
        }),
    }
}

/// A sandbox by its key. Only its own user sees one of `wrap`.
fn named(key: &str, uid: u32) -> String {
    let id = key.split_once('-').map_or(key, |(_, id)| id);
    match uid {
        0 => id.to_owned(),
        uid => format!("{id} of user {uid}"),
    }
}

/// Whether it is a user's private directory, as those of sandbox records are.
fn is_users(path: &Path, uid: u32) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.is_dir() && found.uid() == uid && found.mode() & 0o077 == 0)
}

/// Refuses if agentbox is a default runtime: without it that engine does not start, or starts no container.
fn refuse_defaults(system: &TargetSystem) -> Result<(), InstallError> {
    let docker = system.text(DOCKER_CONFIG)?;
    if docker.is_some_and(|text| docker::is_default(&text)) {
        let why = "has agentbox as its default-runtime: change that first, and restart Docker";
        return Err(InstallError::file(Path::new(DOCKER_CONFIG), why));
    }
    for (path, key, is_default) in [
        (
            CONTAINERD_CONFIG,
            "default_runtime_name",
            containerd::is_default as fn(&str) -> bool,
        ),
        (PODMAN_CONFIG[1], "runtime", podman::is_default),
    ] {
        // Only a check: the step that changes the file reports errors.
        let text = fs::read_to_string(system.real(path)).unwrap_or_default();
        if is_default(&text) {
            let why = format!("sets {key} to agentbox: change that first, and restart the engine");
            return Err(InstallError::file(Path::new(path), why));
        }
    }
    Ok(())
}

struct Removal<'a> {
    system: &'a TargetSystem,
    record: InstallRecord,
    plan: InstallPlan,
}

impl Removal<'_> {
    fn paths(&self, kind: RecordKind) -> Vec<String> {
        self.record
            .of(kind)
            .into_iter()
            .map(str::to_owned)
            .collect()
    }

    fn write(&mut self, words: String, path: &str, before: TextFile, text: String) {
        let change = NewText {
            system: self.system,
            path,
            mode: before.mode,
            before: Some(before),
            text,
            judged_by: Judge::None,
        };
        self.plan.write(words, change);
    }

    fn remove_backup(&mut self, path: &str) -> Result<(), InstallError> {
        let beside = backup(path);
        if self.system.read(&beside)?.is_some() {
            let real = self.system.real(&beside);
            self.plan.remove(format!("remove {beside}"), real);
        }
        Ok(())
    }

    fn docker(&mut self) -> Result<(), InstallError> {
        let binaries = self.paths(RecordKind::Registered);
        if binaries.is_empty() {
            return Ok(());
        }
        let Some(before) = self.system.read(DOCKER_CONFIG)? else {
            return Ok(());
        };
        let refused = |why| InstallError::file(Path::new(DOCKER_CONFIG), why);
        // After several installations the last one is registered.
        let mut found = None;
        for binary in binaries {
            let text = docker::unregister(&before.text, &binary).map_err(refused)?;
            found = found.or(text.map(|text| (binary, text)));
        }
        match found {
            None => self.plan.notes.push(format!(
                "keep {DOCKER_CONFIG}: its entry agentbox was removed or changed"
            )),
            Some((binary, text)) => {
                // Unchanged since: restore it byte for byte.
                let old = self.system.text(&backup(DOCKER_CONFIG))?;
                let again = |old: &String| {
                    let now = docker::register(old, &binary).ok().flatten();
                    docker::entry_state(old) == Ok(EntryState::Absent)
                        && now.as_ref() == Some(&before.text)
                };
                let text = old.filter(again).unwrap_or(text);
                if !docker::has_runtimes(&text) {
                    // A reload replaces the runtimes only if the file has some.
                    self.plan.afterwards.push(
                        "restart Docker to drop the runtime: systemctl restart docker".to_owned(),
                    );
                }
                let words = format!("remove the runtime agentbox from {DOCKER_CONFIG}");
                if docker::is_empty(&text) && self.record.has(RecordKind::MadeDaemonJson) {
                    let real = self.system.real(DOCKER_CONFIG);
                    self.plan.remove(words, real);
                } else {
                    self.write(words, DOCKER_CONFIG, before, text);
                }
                reload_docker(self.system, &mut self.plan, None);
                self.remove_backup(DOCKER_CONFIG)?;
            }
        }
        Ok(())
    }

    fn containerd(&mut self) -> Result<(), InstallError> {
        let mut removed = false;
        if self.record.has(RecordKind::Containerd)
            && let Some(before) = self.system.read(CONTAINERD_CONFIG)?
        {
            let refused = |why| InstallError::file(Path::new(CONTAINERD_CONFIG), why);
            let text = containerd::without(&before.text).map_err(refused)?;
            let old = self.system.text(&backup(CONTAINERD_CONFIG))?;
            let binary = self.paths(RecordKind::Binary).into_iter().next();
            let again = |old: &String| {
                let binary = PathBuf::from(binary.clone().unwrap_or_default());
                let now = containerd::register(old, &binary);
                containerd::without(old).as_ref() == Ok(old)
                    && now == Registration::Main(before.text.clone())
            };
            let text = old.filter(again).unwrap_or(text);
            if text != before.text {
                let words = format!("remove the handlers from {CONTAINERD_CONFIG}");
                self.write(words, CONTAINERD_CONFIG, before, text);
                removed = true;
            }
            self.remove_backup(CONTAINERD_CONFIG)?;
        }
        for path in self.paths(RecordKind::ContainerdDropIn) {
            let real = self.system.real(&path);
            files::check_way(&real)?;
            self.plan.remove(format!("remove {path}"), real);
            removed = true;
        }
        if removed {
            let words = "restart containerd to drop them: systemctl restart containerd";
            self.plan.afterwards.push(words.to_owned());
        }
        Ok(())
    }

    fn apparmor(&mut self) {
        if !self.record.has(RecordKind::AppArmor) || !self.system.has(APPARMOR) {
            return;
        }
        if self.system.is_live() {
            let command = SystemCommand::AppArmor("--remove", APPARMOR.into());
            self.plan
                .run("unload the AppArmor profile".to_owned(), command);
        }
        let real = self.system.real(APPARMOR);
        self.plan.remove(format!("remove {APPARMOR}"), real);
    }

    fn own_files(&mut self) -> Result<(), InstallError> {
        for kind in [RecordKind::Podman, RecordKind::Binary] {
            for path in self.paths(kind) {
                let real = self.system.real(&path);
                // Check this before any change.
                files::check_way(&real)?;
                self.plan.remove(format!("remove {path}"), real);
            }
        }
        Ok(())
    }

    fn config(&mut self) -> Result<(), InstallError> {
        if !self.record.has(RecordKind::Config) {
            return Ok(());
        }
        let (config, digest) = (self.system.text(CONFIG)?, self.system.text(CONFIG_DIGEST)?);
        match (config, digest) {
            (Some(config), Some(digest)) if own::digest(&config) == digest => {
                let real = self.system.real(CONFIG);
                self.plan.remove(format!("remove {CONFIG}"), real);
                let real = self.system.real("/etc/agentbox");
                let words = "remove /etc/agentbox if empty".to_owned();
                self.plan.remove_directory(words, real);
            }
            (Some(_), _) => self
                .plan
                .notes
                .push(format!("keep {CONFIG}: it was changed after the install")),
            (None, _) => {}
        }
        Ok(())
    }

    fn forget(&mut self) {
        for path in [CONFIG_DIGEST, RECORD] {
            let real = self.system.real(path);
            self.plan.remove(format!("remove {path}"), real);
        }
        let real = self.system.real("/var/lib/agentbox");
        let words = "remove /var/lib/agentbox if empty".to_owned();
        self.plan.remove_directory(words, real);
        let kept = [
            "/var/lib/agentbox/runs (logs)",
            "/var/lib/agentbox/receipt.key (the key of receipts)",
            "/etc/agentbox/policies",
            "/etc/agentbox/presets",
        ];
        let there = kept.iter().filter(|what| {
            let path = what.split(' ').next().unwrap_or_default();
            self.system.has(path)
        });
        let there: Vec<&str> = there.copied().collect();
        if !there.is_empty() {
            self.plan
                .afterwards
                .push(format!("left: {}", there.join(", ")));
        }
        self.plan.afterwards.push(
            "left in the homes of users: ~/.config/agentbox, ~/.local/state/agentbox".to_owned(),
        );
    }
}
