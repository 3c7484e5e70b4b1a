//! What holds for whatever is asked: a thousand random containers, the same ones each time.

use super::*;

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
const NODE: &str = "ceiling = \"ceiling\"\n[allow]\ncapabilities = [\"NET_RAW\"]";

/// Values for any of the fields, as annotations and TOML spell them.
fn words(dice: &mut Dice, field: Field) -> (bool, Vec<&'static str>) {
    match field {
        Field::FilesystemRoot => (false, vec![dice.pick(&["read-only", "ephemeral"])]),
        Field::FilesystemEphemeral => (true, dice.some(&["tmp", "home", "var"])),
        Field::FilesystemScratch => (false, vec![dice.pick(&["1MiB", "1025KiB", "2GiB"])]),
        Field::FilesystemWorkspace => {
            (false, vec![dice.pick(&["none", "read-only", "read-write"])])
        }
        Field::FilesystemMounts => (false, vec![dice.pick(&["drop", "read-only", "keep"])]),
        Field::FilesystemWrite => (true, dice.some(&["/a", "/b", "/a/b"])),
        Field::NetworkMode => (false, vec![dice.pick(&["none", "local"])]),
        Field::SyscallsAllow | Field::SyscallsDeny => (true, dice.some(&SYSCALLS)),
        Field::PrivilegesCapabilities => (true, dice.some(&CAPABILITIES)),
    }
}

/// A policy file that says everything.
fn policy_text(dice: &mut Dice) -> String {
    let line = |field: &Field| match words(dice, *field) {
        (true, items) => format!("{field} = {items:?}\n"),
        (false, items) => format!("{field} = {:?}\n", items[0]),
    };
    Field::ALL.iter().map(line).collect()
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
    for field in Field::ALL {
        if dice.below(3) == 0 {
            let (_, items) = words(dice, *field);
            case = case.field(field.as_str(), &items.join(", "));
        }
    }
    case
}

/// The same policy, alone on its node.
fn load(text: &str) -> Policy {
    case()
        .node("ceiling = \"alone\"\n[allow]\ncapabilities = [\"NET_RAW\"]")
        .file("alone", text)
        .resolved_as("alone")
}

impl Case {
    fn resolved_as(self, name: &str) -> Policy {
        self.flag(name).resolved().policy
    }
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
                    let limit = load(&case.files[ceiling.policy.as_str()]);
                    assert_eq!(exceeds(&resolved.policy, &limit), []);
                }
            }
            Ok(other) => panic!("{other:?}"),
            Err(PolicyError::ExceedsCeiling { over, .. }) => {
                refused += 1;
                assert!(!over.is_empty());
            }
            Err(PolicyError::AnnotationsDisagree { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    assert!(taken > 100 && refused > 100, "{taken} {refused}");
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
            .map(SyscallName::as_str)
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
    // Close to each other, or hardly any two would contain each other.
    let texts: Vec<String> = (0..40)
        .map(|_| {
            let mut text = String::from("base = \"standard\"\n");
            for field in Field::ALL {
                if dice.below(5) == 0 {
                    let (list, items) = words(&mut dice, *field);
                    text += &match list {
                        true => format!("{field} = {items:?}\n"),
                        false => format!("{field} = {:?}\n", items[0]),
                    };
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
    assert!(chains > 300, "{chains}");
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
