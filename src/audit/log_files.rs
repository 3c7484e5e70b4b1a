//! The names of the files of a run's log.

/// The log that the sidecar writes.
pub const SIDECAR: &str = "sidecar.jsonl";
/// The log that the runtime's verbs write.
pub const NODE: &str = "node.jsonl";
/// The log that the warden writes.
pub const WARDEN: &str = "warden.jsonl";
/// The log that the relay to the user's SSH agent writes. Runs without one lack it.
pub const SSH: &str = "ssh.jsonl";
/// The log that the relay to unix sockets of databases writes. Runs without one lack it.
pub const SOCKETS: &str = "sockets.jsonl";
/// The log of one line that the timekeeper writes when it ends the container. Runs without a time limit lack it.
pub const TIME: &str = "time.jsonl";
/// All logs that a run can have.
pub const LOGS: [&str; 6] = [NODE, SIDECAR, WARDEN, SSH, SOCKETS, TIME];
