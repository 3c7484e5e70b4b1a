//! `policy check`

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::cli::{Global, PolicyCheck};
use crate::egress::{Decision, Denial, Verdict, endpoint};
use crate::log;
use crate::plan::NetworkPlan;
use crate::policy::{
    Field, Host, NetworkMode, NetworkRule, POLICY_KEY, Selection, Target, annotation_key, resolve,
};
use crate::runtime::resolve::NodeFiles;
use crate::runtime::store;

/// The status of a denial.
const DENIED: u8 = 1;
/// The status of a question without an answer: nobody may take it for one.
const NO_ANSWER: u8 = 2;

/// Says whether a connection would be allowed.
pub fn run(global: &Global, args: &PolicyCheck) -> ExitCode {
    match answer(global, args) {
        Ok((true, text)) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Ok((false, text)) => {
            println!("{text}");
            ExitCode::from(DENIED)
        }
        Err(error) => {
            log::fatal(&error);
            ExitCode::from(NO_ANSWER)
        }
    }
}

/// What is asked.
#[derive(Debug)]
struct Question {
    host: Host,
    port: u16,
}

fn answer(global: &Global, args: &PolicyCheck) -> Result<(bool, String)> {
    let host = args.host.parse().context("--host")?;
    let question = Question {
        host,
        port: args.port,
    };
    match &args.container {
        Some(id) => match store::find(id)?.plan {
            Some(plan) => Ok(question.verdict(&plan.network)),
            None => Ok(question.unconfined()),
        },
        None => of_policy(global, args, &question),
    }
}

fn of_policy(global: &Global, args: &PolicyCheck, question: &Question) -> Result<(bool, String)> {
    let files = NodeFiles::of(global)?;
    let mut annotations = annotations(&args.annotation)?;
    if let Some(name) = &args.name {
        annotations.insert(POLICY_KEY.to_owned(), name.clone());
    }
    let select = |annotations: &BTreeMap<String, String>| {
        resolve(&files.sources(annotations, global.policy.as_deref()))
    };
    let Selection::Policy(resolved) = select(&annotations)? else {
        return Ok(question.unconfined());
    };
    let network = crate::plan::network::plan(&resolved, BTreeMap::new(), false);
    let (allowed, mut text) = question.verdict(&network);
    if let Some(missing) = question.missing(&network) {
        let key = annotation_key(Field::NetworkAllow);
        let mut rules = network.rules.allow;
        rules.insert(missing);
        let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
        annotations.insert(key.clone(), rules.join(", "));
        text += &match select(&annotations) {
            Ok(_) => format!("\nan annotation may add it: {key}=\"{}\"", rules.join(", ")),
            Err(error) => format!("\nno annotation may add it: {error}"),
        };
    }
    Ok((allowed, text))
}

/// `K=V` each, `dev.agentbox.` put in front where it is left out.
fn annotations(typed: &[String]) -> Result<BTreeMap<String, String>> {
    let prefix = POLICY_KEY.trim_end_matches("policy");
    let parse = |text: &String| {
        let (key, value) = text
            .split_once('=')
            .with_context(|| format!("--annotation {text:?}: it is not KEY=VALUE"))?;
        let key = match key.starts_with(prefix) {
            true => key.to_owned(),
            false => format!("{prefix}{key}"),
        };
        Ok((key, value.to_owned()))
    };
    typed.iter().map(parse).collect()
}

impl Question {
    fn unconfined(&self) -> (bool, String) {
        let text = format!("allowed: {self}: unconfined, none of agentbox's walls");
        (true, text)
    }

    fn verdict(&self, network: &NetworkPlan) -> (bool, String) {
        let denied = |why: String| {
            (
                false,
                format!("denied: {self}: {why}{}", self.hint(network)),
            )
        };
        let asking = network.asking.as_ref();
        match (
            network.mode,
            network.rules.verdict(asking, &self.host, self.port),
        ) {
            (NetworkMode::None | NetworkMode::Local, _) => denied(format!(
                "network.mode is {}, which reaches nothing",
                network.mode
            )),
            (NetworkMode::Allowlist, Verdict::Deny(denial)) => denied(denial.to_string()),
            (NetworkMode::Allowlist, Verdict::Ask(denial)) => denied(format!(
                "{denial}; network.on-unknown is ask: it waits {} s for agentbox approve",
                asking.map_or(0, |asking| asking.seconds)
            )),
            (NetworkMode::Allowlist, Verdict::Allow(rule)) => {
                (true, format!("allowed: {self} by the rule {rule}"))
            }
        }
    }

    fn hint(&self, network: &NetworkPlan) -> String {
        match self.missing(network) {
            Some(rule) => format!("\nthe missing rule: {rule}"),
            None => String::new(),
        }
    }

    /// The rule that would allow it, where one can.
    fn missing(&self, network: &NetworkPlan) -> Option<NetworkRule> {
        let target = match &self.host {
            Host::Name(name) => Target::Name(name.clone()),
            Host::Address(address) => Target::address(*address),
        };
        match network.rules.decide(&self.host, self.port) {
            Decision::Allow(_) | Decision::Deny(Denial::DeniedBy(_)) => None,
            Decision::Deny(Denial::NotListed | Denial::Port(_) | Denial::Metadata) => {
                Some(NetworkRule::allowing(target, self.port))
            }
        }
    }
}

impl std::fmt::Display for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port } = self;
        f.write_str(&endpoint(host, *port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::Rules;

    fn ask(host: &str, port: u16) -> Question {
        Question {
            host: host.parse().unwrap(),
            port,
        }
    }

    #[test]
    fn a_containers_plan_answers_like_a_policy() {
        let mut network = crate::plan::tests::sample().network;
        let (allowed, text) = ask("db.test", 5432).verdict(&network);
        assert!(!allowed && text.contains("network.mode is local"), "{text}");
        network.mode = NetworkMode::Allowlist;
        network.rules = Rules {
            allow: ["internal:db.test:5432".parse().unwrap()].into(),
            deny: ["bad.test".parse().unwrap()].into(),
        };
        let (allowed, text) = ask("db.test", 5432).verdict(&network);
        assert!(allowed);
        assert_eq!(
            text,
            "allowed: db.test:5432 by the rule internal:db.test:5432"
        );
        let (allowed, text) = ask("::ffff:192.0.2.1", 443).verdict(&network);
        assert!(
            !allowed && text.ends_with("the missing rule: 192.0.2.1"),
            "{text}"
        );
        network.asking = Some(crate::egress::Asking {
            seconds: 30,
            limits: Vec::new(),
        });
        let (allowed, text) = ask("new.test", 443).verdict(&network);
        assert!(!allowed && text.contains("it waits 30 s"), "{text}");
        // No rule helps against a denial.
        let (allowed, text) = ask("bad.test", 443).verdict(&network);
        assert!(!allowed && !text.contains("missing"), "{text}");
        assert!(ask("bad.test", 443).unconfined().0);
    }

    #[test]
    fn annotations_are_typed_with_or_without_their_prefix() {
        let typed = ["network.allow=a.test, b.test=c", "dev.agentbox.policy=x"];
        let read = annotations(&typed.map(str::to_owned)).unwrap();
        assert_eq!(read["dev.agentbox.network.allow"], "a.test, b.test=c");
        assert_eq!(read["dev.agentbox.policy"], "x");
        assert!(annotations(&["network.allow".to_owned()]).is_err());
    }
}
