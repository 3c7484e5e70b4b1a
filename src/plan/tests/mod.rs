//! Plans of small containers: from requests to enforced values.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use oci_spec::runtime::Spec;
use serde_json::{Value, json};

use super::*;
use crate::policy::{Asker, NodeConfig, Selection, Sources, resolve};

mod anonymous;
mod audit;
mod engine_volumes;
mod ephemeral;
mod git;
mod idmap;
mod join;
mod mounts;
mod names;
mod namespaces;
mod network;
mod neutral;
mod privileges;
mod temporary;
mod time;
mod volumes;
mod workspace;

/// An engine's container id.
const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// A container, built from its differences to the plainest one.
struct Case {
    spec: Value,
    facts: BundleFacts,
    annotations: BTreeMap<String, String>,
    node: NodeConfig,
    /// Changes for a site's own policy, applied last.
    site: fn(&mut Policy),
}

/// The plainest container under a built-in policy.
fn under(policy: &str) -> Case {
    let namespaces: Vec<Value> = ["pid", "ipc", "uts", "mount", "network", "cgroup"]
        .iter()
        .map(|t| json!({"type": t}))
        .collect();
    let spec = json!({
        "ociVersion": "1.2.0",
        "root": {"path": "rootfs"},
        "process": {"args": ["sh"], "cwd": "/", "user": {"uid": 0, "gid": 0}},
        "mounts": [],
        "linux": {"namespaces": namespaces},
    });
    let annotations = BTreeMap::from([("dev.agentbox.policy".to_owned(), policy.to_owned())]);
    Case {
        spec,
        facts: BundleFacts {
            bundle: format!("/run/containerd/io.containerd.runtime.v2.task/moby/{ID}").into(),
            root: RootOrigin::Layer,
            ..BundleFacts::default()
        },
        annotations,
        node: NodeConfig::default(),
        site: |_| {},
    }
}

/// The policy of the plainest container.
pub(crate) fn sample_policy() -> Policy {
    under("standard").resolved().policy
}

/// The same, resolved with its ceilings.
pub(crate) fn sample_resolved() -> ResolvedPolicy {
    under("standard").resolved()
}

/// A plan for tests of other modules.
pub(crate) fn sample() -> Plan {
    sample_under("standard")
}

/// The same under another built-in policy.
pub(crate) fn sample_under(policy: &str) -> Plan {
    under(policy).plan()
}

impl Case {
    /// Adds the containers in the namespace at a path.
    fn neighbours(mut self, path: &str, inside: Vec<Neighbour>) -> Self {
        self.facts.neighbours.insert(path.into(), inside);
        self
    }

    /// `-v source:destination`, with the source's plain facts.
    fn bind(self, source: &str, destination: &str) -> Self {
        self.bind_of(FileKind::Directory, source, destination)
    }

    fn bind_of(self, kind: FileKind, source: &str, destination: &str) -> Self {
        let facts = SourceFacts {
            trusted: true,
            tmpfs: true,
            ..SourceFacts::plain(source.into(), 1, source.len() as u64, kind)
        };
        self.mount(
            "bind",
            source,
            destination,
            &["rbind", "rprivate"],
            Some(facts),
        )
    }

    /// Changes the facts about the last bind's source.
    fn found(mut self, change: impl FnOnce(&mut SourceFacts)) -> Self {
        change(
            self.facts
                .sources
                .last_mut()
                .and_then(Option::as_mut)
                .unwrap(),
        );
        self
    }

    /// Adds options to the last mount.
    fn options(mut self, more: &[&str]) -> Self {
        let last = self.spec["mounts"]
            .as_array_mut()
            .unwrap()
            .last_mut()
            .unwrap();
        last["options"]
            .as_array_mut()
            .unwrap()
            .extend(more.iter().map(|o| json!(o)));
        self
    }

    fn mount(
        mut self,
        typ: &str,
        source: &str,
        destination: &str,
        options: &[&str],
        facts: Option<SourceFacts>,
    ) -> Self {
        let mount =
            json!({"destination": destination, "type": typ, "source": source, "options": options});
        self.spec["mounts"].as_array_mut().unwrap().push(mount);
        self.facts.sources.push(facts);
        self
    }

    fn tmpfs(self, destination: &str) -> Self {
        self.mount("tmpfs", "tmpfs", destination, &["suid", "dev", "rw"], None)
    }

    fn set(mut self, pointer: &str, key: &str, value: Value) -> Self {
        self.spec.pointer_mut(pointer).unwrap()[key] = value;
        self
    }

    fn cwd(self, path: &str) -> Self {
        self.set("/process", "cwd", json!(path))
    }

    fn home(mut self, path: &str) -> Self {
        self.facts.home = Some(path.into());
        self
    }

    fn annotation(mut self, key: &str, value: &str) -> Self {
        self.annotations
            .insert(format!("dev.agentbox.{key}"), value.to_owned());
        self
    }

    fn node(mut self, text: &str) -> Self {
        self.node = NodeConfig::parse(text).unwrap();
        self
    }

    fn site(mut self, change: fn(&mut Policy)) -> Self {
        self.site = change;
        self
    }

    fn decided_on(&self, host: &HostFacts) -> Result<DecidedPlan, PlanError> {
        let spec: Spec = serde_json::from_value(self.spec.clone()).unwrap();
        plan(&self.resolved(), &spec, &self.facts, host)
    }

    fn plan_on(&self, host: &HostFacts) -> Result<Plan, PlanError> {
        self.decided_on(host).map(|decided| decided.plan)
    }

    fn decided(&self) -> DecidedPlan {
        self.decided_on(&host()).unwrap()
    }

    fn resolved(&self) -> ResolvedPolicy {
        let selection = resolve(&Sources {
            annotations: &self.annotations,
            image: crate::policy::ImageAnnotations::Unknown,
            flag: None,
            node: &self.node,
            files: &BTreeMap::new(),
            presets: &BTreeMap::new(),
            // The policy's tests check whether annotations may request it.
            asker: Asker::Operator,
            tool: crate::policy::Tool::default(),
            asked: crate::policy::WrapOptions::NOTHING,
        });
        match selection.unwrap() {
            Selection::Policy(mut resolved) => {
                (self.site)(&mut resolved.policy);
                *resolved
            }
            other => panic!("{other:?}"),
        }
    }

    fn plan(&self) -> Plan {
        self.plan_on(&host()).unwrap()
    }

    fn refused(&self) -> String {
        self.plan_on(&host()).unwrap_err().to_string()
    }
}

pub(super) fn host() -> HostFacts {
    HostFacts {
        release: "6.18.0".into(),
        version: (6, 18),
        landlock_abi: 7,
        seccomp: true,
        wait_killable: true,
        overlayfs: true,
        controllers: ["cpu", "memory", "pids"].map(str::to_owned).into(),
        memory_bytes: 16 << 30,
        processors: 8,
        core_socket: false,
        core_bytes: 1,
        no_disk: None,
        person: None,
    }
}

/// The access of a mount: `ro`, `rw`, or why it was pruned.
fn access(plan: &Plan, destination: &str) -> String {
    let mounts = &plan.filesystem;
    let kept = mounts
        .mounts
        .iter()
        .find(|m| m.destination == Path::new(destination));
    let pruned = mounts
        .pruned
        .iter()
        .find(|m| m.destination == Path::new(destination));
    match (kept, pruned) {
        (Some(mount), None) => if mount.is_writable() { "rw" } else { "ro" }.to_owned(),
        (None, Some(pruned)) => pruned.why.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_kernel_without_what_a_wall_needs_is_refused_by_name() {
    let case = under("standard");
    for (change, need) in [
        (
            (|h| h.version = (5, 13)) as fn(&mut HostFacts),
            "Linux 5.14",
        ),
        (|h| h.seccomp = false, "seccomp"),
        (|h| h.landlock_abi = 0, "Landlock"),
        (|h| h.overlayfs = false, "overlay"),
    ] {
        let mut host = host();
        change(&mut host);
        let message = case.plan_on(&host).unwrap_err().to_string();
        assert!(
            message.contains(need) && message.contains("standard") && message.contains("6.18.0"),
            "{message}"
        );
    }
    let floor = HostFacts {
        version: (5, 14),
        landlock_abi: 1,
        ..host()
    };
    assert_eq!(case.plan_on(&floor).unwrap(), case.plan());
}

/// F-H2: the socket form of core_pattern receives every crash under any limits (fs/coredump.c, Linux 6.16).
#[test]
fn a_node_whose_crashes_go_to_a_socket_needs_permission() {
    let node = HostFacts {
        core_socket: true,
        ..host()
    };
    let case = under("strict");
    let message = case.plan_on(&node).unwrap_err().to_string();
    assert!(message.contains("core-socket = true"), "{message}");
    let case = case.node("[allow]\ncore-socket = true");
    assert_eq!(case.plan_on(&node).unwrap(), case.plan());
}

#[test]
fn a_section_that_is_missing_is_an_error() {
    for section in ["linux", "process", "root"] {
        let mut case = under("standard");
        case.spec.as_object_mut().unwrap().remove(section);
        assert!(case.refused().contains(section));
    }
}

#[test]
fn only_the_engines_network_hook_and_those_of_the_node_run() {
    let hook = |when: &str, path: &str, argument: &str| {
        let mut case = under("standard");
        case.facts.engine_hooks = vec!["/proc/1/exe".into()];
        let mut hooks = json!({});
        let args = [argument, "-exec-root=/run/docker", ID, "0388dd010f7f"];
        hooks[when] = json!([{"path": path, "args": args}]);
        case.set("", "hooks", hooks)
    };
    hook("prestart", "/proc/1/exe", "libnetwork-setkey").plan();
    for (when, path, argument) in [
        ("prestart", "/proc/2/exe", "libnetwork-setkey"),
        ("prestart", "/proc/1/exe", "daemon"),
        ("poststop", "/proc/1/exe", "libnetwork-setkey"),
        ("createRuntime", "/usr/bin/hook", "hook"),
        ("createContainer", "/usr/bin/hook", "hook"),
        ("startContainer", "/usr/bin/hook", "hook"),
        ("poststart", "/usr/bin/hook", "hook"),
    ] {
        let message = hook(when, path, argument).refused();
        assert!(
            message.contains(when) && message.contains(path) && message.contains("allow.hooks"),
            "{message}"
        );
    }
    hook("poststart", "/usr/bin/hook", "hook")
        .node("allow.hooks = [\"/usr/bin/hook\"]")
        .plan();
}

#[test]
fn the_engines_network_hook_must_match_word_for_word() {
    let hook = |args: &[&str], env: Value| {
        let mut case = under("standard");
        case.facts.engine_hooks = vec!["/proc/1/exe".into()];
        let hooks = json!({"prestart": [{"path": "/proc/1/exe", "args": args, "env": env}]});
        case.set("", "hooks", hooks)
    };
    const NAME: &str = "libnetwork-setkey";
    const ROOT: &str = "-exec-root=/var/run/docker";
    hook(&[NAME, ROOT, ID, "0388dd010f7f"], json!([])).plan();
    for args in [
        &[NAME, ROOT, ID][..],
        &[NAME, ROOT, ID, "0388dd010f7f", "more"],
        &[NAME, "-exec-root=relative", ID, "0388dd010f7f"],
        &[NAME, "-other=/run", ID, "0388dd010f7f"],
        &[NAME, ROOT, "../name", "0388dd010f7f"],
        &[NAME, ROOT, ID, ""],
        &["/libnetwork-setkey", ROOT, ID, "0388dd010f7f"],
        &[ROOT, NAME, ID, "0388dd010f7f"],
        &[],
    ] {
        let message = hook(args, json!([])).refused();
        assert!(message.contains("/proc/1/exe"), "{args:?}: {message}");
    }
    hook(&[NAME, ROOT, ID, "0388dd010f7f"], json!(["LD_PRELOAD=/x"])).refused();
}
