//! SHELL. Whose work it is: the person who called, also by way of sudo.

/// User and groups of the command.
pub struct User {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

/// The person behind sudo, else root.
pub fn user() -> User {
    let id = |name| std::env::var(name).ok().and_then(|v| v.parse::<u32>().ok());
    match (id("SUDO_UID"), id("SUDO_GID")) {
        (Some(uid), Some(gid)) => User { uid, gid },
        _ => User {
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
        },
    }
}
