//! The record of a container: written before anything in it is made, removed after the container is gone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Hooks;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cgroup::controllers::Controllers;
use crate::enforce::hooks::HookState;
use crate::engines::layout::EngineFiles;
use crate::plan::{CapabilitySets, Plan, SharedNetwork};
use crate::policy::WrapOptions;
use crate::runtime::RuntimeError;
use crate::runtime::files::{read_text, write_whole};
use crate::runtime::state::decision::SavedDecision;
use crate::runtime::state::store;
use crate::sidecar::SidecarRecord;
use crate::sidecar::timekeeper::TimekeeperRecord;

pub use crate::sys::process_id::ProcessId;

/// The record's name in a directory.
pub const FILE: &str = "record.json";

/// Increased with each change that an older program would misread. No release wrote a format before this one.
pub const FORMAT: u32 = 6;

/// The saved state of a container.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Record {
    /// Format of this record.
    pub format: u32,
    /// Its id.
    pub id: String,
    /// The engine's `--root`.
    pub root: PathBuf,
    /// The bundle as the engine named it.
    pub bundle: PathBuf,
    /// The root file system of the bundle.
    pub rootfs: PathBuf,
    /// Working directory of the init process.
    pub cwd: PathBuf,
    /// Version of the specification that the bundle was written for.
    pub oci_version: String,
    /// The bundle's annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its hooks, once one of them may have run; empty before.
    #[serde(default)]
    pub hooks: Hooks,
    /// Whether systemd manages its cgroup.
    pub systemd_cgroup: bool,
    /// Its processes keep the session keyring that they inherit.
    pub no_new_keyring: bool,
    /// What is enforced, and by which policy; `None` under `unconfined`, and never left out.
    #[serde(deserialize_with = "Option::deserialize")]
    pub decided: Option<SavedDecision>,
    /// How `unconfined` was chosen, or the policy.
    pub chosen_by: String,
    /// The sources of the policy besides the annotations.
    pub call: CreateCall,
    /// Capabilities of the init process, for `exec`: the shadow spec has those of the set-up as well.
    pub capabilities: CapabilitySets,
    /// The init process, once it exists.
    pub init: Option<ProcessId>,
    /// Cgroups of the container and its sidecar, below each hierarchy's root; saved before they are made.
    pub cgroups: Vec<PathBuf>,
    /// The directories of its cgroup, once the init process exists.
    pub controllers: Option<Controllers>,
    /// The sidecar, once it exists.
    pub sidecar: Option<SidecarRecord>,
    /// The processes that keep its time, if it has a time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timekeeper: Option<TimekeeperRecord>,
    /// Whether a seccomp filter is saved with it, the engine's or the merged one.
    pub filtered: bool,
    /// SHA-256 of that filter's file.
    pub filter_hash: Option<String>,
    /// Cookie of the inner network namespace.
    pub netns_cookie: Option<u64>,
    /// The engine's files with which the sidecar resolves names.
    pub engine_files: EngineFiles,
    /// Whether `start` has been called: the engine's network is then final.
    pub started: bool,
}

/// The policy options of the call that created a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateCall {
    /// `--policy`.
    pub policy: Option<String>,
    /// `--config`.
    pub config: PathBuf,
    /// The options of the user who ran `wrap`.
    #[serde(default, skip_serializing_if = "WrapOptions::is_empty")]
    pub asked: WrapOptions,
    /// The caller was `wrap`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wrap: bool,
}

impl Record {
    /// What is enforced; `None` under `unconfined`.
    pub fn plan(&self) -> Option<&Plan> {
        self.decided.as_ref().map(|decided| &decided.plan)
    }

    /// The plan, for changes that are saved afterwards.
    pub fn plan_mut(&mut self) -> Option<&mut Plan> {
        self.decided.as_mut().map(|decided| &mut decided.plan)
    }

    /// The network of another container that it has joined.
    pub fn shared_network(&self) -> Option<&SharedNetwork> {
        self.plan()?.network.shared.as_ref()
    }

    /// Reads a container's record.
    pub fn read(dir: &Path) -> Result<Self, RuntimeError> {
        let path = dir.join(FILE);
        let text = read_text(&path)?;
        let input = |e: serde_json::Error| RuntimeError::Input {
            path: path.clone(),
            why: format!("it is damaged: {e}; remove the container with `agentbox delete --force`"),
        };
        let whole = serde_json::from_slice::<Self>(&text);
        // One of another format may have any shape, also this one's.
        let format = match &whole {
            Ok(record) => record.format,
            Err(_) => {
                let Format { format } = serde_json::from_slice(&text).map_err(input)?;
                format
            }
        };
        if format > FORMAT {
            return Err(RuntimeError::Newer {
                path,
                format,
                known: FORMAT,
            });
        }
        if format < FORMAT {
            return Err(RuntimeError::Input {
                path,
                why: format!(
                    "its format is {format}, of an older agentbox, and this one reads {FORMAT}: remove the container with `agentbox delete \
                     --force`"
                ),
            });
        }
        let record = whole.map_err(input)?;
        if record.hooks != Hooks::default() && store::is_of_ordinary_user() {
            return Err(RuntimeError::Input {
                path,
                why: "it names hooks, and no sandbox of `wrap` has any: agentbox did not write it"
                    .to_owned(),
            });
        }
        Ok(record)
    }

    /// The state that its hooks get.
    pub fn hook_state(&self) -> HookState {
        HookState {
            oci_version: self.oci_version.clone(),
            id: self.id.clone(),
            bundle: self.bundle.clone(),
            annotations: self.annotations.clone(),
        }
    }

    /// The directories of the container's cgroup.
    pub fn controllers(&self) -> Result<Controllers, RuntimeError> {
        match (&self.controllers, self.init) {
            (Some(saved), _) => Ok(saved.clone()),
            (None, Some(init)) => Ok(Controllers::of(init.pid)?),
            (None, None) => Err(RuntimeError::NotRunning),
        }
    }

    /// Whether its processes are in no cgroup of its own: a sandbox of `wrap` without root's rights, to which the user's
    /// systemd gave none.
    pub fn lacks_cgroup(&self) -> bool {
        let none = |all: &Controllers| all.all().is_empty();
        store::is_of_ordinary_user() && self.controllers.as_ref().is_some_and(none)
    }

    /// The directories of its cgroup, for a verb that does nothing without one.
    pub fn own_cgroup(&self, verb: &'static str) -> Result<Controllers, RuntimeError> {
        match self.lacks_cgroup() {
            false => self.controllers(),
            true => Err(RuntimeError::State {
                verb,
                id: self.id.clone(),
                why: "it has no cgroup of its own: without root's rights only the user's systemd gives one, on cgroup v2; start it \
                      with sudo"
                    .to_owned(),
            }),
        }
    }

    /// Writes it completely or not at all.
    pub fn save(&self, dir: &Path) -> Result<(), RuntimeError> {
        let text = serde_json::to_vec(self).map_err(|e| RuntimeError::Input {
            path: dir.join(FILE),
            why: e.to_string(),
        })?;
        write_whole(&dir.join(FILE), &text)
    }
}

/// The only field that every format has.
#[derive(Deserialize)]
struct Format {
    #[serde(default)]
    format: u32,
}

/// What must be ended and removed with a container, from a record of any format, so that `delete` works for any
/// version. Missing fields, or fields of another kind, count as empty.
#[derive(Debug, Default)]
pub struct Remains {
    /// The init process.
    pub init: Option<ProcessId>,
    /// The sidecar.
    pub sidecar: Option<SidecarRecord>,
    /// The processes that keep its time.
    pub timekeeper: Option<TimekeeperRecord>,
    /// Cgroups of all of them.
    pub cgroups: Vec<PathBuf>,
}

impl Remains {
    /// Reads what a record names, if it is JSON.
    pub fn read(dir: &Path) -> Option<Self> {
        /// Of any kind. The other fields, most of the text, are passed over.
        #[derive(Deserialize)]
        struct Fields {
            #[serde(default)]
            init: Value,
            #[serde(default)]
            sidecar: Value,
            #[serde(default)]
            timekeeper: Value,
            #[serde(default)]
            cgroups: Value,
        }
        let text = read_text(&dir.join(FILE)).ok()?;
        let fields: Fields = serde_json::from_slice(&text).ok()?;
        Some(Self {
            init: serde_json::from_value(fields.init).ok().flatten(),
            sidecar: serde_json::from_value(fields.sidecar).ok().flatten(),
            timekeeper: serde_json::from_value(fields.timekeeper).ok().flatten(),
            cgroups: serde_json::from_value(fields.cgroups).unwrap_or_default(),
        })
    }
}

impl From<&Record> for Remains {
    fn from(record: &Record) -> Self {
        Self {
            init: record.init,
            sidecar: record.sidecar.clone(),
            timekeeper: record.timekeeper,
            cgroups: record.cgroups.clone(),
        }
    }
}

/// The engine's `--root` of a container, from a record of any format.
pub fn root(dir: &Path) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Root {
        root: PathBuf,
    }
    let text = read_text(&dir.join(FILE)).ok()?;
    serde_json::from_slice::<Root>(&text).ok().map(|r| r.root)
}

#[cfg(test)]
impl Record {
    /// A container with this plan, for tests.
    pub fn with_plan(id: &str, plan: Plan) -> Self {
        let decided = crate::plan::DecidedPlan {
            plan,
            resolved: crate::plan::tests::sample_policy(),
            origins: Default::default(),
        };
        Self {
            decided: Some(decided.into()),
            ..Self::bare(id)
        }
    }

    /// A container without a policy, for tests.
    pub fn bare(id: &str) -> Self {
        Self {
            format: FORMAT,
            id: id.to_owned(),
            root: "/r".into(),
            bundle: "/b".into(),
            rootfs: "/b/rootfs".into(),
            cwd: "/".into(),
            oci_version: "1.0.2".to_owned(),
            annotations: BTreeMap::new(),
            hooks: Hooks::default(),
            systemd_cgroup: false,
            no_new_keyring: false,
            decided: None,
            chosen_by: "a test".to_owned(),
            call: CreateCall {
                policy: None,
                config: "/etc/agentbox/config.toml".into(),
                asked: WrapOptions::default(),
                wrap: false,
            },
            capabilities: CapabilitySets::default(),
            init: None,
            cgroups: Vec::new(),
            controllers: None,
            sidecar: None,
            timekeeper: None,
            filtered: false,
            filter_hash: None,
            netns_cookie: None,
            engine_files: EngineFiles::default(),
            started: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A record of a future version, with an unknown field and an unknown shape.
    const NEWER: &str = r#"{
        "format": 77, "id": {"new": "shape"}, "init": {"pid": 5, "startTime": 7}, "sidecar": {"other": 1},
        "cgroups": ["/a/b"], "unheardOf": []
    }"#;

    fn directory(content: &str) -> PathBuf {
        let name = format!("agentbox-record-{}-{}", std::process::id(), content.len());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(FILE), content).unwrap();
        dir
    }

    #[test]
    fn a_record_of_a_later_version_is_refused_by_its_format_and_still_deleted() {
        let dir = directory(NEWER);
        let message = Record::read(&dir).unwrap_err().to_string();
        assert!(
            message.contains("newer") && message.contains("77") && message.contains("--force"),
            "{message}"
        );
        let remains = Remains::read(&dir).unwrap();
        let init = ProcessId {
            pid: 5,
            start_time: 7,
        };
        assert_eq!(remains.init, Some(init));
        assert_eq!(remains.cgroups, [PathBuf::from("/a/b")]);
        assert!(remains.sidecar.is_none());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_record_that_is_no_json_names_nothing() {
        for content in ["", "{", "[]", "{\"format\":\"x\"}"] {
            let dir = directory(content);
            assert!(Record::read(&dir).is_err());
            let remains = Remains::read(&dir).unwrap_or_default();
            assert!(remains.init.is_none() && remains.cgroups.is_empty());
            fs::remove_dir_all(dir).unwrap();
        }
    }
}
