//! PURE. What the container can read about its walls.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::filesystem::FilesystemPlan;
use super::mount::OmittedMount;
use super::network::NetworkPlan;
use super::reason::OmittedItem;
use super::warning::Warning;
use crate::policy::{ExceededField, Field, PolicyName, Report, Switch};
use crate::rules::EgressRules;
use crate::text::escape;

/// The directory with the container's denials.
pub const DENIED_IN: &str = "/run/agentbox";
/// The name of the file of denials.
pub const DENIED: &str = "denied";
/// The file beside it, with the mounts that are less than requested: no denial reports these.
pub const MOUNTS: &str = "mounts";
/// The most mounts to list.
const MOST_MOUNTS: usize = 64;

/// What the container can read about its walls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportPlan {
    /// Whether it can read its last denials.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub denied: bool,
    /// Whether its standard error begins with a line about requests that were not granted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub notice: bool,
    /// The plan of a report-only policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<AuditPlan>,
}

impl ReportPlan {
    /// Whether there is nothing to read, as in records from before this field.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }

    /// As the policy requests. The container's own sidecar writes it, without denials by a shared network's sidecar.
    pub(super) fn of(
        report: &Report,
        network: &NetworkPlan,
        files: &mut FilesystemPlan,
        warnings: &mut Vec<Warning>,
    ) -> Self {
        let Report {
            denied,
            notice,
            // Planned separately, after this plan.
            audit: _,
            learn,
        } = report;
        if let Some(shared) = network.shared.as_ref()
            && *learn == Switch::On
            && !network.learns()
        {
            warnings.push(Warning::LessThanAsked {
                field: Field::ReportLearn,
                asked: learn.to_string(),
                there: Switch::Off.to_string(),
                container: shared.container.clone(),
            });
        }
        let asked = *denied == Switch::On;
        if let Some(shared) = network.shared.as_ref().filter(|_| asked) {
            warnings.push(Warning::RefusalsOfAnother {
                container: shared.container.clone(),
            });
        }
        if asked || network.opens().is_some() || network.signing.is_some() {
            files.hold_run();
        }
        Self {
            denied: asked,
            notice: *notice == Switch::On,
            audit: None,
        }
    }
}

impl FilesystemPlan {
    /// The mounts that are read-only or left out, as text for the container. The reasons stay outside: they name
    /// directories of the node.
    pub fn less(&self) -> String {
        let read_only = self
            .mounts
            .iter()
            .filter(|m| m.bind().is_some() && !m.is_writable());
        let read_only = read_only.map(|m| (&m.destination, "read-only"));
        let left_out = self.pruned.iter().map(|m| (&m.destination, "not mounted"));
        let all: BTreeSet<(String, &str)> = left_out
            .chain(read_only)
            .map(|(path, how)| (escape(&path.display().to_string()), how))
            .collect();
        let mut text = "# Mounts that are read-only here (filesystem.write of the policy lets one be written) or were left out; `agentbox \
                        explain` says why, outside\n"
            .to_owned();
        for (path, how) in all.iter().take(MOST_MOUNTS) {
            text += &format!("{path}: {how}\n");
        }
        if let Some(more) = all.len().checked_sub(MOST_MOUNTS).filter(|more| *more > 0) {
            text += &format!("and {more} more\n");
        }
        text
    }

    /// Keeps /run in place, so that nothing can replace it: a directory with mounts in it can be renamed, a mount
    /// cannot.
    fn hold_run(&mut self) {
        let run = Path::new("/run");
        let is_mount = self.mounts.iter().any(|m| m.destination == run)
            || self.ephemeral.iter().any(|e| e.path == run);
        if !is_mount {
            self.pinned.insert(run.to_owned());
        }
    }
}

/// The plan of a report-only policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditPlan {
    /// Its name.
    pub policy: PolicyName,
    /// Why the container would be refused under it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// Mounts that would be missing or read-only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<OmittedMount>,
    /// Other requests of the engine that would not be granted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_given: Vec<OmittedItem>,
    /// Fields in which it allows less, and nothing shows whether the workload would miss that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub less: Vec<ExceededField>,
    /// The hosts it would allow; `None` if another container's policy decides, or if nothing would start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<AuditedNetwork>,
}

/// The network rules of a report-only policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AuditedNetwork {
    /// Its name.
    pub policy: PolicyName,
    /// The allowed hosts.
    pub rules: EgressRules,
    /// Whether unlisted names wait for a human instead of being refused.
    pub asks: bool,
}
