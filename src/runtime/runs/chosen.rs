//! Which container that is gone is meant by a text.

use std::collections::BTreeMap;

use super::RunDir;
use super::read::{self, BEFORE_ID, id_of};
use crate::render::identity::ContainerIdentity;
use crate::runtime::RuntimeError;
use crate::runtime::state::find;

/// Runs whose first line is looked at for a name.
const MOST_NAMES: usize = 2000;

/// The id that is meant, of containers that are gone: the whole id, else a name as of containers that are there, else what
/// engines show of one id alone. A name of several, in two namespaces say, means none of them, and neither does one that is the
/// beginning of another one's id.
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
        // The newest of each name: a container that was made again under it is the same to whoever types it.
        let is_other = |(_, other): &(String, ContainerIdentity)| {
            (&other.engine, other.short()) != (&identity.engine, identity.short())
        };
        if identity.answers_to(text) && named.iter().all(is_other) {
            named.push((id, identity));
        }
    }
    let begin = ids().filter(|id| text.len() >= find::SHOWN && id.starts_with(text));
    let begin = begin.map(|id| (id.to_owned(), id.to_owned()));
    let named = named.iter().map(|(id, who)| (id.clone(), who.with_id(id)));
    // What to type, by id.
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

/// Whether a text is the start of this run as lists have it, with or without its milliseconds.
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

    /// Runs of containers that are gone, by id and name, the newest first.
    fn runs(dir: &TestDir, all: &[(&str, &str)]) -> (Vec<String>, Vec<RunDir>) {
        let made = all.iter().enumerate().map(|(number, (id, name))| {
            let run = kept(dir.0.join(format!("20260102T03040{number}.678Z-{id}")));
            std::fs::create_dir_all(run.dir()).unwrap();
            // A container's name, or `NAMESPACE/POD/NAME`, of a sandbox without the name.
            let parts: Vec<&str> = name.split('/').collect();
            let part = |at: usize| parts.get(at).map(|part| (*part).to_owned());
            let [namespace, pod, name] = match parts.len() {
                1 => [None, None, part(0)],
                _ => [part(0), part(1), part(2)],
            };
            let context = Context {
                container: (*id).to_owned(),
                namespace,
                pod,
                name,
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
    fn a_name_of_a_container_that_is_gone_is_no_beginning_of_another_ones_id() {
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
    fn a_pod_that_is_gone_is_found_as_one_that_is_there() {
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
    fn lines_of_another_container_than_the_directorys_are_noticed() {
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

    /// Two runs of one container, exchanged whole.
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
                kept.extend(name.map(|name| ("run".to_owned(), audit::hash(name.as_bytes()))));
            }
            let context = run.whose();
            let line = Chain::default().render("2026-01-02T03:04:05.678Z", &context, &life(what));
            std::fs::write(run.file(audit::NODE), line).unwrap();
        };
        write(&runs[0], Some(&names[0]));
        assert!(!faults(&runs[0]).contains(words));
        // An earlier version's says nothing of it.
        write(&runs[0], None);
        assert!(!faults(&runs[0]).contains(words));
        write(&runs[0], Some(&names[1]));
        assert!(faults(&runs[0]).contains(words), "{}", faults(&runs[0]));
    }
}
