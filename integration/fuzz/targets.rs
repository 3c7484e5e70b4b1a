//! The properties: no panic, and under a policy the rendered spec never has more than the plan.

use std::collections::BTreeMap;

use agentbox::plan::reach::{self, NetSettings};
use agentbox::plan::{DecidedPlan, neutral, plan, process as confined};
use agentbox::policy::{Asker, NodeConfig, Selection, Sources, Tool, exceeds, resolve};
use agentbox::render::spec as shadow;
use agentbox::runtime::filter;
use oci_spec::runtime::{LinuxResources, Process, Spec};
use serde_json::{Value, json};

use crate::fixtures::{self, POLICIES};
use crate::properties::walls;

/// config.json: parsed, normalized, resolved, planned, rendered and compiled.
pub fn config(data: &[u8]) {
    let Ok(mut spec) = serde_json::from_slice::<Spec>(data) else {
        return;
    };
    shadow::normalise(&mut spec);
    if reach::check(&spec, NetSettings::Own).is_err() {
        return;
    }
    let engine = spec.linux().as_ref().and_then(|l| l.seccomp().clone());
    // An error has a text; a filter program respects the kernel's limit.
    match filter::compile(None, engine.as_ref()) {
        Ok(None) => assert!(engine.is_none()),
        Ok(Some(filter)) => assert!((1..=4096).contains(&filter.program.instructions().len())),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    let _ = shadow::unconfined(spec.clone(), &fixtures::places());
    if let Ok(Selection::Policy(resolved)) = fixtures::select(None, &fixtures::annotations(&spec)) {
        let facts = fixtures::facts(&spec);
        match plan(&resolved, &spec, &facts, &fixtures::newest()) {
            Ok(decided) => {
                walls::check(&resolved, &spec, &facts, &decided);
                saved_and_read_again(&decided);
                let asked = filter::FilterRequest::of(&decided.plan, &fixtures::newest());
                if let Ok(filter) = filter::compile(Some(asked), engine.as_ref()) {
                    assert!(filter.is_some_and(|f| f.program.instructions().len() <= 4096));
                }
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn saved_and_read_again(decided: &DecidedPlan) {
    let text = serde_json::to_vec(decided).unwrap();
    let again: DecidedPlan = serde_json::from_slice(&text).unwrap();
    assert_eq!(*decided, again);
}

/// process.json of `exec`, under each policy.
pub fn process(data: &[u8]) {
    let Ok(process) = serde_json::from_slice::<Process>(data) else {
        return;
    };
    let bundle = fixtures::bundle_named("docker26-run");
    for policy in POLICIES {
        let resolved = fixtures::policy(policy, &[]);
        let plan = fixtures::planned(&resolved, &bundle).unwrap().plan;
        let mut rendered = bundle.clone();
        rendered.set_process(Some(confined::confine(process.clone(), &plan)));
        walls::check_process(&resolved, &rendered);
        let once = rendered.process().clone().unwrap();
        assert_eq!(confined::confine(once.clone(), &plan), once);
    }
}

/// Limits, as in config.json and `update`.
pub fn resources(data: &[u8]) {
    let Ok(mut resources) = serde_json::from_slice::<LinuxResources>(data) else {
        return;
    };
    if reach::check_resources(&resources).is_err() {
        return;
    }
    let mut config = serde_json::to_value(fixtures::bundle_named("docker26-run")).unwrap();
    config["linux"]["resources"] = serde_json::to_value(&resources).unwrap();
    self::config(config.to_string().as_bytes());
    neutral::resources(&mut resources);
    assert_eq!(neutral::resources(&mut resources), Vec::<String>::new());
    for (name, _) in resources.unified().iter().flatten() {
        assert!(
            !name.contains('/') && !name.starts_with("cgroup."),
            "{name}"
        );
    }
}

/// A container's annotations, an object of strings, under each ceiling.
pub fn annotations(data: &[u8]) {
    let Ok(given) = serde_json::from_slice::<BTreeMap<String, String>>(data) else {
        return;
    };
    for ceiling in POLICIES {
        let node = NodeConfig::parse(&format!("ceiling = \"{ceiling}\"")).unwrap();
        let limit = fixtures::policy(ceiling, &[]).policy;
        let selection = resolve(&Sources {
            annotations: &given,
            image: agentbox::policy::ImageAnnotations::Unknown,
            flag: None,
            node: &node,
            files: &BTreeMap::new(),
            presets: &BTreeMap::new(),
            asker: Asker::Container,
            tool: Tool::default(),
            asked: agentbox::policy::WrapOptions::NOTHING,
        });
        match selection {
            Ok(Selection::Policy(resolved)) => {
                assert_eq!(exceeds(&resolved.policy, &limit), [], "{ceiling}");
            }
            Ok(other) => panic!("an annotation chose {other:?}"),
            Err(error) => assert!(error.to_string().len() < 64 * 1024),
        }
    }
    let mut config = serde_json::to_value(fixtures::bundle_named("docker26-run")).unwrap();
    let given = given
        .into_iter()
        .map(|(k, v)| (k, Value::from(v)))
        .collect();
    config["annotations"] = Value::Object(given);
    config["process"]["cwd"] = json!("/");
    self::config(config.to_string().as_bytes());
}
