//! SHELL. The steps of an installation. It reads, and changes nothing.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::containerd::Registration;
use super::docker::EntryState;
use super::error::InstallError;
use super::files::TextFile;
use super::record::{InstallRecord, RecordKind};
use super::step::{DockerReload, InstallPlan, Judge, NewText, SystemCommand};
use super::{
    APPARMOR, CONFIG, CONFIG_DIGEST, PODMAN, RECORD, TargetSystem, backup, containerd, docker, own,
    podman, twin,
};
use crate::engines::daemon::{
    CONTAINERD_CONFIG, DOCKER_CONFIG, DOCKER_CONFIGS, DOCKER_PID, DOCKER_SOCKET, PODMAN_CONFIGS,
};
use crate::sys::program;

/// The default prefix, unless the program is already installed elsewhere.
const USUAL_PREFIX: &str = "/usr/local";
/// Where packages install it.
const PACKAGES: [&str; 3] = ["/usr/bin", "/usr/local/bin", "/usr/sbin"];
/// The sysctl by which Ubuntu's kernels restrict user namespaces.
const RESTRICTED: &str = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";

/// The steps that install this program on a system.
///
/// # Errors
/// A file cannot be changed: then nothing may be changed.
pub fn plan(system: &TargetSystem, prefix: Option<&Path>) -> Result<InstallPlan, InstallError> {
    let binary = place(prefix)?;
    let record = system.text(RECORD)?.unwrap_or_default();
    let mut installation = Installation {
        system,
        binary,
        record: InstallRecord::parse(&record),
        plan: InstallPlan::default(),
    };
    installation.programs()?;
    installation.docker()?;
    installation.containerd()?;
    installation.podman()?;
    installation.apparmor()?;
    installation.config()?;
    installation.finish()
}

/// The path of the program: where a package has put it, or below the prefix.
fn place(prefix: Option<&Path>) -> Result<PathBuf, InstallError> {
    let prefix = match prefix {
        Some(prefix) if !prefix.is_absolute() => {
            return Err(InstallError::Relative("--prefix", prefix.to_owned()));
        }
        Some(prefix) => prefix,
        None => {
            let own = std::env::current_exe().map_err(InstallError::io("find this program"))?;
            let installed = PACKAGES
                .iter()
                .any(|dir| own == Path::new(dir).join("agentbox"));
            if installed && program::only_roots(&own).is_some() {
                return Ok(own);
            }
            Path::new(USUAL_PREFIX)
        }
    };
    let binary = prefix.join("bin/agentbox");
    match own::is_plain(&binary) {
        true => Ok(binary),
        false => Err(InstallError::file(
            prefix,
            "has characters that files of engines cannot hold: use letters, digits and `/ . - _ +`",
        )),
    }
}

struct Installation<'a> {
    system: &'a TargetSystem,
    binary: PathBuf,
    record: InstallRecord,
    plan: InstallPlan,
}

impl Installation<'_> {
    fn binary_text(&self) -> String {
        self.binary.display().to_string()
    }

    fn write(&mut self, words: String, path: &str, before: Option<TextFile>, text: String) {
        self.write_judged(words, path, before, (text, Judge::None));
    }

    fn write_judged(
        &mut self,
        words: String,
        path: &str,
        before: Option<TextFile>,
        (text, judged_by): (String, Judge),
    ) {
        let change = NewText {
            system: self.system,
            path,
            before,
            text,
            mode: 0o644,
            judged_by,
        };
        self.plan.write(words, change);
    }

    /// Keeps the old text in a file beside it. An existing backup is from before the first installation.
    fn back_up(&mut self, path: &str, before: &TextFile) -> Result<(), InstallError> {
        let beside = backup(path);
        if self.system.read(&beside)?.is_none() {
            let change = NewText {
                system: self.system,
                path: &beside,
                before: None,
                text: before.text.clone(),
                mode: before.mode,
                judged_by: Judge::None,
            };
            self.plan.write(format!("keep {path} as {beside}"), change);
        }
        Ok(())
    }

    fn programs(&mut self) -> Result<(), InstallError> {
        let binary = self.binary_text();
        let real = self.system.real(&binary);
        let own = || fs::read("/proc/self/exe").ok();
        match fs::symlink_metadata(&real) {
            Ok(found) if !found.is_file() => {
                return Err(InstallError::file(&real, "is not a file: move it away"));
            }
            Ok(found) if is_roots_program(&found) && fs::read(&real).ok() == own() => {
                self.plan
                    .notes
                    .push(format!("{binary} is this version already"));
            }
            Ok(_) | Err(_) => {
                self.record.add(RecordKind::Binary, &binary);
                self.plan
                    .program(format!("copy the binary to {binary}"), real);
            }
        }
        let (path, text) = (format!("{binary}-strict"), own::strict(&self.binary));
        let before = self.system.read(&path)?;
        if before.as_ref().is_none_or(|file| file.text != text) {
            self.record.add(RecordKind::Binary, &path);
            let change = NewText {
                system: self.system,
                path: &path,
                before,
                text,
                mode: 0o755,
                judged_by: Judge::None,
            };
            let words = format!("write the strict script to {path}");
            self.plan.write(words, change);
        }
        Ok(())
    }

    fn docker(&mut self) -> Result<(), InstallError> {
        let here = self.system.has(DOCKER_CONFIGS)
            || (self.system.is_live()
                && (Path::new(DOCKER_SOCKET).exists() || program::find("dockerd").is_ok()));
        if !here {
            self.note("Docker: not installed; run `agentbox install` again afterwards");
            return Ok(());
        }
        let before = self.system.read(DOCKER_CONFIG)?;
        let text = before.as_ref().map_or("", |file| file.text.as_str());
        let binary = self.binary_text();
        let refused = |why| InstallError::file(Path::new(DOCKER_CONFIG), why);
        let is_foreign = match docker::entry_state(text).map_err(refused)? {
            EntryState::Absent => false,
            EntryState::Foreign => true,
            EntryState::Plain(path) => {
                path != binary
                    && !self
                        .record
                        .of(RecordKind::Registered)
                        .contains(&path.as_str())
            }
        };
        if is_foreign {
            let words =
                format!("keep the runtime agentbox in {DOCKER_CONFIG}: another program wrote it");
            self.plan.notes.push(words);
            return Ok(());
        }
        let Some(text) = docker::register(text, &binary).map_err(refused)? else {
            let words = format!("the runtime agentbox is registered in {DOCKER_CONFIG} already");
            self.plan.notes.push(words);
            return Ok(());
        };
        match &before {
            Some(file) => self.back_up(DOCKER_CONFIG, file)?,
            None => self.record.add(RecordKind::MadeDaemonJson, DOCKER_CONFIG),
        }
        self.record.add(RecordKind::Registered, &binary);
        let words = format!("register the runtime agentbox in {DOCKER_CONFIG}");
        self.write(words, DOCKER_CONFIG, before, text);
        reload_docker(self.system, &mut self.plan, Some(&self.binary));
        Ok(())
    }

    fn note(&mut self, why: &str) {
        self.plan.notes.push(format!("not registered with {why}"));
    }

    fn containerd(&mut self) -> Result<(), InstallError> {
        let Some(before) = self.system.read(CONTAINERD_CONFIG)? else {
            self.note(&format!(
                "containerd: there is no {CONTAINERD_CONFIG}; Kubernetes needs it: \
                 mkdir -p /etc/containerd && containerd config default >{CONTAINERD_CONFIG}; then install again"
            ));
            return Ok(());
        };
        let (path, kind, before, text) = match containerd::register(&before.text, &self.binary) {
            Registration::None(why) => {
                self.note(&format!("containerd: {CONTAINERD_CONFIG}: {why}"));
                return Ok(());
            }
            Registration::Main(text) => (
                CONTAINERD_CONFIG.to_owned(),
                RecordKind::Containerd,
                Some(before),
                text,
            ),
            Registration::DropIn { path, text } => {
                let path = path.display().to_string();
                let before = self.system.read(&path)?;
                (path, RecordKind::ContainerdDropIn, before, text)
            }
        };
        if before.as_ref().is_some_and(|file| file.text == text) {
            let words = format!("the handlers are registered in {path} already");
            self.plan.notes.push(words);
            return Ok(());
        }
        match &before {
            Some(file) if kind == RecordKind::Containerd => {
                self.back_up(CONTAINERD_CONFIG, file)?
            }
            Some(_) if !self.record.has(kind) => {
                self.note(&format!("containerd: another program wrote {path}"));
                return Ok(());
            }
            _ => {}
        }
        self.record.add(kind, &path);
        let words = format!("register the handlers agentbox and agentbox-strict in {path}");
        let judged_by = match self.system.is_live() {
            true => Judge::Containerd,
            false => Judge::None,
        };
        self.write_judged(words, &path, before, (text, judged_by));
        self.plan.afterwards.push(
            "restart containerd to load them: systemctl restart containerd (containers keep running)".to_owned(),
        );
        Ok(())
    }

    /// A file that is only agentbox's: written if it is missing or agentbox's already.
    fn own_file(
        &mut self,
        kind: RecordKind,
        path: &str,
        text: String,
    ) -> Result<bool, InstallError> {
        let before = self.system.read(path)?;
        if before.as_ref().is_some_and(|file| file.text == text) {
            self.plan.notes.push(format!("{path} exists already"));
            return Ok(false);
        }
        if before.is_some() && !self.record.has(kind) {
            self.plan
                .notes
                .push(format!("keep {path}: another program wrote it"));
            return Ok(false);
        }
        self.record.add(kind, path);
        let words = match kind {
            RecordKind::Podman => format!("register the runtime agentbox in {path}"),
            _ => format!("put the AppArmor profile for `wrap` without root at {path}"),
        };
        self.write(words, path, before, text);
        Ok(true)
    }

    fn podman(&mut self) -> Result<(), InstallError> {
        if !self.system.has(PODMAN_CONFIGS) {
            self.note("podman: there is no /etc/containers");
            return Ok(());
        }
        let text = podman::text(&self.binary);
        self.own_file(RecordKind::Podman, PODMAN, text).map(drop)
    }

    fn apparmor(&mut self) -> Result<(), InstallError> {
        if !Path::new(RESTRICTED).exists() || !self.system.has("/etc/apparmor.d") {
            return Ok(());
        }
        let text = own::apparmor(&self.binary);
        if self.own_file(RecordKind::AppArmor, APPARMOR, text)? && self.system.is_live() {
            let command = SystemCommand::AppArmor("--replace", APPARMOR.into());
            self.plan
                .run("load the AppArmor profile".to_owned(), command);
        }
        Ok(())
    }

    fn config(&mut self) -> Result<(), InstallError> {
        if self.system.read(CONFIG)?.is_some() {
            self.plan.notes.push(format!("keep {CONFIG}"));
            return Ok(());
        }
        self.record.add(RecordKind::Config, CONFIG);
        let words = format!("write {CONFIG}, with comments only");
        self.write(words, CONFIG, None, own::CONFIG.to_owned());
        let digest = self.system.read(CONFIG_DIGEST)?;
        let words = "list the changes for `uninstall`".to_owned();
        self.write(words, CONFIG_DIGEST, digest, own::digest(own::CONFIG));
        Ok(())
    }

    /// Puts the record first, so that a removal also removes the files of an interrupted installation.
    fn finish(mut self) -> Result<InstallPlan, InstallError> {
        let before = self.system.read(RECORD)?;
        let text = self.record.text();
        // Also an empty one: the removal checks for running sandboxes if there is a record.
        if before.is_none_or(|file| file.text != text) {
            let words = format!("list the changes in {RECORD} for `uninstall`");
            let before = self.system.read(RECORD)?;
            self.write(words, RECORD, before, text);
            self.plan.steps.rotate_right(1);
        }
        let installed = self.record.of(RecordKind::Binary).into_iter();
        let usual = PACKAGES.map(|dir| Path::new(dir).join("agentbox"));
        let others = installed.map(PathBuf::from).chain(usual);
        let on_node = |path: &Path| self.system.real_path(path);
        let remarks = twin::remarks(on_node, &self.binary, others);
        self.plan.notes.extend(remarks);
        let binary = self.binary_text();
        self.plan.afterwards.extend([
            format!("check this machine: {binary} doctor"),
            format!("rules for its package indexes (@python, @node ...): {binary} policy presets --detect --write"),
            "try: docker run --rm --runtime=agentbox --annotation dev.agentbox.policy=strict IMAGE COMMAND".to_owned(),
        ]);
        Ok(self.plan)
    }
}

/// Whether all users can run a program but only root can change it, or the caller below `--destdir`. Its directories
/// are checked when it is written.
fn is_roots_program(found: &fs::Metadata) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let mode = found.mode();
    (found.uid() == 0 || found.uid() == own) && mode & 0o022 == 0 && mode & 0o555 == 0o555
}

/// Docker reads new runtimes without a restart. The step waits until it lists `runtime`.
pub(super) fn reload_docker(system: &TargetSystem, plan: &mut InstallPlan, runtime: Option<&Path>) {
    if !system.is_live() {
        return;
    }
    let words = "reload Docker".to_owned();
    let has_socket = Path::new(DOCKER_SOCKET).exists();
    let reload = match Path::new("/run/systemd/system").is_dir() && has_socket {
        true => Some(DockerReload::Systemctl),
        false => running_docker().map(DockerReload::Signal),
    };
    // A daemon with another socket cannot be asked.
    let runtime = runtime.filter(|_| has_socket).map(Path::to_owned);
    match reload {
        Some(reload) => plan.run(words, SystemCommand::Docker { reload, runtime }),
        None => plan.afterwards.push(format!(
            "Docker is not running: it reads {DOCKER_CONFIG} when it starts"
        )),
    }
}

/// The daemon's pid from its pid file, if that process is dockerd.
fn running_docker() -> Option<rustix::process::Pid> {
    let text = fs::read_to_string(DOCKER_PID).ok()?;
    let pid = rustix::process::Pid::from_raw(text.trim().parse().ok()?)?;
    let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).ok()?;
    (name.trim() == "dockerd").then_some(pid)
}
