//! Decides what is enforced for a bundle, before anything is made.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use oci_spec::runtime::{LinuxNamespaceType, LinuxSeccomp, Spec};

use crate::cli::GlobalOptions;
use crate::engines::annotation::is_cri_dockerds;
use crate::engines::layout::EngineFiles;
use crate::engines::root::engine;
use crate::plan::idmap::IdmapContext;
use crate::plan::names::names_file;
use crate::plan::reach::{self, NetSettings};
use crate::plan::volumes::secret_volumes;
use crate::plan::wrap_plan::WrapPlan;
use crate::plan::{self, BundleFacts, DecidedPlan, HostFacts, Plan, Warning};
use crate::policy::{NodeConfig, ResolvedPolicy, Selection, Sources, Tool, WrapOptions, resolve};
use crate::probe::{self, HeldSource, Image};
use crate::render::refuse;
use crate::render::spec as shadow;
use crate::runtime::create::neighbours::{self, JoinedNamespace};
use crate::runtime::error::RuntimeError;
use crate::runtime::filter::{self, FilterRequest as AskedFilter};
use crate::runtime::input::bundle::Bundle;
use crate::runtime::input::cri;
use crate::runtime::input::descriptors;
use crate::runtime::input::labels;
use crate::runtime::input::node_files::{self, NodeFiles};
use crate::runtime::network::engine_networks;
use crate::runtime::network::reading::{self, RequestSetup, SecretSources, UserSecretReader};
use crate::runtime::state::identity;
use crate::seccomp::{NotifyListener, SyscallFilter};

/// The decision about a bundle, shared by `create` and `explain --bundle`. Nothing has been made for it.
pub struct BundleDecision {
    /// The bundle.
    pub bundle: Bundle,
    /// What is enforced, and by which policy; `None` under `unconfined`.
    pub decided: Option<DecidedPlan>,
    /// Who chose it.
    pub chosen_by: String,
    /// The syscall wall.
    pub filter: Option<SyscallFilter>,
    /// The sources of the bind mounts, as they were checked.
    pub sources: Vec<HeldSource>,
    /// What lies below the image, if a private mount has its files.
    pub image: Option<Image>,
    /// The namespaces that the container joins, as they were checked.
    pub joined: Vec<JoinedNamespace>,
    /// Where the engine keeps its files with names.
    pub engine_files: EngineFiles,
    /// What the reader of requests and the container's programs get for request rules.
    pub given: RequestSetup,
    /// Whether the bundle is `wrap`'s, which always has mounts of its own.
    pub wrapped: bool,
    /// The options of the user who runs `wrap`.
    pub asked: WrapOptions,
}

impl BundleDecision {
    /// Whether the init process gets a terminal.
    pub fn has_terminal(&self) -> bool {
        let process = self.bundle.spec.process().as_ref();
        process.and_then(|p| p.terminal()).unwrap_or(false)
    }

    /// What is enforced; `None` under `unconfined`.
    pub fn plan(&self) -> Option<&Plan> {
        self.decided.as_ref().map(|decided| &decided.plan)
    }

    /// How many layers of its image the init process gets.
    pub(super) fn layers(&self) -> usize {
        self.image.as_ref().map_or(0, |image| image.layers.len())
    }

    /// Who answers the filter's notify rules.
    pub(super) fn listener(&self) -> NotifyListener {
        let filter = self.filter.as_ref();
        filter.map_or(NotifyListener::Nobody, |filter| filter.listener)
    }
}

/// What `wrap` adds to a bundle.
#[derive(Clone, Copy)]
pub struct WrapParts<'a> {
    /// Its own mounts, and the user's requests.
    pub plan: &'a WrapPlan,
    /// Reads the user's secrets.
    pub secrets: UserSecretReader<'a>,
}

impl<'a> WrapParts<'a> {
    /// Without values of the user's secrets: nothing is started, or there are none.
    pub fn without_secrets(plan: &'a WrapPlan) -> Self {
        Self {
            plan,
            secrets: &reading::no_user_secrets,
        }
    }
}

/// Reads a bundle and decides what is enforced for it. Makes nothing. `handed_file` is a descriptor of the caller's that leads to a file of the node.
pub fn decide(
    global: &GlobalOptions,
    dir: &Path,
    parts: WrapParts<'_>,
    handed_file: Option<i32>,
) -> Result<BundleDecision, RuntimeError> {
    let wrapped = parts.plan;
    let mut bundle = Bundle::read(dir)?;
    refuse::spec(&bundle.spec)?;
    if let Some(process) = bundle.spec.process() {
        labels::check(process)?;
    }
    shadow::normalise(&mut bundle.spec);
    let annotations: BTreeMap<String, String> = bundle
        .spec
        .annotations()
        .iter()
        .flatten()
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect();
    let files = NodeFiles::for_container(global)?;
    let sources = Sources {
        image: probe::annotations::of_image(&bundle.dir, &annotations),
        tool: match wrapped.is_empty() {
            true => Tool::of(Some(&engine(&global.root, &annotations))),
            false => Tool::Wrap,
        },
        ..files.sources(&annotations, global.policy.as_deref())
    };
    let made = match resolve(&sources.asked_by_wrap(&wrapped.requests))? {
        Selection::Unconfined { chosen_by } => BundleWalls {
            chosen_by: chosen_by.to_string(),
            ..without_policy(&bundle)?
        },
        Selection::Policy(resolved) => {
            let call = Call {
                global,
                bundle: &bundle,
                annotations: &annotations,
                node: &files.node,
            };
            under_policy(call, &resolved, parts, handed_file)?
        }
    };
    Ok(BundleDecision {
        bundle,
        decided: made.decided,
        chosen_by: made.chosen_by,
        filter: made.filter,
        sources: made.sources,
        image: made.image,
        joined: made.joined,
        engine_files: made.engine_files,
        given: made.given,
        wrapped: !wrapped.is_empty(),
        asked: wrapped.requests.clone(),
    })
}

/// The parts of a bundle's walls; without a policy only the filter.
#[derive(Default)]
struct BundleWalls {
    decided: Option<DecidedPlan>,
    chosen_by: String,
    filter: Option<SyscallFilter>,
    sources: Vec<HeldSource>,
    image: Option<Image>,
    joined: Vec<JoinedNamespace>,
    engine_files: EngineFiles,
    given: RequestSetup,
}

/// Which bundle is decided about, and for which caller.
#[derive(Clone, Copy)]
struct Call<'a> {
    global: &'a GlobalOptions,
    bundle: &'a Bundle,
    annotations: &'a BTreeMap<String, String>,
    node: &'a NodeConfig,
}

/// The engine's own filter.
fn engines_filter(spec: &Spec) -> Option<&LinuxSeccomp> {
    spec.linux().as_ref()?.seccomp().as_ref()
}

fn without_policy(bundle: &Bundle) -> Result<BundleWalls, RuntimeError> {
    let spec = &bundle.spec;
    reach::check(spec, net_settings(spec, inode))?;
    for mount in spec.mounts().iter().flatten() {
        let place = probe::destination(&bundle.rootfs, mount.destination());
        reach::check_mount(mount, &place)?;
    }
    Ok(BundleWalls {
        filter: filter::compile(None, engines_filter(spec))?,
        ..BundleWalls::default()
    })
}

fn under_policy(
    call: Call<'_>,
    resolved: &ResolvedPolicy,
    parts: WrapParts<'_>,
    handed_file: Option<i32>,
) -> Result<BundleWalls, RuntimeError> {
    let wrapped = parts.plan;
    let Call { global, bundle, .. } = call;
    let spec = &bundle.spec;
    reach::check(spec, NetSettings::Own)?;
    let of_node = node_files::places_of(global, call.node);
    let roots = (bundle.dir.as_path(), bundle.rootfs.as_path());
    descriptors::make_room(spec, wrapped.by)?;
    let (mut facts, mut sources) = probe::bundle(spec, roots, wrapped, &of_node)?;
    facts.handed_file = handed_file;
    facts.cri = cri::is_engines(&global.root, &bundle.dir);
    if facts.has_engines_volume() && may_be_cri_dockerds(call, &facts) {
        facts.count_no_volumes();
    }
    let joined;
    (joined, facts.neighbours) = neighbours::find(spec)?;
    let host = probe::host();
    let mut decided = planned(resolved, spec, &mut facts, &mut sources, &host)?;
    decided.plan.report.audit = plan::audit::report(resolved, spec, &facts, &host, &decided);
    let plan = &mut decided.plan;
    let unknown = engine_networks::unknown_crio(&global.root, call.annotations);
    plan.warnings.extend(unknown);
    let image = match wrapped.is_empty() {
        true => below(bundle, resolved, plan)?,
        false => None,
    };
    let engine_files = names(spec, &facts, plan);
    let published = published(call, &engine_files);
    plan.note_published(published);
    let volumes = secret_volumes(spec, &facts);
    let of_secrets = SecretSources {
        volumes: &volumes,
        user: parts.secrets,
    };
    let given = reading::read(node_files::config(global), &mut plan.network, of_secrets)?;
    let filter = filter::compile(Some(AskedFilter::of(plan, &host)), engines_filter(spec))?;
    Ok(BundleWalls {
        decided: Some(decided),
        chosen_by: resolved.chosen_by.to_string(),
        filter,
        sources,
        image,
        joined,
        engine_files,
        given,
    })
}

/// What lies below the image, if a private mount has its files.
fn below(
    bundle: &Bundle,
    resolved: &ResolvedPolicy,
    plan: &mut Plan,
) -> Result<Option<Image>, RuntimeError> {
    let files = &mut plan.filesystem;
    if !files.lies_over_image() {
        return Ok(None);
    }
    let found = probe::image(&bundle.rootfs, &bundle.spec);
    let found = found.map_err(RuntimeError::io("look below the image"))?;
    files.lie_over(&resolved.policy, found.below.clone())?;
    Ok(Some(found))
}

/// Plans again with what only a plan can ask for: which mounts can be mapped, and what lies in them.
fn planned(
    resolved: &ResolvedPolicy,
    spec: &Spec,
    facts: &mut BundleFacts,
    sources: &mut [HeldSource],
    host: &HostFacts,
) -> Result<DecidedPlan, RuntimeError> {
    let decided = plan::plan(resolved, spec, facts, host)?;
    let (files, rules) = (&decided.plan.filesystem, &decided.resolved.filesystem);
    let container = IdmapContext {
        policy: rules,
        spec,
        by: facts.wrapped.by,
        host,
    };
    let mut learned = probe::idmap::try_all(facts, sources, files, container);
    // Only mounts that are let in are searched: a search takes as long as the mount is large.
    learned |= probe::search(facts, sources, files, rules);
    match learned {
        true => Ok(plan::plan(resolved, spec, facts, host)?),
        false => Ok(decided),
    }
}

/// The ports that the engine publishes for this container.
fn published(call: Call<'_>, files: &EngineFiles) -> BTreeMap<u16, BTreeSet<u16>> {
    match docker_id(call) {
        Some(id) => identity::published(files, &call.bundle.rootfs, &id),
        None => identity::published_by_podman(&call.bundle.dir),
    }
}

/// Whether Docker made it for a pod, or does not tell.
fn may_be_cri_dockerds(call: Call<'_>, facts: &BundleFacts) -> bool {
    let file = |target| names_file(&call.bundle.spec, facts, target).ok().flatten();
    docker_id(call).is_some_and(|id| {
        let files = EngineFiles {
            resolv_conf: file("/etc/resolv.conf"),
            hosts: file("/etc/hosts"),
        };
        let told = identity::in_docker(&files, &call.bundle.rootfs, &id);
        told.name.is_none_or(|name| is_cri_dockerds(&name))
    })
}

/// The id of a container of Docker's, which names bundles by it.
fn docker_id(call: Call<'_>) -> Option<String> {
    let is_dockers = engine(&call.global.root, call.annotations) == "docker";
    let id = call.bundle.dir.file_name().filter(|_| is_dockers)?;
    Some(id.to_string_lossy().into_owned())
}

/// The engine's files with names. Files that the caller mounts over them are not read.
fn names(spec: &Spec, facts: &BundleFacts, plan: &mut Plan) -> EngineFiles {
    let mut of = |target: &str| {
        names_file(spec, facts, target).unwrap_or_else(|path| {
            plan.warnings.push(Warning::NamesNotTaken {
                source: path,
                place: target.into(),
            });
            None
        })
    };
    EngineFiles {
        resolv_conf: of("/etc/resolv.conf"),
        hosts: of("/etc/hosts"),
    }
}

/// Whose `net.*` settings the spec has. Without a network namespace, or with a path to the runtime's own, they are the
/// host's.
fn net_settings(spec: &Spec, identity: impl Fn(&Path) -> Option<(u64, u64)>) -> NetSettings {
    let namespaces = spec.linux().as_ref().and_then(|l| l.namespaces().as_ref());
    let mut all = namespaces.into_iter().flatten();
    let Some(namespace) = all.find(|n| n.typ() == LinuxNamespaceType::Network) else {
        return NetSettings::Host;
    };
    match namespace.path().as_deref() {
        Some(path) if identity(path) == identity(Path::new("/proc/self/ns/net")) => {
            NetSettings::Host
        }
        Some(_) | None => NetSettings::Own,
    }
}

/// The device and inode of a file; `None` if it cannot be inspected.
fn inode(path: &Path) -> Option<(u64, u64)> {
    let stat = fs::metadata(path).ok();
    stat.map(|s| (s.dev(), s.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_settings_are_the_hosts_without_a_network_namespace_of_its_own() {
        let of = |namespaces: serde_json::Value| {
            let spec = serde_json::json!({
                "ociVersion": "1.2.0",
                "linux": {"namespaces": namespaces},
            });
            let spec: Spec = serde_json::from_value(spec).unwrap();
            net_settings(&spec, |path| match path.to_str()? {
                "/proc/self/ns/net" | "/proc/1/ns/net" => Some((4, 1)),
                "/run/netns/other" => Some((4, 2)),
                "/run/netns/same-number" => Some((5, 1)),
                _ => None,
            })
        };
        let host = NetSettings::Host;
        assert_eq!(of(serde_json::json!([{"type": "pid"}])), host);
        let joined = |path: &str| of(serde_json::json!([{"type": "network", "path": path}]));
        assert_eq!(joined("/proc/1/ns/net"), host);
        let own = NetSettings::Own;
        assert_eq!(of(serde_json::json!([{"type": "network"}])), own);
        for path in ["/run/netns/other", "/run/netns/same-number", "/gone"] {
            assert_eq!(joined(path), own, "{path}");
        }
    }
}
