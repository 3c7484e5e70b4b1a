//! Finds the run of a deleted container that a text names.

use super::RunDir;
use super::name::{BEFORE_ID, id_of};
use super::read;
use crate::audit::EventDetail;
use crate::policy::Tool;
use crate::render::identity::ContainerIdentity;
use crate::runtime::RuntimeError;
use crate::runtime::state::find;
use crate::runtime::state::identity;

/// The most runs whose first line is read for a name.
const MOST_NAMES: usize = 2000;

/// A deleted container that the text may name, by its newest run.
struct DeletedContainer {
    /// The run's index.
    at: usize,
    id: String,
    identity: ContainerIdentity,
    /// Who ran `wrap`: several users may choose one id.
    uid: Option<u32>,
    is_named: bool,
}

impl DeletedContainer {
    fn of(at: usize, id: &str, run: &RunDir) -> Self {
        let head = run.head();
        let command = head.as_ref().and_then(|line| match &line.event.what {
            EventDetail::Container { command, .. } => command.as_ref(),
            _ => None,
        });
        let uid = command.map(|command| command.uid);
        let logged = head.map(|line| read::identity_of(line.context));
        // A first line that was changed has no name.
        let has_name = |one: &ContainerIdentity| one.name.is_some() || one.pod.is_some();
        let identity = logged
            .clone()
            .filter(has_name)
            .or_else(|| run.record().as_ref().ok().map(identity::of))
            .or(logged)
            .unwrap_or_default();
        let is_wraps = identity.tool() == Tool::Wrap;
        Self {
            at,
            id: id.to_owned(),
            identity,
            uid: uid.filter(|_| is_wraps),
            is_named: false,
        }
    }

    /// Whether both are runs of one container, which may have been made again under its name or id. Another engine, or
    /// another user of `wrap`, makes another container.
    fn is_same(&self, other: &Self) -> bool {
        let has_names = self.is_named && other.is_named;
        let is_remade = has_names && self.identity.short() == other.identity.short();
        let is_other_user = self.uid.zip(other.uid).is_some_and(|(a, b)| a != b);
        self.identity.engine == other.identity.engine
            && (is_remade || self.id == other.id && !is_other_user)
    }

    fn words(&self, run: &RunDir) -> String {
        let user = self.uid.map(|uid| format!(" of user {uid}"));
        let engine = crate::text::escape(&self.identity.engine);
        // The start names it, and messages end after 300 characters.
        let shown = match find::is_of_engine(&self.id) {
            true => self.id.get(..find::SHOWN).unwrap_or_default(),
            false => &self.id,
        };
        let (id, user) = (self.identity.with_id(shown), user.unwrap_or_default());
        format!("{} is {id}, {engine}{user}", run.started())
    }
}

/// The newest run of the deleted container that the text names: by its whole id, else by its name, else by a short id as
/// engines show it. A text that means several containers is ambiguous: a name in two namespaces, a name that is the
/// beginning of an id, an id that a person chose and another container has for a name.
pub(super) fn chosen(
    text: &str,
    names: &[String],
    runs: &[RunDir],
) -> Result<Option<usize>, RuntimeError> {
    let is_whole = names.iter().any(|name| id_of(name) == Some(text));
    let is_by_id = |id: &str| match is_whole {
        true => id == text,
        false => text.len() >= find::SHOWN && id.starts_with(text),
    };
    let may_be_a_name = !(is_whole && find::is_of_engine(text));
    let mut meant: Vec<DeletedContainer> = Vec::new();
    for (at, (name, run)) in names.iter().zip(runs).enumerate() {
        let Some(id) = id_of(name) else { continue };
        let asks_name = may_be_a_name && at < MOST_NAMES;
        if !is_by_id(id) && !asks_name {
            continue;
        }
        let mut one = DeletedContainer::of(at, id, run);
        one.is_named = asks_name && one.identity.answers_to(text);
        let is_meant = one.is_named || is_by_id(id);
        if is_meant && !meant.iter().any(|newer| newer.is_same(&one)) {
            meant.push(one);
        }
    }
    if meant.len() < 2 {
        return Ok(meant.first().map(|one| one.at));
    }
    let few = meant.iter().take(5);
    let few: Vec<String> = few
        .filter_map(|one| Some(one.words(runs.get(one.at)?)))
        .collect();
    let text = text.chars().take(80).collect();
    let all = format!("{}; name one by its start", few.join(", "));
    Err(RuntimeError::Ambiguous(text, all))
}

/// Whether a text is this run's start as lists show it, with or without its milliseconds.
pub(super) fn began(name: &str, text: &str) -> bool {
    let start = name.get(..BEFORE_ID - 1);
    let seconds = text.strip_suffix('Z').unwrap_or(text);
    let has_seconds = seconds.len() == "20260102T030405".len();
    start.is_some_and(|start| {
        start == text
            || has_seconds
                && start
                    .strip_prefix(seconds)
                    .is_some_and(|rest| rest.starts_with('.'))
    })
}

#[cfg(test)]
mod tests {
    use super::super::read::kept_run;
    use super::*;
    use crate::audit::whole::Stage;
    use crate::audit::{self, Chain, Context, EventDetail, LifeState};
    use crate::probe::TestDir;
    use crate::runtime::runs::node_log::life;

    /// Runs of deleted containers, by id and name, the newest first.
    fn runs(dir: &TestDir, all: &[(&str, &str)]) -> (Vec<String>, Vec<RunDir>) {
        let made = all.iter().enumerate().map(|(number, (id, name))| {
            let run = kept_run(dir.0.join(format!("20260102T03040{number}.678Z-{id}")));
            std::fs::create_dir_all(run.dir()).unwrap();
            // A container's name, or `NAMESPACE/POD/NAME`; a sandbox has no NAME.
            let parts: Vec<&str> = name.split('/').collect();
            let part = |at: usize| parts.get(at).map(|part| (*part).to_owned());
            let [namespace, pod, name] = match parts.len() {
                1 => [None, None, part(0)],
                _ => [part(0), part(1), part(2)],
            };
            let context = Context {
                container: (*id).into(),
                namespace: namespace.map(Into::into),
                pod: pod.map(Into::into),
                name: name.map(Into::into),
                ..Context::default()
            };
            let event = life(EventDetail::life(LifeState::Created));
            let line = Chain::default().render("2026-01-02T03:04:05.678Z", &context, &event);
            std::fs::write(run.file(audit::NODE), line).unwrap();
            run
        });
        let runs: Vec<RunDir> = made.collect();
        (runs.iter().map(RunDir::name).collect(), runs)
    }

    #[test]
    fn a_deleted_containers_name_that_is_also_a_short_id_is_ambiguous() {
        const LONG: &str = "ff6c5f43416aa1b2c3d4";
        let dir = TestDir::new("runs-chosen");
        let (names, runs) = runs(
            &dir,
            &[(LONG, "quiet"), ("00aa", "ff"), ("11bb", &LONG[..13])],
        );
        let meant = |text: &str| {
            let at = chosen(text, &names, &runs)?;
            Ok::<_, RuntimeError>(at.and_then(|at| id_of(&names[at]).map(str::to_owned)))
        };
        assert_eq!(meant("ff").unwrap().as_deref(), Some("00aa"));
        for text in [LONG, &LONG[..12], "quiet"] {
            assert_eq!(meant(text).unwrap().as_deref(), Some(LONG), "{text}");
        }
        for text in ["f", "ff6", &LONG[..11], ""] {
            assert_eq!(meant(text).unwrap(), None, "{text}");
        }
        let said = meant(&LONG[..13]).unwrap_err().to_string();
        assert!(said.contains(LONG) && said.contains("11bb"), "{said}");
    }

    /// A sandbox of `wrap` with a deleted container's id or name does not hide its runs.
    #[test]
    fn a_run_by_another_engine_or_user_under_the_same_id_is_another_container() {
        const LONG: &str = "4b139df2fd239b6a08861fef4a934014f0dbea13788977cbc0d805c6754637d2";
        let dir = TestDir::new("runs-other");
        let (names, runs) = runs(
            &dir,
            &[
                (LONG, ""),
                (LONG, "prod"),
                ("prod", ""),
                ("mine", ""),
                ("mine", ""),
                ("ours", ""),
                ("ours", ""),
            ],
        );
        let whose = [
            ("wrap", 1001, None),
            ("docker", 0, Some("prod")),
            ("wrap", 1001, None),
            ("wrap", 1001, None),
            ("wrap", 1001, None),
            ("wrap", 1001, None),
            ("wrap", 1002, None),
        ];
        for (run, (engine, uid, name)) in runs.iter().zip(whose) {
            let mut context = run.whose();
            context.engine = Some(engine.into());
            context.name = name.map(Into::into);
            let mut what = EventDetail::life(LifeState::Created);
            if let EventDetail::Container { command, .. } = &mut what {
                *command = Some(audit::LoggedCommand {
                    arguments: Default::default(),
                    cut: Vec::new(),
                    uid,
                    gid: uid,
                });
            }
            let line = Chain::default().render("2026-01-02T03:04:05.678Z", &context, &life(what));
            std::fs::write(run.file(audit::NODE), line).unwrap();
        }
        let meant = |text: &str| chosen(text, &names, &runs);
        for text in [LONG, &LONG[..12], "prod", "ours"] {
            let said = meant(text).unwrap_err().to_string();
            assert!(said.contains("name one by its start"), "{text}: {said}");
        }
        let said = meant(LONG).unwrap_err().to_string();
        for part in [
            "20260102T030400.678Z is 4b139",
            "wrap of user 1001, 20260102T030401.678Z is 4b139",
            "(prod), docker",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        // The control: a user's runs under one id are one container's.
        assert_eq!(meant("mine").unwrap(), Some(3));
    }

    #[test]
    fn a_deleted_pod_is_found_like_a_living_one() {
        let dir = TestDir::new("runs-pods");
        let (names, runs) = runs(
            &dir,
            &[
                ("a1", "team/au"),
                ("a2", "team/au/one"),
                ("b1", "other/au"),
                ("b2", "other/au/two"),
                // Made before the first.
                ("a0", "team/au"),
                ("c1", "solo"),
            ],
        );
        let meant = |text: &str| {
            let at = chosen(text, &names, &runs)?;
            Ok::<_, RuntimeError>(at.and_then(|at| id_of(&names[at]).map(str::to_owned)))
        };
        for (text, id) in [
            ("team/au", "a1"),
            ("team/au/one", "a2"),
            ("other/au", "b1"),
            ("au/one", "a2"),
            ("two", "b2"),
            ("solo", "c1"),
        ] {
            assert_eq!(meant(text).unwrap().as_deref(), Some(id), "{text}");
        }
        for text in ["team/solo", "team/au/two", "team", "team/"] {
            assert_eq!(meant(text).unwrap(), None, "{text}");
        }
        let said = meant("au").unwrap_err().to_string();
        assert!(
            said.contains("a1 (team/au)") && said.contains("b1 (other/au)"),
            "{said}"
        );
    }

    #[test]
    fn lines_of_another_container_are_noticed() {
        let dir = TestDir::new("runs-foreign");
        let (_, runs) = runs(&dir, &[("aa", "x"), ("bb", "x")]);
        let faults = |run: &RunDir| {
            let logs = run.logs(Stage::Gone).unwrap();
            let faults = logs.faults().into_iter().map(ToString::to_string);
            faults.collect::<Vec<_>>().join("\n")
        };
        let words = "it is of container bb";
        assert!(!faults(&runs[0]).contains(words));
        std::fs::copy(runs[1].file(audit::NODE), runs[0].file(audit::NODE)).unwrap();
        assert!(faults(&runs[0]).contains(words), "{}", faults(&runs[0]));
    }

    /// Two runs of one container, whose files were swapped.
    #[test]
    fn the_log_of_another_run_of_the_same_container_is_noticed() {
        let dir = TestDir::new("runs-exchanged");
        let (names, runs) = runs(&dir, &[("aa", "x"), ("aa", "x")]);
        let words = "it is the log of another run";
        let faults = |run: &RunDir| {
            let logs = run.logs(Stage::Gone).unwrap();
            let faults = logs.faults().into_iter().map(ToString::to_string);
            faults.collect::<Vec<_>>().join("\n")
        };
        let write = |run: &RunDir, name: Option<&str>| {
            let mut what = EventDetail::life(LifeState::Created);
            if let EventDetail::Container { kept, .. } = &mut what {
                kept.extend(name.map(|name| ("run".into(), audit::hash(name.as_bytes()).into())));
            }
            let context = run.whose();
            let line = Chain::default().render("2026-01-02T03:04:05.678Z", &context, &life(what));
            std::fs::write(run.file(audit::NODE), line).unwrap();
        };
        write(&runs[0], Some(&names[0]));
        assert!(!faults(&runs[0]).contains(words));
        // A log of an earlier version does not have it.
        write(&runs[0], None);
        assert!(!faults(&runs[0]).contains(words));
        write(&runs[0], Some(&names[1]));
        assert!(faults(&runs[0]).contains(words), "{}", faults(&runs[0]));
    }
}
