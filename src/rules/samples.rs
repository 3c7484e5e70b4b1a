//! Rules of tests, as they are typed in a policy.

use super::decide::EgressRules;

/// Those that allow and those that deny.
pub fn rules(allow: &[&str], deny: &[&str]) -> EgressRules {
    let parse = |list: &[&str]| list.iter().map(|rule| rule.parse().unwrap()).collect();
    EgressRules {
        allow: parse(allow),
        deny: parse(deny),
        ..EgressRules::default()
    }
}
