//! F-M2: the choice of the workspace's mount, the writable part of a home, and the report on other mounts.

use std::fs;

use serde_json::json;

use super::{bind, run, run_with};
use crate::direct::Node;
use crate::docker::{Docker, Policy};

/// F-M2: an image's WORKDIR does not choose which of the caller's mounts is writable.
#[test]
#[ignore = "needs the rig: hack/test"]
fn strict_does_not_take_the_images_word_for_the_workspace() {
    let docker = Docker::connect();
    let scratch = crate::direct::Scratch::new();
    let (reference, work) = (scratch.dir("ref"), scratch.dir("work"));
    let mounts = [format!("-v={reference}:/ref"), format!("-v={work}:/work")];
    // `-w` looks the same as an image's WORKDIR.
    let script = [
        "test-musl",
        "sh",
        "-c",
        "touch /ref/planted; touch /work/made; true",
    ];
    let run = |policy: Policy, more: &[&str]| {
        let mut options = policy.options();
        options.extend(mounts.iter().map(String::as_str));
        options.push("-w=/ref");
        options.extend(more);
        docker.run(&options, &script)
    };
    let refused = run(Policy::Strict, &[]).failed();
    assert!(
        refused.contains("dev.agentbox.workspace") && refused.contains("/work"),
        "{refused}"
    );
    assert!(!fs::exists(format!("{reference}/planted")).unwrap());
    run(
        Policy::Strict,
        &["--annotation=dev.agentbox.workspace=/work"],
    )
    .ok();
    assert!(!fs::exists(format!("{reference}/planted")).unwrap());
    assert!(fs::exists(format!("{work}/made")).unwrap());
    // With one writable mount there is nothing to guess.
    let one = format!("-v={reference}:/ref:ro");
    let mut options = Policy::Strict.options();
    options.extend([one.as_str(), &mounts[1], "-w=/work"]);
    docker.run(&options, &script).ok();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_nodes_policy_pins_the_place_of_the_workspace() {
    let node = Node::new();
    let policies = node.scratch.dir("policies");
    node.scratch.file(
        "policies/pinned.toml",
        "base = \"strict\"\n[filesystem]\nworkspace-at = [\"/work\"]\n",
    );
    let settings = format!("policy-dir = \"{policies}\"\n");
    let source = node.scratch.dir("source");
    for (place, annotation, fits) in [
        ("/work", None, true),
        ("/x", None, false),
        ("/x", Some("/x"), false),
    ] {
        let mut config = node.config(&["sh", "-c", "touch made && echo written"]);
        config["process"]["cwd"] = json!(place);
        let mount =
            json!({"destination": place, "type": "bind", "source": source, "options": ["rbind"]});
        config["mounts"].as_array_mut().unwrap().push(mount);
        if let Some(named) = annotation {
            config["annotations"] = json!({"dev.agentbox.workspace": named});
        }
        let seen = run_with(&node, &settings, "pinned", &config);
        match fits {
            true => assert_eq!(seen.ok(), "written\n"),
            false => assert!(seen.failed().contains("filesystem.workspace-at"), "{place}"),
        }
    }
}

/// AGENTS 18: `-v $HOME:$HOME -w $HOME/project`.
#[test]
#[ignore = "needs the rig: hack/test"]
fn agents_18_of_a_whole_home_the_working_directory_alone_is_written() {
    let node = Node::new();
    let home = format!("/home/review-{}", std::process::id());
    let project = format!("{home}/src/project");
    fs::create_dir_all(&project).unwrap();
    fs::write(format!("{home}/.bashrc"), "plain\n").unwrap();
    fs::create_dir_all(format!("{project}/.aws")).unwrap();
    fs::write(format!("{project}/.aws/credentials"), "the-secret").unwrap();
    let script = format!(
        "cat {home}/.bashrc; echo evil >>{home}/.bashrc; touch {home}/new; touch here && cat .aws/*; echo ran"
    );
    let mount =
        json!({"destination": home, "type": "bind", "source": home, "options": ["rbind", "rw"]});
    for policy in ["strict", "standard", "permissive"] {
        let mut config = node.config(&["sh", "-c", &script]);
        config["process"]["cwd"] = json!(project);
        config["mounts"].as_array_mut().unwrap().push(mount.clone());
        config["root"]["readonly"] = json!(false);
        let seen = run(&node, policy, &config);
        assert_eq!(seen.stdout, "plain\nran\n", "{policy}: {seen}");
        assert!(seen.stderr.contains("Read-only"), "{policy}: {seen}");
        assert_eq!(
            fs::read_to_string(format!("{home}/.bashrc")).unwrap(),
            "plain\n"
        );
        assert!(fs::exists(format!("{project}/here")).unwrap());
        fs::remove_file(format!("{project}/here")).unwrap();
    }
    fs::remove_dir_all(&home).unwrap();
}

/// A requested mount that is left out is reported, or refused if the policy says so.
#[test]
#[ignore = "needs the rig: hack/test"]
fn what_is_left_out_is_named_by_explain_and_state_or_refused() {
    let node = Node::new();
    let mut config = node.config(&["sleep", "60"]);
    config["mounts"].as_array_mut().unwrap().push(bind("/etc"));
    let all = json!(["CAP_SYS_ADMIN", "CAP_CHOWN"]);
    config["process"]["capabilities"] =
        json!({"bounding": all, "permitted": all, "effective": all});
    let bundle = node.bundle("left-out", &config);
    let id = format!("review-left-out-{}", std::process::id());
    node.call(&["--policy", "standard", "create", "--bundle", &bundle, &id])
        .ok();
    let explained = node.call(&["explain", &id]).ok();
    let state = node.call(&["state", &id]).ok();
    node.call(&["delete", "--force", &id]).ok();
    for text in [&explained, &state] {
        assert!(
            text.contains("SYS_ADMIN") && text.contains("/etc"),
            "{text}"
        );
    }
    let policies = node.scratch.dir("policies");
    node.scratch.file(
        "policies/all.toml",
        "base = \"standard\"\n[filesystem]\nleft-out = \"error\"\n",
    );
    let settings = format!("policy-dir = \"{policies}\"\n");
    let message = run_with(&node, &settings, "all", &config).failed();
    assert!(
        message.contains("filesystem.left-out") && message.contains("/etc"),
        "{message}"
    );
    let plain = node.config(&["echo", "runs"]);
    assert_eq!(run_with(&node, &settings, "all", &plain).ok(), "runs\n");
}
