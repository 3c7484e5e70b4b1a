//! PURE. The policy's effect on a process: the first one, and each process of `exec`.

use std::collections::BTreeSet;

use oci_spec::runtime::{
    Capabilities, LinuxCapabilities, PosixRlimit, PosixRlimitBuilder, PosixRlimitType, Process,
};

use super::{CapabilitySets, NetworkPlan, Plan, neutral};
use crate::egress::own::no_proxy;
use crate::policy::Capability;

/// The process as it may run under the plan: no_new_privs, capabilities within the limit, no core dumps, no urgency.
///
/// RLIMIT_CORE is 1, soft and hard: with 0 a `core_pattern` that is a pipe still starts its helper, as root on
/// the host (core(5), "Piping core dumps to a program").
pub fn confine(mut process: Process, plan: &Plan) -> Process {
    let sets = CapabilitySets::of(process.capabilities().as_ref()).limited(&plan.capability_limit);
    process.set_capabilities(Some(to_spec(&sets)));
    process.set_no_new_privileges(Some(true));
    neutral::process(&mut process);
    let mut limits: Vec<PosixRlimit> = process.rlimits().clone().unwrap_or_default();
    limits.retain(|l| l.typ() != PosixRlimitType::RlimitCore);
    limits.push(core_limit());
    process.set_rlimits(Some(limits));
    if plan.network.proxy_env {
        let own = proxy_env(&plan.network);
        let mut env = process.env().clone().unwrap_or_default();
        // The image's or the engine's own proxy cannot be reached, whatever it is.
        env.retain(|entry| {
            let name = entry.split('=').next().unwrap_or(entry);
            !own.iter().any(|(ours, _)| ours == name)
        });
        env.extend(
            own.into_iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        process.set_env(Some(env));
    }
    with_placeholders(&mut process, &plan.network);
    process
}

/// What stands for the node's secrets, whatever the engine or the image has in these variables: a key of theirs would be inside.
fn with_placeholders(process: &mut Process, network: &NetworkPlan) {
    let mut env = process.env().clone().unwrap_or_default();
    for secret in &network.secrets {
        if let Some(name) = secret.env.as_ref().map(ToString::to_string) {
            env.retain(|entry| entry.split('=').next() != Some(&name));
            env.push(format!("{name}={}", secret.placeholder()));
        }
    }
    if !network.secrets.is_empty() {
        process.set_env(Some(env));
    }
}

/// Whether programs look for a proxy in this variable: under `network.proxy-env` it names the sidecar, whatever it was.
pub fn is_of_proxies(variable: &str) -> bool {
    let is_it = |name: &&str| *name == variable || name.to_lowercase() == variable;
    PROXY_VARIABLES.iter().any(is_it)
}

/// The last one names what is reached without a proxy.
const PROXY_VARIABLES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];

/// What programs look at for a proxy, in both cases. ALL_PROXY is not SOCKS: Python's httpx, which the SDKs of model
/// providers use, does not start when it names one and a package for it is missing.
fn proxy_env(network: &NetworkPlan) -> Vec<(String, String)> {
    let proxy = format!("http://127.0.0.1:{}", network.proxy_port);
    let direct = no_proxy(&network.own_names);
    PROXY_VARIABLES
        .iter()
        .flat_map(|name| {
            let value = match *name {
                "NO_PROXY" => &direct,
                _ => &proxy,
            };
            [*name, &name.to_lowercase()].map(|name| (name.to_owned(), value.clone()))
        })
        .collect()
}

fn core_limit() -> PosixRlimit {
    PosixRlimitBuilder::default()
        .typ(PosixRlimitType::RlimitCore)
        .hard(1u64)
        .soft(1u64)
        .build()
        .expect("all three fields of a limit are set")
}

/// The sets in the spec's own type.
pub fn to_spec(sets: &CapabilitySets) -> LinuxCapabilities {
    let parse = |set: &BTreeSet<Capability>| -> Capabilities {
        let names = set.iter().map(|capability| capability.short_name());
        names.filter_map(|name| name.parse().ok()).collect()
    };
    let mut out = LinuxCapabilities::default();
    out.set_bounding(Some(parse(&sets.bounding)));
    out.set_effective(Some(parse(&sets.effective)));
    out.set_permitted(Some(parse(&sets.permitted)));
    out.set_inheritable(Some(parse(&sets.inheritable)));
    out.set_ambient(Some(parse(&sets.ambient)));
    out
}
