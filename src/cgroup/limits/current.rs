//! PURE. Limits in force, which systemd's driver would reset.

use oci_spec::runtime::LinuxResources;

/// Limits in force that systemd's driver would reset unless they are repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CurrentLimits {
    /// CPU quota and period in microseconds; `None`: unlimited.
    pub cpu: Option<(i64, u64)>,
    /// Bytes of memory; `None`: unlimited.
    pub memory: Option<i64>,
}

impl CurrentLimits {
    /// Parses the text of cgroup v2's `cpu.max` and `memory.max`.
    pub fn parse(cpu_max: &str, memory_max: &str) -> Self {
        let cpu = cpu_max.trim().split_once(' ');
        Self {
            cpu: cpu.and_then(|(quota, period)| Some((quota.parse().ok()?, period.parse().ok()?))),
            memory: memory_max.trim().parse().ok(),
        }
    }
}

/// For `update` with systemd. Its driver resets the quota if any other CPU limit is given, and needs the memory limit
/// along with that of swap.
pub fn repeat_current(resources: &mut LinuxResources, current: &CurrentLimits) {
    if let Some(mut cpu) = resources.cpu().clone() {
        if let Some((quota, period)) = current.cpu {
            cpu.set_quota(cpu.quota().or(Some(quota)));
            cpu.set_period(cpu.period().or(Some(period)));
        }
        resources.set_cpu(Some(cpu));
    }
    if let Some(mut memory) = *resources.memory()
        && memory.swap().is_some()
    {
        memory.set_limit(memory.limit().or(current.memory));
        resources.set_memory(Some(memory));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(text: &str) -> LinuxResources {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn absent_limits_stay_unchanged() {
        let current = CurrentLimits::parse("20000 100000\n", "67108864\n");
        let mut given = resources(r#"{"cpu": {"shares": 512}, "memory": {"swap": 100000000}}"#);
        repeat_current(&mut given, &current);
        let cpu = given.cpu().clone().unwrap();
        assert_eq!((cpu.quota(), cpu.period()), (Some(20000), Some(100_000)));
        let memory = given.memory().unwrap();
        assert_eq!(memory.limit(), Some(67_108_864));

        let mut given = resources(r#"{"cpu": {"quota": -1}, "memory": {"limit": 5}}"#);
        repeat_current(&mut given, &current);
        let cpu = given.cpu().clone().unwrap();
        assert_eq!((cpu.quota(), cpu.period()), (Some(-1), Some(100_000)));
        assert_eq!(given.memory().unwrap().limit(), Some(5));

        let mut nothing = resources("{}");
        repeat_current(&mut nothing, &current);
        assert_eq!(nothing, resources("{}"));
    }

    #[test]
    fn an_absent_limit_is_unlimited() {
        assert_eq!(
            CurrentLimits::parse("max 100000\n", "max\n"),
            CurrentLimits::default()
        );
        assert_eq!(CurrentLimits::parse("", ""), CurrentLimits::default());
    }
}
