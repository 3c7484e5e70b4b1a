//! Properties that hold for all requests: a thousand random containers, the same ones in each run.

use std::sync::LazyLock;

use super::*;
use crate::rules::{Decision, EgressRule, Host, NetworkRule};

/// xorshift64*: good enough to pick words, and the same on every machine.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize;
        high % sides
    }

    fn pick<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len())]
    }

    fn some<'a>(&mut self, words: &[&'a str]) -> Vec<&'a str> {
        let mut picked = words.to_vec();
        picked.retain(|_| self.below(3) == 0);
        picked
    }
}

const ROUNDS: usize = 1000;
const SYSCALLS: [&str; 4] = ["ptrace", "keyctl", "bpf", "io_uring_setup"];
const CAPABILITIES: [&str; 4] = ["CHOWN", "KILL", "SETUID", "NET_RAW"];
const NODE: &str = "ceiling = \"ceiling\"\n[allow]\ncapabilities = [\"NET_RAW\"]\nlearn = true";

/// The TOML syntax of a field's value. In annotations all values are texts.
#[derive(Clone, Copy)]
enum Shape {
    List,
    Word,
    Number,
}

const RULES: [&str; 6] = [
    "a.test",
    "a.test:22",
    "b.a.test:443",
    "*.a.test",
    "internal:db:5432",
    "192.0.2.1:5353",
];
/// One end for each rule.
const TEMPORARY: [&str; 4] = [
    "a.test for 10m",
    "a.test:22 until 2030-01-02T03:04:05Z",
    "*.a.test for 1h",
    "c.test for 1d",
];
const LIMITS: [&str; 6] = [
    "*",
    "*:443",
    "*.a.test",
    "a.test",
    "internal:*",
    "192.0.2.0/24",
];

/// Values for any field.
fn words(dice: &mut Dice, field: Field) -> (Shape, Vec<&'static str>) {
    use Shape::{List, Number, Word};
    match field {
        Field::FilesystemEphemeral => (List, dice.some(&["tmp", "home", "var", "empty-home"])),
        Field::FilesystemScratch => (Word, vec![dice.pick(&["1MiB", "1025KiB", "2GiB"])]),
        Field::FilesystemWrite => (List, dice.some(&["/a", "/b", "/a/b"])),
        Field::NetworkAllow => (List, dice.some(&RULES)),
        Field::NetworkTemporary => (List, dice.some(&TEMPORARY)),
        Field::NetworkDeny => (List, dice.some(&RULES[..2])),
        Field::NetworkLimit => (List, dice.some(&LIMITS)),
        Field::NetworkAskSeconds => (Number, vec![dice.pick(&["1", "30", "600"])]),
        Field::NetworkCoolDown => (Number, vec![dice.pick(&["0", "60", "86400"])]),
        Field::NetworkInbound => (List, dice.some(&["80", "8080", "*"])),
        Field::NetworkConnect => (
            List,
            dice.some(&["5432", "db.test:80", "/run/x/redis.sock", "*"]),
        ),
        Field::NetworkSshKeys => {
            let key = "SHA256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
            (List, dice.some(&[key, "*"]))
        }
        Field::NetworkConnections | Field::NetworkConnectionsPerMinute | Field::NetworkHosts => {
            (Number, vec![dice.pick(&["1", "256", "1000000"])])
        }
        Field::NetworkUpload => (Word, vec![dice.pick(&["1MiB", "1GiB", "64GiB"])]),
        Field::SyscallsAllow | Field::SyscallsDeny | Field::SyscallsLimit => {
            (List, dice.some(&SYSCALLS))
        }
        Field::PrivilegesCapabilities => (List, dice.some(&CAPABILITIES)),
        Field::FilesystemWorkspaceAt => (List, dice.some(&["/a", "/w"])),
        Field::FilesystemCredentials => (List, dice.some(&[".npmrc", ".codex/auth.json"])),
        Field::FilesystemUnprotected => (List, dice.some(&[".vscode", ".git/hooks"])),
        Field::LimitsPids => (Word, vec![dice.pick(&["16", "4096", "unlimited"])]),
        Field::LimitsMemory => (Word, vec![dice.pick(&["1GiB", "2GiB", "unlimited"])]),
        Field::LimitsCpus => (Word, vec![dice.pick(&["0.5", "2", "unlimited"])]),
        Field::AnnotationsLoosen => (List, dice.some(&["network.mode", "syscalls.allow"])),
        Field::TimeWall | Field::TimeIdle | Field::TimeExec => {
            (Word, vec![dice.pick(&["1s", "30m", "unlimited"])])
        }
        Field::TimeGrace => (Word, vec![dice.pick(&["0s", "10s", "1h"])]),
        Field::ReportAudit => (Word, vec![dice.pick(&["off", "strict", "permissive"])]),
        // All possible words.
        other => (Word, vec![dice.pick(WORDS.get(&other).expect("values"))]),
    }
}

/// The words of each field that takes one of a few words.
static WORDS: LazyLock<BTreeMap<Field, Vec<&'static str>>> = LazyLock::new(|| {
    let rows = table::rows().into_iter();
    rows.filter_map(|row| {
        let words: &'static str = row.values.leak();
        let words = words.strip_prefix("one of ")?;
        Some((row.field, words.split(", ").collect()))
    })
    .collect()
});

/// A complete policy file.
fn policy_text(dice: &mut Dice) -> String {
    let mut line = |field: &Field| line(dice, *field);
    let text: String = Field::ALL.iter().map(&mut line).collect();
    // One author may not list hosts under a mode that reaches none, nor allow and deny the same call.
    let closed = !text.contains("network.mode = \"allowlist\"");
    let without = |line: &&str| {
        let reaching = ["network.allow", "network.temporary", "network.on-unknown"];
        let reaches = reaching.iter().any(|field| line.starts_with(field));
        let drops = line.starts_with("filesystem.write") && text.contains("mounts = \"drop\"");
        !(closed && reaches || drops || line.starts_with("syscalls.allow"))
    };
    let mut kept: Vec<&str> = text.lines().filter(without).collect();
    kept.insert(0, "base = \"standard\"");
    kept.join("\n") + "\n"
}

fn line(dice: &mut Dice, field: Field) -> String {
    match words(dice, field) {
        (Shape::List, items) => format!("{field} = {items:?}\n"),
        (Shape::Word, items) => format!("{field} = {:?}\n", items[0]),
        (Shape::Number, items) => format!("{field} = {}\n", items[0]),
    }
}

/// A node with a random ceiling and policy, and a container that changes some fields.
fn container(dice: &mut Dice) -> Case {
    let ceiling = match dice.below(2) {
        0 => ceilings::ANYTHING.to_owned(),
        _ => policy_text(dice),
    };
    let mut case = case()
        .node(NODE)
        .file("ceiling", &ceiling)
        .file("asked", &policy_text(dice))
        .field("policy", dice.pick(&["asked", "ceiling"]));
    if dice.below(4) == 0 {
        case = case.flag("asked");
    }
    for field in Field::ALL.iter().filter(|field| field.has_annotation()) {
        if dice.below(3) == 0 {
            let (_, items) = words(dice, *field);
            case = case.field(field.as_str(), &items.join(", "));
        }
    }
    case
}

/// The policy that its file defines.
fn load(text: &str) -> Policy {
    let case = case()
        .node("[allow]\ncapabilities = [\"NET_RAW\"]\nlearn = true")
        .file("alone", text);
    catalogue::policy(&case.sources(), &"alone".parse().unwrap()).unwrap()
}

#[test]
fn nothing_that_is_resolved_exceeds_a_ceiling() {
    let mut dice = Dice(0x5eed);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..ROUNDS {
        let case = container(&mut dice);
        match case.resolve() {
            Ok(Selection::Policy(resolved)) => {
                taken += 1;
                let ceilings = &resolved.ceilings;
                assert_eq!(ceilings.len(), 1 + usize::from(case.flag.is_some()));
                for ceiling in ceilings {
                    let limit = load(case.text(ceiling.policy.as_str()));
                    assert_eq!(exceeds(&resolved.policy, &limit), []);
                }
            }
            Ok(other) => panic!("{other:?}"),
            Err(PolicyError::ExceedsCeiling { over, .. }) => {
                refused += 1;
                assert!(!over.is_empty());
            }
            Err(
                PolicyError::AnnotationsDisagree { .. }
                | PolicyError::WriteDropped { .. }
                | PolicyError::AllowsDenied { .. }
                | PolicyError::NothingToApprove { .. },
            ) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert!(taken > 100 && refused > 100, "{taken} {refused}");
}

/// Whether a ceiling allows a connection, compared rule by rule.
fn lets(ceiling: &Network, host: &Host, port: u16) -> bool {
    let named = |rule: &&NetworkRule| match host {
        Host::Name(name) => rule.target.matches_name(name),
        Host::Address(address) => rule.target.matches_address(*address),
    };
    let on = |rule: &NetworkRule| rule.port.is_none_or(|named| named == port);
    let open = ceiling.mode == NetworkMode::Allowlist;
    let allowed = |rule: &NetworkRule| rule.allowed_port() == port;
    let of = |rules: &BTreeSet<EgressRule>| {
        let rules = rules.iter().filter_map(EgressRule::connection).cloned();
        rules.collect::<Vec<_>>()
    };
    let listed = of(&ceiling.allow).iter().filter(named).any(allowed)
        || of(&ceiling.limit).iter().filter(named).any(on);
    open && listed && !of(&ceiling.deny).iter().filter(named).any(on)
}

#[test]
fn no_host_is_reached_beyond_a_ceiling() {
    let mut dice = Dice(0xeb_5eed);
    let (mut reached, mut closed) = (0, 0);
    for _ in 0..ROUNDS {
        let mut ceiling = String::from("base = \"standard\"\nnetwork.mode = \"allowlist\"\n");
        for field in [Field::NetworkAllow, Field::NetworkDeny, Field::NetworkLimit] {
            ceiling += &line(&mut dice, field);
        }
        let case = case()
            .node("ceiling = \"ceiling\"")
            .file("ceiling", &ceiling)
            .field("policy", "ceiling")
            .field("network.allow", &dice.some(&RULES).join(","))
            .field("network.deny", &dice.some(&RULES).join(","));
        let Ok(Selection::Policy(resolved)) = case.resolve() else {
            continue;
        };
        let wall = crate::plan::own_network::plan(&resolved, BTreeMap::new(), Default::default());
        for ceiling in &resolved.ceilings {
            let limit = load(case.text(ceiling.policy.as_str())).network;
            for host in ["a.test", "b.a.test", "c.test", "db", "192.0.2.1"] {
                let host: Host = host.parse().unwrap();
                for port in [443, 22, 53, 5432] {
                    match wall.rules.decide(&host, port) {
                        Decision::Allow(rule) => {
                            reached += 1;
                            assert!(lets(&limit, &host, port), "{host}:{port} by {rule}");
                        }
                        Decision::Deny(_) => closed += 1,
                    }
                }
            }
        }
    }
    assert!(reached > 100 && closed > 100, "{reached} {closed}");
}

#[test]
fn adding_an_allow_never_removes_a_deny() {
    let mut dice = Dice(0xa110);
    let mut tried = 0;
    for _ in 0..ROUNDS {
        let before = container(&mut dice);
        let Ok(Selection::Policy(without)) = before.resolve() else {
            continue;
        };
        let allow: BTreeSet<&str> = without
            .policy
            .syscalls
            .allow
            .iter()
            .map(|name| name.as_str())
            .chain([dice.pick(&SYSCALLS)])
            .collect();
        let allow: Vec<&str> = allow.into_iter().collect();
        let after = before.field("syscalls.allow", &allow.join(","));
        let Ok(Selection::Policy(with)) = after.resolve() else {
            continue;
        };
        tried += 1;
        let (without, with) = (without.policy.syscalls, with.policy.syscalls);
        assert!(with.deny.is_superset(&without.deny));
        assert!(with.allowed().all(|name| !with.deny.contains(name)));
        assert!(
            without
                .allowed()
                .all(|name| with.allowed().any(|other| other == name))
        );
    }
    assert!(tried > 100, "{tried}");
}

#[test]
fn containment_is_an_order() {
    let mut dice = Dice(0x04de4);
    let within = |asked: &Policy, ceiling: &Policy| exceeds(asked, ceiling).is_empty();
    // Similar policies: otherwise hardly any two would contain each other.
    let texts: Vec<String> = (0..140)
        .map(|_| {
            let mut text = String::from("base = \"standard\"\nnetwork.mode = \"allowlist\"\n");
            let once = [
                Field::NetworkMode,
                Field::SyscallsAllow,
                Field::FilesystemMounts,
            ];
            for field in Field::ALL.iter().filter(|f| !once.contains(f)) {
                if dice.below(5) == 0 {
                    text += &line(&mut dice, *field);
                }
            }
            text
        })
        .collect();
    let policies: Vec<Policy> = texts.iter().map(|text| load(text)).collect();
    let mut chains = 0;
    for a in &policies {
        assert!(within(a, a));
        for b in policies.iter().filter(|b| within(a, b)) {
            for c in policies.iter().filter(|c| within(b, c)) {
                chains += 1;
                assert!(within(a, c), "{a:?}\n{b:?}\n{c:?}");
            }
        }
    }
    assert!(chains > 250, "{chains}");
}

#[test]
fn a_resolved_policy_written_as_a_file_resolves_to_itself() {
    let mut dice = Dice(0x70e1);
    let mut tried = 0;
    for _ in 0..ROUNDS {
        let case = container(&mut dice);
        let Ok(Selection::Policy(first)) = case.resolve() else {
            continue;
        };
        tried += 1;
        let mut again = load(&first.policy.to_toml());
        again.name = first.policy.name.clone();
        assert_eq!(again, first.policy);
        assert_eq!(again.to_toml(), first.policy.to_toml());
    }
    assert!(tried > 100, "{tried}");
}
