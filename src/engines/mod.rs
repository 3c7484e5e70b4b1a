//! PURE. The engines that call this runtime: their annotations, roots, directories and files. A new engine is added
//! here; the callers decide what follows from a match.
//!
//! | File | Has |
//! |---|---|
//! | [`annotation`] | the annotations that engines write, and who else may write them |
//! | [`root`] | which engine calls, by its `--root` |
//! | [`layout`] | directories and files of Docker, containerd, podman and CRI-O |
//! | [`daemon`] | configuration files and sockets of daemons |
//! | [`kubelet`] | a kubelet's directories of pods and volumes |
//!
//! Files outside of this folder name engines for other reasons: `policies/never.toml` (paths that no container may
//! see), `src/install` (the entries that it writes), `src/runtime/state/identity.rs` (formats of their records).

pub mod annotation;
pub mod daemon;
pub mod kubelet;
pub mod layout;
pub mod root;
