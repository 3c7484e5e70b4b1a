//! From annotations, `--policy`, files and defaults to one policy, each field with its origin, within every ceiling.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::annotation::{self, Request};
use super::ceiling::loosens;
use super::fields::{Fields, Origins, Unfinished};
use super::file::{Library, Loaded};
use super::list::ListPlace;
use super::preset::Presets;
use super::{
    AnnotationLeave, Capability, CpuLimit, Exceeded, Field, GuestPath, Limits, MemoryLimit,
    NetworkLimit, NetworkPrefix, NodeAllow, NodeConfig, OnUnknown, OverLimit, POLICY_KEY, Policy,
    PolicyChoice, PolicyError, PolicyName, ProcessLimit, UNCONFINED, Upstream, WORKSPACE_KEY,
    builtin, capability, exceeds, narrow, network,
};

/// All that has a say in a container's policy.
#[derive(Debug, Clone, Copy)]
pub struct Sources<'a> {
    /// The container's annotations, those of others too.
    pub annotations: &'a BTreeMap<String, String>,
    /// `--policy NAME`.
    pub flag: Option<&'a str>,
    /// The node's file.
    pub node: &'a NodeConfig,
    /// The node's policy files, name (without `.toml`) -> text. One replaces the built-in policy of its name.
    pub files: &'a BTreeMap<String, String>,
    /// The node's presets, name (without `.toml`) -> text. One replaces the built-in preset of its name.
    pub presets: &'a BTreeMap<String, String>,
    /// Whether there is a system call of this name.
    pub known_syscall: fn(&str) -> bool,
    /// Who asks for what the annotations say.
    pub asker: Asker,
}

/// Who asks for fields of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asker {
    /// A container's annotations: they need leave to loosen.
    Container,
    /// Root on the node, by `update`: the ceilings alone limit that.
    Operator,
}

/// What applies to a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Selection {
    /// No walls: the spec as the engine wrote it.
    Unconfined {
        /// Who chose that.
        chosen_by: Origin,
    },
    /// These walls.
    Policy(Box<Resolved>),
}

/// A policy, and how it came about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Resolved {
    /// What is asked for.
    pub policy: Policy,
    /// What its file says of it.
    pub description: Option<String>,
    /// Which mount is the workspace, where an annotation says so.
    pub workspace: Option<GuestPath>,
    /// Who chose the policy.
    pub chosen_by: Origin,
    /// Where the value of each field came from: all fields are here.
    pub origins: BTreeMap<Field, Origin>,
    /// What limited it.
    pub ceilings: Vec<Ceiling>,
    /// What each of those lets network.allow have, in the same order.
    pub network_limits: Vec<NetworkLimit>,
    /// What the ceilings say.
    #[serde(default)]
    pub limits: Vec<Policy>,
    /// What annotations may ask for beyond the policy that was chosen.
    pub leave: Leave,
    /// What else bounds the container besides `policy.limits`: of all, the smallest holds. They cannot always be compared
    /// without the node.
    #[serde(default)]
    pub bounds: Vec<Limits>,
    /// What this node allows beyond any policy.
    pub node_allow: NodeAllow,
    /// The proxy that this node reaches the internet through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<Upstream>,
    /// What this node calls the networks of its cluster.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub services: BTreeSet<NetworkPrefix>,
}

/// What annotations may ask for beyond the policy that was chosen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leave {
    /// All that is within the ceilings: somebody set one.
    UpToCeilings,
    /// These fields, up to the ceilings.
    Fields(BTreeSet<Field>),
}

impl Leave {
    fn has(&self, field: Field) -> bool {
        match self {
            Self::UpToCeilings => true,
            Self::Fields(fields) => fields.contains(&field),
        }
    }
}

/// A policy that limits another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Ceiling {
    /// Its name.
    pub policy: PolicyName,
    /// Who set it: the node's file (or its default), or `--policy`.
    pub set_by: Origin,
}

impl fmt::Display for Ceiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, set_by } = self;
        write!(f, "{policy} (set by {set_by})")
    }
}

/// Where something came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// The container's annotation of this key.
    Annotation(String),
    /// `--policy`.
    Flag,
    /// The node's file.
    Node,
    /// Nobody said anything.
    Default,
    /// A policy that is part of the program.
    Builtin(PolicyName),
    /// A policy file of the node.
    File(PolicyName),
    /// A ceiling, which is tighter than the policy that was chosen.
    Ceiling(PolicyName),
    /// `update`, while the container ran.
    Update,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Annotation(key) => write!(f, "annotation {key}"),
            Self::Flag => f.write_str("--policy"),
            Self::Node => f.write_str("the node's file"),
            Self::Default => f.write_str("the default"),
            Self::Builtin(name) => write!(f, "built-in policy {name}"),
            Self::File(name) => write!(f, "policy file {name}.toml"),
            Self::Ceiling(name) => write!(f, "the ceiling {name}"),
            Self::Update => f.write_str("agentbox update"),
        }
    }
}

/// Chooses a policy, changes the fields that annotations name, and refuses what exceeds a ceiling.
///
/// Reads only the policies that take part: the chosen one, the ceilings, and their bases.
pub fn resolve(sources: &Sources) -> Result<Selection, PolicyError> {
    let request = annotation::parse(sources.annotations)?;
    let flag: Option<PolicyChoice> = sources
        .flag
        .map(str::parse)
        .transpose()
        .map_err(|problem| PolicyError::Flag { problem })?;
    let (choice, chosen_by) = match &request.policy {
        Some(name) => (
            Some(PolicyChoice::Named(name.clone())),
            Origin::Annotation(POLICY_KEY.to_owned()),
        ),
        None => unasked(flag.clone(), sources.node),
    };
    let desk = Desk::new(sources);
    let name = match choice {
        Some(PolicyChoice::Unconfined) => return unconfined(request, chosen_by),
        Some(PolicyChoice::Named(name)) => Some(name),
        None => None,
    };
    let limits = desk.limits(flag.as_ref())?;
    let chosen = desk.choose(name.as_ref(), &chosen_by, &limits)?;
    let image = annotation::may_be_an_images(sources.annotations);
    if image && sources.asker == Asker::Container {
        desk.check_choice(&request, &chosen, flag, &limits)?;
    }
    desk.finish(request, chosen, limits, image)
        .map(|resolved| Selection::Policy(Box::new(resolved)))
}

/// What applies where no annotation names a policy.
fn unasked(flag: Option<PolicyChoice>, node: &NodeConfig) -> (Option<PolicyChoice>, Origin) {
    match (flag, node.default.clone()) {
        (Some(flag), _) => (Some(flag), Origin::Flag),
        (None, Some(default)) => (Some(default), Origin::Node),
        (None, None) => (None, Origin::Default),
    }
}

/// Without a policy there is nothing to change: an annotation that asks for a wall must not be ignored.
fn unconfined(request: Request, chosen_by: Origin) -> Result<Selection, PolicyError> {
    match request.change {
        Some(key) => Err(PolicyError::AnnotationWithoutPolicy { key, chosen_by }),
        None => Ok(Selection::Unconfined { chosen_by }),
    }
}

/// A ceiling with what it says.
struct Limit {
    ceiling: Ceiling,
    policy: Policy,
}

impl Limit {
    /// Whether an operator set it.
    fn is_set(&self) -> bool {
        self.ceiling.set_by != Origin::Default
    }
}

/// The policy that applies before any field of it is changed.
struct Chosen {
    loaded: Loaded,
    by: Origin,
}

/// What the steps share.
pub(super) struct Desk<'a> {
    sources: &'a Sources<'a>,
    pub library: Library<'a>,
}

impl<'a> Desk<'a> {
    pub fn new(sources: &'a Sources<'a>) -> Self {
        Self {
            sources,
            library: Library::new(sources.files, Presets::new(sources.presets)),
        }
    }
}

impl Desk<'_> {
    /// One policy as its files say it, if this node can have it at all.
    pub fn load(&self, name: &PolicyName, asked_by: &Origin) -> Result<Loaded, PolicyError> {
        let loaded = self.library.load(name, asked_by)?;
        self.check_names(&loaded.policy, &loaded.origins)?;
        Ok(loaded)
    }

    /// The node's ceiling first, then the call's.
    fn limits(&self, flag: Option<&PolicyChoice>) -> Result<Vec<Limit>, PolicyError> {
        let mut named = vec![match &self.sources.node.ceiling {
            Some(name) => (name.clone(), Origin::Node),
            None => (builtin_name(builtin::CEILING), Origin::Default),
        }];
        match flag {
            Some(PolicyChoice::Named(name)) => named.push((name.clone(), Origin::Flag)),
            // Whoever runs the call set it no limit of its own.
            Some(PolicyChoice::Unconfined) | None => {}
        }
        named
            .into_iter()
            .map(|(policy, set_by)| {
                Ok(Limit {
                    policy: self.load(&policy, &set_by)?.policy,
                    ceiling: Ceiling { policy, set_by },
                })
            })
            .collect()
    }

    /// The policy of this name, with the ceilings' denials; without a name `standard`, narrowed to the ceilings: what
    /// nobody asked for by name must not be refused, and a ceiling is never a policy for those who ask for less.
    fn choose(
        &self,
        name: Option<&PolicyName>,
        by: &Origin,
        limits: &[Limit],
    ) -> Result<Chosen, PolicyError> {
        type Narrow = fn(&mut Policy, &Policy) -> Vec<Field>;
        let (mut loaded, narrow): (Loaded, Narrow) = match name {
            Some(name) => (self.load(name, by)?, narrow::unite_denials),
            None => (
                self.load(&builtin_name(builtin::DEFAULT), &Origin::Default)?,
                narrow::meet,
            ),
        };
        for limit in limits {
            for field in narrow(&mut loaded.policy, &limit.policy) {
                let origin = Origin::Ceiling(limit.ceiling.policy.clone());
                loaded.origins.insert(field, origin);
            }
        }
        if *by == Origin::Node {
            check_default(&loaded, limits)?;
        }
        Ok(Chosen {
            loaded,
            by: by.clone(),
        })
    }

    /// What an image may have written chooses nothing wider than what applies without it.
    fn check_choice(
        &self,
        request: &Request,
        chosen: &Chosen,
        flag: Option<PolicyChoice>,
        limits: &[Limit],
    ) -> Result<(), PolicyError> {
        let leave = &self.sources.node.allow.annotations;
        let (without, by) = unasked(flag, self.sources.node);
        let without = match without {
            // Any walls are fewer rights than none.
            Some(PolicyChoice::Unconfined) => None,
            Some(PolicyChoice::Named(name)) => Some(self.choose(Some(&name), &by, limits)?),
            None => Some(self.choose(None, &by, limits)?),
        };
        let than = match &without {
            Some(without) => format!("policy {}", without.loaded.policy.name),
            None => UNCONFINED.to_owned(),
        };
        let refuse = |key: &str, asked: String, leave| PolicyError::ChosenByImage {
            key: key.to_owned(),
            than: than.clone(),
            chosen_by: by.clone(),
            asked,
            leave,
        };
        let asked = &chosen.loaded.policy;
        if let Some(without) = &without
            && request.policy.is_some()
            && !leave.contains(&AnnotationLeave::Policy)
        {
            let without = &without.loaded.policy;
            let mut wider = loosens(asked, without).into_iter().map(|more| more.field);
            // A place says which mount is written, so another place is another mount.
            let elsewhere = asked.filesystem.workspace_at != without.filesystem.workspace_at;
            let elsewhere = elsewhere.then_some(Field::FilesystemWorkspaceAt);
            if let Some(field) = wider.next().or(elsewhere) {
                let asked = format!("policy {} has more, such as {field}", asked.name);
                return Err(refuse(POLICY_KEY, asked, AnnotationLeave::Policy));
            }
        }
        if leave.contains(&AnnotationLeave::Workspace) {
            return Ok(());
        }
        let places = &request.fields.filesystem.workspace_at;
        match (&request.workspace, places) {
            (Some(path), _) => {
                let asked = format!("it makes {path} the mount that may be written");
                Err(refuse(WORKSPACE_KEY, asked, AnnotationLeave::Workspace))
            }
            (None, Some(_)) => {
                let key = annotation::key(Field::FilesystemWorkspaceAt);
                let asked = "it says which mount may be written".to_owned();
                Err(refuse(&key, asked, AnnotationLeave::Workspace))
            }
            (None, None) => Ok(()),
        }
    }

    /// Changes the fields that annotations name, and refuses values that exceed a ceiling or lack permission.
    fn finish(
        &self,
        request: Request,
        chosen: Chosen,
        limits: Vec<Limit>,
        image: bool,
    ) -> Result<Resolved, PolicyError> {
        if request.workspace.as_ref().is_some_and(GuestPath::is_root) {
            return Err(PolicyError::RootPath {
                origin: Origin::Annotation(WORKSPACE_KEY.to_owned()),
                field: "workspace".to_owned(),
            });
        }
        let Chosen { loaded, by } = chosen;
        let own = loaded.policy.clone();
        let description = loaded.description.clone();
        let workspace = request.workspace.clone();
        let mode_implied = request.mode_implied;
        let (policy, origins) = self.overlaid(request, loaded)?;
        self.check_names(&policy, &origins)?;
        let is_limited = image || !limits.iter().any(Limit::is_set);
        let leave = match is_limited {
            true => Leave::Fields(self.fields_with_leave(&own, image)),
            false => Leave::UpToCeilings,
        };
        if self.sources.asker == Asker::Container {
            let over = without_leave(&policy, &own, &origins, &leave, mode_implied);
            if !over.is_empty() {
                return Err(PolicyError::Loosened {
                    policy: own.name,
                    chosen_by: by,
                    over,
                    image,
                });
            }
        }
        check_ceilings(&policy, &origins, &limits)?;
        let mut bounds: Vec<Limits> = limits.iter().map(|limit| limit.policy.limits).collect();
        bounds.push(own_bounds(&own.limits, &leave));
        let network_limits = limits
            .iter()
            .map(|limit| NetworkLimit::of(limit.ceiling.to_string(), &limit.policy.network))
            .collect();
        Ok(Resolved {
            policy,
            description,
            workspace,
            chosen_by: by,
            origins,
            network_limits,
            limits: limits.iter().map(|limit| limit.policy.clone()).collect(),
            ceilings: limits.into_iter().map(|limit| limit.ceiling).collect(),
            leave,
            bounds,
            node_allow: self.sources.node.allow.clone(),
            upstream: self.sources.node.network.upstream(),
            services: self.sources.node.network.services.clone(),
        })
    }

    /// The policy with the annotations' fields in it.
    fn overlaid(&self, request: Request, loaded: Loaded) -> Result<(Policy, Origins), PolicyError> {
        let Request {
            policy: _,
            workspace: _,
            fields: mut asked,
            change: _,
            mode_implied,
        } = request;
        let Loaded {
            policy,
            description: _,
            mut origins,
        } = loaded;
        let mut allowed = asked.syscalls.allow.iter().flat_map(|list| &list.items);
        if let Some(name) = allowed.find(|name| policy.syscalls.deny.contains(name)) {
            return Err(PolicyError::AllowsDenied {
                key: annotation::key(Field::SyscallsAllow),
                name: name.clone(),
                denied_by: (origins.get(&Field::SyscallsDeny).cloned()).unwrap_or(Origin::Default),
            });
        }
        // Denials of a container come on top: naming one must not open what the policy closed.
        if let Some(deny) = &mut asked.syscalls.deny {
            deny.place = ListPlace::OnTop;
        }
        if let Some(deny) = &mut asked.network.deny {
            deny.place = ListPlace::OnTop;
        }
        let lists = asked
            .network
            .allow
            .as_ref()
            .is_some_and(|list| !list.items.is_empty());
        let implied_by = match lists {
            true => Field::NetworkAllow,
            false => Field::NetworkOnUnknown,
        };
        let name = policy.name.clone();
        let mut fields = Fields::from(policy);
        fields.overlay(asked, &mut origins, |field| match field {
            Field::NetworkMode if mode_implied => Origin::Annotation(annotation::key(implied_by)),
            other => Origin::Annotation(annotation::key(other)),
        });
        match self.library.complete(fields, name, &origins) {
            Ok(policy) => Ok((policy, origins)),
            Err(Unfinished::Preset(error)) => Err(error),
            Err(Unfinished::Missing(_)) => {
                unreachable!("the policy below the annotations is complete")
            }
        }
    }

    /// The fields in which annotations may ask for more than the policy that was chosen: the policy itself gives leave to
    /// those that are surely the caller's, the node's file to any.
    fn fields_with_leave(&self, own: &Policy, image: bool) -> BTreeSet<Field> {
        let node = self.sources.node.allow.annotations.iter();
        let node = node.filter_map(|leave| match leave {
            AnnotationLeave::Field(field) => Some(*field),
            AnnotationLeave::Policy | AnnotationLeave::Workspace => None,
        });
        let own = own.annotations.loosen.iter().copied().filter(|_| !image);
        node.chain(own).collect()
    }

    /// Checks that need more than one value: the table of system calls, and the node's permissions.
    fn check_names(&self, policy: &Policy, origins: &Origins) -> Result<(), PolicyError> {
        let origin = |field| origins.get(&field).cloned().unwrap_or(Origin::Default);
        for (field, names) in [
            (Field::SyscallsAllow, &policy.syscalls.allow),
            (Field::SyscallsDeny, &policy.syscalls.deny),
            (Field::SyscallsLimit, &policy.syscalls.limit),
        ] {
            for name in names {
                if !(self.sources.known_syscall)(name.as_str()) {
                    return Err(PolicyError::UnknownSyscall {
                        origin: origin(field),
                        field,
                        name: name.clone(),
                    });
                }
            }
        }
        if policy.filesystem.write.iter().any(GuestPath::is_root) {
            return Err(PolicyError::RootPath {
                origin: origin(Field::FilesystemWrite),
                field: Field::FilesystemWrite.to_string(),
            });
        }
        let presets = self.library.presets();
        let is_preset = |name: &str| {
            let name = name.parse().ok();
            name.is_some_and(|name| presets.names().is_ok_and(|all| all.contains(&name)))
        };
        network::check(&policy.network, &self.sources.node.allow, is_preset).map_err(
            |(field, rule, why)| PolicyError::RuleNotAllowed {
                origin: origin(field),
                field,
                rule,
                why,
            },
        )?;
        let asked = &policy.privileges.capabilities;
        let leave = &self.sources.node.allow.capabilities;
        let missing: Option<Capability> = capability::without_leave(asked, leave).next();
        match missing {
            Some(capability) => Err(PolicyError::CapabilityNotAllowed {
                origin: origin(Field::PrivilegesCapabilities),
                capability,
            }),
            None => Ok(()),
        }
    }
}

/// Where annotations ask for more than the policy that was chosen, and nobody gave them leave.
fn without_leave(
    policy: &Policy,
    own: &Policy,
    origins: &Origins,
    leave: &Leave,
    mode_implied: bool,
) -> Vec<OverLimit> {
    let mut over = with_origins(loosens(policy, own), origins);
    over.retain(|over| match over.exceeded.field {
        // Whoever may list hosts, or have them asked for, may have them reached.
        Field::NetworkMode if mode_implied => {
            let fields = [
                Field::NetworkMode,
                Field::NetworkAllow,
                Field::NetworkOnUnknown,
            ];
            !fields.into_iter().any(|field| leave.has(field))
        }
        field => !leave.has(field),
    });
    over
}

/// The bounds of the policy that was chosen, as far as annotations have no leave to loosen them.
fn own_bounds(own: &Limits, leave: &Leave) -> Limits {
    let Limits { pids, memory, cpus } = *own;
    let free = |field| leave.has(field);
    Limits {
        pids: if free(Field::LimitsPids) {
            ProcessLimit::Unlimited
        } else {
            pids
        },
        memory: if free(Field::LimitsMemory) {
            MemoryLimit::Unlimited
        } else {
            memory
        },
        cpus: if free(Field::LimitsCpus) {
            CpuLimit::Unlimited
        } else {
            cpus
        },
    }
}

fn builtin_name(name: &str) -> PolicyName {
    name.parse().expect("a built-in policy has a proper name")
}

/// No container's fault: the node's file names both.
fn check_default(loaded: &Loaded, limits: &[Limit]) -> Result<(), PolicyError> {
    for Limit { ceiling, policy } in limits {
        let over = over(&loaded.policy, policy, &loaded.origins);
        if !over.is_empty() {
            return Err(PolicyError::DefaultExceedsCeiling {
                policy: loaded.policy.name.clone(),
                ceiling: ceiling.policy.clone(),
                over,
            });
        }
    }
    Ok(())
}

fn check_ceilings(policy: &Policy, origins: &Origins, limits: &[Limit]) -> Result<(), PolicyError> {
    let asks = policy.network.on_unknown == OnUnknown::Ask;
    for limit in limits {
        let over = over(policy, &limit.policy, origins);
        if !over.is_empty() {
            return Err(PolicyError::ExceedsCeiling {
                policy: policy.name.clone(),
                ceiling: limit.ceiling.clone(),
                over,
            });
        }
        if asks && limit.policy.network.limit.is_empty() {
            return Err(PolicyError::NothingToApprove {
                ceiling: limit.ceiling.clone(),
            });
        }
    }
    Ok(())
}

fn over(asked: &Policy, ceiling: &Policy, origins: &Origins) -> Vec<OverLimit> {
    with_origins(exceeds(asked, ceiling), origins)
}

fn with_origins(exceeded: Vec<Exceeded>, origins: &Origins) -> Vec<OverLimit> {
    exceeded
        .into_iter()
        .map(|exceeded| OverLimit {
            origin: origins
                .get(&exceeded.field)
                .cloned()
                .unwrap_or(Origin::Default),
            exceeded,
        })
        .collect()
}
