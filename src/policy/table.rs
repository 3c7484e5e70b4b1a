//! The table of a policy's fields. A row has, in this order:
//!
//! 1. the field's meaning; docs/policy.md has these comments as its text,
//! 2. its name in Rust, its type ([`super::value::Value`]), and its name in policies,
//! 3. how a ceiling limits it ([`super::ceiling_rule`]),
//! 4. who sets it: `Annotated` by files and by annotations, `FilesAlone` by files,
//! 5. whether what it allows is `Seen` at run time under a policy that is only reported, or not (`Unseen`).
//!
//! `super::rows::fields!` generates from it the policy and its groups, their parsers, how one file overlays another,
//! the comparison with a ceiling, and the tables of docs/policy.md.

use std::collections::BTreeSet;

use super::ceiling_rule::{
    AllOf, ApprovalCeiling, AtLeast, AtMost, ItemsOf, NoCeiling, PartOf, PartOfMounts, PartOfRoot,
    PlacesOf, SwitchCeiling, TimeCeiling, WithinBound,
};
use super::network::{LimitsWithin, RulesWithin, TemporaryWithin};
use super::rows::fields;
use super::syscall::{CallsOf, LimitedCallsOf, ProfileOf};
use super::word::*;
use super::{
    AskSeconds, AuditedPolicy, ByteSize, Capability, ConnectService, CoolDown, Count, CpuLimit,
    CredentialName, Grace, GuestPath, InboundPort, MemoryLimit, ProcessLimit, ProtectedName,
    SshKey, TemporaryRule, TimeLimit,
};
use crate::kernel::SyscallName;
use crate::rules::EgressRule;

fields! {
    /// The filesystem wall: which files are visible and writable.
    Filesystem in filesystem, written FilesystemFields {
        /// The image's files: read-only, an ephemeral overlay, or [the engine's
        /// layer](operator.md#what-writes-leave-behind).
        root: RootAccess = FilesystemRoot "filesystem.root", AtMost, Annotated, Unseen;

        /// Private writable directories, discarded at the end. `tmp` and `empty-home` (`noexec`) start empty.
        ephemeral: BTreeSet<EphemeralDir> = FilesystemEphemeral "filesystem.ephemeral", PartOfRoot, Annotated, Unseen;

        /// Size of ephemeral data; one file per 16 KiB (in memory: 1 KiB).
        scratch: ByteSize = FilesystemScratch "filesystem.scratch", AtMost, Annotated, Unseen;

        /// Memory; the [scratch disk](operator.md#what-writes-leave-behind), else up to 1 GiB of memory; the scratch
        /// disk or an error.
        // Grants the workload nothing: `scratch` limits the size in either place.
        scratch_on: ScratchOn = FilesystemScratchOn "filesystem.scratch-on", NoCeiling, Annotated, Seen;

        /// Access to the workspace.
        workspace: Access = FilesystemWorkspace "filesystem.workspace", AtMost, Annotated, Seen;

        /// Other binds and volumes: left out; read-only; [named volumes](operator.md#volumes-of-engines) as the engine
        /// says; all as the engine says. A pod's emptyDirs stay writable.
        mounts: MountRule = FilesystemMounts "filesystem.mounts", AtMost, Annotated, Seen;

        /// Mount points that stay writable under `read-only` and `volumes`.
        write: BTreeSet<GuestPath> = FilesystemWrite "filesystem.write", PartOfMounts, Annotated, Seen;

        /// Root's files get the [directory's owner](#who-owns-what-root-makes): never; in the workspace if possible;
        /// in all writable mounts.
        // Grants the workload nothing: it writes to the same directories, as one user of the node or another.
        idmap: IdMapRule = FilesystemIdmap "filesystem.idmap", NoCeiling, Annotated, Seen;

        /// Where the workspace can be mounted. Empty: anywhere.
        workspace_at: BTreeSet<GuestPath> = FilesystemWorkspaceAt "filesystem.workspace-at", PlacesOf, Annotated, Seen;

        /// A mount too large to search for credentials: refuse the container, or mask those found.
        search: SearchRule = FilesystemSearch "filesystem.search", AtMost, Annotated, Seen;

        /// Credentials of [never.toml](../policies/never.toml) that stay visible.
        credentials: BTreeSet<CredentialName> = FilesystemCredentials "filesystem.credentials", PartOf, Annotated, Seen;

        /// Names of [protected.toml](../policies/protected.toml) that [stay writable](#protected-files); `*`: all.
        unprotected: BTreeSet<ProtectedName> = FilesystemUnprotected "filesystem.unprotected", PartOfMounts, Annotated, Unseen;

        /// Existing `.git/config` files: read-only, or [compared](#protected-files) at the end.
        git_config: GitConfigRule = FilesystemGitConfig "filesystem.git-config", AtMost, Annotated, Unseen;

        /// A pod's volumes that are or [can hold](engines.md#volumes) a Secret.
        secrets: SecretRule = FilesystemSecrets "filesystem.secrets", AtMost, Annotated, Seen;

        /// A pod's volumes with service account tokens.
        service_account_token: SecretRule = FilesystemServiceAccountToken "filesystem.service-account-token", AtMost, Annotated, Seen;

        /// A mount that is left out: refuse the container, or report it in `explain`.
        left_out: LeftOut = FilesystemLeftOut "filesystem.left-out", AtMost, Annotated, Seen;
    }

    /// The network wall: which hosts are reachable.
    Network in network, written NetworkFields {
        /// Loopback only; also inbound ports; also the [allowed hosts](network.md).
        mode: NetworkMode = NetworkMode "network.mode", AtMost, Annotated, Seen;

        /// Allowed [rules](#network-rules) and presets. Without a port: 443.
        allow: BTreeSet<EgressRule> = NetworkAllow "network.allow", RulesWithin, Annotated, Seen;

        /// Also allowed, [until their ends](network.md#ends).
        temporary: BTreeSet<TemporaryRule> = NetworkTemporary "network.temporary", TemporaryWithin, Annotated, Seen;

        /// Denied rules; they win over `allow`. Without a port: all.
        deny: BTreeSet<EgressRule> = NetworkDeny "network.deny", AllOf, Annotated, Seen;

        /// In a ceiling: what else can be allowed. Without a port: all.
        limit: BTreeSet<EgressRule> = NetworkLimit "network.limit", LimitsWithin, FilesAlone, Seen;

        /// Connections to unlisted names: refuse, or [wait for `agentbox
        /// approve`](network.md#ask-instead-of-refusing).
        on_unknown: OnUnknown = NetworkOnUnknown "network.on-unknown", ApprovalCeiling, Annotated, Seen;

        /// Seconds that they wait.
        ask_seconds: AskSeconds = NetworkAskSeconds "network.ask-seconds", NoCeiling, Annotated, Seen;

        /// Set the [proxy variables](network.md#allow-hosts).
        proxy_env: Switch = NetworkProxyEnv "network.proxy-env", NoCeiling, Annotated, Seen;

        /// Request rules: by plain HTTP only, or also [within TLS](network.md#opened-tls).
        tls: TlsWay = NetworkTls "network.tls", NoCeiling, Annotated, Seen;

        /// `wrap` uses the [secrets of its user](network.md#your-own-secrets).
        user_secrets: Switch = NetworkUserSecrets "network.user-secrets", SwitchCeiling, FilesAlone, Seen;

        /// Connections at once.
        connections: Count = NetworkConnections "network.connections", AtMost, Annotated, Unseen;

        /// New connections per minute.
        connections_per_minute: Count = NetworkConnectionsPerMinute "network.connections-per-minute", AtMost, Annotated, Unseen;

        /// Bytes sent in the container's life.
        upload: ByteSize = NetworkUpload "network.upload", AtMost, Annotated, Unseen;

        /// Different names, at most 130816.
        hosts: Count = NetworkHosts "network.hosts", AtMost, Annotated, Unseen;

        /// Seconds without new connections after a budget is used up. More is tighter.
        cool_down: CoolDown = NetworkCoolDown "network.cool-down", AtLeast, Annotated, Unseen;

        /// [Ports](network.md#ports-that-lead-in) relayed to the workload's loopback. `*` is for ceilings: any port.
        inbound: BTreeSet<InboundPort> = NetworkInbound "network.inbound", ItemsOf, Annotated, Unseen;

        /// Services that [`wrap --connect`](wrap.md#a-server-outside) reaches. `*` is for ceilings: any service.
        connect: BTreeSet<ConnectService> = NetworkConnect "network.connect", ItemsOf, FilesAlone, Unseen;

        /// Keys with which [`wrap --ssh-agent`](wrap.md#sign-with-ssh-keys) signs. `*` is for ceilings: any key.
        ssh_keys: BTreeSet<SshKey> = NetworkSshKeys "network.ssh-keys", ItemsOf, FilesAlone, Unseen;
    }

    /// The syscall wall, on top of the base rules: which system calls are allowed.
    Syscalls in syscalls, written SyscallsFields {
        /// [Profile](#profiles-of-system-calls) on top of the base rules.
        profile: SyscallProfile = SyscallsProfile "syscalls.profile", ProfileOf, Annotated, Unseen;

        /// Allowed besides the base rules.
        allow: BTreeSet<SyscallName> = SyscallsAllow "syscalls.allow", CallsOf, Annotated, Unseen;

        /// Denied; wins over `allow`.
        deny: BTreeSet<SyscallName> = SyscallsDeny "syscalls.deny", AllOf, Annotated, Unseen;

        /// In a ceiling: what else can be allowed.
        limit: BTreeSet<SyscallName> = SyscallsLimit "syscalls.limit", LimitedCallsOf, FilesAlone, Seen;
    }

    /// The privileges of a process of user 0: what root may do.
    Privileges in privileges, written PrivilegesFields {
        /// At most these of the engine's capabilities.
        capabilities: BTreeSet<Capability> = PrivilegesCapabilities "privileges.capabilities", PartOf, Annotated, Seen;

        /// Set-user-ID and set-group-ID files: never; [where harmless](#set-id-auto); always. `off` includes
        /// set-group-ID directories.
        set_id: SetIdRule = PrivilegesSetId "privileges.set-id", AtMost, Annotated, Unseen;
    }

    /// How much of the node a container may use: the smaller of this and the engine's limit.
    #[derive(Copy)]
    Limits in limits, written LimitsFields {
        /// Processes and threads.
        pids: ProcessLimit = LimitsPids "limits.pids", WithinBound, Annotated, Unseen;

        /// Memory; ephemeral data in memory counts.
        memory: MemoryLimit = LimitsMemory "limits.memory", WithinBound, Annotated, Unseen;

        /// Processors.
        cpus: CpuLimit = LimitsCpus "limits.cpus", WithinBound, Annotated, Unseen;
    }

    /// How long a container may run.
    #[derive(Copy)]
    Time in time, written TimeFields {
        /// From `create` to SIGTERM ([more](operator.md#end-a-container-after-a-time)).
        wall: TimeLimit = TimeWall "time.wall", TimeCeiling, Annotated, Unseen;

        /// Without [activity](operator.md#end-an-idle-container) until SIGTERM.
        idle: TimeLimit = TimeIdle "time.idle", TimeCeiling, Annotated, Unseen;

        /// From an [`exec`](operator.md#end-an-exec-after-a-time) to SIGTERM.
        exec: TimeLimit = TimeExec "time.exec", TimeCeiling, Annotated, Unseen;

        /// From SIGTERM to SIGKILL.
        grace: Grace = TimeGrace "time.grace", TimeCeiling, Annotated, Unseen;

        /// Whether suspension of the machine counts, and for `idle` a pause.
        sleep: SleepRule = TimeSleep "time.sleep", TimeCeiling, Annotated, Unseen;
    }

    /// What is reported of the walls, and to whom.
    Report in report, written ReportFields {
        /// The workload can read [its last denials](agents.md#refusals).
        // Grants the workload nothing: it has seen each denial already.
        denied: Switch = ReportDenied "report.denied", NoCeiling, Annotated, Seen;

        /// Standard error begins with requests that were [not granted](denials.md#not-granted).
        // Grants the workload nothing: it sees its own mounts, capabilities and ports.
        notice: Switch = ReportNotice "report.notice", NoCeiling, Annotated, Seen;

        /// A policy to [try](audit.md#try-a-policy-first): reported, not enforced.
        // Neither denies nor grants anything.
        audit: AuditedPolicy = ReportAudit "report.audit", NoCeiling, Annotated, Seen;

        /// [Learn mode](audit.md#learn-the-rules). Needs `allow.learn` of the node's file.
        // No ceiling: the node's file permits it or not, and all that is allowed stays within the ceilings.
        learn: Switch = ReportLearn "report.learn", NoCeiling, FilesAlone, Seen;
    }

    /// What annotations may request beyond the policy.
    Annotations in annotations, written AnnotationsFields {
        /// Fields that annotations can [loosen](#loosen-with-annotations).
        loosen: BTreeSet<Field> = AnnotationsLoosen "annotations.loosen", NoCeiling, FilesAlone, Seen;
    }
}
