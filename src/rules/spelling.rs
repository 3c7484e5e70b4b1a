//! One service by several names: an engine's search list completes shorter and longer names to the same one, and
//! programs use any of them.
//!
//! With `search default.svc.cluster.local svc.cluster.local cluster.local` the rule `internal:postgres:5432` means
//! `postgres.default.svc.cluster.local`, and so do `postgres.default` and `postgres.default.svc`. A spelling leads
//! only to the rule's own name, and not to other names that the search list makes.

use super::connection::is_within;
use super::host::HostName;

/// The names to resolve if a client sends `said` and a rule for private names has `ruled`. Empty if `said` is no
/// spelling of `ruled`. The rule's own spelling is also resolved as it is. All others are names that denials check and
/// users see ([`others`]): a name unknown to either would be a way around them.
pub fn resolved_names(said: &HostName, ruled: &HostName, search: &[HostName]) -> Vec<HostName> {
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

/// Every spelling of a rule's name except its own, for messages: the shortest first.
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

/// The complete names that a rule's name means. A single label is a name beside the container, for which the first
/// domain of the list is. With several labels, any domain may complete it.
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
        let meant = resolved_names(&name(said), &name(ruled), &pod());
        meant.iter().map(ToString::to_string).collect()
    }

    /// One rule covers every spelling of its Service, and no other Service.
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

    /// A rule's own spelling is resolved as it is.
    #[test]
    fn the_rules_own_spelling_is_resolved_as_it_is_and_completed() {
        assert_eq!(
            asked("postgres", "postgres"),
            ["postgres", "postgres.default.svc.cluster.local"]
        );
        let whole = "postgres.default.svc.cluster.local";
        assert_eq!(asked(whole, whole), [whole]);
        let none = resolved_names(&name("db"), &name("db"), &[]);
        assert_eq!(none, [name("db")]);
        assert!(resolved_names(&name("db.test"), &name("db"), &[]).is_empty());
    }

    /// M1: every resolved name is shown to users, and denied with any of the others.
    #[test]
    fn every_resolved_name_is_shown_to_users() {
        let first_and_prod = ["first.test", "prod.svc.cluster.test", "svc.cluster.test"].map(name);
        for search in [&pod()[..], &first_and_prod, &first_and_prod[..1], &[]] {
            for ruled in ["postgres", "postgres.prod", "postgres.first.test", "a.b.c"] {
                let ruled = name(ruled);
                let shown = super::others(&ruled, search);
                for said in shown.iter().chain([&ruled]) {
                    for asked in resolved_names(said, &ruled, search) {
                        assert!(asked == ruled || shown.contains(&asked), "{said} {asked}");
                    }
                }
            }
        }
    }

    #[test]
    fn users_see_all_spellings() {
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
