//! Combines annotations, `--policy`, files and defaults into one policy within every ceiling, with each field's origin.

use std::collections::BTreeSet;

use super::annotation::{self, AnnotationRequest, Authors};
use super::check::{check_ceilings, check_default};
use super::fields::{Fields, FieldsError, Origins};
use super::file::{Library, LoadedPolicy};
use super::leave::{check_dropped_writes, own_bounds, with_users_hosts, without_leave};
use super::list::ListMode;
use super::preset::Presets;
use super::wrap_options::{Layer, PolicyPath};
use super::{
    Asker, AuditOutcome, Ceiling, Field, GuestPath, HoneyValue, Limits, Loosening, NodeConfig,
    NodeSecret, Origin, POLICY_KEY, Policy, PolicyChoice, PolicyError, PolicyName, ResolvedPolicy,
    Selection, Sources, Tool, WORKSPACE_KEY, builtin, narrow,
};
use crate::rules::NetworkLimit;

/// Chooses a policy, applies the fields that annotations set, and refuses values beyond a ceiling. Reads only the
/// policies involved: the chosen one, the ceilings, and their bases.
pub fn resolve(sources: &Sources) -> Result<Selection, PolicyError> {
    let mut selection = resolve_as(sources, None)?;
    if let Selection::Policy(resolved) = &mut selection
        && let Some(name) = resolved.policy.report.audit.name()
    {
        let name = name.clone();
        let by = resolved.origins.get(&Field::ReportAudit);
        // A missing or unreadable policy would report nothing, so it is an error.
        Resolver::new(sources).load(&name, by.unwrap_or(&Origin::Default))?;
        resolved.audited = Some(audited(sources, name));
    }
    Ok(selection)
}

/// The policy that would apply if the node's file chose this one and nothing else chose another.
fn audited(sources: &Sources, name: PolicyName) -> AuditOutcome {
    let outcome = match resolve_as(sources, Some(&name)) {
        Ok(Selection::Policy(resolved)) => Ok(resolved),
        Ok(Selection::Unconfined { .. }) => Err("it is not a policy".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    AuditOutcome { name, outcome }
}

fn resolve_as(sources: &Sources, audited: Option<&PolicyName>) -> Result<Selection, PolicyError> {
    let request = annotation::parse(sources.annotations)?;
    let flag: Option<PolicyChoice> = sources
        .flag
        .map(str::parse)
        .transpose()
        .map_err(|problem| PolicyError::Flag { problem })?;
    let (choice, chosen_by) = match (&request.policy, sources.asked.choice()?) {
        _ if audited.is_some() => (audited.cloned().map(PolicyChoice::Named), Origin::Node),
        (Some(name), _) => (
            Some(PolicyChoice::Named(name.clone())),
            Origin::Annotation(POLICY_KEY.to_owned()),
        ),
        (None, Some(choice)) => (Some(choice), sources.asked.policy_by()),
        (None, None) => unasked(flag.clone(), sources.node),
    };
    let resolver = Resolver::new(sources);
    let file = sources.asked.file()?.filter(|_| audited.is_none());
    let name = match choice {
        _ if file.is_some() => None,
        Some(PolicyChoice::Unconfined) => return unconfined(request, chosen_by),
        Some(PolicyChoice::Named(name)) => Some(name),
        None => None,
    };
    let limits = resolver.limits(flag.as_ref())?;
    let secrets = resolver.secrets()?;
    let honey = resolver.honey()?;
    let of_node = file.is_none();
    let chosen = match file {
        Some(file) => resolver.choose_file(&file, &limits)?,
        None => resolver.choose(name.as_ref(), &chosen_by, &limits)?,
    };
    let authors = Authors::of(sources.annotations, sources.image);
    let by_image = authors == Authors::PerhapsImage && audited.is_none();
    if by_image && sources.asker == Asker::Container {
        resolver.check_choice(&request, &chosen, flag, &limits)?;
    }
    let mut resolved = resolver.finish(request.written_by(authors), chosen, limits, authors)?;
    // A user's own file is not the node's policy, whatever its name.
    let name = resolved.policy.name.clone();
    let is_for = |policies: &BTreeSet<PolicyName>| of_node && policies.contains(&name);
    let of_user = sources.asked.own_secrets(&resolved.policy);
    let secrets = secrets.filter(|secret| is_for(&secret.policies));
    resolved.secrets = secrets.chain(of_user).cloned().collect();
    let honey = honey.filter(|honey| is_for(&honey.policies));
    resolved.honey = honey.cloned().collect();
    Ok(Selection::Policy(Box::new(resolved)))
}

/// The policy that applies if no annotation names one.
pub(super) fn unasked(
    flag: Option<PolicyChoice>,
    node: &NodeConfig,
) -> (Option<PolicyChoice>, Origin) {
    match (flag, node.default.clone()) {
        (Some(flag), _) => (Some(flag), Origin::Flag),
        (None, Some(default)) => (Some(default), Origin::Node),
        (None, None) => (None, Origin::Default),
    }
}

/// Without a policy, an annotation that changes a field is an error: a requested wall must not be ignored.
fn unconfined(request: AnnotationRequest, chosen_by: Origin) -> Result<Selection, PolicyError> {
    match request.change {
        Some(key) => Err(PolicyError::AnnotationWithoutPolicy { key, chosen_by }),
        None => Ok(Selection::Unconfined { chosen_by }),
    }
}

/// A ceiling with its policy.
pub(super) struct CeilingPolicy {
    pub ceiling: Ceiling,
    pub policy: Policy,
}

impl CeilingPolicy {
    /// Whether an operator set it.
    fn is_set(&self) -> bool {
        self.ceiling.set_by != Origin::Default
    }
}

/// The chosen policy, before any field is changed.
pub(super) struct ChosenPolicy {
    pub loaded: LoadedPolicy,
    pub by: Origin,
}

/// State shared by the steps of resolving a policy.
pub(super) struct Resolver<'a> {
    pub sources: &'a Sources<'a>,
    pub library: Library<'a>,
}

impl<'a> Resolver<'a> {
    pub fn new(sources: &'a Sources<'a>) -> Self {
        Self {
            sources,
            library: Library::new(sources.files, Presets::new(sources.presets, sources.tool)),
        }
    }
}

impl Resolver<'_> {
    /// One policy as its files define it, if this node can use it.
    pub fn load(&self, name: &PolicyName, asked_by: &Origin) -> Result<LoadedPolicy, PolicyError> {
        let loaded = self.library.load(name, asked_by)?;
        self.check_names(&loaded.policy, &loaded.origins)?;
        Ok(loaded)
    }

    /// The node's ceiling first, then the one of `--policy`, of which `unconfined` is none.
    fn limits(&self, flag: Option<&PolicyChoice>) -> Result<Vec<CeilingPolicy>, PolicyError> {
        let mut named = vec![match &self.sources.node.ceiling {
            Some(name) => (name.clone(), Origin::Node),
            None => (builtin_name(builtin::CEILING), Origin::Default),
        }];
        if let Some(PolicyChoice::Named(name)) = flag {
            named.push((name.clone(), Origin::Flag));
        }
        named
            .into_iter()
            .map(|(policy, set_by)| {
                let loaded = self.load(&policy, &set_by)?.policy;
                let ceiling = Ceiling { policy, set_by };
                Ok(CeilingPolicy {
                    policy: with_users_hosts(loaded, &ceiling, self.sources.asked),
                    ceiling,
                })
            })
            .collect()
    }

    /// The policy of this name, with the ceilings' denials and limits. Without a name: `standard`, narrowed to the
    /// ceilings. A default must not be refused, and a ceiling is no policy for a container that requests less.
    pub fn choose(
        &self,
        name: Option<&PolicyName>,
        by: &Origin,
        limits: &[CeilingPolicy],
    ) -> Result<ChosenPolicy, PolicyError> {
        let loaded = match name {
            Some(name) => self.named(self.load(name, by)?, limits),
            None => {
                let default = self.load(&builtin_name(builtin::DEFAULT), &Origin::Default)?;
                narrow::by_ceilings(default, narrow::meet, limits)
            }
        };
        if *by == Origin::Node {
            check_default(&loaded, limits)?;
        }
        Ok(ChosenPolicy {
            loaded,
            by: by.clone(),
        })
    }

    /// A policy chosen by name, with the ceilings' denials and within their limits. `wrap` has no engine's layer to
    /// write to: there, a root that the policy sets is reduced to the ceiling's.
    fn named(&self, loaded: LoadedPolicy, limits: &[CeilingPolicy]) -> LoadedPolicy {
        let loaded = narrow::by_ceilings(loaded, narrow::chosen, limits);
        let by = loaded.origins.get(&Field::FilesystemRoot);
        match (self.sources.asked.is_empty(), by) {
            (true, _) | (_, Some(Origin::OwnFile(_))) => loaded,
            _ => narrow::by_ceilings(loaded, narrow::without_layer, limits),
        }
    }

    /// The node's secrets. An error if one names a policy that does not exist: it would silently apply to no container.
    fn secrets(&self) -> Result<std::slice::Iter<'_, NodeSecret>, PolicyError> {
        let secrets = &self.sources.node.secret;
        for secret in secrets {
            self.check_entry("secret", &secret.name, &secret.policies)?;
        }
        Ok(secrets.iter())
    }

    /// The node's honeytokens. An error as for secrets.
    fn honey(&self) -> Result<std::slice::Iter<'_, HoneyValue>, PolicyError> {
        let honey = &self.sources.node.honey;
        for value in honey {
            self.check_entry("honey", &value.name, &value.policies)?;
        }
        Ok(honey.iter())
    }

    /// The policy of the user's file, with the ceilings' denials and within their limits.
    fn choose_file(
        &self,
        file: &PolicyPath<'_>,
        limits: &[CeilingPolicy],
    ) -> Result<ChosenPolicy, PolicyError> {
        let loaded = self.library.load_own(&file.name, file.path, file.text)?;
        self.check_names(&loaded.policy, &loaded.origins)?;
        Ok(ChosenPolicy {
            loaded: self.named(loaded, limits),
            by: self.sources.asked.policy_by(),
        })
    }

    /// Applies the fields that annotations set, and refuses values that exceed a ceiling or lack permission.
    fn finish(
        &self,
        request: AnnotationRequest,
        chosen: ChosenPolicy,
        limits: Vec<CeilingPolicy>,
        authors: Authors,
    ) -> Result<ResolvedPolicy, PolicyError> {
        if request.workspace.as_ref().is_some_and(GuestPath::is_root) {
            return Err(PolicyError::RootPath {
                origin: Origin::Annotation(WORKSPACE_KEY.to_owned()),
                field: "workspace".to_owned(),
            });
        }
        let ChosenPolicy { loaded, by } = chosen;
        let own = loaded.policy.clone();
        let description = loaded.description.clone();
        let workspace = request.workspace.clone();
        let annotated_writes = request.writes();
        let mode_implied_by = request.mode_implied_by;
        let (policy, origins) = self.overlaid(request, loaded)?;
        self.check_names(&policy, &origins)?;
        let is_container = self.sources.asker == Asker::Container;
        // `update` has to go on where the container runs: it may have to deny a host.
        if is_container || self.sources.tool == Tool::Wrap {
            check_dropped_writes(&policy, &annotated_writes, &by, &origins)?;
        }
        let image = authors == Authors::PerhapsImage;
        let is_limited = is_container && (image || !limits.iter().any(CeilingPolicy::is_set));
        let leave = match is_limited {
            true => Loosening::Fields(self.fields_with_leave(&own, authors)),
            false => Loosening::UpToCeilings,
        };
        if is_container {
            let over = without_leave(&policy, &own, &origins, &leave, mode_implied_by);
            if !over.is_empty() {
                return Err(PolicyError::Loosened {
                    policy: own.name,
                    chosen_by: by,
                    over,
                    image,
                });
            }
        }
        let is_file = |name: &PolicyName| self.sources.files.contains_key(name.as_str());
        check_ceilings(&policy, &origins, &limits, is_file, self.sources.tool)?;
        let mut bounds: Vec<Limits> = limits.iter().map(|limit| limit.policy.limits).collect();
        bounds.push(own_bounds(&own.limits, &leave));
        let network = |limit: &CeilingPolicy| {
            NetworkLimit::of(limit.ceiling.to_string(), &limit.policy.network)
        };
        Ok(ResolvedPolicy {
            secrets: Vec::new(),
            honey: Vec::new(),
            policy,
            description,
            workspace,
            annotated_writes,
            chosen_by: by,
            tool: self.sources.tool,
            origins,
            network_limits: limits.iter().map(network).collect(),
            limits: limits.iter().map(|limit| limit.policy.clone()).collect(),
            upstream: self.upstream(&limits),
            ceilings: limits.into_iter().map(|limit| limit.ceiling).collect(),
            leave,
            bounds,
            node_allow: self.sources.node.allow.clone(),
            services: self.sources.node.network.services.clone(),
            request_fields: self.sources.node.network.request_fields.clone(),
            audited: None,
        })
    }

    /// The policy with the fields that `wrap` and the annotations set.
    fn overlaid(
        &self,
        request: AnnotationRequest,
        loaded: LoadedPolicy,
    ) -> Result<(Policy, Origins), PolicyError> {
        let AnnotationRequest {
            policy: _,
            workspace: _,
            fields,
            change: _,
            mode_implied_by,
        } = request;
        let LoadedPolicy {
            policy,
            description: _,
            origins,
        } = loaded;
        let mut below = (policy, origins);
        for layer in self.sources.asked.layers(&below.0)? {
            let Layer { fields, origins } = layer;
            let origin = |field| origins.get(&field).cloned().unwrap_or(Origin::Default);
            below = self.put(fields, origin, below)?;
        }
        self.put(
            fields,
            |field| {
                let implied_by = mode_implied_by.filter(|_| field == Field::NetworkMode);
                Origin::Annotation(annotation::key(implied_by.unwrap_or(field)))
            },
            below,
        )
    }

    /// A policy with one author's fields put over it.
    fn put(
        &self,
        mut asked: Fields,
        origin: impl Fn(Field) -> Origin,
        (policy, mut origins): (Policy, Origins),
    ) -> Result<(Policy, Origins), PolicyError> {
        let mut allowed = asked.syscalls.allow.iter().flat_map(|list| &list.items);
        if let Some(name) = allowed.find(|name| policy.syscalls.deny.contains(name)) {
            return Err(PolicyError::AllowsDenied {
                asked_by: origin(Field::SyscallsAllow),
                name: *name,
                denied_by: (origins.get(&Field::SyscallsDeny).cloned()).unwrap_or(Origin::Default),
            });
        }
        // A container adds denials: naming one must not remove the policy's own.
        if let Some(deny) = &mut asked.syscalls.deny {
            deny.place = ListMode::OnTop;
        }
        if let Some(deny) = &mut asked.network.deny {
            deny.place = ListMode::OnTop;
        }
        let name = policy.name.clone();
        let mut fields = Fields::from(policy);
        fields.overlay(asked, &mut origins, origin);
        match self.library.complete(fields, name, &origins) {
            Ok(policy) => Ok((policy, origins)),
            Err(FieldsError::Preset(error)) => Err(error),
            Err(FieldsError::Missing(_)) => {
                unreachable!("the policy below is complete")
            }
        }
    }
}

fn builtin_name(name: &str) -> PolicyName {
    name.parse().expect("a built-in policy has a proper name")
}
