//! Reads a container's name for people from its record, or from the engine's own files, found by the paths in the
//! bundle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::engines::layout::EngineFiles;
use crate::engines::layout::{PODMAN_LISTS, docker_data};
use crate::engines::root::engine;
use crate::policy::Tool;
use crate::render::identity::{ContainerIdentity, EngineIdentity};
use crate::runtime::input::bundle::read_file;
use crate::runtime::state::record::Record;

/// The longest name that is accepted.
const LONGEST: usize = 512;

/// The names of the container of this record.
pub fn of(record: &Record) -> ContainerIdentity {
    if record.call.wrap {
        return ContainerIdentity {
            engine: Tool::WRAP.to_owned(),
            ..ContainerIdentity::of(&record.root, &record.annotations, EngineIdentity::default())
        };
    }
    let told = match engine(&record.root, &record.annotations).as_str() {
        "docker" => docker(record),
        "podman" => podman(record),
        _ => EngineIdentity::default(),
    };
    ContainerIdentity::of(&record.root, &record.annotations, told)
}

/// Docker keeps a file for each container, below its data directory: the bundle names the container's resolv.conf in
/// it, and the root file system beside it.
fn docker(record: &Record) -> EngineIdentity {
    in_docker(&record.engine_files, &record.rootfs, &record.id)
}

/// The name and image of a container by Docker's file about it.
pub fn in_docker(files: &EngineFiles, rootfs: &Path, id: &str) -> EngineIdentity {
    #[derive(Deserialize)]
    struct Config {
        #[serde(rename = "Name")]
        name: Option<String>,
        #[serde(rename = "Config")]
        config: Option<ImageSection>,
    }
    #[derive(Deserialize)]
    struct ImageSection {
        #[serde(rename = "Image")]
        image: Option<String>,
    }
    let file = docker_dir(files, rootfs, id).map(|dir| dir.join("config.v2.json"));
    let Some(config) = file.and_then(|file| json::<Config>(&file)) else {
        return EngineIdentity::default();
    };
    let plain = |text: String| text.trim_start_matches('/').chars().take(LONGEST).collect();
    EngineIdentity {
        name: config.name.map(plain),
        image: config.config.and_then(|c| c.image).map(plain),
    }
}

/// `<data>/containers/<id>`: the directory of the engine's files of this container. One that shares another one's
/// network has that one's files, in a directory beside its own.
fn docker_dir(files: &EngineFiles, rootfs: &Path, id: &str) -> Option<PathBuf> {
    let files = [&files.resolv_conf, &files.hosts];
    let all = files.into_iter().flatten();
    let mut all = all.filter_map(|file| file.parent()?.parent());
    let all = all.find(|all| all.ends_with("containers"));
    match all {
        Some(all) => Some(all.join(id)),
        None => Some(docker_data(rootfs)?.join("containers").join(id)),
    }
}

/// The container's TCP ports that Docker publishes, and the node's ports for them if its file has them: only to report
/// that they lead nowhere. Other engines keep theirs where no path of the bundle leads.
pub fn published(files: &EngineFiles, rootfs: &Path, id: &str) -> BTreeMap<u16, BTreeSet<u16>> {
    let dir = docker_dir(files, rootfs, id);
    dir.map_or_else(BTreeMap::new, |dir| published_in(&dir))
}

fn published_in(dir: &Path) -> BTreeMap<u16, BTreeSet<u16>> {
    #[derive(Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    #[derive(Default)]
    struct HostConfig {
        port_bindings: Option<BTreeMap<String, Option<Vec<Binding>>>>,
        publish_all_ports: bool,
    }
    #[derive(Deserialize)]
    struct Binding {
        #[serde(rename = "HostPort", default)]
        port: String,
    }
    #[derive(Deserialize)]
    struct Config {
        #[serde(rename = "Config")]
        config: PortsSection,
    }
    #[derive(Deserialize)]
    struct PortsSection {
        #[serde(rename = "ExposedPorts")]
        exposed: Option<BTreeMap<String, serde_json::Value>>,
    }
    let tcp = |key: &str| key.strip_suffix("/tcp")?.parse::<u16>().ok();
    let Some(host) = json::<HostConfig>(&dir.join("hostconfig.json")) else {
        return BTreeMap::new();
    };
    let mut all = BTreeMap::new();
    for (key, bindings) in host.port_bindings.into_iter().flatten() {
        let Some(port) = tcp(&key) else { continue };
        let outside = bindings.into_iter().flatten();
        let outside = outside.filter_map(|binding| binding.port.parse::<u16>().ok());
        all.entry(port)
            .or_insert_with(BTreeSet::new)
            .extend(outside);
    }
    if host.publish_all_ports
        && let Some(config) = json::<Config>(&dir.join("config.v2.json"))
    {
        let exposed = config.config.exposed.unwrap_or_default();
        for port in exposed.keys().filter_map(|key| tcp(key)) {
            all.entry(port).or_default();
        }
    }
    all
}

fn podman(record: &Record) -> EngineIdentity {
    let store = record.bundle.parent().and_then(Path::parent);
    store.map_or_else(EngineIdentity::default, |store| listed(store, &record.id))
}

/// podman lists a store's containers beside their bundles, `<store>/overlay-containers/<id>/userdata`; from 4.6 on,
/// those of `--rm` are in a separate list.
fn listed(store: &Path, id: &str) -> EngineIdentity {
    #[derive(Deserialize)]
    struct Entry {
        id: String,
        #[serde(default)]
        names: Vec<String>,
        #[serde(default)]
        metadata: String,
    }
    #[derive(Deserialize)]
    struct Metadata {
        #[serde(rename = "image-name")]
        image: Option<String>,
    }
    let lists = PODMAN_LISTS
        .into_iter()
        .filter_map(|list| json::<Vec<Entry>>(&store.join(list)));
    let own = lists.flatten().find(|entry| entry.id == id);
    own.map_or_else(EngineIdentity::default, |entry| EngineIdentity {
        name: entry.names.into_iter().next(),
        image: serde_json::from_str::<Metadata>(&entry.metadata)
            .ok()
            .and_then(|metadata| metadata.image),
    })
}

/// Parses an engine's file, if it is valid.
fn json<T: serde::de::DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&read_file(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::TestDir;

    /// NEWCOMER 1.5: nothing told the user that a published port leads nowhere.
    #[test]
    fn dockers_files_say_which_ports_are_published() {
        let dir = TestDir::new("docker-ports");
        let write = |name: &str, value: serde_json::Value| {
            std::fs::write(dir.0.join(name), value.to_string()).unwrap();
        };
        assert_eq!(published_in(&dir.0), BTreeMap::new());
        write(
            "hostconfig.json",
            serde_json::json!({
                "PublishAllPorts": false,
                "PortBindings": {
                    "8000/tcp": [{"HostIp": "", "HostPort": "8088"}, {"HostIp": "::", "HostPort": "8089"}],
                    "53/udp": [{"HostIp": "", "HostPort": "53"}],
                    "9000/tcp": [{"HostIp": "", "HostPort": ""}],
                    "9/tcp": null,
                },
            }),
        );
        let bound: BTreeMap<u16, BTreeSet<u16>> = [
            (8000, [8088, 8089].into()),
            (9000, [].into()),
            (9, [].into()),
        ]
        .into();
        assert_eq!(published_in(&dir.0), bound);
        write(
            "hostconfig.json",
            serde_json::json!({"PublishAllPorts": true, "PortBindings": null}),
        );
        write(
            "config.v2.json",
            serde_json::json!({"Config": {"ExposedPorts": {"80/tcp": {}}}}),
        );
        assert_eq!(published_in(&dir.0), [(80, [].into())].into());
    }

    #[test]
    fn podman_lists_what_it_removes_at_the_end_by_itself() {
        let store = TestDir::new("podman-store");
        let write = |list: &str, id: &str, name: &str| {
            let entry = serde_json::json!([{"id": id, "names": [name], "metadata": "{\"image-name\": \"i\"}"}]);
            std::fs::write(store.0.join(list), entry.to_string()).unwrap();
        };
        write("volatile-containers.json", "b", "gone-soon");
        assert_eq!(listed(&store.0, "b").name.as_deref(), Some("gone-soon"));
        write("containers.json", "a", "stays");
        assert_eq!(listed(&store.0, "a").name.as_deref(), Some("stays"));
        assert_eq!(listed(&store.0, "b").image.as_deref(), Some("i"));
        assert_eq!(listed(&store.0, "c").name, None);
    }
}
