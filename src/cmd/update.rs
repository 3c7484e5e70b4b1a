//! `update`

use std::io::Read;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use libcgroups::common::{AnyCgroupManager, CgroupManager, ControllerOpt};
use oci_spec::runtime::{LinuxBlockIo, LinuxCpu, LinuxMemory, LinuxPids, LinuxResources};

use crate::cgroup::limits;
use crate::cli::{GlobalOptions, Update};
use crate::cmd::{out, until};
use crate::plan::{neutral, reach};
use crate::policy::{Field, PolicyError, annotation_key};
use crate::render::limits as render;
use crate::rules::Expiry;
use crate::runtime::RuntimeError;
use crate::runtime::clock;
use crate::runtime::input::bundle;
use crate::runtime::network::{inbound, rules};
use crate::runtime::runs::{RunDir, events};
use crate::runtime::signal;
use crate::runtime::state::find;
use crate::runtime::state::identity;
use crate::runtime::state::record::Record;
use crate::runtime::state::store::ContainerPaths;
use crate::runtime::status;

/// Changes a container's limits or network rules. Device rules are not limits and stay, as with runc.
pub fn run(global: &GlobalOptions, args: &Update) -> Result<ExitCode> {
    let asked = network(args)?;
    if args.inbound_add.is_some() && !only_network(args) {
        bail!("one call opens ports or changes limits: make two calls");
    }
    let place = match asked.is_some() || args.inbound_add.is_some() {
        true => {
            let own = change_network(args, asked)?;
            if only_network(args) {
                return Ok(ExitCode::SUCCESS);
            }
            own
        }
        false => find::place(global, &args.id)?,
    };
    let mut resources = requested(args)?;
    reach::check_resources(&resources)?;
    let _lock = place.lock_existing()?;
    let container = status::load(&place)?;
    if asks_nothing(args) {
        // runc says nothing and succeeds, and engines may rely on that.
        log::warn!(
            "nothing is to be changed: name a limit (--memory 1g) or rules (--network-add HOST)"
        );
        return Ok(ExitCode::SUCCESS);
    }
    let record = Record::read(&place.dir())?;
    let controllers = record.own_cgroup("limit")?;
    if let Some(plan) = record.plan() {
        neutral::resources(&mut resources);
        if let Some(why) = plan.limits.refuses(&resources) {
            bail!(why);
        }
        plan.limits.clamp(&mut resources);
    }
    match signal::cgroup(&container)? {
        // systemd resets limits that it does not receive, so it gets all of them. Limits without a systemd property are
        // written directly, as runc does.
        manager @ AnyCgroupManager::Systemd(_) => {
            render::leave_out_zeros(&mut resources);
            let mut repeated = resources.clone();
            limits::repeat_current(&mut repeated, &limits::current(&controllers));
            let options = ControllerOpt {
                resources: &repeated,
                disable_oom_killer: false,
                oom_score_adj: None,
                freezer_state: None,
            };
            manager
                .apply(&options)
                .map_err(RuntimeError::container("apply the limits"))?;
            limits::apply(&controllers, &resources)?;
        }
        _ => limits::apply(&controllers, &resources)?,
    }
    RunDir::of(&place).note(vec![events::limits_set(&resources)]);
    Ok(ExitCode::SUCCESS)
}

/// Changes the network that the container is in, and returns the container's own directory.
fn change_network(args: &Update, asked: Option<rules::RuleChanges>) -> Result<ContainerPaths> {
    let named = find::container(&args.id)?;
    let own = ContainerPaths::new(&named.root, &named.id)?;
    let record = find::network_of(named)?;
    let place = ContainerPaths::new(&record.root, &record.id)?;
    if place.id != own.id {
        log::warn!(
            "container {} is in the network of container {}: its rules change, for all who are in it",
            own.id.as_str(),
            place.id.as_str()
        );
    }
    let end = asked.as_ref().and_then(|asked| asked.end);
    let closed = asked
        .map(|asked| rules::rules(&place, &asked))
        .transpose()
        .map_err(|error| of_option(error, args))?;
    if let Some(ports) = &args.inbound_add {
        inbound::open(&place, ports).map_err(|error| of_option(error, args))?;
    }
    let whose = identity::of(&record).with_id(&record.id);
    out::line(&format!("changed: container {whose}"))?;
    if let Some(end) = end {
        out::line(&format!("the added rules expire at {}", end.date()))?;
    }
    if let Some(closed) = closed.filter(|closed| *closed > 0) {
        log::warn!("{closed} connections that are no longer allowed were closed");
    }
    Ok(own)
}

/// The error of a value with the option that has it: the lists are read as annotations, of which the caller typed none.
fn of_option(error: RuntimeError, args: &Update) -> anyhow::Error {
    let RuntimeError::Policy(PolicyError::AnnotationValue { key, problem }) = error else {
        return error.into();
    };
    let has = |field, list: &Option<String>| key == annotation_key(field) && list.is_some();
    let lists = [
        ("--network-add", has(Field::NetworkAllow, &args.network_add)),
        (
            "--network-allow",
            has(Field::NetworkAllow, &args.network_allow),
        ),
        (
            "--network-deny",
            has(Field::NetworkDeny, &args.network_deny),
        ),
        (
            "--inbound-add",
            has(Field::NetworkInbound, &args.inbound_add),
        ),
    ];
    match lists.into_iter().find(|(_, has)| *has) {
        Some((option, _)) => anyhow::anyhow!("{option}: {problem}"),
        None => PolicyError::AnnotationValue { key, problem }.into(),
    }
}

/// The requested changes of the network rules, if any.
fn network(args: &Update) -> Result<Option<rules::RuleChanges>> {
    let now = clock::reading();
    let end = match (args.lasting, &args.until) {
        (Some(time), _) => Expiry::after(time.seconds(), now),
        (None, Some(text)) => Some(Expiry::at(until::date(text)?).pinned(now)),
        (None, None) => None,
    };
    let asked = rules::RuleChanges {
        allow: args.network_allow.clone(),
        add: args.network_add.clone(),
        remove: args.network_remove.clone(),
        deny: args.network_deny.clone(),
        end,
    };
    Ok((asked != rules::RuleChanges::default()).then_some(asked))
}

fn asks_nothing(args: &Update) -> bool {
    *args
        == Update {
            id: args.id.clone(),
            ..Update::default()
        }
}

fn only_network(args: &Update) -> bool {
    *args
        == Update {
            id: args.id.clone(),
            network_allow: args.network_allow.clone(),
            network_add: args.network_add.clone(),
            network_remove: args.network_remove.clone(),
            network_deny: args.network_deny.clone(),
            lasting: args.lasting,
            until: args.until.clone(),
            inbound_add: args.inbound_add.clone(),
            ..Update::default()
        }
}

/// The requested limits: only the JSON of `--resources` if it is given, as with runc, else the flags.
fn requested(args: &Update) -> Result<LinuxResources> {
    let schemas = [&args.l3_cache_schema, &args.mem_bw_schema];
    if schemas
        .iter()
        .any(|s| s.as_deref().is_some_and(|s| !s.is_empty()))
    {
        bail!(
            "Intel RDT schemas cannot be changed by update; give them in linux.intelRdt at create"
        );
    }
    let mut resources = match &args.resources {
        Some(path) if path.as_os_str() == "-" => {
            let mut text = String::new();
            std::io::stdin()
                .take(1 << 20)
                .read_to_string(&mut text)
                .context("read the limits from standard input")?;
            serde_json::from_str(&text).context("the limits on standard input")?
        }
        Some(path) => bundle::read_stream(path)?,
        None => from_flags(args)?,
    };
    resources.set_devices(None);
    limits::warn_of_kernel_memory(&resources);
    Ok(resources)
}

fn from_flags(args: &Update) -> Result<LinuxResources> {
    let mut memory = LinuxMemory::default();
    memory.set_limit(bytes("memory", &args.memory)?);
    memory.set_reservation(bytes("memory-reservation", &args.memory_reservation)?);
    memory.set_swap(bytes("memory-swap", &args.memory_swap)?);
    memory.set_kernel(bytes("kernel-memory", &args.kernel_memory)?);
    memory.set_kernel_tcp(bytes("kernel-memory-tcp", &args.kernel_memory_tcp)?);
    let mut cpu = LinuxCpu::default();
    cpu.set_shares(args.cpu_share);
    cpu.set_quota(args.cpu_quota);
    cpu.set_period(args.cpu_period);
    cpu.set_burst(args.cpu_burst);
    cpu.set_idle(args.cpu_idle);
    cpu.set_realtime_period(args.cpu_rt_period);
    cpu.set_realtime_runtime(args.cpu_rt_runtime);
    cpu.set_cpus(args.cpuset_cpus.clone());
    cpu.set_mems(args.cpuset_mems.clone());
    let mut pids = LinuxPids::default();
    pids.set_limit(args.pids_limit.unwrap_or(0));
    let mut io = LinuxBlockIo::default();
    io.set_weight(args.blkio_weight);
    let mut resources = LinuxResources::default();
    resources.set_memory(Some(memory));
    resources.set_cpu(Some(cpu));
    resources.set_pids(Some(pids));
    resources.set_block_io(Some(io));
    Ok(resources)
}

/// `-1`, or bytes with a binary unit as Docker writes them: `64`, `32M`, `1.5gb`, `2GiB`.
fn bytes(flag: &str, text: &Option<String>) -> Result<Option<i64>> {
    let Some(text) = text.as_deref().filter(|t| !t.is_empty()) else {
        return Ok(None);
    };
    if text == "-1" {
        return Ok(Some(-1));
    }
    let parsed = parse_bytes(text);
    parsed
        .map(Some)
        .with_context(|| format!("invalid value for {flag}: {text:?}"))
}

fn parse_bytes(text: &str) -> Option<i64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    let unit = text[end..].trim_start().to_ascii_lowercase();
    let prefix = unit
        .strip_suffix("ib")
        .or_else(|| unit.strip_suffix('b'))
        .unwrap_or(&unit);
    let power = match prefix {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        "p" => 5,
        _ => return None,
    };
    let value = number * 1024_f64.powi(power);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "checked, and Docker cuts fractions of a byte, too"
    )]
    (value < 9e18).then_some(value as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_rule_is_the_options_fault_and_no_annotations() {
        let args = Update {
            network_add: Some("https://a.test/".to_owned()),
            ..Update::default()
        };
        let said = |field| {
            let problem = "https://a.test/".parse::<crate::rules::EgressRule>();
            let error = PolicyError::AnnotationValue {
                key: annotation_key(field),
                problem: problem.unwrap_err(),
            };
            of_option(error.into(), &args).to_string()
        };
        let own = said(Field::NetworkAllow);
        assert!(
            own.starts_with("--network-add: ") && own.ends_with("did you mean a.test?"),
            "{own}"
        );
        // An annotation of the container.
        assert!(said(Field::NetworkDeny).starts_with("annotation dev.agentbox.network.deny: "));
    }

    #[test]
    fn sizes_have_binary_units() {
        for (text, expected) in [
            ("67108864", 67_108_864),
            ("50M", 52_428_800),
            ("1.5gb", 1_610_612_736),
            ("2 GiB", 2_147_483_648),
            ("0", 0),
        ] {
            assert_eq!(parse_bytes(text), Some(expected), "{text}");
        }
        for bad in ["M", "-2", "1x", "1e9", "9999999p"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
        assert_eq!(bytes("memory", &Some("-1".to_owned())).unwrap(), Some(-1));
    }
}
