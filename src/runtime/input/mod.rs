//! Input of callers, read once and bounded: the bundle, the node's files, descriptors.
//!
//! | module | reads |
//! |---|---|
//! | [`bundle`], [`lenient`], [`labels`] | config.json, what runc accepts beyond the specification, and labels that this kernel lacks |
//! | [`node_files`] | the sources of a policy: the node's file, its policies, the command line |
//! | [`way`] | files on paths that only root can change |
//! | [`own_home`] | whether HOME is the caller's own |
//! | [`cri`] | whether the caller is a CRI engine |
//! | [`descriptors`] | which descriptors a container's process may inherit |

pub mod bundle;
pub mod cri;
pub mod descriptors;
pub mod labels;
pub mod lenient;
pub mod node_files;
pub mod own_home;
pub mod way;

/// Why a process of a spec is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessRefusal {
    /// No security module would enforce the profile.
    #[error("process.apparmorProfile {0:?}: AppArmor is not enabled in this kernel")]
    AppArmor(String),
    /// The label cannot be enforced either. The words are runc's.
    #[error("selinux label is specified in config, but selinux is disabled or not supported")]
    SeLinux,
    /// The process could not be set up within its limits.
    #[error(
        "process.rlimits: RLIMIT_NOFILE is {soft}, but the set-up needs {needed} descriptors: request {needed} or more; the program \
         may lower it"
    )]
    FewFiles {
        /// The requested limit.
        soft: u64,
        /// What the set-up needs.
        needed: u64,
    },
}
