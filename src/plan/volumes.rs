//! PURE. A pod's own volumes, in a kubelet's layout: `pods/UID/volumes/PLUGIN/NAME`, and for a subPath
//! `pods/UID/volume-subpaths/NAME/CONTAINER/NUMBER`, a bind mount of a part of that volume.
//!
//! A path proves no owner: a hostPath may name another pod's volume. The container's cgroup from the kubelet shows the
//! pod. Docker's caller chooses cgroup and annotations, so these count only in a CRI engine's calls.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use oci_spec::runtime::{Mount, Spec};

use super::facts::{BundleFacts, SourceFacts, TokenContent};
use super::file::FileKind;
use super::judge::{by_link, by_nature, refusal};
use super::mount::BindAccess;
use super::never::{NeverList, VisibleCredentials};
use super::pod::{Pod, pod};
use super::sorted_mounts::{MountRules, MountTarget, SortedMounts};
use super::warning::Warning;
use crate::engines::kubelet::{
    self, CONFIG, DOWNWARD, PROJECTED, PodPath, SCRATCHES, SECRET, is_image_volume, pod_path,
};
use crate::engines::layout::{is_podmans_secrets, is_snapshot};
use crate::policy::{Filesystem, MountRule, Policy, SecretRule};

/// Why an emptyDir is there.
const SCRATCH: &str = "the pod's own scratch (emptyDir)";

/// Why a Secret is there.
const SECRETS: &str = "the policy gives the pod's Secrets or its token";

/// The kinds of volumes that are a pod's own.
const OWN: [&str; 5] = [SECRET, PROJECTED, SCRATCHES, CONFIG, DOWNWARD];

/// The type of one of the pod's own volumes. Storage volumes (CSI, NFS, local disks) are ordinary mounts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Volume {
    /// An emptyDir: made for the pod, removed with it.
    Scratch,
    /// A ConfigMap, or the downward API's data about the pod.
    Settings,
    /// An image.
    Image,
    /// A Secret.
    Secret,
    /// Several of these and tokens in one. The node cannot tell its ConfigMap files from its Secret files.
    Projected,
}

/// Where a kubelet mounts the Secrets of the container's pod, each by the volume's name. Only one of several
/// directories exists; none if the container is in no pod.
pub fn secret_volumes(spec: &Spec, bundle: &BundleFacts) -> Vec<PathBuf> {
    let of_pod = |pod: Pod| kubelet::volumes(&pod.uid, SECRET).collect();
    pod(spec, bundle).map(of_pod).unwrap_or_default()
}

/// The pod's own volume that a mount's source is, whole or as a subPath. All its names must agree: a source with any
/// other name is no such volume.
pub(super) fn volume(pod: Option<&Pod>, facts: &SourceFacts) -> Option<Volume> {
    let pod = pod?;
    if facts.nameless.is_some() || facts.same_as.is_some() {
        return None;
    }
    if pod.sandbox.as_ref().is_some_and(|id| is_image(id, facts)) {
        return Some(Volume::Image);
    }
    let names = facts.kubelets_names();
    let places: Vec<PodPath<'_>> = names
        .map(|n| pod_path(&pod.uid, n))
        .collect::<Option<_>>()?;
    let volumes = places.iter().filter_map(|place| match place {
        PodPath::In { plugin, name } => Some((*plugin, *name)),
        PodPath::SubPath(_) | PodPath::Message => None,
    });
    let volumes: BTreeSet<(&str, &str)> = volumes.collect();
    let mut volumes = volumes.into_iter();
    let (Some((plugin, name)), None) = (volumes.next(), volumes.next()) else {
        return None;
    };
    let strange = |place: &PodPath<'_>| match place {
        PodPath::In { .. } => false,
        PodPath::SubPath(of) => *of != name,
        PodPath::Message => true,
    };
    if places.iter().any(strange) {
        return None;
    }
    match plugin {
        SCRATCHES => Some(Volume::Scratch),
        CONFIG | DOWNWARD => Some(Volume::Settings),
        // A kubelet keeps them in memory.
        SECRET if facts.tmpfs => Some(Volume::Secret),
        PROJECTED if facts.tmpfs => Some(Volume::Projected),
        _ => None,
    }
}

/// Whether a source is an image that containerd mounted for this sandbox: by its path, and by its layers, which are
/// containerd's snapshots.
fn is_image(sandbox: &str, facts: &SourceFacts) -> bool {
    is_image_volume(sandbox, &facts.path)
        && !facts.names.is_empty()
        && facts.names.iter().all(|name| is_snapshot(name))
}

/// Whether a file is a kubelet's file for the termination message of one of the pod's containers. It is 0666, and the
/// directories above are root's. A kubelet gives it one name: with another it is another file too.
pub(super) fn is_message(pod: Option<&Pod>, facts: &SourceFacts) -> bool {
    let Some(pod) = pod.map(|p| p.uid.as_str()) else {
        return false;
    };
    let mut names = facts.kubelets_names();
    facts.kind == FileKind::File
        && facts.nameless.is_none()
        && facts.same_as.is_none()
        && !facts.hard_linked
        && names.all(|name| matches!(pod_path(pod, name), Some(PodPath::Message)))
}

/// The warning that one of the pod's own volumes does not count as one because of another name, if so.
pub(super) fn strange(pod: Option<&Pod>, at: &Path, facts: &SourceFacts) -> Option<Warning> {
    let pod = pod?.uid.as_str();
    let is_own = |name| match pod_path(pod, name) {
        Some(PodPath::In { plugin, .. }) => OWN.contains(&plugin),
        Some(PodPath::Message) => true,
        Some(PodPath::SubPath(_)) | None => false,
    };
    if !facts.kubelets_names().any(is_own) {
        return None;
    }
    let mut names = facts.kubelets_names();
    let name = names.find(|name| pod_path(pod, name).is_none())?;
    Some(Warning::StrangeVolume {
        place: at.to_owned(),
        name: name.to_owned(),
    })
}

/// No name marks a credential in the pod's own Secrets: policy fields decide, and a key has any name (`.npmrc`).
fn all_meant(never: &NeverList) -> VisibleCredentials {
    never.credentials().map(Path::to_owned).collect()
}

/// Why the policy withholds a volume with secrets, with the fields that would grant it; `None` if it does not.
fn withheld(files: &Filesystem, volume: Volume, holds: Option<TokenContent>) -> Option<String> {
    const TOKEN: &str = "filesystem.service-account-token = \"read-only\"";
    const SECRETS: &str = "filesystem.secrets = \"read-only\"";
    let (with_token, with_more) = match holds {
        Some(TokenContent::NoToken) => (false, true),
        Some(TokenContent::TokenAlone) => (true, false),
        // Also if the content could not be read.
        Some(TokenContent::TokenAndMore) | None => (true, true),
    };
    let token = with_token && files.service_account_token != SecretRule::ReadOnly;
    let more = with_more && files.secrets != SecretRule::ReadOnly;
    let what = match (holds, volume) {
        (None, _) if token => {
            "it is empty or cannot be read to its end, so that a token of the pod's service account may be in it, now or later"
        }
        (Some(TokenContent::TokenAndMore), _) if token => {
            "it holds a token of the pod's service account and something else"
        }
        _ if token => "it holds a token of the pod's service account",
        (_, Volume::Projected) => {
            "it may hold a Secret, which looks like a ConfigMap in a projected volume"
        }
        _ => "it is a Secret of the pod",
    };
    match (token, more) {
        (false, false) => None,
        (false, true) => Some(format!("{what}: {SECRETS} gives it")),
        (true, false) => Some(format!(
            "{what}: a policy of the node may give it ({TOKEN})"
        )),
        (true, true) => Some(format!(
            "{what}: a policy of the node may give it ({TOKEN}, with {SECRETS})"
        )),
    }
}

/// Why a bind mount is refused under any mount rules; for the pod's own Secrets the policy's fields decide.
pub(super) fn refused(
    rules: MountRules<'_>,
    destination: &Path,
    volume: Option<Volume>,
    facts: &SourceFacts,
) -> Option<String> {
    match volume {
        Some(secret @ (Volume::Secret | Volume::Projected)) => {
            let meant = all_meant(rules.never);
            let files = &rules.policy.filesystem;
            refusal(rules.never, &meant, destination, facts)
                .or_else(|| withheld(files, secret, facts.holds))
        }
        // Its path and its layers are the engine's own, which are never mounted otherwise.
        Some(Volume::Image) => {
            by_nature(rules.never, destination, facts).or_else(|| by_link(rules.never, facts))
        }
        _ => refusal(rules.never, rules.meant, destination, facts),
    }
}

impl SortedMounts {
    /// The pod's own scratch. If the policy mounts only the workspace, programs on it cannot be executed.
    pub(super) fn scratch(
        &mut self,
        policy: &Policy,
        mount: &Mount,
        facts: &SourceFacts,
        access: BindAccess,
    ) {
        let mut mount = mount.clone();
        if policy.filesystem.mounts == MountRule::Drop {
            let options = mount.options().iter().flatten().cloned();
            mount.set_options(Some(options.chain(["noexec".to_owned()]).collect()));
        }
        self.keep_bind(&mount, facts, access, SCRATCH.to_owned());
    }

    /// Leaves out a mount that is refused. A kubelet mounts a token in every container, and podman a directory of its own,
    /// that no caller requested; whatever else is at those places is a request.
    pub(super) fn leave_out(
        &mut self,
        (mount, facts): (&Mount, &SourceFacts),
        named: MountTarget<'_>,
        volume: Option<Volume>,
        why: &str,
    ) {
        self.prune(mount, why);
        if let Some(omitted) = self.pruned.last_mut() {
            let is_token = named.path == Path::new(kubelet::TOKEN_MOUNT)
                && matches!(volume, Some(Volume::Secret | Volume::Projected))
                && kubelet::is_token_volume(&facts.path);
            let mut names = facts.kubelets_names().chain(mount.source().as_deref());
            let is_podmans = names.all(|name| is_podmans_secrets(named.path, name));
            omitted.of_every_engine = is_token || is_podmans;
        }
    }

    /// One of the pod's Secrets. The author chose the names in it, and its files are meant to be visible.
    pub(super) fn secret(&mut self, mount: &Mount, facts: &SourceFacts, named: MountTarget<'_>) {
        self.keep_bind(mount, facts, BindAccess::ReadOnly, SECRETS.to_owned());
        if named.is_workspace {
            self.workspace = Some(mount.destination().clone());
        }
    }
}
