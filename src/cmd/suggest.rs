//! `suggest`

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::audit::suggest::{self, Suggestion};
use crate::cli::{GlobalOptions, Suggest, TextFormat};
use crate::cmd::out;
use crate::log;
use crate::policy::{PolicyName, Sources, Tool, catalogue, is_builtin, loosens};
use crate::runtime::input::node_files::{self, NodeFiles};
use crate::runtime::runs::read::{self, FoundRun, Logs};

/// The policy whose `syscalls.limit` lists the calls that can be allowed without giving up a wall.
const LIMITED_BY: &str = "standard";

/// Prints the missing rules of a run's policy, or writes a policy with them.
pub fn run(global: &GlobalOptions, args: &Suggest) -> Result<ExitCode> {
    let found = read::find(&args.id)?;
    let logs = found.logs()?;
    let files = NodeFiles::of(global)?;
    let none = BTreeMap::new();
    let sources = files.sources(&none, None);
    let limit = catalogue::policy(&sources, &LIMITED_BY.parse()?)?
        .syscalls
        .limit;
    let givable: BTreeSet<String> = limit.iter().map(|name| name.as_str().to_owned()).collect();
    let suggested = suggest::of(&logs.without_verifys(), &givable);
    let whole = super::audit::verdict(&found, &logs);
    if let Some(name) = &args.write {
        if whole != ExitCode::SUCCESS {
            bail!("the log is not complete, so it may have been forged: no policy is made of it");
        }
        let base = base(&found, &sources)?;
        let text = suggested.policy(&base, &found.run.name());
        write(global, name, &text, &suggested)?;
        let tool = suggested.tool_of_network().unwrap_or_else(|| of_run(&logs));
        let ceiling = policy_of_runtime(&found).filter(|_| tool != Tool::PodmanPod);
        let use_it = match ceiling {
            Some(ceiling) => format!(
                "use it: a runtime with --policy {name} (no annotation goes beyond this one's --policy {ceiling})"
            ),
            None => format!("use it: {}", tool.with_policy(name)),
        };
        log::complain(&use_it);
        return Ok(ExitCode::SUCCESS);
    }
    match args.format {
        TextFormat::Json => out::json(&suggested)?,
        TextFormat::Text => out::text(&suggested.text())?,
    };
    Ok(whole)
}

/// The policy that the runtime's own `--policy` names, beyond which no annotation gets.
fn policy_of_runtime(found: &FoundRun) -> Option<String> {
    let call = found.run.record().ok()?.call;
    call.policy.filter(|_| !call.wrap)
}

/// The name of the run's policy. Fails if the node's policy of that name grants more than the run had: options,
/// annotations and settings narrow a policy, and a policy file of the user may have the same name.
fn base(found: &FoundRun, sources: &Sources<'_>) -> Result<String> {
    let record = found.run.record().context("the run's record")?;
    let Some(decided) = record.decided else {
        bail!("the run had no policy, to which nothing can be added");
    };
    let had = decided.into_inner().resolved;
    let name = had.name.clone();
    let nodes = catalogue::policy(sources, &name)
        .with_context(|| format!("the run's policy {name} is none of the node's"))?;
    let more: Vec<String> = loosens(&nodes, &had)
        .iter()
        .map(|more| more.field.to_string())
        .collect();
    if !more.is_empty() {
        bail!(
            "the node's policy {name} gives more than this run had, in {}: write a policy with the run's own fields (`agentbox explain`) and \
             these additions",
            more.join(", ")
        );
    }
    Ok(name.to_string())
}

/// Writes a new policy file, then reads it as `create` would.
fn write(global: &GlobalOptions, name: &str, text: &str, suggested: &Suggestion) -> Result<()> {
    if suggested.is_empty() && !suggested.left_out.is_empty() {
        bail!(
            "what was denied is for you to decide, so no file is written: see it by `agentbox suggest`"
        );
    }
    if suggested.is_empty() {
        bail!("no rule is missing in the run's policy, so no file is written");
    }
    let parsed: PolicyName = name.parse()?;
    if is_builtin(name) {
        bail!(
            "{name} is a built-in policy, whose place a file of this name would take, as a ceiling too: choose another name"
        );
    }
    let dir = node_files::policy_dir(global)?;
    let mut maker = std::fs::DirBuilder::new();
    let made = maker.recursive(true).mode(0o755).create(&dir);
    let roots = |path: &Path| {
        format!(
            "make {path:?}: root's, so use sudo; `allow` in ~/.config/agentbox/config.toml is yours"
        )
    };
    made.with_context(|| roots(&dir))?;
    let path = dir.join(format!("{name}.toml"));
    let mut options = File::options();
    options.write(true).create_new(true).mode(0o644);
    let opened = options.open(&path);
    let mut file = match opened {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(error).context(roots(&path));
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            bail!("{path:?} exists already: choose another name");
        }
        opened => opened.with_context(|| format!("make {path:?}"))?,
    };
    let written = file.write_all(text.as_bytes()).context("write it");
    let read = written.and_then(|()| {
        let files = NodeFiles::of(global)?;
        catalogue::policy(&files.sources(&BTreeMap::new(), None), &parsed)?;
        Ok(())
    });
    if let Err(error) = read {
        // A broken policy file is worse than none.
        std::fs::remove_file(&path).with_context(|| format!("remove {path:?}"))?;
        return Err(error.context(format!("{path:?} was not made")));
    }
    out::line(&format!("wrote {path:?}"))?;
    Ok(())
}

/// The tool that started a run, by its log.
fn of_run(logs: &Logs) -> Tool {
    let lines = logs.lines();
    let first = lines.first().map(|line| line.context.tool());
    first.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Asker, NodeConfig, WrapOptions};
    use crate::seccomp::{ARCH_X86_64, FilterWords, Hint, SyscallData, words};

    /// The sidecar's hint for a denied call and the suggestion use the same list.
    #[test]
    fn a_call_may_be_allowed_if_and_only_if_its_hint_says_so() {
        let (node, asked) = (NodeConfig::default(), WrapOptions::default());
        let (none, files, presets) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let sources = Sources {
            annotations: &none,
            image: crate::policy::ImageAnnotations::Unknown,
            flag: None,
            node: &node,
            files: &files,
            presets: &presets,
            asker: Asker::Operator,
            tool: crate::policy::Tool::default(),
            asked: &asked,
        };
        let policy = catalogue::policy(&sources, &LIMITED_BY.parse().unwrap()).unwrap();
        assert!(!policy.syscalls.limit.is_empty());
        for name in crate::kernel::SyscallName::all() {
            let call = SyscallData {
                number: name.number(),
                arch: ARCH_X86_64,
                args: [0; 6],
            };
            let says = words(&call, 1, &FilterWords::default()).hint == Hint::DebugProfile;
            let may = policy.syscalls.limit.iter().any(|one| *one == name);
            assert_eq!(says, may, "{}", name.as_str());
        }
    }
}
