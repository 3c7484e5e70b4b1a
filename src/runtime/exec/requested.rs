//! The process for `exec`, within the limits of the plan: from --process, or the init process's, changed by the
//! options.

use oci_spec::runtime::Process;

use super::error::ExecError;
use super::target::ExecTarget;
use crate::cgroup::controllers::Controllers;
use crate::cli;
use crate::plan::CapabilitySets;
use crate::plan::process::{confine, to_spec};
use crate::render::refuse;
use crate::runtime::error::RuntimeError;
use crate::runtime::foreground::tty;
use crate::runtime::input::bundle;
use crate::runtime::input::labels;
use crate::runtime::input::lenient;
use crate::runtime::launch::own_oom_score;
use crate::sys::user_namespace::Ids;

/// The process, within the limits of the container's plan.
pub(super) fn within_limits(
    args: &cli::Exec,
    target: &ExecTarget,
) -> Result<Process, RuntimeError> {
    let record = &target.record;
    let person = target.person();
    let process = process(args, target, person)?;
    refuse::process(&process)?;
    labels::check(&process)?;
    if let Some(person) = person {
        keep_to(person, args, record.controllers.as_ref(), &process)?;
    }
    let Some(plan) = record.plan() else {
        return Ok(process);
    };
    let mut confined = confine(process, plan);
    own_oom_score(&mut confined);
    Ok(confined)
}

/// Refuses what no process in a sandbox of this user can have: another user, groups, capabilities, and a cgroup where the
/// sandbox has none.
fn keep_to(
    person: Ids,
    args: &cli::Exec,
    controllers: Option<&Controllers>,
    process: &Process,
) -> Result<(), ExecError> {
    let user = process.user();
    if (user.uid(), user.gid()) != (person.uid, person.gid) {
        return Err(ExecError::OtherUser {
            own: format!("{}:{}", person.uid, person.gid),
            asked: format!("{}:{}", user.uid(), user.gid()),
        });
    }
    if user
        .additional_gids()
        .iter()
        .any(|groups| !groups.is_empty())
    {
        return Err(ExecError::PersonsGroups);
    }
    let sets = CapabilitySets::of(process.capabilities().as_ref());
    if !args.cap.is_empty() || sets != CapabilitySets::default() {
        return Err(ExecError::PersonsCapabilities);
    }
    let has_cgroup = controllers.is_some_and(|all| !all.all().is_empty());
    match args.cgroup.is_empty() || has_cgroup {
        true => Ok(()),
        false => Err(ExecError::NoCgroup),
    }
}

/// Reads the process, or composes it.
fn process(
    args: &cli::Exec,
    target: &ExecTarget,
    person: Option<Ids>,
) -> Result<Process, RuntimeError> {
    let (shadow, record) = (&target.shadow, &target.record);
    if let Some(path) = &args.process {
        return lenient::typed(bundle::read_stream(path)?, path);
    }
    if args.command.is_empty() {
        return Err(ExecError::NoProgram.into());
    }
    let mut process = shadow.process().clone().ok_or(ExecError::NoProcess)?;
    // The shadow spec also has the set-up's capabilities (SYS_ADMIN and others), which the container does not keep.
    process.set_capabilities(Some(to_spec(&record.capabilities)));
    process.set_args(Some(args.command.clone()));
    process.set_terminal(Some(args.tty));
    let is_relayed = args.tty && args.console_socket.is_none();
    process.set_console_size(is_relayed.then(tty::callers_size));
    process.set_cwd(args.cwd.clone().unwrap_or_else(|| record.cwd.clone()));
    let mut env = process.env().clone().unwrap_or_default();
    env.extend(args.env.iter().cloned());
    process.set_env(Some(env));
    if let Some(person) = person {
        // The spec has the user that the init process was during the set-up.
        let mut user = process.user().clone();
        user.set_uid(person.uid);
        user.set_gid(person.gid);
        process.set_user(user);
    }
    if let Some(user) = &args.user {
        set_user(&mut process, user)?;
    }
    let mut user = process.user().clone();
    let mut groups = user.additional_gids().clone().unwrap_or_default();
    groups.extend(&args.additional_gids);
    user.set_additional_gids(Some(groups));
    process.set_user(user);
    set_privileges(&mut process, args)?;
    Ok(process)
}

fn set_user(process: &mut Process, text: &str) -> Result<(), RuntimeError> {
    let bad = || ExecError::User(text.to_owned());
    let (uid, gid) = text
        .split_once(':')
        .map_or((text, None), |(u, g)| (u, Some(g)));
    let mut user = process.user().clone();
    user.set_uid(uid.parse().map_err(|_| bad())?);
    if let Some(gid) = gid {
        user.set_gid(gid.parse().map_err(|_| bad())?);
    }
    process.set_user(user);
    Ok(())
}

fn set_privileges(process: &mut Process, args: &cli::Exec) -> Result<(), RuntimeError> {
    let mut sets = process.capabilities().clone().unwrap_or_default();
    for name in &args.cap {
        let Some(capability) = lenient::capability(name) else {
            log::warn!("ignoring unknown or unavailable capabilities: [{name}]");
            continue;
        };
        let with = |set: &Option<oci_spec::runtime::Capabilities>| {
            let mut set = set.clone().unwrap_or_default();
            set.insert(capability);
            Some(set)
        };
        let (bounding, effective, permitted) = (
            with(sets.bounding()),
            with(sets.effective()),
            with(sets.permitted()),
        );
        if sets.inheritable().as_ref().is_some_and(|i| !i.is_empty()) {
            // Only inheritable capabilities can be ambient (capabilities(7)).
            let ambient = with(sets.ambient());
            sets.set_ambient(ambient);
        }
        sets.set_bounding(bounding);
        sets.set_effective(effective);
        sets.set_permitted(permitted);
    }
    process.set_capabilities(Some(sets));
    if args.no_new_privs {
        process.set_no_new_privileges(Some(true));
    }
    if let Some(label) = &args.process_label {
        process.set_selinux_label(Some(label.clone()));
    }
    if let Some(profile) = &args.apparmor {
        process.set_apparmor_profile(Some(profile.clone()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use oci_spec::runtime::Spec;

    use super::super::arguments;
    use super::*;
    use crate::policy::Capability;
    use crate::runtime::state::record::Record;

    const PERSON: Ids = Ids {
        uid: 1000,
        gid: 100,
    };

    fn with_cgroup() -> Controllers {
        Controllers {
            v2: Some("/user.slice/agentbox".into()),
            ..Controllers::default()
        }
    }

    /// A sandbox of a user without root's rights; its spec has the user of the set-up.
    fn target() -> ExecTarget {
        let mut shadow = Spec::default();
        let mut process = Process::default();
        process.set_capabilities(Some(to_spec(&CapabilitySets::default())));
        shadow.set_process(Some(process));
        ExecTarget {
            record: Record::bare("c1"),
            shadow,
        }
    }

    /// Whether such a sandbox takes `agentbox exec OPTIONS c1 true`.
    fn kept(options: &str, controllers: Option<&Controllers>) -> Result<(), ExecError> {
        let args = arguments(options);
        let process = process(&args, &target(), Some(PERSON)).unwrap();
        keep_to(PERSON, &args, controllers, &process)
    }

    #[test]
    fn a_users_own_sandbox_runs_the_users_processes_and_no_others() {
        let cgroup = with_cgroup();
        for options in ["", "-u 1000", "-u 1000:100", "--no-new-privs --tty"] {
            assert!(kept(options, Some(&cgroup)).is_ok(), "{options}");
            assert!(kept(options, None).is_ok(), "{options}");
        }
        for (user, requested) in [
            ("0", "0:100"),
            ("1001", "1001:100"),
            ("1000:0", "1000:0"),
            ("1000:101", "1000:101"),
        ] {
            let error = kept(&format!("-u {user}"), Some(&cgroup)).unwrap_err();
            assert!(
                matches!(&error, ExecError::OtherUser { own, asked } if own == "1000:100" && asked == requested),
                "{user}: {error}"
            );
        }
        for groups in ["-g 0", "-g 100", "-g 7 -g 8"] {
            let error = kept(groups, Some(&cgroup)).unwrap_err();
            assert!(matches!(error, ExecError::PersonsGroups), "{groups}");
        }
    }

    #[test]
    fn a_users_own_sandbox_gives_no_capability_by_option_or_by_process_file() {
        let cgroup = with_cgroup();
        // An unknown one too: the option itself is refused, and not what is left of it.
        for option in ["--cap CAP_NET_RAW", "--cap CAP_UNHEARD_OF"] {
            let error = kept(option, Some(&cgroup)).unwrap_err();
            assert!(matches!(error, ExecError::PersonsCapabilities), "{option}");
        }
        let args = arguments("");
        let mut asked = process(&args, &target(), Some(PERSON)).unwrap();
        assert!(keep_to(PERSON, &args, Some(&cgroup), &asked).is_ok());
        let sets: [fn(&mut CapabilitySets) -> &mut BTreeSet<Capability>; 4] = [
            |sets| &mut sets.bounding,
            |sets| &mut sets.effective,
            |sets| &mut sets.permitted,
            |sets| &mut sets.inheritable,
        ];
        for set in sets {
            let mut one = CapabilitySets::default();
            set(&mut one).insert("KILL".parse().unwrap());
            asked.set_capabilities(Some(to_spec(&one)));
            let error = keep_to(PERSON, &args, Some(&cgroup), &asked).unwrap_err();
            assert!(matches!(error, ExecError::PersonsCapabilities), "{one:?}");
        }
    }

    #[test]
    fn a_cgroup_can_be_named_only_in_a_sandbox_that_has_one() {
        assert!(kept("--cgroup /below", Some(&with_cgroup())).is_ok());
        for none in [None, Some(&Controllers::default())] {
            let error = kept("--cgroup /below", none).unwrap_err();
            assert!(matches!(error, ExecError::NoCgroup), "{error}");
        }
    }

    fn with_user(text: &str) -> Result<(u32, u32), RuntimeError> {
        let mut process = Process::default();
        let mut user = process.user().clone();
        user.set_uid(5);
        user.set_gid(6);
        process.set_user(user);
        set_user(&mut process, text)?;
        Ok((process.user().uid(), process.user().gid()))
    }

    #[test]
    fn a_user_is_a_number_and_keeps_the_group_unless_one_is_given() {
        assert_eq!(with_user("7").unwrap(), (7, 6));
        assert_eq!(with_user("7:8").unwrap(), (7, 8));
        assert_eq!(with_user("0:0").unwrap(), (0, 0));
        for wrong in [
            "",
            "root",
            "7:",
            ":8",
            "7:8:9",
            "-1",
            "4294967296",
            "7:wheel",
            " 7",
        ] {
            assert!(with_user(wrong).is_err(), "{wrong:?}");
        }
    }
}
