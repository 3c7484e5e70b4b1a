//! Values of fields that are one of a few words. The order in each list is the order from least to most.

use super::text::words;

words! {
    /// What becomes of writes to the image's files.
    RootAccess {
        /// They are refused.
        ReadOnly = "read-only",
        /// They go to an overlay that is thrown away.
        Ephemeral = "ephemeral",
        /// They go to the engine's writable layer of this container.
        Engine = "engine",
    }
}

words! {
    /// A directory, or the one that stands for it in this container, that can be made ephemeral.
    EphemeralDir {
        /// `/tmp`.
        Tmp = "tmp",
        /// The user's home directory.
        Home = "home",
        /// `/var`.
        Var = "var",
        /// `/run`.
        Run = "run",
        /// The user's home directory, empty at first, of which nothing can be executed.
        EmptyHome = "empty-home",
    }
}

words! {
    /// Where what is thrown away lies until then.
    ScratchOn {
        /// In memory, as the container's.
        Memory = "memory",
        /// On disk, or in memory where the node cannot.
        Auto = "auto",
        /// On disk; where the node cannot, the container is refused.
        Disk = "disk",
    }
}

words! {
    /// What may be done with a mount.
    Access {
        /// It is not there.
        None = "none",
        /// It is read.
        ReadOnly = "read-only",
        /// It is read and written.
        ReadWrite = "read-write",
    }
}

words! {
    /// What becomes of binds and volumes other than the workspace.
    MountRule {
        /// They are not mounted.
        Drop = "drop",
        /// They are mounted read-only, except those that `write` lists.
        ReadOnly = "read-only",
        /// They keep the access that the engine gave.
        Keep = "keep",
    }
}

words! {
    /// Whose on the node the files are that root makes in a mount.
    IdMapRule {
        /// Root's.
        Off = "off",
        /// In the workspace its owner's, where the file system can map ids.
        Auto = "auto",
        /// In every writable mount its owner's; where the file system cannot, the container is refused.
        On = "on",
    }
}

words! {
    /// What becomes of a mount that is too large to be searched.
    SearchRule {
        /// The container is refused.
        Complete = "complete",
        /// It gets the mount, with what was found masked.
        Partial = "partial",
    }
}

words! {
    /// What becomes of a pod's volume with what is secret.
    SecretRule {
        /// It is not mounted.
        Drop = "drop",
        /// It is mounted read-only.
        ReadOnly = "read-only",
    }
}

words! {
    /// What becomes of a container that asked for a mount and does not get it.
    LeftOut {
        /// It is refused.
        Refuse = "error",
        /// It starts without; `explain` names the mount.
        Report = "report",
    }
}

words! {
    /// How far a connection gets.
    NetworkMode {
        /// An interface `lo` and nothing else.
        None = "none",
        /// The same, and the inbound ports that the policy names.
        Local = "local",
        /// What the policy's rules allow, through the sidecar.
        Allowlist = "allowlist",
    }
}

words! {
    /// What becomes of a connection to a name that no rule names.
    OnUnknown {
        /// It is refused.
        Deny = "deny",
        /// It waits until a person decides, within the ceiling.
        Ask = "ask",
    }
}

words! {
    /// How requests to a host are seen of which nothing but requests is allowed.
    TlsWay {
        /// In plain HTTP alone: TLS to it is refused.
        Pass = "pass",
        /// Within TLS too, which is opened for that.
        Open = "open",
    }
}

words! {
    /// Which rules for system calls stand on the base rules.
    SyscallProfile {
        /// Requests and options by short lists, no memory that is written and then executed.
        Paranoid = "paranoid",
        /// The base rules: the calls of ordinary programs.
        Agent = "agent",
        /// The calls of debuggers too.
        Debug = "debug",
    }
}

impl SyscallProfile {
    /// The calls that it allows besides the base rules, as policies/syscalls/debug.toml says it.
    pub fn adds(self) -> &'static [&'static str] {
        match self {
            Self::Debug => &["process_vm_readv", "process_vm_writev", "ptrace"],
            Self::Paranoid | Self::Agent => &[],
        }
    }
}

words! {
    /// Whether files can be made set-user-ID or set-group-ID.
    SetIdRule {
        /// They cannot.
        Off = "off",
        /// They can where none of them can reach the node, but its owner's in a mapped mount.
        Auto = "auto",
        /// They can.
        On = "on",
    }
}

words! {
    /// On or off.
    Switch {
        /// Off.
        Off = "off",
        /// On.
        On = "on",
    }
}
