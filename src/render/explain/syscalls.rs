//! PURE. `explain --syscalls`: the verdict on every system call, read from the kernel's program, with its reason.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use oci_spec::runtime::LinuxSeccomp;
use serde::Serialize;

use super::page::{Page, PageLength};
use crate::kernel::SyscallName;
use crate::plan::SyscallPlan;
use crate::policy::{Switch, Tool};
use crate::seccomp::{
    ARCH_X86_64, FilterInput, FilterProgram, SyscallVerdict, compile, denies_attributes, outcomes,
    profile_reason, reason, sets_modes,
};

/// Docker's default profile for a container with the default capabilities, as Docker 28 writes it into a bundle. Its source is
/// moby's profiles/seccomp/default.json (Apache-2.0).
const DOCKER: &str = include_str!("../../../policies/syscalls/docker.json");

/// The name of [`DOCKER`] for `--compare`.
pub const DOCKERS: &str = "docker";

/// The filter programs of a table.
#[derive(Debug, Clone, Copy)]
pub struct TablePrograms<'a> {
    /// The container's program. `None`: no filter, and every call is allowed.
    pub loaded: Option<&'a FilterProgram>,
    /// The policy's own part of it; `None` under `unconfined`.
    pub policy: Option<(&'a SyscallPlan, &'a FilterProgram)>,
}

/// All system calls of x86_64.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SyscallTable {
    /// By name.
    pub calls: Vec<Row>,
    /// The calls on which another filter differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compared: Option<FilterDifference>,
}

/// One call.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// Its name.
    pub call: &'static str,
    /// Its possible verdicts: more than one if they depend on arguments.
    pub verdicts: Vec<String>,
    /// The reason.
    pub reason: Cow<'static, str>,
    /// Whether every verdict is a denial.
    #[serde(skip)]
    is_denied: bool,
}

/// The differences to another filter.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FilterDifference {
    /// The other filter's name.
    pub with: String,
    /// The calls on which they differ.
    pub calls: Vec<Difference>,
}

/// A call on which two filters differ.
#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Difference {
    /// Its name.
    pub call: &'static str,
    /// This filter's verdicts.
    pub here: Vec<String>,
    /// The other's verdicts.
    pub there: Vec<String>,
    /// The reason of this one's.
    pub reason: Cow<'static, str>,
}

/// Docker's default profile, compiled as for `unconfined`.
pub fn docker() -> Option<FilterProgram> {
    let profile: LinuxSeccomp =
        serde_json::from_str(DOCKER).expect("a test parses the built-in profile");
    let input = FilterInput {
        ours: None,
        engine: Some(&profile),
    };
    let filter = compile(&input).expect("a test compiles the built-in profile");
    filter.map(|filter| filter.program)
}

impl SyscallTable {
    /// The table of these programs.
    pub fn new(programs: TablePrograms<'_>) -> Self {
        let row = |name: SyscallName| {
            let said = possible_verdicts(programs.loaded, name);
            Row {
                call: name.as_str(),
                verdicts: in_words(&said),
                reason: programs.reason(name),
                is_denied: said.iter().all(|verdict| verdict.is_denial()),
            }
        };
        Self {
            calls: SyscallName::all().map(row).collect(),
            compared: None,
        }
    }

    /// Adds the comparison with another filter.
    pub fn beside(
        mut self,
        programs: TablePrograms<'_>,
        with: &str,
        other: Option<&FilterProgram>,
    ) -> Self {
        let differs = |name: SyscallName| {
            let (here, there) = (
                possible_verdicts(programs.loaded, name),
                possible_verdicts(other, name),
            );
            (here != there).then(|| Difference {
                call: name.as_str(),
                here: in_words(&here),
                there: in_words(&there),
                reason: programs.reason(name),
            })
        };
        self.compared = Some(FilterDifference {
            with: with.to_owned(),
            calls: SyscallName::all().filter_map(differs).collect(),
        });
        self
    }

    /// As text: calls with the same verdict and reason in one paragraph.
    pub fn text(&self, name: &str) -> String {
        let mut page = Page::new(PageLength::All, Tool::default());
        page.head(name, "system calls of x86_64, as the filter decides");
        let mut groups: BTreeMap<(bool, String, &str), Vec<&str>> = BTreeMap::new();
        for row in &self.calls {
            let verdict = row.verdicts.join(" or ");
            let group = groups
                .entry((row.is_denied, verdict, row.reason.as_ref()))
                .or_default();
            group.push(row.call);
        }
        for ((_, verdict, reason), calls) in groups {
            page.head(&verdict, reason);
            wrapped(&mut page, &calls);
        }
        if let Some(compared) = &self.compared {
            beside(&mut page, compared);
        }
        page.into_text()
    }
}

fn beside(page: &mut Page, compared: &FilterDifference) {
    let with = &compared.with;
    let count = compared.calls.len();
    page.line("");
    page.head(
        &format!("beside {with}"),
        format_args!("{count} calls have different verdicts"),
    );
    let mut groups: BTreeMap<(String, String, &str), Vec<&str>> = BTreeMap::new();
    for difference in &compared.calls {
        let (here, there) = (difference.here.join(" or "), difference.there.join(" or "));
        let group = groups
            .entry((here, there, difference.reason.as_ref()))
            .or_default();
        group.push(difference.call);
    }
    for ((here, there, reason), calls) in groups {
        page.head(&format!("{here} here, {there} there"), reason);
        wrapped(page, &calls);
    }
}

/// Names in lines of about a hundred characters.
fn wrapped(page: &mut Page, calls: &[&str]) {
    let mut line = String::new();
    for call in calls {
        if line.len() + call.len() > 100 {
            page.item(&line);
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(call);
    }
    page.item(&line);
}

impl TablePrograms<'_> {
    /// The reason for this filter's verdict.
    fn reason(&self, name: SyscallName) -> Cow<'static, str> {
        const ENGINES: &str = "by the engine's profile";
        let Some((plan, own)) = self.policy else {
            return match self.loaded {
                Some(_) => ENGINES.into(),
                None => "no filter: neither a policy nor the engine has one".into(),
            };
        };
        if plan.deny.contains(&name) {
            return "by the policy's syscalls.deny".into();
        }
        if possible_verdicts(self.loaded, name) != possible_verdicts(Some(own), name) {
            return "by the engine's profile, which is stricter than the policy".into();
        }
        if plan.attributes == Switch::Off
            && let Some(reason) = denies_attributes(name)
        {
            return reason.into();
        }
        if plan.allow.contains(&name) {
            return "by the policy's syscalls.allow".into();
        }
        if let Some(reason) = profile_reason(plan.profile, name) {
            return reason.into();
        }
        if sets_modes(name)
            && let Some(cause) = plan.set_id_refused()
        {
            return format!(
                "no set-user-ID or set-group-ID file (privileges.set-id: {cause}); any other mode is the file's owner's affair"
            )
            .into();
        }
        reason(name).into()
    }
}

/// A program's possible verdicts. Denials by the kernel and by a listener are the same, as for the caller.
fn possible_verdicts(
    program: Option<&FilterProgram>,
    name: SyscallName,
) -> BTreeSet<SyscallVerdict> {
    let Some(program) = program else {
        return [SyscallVerdict::Allow].into();
    };
    let all = outcomes(program, ARCH_X86_64, name.number());
    all.into_iter()
        .map(|verdict| match verdict {
            SyscallVerdict::Notify(errno @ 1..) => SyscallVerdict::Errno(errno),
            other => other,
        })
        .collect()
}

fn in_words(verdicts: &BTreeSet<SyscallVerdict>) -> Vec<String> {
    verdicts
        .iter()
        .rev()
        .map(SyscallVerdict::to_string)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seccomp::{DenyMode, FilterPolicy};

    fn own(plan: &SyscallPlan) -> FilterProgram {
        let input = FilterInput {
            ours: Some(FilterPolicy {
                allow: &plan.allow,
                deny: &plan.deny,
                set_id: false,
                attributes: true,
                profile: plan.profile,
                devices: false,
                denials: DenyMode::Errno,
            }),
            engine: None,
        };
        compile(&input).unwrap().unwrap().program
    }

    fn row<'a>(table: &'a SyscallTable, call: &str) -> &'a Row {
        table.calls.iter().find(|row| row.call == call).unwrap()
    }

    #[test]
    fn a_row_has_the_programs_verdict_and_its_reason() {
        let mut plan = crate::plan::tests::sample().syscalls;
        plan.deny = ["sendfile".parse().unwrap()].into();
        plan.set_id = crate::policy::Switch::Off;
        plan.allow = ["ptrace".parse().unwrap()].into();
        let program = own(&plan);
        let programs = TablePrograms {
            loaded: Some(&program),
            policy: Some((&plan, &program)),
        };
        let docker = docker();
        let table = SyscallTable::new(programs).beside(programs, DOCKERS, docker.as_ref());
        assert_eq!(row(&table, "read").verdicts, ["allow"]);
        assert_eq!(row(&table, "sendfile").verdicts, ["EPERM"]);
        assert_eq!(
            row(&table, "sendfile").reason,
            "by the policy's syscalls.deny"
        );
        assert_eq!(
            row(&table, "ptrace").reason,
            "by the policy's syscalls.allow"
        );
        let mount = row(&table, "mount");
        assert_eq!(mount.verdicts, ["EPERM"]);
        assert!(mount.reason.contains("filesystem wall"), "{}", mount.reason);
        assert!(row(&table, "socket").verdicts.len() > 1);
        assert_eq!(row(&table, "chmod").verdicts, ["allow", "EPERM"]);
        assert!(row(&table, "chmod").reason.contains("set-user-ID"));
        let compared = table.compared.as_ref().unwrap();
        let of = |call: &str| compared.calls.iter().find(|other| other.call == call);
        assert_eq!(of("read"), None);
        assert_eq!(of("sendfile").unwrap().there, ["allow"]);
        let text = table.text("policy 'x'");
        assert!(text.contains("beside docker: "), "{text}");
        // Every call appears once in the first part.
        let first = text.split("beside docker").next().unwrap();
        for name in SyscallName::all() {
            let words = first.lines().filter(|line| line.starts_with("  "));
            let found = words
                .flat_map(str::split_whitespace)
                .filter(|word| *word == name.as_str());
            assert_eq!(found.count(), 1, "{}", name.as_str());
        }
    }

    #[test]
    fn without_a_filter_every_call_is_allowed() {
        let none = TablePrograms {
            loaded: None,
            policy: None,
        };
        let table = SyscallTable::new(none);
        assert!(table.calls.iter().all(|row| row.verdicts == ["allow"]));
        assert!(row(&table, "bpf").reason.starts_with("no filter"));
    }

    #[test]
    fn the_engines_stricter_verdict_is_named() {
        let plan = crate::plan::tests::sample().syscalls;
        let (own, docker) = (own(&plan), docker().unwrap());
        // As if the engine's profile were the whole filter.
        let programs = TablePrograms {
            loaded: Some(&docker),
            policy: Some((&plan, &own)),
        };
        let table = SyscallTable::new(programs);
        let clone3 = row(&table, "clone3");
        assert_eq!(clone3.verdicts, ["ENOSYS"]);
        assert!(row(&table, "read").reason.contains("reading"), "read");
    }
}
