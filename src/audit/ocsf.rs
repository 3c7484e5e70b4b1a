//! PURE. Events in OCSF (schema.ocsf.io, version 1.3): the attributes that its classes require, and the words of the
//! line.
//!
//! | Class | For |
//! |---|---|
//! | Network Activity, 4001 | connections and names |
//! | Process Activity, 1007 | the container's first process, processes of `exec`, notes |
//! | File System Activity, 1001 | mounts |
//! | Detection Finding, 2004 | all other refusals, limits, decisions and changes |

use chrono::DateTime;
use serde_json::{Value, json};

use super::chain::hash;
use super::event::{Context, LogLine, Verdict};
use super::life::{LifeState, ProcessState};
use super::what::{ConnectionKind, EventDetail};
use super::words;

/// OCSF's version.
const VERSION: &str = "1.3.0";

/// The OCSF class, the activity in it, and the attributes of that class.
struct OcsfClass {
    class: u64,
    activity: u64,
    attributes: Value,
}

/// A line as one OCSF event. Missing attributes are omitted: none of them may be null.
pub fn event(line: &LogLine) -> Value {
    let mut event = whole(line);
    without_nulls(&mut event);
    event
}

fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A unique id. The hash before the line is not unique: the files of a run start with the same one.
fn uid(line: &LogLine) -> String {
    let bytes = serde_json::to_vec(line).unwrap_or_default();
    format!("{}:{}", line.context.container, hash(&bytes))
}

fn whole(line: &LogLine) -> Value {
    let OcsfClass {
        class,
        activity,
        attributes,
    } = classify(line);
    let event = &line.event;
    let time = DateTime::parse_from_rfc3339(&line.time).map_or(0, |time| time.timestamp_millis());
    let context = &line.context;
    let mut all = json!({
        "category_uid": class / 1000,
        "class_uid": class,
        "activity_id": activity,
        "type_uid": class * 100 + activity,
        "time": time,
        "severity_id": severity(event.verdict),
        "count": event.times(),
        "message": words::message(event),
        "metadata": {
            "version": VERSION,
            "uid": uid(line),
            "product": { "name": "agentbox", "vendor_name": "agentbox" },
            "profiles": ["container"],
        },
        "unmapped": {
            "container": unmapped(context),
            "wall": event.wall,
            "verdict": event.verdict,
            "rule": event.rule,
            "missing_rule": event.missing_rule,
            "by": event.by,
        },
    });
    if let Some((action, disposition)) = decided(event.verdict) {
        all["metadata"]["profiles"] = json!(["container", "security_control"]);
        all["action_id"] = json!(action);
        all["disposition_id"] = json!(disposition);
    }
    let more = attributes.as_object().cloned().unwrap_or_default();
    if let Some(all) = all.as_object_mut() {
        all.extend(more);
    }
    all
}

/// The object Container of the profile Container.
fn container(context: &Context) -> Value {
    // OCSF requires an id of an image.
    let image = context.image.as_ref();
    let image = image.map(|image| json!({ "uid": image, "name": image }));
    json!({
        "uid": context.container,
        "name": context.name,
        "image": image,
        "runtime": context.engine,
    })
}

/// Fields without a place in OCSF.
fn unmapped(context: &Context) -> Value {
    json!({
        "pod": context.pod,
        "namespace": context.namespace,
        "policy": context.policy,
        "policyHash": context.policy_hash,
        "learn": context.learn.then_some(true),
    })
}

/// The container as one end of a connection.
fn endpoint(context: &Context, port: Option<u16>) -> Value {
    json!({ "uid": context.container, "container": container(context), "port": port })
}

/// Informational; low for a denied or failed event.
fn severity(verdict: Verdict) -> u64 {
    match verdict {
        Verdict::Denied | Verdict::Failed => 2,
        Verdict::Allowed | Verdict::Ended | Verdict::Noted | Verdict::WouldDeny => 1,
    }
}

/// `action_id` and `disposition_id` of the profile Security Control, for decided events: denied and blocked, or
/// allowed.
fn decided(verdict: Verdict) -> Option<(u64, u64)> {
    match verdict {
        Verdict::Denied => Some((2, 2)),
        Verdict::Allowed => Some((1, 1)),
        // Allowed, and logged.
        Verdict::WouldDeny => Some((1, 17)),
        Verdict::Failed | Verdict::Ended | Verdict::Noted => None,
    }
}

fn classify(line: &LogLine) -> OcsfClass {
    let event = &line.event;
    // The actor is inside, and only its container is known outside.
    let actor = json!({ "app_name": line.context.container });
    let device = json!({
        "type_id": 0,
        "uid": line.context.container,
        "container": container(&line.context),
    });
    match &event.what {
        EventDetail::Connection { .. } | EventDetail::Name { .. } => network(line),
        EventDetail::Mount {
            destination,
            source,
        } => OcsfClass {
            class: 1001,
            // Mount
            activity: 12,
            attributes: json!({
                "actor": actor,
                "device": device,
                "file": { "name": destination, "path": destination, "type_id": 0 },
                "status_detail": format!("from {source}"),
            }),
        },
        EventDetail::Process {
            state,
            arguments,
            uid,
            exit,
            ..
        } => OcsfClass {
            class: 1007,
            activity: match state {
                // Launch, Terminate
                ProcessState::Began | ProcessState::Refused => 1,
                ProcessState::Ended => 2,
            },
            attributes: json!({
                "actor": actor,
                "device": device,
                "process": {
                    "name": arguments.first(),
                    "cmd_line": arguments.join(" "),
                    "pid": event.pid,
                    "user": { "uid": uid.to_string() },
                },
                "exit_code": exit,
            }),
        },
        EventDetail::Container { state, exit, .. } => OcsfClass {
            class: 1007,
            activity: match state {
                LifeState::Created | LifeState::Started => 1,
                LifeState::Ended | LifeState::Deleted => 2,
                // Other
                LifeState::Signalled | LifeState::Paused | LifeState::Resumed => 99,
            },
            attributes: json!({
                "actor": actor,
                "device": device,
                "process": first_process(line),
                "status_detail": words::what(&event.what),
                "exit_code": exit,
            }),
        },
        // What every container of an engine's has is no finding.
        _ if event.verdict == Verdict::Noted => note(line, actor, device),
        _ => finding(line),
    }
}

/// What needs no action.
fn note(line: &LogLine, actor: Value, device: Value) -> OcsfClass {
    OcsfClass {
        class: 1007,
        // Other
        activity: 99,
        attributes: json!({
            "actor": actor,
            "device": device,
            "process": first_process(line),
            "status_detail": words::message(&line.event),
        }),
    }
}

/// A refusal, a limit, a decision or a change.
fn finding(line: &LogLine) -> OcsfClass {
    let event = &line.event;
    OcsfClass {
        class: 2004,
        // Create
        activity: 1,
        attributes: json!({
            "finding_info": {
                "uid": uid(line),
                "title": words::what(&event.what),
                "desc": event.reason,
            },
            "evidences": [{ "src_endpoint": endpoint(&line.context, None) }],
        }),
    }
}

/// The init process: its command if the line has one, else the name of its container.
fn first_process(line: &LogLine) -> Value {
    let context = &line.context;
    let name = context.name.as_ref().unwrap_or(&context.container);
    let mut process = json!({ "name": name });
    if let EventDetail::Container {
        command: Some(command),
        ..
    } = &line.event.what
    {
        process["name"] = json!(command.arguments.first());
        process["cmd_line"] = json!(command.arguments.join(" "));
        process["user"] = json!({ "uid": command.uid.to_string() });
    }
    process
}

fn network(line: &LogLine) -> OcsfClass {
    let event = &line.event;
    let (host, port, sent, received) = match &event.what {
        EventDetail::Connection {
            host,
            port,
            sent,
            received,
            ..
        } => (host.as_str(), *port, *sent, *received),
        EventDetail::Name { host, .. } => (host.as_str(), None, None, None),
        _ => ("", None, None, None),
    };
    let is_inbound = match &event.what {
        EventDetail::Connection { via, .. } => {
            matches!(via, Some(ConnectionKind::Inbound | ConnectionKind::Outside))
        }
        _ => false,
    };
    let is_address = host.parse::<std::net::IpAddr>().is_ok();
    let other = json!({
        "hostname": (!is_address).then(|| match host {
            "" => words::what(&event.what),
            name => name.to_owned(),
        }),
        "ip": is_address.then_some(host),
        "port": (!is_inbound).then_some(port),
    });
    let own = endpoint(&line.context, port.filter(|_| is_inbound));
    let (source, destination) = match is_inbound {
        true => (other, own),
        false => (own, other),
    };
    OcsfClass {
        class: 4001,
        activity: match event.verdict {
            // Open, Close, Fail, Refuse
            Verdict::Allowed | Verdict::Noted | Verdict::WouldDeny => 1,
            Verdict::Ended => 2,
            Verdict::Failed => 4,
            Verdict::Denied => 5,
        },
        attributes: json!({
            "src_endpoint": source,
            "dst_endpoint": destination,
            "traffic": sent.map(|sent| json!({ "bytes_out": sent, "bytes_in": received })),
            "status_detail": event.reason,
        }),
    }
}
