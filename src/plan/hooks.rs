//! PURE. Which hooks of the spec may run.
//!
//! A hook is a program that the runtime runs as root on the node. The engine's own network hook must run, or
//! `docker run` has no network to fence; any other one is refused under a policy, with its name.

use oci_spec::runtime::{Hook, Spec};

use super::{BundleFacts, PlanError};
use crate::policy::ResolvedPolicy;

/// dockerd's own call, word for word: told anything else, or given an environment, root's program is another one.
fn is_setkey(hook: &Hook) -> bool {
    let words: Vec<&str> = hook.args().iter().flatten().map(String::as_str).collect();
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    let alone = hook.env().as_ref().is_none_or(Vec::is_empty);
    match words.as_slice() {
        ["libnetwork-setkey", root, container, controller] => {
            alone && root.starts_with("-exec-root=/") && hex(container) && hex(controller)
        }
        _ => false,
    }
}

/// Refuses a spec with a hook that neither the engine's network nor the node's file accounts for.
pub(super) fn check(
    resolved: &ResolvedPolicy,
    spec: &Spec,
    bundle: &BundleFacts,
) -> Result<(), PlanError> {
    let Some(hooks) = spec.hooks() else {
        return Ok(());
    };
    #[allow(deprecated)] // Docker 20.10 to 27 still use prestart.
    let all: [(&'static str, &Option<Vec<Hook>>); 6] = [
        ("prestart", hooks.prestart()),
        ("createRuntime", hooks.create_runtime()),
        ("createContainer", hooks.create_container()),
        ("startContainer", hooks.start_container()),
        ("poststart", hooks.poststart()),
        ("poststop", hooks.poststop()),
    ];
    for (when, list) in all {
        for hook in list.iter().flatten() {
            // The path alone is the engine's whole program: at another time, or told something else, it is not that hook.
            let told = is_setkey(hook);
            let known = when == "prestart" && told && bundle.engine_hooks.contains(hook.path());
            let allowed = resolved
                .node_allow
                .hooks
                .iter()
                .any(|p| hook.path() == p.as_ref() as &std::path::Path);
            if !known && !allowed {
                return Err(PlanError::Hook {
                    policy: resolved.policy.name.to_string(),
                    when,
                    path: hook.path().clone(),
                });
            }
        }
    }
    Ok(())
}
