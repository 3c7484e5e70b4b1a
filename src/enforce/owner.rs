//! Whose rules, user namespace and groups a process has.

use crate::sys::user_namespace::Ids;

/// Whose rules a process is under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ruler {
    /// A policy's.
    Policy,
    /// The engine's: it behaves as with runc.
    Engine,
}

/// Whose user namespace a container is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserNamespace {
    /// The node's.
    Nodes,
    /// One of its own.
    Own,
    /// That of a caller without root's rights: the process ends in one below it, as this user.
    Persons(Ids),
}

/// Whose supplementary groups a process has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupsOutcome {
    /// The spec's.
    Done,
    /// The caller's: the user namespace forbids setgroups(2) (user_namespaces(7)).
    Forbidden,
    /// The user's, who runs `wrap` without root's rights and cannot drop them. The plan says so.
    Persons,
}
