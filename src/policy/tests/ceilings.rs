//! Field by field: which values are within a ceiling, and which exceed it.

use super::*;

/// A policy based on `base`, with one field changed.
fn policy(base: &str, change: &str) -> Policy {
    let case = case()
        .node("[allow]\ncapabilities = [\"NET_RAW\"]")
        .file(
            "reaching",
            "base = \"standard\"\nnetwork.mode = \"allowlist\"",
        )
        .file("changed", &format!("base = \"{base}\"\n{change}"));
    catalogue::policy(&case.sources(), &"changed".parse().unwrap()).unwrap()
}

/// Above every request of the tests.
pub(super) const ANYTHING: &str = r#"
base = "permissive"
filesystem.scratch = "64GiB"
network.limit = ["*", "internal:*", "0.0.0.0/0"]
network.connections = 1000000
network.connections-per-minute = 1000000
network.upload = "64GiB"
network.hosts = 1000000
network.inbound = ['*']
network.connect = ['*']
network.ssh-keys = ['*']
syscalls.allow = ["read", "ptrace", "keyctl", "bpf", "io_uring_setup"]
filesystem.credentials = [".npmrc", ".codex/auth.json"]
filesystem.search = "partial"
filesystem.secrets = "read-only"
filesystem.service-account-token = "read-only"
limits = { pids = "unlimited", memory = "unlimited", cpus = "unlimited" }
time = { wall = "unlimited", idle = "unlimited", grace = "1h", sleep = "pauses" }
privileges.capabilities = [
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT", "NET_RAW"
]
"#;

#[test]
fn the_built_in_policies_contain_each_other() {
    let order = ["strict", "standard", "permissive"].map(builtin);
    for (low, asked) in order.iter().enumerate() {
        for (high, ceiling) in order.iter().enumerate() {
            let within = exceeds(asked, ceiling).is_empty();
            assert_eq!(within, low <= high, "{} in {}", asked.name, ceiling.name);
        }
    }
}

#[test]
fn each_field_is_limited_by_its_own_rule() {
    use Field::*;
    let capabilities = "privileges.capabilities";
    // field, requested, ceiling, whether it exceeds
    let table: &[(Field, &str, &str, bool)] = &[
        (
            FilesystemRoot,
            "filesystem.root = 'read-only'",
            "filesystem.root = 'ephemeral'",
            false,
        ),
        (
            FilesystemRoot,
            "filesystem.root = 'ephemeral'",
            "filesystem.root = 'ephemeral'",
            false,
        ),
        (
            FilesystemRoot,
            "filesystem.root = 'ephemeral'",
            "filesystem.root = 'read-only'",
            true,
        ),
        (
            FilesystemRoot,
            "filesystem.root = 'engine'",
            "filesystem.root = 'ephemeral'",
            true,
        ),
        (
            FilesystemRoot,
            "filesystem.root = 'ephemeral'",
            "filesystem.root = 'engine'",
            false,
        ),
        (
            FilesystemEphemeral,
            "filesystem.ephemeral = []",
            "filesystem.ephemeral = []",
            false,
        ),
        (
            FilesystemEphemeral,
            "filesystem.ephemeral = ['tmp']",
            "filesystem.ephemeral = ['tmp', 'var']",
            false,
        ),
        (
            FilesystemEphemeral,
            "filesystem = { root = 'read-only', ephemeral = ['home'] }",
            "filesystem = { root = 'read-only', ephemeral = ['tmp', 'var'] }",
            true,
        ),
        (
            FilesystemEphemeral,
            "filesystem = { root = 'ephemeral', ephemeral = ['home'] }",
            "filesystem = { root = 'ephemeral', ephemeral = [] }",
            false,
        ),
        (
            FilesystemEphemeral,
            "filesystem.ephemeral = ['home']",
            "filesystem = { root = 'engine', ephemeral = [] }",
            false,
        ),
        (
            FilesystemEphemeral,
            "filesystem = { root = 'read-only', ephemeral = ['empty-home'] }",
            "filesystem = { root = 'read-only', ephemeral = ['home'] }",
            false,
        ),
        (
            FilesystemScratch,
            "filesystem.scratch = '16MiB'",
            "filesystem.scratch = '16MiB'",
            false,
        ),
        (
            FilesystemScratch,
            "filesystem.scratch = '15MiB'",
            "filesystem.scratch = '16MiB'",
            false,
        ),
        (
            FilesystemScratch,
            "filesystem.scratch = '16385KiB'",
            "filesystem.scratch = '16MiB'",
            true,
        ),
        (
            FilesystemWorkspace,
            "filesystem.workspace = 'none'",
            "filesystem.workspace = 'read-only'",
            false,
        ),
        (
            FilesystemWorkspace,
            "filesystem.workspace = 'read-only'",
            "filesystem.workspace = 'none'",
            true,
        ),
        (
            FilesystemWorkspace,
            "filesystem.workspace = 'read-write'",
            "filesystem.workspace = 'read-only'",
            true,
        ),
        (
            FilesystemMounts,
            "filesystem.mounts = 'drop'",
            "filesystem.mounts = 'read-only'",
            false,
        ),
        (
            FilesystemMounts,
            "filesystem.mounts = 'read-only'",
            "filesystem.mounts = 'drop'",
            true,
        ),
        (
            FilesystemMounts,
            "filesystem.mounts = 'keep'",
            "filesystem.mounts = 'volumes'",
            true,
        ),
        (
            FilesystemMounts,
            "filesystem.mounts = 'volumes'",
            "filesystem.mounts = 'read-only'",
            true,
        ),
        (
            FilesystemMounts,
            "filesystem.mounts = 'read-only'",
            "filesystem.mounts = 'volumes'",
            false,
        ),
        (
            FilesystemWrite,
            "filesystem.write = ['/a']",
            "filesystem.write = ['/a', '/b']",
            false,
        ),
        (
            FilesystemWrite,
            "filesystem.write = ['/a/b']",
            "filesystem.write = ['/a']",
            true,
        ),
        (
            FilesystemWrite,
            "filesystem.write = ['/a']",
            "filesystem.mounts = 'keep'",
            false,
        ),
        (
            NetworkMode,
            "network.mode = 'none'",
            "network.mode = 'local'",
            false,
        ),
        (
            NetworkMode,
            "network.mode = 'local'",
            "network.mode = 'none'",
            true,
        ),
        (
            NetworkMode,
            "network.mode = 'local'",
            "network.mode = 'allowlist'",
            false,
        ),
        (
            NetworkMode,
            "network.mode = 'allowlist'",
            "network.mode = 'local'",
            true,
        ),
        (
            NetworkAllow,
            "network.allow = ['a.test']",
            "network.allow = ['a.test', 'b.test']",
            false,
        ),
        (
            NetworkAllow,
            "network.allow = ['a.test']",
            "network.limit = ['*']",
            false,
        ),
        (
            NetworkAllow,
            "network.allow = ['a.test:22']",
            "network.limit = ['a.test']",
            false,
        ),
        (
            NetworkAllow,
            "network.allow = ['a.b.test']",
            "network.allow = ['*.b.test']",
            false,
        ),
        (
            NetworkAllow,
            "network.allow = []",
            "network.allow = []",
            false,
        ),
        (
            NetworkAllow,
            "network.allow = ['a.test']",
            "network.allow = []",
            true,
        ),
        (
            NetworkAllow,
            "network.allow = ['a.test:22']",
            "network.allow = ['a.test']",
            true,
        ),
        (
            NetworkAllow,
            "network.allow = ['a.test:22']",
            "network.limit = ['*:443']",
            true,
        ),
        (
            NetworkAllow,
            "network.allow = ['b.test']",
            "network.limit = ['*.b.test']",
            true,
        ),
        (
            NetworkAllow,
            "network.allow = ['internal:db:5432']",
            "network.limit = ['*']",
            true,
        ),
        (
            NetworkAllow,
            "network.allow = ['internal:db:5432']",
            "network.limit = ['internal:*']",
            false,
        ),
        (
            NetworkAllow,
            "network.allow = ['192.0.2.1']",
            "network.limit = ['*']",
            true,
        ),
        (
            NetworkAllow,
            "network.allow = ['192.0.2.1:5353']",
            "network.limit = ['192.0.2.0/24']",
            false,
        ),
        (
            NetworkTemporary,
            "network.temporary = ['a.test for 10m', 'b.test until 2030-01-02T03:04:05Z']",
            "network.allow = ['a.test', 'b.test']",
            false,
        ),
        (
            NetworkTemporary,
            "network.temporary = ['a.test for 10m', 'b.test until 2030-01-02T03:04:05Z']",
            "network.temporary = ['a.test for 600s', 'b.test until 2030-01-02T04:04:05+01:00']",
            false,
        ),
        (
            NetworkTemporary,
            "network.temporary = ['GET https://a.test/x for 10m']",
            "network.temporary = ['a.test for 11m']",
            false,
        ),
        (
            NetworkTemporary,
            "network.temporary = ['a.test for 11m']",
            "network.temporary = ['a.test for 10m', 'b.test for 11m']",
            true,
        ),
        (
            NetworkTemporary,
            "network.temporary = ['a.test for 1s']",
            "network.temporary = ['a.test until 2999-01-02T03:04:05Z']",
            true,
        ),
        (
            NetworkTemporary,
            "network.temporary = ['a.test:22 for 10m']",
            "network.temporary = ['a.test for 10m']",
            true,
        ),
        (
            NetworkAllow,
            "network.allow = ['a.test']",
            "network.temporary = ['a.test for 366d']",
            true,
        ),
        (
            NetworkLimit,
            "network.limit = ['a.test']",
            "network.temporary = ['a.test for 366d']",
            true,
        ),
        (
            NetworkDeny,
            "network.deny = ['a.test', 'b.test']",
            "network.deny = ['a.test']",
            false,
        ),
        (
            NetworkDeny,
            "network.deny = ['*.test']",
            "network.deny = ['a.test']",
            true,
        ),
        (
            NetworkDeny,
            "network.deny = []",
            "network.deny = ['a.test']",
            true,
        ),
        (
            NetworkLimit,
            "network.limit = ['*.a.test']",
            "network.limit = ['*']",
            false,
        ),
        (
            NetworkLimit,
            "network.limit = ['a.test:443']",
            "network.allow = ['a.test']",
            false,
        ),
        (
            NetworkLimit,
            "network.limit = ['a.test']",
            "network.allow = ['a.test']",
            true,
        ),
        (
            NetworkLimit,
            "network.limit = ['a.test']",
            "network.limit = ['*:443']",
            true,
        ),
        (
            NetworkLimit,
            "network.limit = ['*']",
            "network.limit = ['*.a.test']",
            true,
        ),
        (
            NetworkConnections,
            "network.connections = 5",
            "network.connections = 5",
            false,
        ),
        (
            NetworkConnections,
            "network.connections = 6",
            "network.connections = 5",
            true,
        ),
        (
            NetworkConnectionsPerMinute,
            "network.connections-per-minute = 5",
            "network.connections-per-minute = 6",
            false,
        ),
        (
            NetworkConnectionsPerMinute,
            "network.connections-per-minute = 6",
            "network.connections-per-minute = 5",
            true,
        ),
        (
            NetworkUpload,
            "network.upload = '1MiB'",
            "network.upload = '2MiB'",
            false,
        ),
        (
            NetworkUpload,
            "network.upload = '1025KiB'",
            "network.upload = '1MiB'",
            true,
        ),
        (
            NetworkHosts,
            "network.hosts = 5",
            "network.hosts = 6",
            false,
        ),
        (NetworkHosts, "network.hosts = 6", "network.hosts = 5", true),
        (
            NetworkCoolDown,
            "network.cool-down = 6",
            "network.cool-down = 5",
            false,
        ),
        (
            NetworkCoolDown,
            "network.cool-down = 5",
            "network.cool-down = 6",
            true,
        ),
        (
            NetworkOnUnknown,
            "network.on-unknown = 'ask'",
            "network.on-unknown = 'deny'",
            false,
        ),
        (
            NetworkAskSeconds,
            "network.ask-seconds = 60",
            "network.ask-seconds = 5",
            false,
        ),
        (
            NetworkInbound,
            "network.inbound = ['80', '8080']",
            "network.inbound = ['*']",
            false,
        ),
        (
            NetworkInbound,
            "network.inbound = ['80', '8080']",
            "network.inbound = ['80']",
            true,
        ),
        (
            NetworkInbound,
            "network.inbound = ['*']",
            "network.inbound = ['80']",
            true,
        ),
        (
            NetworkConnect,
            "network.connect = ['5432', 'db.test:80']",
            "network.connect = ['*']",
            false,
        ),
        (
            NetworkConnect,
            "network.connect = ['5432', '/run/x/redis.sock']",
            "network.connect = ['5432']",
            true,
        ),
        (
            NetworkConnect,
            "network.connect = ['127.0.0.1:5432']",
            "network.connect = ['5432']",
            false,
        ),
        (
            NetworkSshKeys,
            "network.ssh-keys = ['SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA']",
            "network.ssh-keys = ['*']",
            false,
        ),
        (
            NetworkSshKeys,
            "network.ssh-keys = ['SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA']",
            "network.ssh-keys = ['SHA256:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA']",
            true,
        ),
        (
            NetworkProxyEnv,
            "network.proxy-env = 'on'",
            "network.proxy-env = 'off'",
            false,
        ),
        (
            NetworkTls,
            "network.tls = 'open'",
            "network.tls = 'pass'",
            false,
        ),
        (
            NetworkUserSecrets,
            "network.user-secrets = 'on'",
            "network.user-secrets = 'off'",
            true,
        ),
        (
            SyscallsProfile,
            "syscalls.profile = 'paranoid'",
            "syscalls = { profile = 'agent' }",
            false,
        ),
        (
            SyscallsProfile,
            "syscalls.profile = 'agent'",
            "syscalls = { profile = 'paranoid' }",
            true,
        ),
        (
            SyscallsProfile,
            "syscalls = { profile = 'debug', limit = [] }",
            "syscalls = { profile = 'agent', limit = [] }",
            true,
        ),
        (
            SyscallsProfile,
            "syscalls = { profile = 'debug', limit = [] }",
            "syscalls = { profile = 'agent', limit = ['ptrace'] }",
            true,
        ),
        (
            SyscallsProfile,
            "syscalls = { profile = 'debug', limit = [] }",
            "syscalls = { profile = 'agent', limit = ['process_vm_readv', 'process_vm_writev', 'ptrace'] }",
            false,
        ),
        (
            SyscallsProfile,
            "syscalls = { profile = 'debug', limit = [] }",
            "syscalls = { profile = 'agent', limit = ['ptrace'], allow = ['process_vm_readv', 'process_vm_writev'] }",
            false,
        ),
        (
            SyscallsProfile,
            "syscalls = { profile = 'debug', limit = [] }",
            "syscalls = { profile = 'paranoid', limit = ['process_vm_readv', 'process_vm_writev', 'ptrace'] }",
            true,
        ),
        (
            SyscallsProfile,
            "syscalls = { profile = 'debug', limit = [] }",
            "syscalls = { profile = 'debug' }",
            false,
        ),
        (
            SyscallsAllow,
            "syscalls.allow = ['bpf']",
            "syscalls.allow = ['bpf', 'ptrace']",
            false,
        ),
        (
            SyscallsAllow,
            "syscalls.allow = ['bpf']",
            "syscalls.allow = []",
            true,
        ),
        (
            SyscallsAllow,
            "syscalls = { allow = ['bpf', 'ptrace'], limit = [] }",
            "syscalls = { allow = ['bpf'], limit = ['ptrace'] }",
            false,
        ),
        (
            SyscallsAllow,
            "syscalls = { allow = ['bpf', 'ptrace'], limit = [] }",
            "syscalls.limit = ['ptrace']",
            true,
        ),
        (
            SyscallsLimit,
            "syscalls.limit = ['bpf', 'ptrace']",
            "syscalls = { allow = ['bpf'], limit = ['ptrace'] }",
            false,
        ),
        (
            SyscallsLimit,
            "syscalls.limit = ['bpf']",
            "syscalls.limit = ['ptrace']",
            true,
        ),
        (
            SyscallsDeny,
            "syscalls.deny = ['bpf', 'ptrace']",
            "syscalls.deny = ['bpf']",
            false,
        ),
        (
            SyscallsDeny,
            "syscalls.deny = ['ptrace']",
            "syscalls.deny = ['bpf']",
            true,
        ),
        (
            SyscallsDeny,
            "syscalls.deny = []",
            "syscalls.deny = ['bpf']",
            true,
        ),
        (
            PrivilegesCapabilities,
            "privileges.capabilities = ['KILL']",
            "",
            false,
        ),
        (
            PrivilegesCapabilities,
            "privileges.capabilities = ['NET_RAW']",
            "",
            true,
        ),
        (
            PrivilegesSetId,
            "privileges.set-id = 'on'",
            "privileges.set-id = 'auto'",
            true,
        ),
        (
            PrivilegesSetId,
            "privileges.set-id = 'auto'",
            "privileges.set-id = 'off'",
            true,
        ),
        (
            PrivilegesSetId,
            "privileges.set-id = 'auto'",
            "privileges.set-id = 'on'",
            false,
        ),
        (
            FilesystemWorkspaceAt,
            "filesystem.workspace-at = ['/a']",
            "filesystem.workspace-at = ['/a', '/b']",
            false,
        ),
        (
            FilesystemWorkspaceAt,
            "filesystem.workspace-at = ['/a']",
            "",
            false,
        ),
        (
            FilesystemWorkspaceAt,
            "",
            "filesystem.workspace-at = ['/a']",
            true,
        ),
        (
            FilesystemWorkspaceAt,
            "filesystem.workspace-at = ['/c']",
            "filesystem.workspace-at = ['/a']",
            true,
        ),
        (
            FilesystemSearch,
            "filesystem.search = 'partial'",
            "filesystem.search = 'complete'",
            true,
        ),
        (
            FilesystemCredentials,
            "filesystem.credentials = ['.npmrc']",
            "filesystem.credentials = ['.codex/auth.json']",
            true,
        ),
        (
            FilesystemUnprotected,
            "filesystem.unprotected = ['.vscode']",
            "filesystem.unprotected = ['.idea']\nfilesystem.mounts = 'volumes'",
            true,
        ),
        (
            FilesystemUnprotected,
            "filesystem.unprotected = ['.vscode']",
            "filesystem.mounts = 'keep'",
            false,
        ),
        (
            FilesystemGitConfig,
            "filesystem.git-config = 'compared'",
            "filesystem.git-config = 'read-only'",
            true,
        ),
        (
            FilesystemSecrets,
            "filesystem.secrets = 'read-only'",
            "filesystem.secrets = 'drop'",
            true,
        ),
        (
            FilesystemServiceAccountToken,
            "filesystem.service-account-token = 'read-only'",
            "filesystem.service-account-token = 'drop'",
            true,
        ),
        (
            FilesystemLeftOut,
            "filesystem.left-out = 'report'",
            "filesystem.left-out = 'error'",
            true,
        ),
        (TimeWall, "time.wall = '2h'", "time.wall = '1h'", true),
        (TimeWall, "time.wall = '60m'", "time.wall = '1h'", false),
        (
            TimeWall,
            "time.wall = 'unlimited'",
            "time.wall = '366d'",
            true,
        ),
        (TimeIdle, "time.idle = '6m'", "time.idle = '5m'", true),
        (TimeIdle, "time.idle = '300s'", "time.idle = '5m'", false),
        (
            TimeIdle,
            "time.idle = 'unlimited'",
            "time.idle = '5m'",
            true,
        ),
        (TimeExec, "time.exec = '3m'", "time.exec = '2m'", true),
        (TimeExec, "time.exec = '120s'", "time.exec = '2m'", false),
        (
            TimeExec,
            "time.exec = 'unlimited'",
            "time.exec = '2m'",
            true,
        ),
        (TimeGrace, "time.grace = '11s'", "time.grace = '10s'", true),
        (TimeGrace, "time.grace = '0s'", "time.grace = '10s'", false),
        (
            TimeSleep,
            "time.sleep = 'pauses'",
            "time.sleep = 'counts'",
            true,
        ),
        (
            TimeSleep,
            "time.sleep = 'counts'",
            "time.sleep = 'pauses'",
            false,
        ),
        (LimitsPids, "limits.pids = 5000", "limits.pids = 4096", true),
        (LimitsPids, "limits.pids = 16", "limits.pids = 4096", false),
        (
            LimitsMemory,
            "limits.memory = '2GiB'",
            "limits.memory = '1GiB'",
            true,
        ),
        (
            LimitsCpus,
            "limits.cpus = 'unlimited'",
            "limits.cpus = '2'",
            true,
        ),
        (
            ReportDenied,
            "report.denied = 'on'",
            "report.denied = 'off'",
            false,
        ),
        (
            ReportNotice,
            "report.notice = 'on'",
            "report.notice = 'off'",
            false,
        ),
        (
            ReportAudit,
            "report.audit = 'strict'",
            "report.audit = 'off'",
            false,
        ),
    ];
    for (field, asked, ceiling, over) in table {
        let exceeded = exceeds(&policy("reaching", asked), &policy("reaching", ceiling));
        let fields: Vec<Field> = exceeded.iter().map(|exceeded| exceeded.field).collect();
        let expected: &[Field] = if *over { &[*field] } else { &[] };
        assert_eq!(fields, expected, "{asked} in {ceiling}");
    }
    // Every field has a row in which it exceeds, except for fields that grant nothing: the proxy variables, the report
    // of denials, where scratch is, and who owns files. Permission for annotations counts only without a ceiling.
    for field in Field::ALL {
        let exceeds = table.iter().any(|row| row.0 == *field && row.3);
        let free = [
            FilesystemScratchOn,
            FilesystemIdmap,
            NetworkProxyEnv,
            NetworkTls,
            NetworkOnUnknown,
            NetworkAskSeconds,
            ReportDenied,
            ReportNotice,
            ReportAudit,
            ReportLearn,
            AnnotationsLoosen,
        ];
        assert_eq!(exceeds, !free.contains(field), "{field}");
    }
    assert_eq!(PrivilegesCapabilities.as_str(), capabilities);
}

#[test]
fn an_excess_names_the_excess_part_and_the_allowed_value() {
    let asked = policy(
        "standard",
        "filesystem.write = ['/a', '/b']\nsyscalls.deny = ['bpf']\nprivileges.capabilities = ['NET_RAW', 'KILL']\n\
         network = { allow = ['a.test:22', 'b.test'], deny = ['x.test'], hosts = 300 }",
    );
    let ceiling = policy(
        "strict",
        "filesystem.write = ['/b']\nsyscalls.deny = ['ptrace']\nprivileges.capabilities = ['KILL']\n\
         network = { allow = ['b.test'], limit = ['*.c.test'], deny = ['y.test'] }",
    );
    let texts: Vec<String> = exceeds(&asked, &ceiling)
        .into_iter()
        .map(|exceeded| {
            let ExceededField {
                field,
                asked,
                allowed,
            } = exceeded;
            format!("{field}: {asked}: {allowed}")
        })
        .collect();
    assert_eq!(
        texts,
        [
            "filesystem.root: engine: at most read-only",
            "filesystem.ephemeral: home, var, run: tmp, empty-home",
            "filesystem.scratch: 4GiB: at most 16MiB",
            "filesystem.mounts: volumes: at most drop",
            "filesystem.write: /a, /b: nothing",
            "filesystem.git-config: compared: at most read-only",
            "network.allow: a.test:22: *.c.test, b.test",
            "network.deny: a list without y.test: a list with y.test",
            "network.hosts: 300: at most 256",
            "syscalls.limit: process_vm_readv, process_vm_writev, ptrace: nothing",
            "syscalls.deny: a list without ptrace: a list with ptrace",
            "privileges.capabilities: CAP_NET_RAW: CAP_KILL",
            "privileges.set-id: auto: at most off",
            "limits.pids: 4096: at most 1024",
            "limits.memory: unlimited: at most 50%",
        ]
    );
}

#[test]
fn a_capability_needs_the_nodes_permission_and_the_ceilings() {
    let asked = || case().field("privileges.capabilities", "NET_RAW");
    let leave = "[allow]\ncapabilities = [\"NET_RAW\"]";
    assert!(matches!(
        asked().error(),
        PolicyError::CapabilityNotAllowed { .. }
    ));
    assert!(matches!(
        asked().node(leave).error(),
        PolicyError::Loosened { .. }
    ));
    let to_annotations = format!("{leave}\nannotations = [\"privileges.capabilities\"]");
    assert!(matches!(
        asked().node(&to_annotations).error(),
        PolicyError::ExceedsCeiling { .. }
    ));
    let both = asked()
        .node(&format!("ceiling = \"anything\"\n{leave}"))
        .file("anything", ANYTHING);
    assert_eq!(
        both.resolved().policy.privileges.capabilities,
        ["NET_RAW".parse().unwrap()].into()
    );
    // A ceiling that names it does not give the permission.
    let ceiling = case()
        .node("ceiling = \"anything\"")
        .file("anything", ANYTHING);
    assert!(matches!(
        ceiling.error(),
        PolicyError::CapabilityNotAllowed { .. }
    ));
}
