//! PURE. The record of installed files: one word and path on each line, in order of installation.

/// The kinds of entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordKind {
    /// A program or script.
    Binary,
    /// The program that is registered with Docker.
    Registered,
    /// daemon.json did not exist before.
    MadeDaemonJson,
    /// Handlers in containerd's main file.
    Containerd,
    /// A drop-in file of containerd's.
    ContainerdDropIn,
    /// podman's drop-in file.
    Podman,
    /// The AppArmor profile.
    AppArmor,
    /// The node file.
    Config,
}

impl RecordKind {
    const fn word(self) -> &'static str {
        match self {
            Self::Binary => "binary",
            Self::Registered => "registered",
            Self::MadeDaemonJson => "made-daemon-json",
            Self::Containerd => "containerd",
            Self::ContainerdDropIn => "containerd-drop-in",
            Self::Podman => "podman",
            Self::AppArmor => "apparmor",
            Self::Config => "config",
        }
    }
}

/// The record of an installation.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct InstallRecord(Vec<String>);

impl InstallRecord {
    /// Reads the lines.
    pub fn parse(text: &str) -> Self {
        Self(text.lines().map(str::to_owned).collect())
    }

    /// Adds an entry, once.
    pub fn add(&mut self, kind: RecordKind, path: &str) {
        let line = format!("{} {path}", kind.word());
        if !self.0.contains(&line) {
            self.0.push(line);
        }
    }

    /// The paths of a kind. A path that is not absolute is ignored.
    pub fn of(&self, kind: RecordKind) -> Vec<&str> {
        let entries = self.0.iter().filter_map(|line| line.split_once(' '));
        let paths = entries.filter(|(word, path)| *word == kind.word() && path.starts_with('/'));
        paths.map(|(_, path)| path).collect()
    }

    /// Whether there is an entry of a kind.
    pub fn has(&self, kind: RecordKind) -> bool {
        !self.of(kind).is_empty()
    }

    /// The lines.
    pub fn text(&self) -> String {
        self.0.iter().map(|line| format!("{line}\n")).collect()
    }
}
