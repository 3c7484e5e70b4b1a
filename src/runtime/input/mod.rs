//! Input of callers, read once and bounded: the bundle, the node's files, descriptors.
//!
//! | module | what it reads |
//! |---|---|
//! | [`bundle`], [`lenient`], [`labels`] | config.json, what runc takes of it beyond the specification, and labels that this kernel lacks |
//! | [`node_files`] | what has a say in a policy: the node's file, its policies, the command line |
//! | [`way`] | files to which only root's directories may lead |
//! | [`cri`] | whether a call is a CRI engine's |
//! | [`descriptors`] | which descriptors a container's process may inherit |

pub mod bundle;
pub mod cri;
pub mod descriptors;
pub mod labels;
pub mod lenient;
pub mod node_files;
pub mod way;

/// Why a process of a spec is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProcessRefusal {
    /// No security module would enforce the profile.
    #[error("process.apparmorProfile {0:?}: AppArmor is not enabled in this kernel")]
    AppArmor(String),
    /// Nor the label. The words are runc's.
    #[error("selinux label is specified in config, but selinux is disabled or not supported")]
    SeLinux,
    /// The process could not be set up.
    #[error(
        "process.rlimits: RLIMIT_NOFILE is {soft}, and a process is set up with up to {needed} descriptors: ask for {needed} \
         at least; the program may lower its own limit"
    )]
    FewFiles {
        /// What is asked for.
        soft: u64,
        /// What the set-up takes.
        needed: u64,
    },
}
