//! PURE. From a plan to what enforces it or tells of it: the spec for libcontainer, files, words.

pub mod explain;
pub mod ext4;
pub mod files;
pub mod identity;
pub mod limits;
pub mod network;
pub mod refuse;
pub mod spec;
#[cfg(test)]
mod tests;
