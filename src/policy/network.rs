//! Rules that need the node's permission because they cover too many hosts.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde::Deserialize;

use super::rule::is_within;
use super::{EgressRule, Field, HostName, Network, NetworkRule, NodeAllow, RuleTarget};

/// The most ports that rules may name: the sidecar listens on each.
pub const MOST_PORTS: usize = 64;

/// A rule that the node does not allow, or that makes no sense.
pub(super) struct RuleRefusal {
    pub field: Field,
    pub rule: Box<EgressRule>,
    pub why: String,
}

impl RuleRefusal {
    fn of(rule: &EgressRule, why: String) -> Self {
        Self {
            field: Field::NetworkAllow,
            rule: Box::new(rule.clone()),
            why,
        }
    }
}

/// Refuses rules that the node does not allow, or that make no sense.
pub(super) fn check(
    network: &Network,
    leave: &NodeAllow,
    is_preset: impl Fn(&str) -> bool,
) -> Result<(), RuleRefusal> {
    for rule in &network.allow {
        let hosts = match rule {
            EgressRule::Connection(rule) => rule.clone(),
            EgressRule::Request(rule) => rule.connection(),
        };
        if let Some(why) = refused(&hosts, leave, &is_preset) {
            return Err(RuleRefusal::of(rule, why));
        }
    }
    let ports: BTreeSet<u16> = network.allow.iter().flat_map(ports).collect();
    match network.allow.last() {
        Some(last) if ports.len() > MOST_PORTS => {
            let why = format!(
                "rules may name {MOST_PORTS} different ports, these name {}",
                ports.len()
            );
            Err(RuleRefusal::of(last, why))
        }
        _ => Ok(()),
    }
}

/// The ports on which the sidecar listens for a rule. A request rule has two: the port of its address and of the plain
/// address. On the first, the sidecar answers with the reason why nothing passes.
pub fn ports(rule: &EgressRule) -> BTreeSet<u16> {
    match rule {
        EgressRule::Connection(rule) => [rule.allowed_port()].into(),
        EgressRule::Request(rule) => [rule.allowed_port(), rule.plain_port()].into(),
    }
}

/// Why a rule for these hosts is refused, if it is.
fn refused(
    rule: &NetworkRule,
    leave: &NodeAllow,
    is_preset: impl Fn(&str) -> bool,
) -> Option<String> {
    let wide = match &rule.target {
        RuleTarget::Any if rule.reach.is_private() => {
            return Some(format!(
                "names that are not public are listed one by one; only network.limit may have {rule}"
            ));
        }
        RuleTarget::Name(name) if !rule.reach.is_private() && name.parent().is_none() => {
            let port = rule.allowed_port();
            let preset = is_preset(name.as_str()).then_some(name);
            return Some(no_public_name(name, port, preset));
        }
        RuleTarget::Any => Some("it names every host".to_owned()),
        RuleTarget::Below(domain) => whose(domain).map(|whose| match whose {
            Strangers::Registrars => {
                format!("anybody can register a name below {domain} (the public suffix list)")
            }
            Strangers::Customers => format!(
                "anybody can publish below {domain} (the public suffix list, or policies/publishers.toml): name the hosts that are meant"
            ),
            Strangers::Anywhere => {
                format!("a name below {domain} leads to whatever address it says itself")
            }
        }),
        RuleTarget::Name(_) | RuleTarget::Addresses(..) => None,
    };
    wide.filter(|_| !leave.open_egress)
        .map(|why| format!("{why}; allow.open-egress of the node's file permits it"))
}

/// What the author may have meant by a single label, which is never a public name.
fn no_public_name(name: &HostName, port: u16, preset: Option<&HostName>) -> String {
    if name.as_str() == "localhost" {
        return "localhost is the container itself, which no rule is about".to_owned();
    }
    let preset = match preset {
        Some(preset) => format!("@{preset} is the preset; "),
        None => String::new(),
    };
    format!(
        "{name} is no public name: {preset}service:{name}:{port} is a container or Service beside this one, internal:{name}:{port} a \
         private host beyond"
    )
}

/// Additions to the public suffix list: `policies/publishers.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Publishers {
    own: Vec<Publisher>,
    customers: Vec<Publisher>,
    anywhere: Vec<Publisher>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Publisher {
    domain: HostName,
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers of the file"))]
    why: String,
}

/// Parsed at the first wildcard.
static PUBLISHERS: LazyLock<Publishers> = LazyLock::new(|| {
    toml::from_str(include_str!("../../policies/publishers.toml"))
        .expect("a test parses the built-in list")
});

/// Who controls the names below a domain, if not its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strangers {
    /// Anyone who registers a name.
    Registrars,
    /// Customers of the domain's owner: each has a name.
    Customers,
    /// No one: the name encodes an address.
    Anywhere,
}

fn whose(domain: &HostName) -> Option<Strangers> {
    let Publishers {
        own,
        customers,
        anywhere,
    } = &*PUBLISHERS;
    let within = |list: &[Publisher]| {
        list.iter().any(|entry| {
            entry.domain == *domain || is_within(domain.as_str(), entry.domain.as_str())
        })
    };
    if within(anywhere) {
        return Some(Strangers::Anywhere);
    }
    if within(customers) {
        return Some(Strangers::Customers);
    }
    // The list has domains, and wildcards under which each name is a public suffix.
    let below = format!("x.{domain}");
    let found = public_suffix(domain.as_str()).or_else(|| public_suffix(&below))?;
    let is_own = own.iter().any(|entry| entry.domain == *domain);
    match found {
        psl::Type::Private if is_own => None,
        psl::Type::Private => Some(Strangers::Customers),
        psl::Type::Icann => Some(Strangers::Registrars),
    }
}

/// The part of the list that has this suffix. A suffix without an entry counts as a registry's.
fn public_suffix(domain: &str) -> Option<psl::Type> {
    match psl::suffix(domain.as_bytes()) {
        Some(suffix) => (suffix.as_bytes() == domain.as_bytes())
            .then(|| suffix.typ().unwrap_or(psl::Type::Icann)),
        None => Some(psl::Type::Icann),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(domain: &str) -> Option<Strangers> {
        whose(&domain.parse().unwrap())
    }

    /// N-L3: who can publish below a domain.
    #[test]
    fn tells_who_controls_the_names_below_a_domain() {
        for domain in ["com", "co.uk", "org", "internal", "test"] {
            assert_eq!(of(domain), Some(Strangers::Registrars), "{domain}");
        }
        for domain in [
            "github.io",
            "gitlab.io",
            "s3.amazonaws.com",
            "blob.core.windows.net",
            "azurewebsites.net",
            "cloudfront.net",
            "workers.dev",
            "pages.dev",
            "vercel.app",
            "netlify.app",
            "herokuapp.com",
            "duckdns.org",
            "ngrok.io",
            "hf.space",
            "web.app",
            "compute.amazonaws.com",
            // A bucket is one label deeper, and storage.googleapis.com itself serves every bucket by path.
            "storage.googleapis.com",
            "googleapis.com",
            "core.windows.net",
            "file.core.windows.net",
            "region.cloudapp.azure.com",
            "cos.region.myqcloud.com",
            "webhook.site",
        ] {
            assert_eq!(of(domain), Some(Strangers::Customers), "{domain}");
        }
        for domain in [
            "nip.io",
            "a.b.nip.io",
            "sslip.io",
            "rbndr.us",
            "hash.plex.direct",
        ] {
            assert_eq!(of(domain), Some(Strangers::Anywhere), "{domain}");
        }
        for domain in [
            "example.com",
            "example.co.uk",
            "githubusercontent.com",
            "actions.githubusercontent.com",
            "octocat.github.io",
            "example.test",
            "a.example.test",
            "anip.io",
        ] {
            assert_eq!(of(domain), None, "{domain}");
        }
    }

    /// Each exception is on the public suffix list, and no addition is.
    #[test]
    fn the_own_list_repeats_nothing_of_the_public_suffix_list() {
        let Publishers {
            own,
            customers,
            anywhere,
        } = &*PUBLISHERS;
        for entry in customers {
            assert!(entry.why.len() > 10, "{entry:?}");
            assert_eq!(
                whose(&entry.domain),
                Some(Strangers::Customers),
                "{entry:?}"
            );
        }
        for entry in own {
            let on_it = public_suffix(entry.domain.as_str());
            assert_eq!(on_it, Some(psl::Type::Private), "{entry:?}");
        }
        for entry in anywhere {
            assert_eq!(public_suffix(entry.domain.as_str()), None, "{entry:?}");
            assert!(entry.why.len() > 10, "{entry:?}");
        }
    }
}
