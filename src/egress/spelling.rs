//! One service by several names: an engine's search list makes the same name whole from a short one and from a longer one, and
//! programs use whichever they were told (K-10).
//!
//! With `search default.svc.cluster.local svc.cluster.local cluster.local` the rule `internal:postgres:5432` means
//! `postgres.default.svc.cluster.local`, and so do `postgres.default` and `postgres.default.svc`. A spelling leads
//! only to the rule's own name, and not to others made by the search list.

use crate::policy::HostName;
use crate::policy::rule::is_within;

/// The names to ask for when a client says `said` and a rule for private names says `ruled`: none where the one is no spelling of
/// the other. The rule's own spelling is asked for as it is as well, and else as the names that a denial looks at and
/// people are shown ([`others`]): what one of them did not know would be a way around it.
pub fn meant(said: &HostName, ruled: &HostName, search: &[HostName]) -> Vec<HostName> {
    let mut whole = wholes(ruled, search);
    if said == ruled {
        whole.retain(|whole| whole != said);
        whole.insert(0, said.clone());
        return whole;
    }
    whole.retain(|whole| {
        let mut made = search.iter().filter_map(|domain| below(said, domain));
        whole == said || made.any(|made| made == *whole)
    });
    whole
}

/// Every spelling of a rule's name but its own, for people: the shortest first.
pub fn others(ruled: &HostName, search: &[HostName]) -> Vec<HostName> {
    let wholes = wholes(ruled, search);
    let mut all: Vec<HostName> = Vec::new();
    for whole in &wholes {
        let short = search.iter().filter_map(|domain| {
            let short = whole.as_str().strip_suffix(domain.as_str())?;
            short.strip_suffix('.')?.parse().ok()
        });
        for name in short.chain([whole.clone()]) {
            if name != *ruled && !all.contains(&name) {
                all.push(name);
            }
        }
    }
    all.sort_by_key(|name| name.as_str().len());
    all
}

/// The whole names that a rule's name stands for. One label is the name of something beside the container, which the first domain
/// is for; of several labels a rule does not say which domain they belong to.
fn wholes(ruled: &HostName, search: &[HostName]) -> Vec<HostName> {
    let is_whole = |domain: &HostName| is_within(ruled.as_str(), domain.as_str());
    if search.iter().any(is_whole) {
        return vec![ruled.clone()];
    }
    let domains = match ruled.parent() {
        None => &search[..search.len().min(1)],
        Some(_) => search,
    };
    let all = domains.iter().filter_map(|domain| below(ruled, domain));
    all.collect()
}

fn below(name: &HostName, domain: &HostName) -> Option<HostName> {
    format!("{name}.{domain}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        text.parse().unwrap()
    }

    fn pod() -> Vec<HostName> {
        [
            "default.svc.cluster.local",
            "svc.cluster.local",
            "cluster.local",
        ]
        .map(name)
        .to_vec()
    }

    fn asked(said: &str, ruled: &str) -> Vec<String> {
        let meant = meant(&name(said), &name(ruled), &pod());
        meant.iter().map(ToString::to_string).collect()
    }

    /// K-10: one rule, every spelling of its Service, and no other one's.
    #[test]
    fn a_rule_means_every_spelling_of_its_service() {
        let whole = "postgres.default.svc.cluster.local";
        for ruled in [
            "postgres",
            "postgres.default",
            "postgres.default.svc",
            whole,
        ] {
            for said in [
                "postgres",
                "postgres.default",
                "postgres.default.svc",
                whole,
            ] {
                let asked = asked(said, ruled);
                assert!(
                    asked.iter().any(|name| name == whole),
                    "{said} {ruled}: {asked:?}"
                );
                if said != ruled {
                    assert_eq!(asked, [whole], "{said} {ruled}");
                }
            }
            for other in [
                "postgres.prod",
                "postgres.prod.svc",
                "postgres.prod.svc.cluster.local",
                "web",
                "web.default",
                "web.default.svc.cluster.local",
                "default",
                "default.svc.cluster.local",
                "a.postgres",
                "a.postgres.default.svc.cluster.local",
                "postgres.default.svc.cluster.local.evil.test",
                "notpostgres.default.svc.cluster.local",
            ] {
                assert!(asked(other, ruled).is_empty(), "{other} {ruled}");
            }
        }
        for other in [
            "postgres.svc",
            "postgres.svc.cluster.local",
            "postgres.cluster.local",
        ] {
            assert!(asked(other, "postgres").is_empty(), "{other}");
        }
        assert_eq!(
            asked("web.prod.svc", "web.prod"),
            ["web.prod.svc.cluster.local"]
        );
    }

    /// A rule's own spelling is asked for as before.
    #[test]
    fn the_rules_own_spelling_is_asked_for_alone_and_whole() {
        assert_eq!(
            asked("postgres", "postgres"),
            ["postgres", "postgres.default.svc.cluster.local"]
        );
        let whole = "postgres.default.svc.cluster.local";
        assert_eq!(asked(whole, whole), [whole]);
        let none = meant(&name("db"), &name("db"), &[]);
        assert_eq!(none, [name("db")]);
        assert!(meant(&name("db.test"), &name("db"), &[]).is_empty());
    }

    /// M1: whatever is asked for is what people are shown, and what a denial of any of them stands for.
    #[test]
    fn nothing_is_asked_for_that_people_are_not_shown() {
        let first_and_prod = ["first.test", "prod.svc.cluster.test", "svc.cluster.test"].map(name);
        for search in [&pod()[..], &first_and_prod, &first_and_prod[..1], &[]] {
            for ruled in ["postgres", "postgres.prod", "postgres.first.test", "a.b.c"] {
                let ruled = name(ruled);
                let shown = super::others(&ruled, search);
                for said in shown.iter().chain([&ruled]) {
                    for asked in meant(said, &ruled, search) {
                        assert!(asked == ruled || shown.contains(&asked), "{said} {asked}");
                    }
                }
            }
        }
    }

    #[test]
    fn people_are_shown_all_of_them() {
        let others = |ruled: &str| -> Vec<String> {
            let all = others(&name(ruled), &pod());
            all.iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            others("postgres"),
            [
                "postgres.default",
                "postgres.default.svc",
                "postgres.default.svc.cluster.local",
            ]
        );
        for shown in others("web.prod") {
            assert!(!asked(&shown, "web.prod").is_empty(), "{shown}");
        }
        assert!(super::others(&name("db"), &[]).is_empty());
    }
}
