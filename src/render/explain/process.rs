//! PURE. Privileges, namespaces and devices as text.

use super::page::{Page, paths};
use crate::plan::process::core_words;
use crate::plan::{MappedIds, NamespaceType, Plan};
use crate::policy::Switch;
use crate::text::escape;

/// A condition of `set-id = "auto"` that the runtime cannot check: which other containers write the workspace.
fn set_id_limit(plan: &Plan) -> &'static str {
    let mut mounts = plan.filesystem.mounts.iter();
    let mapped = |ids| matches!(ids, MappedIds::OwnerAlone { .. });
    match mounts.any(|mount| mount.bind().is_some_and(|bind| mapped(bind.ids))) {
        true => {
            ": as long as no other container writes the workspace with the node's ids (docs/policy.md, set-id auto)"
        }
        false => "",
    }
}

pub(super) fn privileges(page: &mut Page, plan: &Plan) {
    page.head(
        "privileges",
        format_args!(
            "no_new_privs; set-user-ID programs have no effect; {}; a private session keyring",
            core_words(plan.core_bytes)
        ),
    );
    page.item(match plan.syscalls.set_id_refused() {
        None => format!(
            "set-user-ID and set-group-ID files can be made (privileges.set-id){}",
            set_id_limit(plan)
        ),
        Some(cause) => format!(
            "no set-user-ID or set-group-ID file can be made (privileges.set-id): {}",
            escape(&cause.to_string())
        ),
    });
    if plan.syscalls.attributes == Switch::Off {
        page.item(
            "no extended attribute can be set, so no access list (setfacl): it could make a set-group-ID file another group's",
        );
    }
    let given = plan.capabilities.bounding.iter();
    let mut given: Vec<&str> = given.map(|c| c.short_name()).collect();
    given.sort_unstable();
    let given = match given.is_empty() {
        true => "none".to_owned(),
        false => given.join(" "),
    };
    page.item(format_args!("capabilities: {given}"));
    if page.is_whole() || !plan.devices.is_empty() || shares(plan) {
        namespaces_and_devices(page, plan);
    }
}

/// Whether one of the namespaces that each container has of its own is another's or the node's. The network has a wall of its own.
fn shares(plan: &Plan) -> bool {
    let own = [
        NamespaceType::Pid,
        NamespaceType::Ipc,
        NamespaceType::Uts,
        NamespaceType::Mount,
        NamespaceType::Cgroup,
    ];
    let is_own = |kind: &NamespaceType| {
        let mut all = plan.namespaces.iter();
        all.any(|one| one.isolates == *kind && one.path.is_none())
    };
    !own.iter().all(is_own)
}

fn namespaces_and_devices(page: &mut Page, plan: &Plan) {
    let namespaces = plan.namespaces.iter();
    let namespaces: Vec<String> = namespaces.map(ToString::to_string).collect();
    let namespaces = escape(&namespaces.join(" "));
    page.item(format_args!(
        "namespaces: {namespaces} and an inner network"
    ));
    let more = match plan.devices.is_empty() {
        true => String::new(),
        false => format!(" and {}", paths(plan.devices.iter().map(|d| d.as_path()))),
    };
    page.item(format_args!("devices: the usual eight{more}"));
}
