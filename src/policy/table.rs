//! The table of a policy's fields. A row has, in this order:
//!
//! 1. what the field means, as docs/policy.md says it: these comments are that page's text,
//! 2. its name in Rust, its type ([`super::value::Value`]), and its name outside,
//! 3. how a ceiling limits it ([`super::ceiling_rule`]),
//! 4. who sets it: `Annotated` by files and by annotations, `FilesAlone` by files,
//! 5. `before`, for a field that is younger than the first records of containers: what their policies meant.
//!
//! `super::rows::fields!` makes of it the policy and its parts, what a file and an annotation may say, how one overlays
//! another, the comparison with a ceiling, and the tables of docs/policy.md.

use std::collections::BTreeSet;

use super::ceiling_rule::{
    AllOf, AtLeast, AtMost, Free, PartOf, PartOfMounts, PartOfRoot, PlacesOf, PortsOf,
    WhereApprovable, WithinBound,
};
use super::network_limit::{LimitsWithin, RulesWithin};
use super::rows::fields;
use super::syscall::{CallsOf, LimitedCallsOf, ProfileOf};
use super::word::*;
use super::{
    AskSeconds, AuditedPolicy, BudgetsKept, ByteSize, Capability, CoolDown, Count, CpuLimit,
    CredentialName, GuestPath, InboundPort, MemoryLimit, ProcessLimit, Rule, SyscallName,
};

fields! {
    /// The filesystem wall: what of the file system is seen and written.
    Filesystem in filesystem, written FilesystemFields {
        /// Writes to the image's files are refused, go to an overlay that is thrown away, or go to the engine's own writable layer
        /// as under runc ([operator.md](operator.md#what-writes-leave-behind)). A root that the engine makes read-only
        /// (`--read-only`, `readOnlyRootFilesystem`) stays so.
        root: RootAccess = FilesystemRoot "filesystem.root", AtMost, Annotated;

        /// Directories that are private, writable and thrown away. `/tmp` is empty at first; so is the home directory of the
        /// container's user under `empty-home`, in which nothing can be executed; the others are as in the image. Where the
        /// root is ephemeral, all but `tmp` and `empty-home` are so anyway; where it is the engine's layer, all of them are part of that.
        ephemeral: BTreeSet<EphemeralDir> = FilesystemEphemeral "filesystem.ephemeral", PartOfRoot, Annotated;

        /// The most that all that is ephemeral takes together. On disk there is also room for one file in every 16 KiB
        /// (262,134 in 4 GiB), in memory for one in every KiB.
        scratch: ByteSize = FilesystemScratch "filesystem.scratch", AtMost, Annotated;

        /// Where that lies: as the container's memory; on the node's disk, in a file system of the container's own
        /// ([operator.md](operator.md#what-writes-leave-behind)), or in memory (1 GiB of it at most) where the node has no disk
        /// for it, as `explain` says then; on the disk or not at all.
        // It gives the workload nothing: `scratch` bounds it wherever it lies.
        scratch_on: ScratchOn = FilesystemScratchOn "filesystem.scratch-on", Free, Annotated, before ScratchOn::Memory;

        /// Access to the workspace's mount.
        workspace: Access = FilesystemWorkspace "filesystem.workspace", AtMost, Annotated;

        /// Other binds and volumes: not mounted, read only, or as the engine gave them. Under `read-only` writes to an
        /// [anonymous volume](operator.md#anonymous-volumes) are thrown away. A pod's emptyDirs and its file for the termination
        /// message are read-write under all three.
        mounts: MountRule = FilesystemMounts "filesystem.mounts", AtMost, Annotated;

        /// Mount points that may be written although `mounts` says `read-only`; nothing that `mounts` drops, and not the
        /// workspace.
        write: BTreeSet<GuestPath> = FilesystemWrite "filesystem.write", PartOfMounts, Annotated;

        /// Whether a writable mount is mapped so that root inside is the directory's owner on the node: files that it makes are the
        /// owner's ([below](#who-owns-what-root-makes)). `auto`: the workspace, where its file system can. `on`: every
        /// writable bind and volume; one that cannot is an error.
        // It gives the workload nothing: either way it writes the same directories, as one user of the node or another.
        idmap: IdMapRule = FilesystemIdmap "filesystem.idmap", Free, Annotated, before IdMapRule::Off;

        /// Where the workspace may be mounted; one that is mounted elsewhere is refused. An empty list means anywhere.
        workspace_at: BTreeSet<GuestPath> = FilesystemWorkspaceAt "filesystem.workspace-at", PlacesOf, Annotated,
            before BTreeSet::new();

        /// A mount that is too large to be searched for credentials and sockets: the container is refused, or gets it with what
        /// was found masked.
        search: SearchRule = FilesystemSearch "filesystem.search", AtMost, Annotated, before SearchRule::Partial;

        /// Credentials that are meant to be seen where a kept mount has them, such as an agent's own login in
        /// `.codex/auth.json`. The names are those of [never.toml](../policies/never.toml).
        credentials: BTreeSet<CredentialName> = FilesystemCredentials "filesystem.credentials", PartOf, Annotated,
            before BTreeSet::new();

        /// A pod's volumes that are or [may hold](engines.md#volumes) a Secret.
        secrets: SecretRule = FilesystemSecrets "filesystem.secrets", AtMost, Annotated, before SecretRule::Drop;

        /// A pod's volumes that hold a token of its service account.
        service_account_token: SecretRule = FilesystemServiceAccountToken "filesystem.service-account-token", AtMost, Annotated,
            before SecretRule::Drop;

        /// A mount that was asked for and is not given: the container is refused, or starts without it and `explain` names it.
        left_out: LeftOut = FilesystemLeftOut "filesystem.left-out", AtMost, Annotated, before LeftOut::Report;
    }

    /// The network wall: what is reached.
    Network in network, written NetworkFields {
        /// `lo` and nothing else; the same, and the ports of `network.inbound`; what the rules allow, through the sidecar.
        mode: NetworkMode = NetworkMode "network.mode", AtMost, Annotated;

        /// What may be reached under `allowlist`: [rules](#network-rules) and presets; without a port, 443.
        allow: BTreeSet<Rule> = NetworkAllow "network.allow", RulesWithin, Annotated;

        /// What may not, whatever `allow` says; without a port, all of them.
        deny: BTreeSet<Rule> = NetworkDeny "network.deny", AllOf, Annotated;

        /// Where the policy is a ceiling: what may be allowed besides its own `allow`. It allows nothing by itself. Without a
        /// port, all of them.
        limit: BTreeSet<Rule> = NetworkLimit "network.limit", LimitsWithin, FilesAlone;

        /// A connection to a name that no rule lists is denied at once, or waits for `agentbox approve`, within the ceiling
        /// ([network.md](network.md#ask-instead-of-refusing)).
        on_unknown: OnUnknown = NetworkOnUnknown "network.on-unknown", WhereApprovable, Annotated, before OnUnknown::Deny;

        /// How long it waits.
        ask_seconds: AskSeconds = NetworkAskSeconds "network.ask-seconds", Free, Annotated, before AskSeconds::within(30);

        /// Whether `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY` name the sidecar to the workload.
        proxy_env: Switch = NetworkProxyEnv "network.proxy-env", Free, Annotated;

        /// How [requests](network.md#requests) are seen to hosts of which nothing else is allowed: in plain HTTP alone, or within TLS
        /// too, which the sidecar's reader opens with a certificate authority of this container's own
        /// ([network.md](network.md#opened-tls)). TLS to all other hosts passes unread.
        tls: TlsWay = NetworkTls "network.tls", Free, Annotated, before TlsWay::Pass;

        /// Connections at once.
        connections: Count = NetworkConnections "network.connections", AtMost, Annotated;

        /// New connections in a minute.
        connections_per_minute: Count = NetworkConnectionsPerMinute "network.connections-per-minute", AtMost, Annotated;

        /// Bytes sent, all connections together, while the container lives.
        upload: ByteSize = NetworkUpload "network.upload", AtMost, Annotated;

        /// Different names that are looked up while the container lives (a wildcard could carry data out in them); above
        /// 130816 it is 130816, as many as there are synthetic addresses.
        hosts: Count = NetworkHosts "network.hosts", AtMost, Annotated;

        /// How long no connection is allowed and no name answered after one of these four was used up.
        cool_down: CoolDown = NetworkCoolDown "network.cool-down", AtLeast, Annotated, before CoolDown::within(0);

        /// How long after the end of a run what it used of `upload` and `hosts` still counts when the same container starts
        /// again; 0: each start begins anew ([network.md](network.md#budgets)).
        budgets_kept: BudgetsKept = NetworkBudgetsKept "network.budgets-kept", AtLeast, Annotated,
            before BudgetsKept::within(0);

        /// Ports of the engine's network that lead to the same port of the container's loopback
        /// ([network.md](network.md#ports-that-lead-in)); `*` leads nowhere: it lets containers name any where the policy is a
        /// ceiling.
        inbound: BTreeSet<InboundPort> = NetworkInbound "network.inbound", PortsOf, Annotated, before BTreeSet::new();
    }

    /// The syscall wall, on top of the base rules: which system calls are made.
    Syscalls in syscalls, written SyscallsFields {
        /// Which rules stand on the base rules ([profiles](#profiles-of-system-calls)): short lists of requests and options, and no
        /// memory that is written and then executed; nothing; the calls of debuggers.
        profile: SyscallProfile = SyscallsProfile "syscalls.profile", ProfileOf, Annotated, before SyscallProfile::Agent;

        /// Allowed on top of the base rules.
        allow: BTreeSet<SyscallName> = SyscallsAllow "syscalls.allow", CallsOf, Annotated;

        /// Denied on top of the base rules; wins over `allow`.
        deny: BTreeSet<SyscallName> = SyscallsDeny "syscalls.deny", AllOf, Annotated;

        /// Where the policy is a ceiling: what may be allowed besides its own `allow`. It allows nothing by itself.
        limit: BTreeSet<SyscallName> = SyscallsLimit "syscalls.limit", LimitedCallsOf, FilesAlone, before BTreeSet::new();
    }

    /// The privileges of a process of user 0: what root may do.
    Privileges in privileges, written PrivilegesFields {
        /// At most these of those that the engine gave.
        capabilities: BTreeSet<Capability> = PrivilegesCapabilities "privileges.capabilities", PartOf, Annotated;

        /// Whether files can be made set-user-ID or set-group-ID. `off` refuses set-group-ID directories as well, which no
        /// filter can tell from files: `git init --shared`, `chmod g+s DIR`. `auto` is `on` where such a file can reach the node
        /// nowhere, or as its owner's alone ([below](#set-id-auto)), and `off` elsewhere.
        set_id: SetIdRule = PrivilegesSetId "privileges.set-id", AtMost, Annotated, before SetIdRule::On;
    }

    /// What a container may take of the node: the smaller of this and of what the engine says.
    #[derive(Copy)]
    Limits in limits, written LimitsFields {
        /// Processes and threads.
        pids: ProcessLimit = LimitsPids "limits.pids", WithinBound, Annotated, before ProcessLimit::Unlimited;

        /// Memory; what is ephemeral counts.
        memory: MemoryLimit = LimitsMemory "limits.memory", WithinBound, Annotated, before MemoryLimit::Unlimited;

        /// Processors.
        cpus: CpuLimit = LimitsCpus "limits.cpus", WithinBound, Annotated, before CpuLimit::Unlimited;
    }

    /// What is told of the walls, and to whom.
    Report in report, written ReportFields {
        /// Whether the container can read its own last refusals: at `/run/agentbox/denied`, and at `/denied` of the proxy
        /// ([agents.md](agents.md#refusals)).
        // It gives the workload nothing: each refusal has been said to it already.
        denied: Switch = ReportDenied "report.denied", Free, Annotated, before Switch::Off;

        /// A policy that is reported on and not enforced, to try it before it applies
        /// ([audit.md](audit.md#try-a-policy-first)).
        // It takes nothing away and gives nothing.
        audit: AuditedPolicy = ReportAudit "report.audit", Free, Annotated, before AuditedPolicy::off();

        /// Learning: public names that no rule lists are allowed and recorded (no other port of a host with rules for requests), up to the ceiling's `network.limit`
        /// ([audit.md](audit.md#learn-the-rules)). Only where `allow.learn` of the node's file permits it.
        // No ceiling: the node's file permits it or not, and what is allowed stays within the ceilings.
        learn: Switch = ReportLearn "report.learn", Free, FilesAlone, before Switch::Off;
    }

    /// What annotations may ask of the policy beyond what it says.
    Annotations in annotations, written AnnotationsFields {
        /// Fields that annotations may set to more than the policy says ([below](#which-policy-applies)), up to the node's
        /// ceiling. It counts only where neither the node's file nor `--policy` sets a ceiling, and not for annotations that an
        /// image may have written.
        loosen: BTreeSet<Field> = AnnotationsLoosen "annotations.loosen", Free, FilesAlone, before BTreeSet::new();
    }
}
