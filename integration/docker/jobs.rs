//! Job containers as GitHub's and GitLab's runners make them (docs/ci.md), with the mounts and calls of their sources.

use std::fs;
use std::os::unix::fs::chown;

use super::owners::{Disk, OWNER};
use super::{Docker, runtime};
use crate::command::run;

const IMAGE: &str = "test-workloads";

/// The options of the job's container in docs/ci.md.
fn documented_options() -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/ci.md");
    let page = fs::read_to_string(page).unwrap();
    let line = page
        .lines()
        .find_map(|line| line.trim().strip_prefix("options: "));
    line.unwrap().split(' ').map(str::to_owned).collect()
}

/// A step, which runs under the engine's own runtime too. It prints `ok` if all of it worked.
const STEP: &str = r#"
set -e
[ "$(pwd)" = /__w/repo/repo ] && [ "$HOME" = /github/home ]
git config --global --add safe.directory /__w/repo/repo
git init -q . && echo source >file && git add file
git -c user.name=x -c user.email=x@y commit -qm first
echo A=b >>/__w/_temp/_runner_file_commands/set_env
echo tool >/__w/_tool/tool && echo tool >/__t/tool
grep -q pushed /github/workflow/event.json
echo '#!/bin/sh' >/usr/local/bin/tool && chmod +x /usr/local/bin/tool && tool
python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); s.listen()'
echo ok
"#;

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_github_job_runs_its_steps_and_changes_the_runners_directories_alone() {
    let docker = Docker::connect();
    let disk = Disk::new("ext4");
    for dir in [
        "repo/repo",
        "_temp/_github_home",
        "_temp/_github_workflow",
        "_temp/_runner_file_commands",
        "_actions",
        "_tool",
        "externals",
        "hostedtoolcache",
    ] {
        fs::create_dir_all(disk.path(dir)).unwrap();
    }
    fs::write(disk.path("_temp/_github_workflow/event.json"), "pushed").unwrap();
    fs::write(disk.path("_temp/step.sh"), STEP).unwrap();
    run("chown", &["-R", &OWNER.to_string(), &disk.path("")]).ok();
    chown(disk.path(""), Some(OWNER), None).unwrap();
    let volumes = [
        ("", "/__w"),
        ("externals", "/__e:ro"),
        ("_temp", "/__w/_temp"),
        ("_actions", "/__w/_actions"),
        ("_tool", "/__w/_tool"),
        // A runner has one of both: here it is if AGENT_TOOLSDIRECTORY is outside of the work directory.
        ("hostedtoolcache", "/__t"),
        ("_temp/_github_home", "/github/home"),
        ("_temp/_github_workflow", "/github/workflow"),
    ]
    .map(|(from, to)| format!("{}:{to}", disk.path(from).trim_end_matches('/')));
    let socket = "/run/rig-docker.sock:/var/run/docker.sock";
    fs::write("/run/rig-docker.sock", "").unwrap();
    let mut options: Vec<&str> = vec![
        "-w",
        "/__w/repo/repo",
        "-e",
        "HOME=/github/home",
        "-v",
        socket,
    ];
    options.extend(volumes.iter().flat_map(|volume| ["-v", volume.as_str()]));
    options.extend(["--entrypoint", "tail"]);
    let documented = documented_options();
    let documented: Vec<&str> = documented.iter().map(String::as_str).collect();
    for runtime in [&["--runtime=runc"][..], &documented] {
        let options = [runtime, &options, &[IMAGE]].concat();
        let job = docker.start(&options, &["-f", "/dev/null"]);
        let step = job.exec(
            &["-i", "-w", "/__w/repo/repo"],
            &["sh", "-e", "/__w/_temp/step.sh"],
        );
        assert!(step.ok().ends_with("ok\n"));
        // The next step sees what the last one installed.
        job.exec(&[], &["tool"]).ok();
        let written = |dir: &str| job.exec(&[], &["sh", "-c", &format!("echo x >{dir}/x")]);
        if runtime.len() > 1 {
            for dir in ["/__e", "/__w/_actions"] {
                written(dir).failed();
            }
            let net = job.exec(
                &[],
                &["curl", "-sS", "--max-time", "5", "https://example.com"],
            );
            assert_ne!(net.code, 0, "{net}");
            assert_eq!(disk.owner("repo/repo/file").0, OWNER, "the workspace");
        } else {
            written("/__w/_actions").ok();
        }
        drop(job);
        for left in [
            "repo/repo/.git",
            "repo/repo/file",
            "_tool/tool",
            "hostedtoolcache/tool",
            "_actions/x",
            "_temp/_github_home/.gitconfig",
        ] {
            run("rm", &["-rf", &disk.path(left)]).ok();
        }
    }
    fs::remove_file("/run/rig-docker.sock").unwrap();
}

/// The helper clones into a volume. The job's container gets its script on standard input.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_gitlab_job_builds_what_its_helper_cloned() {
    let _docker = Docker::connect();
    let number = std::process::id();
    let volumes =
        ["builds", "cache"].map(|place| (format!("runner-{number}-cache-{place}"), place));
    let mounts = volumes
        .each_ref()
        .map(|(volume, place)| format!("{volume}:/{place}"));
    let ci = [
        "--rm",
        "-i",
        runtime(),
        "--annotation",
        "dev.agentbox.policy=ci",
    ];
    let job = |script: &str| {
        let mounts = mounts.iter().flat_map(|mount| ["-v", mount.as_str()]);
        let options: Vec<&str> = ci.into_iter().chain(mounts).chain([IMAGE]).collect();
        let call = format!("printf '%s' \"$1\" | docker run {} sh", options.join(" "));
        run("sh", &["-c", &call, "sh", script])
    };
    let project = "/builds/group/project";
    let cloned = job(&format!(
        "set -e; umask 0000; mkdir -p {project}; cd {project}; git init -q .; echo source >file; git add file; \
         git -c user.name=x -c user.email=x@y commit -qm first; echo cloned"
    ));
    assert_eq!(cloned.ok(), "cloned\n");
    let built = job(&format!(
        "set -e; cd {project}; git status --short; cat file; echo built >out; mkdir -p /cache/group; echo zip >/cache/group/zip; \
         echo x >/usr/local/bin/x"
    ));
    assert_eq!(built.ok(), "source\n");
    let next = job(&format!(
        "cat {project}/out /cache/group/zip; ls /usr/local/bin/x"
    ));
    assert!(
        next.stdout.starts_with("built\nzip\n") && next.code != 0,
        "{next}"
    );
    for (volume, _) in &volumes {
        run("docker", &["volume", "rm", volume]).ok();
    }
}
