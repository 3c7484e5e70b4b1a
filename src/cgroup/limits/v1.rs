//! Limits in the hierarchies of cgroup v1.

use oci_spec::runtime::{
    LinuxBlockIo, LinuxCpu, LinuxMemory, LinuxNetwork, LinuxResources, LinuxThrottleDevice,
};

use super::refusal::LimitRefusal;
use crate::cgroup::controllers::Controllers;
use crate::cgroup::error::CgroupError;
use crate::cgroup::limits::{Group, Value, requested_value};

const LIMIT: &str = "memory.limit_in_bytes";
const WITH_SWAP: &str = "memory.memsw.limit_in_bytes";
const TCP: &str = "memory.kmem.tcp.limit_in_bytes";

/// Writes the requested limits.
pub fn apply(controllers: &Controllers, wanted: &LinuxResources) -> Result<(), CgroupError> {
    let group = |name: &str| {
        let missing = || LimitRefusal::NoController(name.to_owned());
        controllers
            .v1(name)
            .map(Group::new)
            .ok_or_else(|| missing().into())
    };
    if wanted.unified().as_ref().is_some_and(|u| !u.is_empty()) {
        return Err(LimitRefusal::UnifiedOnV1.into());
    }
    if let Some(memory) = wanted.memory().filter(|m| *m != LinuxMemory::default()) {
        set_memory(|| group("memory"), &memory)?;
    }
    if let Some(cpu) = wanted.cpu() {
        set_cpu(group, cpu)?;
    }
    if let Some(limit) = wanted.pids().and_then(|p| requested_value(Some(p.limit()))) {
        group("pids")?.write("pids.max", crate::cgroup::limits::or_max(limit))?;
    }
    if let Some(io) = wanted.block_io() {
        set_io(|| group("blkio"), io)?;
    }
    for page in wanted.hugepage_limits().iter().flatten() {
        let file = format!("hugetlb.{}.limit_in_bytes", page.page_size());
        group("hugetlb")?.write(&file, page.limit())?;
    }
    if wanted.rdma().as_ref().is_some_and(|r| !r.is_empty()) {
        return Err(LimitRefusal::Rdma.into());
    }
    match wanted.network() {
        Some(network) => set_network(group, network),
        None => Ok(()),
    }
}

fn set_memory(
    group: impl Fn() -> Result<Group, CgroupError>,
    memory: &LinuxMemory,
) -> Result<(), CgroupError> {
    let limit = requested_value(memory.limit());
    let mut swap = requested_value(memory.swap());
    let others = [
        requested_value(memory.reservation()).is_some(),
        requested_value(memory.kernel_tcp()).is_some(),
        memory.swappiness().is_some(),
    ];
    let no_killer = memory.disable_oom_killer() == Some(true);
    if limit.is_none() && swap.is_none() && !others.contains(&true) && !no_killer {
        return Ok(());
    }
    let group = group()?;
    if limit == Some(-1) && swap.is_none() && group.has(WITH_SWAP) {
        // Unlimited memory needs unlimited memory and swap.
        swap = Some(-1);
    }
    if let (Some(limit), None) = (limit, swap) {
        check_both(&group, limit)?;
    }
    set_limits(&group, limit, swap)?;
    if let Some(reservation) = requested_value(memory.reservation()) {
        group.write("memory.soft_limit_in_bytes", reservation)?;
    }
    if let Some(limit) = requested_value(memory.kernel_tcp()) {
        group.write(TCP, limit)?;
    }
    if no_killer {
        group.write("memory.oom_control", 1)?;
    }
    match memory.swappiness() {
        Some(value @ 0..=100) => group.write("memory.swappiness", value),
        Some(value) => Err(LimitRefusal::Swappiness(value).into()),
        None => Ok(()),
    }
}

/// Refuses a limit that the kernel would refuse with a bare EINVAL: one above that of memory and swap, in pages.
fn check_both(group: &Group, limit: i64) -> Result<(), CgroupError> {
    const PAGE: i64 = 4096;
    if !group.has(WITH_SWAP) {
        return Ok(());
    }
    // Without a limit the kernel shows the largest number of pages.
    let both: i64 = group.read(WITH_SWAP)?.parse().unwrap_or(i64::MAX);
    match limit / PAGE > both / PAGE {
        true => Err(LimitRefusal::MemoryAboveBoth { limit, both }.into()),
        false => Ok(()),
    }
}

/// The limit with swap may never be below the one without: the order depends on whether they rise or fall.
fn set_limits(group: &Group, limit: Option<i64>, swap: Option<i64>) -> Result<(), CgroupError> {
    let rises = match swap {
        Some(swap) if limit.is_some() => {
            let current: u64 = group.read(LIMIT)?.parse().unwrap_or(u64::MAX);
            swap < 0 || i128::from(current) < i128::from(swap)
        }
        _ => false,
    };
    let mut files = [(LIMIT, limit), (WITH_SWAP, swap)];
    if rises {
        files.reverse();
    }
    for (file, value) in files {
        if let Some(value) = value {
            group.write(file, value)?;
        }
    }
    Ok(())
}

fn set_cpu(
    group: impl Fn(&str) -> Result<Group, CgroupError>,
    cpu: &LinuxCpu,
) -> Result<(), CgroupError> {
    if let Some(idle) = cpu.idle() {
        group("cpu")?.write("cpu.idle", idle)?;
    }
    if let Some(shares) = requested_value(cpu.shares()) {
        set_shares(&group("cpu")?, shares)?;
    }
    if let Some(burst) = cpu.burst() {
        group("cpu")?.write("cpu.cfs_burst_us", burst)?;
    }
    let (period, quota) = (requested_value(cpu.period()), requested_value(cpu.quota()));
    if period.is_some() || quota.is_some() {
        group("cpu")?.write_pair(
            period.map(|p| Value::new("cpu.cfs_period_us", p)),
            quota.map(|q| Value::new("cpu.cfs_quota_us", q)),
        )?;
    }
    let (period, runtime) = (
        requested_value(cpu.realtime_period()),
        requested_value(cpu.realtime_runtime()),
    );
    if period.is_some() || runtime.is_some() {
        group("cpu")?.write_pair(
            period.map(|p| Value::new("cpu.rt_period_us", p)),
            runtime.map(|r| Value::new("cpu.rt_runtime_us", r)),
        )?;
    }
    for (file, list) in [("cpuset.cpus", cpu.cpus()), ("cpuset.mems", cpu.mems())] {
        if let Some(list) = list.as_ref().filter(|l| !l.is_empty()) {
            group("cpuset")?.write(file, list)?;
        }
    }
    Ok(())
}

/// Sets shares; the kernel silently cuts them at both ends of their range.
fn set_shares(group: &Group, shares: u64) -> Result<(), CgroupError> {
    group.write("cpu.shares", shares)?;
    let set: u64 = group.read("cpu.shares")?.parse().unwrap_or(shares);
    match shares.cmp(&set) {
        std::cmp::Ordering::Greater => Err(LimitRefusal::SharesAbove(set).into()),
        std::cmp::Ordering::Less => Err(LimitRefusal::SharesBelow(set).into()),
        std::cmp::Ordering::Equal => Ok(()),
    }
}

fn set_io(
    group: impl Fn() -> Result<Group, CgroupError>,
    io: &LinuxBlockIo,
) -> Result<(), CgroupError> {
    if let Some(weight) = requested_value(io.weight()) {
        let group = group()?;
        let bfq = group.has("blkio.bfq.weight");
        group.write(
            if bfq {
                "blkio.bfq.weight"
            } else {
                "blkio.weight"
            },
            weight,
        )?;
    }
    if let Some(weight) = requested_value(io.leaf_weight()) {
        group()?.write("blkio.leaf_weight", weight)?;
    }
    for device in io.weight_device().iter().flatten() {
        let group = group()?;
        let bfq = group.has("blkio.bfq.weight_device");
        let file = if bfq {
            "blkio.bfq.weight_device"
        } else {
            "blkio.weight_device"
        };
        if let Some(weight) = requested_value(device.weight()) {
            group.write(
                file,
                format!("{}:{} {weight}", device.major(), device.minor()),
            )?;
        }
        if let Some(weight) = requested_value(device.leaf_weight()) {
            let text = format!("{}:{} {weight}", device.major(), device.minor());
            group.write("blkio.leaf_weight_device", text)?;
        }
    }
    let throttles: [(&str, &Option<Vec<LinuxThrottleDevice>>); 4] = [
        ("read_bps", io.throttle_read_bps_device()),
        ("write_bps", io.throttle_write_bps_device()),
        ("read_iops", io.throttle_read_iops_device()),
        ("write_iops", io.throttle_write_iops_device()),
    ];
    for (what, devices) in throttles {
        for device in devices.iter().flatten() {
            let text = format!("{}:{} {}", device.major(), device.minor(), device.rate());
            group()?.write(&format!("blkio.throttle.{what}_device"), text)?;
        }
    }
    Ok(())
}

fn set_network(
    group: impl Fn(&str) -> Result<Group, CgroupError>,
    network: &LinuxNetwork,
) -> Result<(), CgroupError> {
    if let Some(class) = requested_value(network.class_id()) {
        group("net_cls")?.write("net_cls.classid", class)?;
    }
    for priority in network.priorities().iter().flatten() {
        let text = format!("{} {}", priority.name(), priority.priority());
        group("net_prio")?.write("net_prio.ifpriomap", text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::group;
    use super::*;

    #[test]
    fn unlimited_memory_lifts_the_limit_with_swap_too() {
        let group = group("v1-swap", &[(LIMIT, "33554432"), (WITH_SWAP, "41943040")]);
        let memory = {
            let mut memory = LinuxMemory::default();
            memory.set_limit(Some(-1));
            memory
        };
        set_memory(|| Ok(Group::new(&group.dir)), &memory).unwrap();
        assert!(group.read(WITH_SWAP).unwrap().starts_with("-1"));
        fs::remove_dir_all(&group.dir).unwrap();
    }

    #[test]
    fn memory_above_the_limit_with_swap_is_refused_with_both_limits() {
        let group = group("v1-both", &[(LIMIT, "33554432"), (WITH_SWAP, "41943040")]);
        let set = |limit, swap| {
            let mut memory = LinuxMemory::default();
            memory.set_limit(Some(limit));
            memory.set_swap(swap);
            set_memory(|| Ok(Group::new(&group.dir)), &memory)
        };
        let error = set(1 << 30, None).unwrap_err().to_string();
        assert!(
            error.contains("limited to 41943040; set both (--memory, --memory-swap)"),
            "{error}"
        );
        assert!(group.read(LIMIT).unwrap().starts_with("33554432"));
        // The kernel counts pages.
        set(41_943_040 + 4095, None).unwrap();
        set(1 << 30, Some(2 << 30)).unwrap();
        fs::remove_dir_all(&group.dir).unwrap();
    }

    #[test]
    fn memory_of_sockets_has_a_limit_of_its_own() {
        let group = group("v1-tcp", &[(TCP, "9223372036854771712")]);
        let mut memory = LinuxMemory::default();
        memory.set_kernel_tcp(Some(0));
        set_memory(|| Err(LimitRefusal::Rdma.into()), &memory).unwrap();
        memory.set_kernel_tcp(Some(8_388_608));
        set_memory(|| Ok(Group::new(&group.dir)), &memory).unwrap();
        assert!(group.read(TCP).unwrap().starts_with("8388608"));
        fs::remove_dir_all(&group.dir).unwrap();
    }

    #[test]
    fn zero_requests_no_limit() {
        let none = |_: &str| -> Result<Group, CgroupError> { Err(LimitRefusal::Rdma.into()) };
        let mut cpu = LinuxCpu::default();
        cpu.set_shares(Some(0));
        cpu.set_quota(Some(0));
        cpu.set_cpus(Some(String::new()));
        assert!(set_cpu(none, &cpu).is_ok());
        cpu.set_idle(Some(0));
        assert!(set_cpu(none, &cpu).is_err(), "0 is a value of cpu.idle");
    }
}
