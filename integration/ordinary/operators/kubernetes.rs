//! docs/kubernetes.md and hack/kubernetes: the page quotes the files, and containerd and YAML parsers accept them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use agentbox::policy::Selection;

use crate::command::run;
use crate::fixtures;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The blocks of a document in this language.
fn blocks(document: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}\n");
    let parts = document.split(fence.as_str()).skip(1);
    parts
        .map(|part| part.split("```").next().unwrap().to_owned())
        .collect()
}

/// The files of hack/kubernetes with this ending.
fn files(ending: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(root().join("hack/kubernetes")).unwrap();
    let all = all.map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|e| e == ending))
        .collect()
}

#[test]
fn the_page_quotes_the_files_correctly() {
    let page = text("docs/kubernetes.md");
    let first = text("hack/kubernetes/containerd-1.toml");
    assert_eq!(blocks(&page, "toml"), [""; 0], "the page has links to both");
    let second = first
        .replace("io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime")
        .replace("containerd 1.6 and 1.7", "containerd 2.x")
        .replace("version = 2", "version = 3");
    assert_eq!(text("hack/kubernetes/containerd-2.toml"), second);
    let manifests: Vec<String> = files("yaml")
        .iter()
        .map(|path| fs::read_to_string(path).unwrap())
        .collect();
    let quoted = blocks(&page, "yaml");
    assert_eq!(quoted.len(), 2);
    for block in quoted {
        assert!(
            manifests.iter().any(|text| text.contains(&block)),
            "{block}"
        );
    }
}

/// The annotation patterns of the handlers.
fn patterns() -> Vec<String> {
    let config: toml::Table = toml::from_str(&text("hack/kubernetes/containerd-1.toml")).unwrap();
    let runtimes = &config["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"];
    let list = |handler: &str, key: &str| -> Vec<String> {
        let list = runtimes[handler][key].as_array().unwrap().iter();
        list.map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    let patterns = list("agentbox", "pod_annotations");
    for handler in ["agentbox", "agentbox-strict"] {
        for key in ["pod_annotations", "container_annotations"] {
            assert_eq!(list(handler, key), patterns);
        }
    }
    patterns
}

/// Go's path.Match, as far as these patterns need: `*` for anything but a slash, `[ab]` for one of these.
fn matches(pattern: &[u8], key: &[u8]) -> bool {
    match (pattern, key) {
        ([], []) => true,
        ([b'*', rest @ ..], _) => {
            matches(rest, key)
                || matches!(key, [first, left @ ..] if *first != b'/' && matches(pattern, left))
        }
        ([b'[', rest @ ..], [first, left @ ..]) => {
            let end = rest.iter().position(|b| *b == b']').unwrap();
            rest[..end].contains(first) && matches(&rest[end + 1..], left)
        }
        ([one, rest @ ..], [first, left @ ..]) => one == first && matches(rest, left),
        _ => false,
    }
}

#[test]
fn a_misspelt_key_is_passed_on_and_refused_but_no_other_programs_key() {
    let patterns = patterns();
    let passed = |key: &str| {
        patterns
            .iter()
            .any(|pattern| matches(pattern.as_bytes(), key.as_bytes()))
    };
    let select = |key: &str| {
        let annotations = [(key.to_owned(), "strict".to_owned())].into();
        fixtures::select(None, &annotations)
    };
    assert!(passed("dev.agentbox.policy"));
    assert!(matches!(
        select("dev.agentbox.policy"),
        Ok(Selection::Policy(_))
    ));
    for misspelt in [
        "agentbox.dev/policy",
        "dev.agentbox/policy",
        "dev.agentbox/filesystem.root",
        "dev.agentbox.polciy",
        "Dev.Agentbox.policy",
        "dev.agentBox.policy",
        "example.com/agentbox.policy",
        "agentbox-policy",
    ] {
        assert!(passed(misspelt), "{misspelt} is lost");
        assert!(select(misspelt).is_err(), "{misspelt}");
    }
    for other in [
        "io.kubernetes.cri.container-type",
        "kubectl.kubernetes.io/last-applied-configuration",
        "team/agent",
    ] {
        assert!(!passed(other), "{other}");
    }
    // The same set in every file that shows or creates handlers.
    let line = |key: &str| format!("{key}_annotations = {patterns:?}");
    for (path, handlers) in [
        ("docs/kubernetes.md", 0),
        ("hack/kubernetes/containerd-1.toml", 2),
        ("hack/kubernetes/containerd-2.toml", 2),
        ("hack/lib/engine-containerd.sh", 1),
        ("docs/engines.md", 0),
        ("docs/policy.md", 0),
    ] {
        let text = text(path);
        for key in ["pod", "container"] {
            let shown = text.matches(&format!("{key}_annotations = [")).count();
            assert_eq!(shown, handlers, "{path}");
            assert_eq!(text.matches(&line(key)).count(), handlers, "{path}");
        }
    }
}

#[test]
fn the_manifests_are_yaml_and_name_existing_handlers() {
    let check = r#"
import json, sys, yaml
print(json.dumps([one for path in sys.argv[1:] for one in yaml.safe_load_all(open(path)) if one]))
"#;
    let mut command = Command::new("python3");
    command.args(["-B", "-c", check]).args(files("yaml"));
    let out = command.output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    if said.contains("No module named 'yaml'") {
        eprintln!("skipped: python3-yaml is not installed");
        return;
    }
    assert!(out.status.success(), "{said}");
    let all: Vec<serde_json::Value> = serde_json::from_slice(&out.stdout).unwrap();
    let of = |kind: &'static str| all.iter().filter(move |one| one["kind"] == kind);
    let handlers: Vec<&str> = of("RuntimeClass")
        .map(|one| one["handler"].as_str().unwrap())
        .collect();
    assert_eq!(handlers, ["agentbox", "agentbox-strict"]);
    for one in of("RuntimeClass") {
        assert_eq!(one["metadata"]["name"], one["handler"]);
        assert!(one["overhead"]["podFixed"]["memory"].is_string());
        assert!(one["scheduling"]["nodeSelector"].is_object());
    }
    let pod = of("Pod").next().unwrap();
    assert_eq!(pod["spec"]["runtimeClassName"], "agentbox");
    // A pod's author may request everything in the example without the node's permission.
    let annotations = pod["metadata"]["annotations"].as_object().unwrap();
    let annotations = annotations
        .iter()
        .map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned()))
        .collect();
    assert!(fixtures::select(None, &annotations).is_ok());
    let policy = of("ValidatingAdmissionPolicy").next().unwrap();
    let binding = of("ValidatingAdmissionPolicyBinding").next().unwrap();
    assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
    let rules = policy["spec"]["validations"].as_array().unwrap();
    let rules: String = rules.iter().map(|rule| rule.to_string()).collect();
    for word in ["runtimeClassName", "hostPath", "hostNetwork"] {
        assert!(rules.contains(word), "{word}");
    }
    // Exactly those classes: a node's own class named agentbox-unconfined has no walls.
    let expressions = policy["spec"]["validations"].as_array().unwrap();
    let expressions = expressions.iter();
    let mut expressions = expressions.map(|rule| rule["expression"].as_str().unwrap());
    let classes = format!("object.spec.runtimeClassName in {handlers:?}");
    assert!(expressions.any(|e| e.ends_with(&classes)), "{rules}");
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn containerd_accepts_the_handlers() {
    let version = run("containerd", &["--version"]).ok();
    // 2.x reads the older format too.
    let taken: &[&str] = match version.contains(" 1.") || version.contains(" v1.") {
        true => &["1"],
        false => &["1", "2"],
    };
    for form in taken {
        let file = root().join(format!("hack/kubernetes/containerd-{form}.toml"));
        let file = file.to_str().unwrap();
        let dump = run("containerd", &["--config", file, "config", "dump"]).ok();
        let dump: toml::Table = toml::from_str(&dump).unwrap();
        let plugins = dump["plugins"].as_table().unwrap();
        // 2.x has both, and the handlers are in the new one.
        let cri = ["io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri"];
        let cri = cri.iter().find_map(|name| plugins.get(*name)).unwrap();
        let runtimes = &cri["containerd"]["runtimes"];
        for handler in ["agentbox", "agentbox-strict"] {
            let seen = &runtimes[handler];
            let program = format!("/usr/local/bin/{handler}");
            assert_eq!(
                seen["options"]["BinaryName"].as_str(),
                Some(program.as_str())
            );
            for key in ["pod_annotations", "container_annotations"] {
                let list = seen[key].as_array().unwrap().iter();
                let list: Vec<&str> = list.map(|one| one.as_str().unwrap()).collect();
                assert_eq!(list, patterns(), "{handler} {key} in {version}");
            }
        }
    }
}

#[test]
fn the_script_of_the_strict_handler_passes_on_its_arguments() {
    let script = text("hack/kubernetes/agentbox-strict");
    let dir = std::env::temp_dir().join(format!("agentbox-script-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join("agentbox-strict");
    fs::write(
        &path,
        script.replace("/usr/local/bin/agentbox", "/bin/echo"),
    )
    .unwrap();
    let said = run(
        "sh",
        &[Path::new(&path).to_str().unwrap(), "--log", "a b", "create"],
    )
    .ok();
    assert_eq!(said, "--policy strict --log a b create\n");
    fs::remove_dir_all(&dir).unwrap();
}
