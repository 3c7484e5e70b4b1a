//! Limits for libcontainer. An engine's zero means absent (as with runc), and absent limits stay unchanged.

use oci_spec::runtime::{LinuxCpu, LinuxResources};

/// Removes zero and empty limits: libcontainer would write them, divide by them, or refuse them.
pub fn leave_out_zeros(resources: &mut LinuxResources) {
    if let Some(mut memory) = *resources.memory() {
        let given = |limit: Option<i64>| limit.filter(|limit| *limit != 0);
        memory.set_limit(given(memory.limit()));
        memory.set_reservation(given(memory.reservation()));
        memory.set_swap(given(memory.swap()));
        memory.set_kernel(given(memory.kernel()));
        memory.set_kernel_tcp(given(memory.kernel_tcp()));
        resources.set_memory(Some(memory));
    }
    if let Some(mut cpu) = resources.cpu().clone() {
        cpu.set_shares(cpu.shares().filter(|shares| *shares != 0));
        cpu.set_quota(cpu.quota().filter(|quota| *quota != 0));
        cpu.set_period(cpu.period().filter(|period| *period != 0));
        cpu.set_realtime_runtime(cpu.realtime_runtime().filter(|runtime| *runtime != 0));
        cpu.set_realtime_period(cpu.realtime_period().filter(|period| *period != 0));
        let given = |list: &Option<String>| list.clone().filter(|list| !list.is_empty());
        cpu.set_cpus(given(cpu.cpus()));
        cpu.set_mems(given(cpu.mems()));
        let is_given = cpu != LinuxCpu::default();
        resources.set_cpu(is_given.then_some(cpu));
    }
    if resources.pids().is_some_and(|pids| pids.limit() == 0) {
        resources.set_pids(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources(text: &str) -> LinuxResources {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn zeros_are_removed() {
        // Docker's `update --memory` writes this.
        let mut given = resources(
            r#"{"memory": {"limit": 1000, "reservation": 0, "swap": 0},
                "cpu": {"shares": 0, "quota": 0, "period": 0, "realtimeRuntime": 0, "realtimePeriod": 0,
                        "cpus": "", "mems": ""},
                "pids": {"limit": 0}}"#,
        );
        leave_out_zeros(&mut given);
        assert_eq!(given, resources(r#"{"memory": {"limit": 1000}}"#));
        let mut unlimited = resources(
            r#"{"memory": {"limit": -1, "swap": -1}, "cpu": {"quota": -1, "shares": 2}, "pids": {"limit": -1}}"#,
        );
        let before = unlimited.clone();
        leave_out_zeros(&mut unlimited);
        assert_eq!(unlimited, before);
    }
}
