//! Input of callers, read once and bounded: the bundle, the node's files, descriptors.
//!
//! | module | what it reads |
//! |---|---|
//! | [`bundle`], [`lenient`], [`labels`] | config.json, what runc takes of it beyond the specification, and labels that this kernel lacks |
//! | [`node_files`] | what has a say in a policy: the node's file, its policies, the command line |
//! | [`cri`] | whether a call is a CRI engine's |
//! | [`descriptors`] | which descriptors a container's process may inherit |

pub mod bundle;
pub mod cri;
pub mod descriptors;
pub mod labels;
pub mod lenient;
pub mod node_files;
