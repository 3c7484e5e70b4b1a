//! Reads a container's name for people from its record, or from the engine's own files, found by the paths in the
//! bundle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::engines::layout::EngineFiles;
use crate::engines::layout::{NETAVARK_PORTS, PODMAN_LISTS, docker_data, is_of_podmans_store};
use crate::engines::root::engine;
use crate::policy::Tool;
use crate::policy::inbound::MOST_INBOUND;
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

/// The tool that started the container of this record.
pub fn tool(record: &Record) -> Tool {
    match record.call.wrap {
        true => Tool::Wrap,
        false => match engine(&record.root, &record.annotations).as_str() {
            // Its name tells whether it holds a pod's network.
            "podman" => of(record).tool(),
            other => Tool::of(Some(other)),
        },
    }
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
/// that they lead nowhere. containerd and CRI-O keep theirs where no path of the bundle leads.
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
        // No more can be opened, and the log has a line for each.
        if all.len() >= MOST_INBOUND && !all.contains_key(&port) {
            continue;
        }
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
        // An image may expose any number. Those that the caller names come first.
        for port in exposed.keys().filter_map(|key| tcp(key)) {
            if all.len() >= MOST_INBOUND {
                break;
            }
            all.entry(port).or_default();
        }
    }
    all
}

/// The TCP ports that podman publishes for the container with this bundle, and the node's ports for them. podman has
/// them in a database; from 1.9 on (podman 5) its program for networks, which runs before `create`, has a file for each
/// network of a container. Without root's rights the files are elsewhere.
pub fn published_by_podman(bundle: &Path) -> BTreeMap<u16, BTreeSet<u16>> {
    let id = bundle.parent().and_then(Path::file_name);
    let id = id.filter(|_| is_of_podmans_store(bundle));
    id.and_then(|id| id.to_str())
        .map(|id| forwarded(Path::new(NETAVARK_PORTS), id))
        .unwrap_or_default()
}

/// The ports that netavark forwards to a container: a file `NETWORK_CONTAINER` for each network.
fn forwarded(dir: &Path, id: &str) -> BTreeMap<u16, BTreeSet<u16>> {
    #[derive(Deserialize)]
    struct Forwarding {
        port_mappings: Option<Vec<Mapping>>,
    }
    #[derive(Deserialize)]
    struct Mapping {
        container_port: u16,
        host_port: u16,
        protocol: String,
        range: u16,
    }
    let mut all: BTreeMap<u16, BTreeSet<u16>> = BTreeMap::new();
    let files = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let own = files.filter(|file| {
        let name = file.file_name();
        name.to_str()
            .and_then(|name| name.rsplit_once('_'))
            .is_some_and(|(_, of)| of == id)
    });
    let mappings = own
        .filter_map(|file| json::<Forwarding>(&file.path())?.port_mappings)
        .flatten()
        .filter(|mapping| mapping.protocol == "tcp");
    for mapping in mappings {
        let inside = mapping.container_port..=u16::MAX;
        let ports = inside.zip(mapping.host_port..=u16::MAX);
        for (inside, outside) in ports.take(usize::from(mapping.range.max(1))) {
            if all.len() < MOST_INBOUND || all.contains_key(&inside) {
                all.entry(inside).or_default().insert(outside);
            }
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

    #[test]
    fn netavarks_files_say_which_ports_podman_publishes() {
        let dir = TestDir::new("podman-ports");
        let write = |name: &str, mappings: serde_json::Value| {
            let text = serde_json::json!({"container_id": "x", "port_mappings": mappings});
            std::fs::write(dir.0.join(name), text.to_string()).unwrap();
        };
        let mapping = |inside: u16, outside: u16, protocol: &str, range: u16| {
            serde_json::json!({"container_port": inside, "host_ip": "", "host_port": outside,
                "protocol": protocol, "range": range})
        };
        assert_eq!(forwarded(&dir.0.join("none"), "aa"), BTreeMap::new());
        write(
            "n1_aa",
            serde_json::json!([mapping(8000, 28000, "tcp", 2), mapping(53, 53, "udp", 1)]),
        );
        write("n2_aa", serde_json::json!([mapping(8000, 28000, "tcp", 1)]));
        write("n1_bb", serde_json::json!([mapping(90, 90, "tcp", 1)]));
        write("n1_cc", serde_json::Value::Null);
        write(
            "n1_dd",
            serde_json::json!([mapping(65000, 1, "tcp", 65535)]),
        );
        let both = [(8000, [28000].into()), (8001, [28001].into())].into();
        assert_eq!(forwarded(&dir.0, "aa"), both);
        assert_eq!(forwarded(&dir.0, "cc"), BTreeMap::new());
        assert_eq!(forwarded(&dir.0, "dd").len(), MOST_INBOUND);
        // Not a bundle of podman's store.
        assert_eq!(
            published_by_podman(Path::new("/run/bundle")),
            BTreeMap::new()
        );
    }

    /// Former fault: nothing told the user that a published port leads nowhere.
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
        let many: serde_json::Map<String, serde_json::Value> = (1..=1000)
            .map(|port| (format!("{port}/tcp"), serde_json::json!({})))
            .collect();
        write(
            "config.v2.json",
            serde_json::json!({"Config": {"ExposedPorts": many}}),
        );
        assert_eq!(published_in(&dir.0).len(), MOST_INBOUND);
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
