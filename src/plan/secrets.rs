//! PURE. Which secrets of the node a container uses, and which honey values it gets.

use std::collections::BTreeSet;

use super::error::PlanError;
use super::network::NetworkPlan;
use super::warning::Warning;
use crate::policy::{
    HoneyAction, HoneyValue, Network, NodeSecret, PolicyName, SecretName, VariableName,
};
use crate::rules::request::Scheme;
use crate::rules::{AskRules, Decision, EgressRules, Host};
use crate::text::few;

/// The secrets to add to requests of this container: those for a host to which some request is allowed. An error if a
/// secret names no single host, if requests to its host are not read, or if two belong in one field.
pub(super) fn planned(
    policy: &PolicyName,
    secrets: &[NodeSecret],
    rules: &EgressRules,
) -> Result<Vec<NodeSecret>, PlanError> {
    let refused = |why| PlanError::Secret {
        policy: policy.to_string(),
        why,
    };
    let mut planned: Vec<NodeSecret> = Vec::new();
    for secret in secrets {
        let places = secret.places().map_err(refused)?;
        if !places
            .iter()
            .any(|(host, port)| rules.allow_requests(host, Scheme::Https, *port))
        {
            continue;
        }
        if let Some(why) = opened(std::slice::from_ref(secret), rules, &EgressRules::default()) {
            return Err(refused(why));
        }
        if let Some((other, why)) = planned
            .iter()
            .find_map(|other| Some((other, clash(other, secret)?)))
        {
            let cure = match other.of_user().or(secret.of_user()) {
                Some(_) => "take one out of ~/.config/agentbox/config.toml",
                None => "leave one out of its policies",
            };
            return Err(refused(format!(
                "{} and {} {why}: {cure}",
                other.name, secret.name
            )));
        }
        planned.push(secret.clone());
    }
    Ok(planned)
}

/// Why these rules open a secret's host as a whole, if they do and the earlier rules did not. Every port counts: the
/// host may return the secret on another.
fn opened(secrets: &[NodeSecret], rules: &EgressRules, before: &EgressRules) -> Option<String> {
    let is_whole = |rules: &EgressRules, host: &Host, port| {
        matches!(rules.decide(host, port), Decision::Allow(_))
    };
    let ports = rules.ports();
    let opened = |host: &Host| {
        let mut ports = ports.iter().copied();
        ports.find(|port| is_whole(rules, host, *port) && !is_whole(before, host, *port))
    };
    secrets.iter().find_map(|secret| {
        let mut hosts = hosts(std::slice::from_ref(secret)).into_iter();
        let (host, port) = hosts.find_map(|host| opened(&host).map(|port| (host, port)))?;
        Some(format!(
            "secret {} needs requests to {host}, but port {port} is open as a whole, and agentbox reads only requests of request \
             rules: use {}",
            secret.name,
            quoted_requests(secret)
        ))
    })
}

/// The requests of a secret as rules, each in quotes.
fn quoted_requests(secret: &NodeSecret) -> String {
    few(secret.requests.iter().map(|rule| format!("'{rule}'")), 100)
}

/// The ask rules without the hosts of these secrets, at any port.
pub(super) fn left_closed(asking: Option<AskRules>, secrets: &[NodeSecret]) -> Option<AskRules> {
    asking.map(|asking| AskRules {
        secret_hosts: hosts(secrets),
        ..asking
    })
}

/// The hosts whose requests get one of these secrets.
fn hosts(secrets: &[NodeSecret]) -> BTreeSet<Host> {
    let places = secrets.iter().filter_map(|secret| secret.places().ok());
    places.flatten().map(|(host, _)| host).collect()
}

impl NetworkPlan {
    /// Why these rules must not replace the present ones, because of a secret; `None` if they may.
    pub fn opens_a_secrets_host(&self, rules: &EgressRules) -> Option<String> {
        opened(&self.secrets, rules, &self.rules)
    }

    /// The secrets that these rules leave without any request, and the present ones do not.
    pub fn leaves_unused(&self, rules: &EgressRules) -> Vec<&SecretName> {
        let used = |secret: &NodeSecret, rules: &EgressRules| {
            let mut places = secret.places().into_iter().flatten();
            places.any(|(host, port)| rules.allow_requests(&host, Scheme::Https, port))
        };
        let unused = self.secrets.iter();
        let unused = unused.filter(|secret| used(secret, &self.rules) && !used(secret, rules));
        unused.map(|secret| &secret.name).collect()
    }

    /// Whether a honey value ends the container.
    pub fn honey_ends(&self) -> bool {
        self.honey.iter().any(|one| one.then == HoneyAction::End)
    }
}

/// The honey values of a container with these secrets. An error if two have one name or one variable.
pub(super) fn baits(
    policy: &PolicyName,
    honey: &[HoneyValue],
    secrets: &[NodeSecret],
) -> Result<Vec<HoneyValue>, PlanError> {
    let secrets = secrets.iter().map(|secret| (&secret.name, &secret.env));
    let mut before: Vec<_> = secrets.collect();
    for HoneyValue { name, env, .. } in honey {
        let same = |(other, its): &&(&SecretName, &Option<VariableName>)| {
            *other == name || (env.is_some() && *its == env)
        };
        if let Some((other, _)) = before.iter().find(same) {
            return Err(PlanError::Secret {
                policy: policy.to_string(),
                why: format!("honey value {name} has the name or variable of {other}: rename one"),
            });
        }
        before.push((name, env));
    }
    Ok(honey.to_vec())
}

/// Warnings about secrets that a container with its own network does not use although it reaches their hosts.
pub(super) fn not_seen(secrets: &[NodeSecret], network: &NetworkPlan) -> Vec<Warning> {
    match network.shared {
        Some(_) => Vec::new(),
        None => not_seen_by(secrets, &network.rules),
    }
}

/// The same before there is a plan, for a user's own secrets.
pub fn not_seen_under(secrets: &[NodeSecret], network: &Network) -> Vec<Warning> {
    let rules = EgressRules {
        allow: network.allowed_at_first().cloned().collect(),
        deny: network.deny.clone(),
        ..EgressRules::default()
    };
    not_seen_by(secrets, &rules)
}

fn not_seen_by(secrets: &[NodeSecret], rules: &EgressRules) -> Vec<Warning> {
    let warnings = unseen(secrets, rules).map(|(secret, host)| Warning::SecretNotSeen {
        secret: secret.name.to_string(),
        host: host.to_string(),
    });
    warnings.collect()
}

/// The secrets that the container would use if requests to their hosts were read, each with the first such host.
fn unseen<'a>(
    secrets: &'a [NodeSecret],
    rules: &'a EgressRules,
) -> impl Iterator<Item = (&'a NodeSecret, Host)> {
    secrets.iter().filter_map(|secret| {
        let places = secret.places().ok()?;
        let is_whole = |host: &Host, port| matches!(rules.decide(host, port), Decision::Allow(_));
        let is_read = places
            .iter()
            .any(|(host, port)| rules.allow_requests(host, Scheme::Https, *port));
        let whole = places
            .into_iter()
            .find(|(host, port)| is_whole(host, *port));
        whole.filter(|_| !is_read).map(|(host, _)| (secret, host))
    })
}

/// Why two secrets cannot be used together.
fn clash(one: &NodeSecret, other: &NodeSecret) -> Option<String> {
    let places = |secret: &NodeSecret| secret.places().unwrap_or_default();
    if one.name == other.name {
        return Some("are one name".to_owned());
    }
    if let Some(env) = one.env.as_ref().filter(|_| one.env == other.env) {
        return Some(format!("are looked for in the same variable ({env})"));
    }
    let in_one_place = one.place.is_also(&other.place) && !places(one).is_disjoint(&places(other));
    in_one_place.then(|| {
        let place = &one.place;
        format!("use the same field ({place}) of requests to the same host")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::SecretPlace;

    fn secret(name: &str, request: &str) -> NodeSecret {
        NodeSecret {
            name: name.parse().unwrap(),
            source: crate::policy::SecretSource::File("/etc/agentbox/model".parse().unwrap()),
            policies: ["agent".parse().unwrap()].into(),
            requests: [request.parse().unwrap()].into(),
            place: SecretPlace::Header("x-api-key: {}".parse().unwrap()),
            env: None,
            uses: None,
            until: None,
        }
    }

    fn planned(secrets: &[NodeSecret], allow: &[&str]) -> Result<usize, String> {
        let allow = allow.iter().map(|rule| rule.parse().unwrap()).collect();
        let rules = EgressRules {
            allow,
            ..EgressRules::default()
        };
        let planned = super::planned(&"agent".parse().unwrap(), secrets, &rules);
        planned
            .map(|all| all.len())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_secret_goes_only_where_its_requests_are_read() {
        let model = secret("model", "POST https://a.test/v1/**");
        let model = std::slice::from_ref(&model);
        assert_eq!(planned(model, &["POST https://a.test/v1/messages"]), Ok(1));
        assert_eq!(planned(model, &["POST https://*.test/**"]), Ok(1));
        for without in ["a.test", "POST https://b.test/**", "POST http://a.test/**"] {
            assert_eq!(planned(model, &[without]), Ok(0), "{without}");
        }
        let unseen = |allow: &str| {
            let allow = [allow.parse().unwrap()].into();
            let rules = EgressRules {
                allow,
                ..EgressRules::default()
            };
            super::unseen(model, &rules).count()
        };
        let seen = ["a.test", "b.test", "a.test:80", "POST https://a.test/v1/**"].map(unseen);
        assert_eq!(seen, [1, 0, 0, 0]);
        for whole in ["a.test", "a.test:8443", "*.test:80", "*"] {
            let error = planned(model, &[whole, "POST https://a.test/v1/**"]).unwrap_err();
            assert!(
                error.contains("reads only requests of request rules"),
                "{whole}: {error}"
            );
        }
        assert_eq!(
            planned(model, &["b.test:80", "POST https://a.test/v1/**"]),
            Ok(1)
        );
    }

    #[test]
    fn an_update_opens_no_host_of_a_secret_and_says_which_are_used_no_more() {
        let model = [secret("model", "POST https://a.test/v1/**")];
        let rules = |list: &[&str]| EgressRules {
            allow: list.iter().map(|rule| rule.parse().unwrap()).collect(),
            ..EgressRules::default()
        };
        let before = rules(&["POST https://a.test/v1/**", "b.test"]);
        let opened = |list: &[&str]| super::opened(&model, &rules(list), &before);
        for whole in [
            &["a.test"][..],
            &["a.test:8443", "POST https://a.test/v1/**"],
            &["*.test:22"],
        ] {
            let why = opened(whole).unwrap();
            assert!(why.contains("secret model"), "{why}");
        }
        for good in [&[][..], &["b.test:80"], &["GET https://a.test/v1/**"]] {
            assert_eq!(opened(good), None, "{good:?}");
        }
        // Rules that an older version allowed stay, so that deny rules can be added.
        let before = rules(&["a.test:8443", "POST https://a.test/v1/**"]);
        assert_eq!(super::opened(&model, &before, &before), None);
    }

    #[test]
    fn two_secrets_in_one_field_are_refused() {
        let one = secret("one", "POST https://a.test/v1/**");
        let other = secret("other", "GET https://a.test/v2/**");
        let elsewhere = secret("elsewhere", "GET https://b.test/v2/**");
        let allow = ["* https://a.test/**", "* https://b.test/**"];
        assert_eq!(planned(&[one.clone(), elsewhere], &allow), Ok(2));
        let error = planned(&[one, other], &allow).unwrap_err();
        assert!(
            error.contains("one and other use the same field"),
            "{error}"
        );
        let env = |name: &str, request: &str| NodeSecret {
            env: Some("KEY".parse().unwrap()),
            ..secret(name, request)
        };
        let both = [
            env("one", "POST https://a.test/v1/**"),
            env("other", "GET https://b.test/**"),
        ];
        let error = planned(&both, &allow).unwrap_err();
        assert!(error.contains("the same variable (KEY)"), "{error}");
    }
}
