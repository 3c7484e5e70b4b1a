//! Operators: a node with many containers (K-9), names (K-12, U-B7), use at a terminal (U-B10, point 17), other suites
//! (S).

mod crowd;
mod kubernetes;
mod names;
mod suites;
mod terminal;
