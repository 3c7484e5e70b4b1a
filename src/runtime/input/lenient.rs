//! Input that runc accepts and the specification's types refuse. Unknown capabilities are left out with a warning,
//! because an engine may be newer than the kernel. A process without a user runs as root. A seccomp profile without a
//! default action and without rules means none.

use std::collections::BTreeSet;
use std::path::Path;

use oci_spec::runtime::{Capability, Process};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::runtime::RuntimeError;
use crate::runtime::input::bundle;

/// Reads config.json or process.json, without unknown capabilities.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T, RuntimeError> {
    let text = bundle::read_file(path)?;
    let bad = |e: serde_json::Error| RuntimeError::Input {
        path: path.to_owned(),
        why: e.to_string(),
    };
    let refused = match serde_json::from_slice(&text) {
        Ok(value) => return Ok(value),
        Err(e) => e,
    };
    let Ok(mut value) = serde_json::from_slice::<Value>(&text) else {
        return Err(bad(refused));
    };
    let completed = complete(&mut value) | drop_empty_profile(&mut value) | spell(&mut value);
    // The first error knows the line.
    if warn(&mut value) == 0 && !completed {
        return Err(bad(refused));
    }
    completed_as(&value, path)
}

/// Parses a process from JSON, without unknown capabilities.
pub fn typed(mut process: Value, path: &Path) -> Result<Process, RuntimeError> {
    complete(&mut process);
    spell(&mut process);
    warn(&mut process);
    completed_as(&process, path)
}

/// Reads what was completed. It is written again for that: the types of the specification, read from a [`Value`] too, are
/// 300 KB of the program. An error names no line, which would be one of the new text.
fn completed_as<T: DeserializeOwned>(value: &Value, path: &Path) -> Result<T, RuntimeError> {
    let text = value.to_string();
    serde_json::from_slice(text.as_bytes()).map_err(|error| {
        let place = format!(" at line {} column {}", error.line(), error.column());
        let why = error.to_string();
        RuntimeError::Input {
            path: path.to_owned(),
            why: why.strip_suffix(&place).unwrap_or(&why).to_owned(),
        }
    })
}

/// Adds a missing user, or its missing ids; returns whether anything was added.
fn complete(value: &mut Value) -> bool {
    let mut added = false;
    let Some(process) = process(value).as_object_mut() else {
        return false;
    };
    let user = process.entry("user").or_insert_with(|| {
        added = true;
        Value::Object(serde_json::Map::new())
    });
    for id in ["uid", "gid"] {
        if let Some(user) = user.as_object_mut() {
            user.entry(id).or_insert_with(|| {
                added = true;
                0.into()
            });
        }
    }
    added
}

/// Translates flags of process.scheduler that the specification and its types spell differently to the types'
/// spelling; returns whether there were any.
fn spell(value: &mut Value) -> bool {
    const SPELLED: [(&str, &str); 2] = [
        ("SCHED_FLAG_RESET_ON_FORK", "SCHED_RESET_ON_FORK"),
        ("SCHED_FLAG_DL_OVERRUN", "SCHED_FLAG_D_L_OVERRUN"),
    ];
    let flags = process(value).pointer_mut("/scheduler/flags");
    let mut changed = false;
    for flag in flags.and_then(Value::as_array_mut).into_iter().flatten() {
        let found = SPELLED.iter().find(|(ours, _)| flag.as_str() == Some(ours));
        if let Some((_, theirs)) = found {
            *flag = Value::from(*theirs);
            changed = true;
        }
    }
    changed
}

/// Removes an empty seccomp profile; returns whether there was one.
fn drop_empty_profile(value: &mut Value) -> bool {
    let Some(linux) = value.get_mut("linux").and_then(Value::as_object_mut) else {
        return false;
    };
    let nothing = |of: Option<&Value>| match of {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    };
    let empty = |profile: &Value| {
        profile.is_object()
            && nothing(profile.get("defaultAction"))
            && nothing(profile.get("syscalls"))
    };
    let found = linux.get("seccomp").is_some_and(empty);
    if found {
        linux.remove("seccomp");
    }
    found
}

/// The process of a spec, or the value itself.
fn process(value: &mut Value) -> &mut Value {
    // Checked first: a borrow that is returned lasts too long for the other branch.
    if value.get("process").is_none() {
        return value;
    }
    &mut value["process"]
}

/// Removes unknown capabilities with a warning; returns their number.
fn warn(value: &mut Value) -> usize {
    let unknown = without_unknown(value);
    if !unknown.is_empty() {
        let names: Vec<&str> = unknown.iter().map(String::as_str).collect();
        log::warn!(
            "ignoring unknown or unavailable capabilities: [{}]",
            names.join(" ")
        );
    }
    unknown.len()
}

/// The capability of this name; as in runc, `CAP_` and upper case only.
pub fn capability(name: &str) -> Option<Capability> {
    let known = name.strip_prefix("CAP_")?;
    let upper = known.bytes().all(|b| !b.is_ascii_lowercase());
    upper.then(|| known.parse().ok())?
}

/// Removes unknown capabilities from the sets of a spec or a process, and returns their names.
fn without_unknown(value: &mut Value) -> BTreeSet<String> {
    let process = process(value);
    let mut unknown = BTreeSet::new();
    let sets = process
        .get_mut("capabilities")
        .and_then(Value::as_object_mut);
    let lists = sets.into_iter().flat_map(|s| s.values_mut());
    for list in lists.filter_map(Value::as_array_mut) {
        list.retain(|name| match name.as_str() {
            Some(name) if capability(name).is_none() => {
                unknown.insert(name.to_owned());
                false
            }
            _ => true,
        });
    }
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn unknown_capabilities_are_left_out_and_named() {
        let mut value = json!({"process": {"capabilities": {
            "bounding": ["CAP_KILL", "CAP_BOGUS"], "effective": ["cap_chown"]
        }}});
        let unknown = without_unknown(&mut value);
        assert_eq!(Vec::from_iter(unknown), ["CAP_BOGUS", "cap_chown"]);
        assert_eq!(
            value["process"]["capabilities"],
            json!({"bounding": ["CAP_KILL"], "effective": []})
        );
        let mut without = json!({"process": {"args": ["sh"]}});
        assert!(complete(&mut without) && !complete(&mut without));
        assert_eq!(without["process"]["user"], json!({"uid": 0, "gid": 0}));
        let mut process = json!({"capabilities": {"ambient": ["CAP_X"]}});
        assert_eq!(without_unknown(&mut process).len(), 1);
    }

    #[test]
    fn every_flag_of_the_scheduler_is_known_by_the_specifications_name() {
        for flag in [
            "RESET_ON_FORK",
            "RECLAIM",
            "DL_OVERRUN",
            "KEEP_POLICY",
            "KEEP_PARAMS",
            "UTIL_CLAMP_MIN",
            "UTIL_CLAMP_MAX",
        ] {
            let flags = [format!("SCHED_FLAG_{flag}")];
            let scheduler = json!({"policy": "SCHED_BATCH", "flags": flags});
            let process = json!({"cwd": "/", "args": ["sh"], "scheduler": scheduler});
            let parsed = typed(process, Path::new("process.json")).unwrap();
            let flags = parsed.scheduler().as_ref().unwrap().flags().clone();
            assert_eq!(flags.unwrap_or_default().len(), 1, "{flag}");
        }
    }

    #[test]
    fn a_profile_is_dropped_only_when_it_says_nothing() {
        for empty in [
            json!({}),
            json!({"defaultAction": "", "syscalls": []}),
            json!({"architectures": ["SCMP_ARCH_X86"], "syscalls": null}),
        ] {
            let mut value = json!({"linux": {"seccomp": empty}});
            assert!(drop_empty_profile(&mut value));
            assert_eq!(value, json!({"linux": {}}));
        }
        for profile in [
            json!({"defaultAction": "SCMP_ACT_ALLOW"}),
            json!({"syscalls": [{"names": ["read"], "action": "SCMP_ACT_ERRNO"}]}),
            json!("none"),
        ] {
            let mut value = json!({"linux": {"seccomp": profile}});
            assert!(!drop_empty_profile(&mut value), "{value}");
        }
        assert!(!drop_empty_profile(&mut json!({"linux": {}})));
    }
}
