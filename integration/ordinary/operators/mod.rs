//! Operators: a node with many containers, names, use at a terminal, other suites.

mod crowd;
mod kubernetes;
mod names;
mod suites;
mod terminal;
