//! PURE. The pod of a container, as its CRI engine describes it.

use oci_spec::runtime::Spec;

use super::facts::BundleFacts;
use crate::engines::annotation;
use crate::engines::annotation::{CONTAINERD, is_crio_key};
use crate::engines::kubelet::pod_uid;

/// The pod of a container that a CRI engine made for a kubelet.
#[derive(Debug)]
pub(super) struct Pod {
    /// Its uid.
    pub(super) uid: String,
    /// The id of its sandbox, from containerd; an annotation of the author's does not replace it there.
    pub(super) sandbox: Option<String>,
}

/// The pod of a container, if a CRI engine made it for a kubelet.
pub(super) fn pod(spec: &Spec, bundle: &BundleFacts) -> Option<Pod> {
    pod_role(spec).filter(|_| bundle.cri)?;
    let cgroups_path = spec.linux().as_ref()?.cgroups_path().as_ref()?;
    let annotations = spec.annotations().as_ref();
    // CRI-O passes on what a pod's author writes under containerd's keys.
    let of_containerd = annotations.filter(|a| !a.keys().any(|key| is_crio_key(key)));
    Some(Pod {
        uid: pod_uid(cgroups_path.to_str()?)?,
        sandbox: of_containerd.and_then(|a| a.get(CONTAINERD.sandbox_id).cloned()),
    })
}

/// The role of a container in its pod, if a CRI engine made it.
pub fn pod_role(spec: &Spec) -> Option<&str> {
    let annotations = spec.annotations().as_ref()?;
    annotation::pod_role(|key| annotations.get(key))
}
