//! PURE. The network wall in words.

use std::collections::BTreeSet;

use super::page::{Page, size};
use crate::plan::environment::PlainAddress;
use crate::plan::signing::SigningPlan;
use crate::plan::{NetworkPlan, ServiceTarget};
use crate::policy::{HoneyAction, NetworkMode, Tool, UpstreamNames, UpstreamSource};
use crate::rules::{AskRules, EgressRule, HostName, NetworkRule, RuleTarget, spelling};
use crate::text::escape;

pub(super) fn explain(page: &mut Page, network: &NetworkPlan, tool: Tool) {
    let mode = match network.mode {
        NetworkMode::None => "none: a private namespace with only the loopback interface",
        NetworkMode::Local => {
            "local: a private namespace with only the loopback interface; no way out, no DNS, and denials say so"
        }
        NetworkMode::Allowlist => {
            "allowlist: a private namespace without a route; through the sidecar it reaches"
        }
    };
    page.head("network", mode);
    if let Some(shared) = &network.shared {
        let whose = escape(&shared.container);
        page.item(format_args!(
            "shared with container {whose}, under its policy and sidecar; without them no host is reachable"
        ));
    }
    if network.mode == NetworkMode::Allowlist {
        reached(page, network);
        budget(page, network);
        ways(page, network);
    }
    for (port, addresses) in &network.published {
        let at: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        page.item(format_args!(
            "published: {} of this node lead to port {port} of 127.0.0.1 and ::1 inside",
            at.join(" and ")
        ));
    }
    for (port, target) in &network.connect {
        page.item(service(*port, target));
    }
    sockets(page, network);
    if let Some(plan) = &network.signing {
        signing(page, plan, network);
    }
    let unpublished = |port: &&u16| !network.published.contains_key(port);
    let open: Vec<&u16> = network.inbound.iter().filter(unpublished).collect();
    if !open.is_empty() {
        let ports: Vec<String> = open.iter().map(ToString::to_string).collect();
        let ports = ports.join(" ");
        page.item(format_args!(
            "inbound ports, to 127.0.0.1 and ::1 inside: {ports}"
        ));
    }
    for (port, outside) in &network.leads_nowhere {
        page.item(published_nowhere(network, (*port, outside), tool));
    }
    for (key, value) in &network.sysctl {
        page.item(format_args!("{} = {}", escape(key), escape(value)));
    }
}

/// The sockets of databases.
fn sockets(page: &mut Page, network: &NetworkPlan) {
    for socket in &network.sockets {
        page.item(format_args!(
            "connected: {socket} inside leads to the server at that path outside, which sees your user"
        ));
    }
    if !network.sockets.is_empty() {
        page.item("connections to a socket are logged; no budget, deny rule or search for honey values covers them");
    }
}

/// The keys of the user's SSH agent.
fn signing(page: &mut Page, plan: &SigningPlan, network: &NetworkPlan) {
    let each = match network.confirms_signatures() {
        Some(_) => "confirmed by you at the terminal and logged",
        None => "logged",
    };
    page.item(format_args!(
        "signatures by your SSH agent, for logins to servers and messages of any namespace (git's), each {each}; with these keys:"
    ));
    for key in &plan.keys {
        page.item(format_args!("  {key}"));
    }
    page.item(
        "a key logs in wherever it is accepted, also at this machine, whatever hosts are allowed",
    );
}

/// A port inside that leads to a service.
pub fn service(port: u16, target: &ServiceTarget) -> String {
    let to = match target {
        ServiceTarget::Machine => "of this machine's loopback".to_owned(),
        ServiceTarget::Host(host) => format!("of {host}"),
    };
    format!("connected: localhost:{port} inside leads to port {port} {to}")
}

/// A published port that leads nowhere.
pub fn published_nowhere(
    network: &NetworkPlan,
    (port, outside): (u16, &BTreeSet<u16>),
    tool: Tool,
) -> String {
    let outside: Vec<String> = outside.iter().map(u16::to_string).collect();
    let from = match outside.is_empty() {
        true => String::new(),
        false => format!(" {} for", outside.join(" ")),
    };
    let now = match network.opens_live(port, "ID") {
        Some(command) => format!(", or now `{command}`"),
        None => String::new(),
    };
    let sets = network.lets_in(port, tool);
    format!("published, leads nowhere:{from} port {port}: {sets} leads in{now}")
}

/// The allowed names and addresses, and what happens to others.
pub(super) fn reached(page: &mut Page, network: &NetworkPlan) {
    let rules = &network.rules;
    page.item(list(&rules.allow));
    for rule in rules.connections() {
        if let Some(text) = spellings(rule, &rules.search) {
            page.item(text);
        }
    }
    if !rules.deny.is_empty() {
        page.item(format_args!("but not {}", list(&rules.deny)));
    }
    if rules.have_requests() {
        page.item("requests are read in plain HTTP (http://HOST/... by the proxy or to the host), and sent by TLS where their rule says https");
    }
    if !network.request_fields.is_empty() && rules.have_requests() {
        let fields: Vec<String> = network
            .request_fields
            .iter()
            .map(ToString::to_string)
            .collect();
        page.item(format_args!(
            "header fields sent besides the known ones (request-fields of the node's file): {}",
            fields.join(" ")
        ));
    }
    match &network.asking {
        None => page.item("unlisted names are denied at once (network.on-unknown is deny)"),
        Some(asking) => page.item(waits(asking)),
    }
}

fn list(rules: &BTreeSet<EgressRule>) -> String {
    let rules: Vec<String> = rules.iter().map(ToString::to_string).collect();
    match rules.is_empty() {
        true => "nothing".to_owned(),
        // A request rule contains a space.
        false if rules.iter().any(|rule| rule.contains(' ')) => rules.join(", "),
        false => rules.join(" "),
    }
}

fn waits(asking: &AskRules) -> String {
    let ceilings = asking.limits.iter();
    let ceilings: Vec<String> = ceilings
        .map(|limit| format!("the ceiling {}", limit.ceiling))
        .collect();
    if asking.learns {
        return format!(
            "LEARN MODE: an unlisted public name is allowed and recorded (report.learn), within {}",
            ceilings.join(" and ")
        );
    }
    format!(
        "an unlisted name waits {} s for agentbox approve (network.on-unknown is ask), within {}",
        asking.seconds,
        ceilings.join(" and ")
    )
}

/// The other names of a private name under the engine's search list.
fn spellings(rule: &NetworkRule, search: &[HostName]) -> Option<String> {
    let RuleTarget::Name(name) = &rule.target else {
        return None;
    };
    let others = match rule.reach.is_private() {
        true => spelling::others(name, search),
        false => Vec::new(),
    };
    let others: Vec<&str> = others.iter().map(HostName::as_str).collect();
    (!others.is_empty()).then(|| format!("{rule} is also called {}", others.join(", ")))
}

/// The budget.
pub(super) fn budget(page: &mut Page, network: &NetworkPlan) {
    let budget = network.budget;
    page.item(format_args!(
        "at most {} connections at once, {} new ones in a minute, {} sent, {} names",
        budget.connections,
        budget.connections_per_minute,
        size(budget.upload_bytes),
        budget.hosts
    ));
    if budget.cool_down_seconds > 0 {
        let pause = budget.cool_down_seconds;
        page.item(format_args!(
            "once a budget is used up, all traffic stops for {pause} s"
        ));
    }
}

/// The proxies: the upstream one, behind the sidecar, and the sidecar's own.
pub(super) fn ways(page: &mut Page, network: &NetworkPlan) {
    if let Some(upstream) = &network.upstream {
        let names = match upstream.names {
            UpstreamNames::Vetted => "for addresses that the sidecar has resolved and checked",
            UpstreamNames::Proxy => {
                "for names, which the proxy resolves: this node does not see their addresses"
            }
        };
        let whose = match &upstream.source {
            UpstreamSource::Node => "the node's proxy".to_owned(),
            UpstreamSource::User(variable) => format!("the proxy of your {variable},"),
        };
        page.item(format_args!("through {whose} {upstream}, {names}"));
        if !upstream.direct.is_empty() {
            let direct: Vec<String> = upstream.direct.iter().map(ToString::to_string).collect();
            page.item(format_args!("without it: {}", direct.join(", ")));
        }
    }
    if network.proxy_env {
        page.item("HTTP_PROXY and similar variables name the sidecar");
    }
    if let Some(opened) = network.opens() {
        let hosts: Vec<String> = opened.rules().map(ToString::to_string).collect();
        page.item(format_args!(
            "TLS to {} is opened, so that requests within it are seen, by a certificate authority of this container's own; its programs \
             trust that by their system's certificates, SSL_CERT_FILE and its kin",
            hosts.join(", ")
        ));
    }
    for plain in network.plain_addresses() {
        match plain {
            PlainAddress::Base { variable, address } => {
                page.item(format_args!("{variable} is {address}, unless it is set"));
            }
            PlainAddress::Git(host) => {
                page.item(format_args!("git asks http://{host}/ for https://{host}/"));
            }
        }
    }
    for honey in &network.honey {
        let inside = match &honey.env {
            Some(name) => format!("{name} has it inside"),
            None => "agentbox does not put it inside".to_owned(),
        };
        let then = match honey.then {
            HoneyAction::Log => "",
            HoneyAction::End => ", and end the container",
        };
        page.item(format_args!(
            "honey value {}, a honeytoken: {inside}; a name or connection with it is denied and logged{then}",
            honey.name
        ));
    }
    for secret in &network.secrets {
        let requests: Vec<String> = secret.requests.iter().map(ToString::to_string).collect();
        let inside = match &secret.env {
            Some(name) => format!("{name} has {}", secret.placeholder()),
            None => format!("its placeholder inside is {}", secret.placeholder()),
        };
        page.item(format_args!(
            "secret {}, kept outside, is added to {} of {}; {inside}",
            secret.name,
            secret.place,
            requests.join(", ")
        ));
    }
}
