//! What a container writes and loses at its end: the disk for it, and overlays over what must stay as it is.
//!
//! | File | Does |
//! |---|---|
//! | [`ext4`] | PURE: an empty file system as bytes |
//! | [`possible`] | SHELL: whether this node can make a disk |
//! | [`maker`] | SHELL: the child of `create` that makes it |
//! | [`handover`] | SHELL: the disk's way from that child to the init process |
//! | [`overlay`] | SHELL: whether the kernel lays an overlay over a directory |
//!
//! Size and place are decisions of the plan (`src/plan/scratch.rs`, `src/plan/ephemeral.rs`), and the init process
//! attaches the directories among its other mounts (`src/enforce/scratch.rs`).

pub mod ext4;
pub mod handover;
pub mod maker;
pub mod overlay;
pub mod possible;
