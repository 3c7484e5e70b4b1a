//! `approvals`, `approve` and `deny`

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Serialize;

use crate::cli::{Approvals, Approve, Deny, TableFormat};
use crate::cmd::{out, until};
use crate::egress::WaitingConnection;
use crate::policy::typed_rule;
use crate::render::identity::ContainerIdentity;
use crate::rules::{ApprovalTerm, EgressRule, Host, HostReach, NetworkRule, RuleTarget, endpoint};
use crate::runtime::network::approvals::{self, ApprovalResult};
use crate::runtime::state::find;
use crate::runtime::state::identity;
use crate::runtime::state::record::Record;
use crate::runtime::state::store;
use crate::sidecar::{AskDecision, AskDecisionTarget};

/// The longest duration of `--for`.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);
/// Time limit of a sidecar's answer.
const WITHIN: Duration = Duration::from_secs(10);

#[derive(Serialize)]
struct Line {
    container: String,
    #[serde(rename = "of")]
    identity: ContainerIdentity,
    #[serde(flatten)]
    waiting: WaitingConnection,
}

/// Lists waiting connections, of one container or of all.
pub fn list(args: &Approvals) -> Result<ExitCode> {
    let (mut lines, mut silent) = (Vec::new(), 0);
    match &args.id {
        Some(id) => {
            let record = find::network_of(find::container(id)?)?;
            waiting(&record, &mut lines)?;
        }
        None => {
            for record in store::all()? {
                // Skip containers that are just ending or have lost their sidecar; still list the others.
                if let Err(error) = waiting(&record, &mut lines) {
                    log::debug!("{error:#}");
                    silent += 1;
                }
            }
        }
    }
    let reader = match args.format {
        TableFormat::Json => out::line(&crate::text::escape_json(&serde_json::to_string(&lines)?))?,
        TableFormat::Table => out::text(&table(&lines))?,
    };
    if lines.is_empty() && reader == out::Reader::Listens && args.format == TableFormat::Table {
        crate::log::complain(match silent {
            0 => "agentbox: nothing waits for approval",
            _ => {
                "agentbox: nothing is known to wait for approval: some containers did not answer (--debug)"
            }
        });
    }
    Ok(ExitCode::SUCCESS)
}

fn waiting(record: &Record, lines: &mut Vec<Line>) -> Result<()> {
    let identity = identity::of(record);
    for waiting in approvals::waiting(record, WITHIN)? {
        lines.push(Line {
            container: record.id.clone(),
            identity: identity.clone(),
            waiting,
        });
    }
    Ok(())
}

fn table(lines: &[Line]) -> String {
    let names = lines.iter().map(|line| line.identity.short().len());
    let width = names.max().unwrap_or(0).max("NAME".len());
    let mut table = format!(
        "{:>7}  {:12}  {:width$}  {:>7}  {:>6}  {:24}  HOST:PORT\n",
        "ID", "CONTAINER", "NAME", "WAITED", "LEFT", "PROGRAM"
    );
    for Line {
        container,
        identity,
        waiting,
    } in lines
    {
        let program = match &waiting.program {
            // The workload chooses this name: escape it, keep it short.
            Some((pid, name)) => format!("{} (pid {pid})", crate::text::escape(name)),
            None => "-".to_owned(),
        };
        let container: String = container.chars().take(12).collect();
        table += &format!(
            "{:>7}  {container:12}  {:width$}  {:>5} s  {:>4} s  {program:24}  {}\n",
            waiting.id,
            crate::text::escape(&identity.short()),
            waiting.waited,
            waiting.left,
            endpoint(&Host::Name(waiting.host.clone()), waiting.port),
        );
    }
    table
}

/// Approves a connection or a host.
pub fn approve(args: &Approve) -> Result<ExitCode> {
    let lasting = match (&args.lasting, &args.until) {
        _ if args.once => ApprovalTerm::Once,
        (None, None) => ApprovalTerm::Always,
        (None, Some(text)) => ApprovalTerm::Until(until::date(text)?),
        (Some(text), _) => {
            let duration = crate::cmd::events::duration(text).filter(|d| d.as_secs() > 0);
            let duration = duration.with_context(|| {
                format!("--for {text:?} is no duration, such as 90s, 30m or 2h")
            })?;
            if duration > LONGEST {
                bail!("--for {text:?}: at most seven days");
            }
            ApprovalTerm::Seconds(u32::try_from(duration.as_secs())?)
        }
    };
    decide(&args.id, &args.what, Some(lasting))
}

/// Denies a connection or a host.
pub fn deny(args: &Deny) -> Result<ExitCode> {
    decide(&args.id, &args.what, None)
}

fn decide(id: &str, what: &str, approve: Option<ApprovalTerm>) -> Result<ExitCode> {
    let of = parse_target(what)?;
    let record = find::network_of(find::container(id)?)?;
    if !approvals::asks(&record) {
        bail!(
            "container {id} has no approvals, since its network.on-unknown is not ask or its network.mode not allowlist: {}",
            without_ask(id, what, &of, approve.as_ref())
        );
    }
    let ApprovalResult { host, port, closed } =
        approvals::decide(&record, AskDecision { of, approve })?;
    let word = match approve {
        Some(_) => "approved",
        None => "denied",
    };
    let end = match approve {
        Some(ApprovalTerm::Until(date)) => format!(" until {date}"),
        _ => String::new(),
    };
    out::line(&format!("{word}: {host}:{port}{end}"))?;
    out::line(&format!(
        "container {}",
        identity::of(&record).with_id(&record.id)
    ))?;
    if closed > 0 {
        out::line(&format!("connections closed: {closed}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What changes the rules of a container that asks nobody, to paste.
fn without_ask(
    id: &str,
    what: &str,
    of: &AskDecisionTarget,
    approve: Option<&ApprovalTerm>,
) -> String {
    let rule = match of {
        AskDecisionTarget::Waiting(_) => "HOST",
        AskDecisionTarget::Host(_) | AskDecisionTarget::Endpoint(..) => what,
    };
    let (option, does) = match approve {
        Some(_) => ("--network-add", "allows it"),
        None => ("--network-deny", "denies it"),
    };
    format!(
        "`agentbox update {} {option} {rule}` {does}",
        typed_rule(id)
    )
}

/// The number of a listed connection, or a name with its port in the grammar of rules. No name is a number.
fn parse_target(text: &str) -> Result<AskDecisionTarget> {
    if let Ok(number) = text.parse() {
        return Ok(AskDecisionTarget::Waiting(number));
    }
    let rule: EgressRule = text.parse().context("NUMBER or HOST:PORT")?;
    match rule.connection() {
        Some(NetworkRule {
            target: RuleTarget::Name(name),
            port,
            reach: HostReach::Public,
        }) => Ok(match port {
            Some(port) => AskDecisionTarget::Endpoint(name.clone(), *port),
            None => AskDecisionTarget::Host(name.clone()),
        }),
        _ => bail!(
            "{text:?} is not one name: only connections to names wait, and only names can be approved"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `deny` is what one types to cut an agent off in a hurry.
    #[test]
    fn without_approvals_the_error_has_the_update_that_does_it() {
        let cure =
            |what: &str, approve| without_ask("web", what, &parse_target(what).unwrap(), approve);
        assert_eq!(
            cure("a.test:22", None),
            "`agentbox update web --network-deny a.test:22` denies it"
        );
        assert_eq!(
            cure("a.test", Some(&ApprovalTerm::Always)),
            "`agentbox update web --network-add a.test` allows it"
        );
        assert!(cure("17", None).contains("--network-deny HOST`"));
    }

    #[test]
    fn an_approval_is_for_one_name() {
        let name = "api.example.com".parse().unwrap();
        assert_eq!(
            parse_target("Api.Example.com:22").unwrap(),
            AskDecisionTarget::Endpoint(name, 22)
        );
        assert_eq!(
            parse_target("a.test").unwrap(),
            AskDecisionTarget::Host("a.test".parse().unwrap())
        );
        assert_eq!(parse_target("17").unwrap(), AskDecisionTarget::Waiting(17));
        for bad in [
            "*",
            "*.a.test",
            "192.0.2.1",
            "internal:db:5432",
            "@github",
            "a.test:53",
            "-1",
            "1.5",
            "a\u{1b}[2J.test",
            "GET https://a.test/x",
            "https://a.test/x",
        ] {
            assert!(parse_target(bad).is_err(), "{bad:?}");
        }
        let said = format!("{:#}", parse_target("https://a.test/x").unwrap_err());
        assert!(said.ends_with("did you mean a.test?"), "{said}");
    }
}
