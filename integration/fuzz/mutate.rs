//! Mutations of JSON that keep it JSON: random bytes hardly ever get past a parser.

use serde_json::{Map, Value, json};

use crate::properties::Dice;

/// Words that some decision depends on.
const WORDS: [&str; 44] = [
    "",
    "/",
    "//",
    "..",
    "/..",
    "/proc",
    "/proc/self/root",
    "/sys/fs/cgroup",
    "/dev",
    "/dev/shm",
    "/etc/hosts",
    "/workspace",
    "/a/../../b",
    "a\0b",
    "\u{202e}",
    "%s%n",
    "bind",
    "rbind",
    "tmpfs",
    "proc",
    "cgroup2",
    "overlay",
    "rshared",
    "suid",
    "size=1g",
    "size=0",
    "network",
    "user",
    "strict",
    "standard",
    "permissive",
    "unconfined",
    "CAP_SYS_ADMIN",
    "SCMP_ACT_ALLOW",
    "SCMP_ACT_NOTIFY",
    "SCMP_ARCH_X86",
    "openat",
    "clone3",
    "RLIMIT_CORE",
    "LINUX32",
    "SCHED_FIFO",
    "drop",
    "read-write",
    "99999999999999999999",
];

/// Keys that some decision depends on.
const KEYS: [&str; 32] = [
    "source",
    "options",
    "type",
    "path",
    "destination",
    "noNewPrivileges",
    "capabilities",
    "ambient",
    "rlimits",
    "oomScoreAdj",
    "scheduler",
    "ioPriority",
    "seccomp",
    "namespaces",
    "sysctl",
    "resources",
    "devices",
    "unified",
    "personality",
    "timeOffsets",
    "intelRdt",
    "hooks",
    "annotations",
    "args",
    "errnoRet",
    "architectures",
    "memory",
    "dev.agentbox.policy",
    "dev.agentbox.filesystem.write",
    "dev.agentbox.syscalls.allow",
    "dev.agentbox.privileges.capabilities",
    "net.core.somaxconn",
];

/// The text with one to four changes; text that is not JSON becomes an object.
pub fn mutate(text: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut value = serde_json::from_slice(text).unwrap_or_else(|_| json!({}));
    for _ in 0..1 + dice.below(4) {
        let donor = pick(&mut value, dice).clone();
        let place = pick(&mut value, dice);
        change(place, donor, dice);
    }
    value.to_string().into_bytes()
}

/// Bytes flipped, removed, doubled and moved.
pub fn change_bytes(bytes: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + dice.below(3) {
        let from = dice.below(bytes.len() + 1);
        let to = (from + 1 + dice.below(12)).min(bytes.len());
        match dice.below(4) {
            0 if from < to => bytes[from] ^= 1 << dice.below(8),
            1 => drop(bytes.drain(from..to)),
            2 => {
                let piece = bytes[from..to].to_vec();
                let at = dice.below(bytes.len() + 1);
                bytes.splice(at..at, piece);
            }
            _ => bytes.insert(from, dice.below(256) as u8),
        }
    }
    bytes
}

/// Any node of the tree, with equal probability.
fn pick<'a>(value: &'a mut Value, dice: &mut Dice) -> &'a mut Value {
    let wanted = dice.below(size(value));
    nth(value, wanted)
}

fn size(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(items) => items.values().map(size).sum(),
        _ => 0,
    }
}

fn nth(value: &mut Value, mut wanted: usize) -> &mut Value {
    if wanted == 0 {
        return value;
    }
    wanted -= 1;
    let children: Vec<&mut Value> = match value {
        Value::Array(items) => items.iter_mut().collect(),
        Value::Object(items) => items.values_mut().collect(),
        _ => Vec::new(),
    };
    for child in children {
        let within = size(child);
        if wanted < within {
            return nth(child, wanted);
        }
        wanted -= within;
    }
    unreachable!("a node beyond the size of its tree")
}

fn change(place: &mut Value, donor: Value, dice: &mut Dice) {
    match place {
        Value::Array(items) if !dice.one_in(4) => change_array(items, donor, dice),
        Value::Object(items) if !dice.one_in(4) => change_object(items, donor, dice),
        Value::String(text) if dice.one_in(2) => change_text(text, dice),
        _ => *place = some_value(donor, dice),
    }
}

fn change_array(items: &mut Vec<Value>, donor: Value, dice: &mut Dice) {
    let at = dice.below(items.len() + 1);
    match dice.below(3) {
        0 if at < items.len() => drop(items.remove(at)),
        1 if at < items.len() => items.insert(at, items[at].clone()),
        _ => items.insert(at, some_value(donor, dice)),
    }
}

fn change_object(items: &mut Map<String, Value>, donor: Value, dice: &mut Dice) {
    let keys: Vec<String> = items.keys().cloned().collect();
    if !keys.is_empty() && dice.one_in(3) {
        items.remove(&dice.pick(&keys));
    } else {
        let key = dice.pick(&KEYS).to_owned();
        items.insert(key, some_value(donor, dice));
    }
}

fn change_text(text: &mut String, dice: &mut Dice) {
    let ends: Vec<usize> = text
        .char_indices()
        .map(|(at, _)| at)
        .chain([text.len()])
        .collect();
    let at = dice.pick(&ends);
    match dice.below(3) {
        0 => text.truncate(at),
        1 => text.insert_str(at, dice.pick(&WORDS)),
        _ => text.insert(
            at,
            dice.pick(&['/', '.', ',', '=', ':', '\\', '\n', ' ', '*', 'é']),
        ),
    }
}

fn some_value(donor: Value, dice: &mut Dice) -> Value {
    match dice.below(5) {
        0 => dice.pick(&WORDS).into(),
        1 => donor,
        2 => vec![dice.pick(&WORDS); dice.below(4)].into(),
        3 => dice.pick(&[
            json!(-1),
            json!(0),
            json!(1),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(u32::MAX),
            json!(0.5),
        ]),
        _ => dice.pick(&[
            Value::Null,
            json!(true),
            json!(false),
            json!({}),
            json!([]),
            json!("x".repeat(5000)),
        ]),
    }
}
