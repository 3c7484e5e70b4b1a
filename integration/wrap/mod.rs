//! `agentbox wrap` as people meet it: whose work it is, what of the node is there, what git and toolchains find, and that a command
//! ends, stops and is signalled as without it.

pub(crate) mod account;
mod agents;
mod ask;
mod caches;
mod forged;
mod landlock;
mod leftovers;
mod matrix;
mod mcp;
mod name;
mod named;
mod next_run;
mod odd;
mod options;
mod person;
mod pid1;
mod publish;
mod repository;
mod rootless;
mod settings;
pub mod shell;
mod shown;
mod summary;
mod terminal;
mod toolchains;
