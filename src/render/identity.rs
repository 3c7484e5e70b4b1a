//! PURE. A container's identity for users: its name in its engine, its pod, its image. Only for finding and display; no
//! decision depends on it.
//!
//! CRI engines write names into the annotations of config.json. Docker and podman keep them in files of their own. Keys
//! of one engine are ignored under another: podman copies annotations from an image.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use crate::engines::annotation::{CONTAINERD, CRIO, CriKeys, NERDCTL_NAME, SANDBOX};
use crate::engines::root::engine;
use crate::policy::Tool;

/// The longest name that is shown or compared, in bytes. Names from engines are shorter.
const LONGEST: usize = 512;

/// The names of a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerIdentity {
    /// The engine: `docker`, `podman`, `podman pod` for the container that holds a pod's network, `cri-o`,
    /// `containerd NAMESPACE`, `agentbox` or its `--root`.
    pub engine: String,
    /// The container's name. A pod's sandbox container has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The pod's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The pod's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The image, as given to the engine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

/// The names from the engine's own files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EngineIdentity {
    /// The container's name.
    pub name: Option<String>,
    /// Its image.
    pub image: Option<String>,
}

/// podman's own name for the container that holds a pod's network: twelve digits of the pod's id, and `-infra`.
fn is_infra(name: &str) -> bool {
    let pod = name.strip_suffix("-infra").unwrap_or_default();
    pod.len() == 12 && pod.bytes().all(|b| b.is_ascii_hexdigit())
}

impl ContainerIdentity {
    /// The tool that started it.
    pub fn tool(&self) -> Tool {
        Tool::of(Some(&self.engine))
    }

    /// The identity from the bundle's annotations, and from the engine's own files if it has any.
    pub fn of(root: &Path, annotations: &BTreeMap<String, String>, told: EngineIdentity) -> Self {
        let engine = engine(root, annotations);
        let note = |key: &str| {
            let value = annotations.get(key).filter(|value| !value.is_empty());
            value.map(|value| value.chars().take(LONGEST).collect::<String>())
        };
        let noted = |keys: &CriKeys| Self {
            engine: engine.clone(),
            name: note(keys.container_name),
            pod: note(keys.pod_name),
            namespace: note(keys.pod_namespace),
            image: note(keys.image),
        };
        if engine == "cri-o" {
            let mut found = noted(&CRIO);
            let kind = annotations.get(CRIO.container_type);
            if kind.is_some_and(|kind| kind == SANDBOX) {
                found.name = None;
            }
            return found;
        }
        if engine.starts_with("containerd") {
            let mut found = noted(&CONTAINERD);
            found.name = found.name.or_else(|| note(NERDCTL_NAME));
            return found;
        }
        let holds_pod = engine == "podman" && told.name.as_deref().is_some_and(is_infra);
        Self {
            engine: match holds_pod {
                true => Tool::PODMAN_POD.to_owned(),
                false => engine,
            },
            name: told.name,
            image: told.image,
            ..Self::default()
        }
    }

    /// Whether this text names the container. A pod's name means its sandbox container, which owns the pod's network:
    /// `web`, `team/web`. The other containers are `app`, `web/app` and `team/web/app`.
    pub fn answers_to(&self, text: &str) -> bool {
        let parts: Vec<&str> = text.split('/').collect();
        let is = |field: &Option<String>, part: &str| field.as_deref() == Some(part);
        match (&self.pod, &self.name, &parts[..]) {
            (_, Some(_), [name]) => is(&self.name, name),
            (Some(_), Some(_), [pod, name]) => is(&self.pod, pod) && is(&self.name, name),
            (Some(_), Some(_), [namespace, pod, name]) => {
                is(&self.namespace, namespace) && is(&self.pod, pod) && is(&self.name, name)
            }
            (Some(_), None, [pod]) => is(&self.pod, pod),
            (Some(_), None, [namespace, pod]) => {
                is(&self.namespace, namespace) && is(&self.pod, pod)
            }
            _ => false,
        }
    }

    /// The name to type instead of its id; `-` if it has none.
    pub fn short(&self) -> String {
        let parts = [&self.namespace, &self.pod, &self.name];
        let known: Vec<&str> = parts.into_iter().flatten().map(String::as_str).collect();
        match known.is_empty() {
            true => "-".to_owned(),
            false => known.join("/"),
        }
    }

    /// The full id, with the name to type: `4b13... (team/web/app)`.
    pub fn with_id(&self, id: &str) -> String {
        crate::text::escape(&match self.short().as_str() {
            "-" => id.to_owned(),
            name => format!("{id} ({name})"),
        })
    }

    /// The identity in words, for a heading: `docker, name web, image x`. Empty for a container of agentbox itself.
    pub fn words(&self) -> String {
        let Self {
            engine,
            name,
            pod,
            namespace,
            image,
        } = self;
        let mut words = vec![engine.clone()];
        if let Some(pod) = pod {
            let namespace = namespace.as_deref().unwrap_or("");
            let slash = if namespace.is_empty() { "" } else { "/" };
            words.push(format!("pod {namespace}{slash}{pod}"));
        }
        for (word, value) in [("container", name), ("image", image)] {
            words.extend(value.iter().map(|value| format!("{word} {value}")));
        }
        match words.len() {
            1 => String::new(),
            _ => crate::text::escape(&words.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engines::root::cri_of;

    fn notes(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let pair = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        pairs.iter().map(pair).collect()
    }

    fn identity(root: &str, pairs: &[(&str, &str)]) -> ContainerIdentity {
        ContainerIdentity::of(Path::new(root), &notes(pairs), EngineIdentity::default())
    }

    const POD: [(&str, &str); 3] = [
        ("io.kubernetes.cri.sandbox-name", "web"),
        ("io.kubernetes.cri.sandbox-namespace", "team"),
        ("io.kubernetes.cri.sandbox-uid", "u1"),
    ];

    #[test]
    fn the_engine_is_recognized_by_its_root() {
        for (root, engine) in [
            ("/run/docker/runtime-runc/moby", "docker"),
            ("/run/docker/runtime-agentbox/moby", "docker"),
            ("/run/containerd/runc/k8s.io", "containerd k8s.io"),
            ("/run/containerd/runc/default", "containerd default"),
            ("/run/agentbox/containers", "agentbox"),
            ("/srv/other", "/srv/other"),
        ] {
            assert_eq!(identity(root, &[]).engine, engine);
        }
        let podman = [("io.container.manager", "libpod")];
        for (name, engine) in [
            (None, "podman"),
            (Some("web"), "podman"),
            (Some("0719-infra"), "podman"),
            (Some("071876fcf0d3-infra"), Tool::PODMAN_POD),
        ] {
            let told = EngineIdentity {
                name: name.map(str::to_owned),
                image: None,
            };
            let root = Path::new("/run/agentbox/containers");
            let identity = ContainerIdentity::of(root, &notes(&podman), told);
            assert_eq!(identity.engine, engine, "{name:?}");
        }
    }

    #[test]
    fn a_cri_engine_is_recognized_by_its_root() {
        for (root, is) in [
            ("/run/containerd/runc/k8s.io", true),
            ("/run/cri-o", true),
            ("/run/containerd/runc/default", false),
            ("/run/containerd/runc/cri-o", false),
            ("/run/docker/runtime-agentbox/moby", false),
            ("/run/docker/runtime-k8s.io/moby", false),
            ("/run/agentbox/containers", false),
            ("/srv/k8s.io", false),
        ] {
            assert_eq!(cri_of(Path::new(root)).is_some(), is, "{root}");
        }
    }

    #[test]
    fn a_pod_and_its_containers_are_found_by_their_names() {
        let root = "/run/containerd/runc/k8s.io";
        let sandbox = identity(root, &POD);
        let mut pairs = POD.to_vec();
        pairs.push(("io.kubernetes.cri.container-name", "app"));
        pairs.push(("io.kubernetes.cri.image-name", "example.test/app:1"));
        let app = identity(root, &pairs);
        for (text, of_sandbox, of_app) in [
            ("web", true, false),
            ("team/web", true, false),
            ("app", false, true),
            ("web/app", false, true),
            ("team/web/app", false, true),
            ("other/web", false, false),
            ("team/app", false, false),
            ("", false, false),
            ("team/web/", false, false),
        ] {
            assert_eq!(sandbox.answers_to(text), of_sandbox, "{text}");
            assert_eq!(app.answers_to(text), of_app, "{text}");
        }
        assert_eq!(app.short(), "team/web/app");
        assert_eq!(
            app.words(),
            "containerd k8s.io, pod team/web, container app, image example.test/app:1"
        );
    }

    #[test]
    fn an_image_cannot_choose_its_name_under_podman() {
        let mut pairs = POD.to_vec();
        pairs.push(("io.kubernetes.cri.container-name", "victim"));
        pairs.push(("io.kubernetes.container.name", "victim"));
        pairs.push(("io.container.manager", "libpod"));
        let hostile = identity("/run/agentbox/containers", &pairs);
        assert!(!hostile.answers_to("victim") && !hostile.answers_to("web"));
        assert_eq!(hostile.short(), "-");
        // Nor under other engines: only CRI engines write these keys.
        assert_eq!(identity("/run/docker/runtime-runc/moby", &POD).pod, None);
    }

    #[test]
    fn a_name_is_shown_in_one_line() {
        let root = "/run/containerd/runc/k8s.io";
        let name = [("io.kubernetes.cri.sandbox-name", "a\nb\u{1b}[2J")];
        let words = identity(root, &name).words();
        assert!(!words.contains(['\n', '\u{1b}']), "{words}");
    }
}
