//! Records of formats before this program's: what they say, in this program's words.

use serde_json::{Map, Value, json};

use crate::policy::Policy;
use crate::runtime::state::record::Record;

/// Reads a record of an older format.
pub fn read(text: &[u8]) -> serde_json::Result<Record> {
    let mut record: Map<String, Value> = serde_json::from_slice(text)?;
    policy_beside_the_plan(&mut record)?;
    serde_json::from_value(record.into())
}

/// Until the third format the plan held the policy and its origins. Without a plan there is nothing to decide; a record that
/// does not even say so stays as it is, and is no record.
fn policy_beside_the_plan(record: &mut Map<String, Value>) -> serde_json::Result<()> {
    let decided = match record.remove("plan") {
        None => return Ok(()),
        Some(Value::Object(mut plan)) => {
            let policy = plan.remove("policy").unwrap_or_default();
            let policy: Policy = serde_json::from_value(policy)?;
            // Both were read from the policy in it.
            let set_id = serde_json::to_value(policy.privileges.set_id)?;
            put(&mut plan, "syscalls", ("setId", set_id));
            let scratch_on = serde_json::to_value(policy.filesystem.scratch_on)?;
            put(&mut plan, "filesystem", ("scratchOn", scratch_on));
            json!({"resolved": policy, "origins": plan.remove("origins"), "plan": plan})
        }
        Some(other) => other,
    };
    record.insert("decided".to_owned(), decided);
    Ok(())
}

fn put(plan: &mut Map<String, Value>, wall: &str, (key, value): (&str, Value)) {
    if let Some(Value::Object(wall)) = plan.get_mut(wall) {
        wall.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_does_not_say_whether_there_is_a_plan_is_none() {
        assert!(read(b"{}").is_err());
        let mut record = Map::new();
        policy_beside_the_plan(&mut record).unwrap();
        assert!(record.is_empty());
        record.insert("plan".to_owned(), Value::Null);
        policy_beside_the_plan(&mut record).unwrap();
        assert_eq!(Value::from(record), json!({"decided": null}));
    }
}
