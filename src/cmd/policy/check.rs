//! `policy check`

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result};

use super::super::out;
use super::verdict::{CaseAnswer, JsonVerdict, ending, without_annotation, without_end};
use crate::cli::{GlobalOptions, PolicyCheck};
use crate::egress::request;
use crate::egress::words::{DenyWords, REQUEST_NOT_LISTED};
use crate::log;
use crate::plan::NetworkPlan;
use crate::policy::{
    Advice, Field, NetworkMode, POLICY_KEY, PolicyError, Selection, annotation_key, list_text,
    resolve, typed_rule,
};
use crate::rules::request::Scheme;
use crate::rules::request::decide::{FullRequest, RequestDecision};
use crate::rules::{Decision, Denial, EgressRule, Host, NetworkRule, NetworkVerdict, RuleTarget};
use crate::runtime::clock;
use crate::runtime::input::node_files::NodeFiles;
use crate::runtime::network::control;
use crate::runtime::state::record::ProcessId;
use crate::runtime::state::store::ContainerPaths;
use crate::runtime::state::{find, identity};
use crate::text::shown;

/// The exit status of a denial.
const DENIED: u8 = 1;
/// The exit status without an answer, different from both answers.
const NO_ANSWER: u8 = 2;

/// Prints whether a connection would be allowed.
pub fn run(global: &GlobalOptions, args: &PolicyCheck) -> ExitCode {
    let said = answer(global, args).and_then(|said| {
        match args.json {
            true => out::json(&JsonVerdict::from(&said))?,
            false => out::line(&said.1)?,
        };
        Ok(said.0)
    });
    match said {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(DENIED),
        Err(error) => {
            log::fatal(&error);
            each_field(&error);
            ExitCode::from(NO_ANSWER)
        }
    }
}

/// Prints every field that exceeds the ceiling, for which one line has no room.
fn each_field(error: &anyhow::Error) {
    let policy = error.chain().find_map(|cause| cause.downcast_ref());
    for over in policy.map(PolicyError::over).unwrap_or_default() {
        log::complain(&over.to_string());
    }
}

/// The connection or request in question.
#[derive(Debug, Clone)]
struct Question {
    host: Host,
    port: u16,
    /// The connection's request, in canonical form.
    request: Option<FullRequest>,
}

fn answer(global: &GlobalOptions, args: &PolicyCheck) -> Result<(bool, String)> {
    let question = Question::of(args)?;
    match &args.container {
        Some(id) => of_container(id, &question),
        None => of_policy(global, args, &question),
    }
}

/// The sidecar's answer, by the rules and approvals of the container's network, which another container may own.
fn of_container(id: &str, question: &Question) -> Result<(bool, String)> {
    let record = crate::runtime::clock::current(find::network_of(find::container(id)?)?);
    let Some(plan) = record.plan() else {
        return Ok(question.unconfined());
    };
    let (allowed, mut text) = question.verdict(&plan.network);
    let missing = question.missing(&plan.network).filter(|_| !allowed);
    if let Some(rule) = missing.filter(|rule| Advice::of_rule(rule) == Advice::Offer) {
        let tool = identity::tool(&record);
        text += &format!(
            "\nas {}: {}",
            tool.calls_it(),
            tool.adds(Field::NetworkAllow, &[&rule.to_string()])
        );
    }
    let dir = ContainerPaths::new(&record.root, &record.id)?.dir();
    // A container that does not run has no sidecar to ask.
    let runs = record.sidecar.is_some() && record.init.is_some_and(ProcessId::is_alive);
    let status = match runs {
        true => control::status(&dir, &record)?,
        false => None,
    };
    let Some(asking) = status.and_then(|status| status.asking) else {
        return Ok((allowed, text));
    };
    let named = crate::rules::endpoint(&question.host, question.port);
    let names = |entry: &&String| entry.split_whitespace().next() == Some(named.as_str());
    let decision = plan.network.rules.decide(&question.host, question.port);
    let is_denied = matches!(decision, Decision::Deny(Denial::DeniedBy(_)));
    if let Some(entry) = asking.approved.iter().find(names).filter(|_| !is_denied) {
        return Ok((true, format!("allowed: {entry} by agentbox approve")));
    }
    match asking.denied.iter().find(names) {
        Some(entry) if !allowed => Ok((false, format!("denied: {entry} by agentbox deny"))),
        _ => Ok((allowed, text)),
    }
}

fn of_policy(
    global: &GlobalOptions,
    args: &PolicyCheck,
    question: &Question,
) -> Result<(bool, String)> {
    let files = NodeFiles::of(global)?;
    let typed = annotations(&args.annotation)?;
    let Some(name) = &args.name else {
        return Ok(of_case(&files, question, typed, global.policy.as_deref())?.into());
    };
    let mut named = typed.clone();
    named.insert(POLICY_KEY.to_owned(), name.clone());
    let by_annotation = of_case(&files, question, named, global.policy.as_deref());
    if global.policy.is_some() {
        return Ok(by_annotation.map_err(without_annotation)?.into());
    }
    // An annotation may choose the policy, or the engine's configuration may require it. Then it is also a ceiling.
    let required = of_case(&files, question, typed, Some(name));
    match (by_annotation, required) {
        (Ok(chosen), Ok(required)) if chosen == required => Ok(chosen.into()),
        (Ok(mut chosen), Ok(required)) if chosen.verdict == required.verdict => {
            for line in required.may_add {
                chosen
                    .may_add
                    .push(format!("where --policy {name} requires it: {line}"));
            }
            Ok(chosen.into())
        }
        (Ok(mut chosen), Err(error)) => {
            chosen.may_add.push(format!(
                "that is where an annotation chooses {name}; a runtime with --policy {name} makes it the ceiling: {error:#}"
            ));
            Ok(chosen.into())
        }
        (Ok(chosen), Ok(mut required)) => {
            let (_, text) = chosen.verdict;
            let other = format!("where an annotation chooses {name}: {text}");
            required.may_add.insert(0, other);
            Ok(required.into())
        }
        (Err(_), Ok(required)) => Ok(required.into()),
        (Err(error), Err(_)) => Err(without_annotation(error)),
    }
}

fn of_case(
    files: &NodeFiles,
    question: &Question,
    mut annotations: BTreeMap<String, String>,
    flag: Option<&str>,
) -> Result<CaseAnswer> {
    let Selection::Policy(resolved) = resolve(&files.sources(&annotations, flag))? else {
        return Ok(CaseAnswer {
            verdict: question.unconfined(),
            may_add: Vec::new(),
        });
    };
    let now = clock::reading();
    let mut network = crate::plan::own_network::plan(&resolved, BTreeMap::new(), now);
    network.rules.expire(now);
    let verdict = question.verdict(&network);
    let mut may_add = Vec::new();
    let sent = question.as_sent(&network);
    let missing = sent.as_ref().unwrap_or(question).missing(&network);
    if let Some(missing) = missing.filter(|_| !verdict.0) {
        let key = annotation_key(Field::NetworkAllow);
        let mut rules = network.rules.without_policys();
        let lasts = without_end(&network, &missing);
        rules.insert(missing);
        let rules = list_text(rules.iter().map(ToString::to_string));
        annotations.insert(key.clone(), rules.clone());
        may_add.push(match resolve(&files.sources(&annotations, flag)) {
            Ok(_) => format!(
                "an annotation may add it{lasts}: {}",
                typed_rule(&format!("{key}={rules}"))
            ),
            Err(error) => format!("no annotation may add it: {error}"),
        });
    }
    Ok(CaseAnswer { verdict, may_add })
}

/// Parses `K=V` pairs. The prefix `dev.agentbox.` is optional.
fn annotations(typed: &[String]) -> Result<BTreeMap<String, String>> {
    let prefix = POLICY_KEY.trim_end_matches("policy");
    let parse = |text: &String| {
        let (key, value) = text
            .split_once('=')
            .with_context(|| format!("--annotation {text:?}: it is not KEY=VALUE"))?;
        // An engine's annotation, such as podman's io.container.manager, names the engine.
        let key = match key.starts_with(prefix) || key.starts_with("io.") {
            true => key.to_owned(),
            false => format!("{prefix}{key}"),
        };
        Ok((key, value.to_owned()))
    };
    typed.iter().map(parse).collect()
}

impl Question {
    fn of(args: &PolicyCheck) -> Result<Self> {
        if let Some(text) = &args.request {
            let asked = request::typed(text)
                .map_err(|why| anyhow::anyhow!("--request {}: {why}", shown(text)))?;
            return Ok(Self {
                host: asked.request.host.clone(),
                port: asked.request.port,
                request: Some(asked),
            });
        }
        Ok(Self {
            host: super::host::typed(args.host.as_deref().unwrap_or_default()).context("--host")?,
            port: args.port,
            request: None,
        })
    }

    fn unconfined(&self) -> (bool, String) {
        let text = format!("allowed: {self}: unconfined, none of agentbox's walls");
        (true, text)
    }

    fn verdict(&self, network: &NetworkPlan) -> (bool, String) {
        let (allowed, mut text) = match self.as_sent(network) {
            Some(sent) => {
                let (allowed, text) = sent.enforced(network);
                (allowed, format!("{text}\n{self} is sent on as that"))
            }
            None => self.enforced(network),
        };
        if network.learns() {
            text += "\nLEARN MODE: public names that no rule lists are allowed and recorded (report.learn); where a name leads is seen when \
                     it is dialled, and private addresses are refused";
        }
        (allowed, text)
    }

    /// The request after the sidecar has upgraded it to TLS. Programs use http:// for a host with request rules, and
    /// the rules decide about the upgraded request.
    fn as_sent(&self, network: &NetworkPlan) -> Option<Self> {
        let mut asked = self.request.clone()?;
        let (host, port) = (&asked.request.host, asked.request.port);
        if network.mode != NetworkMode::Allowlist || asked.request.scheme != Scheme::Http {
            return None;
        }
        match network.rules.plain_way(host, port)? {
            (Scheme::Http, _) => None,
            (scheme, to) => {
                (asked.request.scheme, asked.request.port) = (scheme, to);
                Some(Self {
                    host: asked.request.host.clone(),
                    port: to,
                    request: Some(asked),
                })
            }
        }
    }

    /// The sidecar's verdict.
    fn enforced(&self, network: &NetworkPlan) -> (bool, String) {
        let denied = |why: String| {
            (
                false,
                format!("denied: {self}: {why}{}", self.hint(network)),
            )
        };
        if let Some(verdict) = self.of_request(network) {
            return verdict;
        }
        let asking = network.asking.as_ref();
        match (
            network.mode,
            network.rules.verdict(asking, &self.host, self.port),
        ) {
            (NetworkMode::None | NetworkMode::Local, _) => denied(format!(
                "network.mode is {}, which reaches nothing",
                network.mode
            )),
            (NetworkMode::Allowlist, NetworkVerdict::Deny(denial)) => denied(denial.to_string()),
            (NetworkMode::Allowlist, NetworkVerdict::Ask(denial)) if network.learns() => {
                (true, format!("allowed: {self} by learn mode: {denial}"))
            }
            (NetworkMode::Allowlist, NetworkVerdict::Ask(denial)) => denied(format!(
                "{denial}; network.on-unknown is ask: it waits {} s for agentbox approve",
                asking.map_or(0, |asking| asking.seconds)
            )),
            (NetworkMode::Allowlist, NetworkVerdict::Allow(rule)) => {
                let end = ending(network, &EgressRule::Connection(rule.clone()));
                (true, format!("allowed: {self} by the rule {rule}{end}"))
            }
        }
    }

    /// The verdict on a request, if rules for requests apply to it.
    fn of_request(&self, network: &NetworkPlan) -> Option<(bool, String)> {
        let asked = self.request.as_ref()?;
        if network.mode != NetworkMode::Allowlist {
            return None;
        }
        match network
            .rules
            .decide_request(&asked.decisive(&network.rules).request)
        {
            RequestDecision::Allow(rule) => {
                let end = ending(network, &rule);
                // A connection rule does not look at requests: say how far it goes.
                let rest = match rule {
                    EgressRule::Connection(_) => ", which opens every request to this host",
                    EgressRule::Request(_) => "",
                };
                Some((
                    true,
                    format!("allowed: {self} by the rule {rule}{rest}{end}"),
                ))
            }
            RequestDecision::DeniedBy(rule) => {
                Some((false, format!("denied: {self}: {}", DenyWords(rule))))
            }
            RequestDecision::NotListed if network.rules.needs_calls(&asked.request) => {
                let call = asked.to_string().replacen("POST ", "mcp:", 1);
                Some((
                    false,
                    format!("denied: {self}: its content decides: test '{call} METHOD[:NAME]'"),
                ))
            }
            RequestDecision::NotListed => {
                let is_named = network.rules.requests().any(|rule| rule.names(&self.host));
                is_named.then(|| {
                    let hint = self.hint(network);
                    (false, format!("denied: {self}: {REQUEST_NOT_LISTED}{hint}"))
                })
            }
        }
    }

    fn hint(&self, network: &NetworkPlan) -> String {
        match self.missing(network) {
            Some(rule) => format!("\nthe missing rule: {rule}"),
            None => String::new(),
        }
    }

    /// The rule that would allow it, if one can.
    fn missing(&self, network: &NetworkPlan) -> Option<EgressRule> {
        let is_request = network.rules.requests().any(|rule| rule.names(&self.host));
        if let Some(asked) = self.request.as_ref().filter(|_| is_request) {
            let asked = asked.decisive(&network.rules);
            return match network.rules.decide_request(&asked.request) {
                RequestDecision::NotListed => match network.rules.expired_request(&asked.request) {
                    Some(expired) => Some(expired.rule),
                    None => asked.rule().map(EgressRule::Request),
                },
                RequestDecision::Allow(_) | RequestDecision::DeniedBy(_) => None,
            };
        }
        let target = match &self.host {
            Host::Name(name) => RuleTarget::Name(name.clone()),
            Host::Address(address) => RuleTarget::address(*address),
        };
        match network.rules.decide(&self.host, self.port) {
            Decision::Allow(_)
            | Decision::Deny(Denial::DeniedBy(_) | Denial::OnlyRequests | Denial::Metadata) => None,
            Decision::Deny(Denial::Expired(expired)) => Some(expired.rule),
            Decision::Deny(Denial::NotListed | Denial::Port(_)) => {
                Some(NetworkRule::allowing(target, self.port).into())
            }
        }
        .filter(|rule| Advice::of_rule(rule).may_be_named())
    }
}

impl std::fmt::Display for Question {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.request {
            Some(asked) => asked.fmt(f),
            None => f.write_str(&crate::rules::endpoint(&self.host, self.port)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::EgressRules;

    fn ask(host: &str, port: u16) -> Question {
        Question {
            host: host.parse().unwrap(),
            port,
            request: None,
        }
    }

    #[test]
    fn after_the_end_of_a_rule_that_rule_is_the_missing_one() {
        let mut network = crate::plan::tests::sample().network;
        network.mode = NetworkMode::Allowlist;
        let end = crate::rules::Expiry::after(600, crate::rules::ClockReading::default()).unwrap();
        network.rules = EgressRules::default();
        for rule in ["GET https://r.test/**", "internal:db:5432"] {
            network.rules.ends.insert(rule.parse().unwrap(), end);
        }
        for (host, port, missing) in [
            ("r.test", 443, "GET https://r.test/**"),
            ("db", 5432, "internal:db:5432"),
            ("new.test", 443, "new.test"),
        ] {
            let rule = ask(host, port).missing(&network).unwrap();
            assert_eq!(rule.to_string(), missing);
            // Whoever adds it gives no end.
            let is_said = !without_end(&network, &rule).is_empty();
            assert_eq!(is_said, host != "new.test");
        }
    }

    #[test]
    fn a_containers_plan_answers_like_a_policy() {
        let mut network = crate::plan::tests::sample().network;
        let (allowed, text) = ask("db.test", 5432).verdict(&network);
        assert!(!allowed && text.contains("network.mode is local"), "{text}");
        network.mode = NetworkMode::Allowlist;
        network.rules = EgressRules {
            allow: ["internal:db.test:5432".parse().unwrap()].into(),
            deny: ["bad.test".parse().unwrap()].into(),
            ..crate::rules::EgressRules::default()
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
        network.asking = Some(crate::rules::AskRules {
            learns: false,
            seconds: 30,
            limits: Vec::new(),
            secret_hosts: Default::default(),
        });
        let (allowed, text) = ask("new.test", 443).verdict(&network);
        assert!(!allowed && text.contains("it waits 30 s"), "{text}");
        // Former fault: in learn mode it said the opposite of the truth.
        let mut learning = network.clone();
        learning.asking = Some(crate::rules::AskRules {
            learns: true,
            seconds: 30,
            limits: Vec::new(),
            secret_hosts: Default::default(),
        });
        let (allowed, text) = ask("new.test", 443).verdict(&learning);
        assert!(allowed && text.contains("by learn mode"), "{text}");
        for host in ["bad.test", "192.0.2.1", "metadata.google.internal"] {
            let (allowed, text) = ask(host, 443).verdict(&learning);
            assert!(!allowed && text.contains("\nLEARN MODE: "), "{text}");
        }
        // No rule overrides a deny rule.
        let (allowed, text) = ask("bad.test", 443).verdict(&network);
        assert!(!allowed && !text.contains("missing"), "{text}");
        assert!(ask("bad.test", 443).unconfined().0);
    }

    /// Former fault: a request in the form that programs use was denied, and the missing rule
    /// would have allowed cleartext.
    #[test]
    fn a_cleartext_request_is_answered_as_the_sidecar_sends_it() {
        let mut network = crate::plan::tests::sample().network;
        network.mode = NetworkMode::Allowlist;
        network.rules.allow = ["GET https://h.test/a/**".parse().unwrap()].into();
        let of = |text: &str| {
            let asked = request::typed(text).unwrap();
            let question = Question {
                host: asked.request.host.clone(),
                port: asked.request.port,
                request: Some(asked),
            };
            question.verdict(&network)
        };
        let (allowed, text) = of("GET http://h.test/a/b");
        assert!(allowed, "{text}");
        assert!(
            text.ends_with("GET http://h.test/a/b is sent on as that"),
            "{text}"
        );
        let (allowed, text) = of("GET http://h.test/b");
        assert!(
            !allowed && text.contains("the missing rule: GET https://h.test/b\n"),
            "{text}"
        );
        assert!(of("GET https://h.test/a/b").0);
    }

    #[test]
    fn annotations_may_be_typed_without_their_prefix() {
        let typed = ["network.allow=a.test, b.test=c", "dev.agentbox.policy=x"];
        let read = annotations(&typed.map(str::to_owned)).unwrap();
        assert_eq!(read["dev.agentbox.network.allow"], "a.test, b.test=c");
        assert_eq!(read["dev.agentbox.policy"], "x");
        assert!(annotations(&["network.allow".to_owned()]).is_err());
    }
}
