//! Who controls the names below a domain: the public suffix list, and `policies/publishers.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

use super::connection::is_within;
use super::host::HostName;
use crate::data::table;

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
    table!("publishers")
        .read()
        .expect("a test parses the built-in list")
});

/// Who controls the names below a domain, if not its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strangers {
    /// Anyone who registers a name.
    Registrars,
    /// Customers of the domain's owner: each has a name.
    Customers,
    /// No one: the name encodes an address.
    Anywhere,
}

/// Who controls the names below a domain, if not its owner.
pub fn whose(domain: &HostName) -> Option<Strangers> {
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
