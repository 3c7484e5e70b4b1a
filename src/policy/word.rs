//! Fields whose value is one of a few words. Each list is ordered from least to most.

use super::value::words;

words! {
    /// What happens to writes to the image's files.
    RootAccess {
        /// They are refused.
        ReadOnly = "read-only",
        /// They go to an overlay that is discarded.
        Ephemeral = "ephemeral",
        /// They go to the engine's writable layer of this container.
        Engine = "engine",
    }
}

words! {
    /// A directory, or the container's equivalent of it, that can be ephemeral.
    EphemeralDir {
        /// `/tmp`.
        Tmp = "tmp",
        /// The user's home directory.
        Home = "home",
        /// `/var`.
        Var = "var",
        /// `/run`.
        Run = "run",
        /// The user's home directory, initially empty, without execution.
        EmptyHome = "empty-home",
    }
}

words! {
    /// Where discarded data is stored until then.
    ScratchOn {
        /// In memory, counted as the container's.
        Memory = "memory",
        /// On disk; in memory if the node has no scratch disk.
        Auto = "auto",
        /// On disk; if the node has no scratch disk, the container is refused.
        Disk = "disk",
    }
}

words! {
    /// Access to a mount.
    Access {
        /// Not mounted.
        None = "none",
        /// Read only.
        ReadOnly = "read-only",
        /// Read and write.
        ReadWrite = "read-write",
    }
}

words! {
    /// What happens to binds and volumes other than the workspace.
    MountRule {
        /// They are not mounted.
        Drop = "drop",
        /// They are mounted read-only, except those that `write` lists.
        ReadOnly = "read-only",
        /// The same, except that the engine's own named volumes keep the access that the engine gave.
        Volumes = "volumes",
        /// They keep the access that the engine gave.
        Keep = "keep",
    }
}

words! {
    /// Which user of the node owns the files that root creates in a mount.
    IdMapRule {
        /// Root.
        Off = "off",
        /// The owner of the workspace in it, if the file system can map ids.
        Auto = "auto",
        /// Each writable mount's owner; if the file system cannot map ids, the container is refused.
        On = "on",
    }
}

words! {
    /// What happens to a mount that is too large to search.
    SearchRule {
        /// The container is refused.
        Complete = "complete",
        /// It is mounted, with the credentials found so far masked.
        Partial = "partial",
    }
}

words! {
    /// Whether git's settings files are written.
    GitConfigRule {
        /// They are read-only.
        ReadOnly = "read-only",
        /// They are written, and new settings that may name programs are taken out at the end.
        Compared = "compared",
    }
}

words! {
    /// What happens to a pod's volume with secrets.
    SecretRule {
        /// It is not mounted.
        Drop = "drop",
        /// It is mounted read-only.
        ReadOnly = "read-only",
    }
}

words! {
    /// What happens to a container that does not get a mount that it requested.
    LeftOut {
        /// It is refused.
        Refuse = "error",
        /// It starts without the mount; `explain` names it.
        Report = "report",
    }
}

words! {
    /// Whether the time in which the machine is suspended counts towards time limits.
    SleepRule {
        /// It counts (CLOCK_BOOTTIME).
        Counts = "counts",
        /// It does not count (CLOCK_MONOTONIC).
        Pauses = "pauses",
    }
}

words! {
    /// Which connections are possible.
    NetworkMode {
        /// Only an interface `lo`.
        None = "none",
        /// The same, and the policy's inbound ports.
        Local = "local",
        /// What the policy's rules allow, through the sidecar.
        Allowlist = "allowlist",
    }
}

words! {
    /// What happens to a connection to a name without a rule.
    OnUnknown {
        /// It is refused.
        Deny = "deny",
        /// It waits for approval, within the ceiling.
        Ask = "ask",
    }
}

words! {
    /// How requests to a host with only request rules are read.
    TlsWay {
        /// Plain HTTP only: TLS to the host is refused.
        Pass = "pass",
        /// Also within TLS, which the sidecar opens.
        Open = "open",
    }
}

words! {
    /// Rules for system calls on top of the base rules.
    SyscallProfile {
        /// Short lists of requests and options; memory cannot be written and then executed.
        Paranoid = "paranoid",
        /// The base rules: the calls of ordinary programs.
        Agent = "agent",
        /// The calls of debuggers too.
        Debug = "debug",
    }
}

impl SyscallProfile {
    /// The calls that it allows besides the base rules, from policies/syscalls/debug.toml.
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
        /// They can if no such file can reach the node, apart from those of a mapped mount's owner.
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
