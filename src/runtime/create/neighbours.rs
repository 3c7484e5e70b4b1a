//! Namespaces that a spec names by path: the containers in them, and the check that the new container joined exactly
//! the ones that were checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use oci_spec::runtime::{LinuxNamespace, Spec};

use super::error::CreateError;
use crate::plan::NamespaceType;
use crate::plan::{Neighbour, NeighbourNetwork, NetworkState, SharedNetwork};
use crate::policy::{SetIdRule, Switch};
use crate::runtime::error::RuntimeError;
use crate::runtime::state::census::{Census, Namespace};
use crate::runtime::state::record::{ProcessId, Record};

/// A namespace that the container joins. While the file is open, its inode means this namespace, even after the process
/// in the path has ended.
pub struct JoinedNamespace {
    path: PathBuf,
    /// The file's name in /proc/PID/ns.
    name: String,
    file: File,
}

/// Path of a namespace -> this runtime's containers that are in it.
pub type Neighbours = BTreeMap<PathBuf, Vec<Neighbour>>;

/// Opens every namespace that the spec names by path, and finds this runtime's containers in each.
pub fn find(spec: &Spec) -> Result<(Vec<JoinedNamespace>, Neighbours), RuntimeError> {
    let linux = spec.linux().as_ref();
    let given = linux.and_then(|l| l.namespaces().as_ref());
    let opened = given.into_iter().flatten().filter_map(open);
    let joined = opened.collect::<Result<Vec<_>, _>>()?;
    if joined.is_empty() {
        return Ok(Default::default());
    }
    let mut census = Census::of_node();
    let mut neighbours = Neighbours::new();
    for ns in &joined {
        // Sharing namespaces of other kinds does not matter.
        let inside = match ns.namespace()? {
            Some(namespace) => census.candidates(&namespace)?,
            None => Vec::new(),
        };
        let inside = inside.into_iter().filter(|r| is_in(r, ns)).map(neighbour);
        neighbours.insert(ns.path.clone(), inside.collect());
    }
    Ok((joined, neighbours))
}

/// The namespaces by which other verbs find a container: its init process's, the joined ones, and the network namespace
/// that it enters at `start`.
pub fn inside(
    init: ProcessId,
    joined: &[JoinedNamespace],
    inner: Option<Namespace>,
) -> Result<BTreeSet<Namespace>, RuntimeError> {
    let mut all = Namespace::of_process(init.pid)?;
    for ns in joined {
        all.extend(ns.namespace()?);
    }
    all.extend(inner);
    Ok(all)
}

impl JoinedNamespace {
    fn namespace(&self) -> Result<Option<Namespace>, RuntimeError> {
        let step = || format!("look at the {} namespace {:?}", self.name, self.path);
        let file = self.file.metadata().map_err(RuntimeError::io(step()))?;
        Ok(Namespace::of(&self.name, &file))
    }
}

/// Checks that a container's init process is in the right namespaces. A shared network is not checked here: the process
/// itself refuses to execute anything in another one, by its cookie.
pub fn verify(
    joined: &[JoinedNamespace],
    init: ProcessId,
    shared: Option<&SharedNetwork>,
) -> Result<(), RuntimeError> {
    for ns in joined
        .iter()
        .filter(|ns| !(shared.is_some() && ns.name == "net"))
    {
        let step = || format!("look at the {} namespace of process {}", ns.name, init.pid);
        let there = fs::metadata(link(init.pid, &ns.name)).map_err(RuntimeError::io(step()))?;
        let judged = ns.file.metadata().map_err(RuntimeError::io(step()))?;
        if key(&there) != key(&judged) {
            let (path, kind) = (ns.path.clone(), ns.name.clone());
            return Err(CreateError::NamespaceChanged { kind, path }.into());
        }
    }
    Ok(())
}

fn open(ns: &LinuxNamespace) -> Option<Result<JoinedNamespace, RuntimeError>> {
    let path = ns.path().clone()?;
    let name = ns.typ().to_string();
    // Non-blocking: the path may be a FIFO.
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let file = options.open(&path);
    let failed = RuntimeError::io(format!("open the {name} namespace {path:?}"));
    Some(
        file.map_err(failed)
            .map(|file| JoinedNamespace { path, name, file }),
    )
}

fn link(pid: i32, name: &str) -> PathBuf {
    Path::new("/proc")
        .join(pid.to_string())
        .join("ns")
        .join(name)
}

/// What identifies a namespace: two files with the same key are the same namespace.
fn key(file: &fs::Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

fn is_in(record: &Record, ns: &JoinedNamespace) -> bool {
    let Some((init, judged)) = record.init.zip(ns.file.metadata().ok()) else {
        return false;
    };
    let by_process = fs::metadata(link(init.pid, &ns.name)).is_ok_and(|m| key(&m) == key(&judged));
    // Under a policy a container leaves the engine's network at `start`; the plan still names it.
    let plan = record.plan().into_iter().flat_map(|p| &p.namespaces);
    let by_plan = ns.name == "net"
        && plan
            .filter(|n| n.isolates == NamespaceType::Network)
            .filter_map(|n| n.path.as_deref())
            .filter(|path| !path.starts_with("/proc"))
            .any(|path| fs::metadata(path).is_ok_and(|m| key(&m) == key(&judged)));
    // Checked last: a pid that was used again in between has another start time.
    (by_process || by_plan) && init.is_alive()
}

fn neighbour(record: &Record) -> Neighbour {
    let plan = record.plan();
    Neighbour {
        id: record.id.clone(),
        policy: record.decided.as_ref().map(|decided| decided.policy()),
        namespaces: plan.map(|p| p.namespaces.clone()).unwrap_or_default(),
        network: plan.map(|p| NeighbourNetwork {
            plan: p.network.clone(),
            state: network_state(record),
        }),
        sets_ids: record.decided.as_ref().is_some_and(|decided| {
            let rule = decided.resolved.privileges.set_id;
            (rule, decided.plan.syscalls.set_id) == (SetIdRule::Auto, Switch::On)
        }),
    }
}

/// Whether another container can share its network: only when its init process has left the engine's network, and the
/// sidecar made for it is alive.
fn network_state(record: &Record) -> NetworkState {
    let (true, Some(init)) = (record.started, record.init) else {
        return NetworkState::NotStarted;
    };
    let (Some(sidecar), Some(cookie)) = (&record.sidecar, record.netns_cookie) else {
        return NetworkState::Dead;
    };
    match ProcessId::from(sidecar).is_alive() {
        false => NetworkState::Dead,
        true => NetworkState::Standing(SharedNetwork {
            container: record.id.clone(),
            path: link(init.pid, "net"),
            cookie,
            sidecar_pid: sidecar.pid,
            sidecar_start: sidecar.start_time,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn spec(typ: &str, path: &str) -> Spec {
        let linux = json!({"namespaces": [{"type": typ, "path": path}, {"type": "uts"}]});
        serde_json::from_value(json!({"ociVersion": "1.0.2", "linux": linux})).unwrap()
    }

    #[test]
    fn a_process_in_another_namespace_is_noticed() {
        let own = ProcessId::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        let (joined, neighbours) = find(&spec("pid", "/proc/self/ns/pid")).unwrap();
        assert_eq!(joined.len(), 1);
        assert!(neighbours[Path::new("/proc/self/ns/pid")].is_empty());
        assert!(verify(&joined, own, None).is_ok());
        // The same file under another type stands for another namespace.
        let (joined, _) = find(&spec("ipc", "/proc/self/ns/pid")).unwrap();
        assert!(verify(&joined, own, None).is_err());
        let missing = find(&spec("pid", "/proc/self/ns/nothing"));
        let message = missing.err().unwrap().to_string();
        assert!(message.contains("open the pid namespace"), "{message}");
    }
}
