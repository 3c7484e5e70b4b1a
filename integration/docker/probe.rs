//! The output of `integration/probe` from inside a container.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::{Docker, NO_WALLS, Policy};

/// How the probe's process came into the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Via {
    /// The container's first process.
    Init,
    /// `docker exec`.
    Exec,
    /// The first process of a container with `--privileged`.
    PrivilegedInit,
    /// `docker exec --privileged`.
    PrivilegedExec,
}

impl Via {
    pub const ALL: [Self; 4] = [
        Self::Init,
        Self::Exec,
        Self::PrivilegedInit,
        Self::PrivilegedExec,
    ];
}

/// The user who runs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum User {
    Root,
    /// uid 1000
    Dev,
}

/// The walls around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Walls {
    /// The control: privileged, without a filter, under runc.
    None,
    Of(Policy),
}

/// One line of the probe.
#[derive(Debug, Clone)]
pub struct Answer {
    /// "ok", an errno, "killed:SIGSYS" or the step's own word.
    pub word: String,
    /// Any further output of the step, often empty.
    pub detail: String,
}

/// All steps of `probe all`, by name.
pub struct Report {
    about: String,
    answers: BTreeMap<String, Answer>,
}

impl Report {
    /// Runs `probe all` once for each combination, and remembers the result.
    #[track_caller]
    pub fn of(docker: &Docker, walls: Walls, via: Via, user: User) -> Arc<Self> {
        type Slot = Arc<OnceLock<Arc<Report>>>;
        static REPORTS: Mutex<BTreeMap<(Walls, Via, User), Slot>> = Mutex::new(BTreeMap::new());
        let slot = Arc::clone(
            REPORTS
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry((walls, via, user))
                .or_default(),
        );
        Arc::clone(slot.get_or_init(|| {
            let about = format!("{walls:?} via {via:?} as {user:?}");
            let text = run_probe(docker, walls, via, user, &["probe", "all"]);
            Arc::new(Self {
                answers: parse(&text),
                about,
            })
        }))
    }

    /// The answer of one step.
    #[track_caller]
    pub fn answer(&self, step: &str) -> &Answer {
        self.answers
            .get(step)
            .unwrap_or_else(|| panic!("{}: the probe said nothing about '{step}'", self.about))
    }

    /// Walls, way in and user, for messages.
    pub fn about(&self) -> &str {
        &self.about
    }
}

/// Runs one command line of the test image and returns its output.
#[track_caller]
pub fn run_probe(docker: &Docker, walls: Walls, via: Via, user: User, command: &[&str]) -> String {
    run_probe_with(docker, walls, via, user, &[], command)
}

/// The same with more options of `docker run`.
#[track_caller]
pub fn run_probe_with(
    docker: &Docker,
    walls: Walls,
    via: Via,
    user: User,
    more: &[&str],
    command: &[&str],
) -> String {
    let mut options = match walls {
        Walls::None => NO_WALLS.to_vec(),
        Walls::Of(policy) => policy.options(),
    };
    if user == User::Dev {
        options.extend(["--user", "1000:1000"]);
    }
    if matches!(via, Via::PrivilegedInit | Via::PrivilegedExec) {
        options.push("--privileged");
    }
    options.extend(more);
    options.push("test-probe");
    match via {
        Via::Init | Via::PrivilegedInit => docker.run(&options, command).ok(),
        Via::Exec => docker
            .start(&options, &["sleep", "300"])
            .exec(&[], command)
            .ok(),
        Via::PrivilegedExec => docker
            .start(&options, &["sleep", "300"])
            .exec(&["--privileged"], command)
            .ok(),
    }
}

/// The one answer of `probe with STEP ARGUMENTS...`.
#[track_caller]
pub fn ask(docker: &Docker, walls: Walls, via: Via, more: &[&str], step: &[&str]) -> Answer {
    ask_each(docker, walls, via, more, &[step]).remove(0)
}

/// The answer of each step, all in one container.
#[track_caller]
pub fn ask_each(
    docker: &Docker,
    walls: Walls,
    via: Via,
    more: &[&str],
    steps: &[&[&str]],
) -> Vec<Answer> {
    let script: String = steps
        .iter()
        .map(|step| format!("probe with '{}'; ", step.join("' '")))
        .collect();
    // A busy engine sometimes loses all output of a short process: then retry.
    let text = (0..3)
        .map(|_| run_probe_with(docker, walls, via, User::Root, more, &["sh", "-c", &script]))
        .find(|text| !text.is_empty());
    let text = text.unwrap_or_default();
    let answers: Vec<(String, Answer)> = text.lines().filter_map(line).collect();
    let answered = answers.iter().map(|(name, _)| name.as_str());
    assert!(
        answered.eq(steps.iter().map(|step| step[0])),
        "the probe did not answer {steps:?}: {text}"
    );
    answers.into_iter().map(|(_, answer)| answer).collect()
}

/// Lines of "name TAB word [TAB detail]".
pub fn parse(text: &str) -> BTreeMap<String, Answer> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<(String, Answer)> {
    let mut fields = line.splitn(3, '\t');
    let name = fields.next()?.to_owned();
    let word = fields.next()?.trim_end().to_owned();
    let detail = fields.next().unwrap_or("").trim_end().to_owned();
    Some((name, Answer { word, detail }))
}

/// An attack of the threat list, and the answer it must get.
pub struct Attack {
    pub step: &'static str,
    /// The acceptable answers.
    pub denied: &'static [&'static str],
    /// Whether every kernel shows that the attack works without walls.
    pub shown: Shown,
}

#[derive(PartialEq, Eq)]
pub enum Shown {
    Always,
    /// Some kernels are built without it (modules, kexec, SCTP ...). They answer like the wall, or that it is missing.
    WhereBuiltIn,
}

/// An attack that works on every kernel without walls.
pub const fn attack(step: &'static str, denied: &'static [&'static str]) -> Attack {
    Attack {
        step,
        denied,
        shown: Shown::Always,
    }
}

/// An attack that not every kernel supports.
pub const fn attack_if_built_in(step: &'static str, denied: &'static [&'static str]) -> Attack {
    Attack {
        step,
        denied,
        shown: Shown::WhereBuiltIn,
    }
}

/// Tries each attack without walls and then behind every policy, by every way in, as root and as an ordinary user.
#[track_caller]
pub fn all_denied(attacks: &[Attack]) {
    let docker = Docker::connect();
    let mut wrong = controls_that_fail(&docker, attacks);
    for policy in Policy::ALL {
        for via in Via::ALL {
            for user in [User::Root, User::Dev] {
                let report = Report::of(&docker, Walls::Of(policy), via, user);
                for attack in attacks {
                    let Answer { word, detail } = report.answer(attack.step);
                    if !attack.denied.contains(&word.as_str()) {
                        let (about, step, denied) = (report.about(), attack.step, attack.denied);
                        wrong.push(format!(
                            "{about}: {step} got {word} {detail}, not {denied:?}"
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Attacks that look denied even without walls: their tests would prove nothing.
fn controls_that_fail(docker: &Docker, attacks: &[Attack]) -> Vec<String> {
    let mut wrong = Vec::new();
    for via in [Via::Init, Via::Exec] {
        let control = Report::of(docker, Walls::None, via, User::Root);
        for Attack {
            step,
            denied,
            shown,
        } in attacks
        {
            let word = &control.answer(step).word;
            if !denied.contains(&word.as_str()) {
                continue;
            }
            match shown {
                Shown::Always => wrong.push(format!(
                    "{}: the control of {step} got {word} too",
                    control.about()
                )),
                Shown::WhereBuiltIn => {
                    eprintln!("not shown: {step} gets {word} from this kernel even without walls");
                }
            }
        }
    }
    wrong
}

/// Checks that each step succeeds behind every policy, by every way in.
#[track_caller]
pub fn all_let_through(steps: &[&str]) {
    let docker = Docker::connect();
    for policy in Policy::ALL {
        for via in Via::ALL {
            for user in [User::Root, User::Dev] {
                let report = Report::of(&docker, Walls::Of(policy), via, user);
                for step in steps {
                    let Answer { word, detail } = report.answer(step);
                    let about = report.about();
                    assert_eq!(word, "ok", "{about}: {step} {detail}");
                }
            }
        }
    }
}
