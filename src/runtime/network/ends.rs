//! The ends of the rules of a running container, when its rules change.
//!
//! A change of other rules never moves an end. Only a rule that is added again, within the ceilings, gets a new one, or none.

use std::collections::{BTreeMap, BTreeSet};

use super::RulesError;
use crate::policy::Network;
use crate::rules::{ClockReading, EgressRule, EgressRules, Expiry};

/// The expired rules that are remembered, for the reasons of denials.
const MOST_EXPIRED: usize = 64;

/// Ends by their rules.
type Ends = BTreeMap<EgressRule, Expiry>;

/// The rules that have expired, the latest of them.
pub(super) fn past(now: &EgressRules) -> Ends {
    let expired = now
        .ends
        .iter()
        .filter(|(rule, _)| !now.allow.contains(rule));
    let mut expired: Vec<_> = expired.map(|(rule, end)| (rule.clone(), *end)).collect();
    expired.sort_by_key(|(_, end)| std::cmp::Reverse(end.date()));
    expired.truncate(MOST_EXPIRED);
    expired.into_iter().collect()
}

/// The ends of `now` for these rules, and those that have expired.
pub(super) fn remaining_ends(now: &EgressRules, allow: &BTreeSet<EgressRule>) -> Ends {
    let mut ends = past(now);
    let running = now.temporary().filter(|(rule, _)| allow.contains(rule));
    ends.extend(running.map(|(rule, end)| (rule.clone(), end)));
    ends
}

/// The same with rules that are added, with an end or without. An error if all of them are there without an end, which stays.
pub(super) fn with(
    now: &EgressRules,
    allow: &BTreeSet<EgressRule>,
    added: &BTreeSet<EgressRule>,
    end: Option<Expiry>,
) -> Result<Ends, RulesError> {
    let mut ends = remaining_ends(now, allow);
    let Some(end) = end else {
        ends.retain(|rule, _| !added.contains(rule));
        return Ok(ends);
    };
    let is_lasting = |rule: &&EgressRule| now.allow.contains(rule) && !now.ends.contains_key(rule);
    let lasting: Vec<&EgressRule> = added.iter().filter(is_lasting).collect();
    if let Some(first) = lasting.first().filter(|_| lasting.len() == added.len()) {
        return Err(RulesError::Lasting(Box::new((*first).clone())));
    }
    for rule in &lasting {
        log::warn!("the rule {rule} is there without an end, and stays");
    }
    let ending = added.iter().filter(|rule| !is_lasting(rule));
    let ending = ending.filter(|rule| allow.contains(rule));
    ends.extend(ending.map(|rule| (rule.clone(), end)));
    Ok(ends)
}

/// The policy's temporary rules that stay in force with their ends: not removed, not given again without an end, and in the
/// policy as it is resolved now.
pub(super) fn of_policy(
    now: &EgressRules,
    policy: &Network,
    removed: &BTreeSet<EgressRule>,
) -> BTreeSet<EgressRule> {
    let rules = policy.temporary.iter().map(|one| &one.item);
    let rules = rules.filter(|rule| now.ends_by_policy(rule) && !removed.contains(rule));
    let rules = rules.filter(|rule| !policy.allow.contains(rule));
    rules.cloned().collect()
}

/// Removes these rules. An error if one of them is none, and has not ended either.
pub(super) fn take_out(
    rules: &mut BTreeSet<EgressRule>,
    remove: BTreeSet<EgressRule>,
    now: &EgressRules,
) -> Result<(), RulesError> {
    for rule in remove {
        let is_there = rules.remove(&rule) || now.ends_by_policy(&rule);
        if !is_there && !now.has_expired(&rule) {
            return Err(RulesError::NoRule(Box::new(rule)));
        }
    }
    Ok(())
}

/// Takes over the rules in force if they allow no more than the recorded ones: a change whose answer was lost is recorded as
/// [`either`] the old or the new rules, and the next change must not bring the old ones back.
pub(super) fn adopt_tighter(recorded: &mut EgressRules, in_force: &EgressRules, now: ClockReading) {
    if in_force.allow.is_subset(&recorded.allow) && in_force.deny.is_superset(&recorded.deny) {
        let removed = recorded.allow.difference(&in_force.allow);
        for rule in removed {
            recorded.ends.remove(rule);
        }
        for rule in &in_force.allow {
            let sooner = |end: &&Expiry| {
                let own = recorded.ends.get(rule);
                own.is_none_or(|own| end.left_ms(now) < own.left_ms(now))
            };
            if let Some(end) = in_force.ends.get(rule).filter(sooner) {
                recorded.ends.insert(rule.clone(), *end);
            }
        }
        recorded.allow.clone_from(&in_force.allow);
        recorded.deny.clone_from(&in_force.deny);
    }
}

/// What the old or the new rules allow: for the record, while the sidecar may have either.
pub(super) fn either(old: &EgressRules, new: &EgressRules, now: ClockReading) -> EgressRules {
    let allow: BTreeSet<EgressRule> = old.allow.union(&new.allow).cloned().collect();
    let mut ends = past(old);
    for rule in &allow {
        let of = |rules: &EgressRules| {
            let end = rules.ends.get(rule).copied();
            rules.allow.contains(rule).then_some(end)
        };
        let end = match (of(old), of(new)) {
            (Some(None), _) | (_, Some(None)) | (None, None) => None,
            (Some(Some(one)), Some(Some(other))) => {
                Some(std::cmp::max_by_key(one, other, |end| end.left_ms(now)))
            }
            (Some(Some(end)), None) | (None, Some(Some(end))) => Some(end),
        };
        match end {
            Some(end) => ends.insert(rule.clone(), end),
            None => ends.remove(rule),
        };
    }
    EgressRules {
        allow,
        deny: old.deny.intersection(&new.deny).cloned().collect(),
        search: new.search.clone(),
        ends,
        ended_by_policy: new.ended_by_policy.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::samples::rules;

    fn rule(text: &str) -> EgressRule {
        text.parse().unwrap()
    }

    #[test]
    fn a_change_whose_answer_was_lost_is_not_undone_by_the_next() {
        let now = ClockReading::default();
        let old = rules(&["a.test", "b.test"], &["x.test"]);
        let new = rules(&["a.test"], &["x.test", "y.test"]);
        let mut recorded = either(&old, &new, now);
        assert_eq!((&recorded.allow, &recorded.deny), (&old.allow, &old.deny));
        adopt_tighter(&mut recorded, &new, now);
        assert_eq!((recorded.allow, recorded.deny), (new.allow, new.deny));
        // A sidecar that says that it allows more is not believed.
        let mut recorded = old.clone();
        adopt_tighter(
            &mut recorded,
            &rules(&["a.test", "b.test", "c.test"], &["x.test"]),
            now,
        );
        adopt_tighter(&mut recorded, &rules(&["a.test"], &[]), now);
        assert_eq!(recorded, old);
    }

    fn end(seconds: u32) -> Expiry {
        Expiry::after(seconds, ClockReading::default()).unwrap()
    }

    /// a.test lasts, b.test ends in a minute, c.test has expired.
    fn now() -> EgressRules {
        let mut now = rules(&["a.test", "b.test"], &[]);
        now.ends.insert(rule("b.test"), end(60));
        now.ends.insert(rule("c.test"), end(1));
        now
    }

    #[test]
    fn a_change_of_other_rules_moves_no_end() {
        let now = now();
        let more = rules(&["a.test", "b.test", "d.test"], &[]).allow;
        assert_eq!(remaining_ends(&now, &more), now.ends);
        let added = [rule("d.test")].into();
        let ends = with(&now, &more, &added, None).unwrap();
        assert_eq!(ends, now.ends);
        let ends = with(&now, &more, &added, Some(end(600))).unwrap();
        assert_eq!(
            (ends[&rule("b.test")], ends[&rule("d.test")]),
            (end(60), end(600))
        );
        // A removed rule leaves no end, an expired one its reason.
        let less = rules(&["a.test"], &[]).allow;
        assert_eq!(
            remaining_ends(&now, &less),
            [(rule("c.test"), end(1))].into()
        );
    }

    #[test]
    fn only_the_rule_itself_gets_another_end_or_none() {
        let now = now();
        let with = |added: &str, end| with(&now, &now.allow, &[rule(added)].into(), end);
        assert_eq!(
            with("b.test", Some(end(600))).unwrap()[&rule("b.test")],
            end(600)
        );
        assert_eq!(with("b.test", None).unwrap().get(&rule("b.test")), None);
        // A lasting rule gets no end by the way.
        let error = with("a.test", Some(end(600))).unwrap_err();
        assert!(
            error.to_string().contains("--network-remove a.test"),
            "{error}"
        );
    }

    #[test]
    fn the_record_has_the_later_end_of_both() {
        let old = now();
        let mut new = rules(&["a.test", "b.test", "d.test"], &[]);
        new.ends.insert(rule("b.test"), end(600));
        new.ends.insert(rule("d.test"), end(5));
        let both = either(&old, &new, ClockReading::default());
        assert_eq!(both.allow, new.allow);
        let ends = [("b.test", 600), ("c.test", 1), ("d.test", 5)];
        let ends = ends.map(|(text, seconds)| (rule(text), end(seconds)));
        assert_eq!(both.ends, ends.into());
        new.ends.clear();
        let both = either(&old, &new, ClockReading::default());
        assert_eq!(both.ends, [(rule("c.test"), end(1))].into());
    }
}
