//! Findings of outside reviews at commit 9a4ca38, by number: each test fails on that commit.
//!
//! F: files, processes, privileges. N: the network wall. U: three users. K: a real Kubernetes.

mod files;
mod network;
mod policy;
mod processes;
