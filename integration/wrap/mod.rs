//! `agentbox wrap` as people meet it: whose work it is, what of the node is there, what git and toolchains find.

mod account;
mod person;
