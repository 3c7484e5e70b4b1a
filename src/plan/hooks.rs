//! PURE. Which hooks of the spec may run.
//!
//! A hook is a program that the runtime runs as root on the node. The engine's own network hook must run, or
//! `docker run` has no network to fence; under a policy any other hook is refused by name.

use oci_spec::runtime::{Hook, Spec};

use super::error::PlanError;
use super::facts::BundleFacts;
use crate::policy::ResolvedPolicy;

/// dockerd's own call, word for word: with other arguments, or an environment, it is another program run by root.
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

/// Refuses a spec with a hook that is neither the engine's network hook nor allowed by the node's file.
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
            // The path is the engine's whole program: at another time, or with other arguments, it is another hook.
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
