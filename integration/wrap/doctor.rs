//! `agentbox doctor`: its report about a node matches what `wrap` meets there, and it changes nothing.

use std::process::Command;

use serde_json::Value;

use super::account::Account;
use crate::command::{Finished, finish};
use crate::direct::{Scratch, program};
use crate::docker::Docker;

fn json(finished: &Finished) -> Value {
    serde_json::from_str(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {finished}"))
}

/// One check of a report.
fn check<'a>(report: &'a Value, name: &str) -> &'a Value {
    let checks = report["checks"].as_array().unwrap();
    let found = checks.iter().find(|check| check["name"] == name);
    found.unwrap_or_else(|| panic!("no {name}: {report}"))
}

#[test]
fn its_form_is_the_documented_one_and_its_status_its_answer() {
    let mut command = Command::new(program());
    let finished = finish(command.args(["doctor", "--json"]));
    let report = json(&finished);
    assert_eq!(report["version"], 1);
    assert_eq!(report["user"], rustix::process::geteuid().as_raw());
    assert_eq!(
        finished.code == 0,
        report["wrap"].as_bool().unwrap(),
        "{finished}"
    );
    for check in report["checks"].as_array().unwrap() {
        let state = check["state"].as_str().unwrap();
        assert!(["ok", "warning", "missing"].contains(&state), "{check}");
        assert_eq!(check["remedy"].is_string(), state != "ok", "{check}");
        assert!(
            check["needed_for"].is_array() && check["found"].is_string(),
            "{check}"
        );
    }
    let text = finish(Command::new(program()).arg("doctor"));
    assert_eq!(text.code, finished.code);
    assert!(text.stdout.contains("\nagentbox wrap: "), "{text}");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn where_it_says_that_wrap_works_wrap_works_and_nothing_is_left() {
    let _docker = Docker::connect();
    let person = Account::new();
    let files = || {
        person.does(&format!(
            "find ~ /dev/shm -user {} 2>/dev/null | sort",
            person.uid
        ))
    };
    let before = files();
    let finished = person.agentbox(&["doctor", "--json"]);
    assert_eq!(finished.code, 0, "{finished}");
    let report = json(&finished);
    assert_eq!(check(&report, "user-namespaces")["state"], "ok");
    assert_eq!(check(&report, "overlay")["state"], "ok");
    assert_eq!(report["user"], person.uid);
    assert_eq!(files(), before, "the doctor changes nothing");
    person.wraps(&[], "true").ok();
}

/// Runs a script in a container of runc, with this program at `/ab`.
fn in_container(docker: &Docker, user: &str, options: &[&str], script: &str) -> Finished {
    let binary = format!("{}:/ab:ro", program());
    let fixed = ["--runtime", "runc", "--user", user, "-v", &binary];
    let options = [&fixed[..], options, &["test-workloads"]].concat();
    docker.run(&options, &["sh", "-c", script])
}

/// In a container the doctor and `wrap` agree, and each printed cure works.
#[test]
#[ignore = "needs the rig: hack/test"]
fn in_a_container_the_doctor_and_wrap_agree_and_their_cure_works() {
    let docker = Docker::connect();
    let wrap = "mkdir -p /tmp/w && cd /tmp/w && /ab wrap --quiet -- true";
    let open = "--security-opt=seccomp=unconfined";
    let paths = "--security-opt=systempaths=unconfined";
    for user in ["0:0", "1000:1000"] {
        for options in [&[][..], &[open]] {
            let wrapped = in_container(&docker, user, options, wrap);
            assert_eq!(wrapped.code, 125, "{wrapped}");
            let doctor = in_container(&docker, user, options, "/ab doctor");
            assert_eq!(doctor.code, 1, "{doctor}");
            assert!(
                doctor.stdout.contains("agentbox wrap: does not work"),
                "{doctor}"
            );
            for said in [&wrapped.stderr, &doctor.stdout] {
                assert!(said.contains("systempaths=unconfined"), "{said}");
                assert!(said.contains("--walls landlock"), "{said}");
                assert!(!said.contains("Mount {"), "{said}");
            }
            assert!(!wrapped.stderr.contains("sudo"), "{wrapped}");
            assert!(user != "0:0" || !doctor.stdout.contains("sudo"), "{doctor}");
            let cured = wrap.replace("--quiet", "--quiet --walls landlock");
            in_container(&docker, user, options, &cured).ok();
        }
        for options in [&[open, paths][..], &["--privileged"]] {
            in_container(&docker, user, options, wrap).ok();
            in_container(&docker, user, options, "/ab doctor >&2").ok();
        }
    }
    // Root's own walls need cgroups that can be made.
    let admin = ["--cap-add=SYS_ADMIN"];
    for script in [wrap, "/ab doctor >&2"] {
        let seen = in_container(&docker, "0:0", &admin, script);
        assert!(
            seen.code != 0 && seen.stderr.contains("read-only"),
            "{seen}"
        );
        assert!(seen.stderr.contains("--privileged"), "{seen}");
    }
}

/// Runs a command as a user without user namespaces: by the sysctl of a namespace of the test's own.
fn without_namespaces(arguments: &[&str]) -> Finished {
    let script = "echo 0 >/proc/sys/user/max_user_namespaces && exec setpriv --bounding-set=-all --inh-caps=-all -- \"$@\"";
    let mut command = Command::new("unshare");
    command.args([
        "--user",
        "--map-root-user",
        "bash",
        "-c",
        script,
        "bash",
        &program(),
    ]);
    command.args(arguments).current_dir("/srv");
    finish(&mut command)
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn who_forbids_user_namespaces_is_named_by_both_and_wrap_points_to_the_doctor() {
    let _docker = Docker::connect();
    let finished = without_namespaces(&["doctor", "--json"]);
    assert_eq!(finished.code, 1, "{finished}");
    let report = json(&finished);
    let namespaces = check(&report, "user-namespaces");
    assert_eq!(namespaces["state"], "missing");
    let remedy = namespaces["remedy"].as_str().unwrap();
    assert!(
        remedy.contains("sysctl user.max_user_namespaces="),
        "{remedy}"
    );
    assert_eq!(report["wrap"], false);

    let work = Scratch::new();
    let wrapped = without_namespaces(&["wrap", "--workspace", &work.dir("w"), "--", "true"]);
    assert_eq!(wrapped.code, 125, "{wrapped}");
    for words in ["user.max_user_namespaces", "agentbox doctor"] {
        assert!(wrapped.stderr.contains(words), "{words}: {wrapped}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_node_file_that_others_write_and_a_core_limit_are_found_without_a_run() {
    let _docker = Docker::connect();
    let work = Scratch::new();
    let config = work.file("config.toml", "default = \"strict\"\n");
    let doctor = |limit: &str| {
        let script = format!("{limit} exec \"$@\"");
        let mut command = Command::new("bash");
        command.args([
            "-c",
            &script,
            "bash",
            &program(),
            "--config",
            &config,
            "doctor",
            "--json",
        ]);
        finish(&mut command)
    };
    let good = json(&doctor(""));
    assert_eq!(check(&good, "node-file")["state"], "ok", "{good}");
    std::fs::set_permissions(&config, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let finished = doctor("");
    let bad = json(&finished);
    assert_eq!((finished.code, &bad["wrap"]), (1, &Value::Bool(false)));
    let remedy = check(&bad, "node-file")["remedy"].as_str().unwrap();
    assert!(remedy.contains("chmod go-w"), "{remedy}");

    // sudo's limit, for a user who cannot raise it.
    let person = Account::new();
    let said = person.alone(&[
        "bash",
        "-c",
        "ulimit -Hc 0 && exec \"$0\" doctor --json",
        &program(),
    ]);
    let mut said = said;
    let finished = finish(&mut said);
    let core = json(&finished);
    assert_eq!(
        (finished.code, &check(&core, "core-files")["state"]),
        (0, &"warning".into())
    );
}

#[test]
fn an_option_that_it_would_ignore_is_refused() {
    for options in [&["--root", "/srv"][..], &["--systemd-cgroup"]] {
        let mut command = Command::new(program());
        let finished = finish(command.args(options).arg("doctor"));
        assert_eq!(finished.code, 2, "{finished}");
        assert!(finished.stderr.contains(options[0]), "{finished}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn where_wrap_ends_by_a_setting_it_says_so() {
    let _docker = Docker::connect();
    // The control is the test above, with a user without settings.
    let person = Account::new();
    person.file(".config/agentbox/config.toml", "no-such-key = 1\n");
    let finished = person.agentbox(&["doctor", "--json"]);
    let report = json(&finished);
    assert_eq!((finished.code, &report["wrap"]), (1, &Value::Bool(false)));
    assert_eq!(check(&report, "policy")["state"], "missing", "{report}");
    assert!(report["engines"].is_null(), "{report}");
    assert_eq!(person.wraps(&[], "true").code, 125);

    let mut command = Command::new(program());
    command.args(["--policy", "nope", "doctor", "--json"]);
    let finished = finish(&mut command);
    let report = json(&finished);
    assert_eq!(check(&report, "node-file")["state"], "ok", "{report}");
    for name in ["policy", "engine-policy"] {
        let remedy = check(&report, name)["remedy"].as_str();
        assert!(remedy.is_some_and(|r| r.contains("nope")), "{report}");
    }
    assert_eq!(
        (finished.code, &report["engines"]),
        (1, &Value::Bool(false))
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn docker_is_asked_whether_it_hands_annotations_on() {
    let _docker = Docker::connect();
    let report = json(&finish(Command::new(program()).args(["doctor", "--json"])));
    let docker = check(&report, "docker");
    assert_eq!(docker["state"], "ok", "{docker}");
    let runs = check(&report, "docker-program")["found"].as_str().unwrap();
    assert!(runs.starts_with("runs "), "{runs}");
    // A user without permission to ask gets a warning.
    let asked = json(&Account::new().agentbox(&["doctor", "--json"]));
    assert_eq!(check(&asked, "docker")["state"], "warning", "{asked}");
}
