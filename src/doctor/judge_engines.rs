//! Turns facts of engines into lines. Pure.

use super::engines::{DockerFacts, EngineFacts, HandlerFacts, ProgramState, RegisteredProgram};
use super::facts::DoctorFacts;
use super::judge::{ENGINES, ok};
use super::{Check, CheckState};

/// The first Docker version that passes `--annotation` on.
const ANNOTATIONS_SINCE: u32 = 26;
const ADD: &str = "`agentbox install` adds it, as root";

/// Every check of the installed engines. Having no engine is not a lack.
pub fn checks(facts: &DoctorFacts) -> Vec<Check> {
    let mut has = facts.engines.iter().map(has_runtime);
    // One engine with the runtime is enough. An engine whose state is unknown may have it.
    let absent = match has.any(|has| has != Some(false)) {
        true => CheckState::Warning,
        false => CheckState::Missing,
    };
    let all = facts.engines.iter();
    all.flat_map(|engine| match engine {
        EngineFacts::Docker(found) => docker(found.as_ref(), absent),
        EngineFacts::Containerd(found) => containerd(found.as_ref(), absent),
        EngineFacts::Podman(found) => podman(found.as_ref(), absent, facts),
    })
    .collect()
}

/// Whether an engine has the runtime, if that is known.
fn has_runtime(engine: &EngineFacts) -> Option<bool> {
    match engine {
        EngineFacts::Docker(found) => found.as_ref().ok().map(|docker| docker.runtime.is_some()),
        EngineFacts::Containerd(found) => found.as_ref().ok().map(Option::is_some),
        EngineFacts::Podman(found) => found.as_ref().ok().map(Option::is_some),
    }
}

/// The program that an engine executes.
fn program(name: &'static str, program: &RegisteredProgram) -> Check {
    let RegisteredProgram { path, state } = program;
    let check = ok(name, ENGINES, format!("runs {path:?}"));
    let missing = |check: Check, why: &str| Check {
        found: format!("runs {path:?}, which {why}"),
        ..check.lacking(
            CheckState::Missing,
            "register an existing program: `agentbox install`, as root",
        )
    };
    match state {
        ProgramState::Usable => check,
        ProgramState::Another => Check {
            found: format!("runs {path:?}, which is not the agentbox that you run now"),
            ..check.lacking(
                CheckState::Warning,
                "remove one of the two (`program` has the path of yours), or register yours: `agentbox install`, as root",
            )
        },
        ProgramState::Absent => missing(check, "is not there"),
        ProgramState::NotExecutable => missing(check, "cannot be executed"),
        ProgramState::OpenToOthers => check.lacking(
            CheckState::Warning,
            "other users can change it, and the engine runs it as root: `chown root` and `chmod go-w` it and its directories",
        ),
        ProgramState::NotAbsolute => check.lacking(
            CheckState::Warning,
            "the engine looks it up in its own PATH, which is unknown here: register an absolute path",
        ),
        ProgramState::Unknown(why) => {
            check.lacking(CheckState::Warning, format!("run `agentbox doctor` as root: {why}"))
        }
    }
}

fn docker(found: Result<&DockerFacts, &String>, absent: CheckState) -> Vec<Check> {
    let check = |found: String| ok("docker", ENGINES, found);
    let DockerFacts { version, runtime } = match found {
        Ok(docker) => docker,
        Err(why) => {
            let check = check(format!("its runtimes cannot be listed: {why}"));
            return vec![check.lacking(
                CheckState::Warning,
                "start it, or run `agentbox doctor` as root; Docker before 26 drops annotations",
            )];
        }
    };
    let Some(runtime) = runtime else {
        let check = check(format!("version {version} has no runtime agentbox"));
        return vec![check.lacking(absent, ADD)];
    };
    let major = version.split('.').next();
    let annotations = match major.and_then(|n| n.parse::<u32>().ok()) {
        Some(ANNOTATIONS_SINCE..) => check(format!(
            "version {version} has the runtime, and passes annotations on"
        )),
        _ => check(format!("version {version} drops annotations")).lacking(
            CheckState::Warning,
            "use Docker 26 or newer, or register a runtime for each policy (runtimeArgs: --policy)",
        ),
    };
    vec![annotations, program("docker-program", runtime)]
}

fn containerd(found: Result<&Option<HandlerFacts>, &String>, absent: CheckState) -> Vec<Check> {
    let check = |found: &str| ok("containerd", ENGINES, found);
    let handler = match found {
        Err(why) => {
            let check = check("its handlers are unknown");
            return vec![check.lacking(CheckState::Warning, why.clone())];
        }
        Ok(None) => {
            let check = check("it has no handler agentbox, which pods need");
            return vec![check.lacking(absent, ADD)];
        }
        Ok(Some(handler)) => handler,
    };
    let annotations = match handler.passes_annotations {
        true => check(
            "its files have the handler agentbox with annotations; containerd reads them when it starts",
        ),
        false => check("its handler agentbox drops annotations, or some of them").lacking(
            CheckState::Warning,
            "set pod_annotations and container_annotations as docs/kubernetes.md has them",
        ),
    };
    let name = "containerd-program";
    let program = match &handler.program {
        Some(found) => program(name, found),
        None => ok(name, ENGINES, "its handler agentbox runs runc").lacking(
            CheckState::Missing,
            "set BinaryName in the handler's options (docs/kubernetes.md)",
        ),
    };
    vec![annotations, program]
}

fn podman(
    found: Result<&Option<RegisteredProgram>, &String>,
    absent: CheckState,
    node: &DoctorFacts,
) -> Vec<Check> {
    let check = |found: String| ok("podman", ENGINES, found);
    let runtime = match found {
        Err(why) => {
            let check = check("its runtimes are unknown".to_owned());
            return vec![check.lacking(CheckState::Warning, why.clone())];
        }
        Ok(None) => {
            let check = check("it has no runtime agentbox".to_owned());
            return vec![check.lacking(absent, ADD)];
        }
        Ok(Some(runtime)) => runtime,
    };
    let permitted = node.node.1.as_ref().map_or(0, |node| node.annotations);
    let annotations = check(match permitted {
        0 => "an image's annotations loosen nothing".to_owned(),
        1 => "an image's annotations can loosen 1 field".to_owned(),
        _ => format!("an image's annotations can loosen {permitted} fields"),
    });
    vec![annotations, program("podman-program", runtime)]
}
