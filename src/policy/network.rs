//! Rules that need the node's leave: those that name more hosts than anybody can mean.

use std::collections::BTreeSet;

use super::{Field, Network, NetworkRule, NodeAllow, Target};

/// The most ports that rules may name: the wall listens on each.
pub const MOST_PORTS: usize = 64;

/// The first rule that the node does not give leave for, its field and the reason.
pub(super) fn check(
    network: &Network,
    leave: &NodeAllow,
) -> Result<(), (Field, NetworkRule, String)> {
    for rule in &network.allow {
        let wide = match &rule.target {
            Target::Any if rule.internal => {
                let why =
                    "internal names are listed one by one; only network.limit may have internal:*";
                return Err((Field::NetworkAllow, rule.clone(), why.to_owned()));
            }
            Target::Any => Some("it names every host".to_owned()),
            Target::Below(domain) if is_public_suffix(domain.as_str()) => Some(format!(
                "anybody can register a name below {domain} (the public suffix list)"
            )),
            Target::Below(_) | Target::Name(_) | Target::Addresses(..) => None,
        };
        if let Some(why) = wide
            && !leave.open_egress
        {
            let why = format!("{why}; allow.open-egress of the node's file gives leave");
            return Err((Field::NetworkAllow, rule.clone(), why));
        }
    }
    let ports: BTreeSet<u16> = network
        .allow
        .iter()
        .map(NetworkRule::allowed_port)
        .collect();
    match network.allow.last() {
        Some(last) if ports.len() > MOST_PORTS => {
            let why = format!(
                "rules may name {MOST_PORTS} different ports, these name {}",
                ports.len()
            );
            Err((Field::NetworkAllow, last.clone(), why))
        }
        _ => Ok(()),
    }
}

/// Whether names below it belong to whoever registers them. The list's private part (`github.io`) is left to the
/// author of the rule: `*.githubusercontent.com` is one company's.
fn is_public_suffix(domain: &str) -> bool {
    match psl::suffix(domain.as_bytes()) {
        Some(suffix) => {
            suffix.as_bytes() == domain.as_bytes() && suffix.typ() != Some(psl::Type::Private)
        }
        None => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_what_anybody_can_register_below() {
        for domain in ["com", "co.uk", "org", "internal", "test"] {
            assert!(is_public_suffix(domain), "{domain}");
        }
        for domain in [
            "example.com",
            "githubusercontent.com",
            "example.co.uk",
            "github.io",
            "s3.amazonaws.com",
        ] {
            assert!(!is_public_suffix(domain), "{domain}");
        }
    }
}
