//! PURE. Turns a plan into the spec for libcontainer, into files and into the explanation.

pub mod explain;
pub mod files;
pub mod identity;
pub mod limits;
pub mod network;
pub mod refuse;
pub mod spec;
#[cfg(test)]
mod tests;
