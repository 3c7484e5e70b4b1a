//! Limits in the unified hierarchy of cgroup v2, from the specification's values, which are in cgroup v1's terms.

use std::collections::BTreeMap;

use oci_spec::runtime::{LinuxBlockIo, LinuxCpu, LinuxMemory, LinuxResources, LinuxThrottleDevice};

use super::refusal::LimitRefusal;
use crate::cgroup::error::CgroupError;
use crate::cgroup::limits::{Group, or_max, requested_value};

/// Writes the requested limits.
pub fn apply(group: &Group, wanted: &LinuxResources) -> Result<(), CgroupError> {
    if let Some(memory) = wanted.memory() {
        set_memory(group, memory)?;
    }
    if let Some(cpu) = wanted.cpu() {
        set_cpu(group, cpu)?;
    }
    if let Some(limit) = wanted.pids().and_then(|p| requested_value(Some(p.limit()))) {
        group.write("pids.max", or_max(limit))?;
    }
    if let Some(io) = wanted.block_io() {
        set_io(group, io)?;
    }
    for page in wanted.hugepage_limits().iter().flatten() {
        group.write(
            &format!("hugetlb.{}.max", page.page_size()),
            or_max(page.limit()),
        )?;
    }
    if wanted.rdma().as_ref().is_some_and(|r| !r.is_empty()) {
        return Err(LimitRefusal::Rdma.into());
    }
    if let Some(network) = wanted.network()
        && (requested_value(network.class_id()).is_some()
            || network.priorities().as_ref().is_some_and(|p| !p.is_empty()))
    {
        return Err(LimitRefusal::NeedsV1("network classes and priorities need").into());
    }
    for (file, value) in wanted.unified().iter().flatten() {
        if file.contains('/') {
            return Err(LimitRefusal::NoFileName(file.clone()).into());
        }
        group.write(file, value)?;
    }
    Ok(())
}

fn set_memory(group: &Group, memory: &LinuxMemory) -> Result<(), CgroupError> {
    let limit = requested_value(memory.limit());
    let swap = swap_alone(group, limit, requested_value(memory.swap()))?;
    if let (Some(limit), Some(true)) = (limit.filter(|l| *l > 0), memory.check_before_update()) {
        let used: i64 = group.read("memory.current")?.parse().unwrap_or(0);
        if used > limit {
            return Err(LimitRefusal::BelowUsage { limit, used }.into());
        }
    }
    if let Some(swap) = swap {
        group.write("memory.swap.max", or_max(swap))?;
    }
    if let Some(limit) = limit {
        group.write("memory.max", or_max(limit))?;
    }
    if let Some(reservation) = requested_value(memory.reservation()) {
        group.write("memory.low", or_max(reservation))?;
    }
    if memory.disable_oom_killer() == Some(true) || memory.swappiness().is_some() {
        return Err(LimitRefusal::NeedsV1("disableOOMKiller and swappiness need").into());
    }
    Ok(())
}

/// The limit of swap alone. The specification counts memory and swap together, so a change of either changes it.
fn swap_alone(
    group: &Group,
    limit: Option<i64>,
    total: Option<i64>,
) -> Result<Option<i64>, CgroupError> {
    let number = |file: &str| group.read(file).map(|t| t.parse::<i64>().ok());
    let memory = match limit {
        Some(limit) => Some(limit).filter(|l| *l > 0),
        None if total.is_some() => number("memory.max")?,
        None => None,
    };
    match (total, memory) {
        (Some(-1), _) => Ok(Some(-1)),
        (Some(total), Some(memory)) if total >= memory => Ok(Some(total - memory)),
        (Some(_), Some(_)) => Err(LimitRefusal::SwapBelowMemory.into()),
        (Some(_), None) => Err(LimitRefusal::SwapWithoutMemory.into()),
        (None, None) => Ok(limit.filter(|l| *l < 0 && group.has("memory.swap.max"))),
        (None, Some(memory)) if group.has("memory.swap.max") => {
            // Their sum stays.
            let before = number("memory.max")?.zip(number("memory.swap.max")?);
            Ok(before
                .filter(|(_, swap)| *swap > 0)
                .map(|(limit, swap)| (limit + swap - memory).max(0)))
        }
        (None, Some(_)) => Ok(None),
    }
}

fn set_cpu(group: &Group, cpu: &LinuxCpu) -> Result<(), CgroupError> {
    if let Some(idle) = cpu.idle() {
        group.write("cpu.idle", idle)?;
    }
    if let Some(shares) = requested_value(cpu.shares()) {
        group.write("cpu.weight", weight_of(shares))?;
    }
    let (period, quota) = (requested_value(cpu.period()), requested_value(cpu.quota()));
    if period.is_some() || quota.is_some() {
        let now = group.read("cpu.max")?;
        let (quota_now, period_now) = now.split_once(' ').unwrap_or((&now, "100000"));
        let quota = quota.map_or_else(|| quota_now.to_owned(), or_max);
        let period = period.map_or_else(|| period_now.to_owned(), |p| p.to_string());
        group.write("cpu.max", format!("{quota} {period}"))?;
    }
    if let Some(burst) = cpu.burst() {
        group.write("cpu.max.burst", burst)?;
    }
    if requested_value(cpu.realtime_period()).is_some()
        || requested_value(cpu.realtime_runtime()).is_some()
    {
        return Err(LimitRefusal::NeedsV1("real-time limits need").into());
    }
    for (file, list) in [("cpuset.cpus", cpu.cpus()), ("cpuset.mems", cpu.mems())] {
        if let Some(list) = list.as_ref().filter(|l| !l.is_empty()) {
            group.write(file, list)?;
        }
    }
    Ok(())
}

/// Shares of 2 to 262144 as a weight of 1 to 10000, linearly, as runc 1.1 and libcontainer do.
fn weight_of(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9999 / 262_142
}

fn set_io(group: &Group, io: &LinuxBlockIo) -> Result<(), CgroupError> {
    if requested_value(io.leaf_weight()).is_some() {
        return Err(LimitRefusal::NeedsV1("blockIO.leafWeight needs").into());
    }
    if let Some(weight) = requested_value(io.weight()) {
        if group.has("io.bfq.weight") {
            group.write("io.bfq.weight", weight)?;
        } else {
            // 10 to 1000 becomes 1 to 10000.
            let weight = 1 + (u32::from(weight).clamp(10, 1000) - 10) * 9999 / 990;
            group.write("io.weight", format!("default {weight}"))?;
        }
    }
    for device in io.weight_device().iter().flatten() {
        if requested_value(device.leaf_weight()).is_some() {
            return Err(LimitRefusal::NeedsV1("blockIO.weightDevice.leafWeight needs").into());
        }
        if let Some(weight) = requested_value(device.weight()) {
            let text = format!("{}:{} {weight}", device.major(), device.minor());
            group.write("io.bfq.weight", text)?;
        }
    }
    let throttles: [(&str, &Option<Vec<LinuxThrottleDevice>>); 4] = [
        ("rbps", io.throttle_read_bps_device()),
        ("wbps", io.throttle_write_bps_device()),
        ("riops", io.throttle_read_iops_device()),
        ("wiops", io.throttle_write_iops_device()),
    ];
    let mut lines: BTreeMap<(i64, i64), String> = BTreeMap::new();
    for (what, devices) in throttles {
        for device in devices.iter().flatten() {
            let line = lines.entry((device.major(), device.minor())).or_default();
            line.push_str(&format!(" {what}={}", device.rate()));
        }
    }
    for ((major, minor), rates) in lines {
        group.write("io.max", format!("{major}:{minor}{rates}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::tests::group;
    use super::*;

    #[test]
    fn the_sum_of_memory_and_swap_stays() {
        let group = group(
            "v2-swap",
            &[("memory.max", "100"), ("memory.swap.max", "50")],
        );
        assert_eq!(swap_alone(&group, Some(120), None).unwrap(), Some(30));
        assert_eq!(swap_alone(&group, Some(200), None).unwrap(), Some(0));
        assert_eq!(swap_alone(&group, None, Some(130)).unwrap(), Some(30));
        assert_eq!(swap_alone(&group, Some(100), Some(-1)).unwrap(), Some(-1));
        assert_eq!(swap_alone(&group, Some(-1), None).unwrap(), Some(-1));
        assert!(swap_alone(&group, Some(100), Some(99)).is_err());
        assert!(swap_alone(&group, Some(-1), Some(99)).is_err());
        fs::remove_dir_all(&group.dir).unwrap();
    }

    #[test]
    fn shares_are_a_weight() {
        assert_eq!([2, 1024, 262_144].map(weight_of), [1, 39, 10_000]);
    }

    #[test]
    fn a_period_alone_keeps_the_quota() {
        let group = group("v2-cpu", &[("cpu.max", "max 10000")]);
        let mut cpu = LinuxCpu::default();
        cpu.set_period(Some(50_000));
        set_cpu(&group, &cpu).unwrap();
        assert_eq!(group.read("cpu.max").unwrap(), "max 50000");
        fs::remove_dir_all(&group.dir).unwrap();
    }

    #[test]
    fn unified_cannot_name_files_elsewhere() {
        let group = group("v2-unified", &[]);
        let mut wanted = LinuxResources::default();
        wanted.set_unified(Some([("../memory.max".to_owned(), "1".to_owned())].into()));
        let error = apply(&group, &wanted).unwrap_err().to_string();
        assert!(error.contains("no file name"), "{error}");
        fs::remove_dir_all(&group.dir).unwrap();
    }
}
