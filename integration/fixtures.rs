//! What the tests of the pure core share: config.json files that real engines wrote, facts about a host that is not
//! this one, and policies resolved without a node's file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use agentbox::plan::wrapped::Wrapped;
use agentbox::plan::{BundleFacts, FileKind, HostFacts, Plan, PlanError, SourceFacts, plan};
use agentbox::policy::{Asker, NodeConfig, PolicyError, Resolved, Selection, Sources, resolve};
use agentbox::render::spec::{self as shadow, Places};
use oci_spec::runtime::{Mount, Process, Spec};

/// The built-in policies.
pub const POLICIES: [&str; 3] = ["strict", "standard", "permissive"];

/// A file below `integration/`.
pub fn path(relative: &str) -> PathBuf {
    // The crate of fuzz/ includes this file too.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let project = here.ancestors().find(|d| d.join("integration").is_dir());
    project.unwrap().join("integration").join(relative)
}

/// Text of each fixture whose name ends in `suffix`, by the name without it.
fn texts(suffix: &str) -> BTreeMap<String, String> {
    let directory = std::fs::read_dir(path("fixtures/bundles")).unwrap();
    let files = directory.map(|entry| entry.unwrap().path());
    let named = files.filter_map(|file| {
        let name = file.file_name()?.to_str()?.strip_suffix(suffix)?.to_owned();
        Some((name, std::fs::read_to_string(file).unwrap()))
    });
    named.collect()
}

/// Every config.json, as the runtime sees it when it begins to plan.
pub fn bundles() -> BTreeMap<String, Spec> {
    let texts = texts(".json");
    let configs = texts.iter().filter(|(name, _)| !name.ends_with(".process"));
    let specs: BTreeMap<String, Spec> = configs
        .map(|(name, text)| {
            let mut spec: Spec = serde_json::from_str(text).unwrap();
            shadow::normalise(&mut spec);
            (name.clone(), spec)
        })
        .collect();
    assert!(specs.len() > 40, "the fixtures are gone: {}", specs.len());
    specs
}

/// One of them.
pub fn bundle(name: &str) -> Spec {
    bundles().remove(name).unwrap()
}

/// Likewise, parsed once: for what is run thousands of times.
pub fn bundle_named(name: &'static str) -> Spec {
    static PARSED: Mutex<BTreeMap<&str, Spec>> = Mutex::new(BTreeMap::new());
    let mut parsed = PARSED.lock().unwrap();
    parsed.entry(name).or_insert_with(|| bundle(name)).clone()
}

/// Every process.json that an engine gave to `exec`.
pub fn processes() -> BTreeMap<String, Process> {
    let texts = texts(".process.json");
    assert!(!texts.is_empty());
    let parse = |(name, text): (String, String)| (name, serde_json::from_str(&text).unwrap());
    texts.into_iter().map(parse).collect()
}

/// A host with everything that agentbox needs.
pub fn host(release: &str, version: (u32, u32), landlock_abi: u32) -> HostFacts {
    HostFacts {
        release: release.to_owned(),
        version,
        landlock_abi,
        seccomp: true,
        overlayfs: true,
        controllers: ["cpu", "memory", "pids"].map(str::to_owned).into(),
        memory_bytes: 16 << 30,
        processors: 8,
        core_socket: false,
        no_disk: None,
    }
}

/// The newest kernel of the golden files.
pub fn newest() -> HostFacts {
    host("6.18.0", (6, 18), 7)
}

/// Annotations of a spec.
pub fn annotations(spec: &Spec) -> BTreeMap<String, String> {
    let all = spec.annotations().iter().flatten();
    all.map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// What applies to a container with these annotations, on a node without files.
pub fn select(
    flag: Option<&str>,
    annotations: &BTreeMap<String, String>,
) -> Result<Selection, PolicyError> {
    resolve(&Sources {
        annotations,
        flag,
        node: &NodeConfig::default(),
        files: &BTreeMap::new(),
        presets: &BTreeMap::new(),
        known_syscall: agentbox::seccomp::is_known,
        asker: Asker::Container,
    })
}

/// A built-in policy, with fields changed by `dev.agentbox.*` annotations.
pub fn policy(name: &str, fields: &[(&str, &str)]) -> Resolved {
    let change = |(field, value): &(&str, &str)| (format!("dev.agentbox.{field}"), (*value).into());
    let annotations: BTreeMap<String, String> = fields.iter().map(change).collect();
    let mut annotations = annotations;
    annotations.insert("dev.agentbox.policy".to_owned(), name.to_owned());
    match select(None, &annotations).unwrap() {
        Selection::Policy(resolved) => *resolved,
        other => panic!("{other:?}"),
    }
}

/// The plan on the newest kernel.
pub fn planned(resolved: &Resolved, spec: &Spec) -> Result<Plan, PlanError> {
    plan(resolved, spec, &facts(spec), &newest())
}

/// Places on a host that is not this one.
pub fn places() -> Places {
    Places {
        rootfs: "/rootfs".into(),
    }
}

/// What a probe could have found, made up from the spec alone: names say what files are.
pub fn facts(spec: &Spec) -> BundleFacts {
    let mounts = spec.mounts().iter().flatten();
    #[allow(deprecated)] // Docker 20.10 to 27 use prestart.
    let prestart = spec.hooks().as_ref().and_then(|h| h.prestart().clone());
    let setkey = prestart.into_iter().flatten().filter(|hook| {
        let first = hook.args().iter().flatten().next();
        first.is_some_and(|argument| argument == "libnetwork-setkey")
    });
    let linux = spec.linux().iter();
    let devices = linux.filter_map(|l| l.devices().as_ref()).flatten();
    BundleFacts {
        sources: mounts.map(source).collect(),
        destinations: Vec::new(),
        home: home(spec),
        wrapped: Wrapped::default(),
        devices: devices.map(|device| device.path().clone()).collect(),
        engine_hooks: setkey.map(|hook| hook.path().clone()).collect(),
        bundle: bundle_of(spec),
        rootfs: PathBuf::from("/rootfs"),
        cri: annotations(spec)
            .keys()
            .any(|key| key.starts_with("io.kubernetes.cri.")),
        neighbours: BTreeMap::new(),
    }
}

/// A directory called by the id of whoever has the shared memory: the container itself, as recorded.
fn bundle_of(spec: &Spec) -> PathBuf {
    let mounts = spec.mounts().iter().flatten();
    let memory = mounts.filter(|m| m.destination() == Path::new("/dev/shm"));
    let sources = memory.filter_map(|m| m.source().as_ref());
    let id = sources.flatten().find(|part| part.len() == 64);
    Path::new("/run/bundles").join(id.unwrap_or_default())
}

fn source(mount: &Mount) -> Option<SourceFacts> {
    agentbox::probe::is_bind(mount).then(|| {
        let path = mount.source().clone().unwrap_or_default();
        let (inode, kind) = (inode(&path), kind(&path));
        SourceFacts {
            trusted: true,
            tmpfs: true,
            ..SourceFacts::plain(path, 2049, inode, kind)
        }
    })
}

/// HOME, else what the image's passwd file would say.
fn home(spec: &Spec) -> Option<PathBuf> {
    let process = spec.process().as_ref()?;
    let mut environment = process.env().iter().flatten();
    let given = environment.find_map(|variable| variable.strip_prefix("HOME="));
    let image = if process.user().uid() == 0 {
        "/root"
    } else {
        "/home/user"
    };
    Some(PathBuf::from(given.unwrap_or(image)))
}

/// FNV-1a of the path, cut to what a file system would give. An engine's ID, of 64 digits, does not count: files of the
/// same use have the same number in all bundles, and golden files are the shorter for it.
fn inode(path: &Path) -> u64 {
    let names = path.iter().map(std::ffi::OsStr::as_encoded_bytes);
    let is_id = |name: &[u8]| name.len() == 64 && name.iter().all(u8::is_ascii_hexdigit);
    let bytes = names.filter(|name| !is_id(name)).flatten();
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash >> 32
}

fn kind(path: &Path) -> FileKind {
    const FILES: &[&str] = &[
        "resolv.conf",
        "hosts",
        "etc-hosts",
        "hostname",
        ".containerenv",
        "docker-init",
    ];
    let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
    let is_termination_log = name.len() == 8 && name.bytes().all(|b| b.is_ascii_hexdigit());
    if FILES.contains(&name) || is_termination_log {
        FileKind::File
    } else if name.ends_with(".sock") {
        FileKind::Socket
    } else {
        FileKind::Directory
    }
}
