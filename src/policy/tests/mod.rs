//! The module as its callers use it: sources in, selection or error out.

use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::rules::EgressRule;

/// A node, a call and a container, built from their differences to an empty one.
#[derive(Default)]
struct Case {
    annotations: BTreeMap<String, String>,
    image: ImageAnnotations,
    flag: Option<String>,
    node: NodeConfig,
    files: BTreeMap<String, FileText>,
    presets: BTreeMap<String, FileText>,
    asked: WrapOptions,
    tool: Tool,
}

impl Case {
    fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    fn field(self, field: &str, value: &str) -> Self {
        self.annotation(&format!("dev.agentbox.{field}"), value)
    }

    fn of(mut self, tool: Tool) -> Self {
        self.tool = tool;
        self
    }

    fn flag(mut self, name: &str) -> Self {
        self.flag = Some(name.to_owned());
        self
    }

    fn node(mut self, text: &str) -> Self {
        self.node = NodeConfig::parse(text).unwrap();
        self
    }

    fn file(mut self, name: &str, text: &str) -> Self {
        let text = FileText::Readable(text.to_owned());
        self.files.insert(name.to_owned(), text);
        self
    }

    /// The text of a policy file.
    fn text(&self, name: &str) -> &str {
        match &self.files[name] {
            FileText::Readable(text) => text,
            FileText::Unreadable(why) => panic!("{why}"),
        }
    }

    fn unreadable(mut self, name: &str, why: &str) -> Self {
        let text = FileText::Unreadable(why.to_owned());
        self.files.insert(name.to_owned(), text);
        self
    }

    fn preset(mut self, name: &str, rules: &str) -> Self {
        let text = format!("description = \"a preset of a test\"\nrules = {rules}");
        self.presets
            .insert(name.to_owned(), FileText::Readable(text));
        self
    }

    fn asked(mut self, option: FieldOption) -> Self {
        self.asked.options.push(option);
        self
    }

    fn allow(self, hosts: &str) -> Self {
        self.asked(FieldOption::adding("--allow", Field::NetworkAllow, hosts))
    }

    fn set(self, text: &str) -> Self {
        self.asked(FieldOption::set(text).unwrap())
    }

    fn chosen(mut self, policy: PolicyOption) -> Self {
        self.asked.policy = Some(policy);
        self
    }

    fn sources(&self) -> Sources<'_> {
        Sources {
            annotations: &self.annotations,
            image: self.image,
            flag: self.flag.as_deref(),
            node: &self.node,
            files: &self.files,
            presets: &self.presets,
            asker: Asker::Container,
            tool: self.tool,
            asked: WrapOptions::NOTHING,
        }
        .asked_by_wrap(&self.asked)
    }

    fn resolve(&self) -> Result<Selection, PolicyError> {
        resolve(&self.sources())
    }

    fn resolved(&self) -> ResolvedPolicy {
        match self.resolve().unwrap() {
            Selection::Policy(resolved) => *resolved,
            other => panic!("{other:?}"),
        }
    }

    fn error(&self) -> PolicyError {
        self.resolve().unwrap_err()
    }
}

fn case() -> Case {
    Case::default()
}

fn builtin(name: &str) -> Policy {
    case().flag(name).resolved().policy
}

/// The presets of `permissive`, expanded.
fn services() -> BTreeSet<EgressRule> {
    let mut presets = preset::builtin();
    ["anthropic", "github", "google-ai", "openai"]
        .into_iter()
        .flat_map(|name| presets.remove(&name.parse().unwrap()).unwrap().rules)
        .collect()
}

/// The fields that annotations may loosen under `standard` and `permissive`.
const LOOSEN: [Field; 15] = [
    Field::FilesystemScratch,
    Field::FilesystemSecrets,
    Field::FilesystemWrite,
    Field::LimitsPids,
    Field::NetworkAllow,
    Field::NetworkConnections,
    Field::NetworkConnectionsPerMinute,
    Field::NetworkHosts,
    Field::NetworkInbound,
    Field::NetworkMode,
    Field::NetworkOnUnknown,
    Field::NetworkTemporary,
    Field::NetworkUpload,
    Field::SyscallsAllow,
    Field::SyscallsProfile,
];

/// The calls that a debugger needs for the container's own processes.
const DEBUGGERS: [&str; 3] = ["process_vm_readv", "process_vm_writev", "ptrace"];

#[test]
fn the_built_in_policies_follow_the_design() {
    let nine: BTreeSet<Capability> = Capability::ORDINARY.into();
    let all: BTreeSet<EphemeralDir> = [
        EphemeralDir::Tmp,
        EphemeralDir::Home,
        EphemeralDir::Var,
        EphemeralDir::Run,
    ]
    .into();
    let time = |grace: &str, sleep| Time {
        wall: TimeLimit::Unlimited,
        idle: TimeLimit::Unlimited,
        exec: TimeLimit::Unlimited,
        grace: grace.parse().unwrap(),
        sleep,
    };
    let expect =
        |name: &str, filesystem, network, capabilities, [pids, memory]: [&str; 2]| Policy {
            name: name.parse().unwrap(),
            filesystem,
            network,
            syscalls: Syscalls {
                profile: SyscallProfile::Agent,
                allow: BTreeSet::new(),
                deny: BTreeSet::new(),
                limit: match name {
                    "strict" => BTreeSet::new(),
                    _ => DEBUGGERS.map(|name| name.parse().unwrap()).into(),
                },
            },
            privileges: Privileges {
                capabilities,
                set_id: match name {
                    "strict" => SetIdRule::Off,
                    "permissive" => SetIdRule::On,
                    _ => SetIdRule::Auto,
                },
            },
            limits: Limits {
                pids: pids.parse().unwrap(),
                memory: memory.parse().unwrap(),
                cpus: CpuLimit::Unlimited,
            },
            time: match name {
                "permissive" => time("10m", SleepRule::Pauses),
                _ => time("10s", SleepRule::Counts),
            },
            report: Report {
                denied: Switch::Off,
                notice: Switch::Off,
                audit: AuditedPolicy::off(),
                learn: Switch::Off,
            },
            annotations: Annotations {
                loosen: match name {
                    "strict" => [
                        Field::NetworkAllow,
                        Field::NetworkOnUnknown,
                        Field::NetworkTemporary,
                    ]
                    .into(),
                    _ => LOOSEN.into(),
                },
            },
        };
    let files = |root, ephemeral, scratch: &str, mounts| Filesystem {
        root,
        ephemeral,
        scratch: scratch.parse().unwrap(),
        scratch_on: match mounts {
            MountRule::Drop => ScratchOn::Memory,
            MountRule::Keep | MountRule::ReadOnly | MountRule::Volumes => ScratchOn::Auto,
        },
        workspace: Access::ReadWrite,
        mounts,
        write: BTreeSet::new(),
        idmap: IdMapRule::Auto,
        workspace_at: BTreeSet::new(),
        search: match mounts {
            MountRule::Keep => SearchRule::Partial,
            MountRule::Drop | MountRule::ReadOnly | MountRule::Volumes => SearchRule::Complete,
        },
        credentials: BTreeSet::new(),
        unprotected: BTreeSet::new(),
        git_config: match mounts {
            MountRule::Drop => GitConfigRule::ReadOnly,
            MountRule::Keep | MountRule::ReadOnly | MountRule::Volumes => GitConfigRule::Compared,
        },
        secrets: match mounts {
            MountRule::Keep => SecretRule::ReadOnly,
            MountRule::Drop | MountRule::ReadOnly | MountRule::Volumes => SecretRule::Drop,
        },
        service_account_token: SecretRule::Drop,
        left_out: LeftOut::Report,
    };
    let strict = files(
        RootAccess::ReadOnly,
        [EphemeralDir::Tmp, EphemeralDir::EmptyHome].into(),
        "16MiB",
        MountRule::Drop,
    );
    let standard = files(RootAccess::Engine, all.clone(), "4GiB", MountRule::Volumes);
    let mut ci = files(
        RootAccess::Ephemeral,
        all.clone(),
        "16GiB",
        MountRule::Volumes,
    );
    ci.write = [
        "/__t",
        "/__w",
        "/__w/_temp",
        "/__w/_tool",
        "/builds",
        "/cache",
        "/github/home",
        "/github/workflow",
    ]
    .map(|place| place.parse().unwrap())
    .into();
    ci.unprotected = ["*"].map(|name| name.parse().unwrap()).into();
    let permissive = files(RootAccess::Engine, all, "16GiB", MountRule::Keep);
    let count = |number: &str| number.parse().unwrap();
    let closed = |mode| Network {
        mode,
        allow: BTreeSet::new(),
        temporary: BTreeSet::new(),
        deny: BTreeSet::new(),
        limit: BTreeSet::new(),
        on_unknown: OnUnknown::Deny,
        ask_seconds: "30".parse().unwrap(),
        cool_down: "0".parse().unwrap(),
        proxy_env: Switch::On,
        tls: TlsWay::Pass,
        user_secrets: Switch::On,
        connections: count("256"),
        connections_per_minute: count("1200"),
        upload: "1GiB".parse().unwrap(),
        hosts: count("256"),
        inbound: BTreeSet::new(),
        connect: BTreeSet::new(),
        ssh_keys: BTreeSet::new(),
    };
    let open = Network {
        mode: NetworkMode::Allowlist,
        allow: services(),
        limit: ["*", "service:*"].map(|rule| rule.parse().unwrap()).into(),
        connections: count("1024"),
        connections_per_minute: count("6000"),
        upload: "16GiB".parse().unwrap(),
        hosts: count("4096"),
        inbound: [InboundPort::Any].into(),
        connect: [ConnectService::Any].into(),
        ssh_keys: [SshKey::Any].into(),
        ..closed(NetworkMode::None)
    };
    let none_at_all = BTreeSet::new();
    let policies = [
        expect(
            "strict",
            strict,
            closed(NetworkMode::None),
            none_at_all,
            ["1024", "50%"],
        ),
        expect(
            "standard",
            standard,
            closed(NetworkMode::Local),
            nine.clone(),
            ["4096", "unlimited"],
        ),
        expect(
            "ci",
            ci,
            closed(NetworkMode::Local),
            nine.clone(),
            ["16384", "unlimited"],
        ),
        expect("permissive", permissive, open, nine, ["16384", "unlimited"]),
    ];
    for policy in policies {
        assert_eq!(builtin(policy.name.as_str()), policy);
    }
    assert_eq!(BUILTIN.len(), 4);
}

mod annotations;
mod ceilings;
mod errors;
mod files;
mod lists;
mod network;
mod precedence;
mod properties;
mod reference;
mod remedy;
mod requests;
mod temporary;
mod wrap_options;
