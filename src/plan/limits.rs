//! PURE. The limits of a container: the smaller of the policy's limit and the engine's.

use std::collections::BTreeSet;

use oci_spec::runtime::{LinuxCpu, LinuxMemory, LinuxPids, LinuxResources};
use serde::{Deserialize, Serialize};

use super::error::PlanError;
use super::facts::HostFacts;
use super::person::PersonFacts;
use super::warning::Warning;
use crate::policy::bound::Bound;
use crate::policy::{Field, Limits, Origin, Policy, ResolvedPolicy};

/// The default period of a quota, in microseconds: the kernel's own (sched-bwc.rst).
const PERIOD: u64 = 100_000;

/// Upper limits for this container on this node; `None` if only the engine's count.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LimitsPlan {
    /// Processes and threads.
    pub pids: Option<u32>,
    /// Bytes of memory.
    pub memory_bytes: Option<u64>,
    /// Thousandths of a processor.
    pub cpu_milli: Option<u32>,
}

impl LimitsPlan {
    /// The smallest of all limits on the container.
    pub fn smallest<'a>(all: impl IntoIterator<Item = &'a Limits>, host: &HostFacts) -> Self {
        all.into_iter().map(|limits| Self::of(limits, host)).fold(
            Self::default(),
            |least, other| Self {
                pids: smaller_of(least.pids, other.pids),
                memory_bytes: smaller_of(least.memory_bytes, other.memory_bytes),
                cpu_milli: smaller_of(least.cpu_milli, other.cpu_milli),
            },
        )
    }

    /// The limits, with shares of the node as numbers.
    fn of(limits: &Limits, host: &HostFacts) -> Self {
        let Limits { pids, memory, cpus } = limits;
        Self {
            pids: match pids {
                Bound::Is(pids) => Some(pids.get()),
                // The grammar has no share for processes.
                Bound::Share(_) | Bound::Unlimited => None,
            },
            memory_bytes: match memory {
                Bound::Is(memory) => Some(memory.bytes()),
                // A whole number of pages: the kernel rounds down, and the displayed value is then the enforced one.
                Bound::Share(percent) => {
                    Some(host.memory_bytes.saturating_mul(u64::from(*percent)) / 100 / 4096 * 4096)
                }
                Bound::Unlimited => None,
            },
            cpu_milli: match cpus {
                Bound::Is(cpus) => Some(cpus.milli()),
                Bound::Share(percent) => Some((host.processors * 10 * u32::from(*percent)).max(10)),
                Bound::Unlimited => None,
            },
        }
    }

    /// Refuses a node whose cgroups cannot enforce one of the limits.
    pub(super) fn require(&self, policy: &Policy, host: &HostFacts) -> Result<(), PlanError> {
        let (limits, bounds) = (&policy.limits, self);
        let asked = [
            (
                "pids",
                "pids",
                bounds.pids.is_some(),
                limits.pids.to_string(),
            ),
            (
                "memory",
                "memory",
                bounds.memory_bytes.is_some(),
                limits.memory.to_string(),
            ),
            (
                "cpus",
                "cpu",
                bounds.cpu_milli.is_some(),
                limits.cpus.to_string(),
            ),
        ];
        for (field, controller, is_bounded, bound) in asked {
            if is_bounded && !host.controllers.contains(controller) {
                return Err(PlanError::Controller {
                    policy: policy.name.to_string(),
                    field,
                    bound,
                    controller,
                });
            }
        }
        Ok(())
    }

    /// The limits that the controllers of an unprivileged caller's cgroup can enforce. Limits of built-in policies that
    /// they cannot enforce are given up with a warning. Others are refused.
    pub(super) fn of_person(
        mut self,
        (person, controllers): (PersonFacts, &BTreeSet<String>),
        resolved: &ResolvedPolicy,
        warnings: &mut Vec<Warning>,
    ) -> Result<Self, PlanError> {
        let has = |controller: &str| controllers.contains(controller);
        let mut given_up = Vec::new();
        if self.pids.is_some() && !has("pids") {
            self.pids = None;
            given_up.push(Field::LimitsPids);
        }
        if self.memory_bytes.is_some() && !has("memory") {
            self.memory_bytes = None;
            given_up.push(Field::LimitsMemory);
        }
        if self.cpu_milli.is_some() && !has("cpu") {
            self.cpu_milli = None;
            given_up.push(Field::LimitsCpus);
        }
        for field in &given_up {
            if let Some(origin) = written_down(resolved, *field) {
                return Err(PlanError::NoCgroup {
                    field: *field,
                    origin,
                    why: person.cgroup.lacking(),
                });
            }
        }
        if !given_up.is_empty() {
            let names: Vec<String> = given_up.iter().map(ToString::to_string).collect();
            warnings.push(Warning::NotLimited {
                fields: names.join(", "),
                why: person.cgroup.lacking().to_owned(),
            });
        }
        warnings.push(Warning::SidecarOfPerson {
            bounded: ["pids", "memory", "cpu"].into_iter().all(has),
        });
        if person.groups > 0 {
            warnings.push(Warning::GroupsStay {
                count: person.groups,
            });
        }
        Ok(self)
    }

    /// Sets each limit that the engine leaves out or sets higher: for `create`.
    pub fn apply(&self, resources: &mut LinuxResources) {
        let Self {
            pids,
            memory_bytes,
            cpu_milli,
        } = self;
        if pids.is_some() && resources.pids().is_none() {
            let mut none = LinuxPids::default();
            none.set_limit(-1);
            resources.set_pids(Some(none));
        }
        if memory_bytes.is_some() {
            let mut memory: LinuxMemory = resources.memory().unwrap_or_default();
            memory.set_limit(memory.limit().or(Some(-1)));
            resources.set_memory(Some(memory));
        }
        if cpu_milli.is_some() {
            let mut cpu: LinuxCpu = resources.cpu().clone().unwrap_or_default();
            cpu.set_quota(cpu.quota().or(Some(-1)));
            resources.set_cpu(Some(cpu));
        }
        self.clamp(resources);
    }

    /// Lowers existing limits and sets no others: for `update`.
    pub fn clamp(&self, resources: &mut LinuxResources) {
        if let (Some(most), Some(mut pids)) = (self.pids, *resources.pids())
            // Zero means not set (runc).
            && pids.limit() != 0
        {
            pids.set_limit(smaller(pids.limit(), i64::from(most)));
            resources.set_pids(Some(pids));
        }
        if let (Some(most), Some(mut memory)) = (self.memory_bytes, *resources.memory())
            && let Some(limit) = memory.limit().filter(|limit| *limit != 0)
        {
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            let lower = smaller(limit, most);
            memory.set_limit(Some(lower));
            // It counts memory and swap together: the engine's share for swap stays the same.
            if let (Some(both), true) = (memory.swap().filter(|both| *both > 0), limit > 0) {
                memory.set_swap(Some(both - (limit - lower)));
            }
            resources.set_memory(Some(memory));
        }
        if let (Some(most), Some(mut cpu)) = (self.cpu_milli, resources.cpu().clone()) {
            clamp_cpu(&mut cpu, most);
            resources.set_cpu(Some(cpu));
        }
        self.clamp_unified(resources);
    }

    /// The same for the names of cgroup v2's files, which are written last.
    fn clamp_unified(&self, resources: &mut LinuxResources) {
        let Some(mut unified) = resources.unified().clone() else {
            return;
        };
        let bounds = [
            ("pids.max", self.pids.map(u64::from)),
            ("memory.max", self.memory_bytes),
        ];
        for (file, most) in bounds {
            if let (Some(most), Some(value)) = (most, unified.get_mut(file)) {
                *value = bytes(value)
                    .map_or(most, |given| given.min(most))
                    .to_string();
            }
        }
        if let (Some(most), Some(value)) = (self.cpu_milli, unified.get_mut("cpu.max")) {
            let mut words = value.split_whitespace();
            let quota = words.next().and_then(|word| word.parse().ok());
            let period = words.next().and_then(|word| word.parse().ok());
            let mut cpu = LinuxCpu::default();
            cpu.set_quota(Some(quota.unwrap_or(-1)));
            cpu.set_period(period);
            clamp_cpu(&mut cpu, most);
            let quota = cpu.quota().unwrap_or(-1);
            *value = format!("{quota} {}", cpu.period().unwrap_or(PERIOD));
        }
        if self.cpu_milli.is_some() {
            unified.remove("cpu.max.burst");
        }
        resources.set_unified(Some(unified));
    }

    /// Why an update is refused, if it is: it does not determine the share of the processors.
    pub fn refuses(&self, resources: &LinuxResources) -> Option<String> {
        let cpu = resources
            .cpu()
            .as_ref()
            .filter(|_| self.cpu_milli.is_some())?;
        let given = |quota: i64| quota != 0;
        match (
            cpu.period().filter(|period| *period != 0),
            cpu.quota().filter(|q| given(*q)),
        ) {
            (Some(_), None) => {
                Some("limits.cpus bounds this container: give the quota with the period".to_owned())
            }
            // Otherwise the kernel refuses the period and keeps the quota (sched-bwc.rst).
            (Some(period), _) if !(1_000..=1_000_000).contains(&period) => Some(format!(
                "the period of the processors is 1000 to 1000000 microseconds, not {period}"
            )),
            _ => None,
        }
    }
}

/// The origin of a field, unless it is a built-in policy or a default.
fn written_down(resolved: &ResolvedPolicy, field: Field) -> Option<Origin> {
    let origin = resolved.origins.get(&field).unwrap_or(&Origin::Default);
    match origin {
        Origin::Builtin(_) | Origin::Default => None,
        Origin::Annotation(_)
        | Origin::Flag
        | Origin::Option(_)
        | Origin::Setting(_)
        | Origin::OwnFile(_)
        | Origin::Node
        | Origin::NodeEntry(_)
        | Origin::File(_)
        | Origin::Ceiling(_)
        | Origin::Update => Some(origin.clone()),
    }
}

/// A number of cgroup v2's files, with the suffixes that the kernel takes (memparse).
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let units = [('k', 10), ('m', 20), ('g', 30), ('t', 40)];
    let unit = units.into_iter().find_map(|(unit, shift)| {
        Some((text.strip_suffix([unit, unit.to_ascii_uppercase()])?, shift))
    });
    match unit {
        Some((digits, shift)) => digits.parse::<u64>().ok()?.checked_mul(1 << shift),
        None => text.parse().ok(),
    }
}

fn smaller_of<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// The smaller of two limits; a negative one means no limit.
fn smaller(given: i64, most: i64) -> i64 {
    match given < 0 {
        true => most,
        false => given.min(most),
    }
}

/// Lowers the quota to this many thousandths of its period.
fn clamp_cpu(cpu: &mut LinuxCpu, milli: u32) {
    if cpu.quota().is_none() && cpu.period().is_none() {
        return;
    }
    // A period without a quota changes the share of the existing quota.
    let period = cpu.period().filter(|period| *period != 0).unwrap_or(PERIOD);
    let most = i64::try_from(period.saturating_mul(u64::from(milli)) / 1000).unwrap_or(i64::MAX);
    let quota = smaller(cpu.quota().filter(|quota| *quota != 0).unwrap_or(-1), most);
    cpu.set_quota(Some(quota));
    cpu.set_period(Some(period));
    // A burst exceeds the limit for a while.
    cpu.set_burst(None);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PersonsCgroup;

    const PLAN: LimitsPlan = LimitsPlan {
        pids: Some(1024),
        memory_bytes: Some(1 << 30),
        cpu_milli: Some(1500),
    };

    fn resources(text: &str) -> LinuxResources {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn p01_the_smaller_of_both_holds() {
        for (given, expected) in [
            (
                "{}",
                r#"{"pids": {"limit": 1024}, "memory": {"limit": 1073741824}, "cpu": {"quota": 150000, "period": 100000}}"#,
            ),
            (
                r#"{"pids": {"limit": -1}, "memory": {"limit": -1, "swap": -1}, "cpu": {"quota": -1, "shares": 5}}"#,
                r#"{"pids": {"limit": 1024}, "memory": {"limit": 1073741824, "swap": -1},
                    "cpu": {"quota": 150000, "period": 100000, "shares": 5}}"#,
            ),
            (
                r#"{"pids": {"limit": 7}, "memory": {"limit": 5000}, "cpu": {"quota": 5000, "period": 50000}}"#,
                r#"{"pids": {"limit": 7}, "memory": {"limit": 5000}, "cpu": {"quota": 5000, "period": 50000}}"#,
            ),
            (
                r#"{"pids": {"limit": 9999}, "memory": {"limit": 9999999999}, "cpu": {"quota": 90000, "period": 50000},
                    "unified": {"pids.max": "max", "memory.max": "77", "cpu.max": "max", "io.weight": "3"}}"#,
                r#"{"pids": {"limit": 1024}, "memory": {"limit": 1073741824}, "cpu": {"quota": 75000, "period": 50000},
                    "unified": {"pids.max": "1024", "memory.max": "77", "cpu.max": "150000 100000", "io.weight": "3"}}"#,
            ),
            (
                r#"{"pids": {"limit": 7}, "memory": {"limit": 4294967296, "swap": 4294967296},
                    "cpu": {"quota": 5000, "period": 50000, "burst": 9000},
                    "unified": {"memory.max": "1M", "cpu.max.burst": "77"}}"#,
                r#"{"pids": {"limit": 7}, "memory": {"limit": 1073741824, "swap": 1073741824},
                    "cpu": {"quota": 5000, "period": 50000}, "unified": {"memory.max": "1048576"}}"#,
            ),
        ] {
            let mut given = resources(given);
            PLAN.apply(&mut given);
            assert_eq!(given, resources(expected));
        }
        let mut alone = resources(r#"{"pids": {"limit": -1}}"#);
        LimitsPlan::default().apply(&mut alone);
        assert_eq!(alone, resources(r#"{"pids": {"limit": -1}}"#));
    }

    #[test]
    fn an_update_gives_back_no_more_than_the_plan_and_sets_nothing_by_itself() {
        for (given, expected) in [
            ("{}", "{}"),
            (r#"{"pids": {"limit": 0}}"#, r#"{"pids": {"limit": 0}}"#),
            (
                r#"{"pids": {"limit": -1}, "memory": {"limit": -1}, "cpu": {"quota": -1}}"#,
                r#"{"pids": {"limit": 1024}, "memory": {"limit": 1073741824}, "cpu": {"quota": 150000, "period": 100000}}"#,
            ),
            (r#"{"cpu": {"shares": 9}}"#, r#"{"cpu": {"shares": 9}}"#),
        ] {
            let mut given = resources(given);
            PLAN.clamp(&mut given);
            assert_eq!(given, resources(expected));
        }
    }

    #[test]
    fn an_update_of_the_processors_must_be_complete() {
        for (given, refused) in [
            (r#"{"cpu": {"period": 50000}}"#, true),
            (
                r#"{"cpu": {"quota": 900000000, "period": 9999999999}}"#,
                true,
            ),
            (r#"{"cpu": {"quota": 5000, "period": 50000}}"#, false),
            (r#"{"cpu": {"quota": 5000}}"#, false),
            (r#"{"cpu": {"shares": 5}}"#, false),
        ] {
            assert_eq!(
                PLAN.refuses(&resources(given)).is_some(),
                refused,
                "{given}"
            );
            assert!(LimitsPlan::default().refuses(&resources(given)).is_none());
        }
    }

    #[test]
    fn a_bound_that_no_cgroup_holds_is_refused() {
        let policy = super::super::tests::sample_policy();
        let mut host = super::super::tests::host();
        assert!(PLAN.require(&policy, &host).is_ok());
        host.controllers.remove("pids");
        let refused = PLAN.require(&policy, &host).unwrap_err().to_string();
        assert!(refused.contains("no pids controller"), "{refused}");
        assert!(LimitsPlan::default().require(&policy, &host).is_ok());
    }

    #[test]
    fn limits_without_a_controller_in_a_users_cgroup_are_given_up_or_refused() {
        let person = PersonFacts {
            groups: 0,
            cgroup: PersonsCgroup::Given,
        };
        let of = |controllers: &[&str], resolved: &ResolvedPolicy| {
            let controllers = controllers.iter().map(|one| (*one).to_owned()).collect();
            let mut warnings = Vec::new();
            let left = PLAN.of_person((person, &controllers), resolved, &mut warnings);
            left.map(|left| {
                (
                    left,
                    warnings.iter().map(ToString::to_string).collect::<Vec<_>>(),
                )
            })
        };
        let resolved = super::super::tests::sample_resolved();
        let (all, said) = of(&["cpu", "memory", "pids"], &resolved).unwrap();
        assert_eq!(all, PLAN);
        assert!(!said.concat().contains("nothing holds"), "{said:?}");
        let (left, said) = of(&["memory", "pids"], &resolved).unwrap();
        assert_eq!(
            left,
            LimitsPlan {
                cpu_milli: None,
                ..PLAN
            }
        );
        assert!(
            said[0].starts_with("limits.cpus: nothing holds"),
            "{said:?}"
        );
        let mut written = resolved;
        written.origins.insert(Field::LimitsCpus, Origin::Node);
        let refused = of(&["memory", "pids"], &written).unwrap_err().to_string();
        assert!(refused.contains("limits.cpus (set by"), "{refused}");
        assert!(of(&["cpu", "memory", "pids"], &written).is_ok());
    }

    #[test]
    fn a_share_is_of_this_node() {
        let host = HostFacts {
            memory_bytes: 8 << 30,
            processors: 4,
            ..super::super::tests::host()
        };
        let limits = Limits {
            pids: "100".parse().unwrap(),
            memory: "50%".parse().unwrap(),
            cpus: "25%".parse().unwrap(),
        };
        let plan = LimitsPlan::of(&limits, &host);
        assert_eq!(plan.pids, Some(100));
        assert_eq!(plan.memory_bytes, Some(4 << 30));
        assert_eq!(plan.cpu_milli, Some(1000));
        // Of a share and a number the smaller applies.
        let more = Limits {
            pids: "unlimited".parse().unwrap(),
            memory: "1GiB".parse().unwrap(),
            cpus: "2".parse().unwrap(),
        };
        let none = Limits {
            pids: "unlimited".parse().unwrap(),
            memory: "unlimited".parse().unwrap(),
            cpus: "unlimited".parse().unwrap(),
        };
        let least = LimitsPlan::smallest([&limits, &more, &none], &host);
        assert_eq!(
            (least.pids, least.memory_bytes, least.cpu_milli),
            (Some(100), Some(1 << 30), Some(1000))
        );
        assert_eq!(LimitsPlan::of(&none, &host), LimitsPlan::default());
    }
}
