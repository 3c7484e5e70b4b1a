//! Finds the deleted container that a text names.

use std::collections::BTreeMap;

use super::RunDir;
use super::read::{self, BEFORE_ID, id_of};
use crate::render::identity::ContainerIdentity;
use crate::runtime::RuntimeError;
use crate::runtime::state::find;

/// The most runs whose first line is read for a name.
const MOST_NAMES: usize = 2000;

/// The id of the deleted container that the text names: by its whole id, else by its name, else by a short id as
/// engines show it. A name that several containers have, for example in two namespaces, is ambiguous. So is a name that
/// is also the beginning of another container's id.
pub(super) fn chosen(
    text: &str,
    names: &[String],
    runs: &[RunDir],
) -> Result<Option<String>, RuntimeError> {
    let ids = || names.iter().filter_map(|name| id_of(name));
    if ids().any(|id| id == text) {
        return Ok(Some(text.to_owned()));
    }
    let mut named: Vec<(String, ContainerIdentity)> = Vec::new();
    for context in runs.iter().take(MOST_NAMES).filter_map(RunDir::context) {
        let id = context.container.clone();
        let identity = read::identity_of(context);
        // The newest of each name: a container that was remade under its name counts as the same.
        let is_other = |(_, other): &(String, ContainerIdentity)| {
            (&other.engine, other.short()) != (&identity.engine, identity.short())
        };
        if identity.answers_to(text) && named.iter().all(is_other) {
            named.push((id.to_string(), identity));
        }
    }
    let begin = ids().filter(|id| text.len() >= find::SHOWN && id.starts_with(text));
    let begin = begin.map(|id| (id.to_owned(), id.to_owned()));
    let named = named.iter().map(|(id, who)| (id.clone(), who.with_id(id)));
    // Unambiguous names, by id.
    let meant: BTreeMap<String, String> = begin.chain(named).collect();
    match meant.len() {
        0 | 1 => Ok(meant.into_keys().next()),
        _ => {
            let few: Vec<String> = meant.into_values().take(5).collect();
            let text = text.chars().take(80).collect();
            Err(RuntimeError::Ambiguous(text, few.join(", ")))
        }
    }
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
    use super::super::read::kept;
    use super::*;
    use crate::audit::whole::Stage;
    use crate::audit::{self, Chain, Context, EventDetail, LifeState};
    use crate::probe::TestDir;
    use crate::runtime::runs::node_log::life;

    /// Runs of deleted containers, by id and name, the newest first.
    fn runs(dir: &TestDir, all: &[(&str, &str)]) -> (Vec<String>, Vec<RunDir>) {
        let made = all.iter().enumerate().map(|(number, (id, name))| {
            let run = kept(dir.0.join(format!("20260102T03040{number}.678Z-{id}")));
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
        let meant = |text: &str| chosen(text, &names, &runs);
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
        let meant = |text: &str| chosen(text, &names, &runs);
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
