//! The statistics of a container, as the JSON of `runc events`, with runc's names, units and omitted zeros.

mod v1;
mod v2;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::cgroup::controllers::Controllers;

/// One reading.
#[derive(Debug, Default, Serialize)]
pub struct Stats {
    cpu: Cpu,
    cpuset: BTreeMap<&'static str, serde_json::Value>,
    memory: Memory,
    pids: Pids,
    blkio: BTreeMap<&'static str, Vec<IoEntry>>,
    hugetlb: BTreeMap<String, Entry>,
    intel_rdt: BTreeMap<String, String>,
    /// runc lists only interfaces that it made, and it makes none.
    network_interfaces: Option<Vec<String>>,
}

/// CPU time.
#[derive(Debug, Default, Serialize)]
struct Cpu {
    usage: CpuUsage,
    throttling: Throttling,
    #[serde(skip_serializing_if = "Option::is_none")]
    psi: Option<Pressure>,
}

/// Nanoseconds.
#[derive(Debug, Default, Serialize)]
struct CpuUsage {
    #[serde(skip_serializing_if = "is_zero")]
    total: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    percpu: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    percpu_kernel: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    percpu_user: Vec<u64>,
    kernel: u64,
    user: u64,
}

/// Periods, and nanoseconds.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Throttling {
    #[serde(skip_serializing_if = "is_zero")]
    periods: u64,
    #[serde(skip_serializing_if = "is_zero")]
    throttled_periods: u64,
    #[serde(skip_serializing_if = "is_zero")]
    throttled_time: u64,
}

/// Bytes.
#[derive(Debug, Default, Serialize)]
struct Memory {
    #[serde(skip_serializing_if = "is_zero")]
    cache: u64,
    usage: Entry,
    swap: Entry,
    kernel: Entry,
    #[serde(rename = "kernelTCP")]
    kernel_tcp: Entry,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    raw: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    psi: Option<Pressure>,
}

/// One kind of memory.
#[derive(Debug, Default, Serialize)]
struct Entry {
    limit: u64,
    #[serde(skip_serializing_if = "is_zero")]
    usage: u64,
    #[serde(skip_serializing_if = "is_zero")]
    max: u64,
    failcnt: u64,
}

/// Processes and threads.
#[derive(Debug, Default, Serialize)]
struct Pids {
    #[serde(skip_serializing_if = "is_zero")]
    current: u64,
    #[serde(skip_serializing_if = "is_zero")]
    limit: u64,
}

/// One device, one operation.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct IoEntry {
    #[serde(skip_serializing_if = "is_zero")]
    major: u64,
    #[serde(skip_serializing_if = "is_zero")]
    minor: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    op: String,
    #[serde(skip_serializing_if = "is_zero")]
    value: u64,
}

/// Pressure stall information (the kernel's accounting/psi).
#[derive(Debug, Default, PartialEq, Serialize)]
struct Pressure {
    some: BTreeMap<String, f64>,
    full: BTreeMap<String, f64>,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// Reads what a container uses now. A missing file counts as nothing, as with runc.
pub fn read(controllers: &Controllers) -> Stats {
    match controllers.unified() {
        Some(dir) => v2::read(dir),
        None => v1::read(controllers),
    }
}

/// A file of one number; `max` is the largest, a missing file 0.
fn number(dir: &Path, file: &str) -> u64 {
    let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
    match text.trim() {
        "max" => u64::MAX,
        text => text.parse().unwrap_or(0),
    }
}

/// A file of lines `name number`.
fn table(dir: &Path, file: &str) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(dir.join(file)).unwrap_or_default();
    let pairs = text.lines().filter_map(|l| l.split_once(' '));
    pairs
        .filter_map(|(name, value)| Some((name.to_owned(), value.trim().parse().ok()?)))
        .collect()
}

/// A file of pressure stall information.
fn pressure(dir: &Path, file: &str) -> Option<Pressure> {
    let text = fs::read_to_string(dir.join(file)).ok()?;
    let mut found = Pressure::default();
    for line in text.lines() {
        let mut words = line.split(' ');
        let values = match words.next() {
            Some("some") => &mut found.some,
            Some("full") => &mut found.full,
            _ => continue,
        };
        values.extend(words.filter_map(|w| {
            let (name, value) = w.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        }));
    }
    Some(found)
}

/// The page sizes for which a directory has files `hugetlb.<size>.<suffix>`.
fn page_sizes(dir: &Path, suffix: &str) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let names = entries.filter_map(|e| e.file_name().into_string().ok());
    names
        .filter_map(|n| Some(n.strip_prefix("hugetlb.")?.strip_suffix(suffix)?.to_owned()))
        .filter(|n| !n.contains('.'))
        .collect()
}
