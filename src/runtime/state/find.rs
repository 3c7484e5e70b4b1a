//! Finds a container by its id, its engine's name for it, or the beginning of its id, under every engine.

use std::collections::BTreeSet;

use crate::cli::GlobalOptions;
use crate::render::identity::ContainerIdentity;
use crate::runtime::RuntimeError;
use crate::runtime::state::identity;
use crate::runtime::state::record::{self, Record};
use crate::runtime::state::store::{self, ContainerPaths};
use crate::text::{DidYouMean, escape, few, nearest};

/// The shortest beginning of an id that names a container: what engines show. A shorter one could easily be another
/// container's name.
pub const SHOWN: usize = 12;

/// Whether only an engine makes such ids: 64 random hexadecimal digits. People choose the others.
pub fn is_of_engine(id: &str) -> bool {
    id.len() == 64 && is_short_id(id)
}

/// Whether engines show such a beginning of an id.
pub fn is_short_id(text: &str) -> bool {
    text.len() >= SHOWN && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// A container that the text may name.
struct Candidate<'a> {
    id: &'a str,
    name: Option<ContainerIdentity>,
}

/// Chooses by the whole id, else by a name or a short id as engines show it.
fn choose(text: &str, among: &[Candidate<'_>]) -> Result<usize, RuntimeError> {
    let all = |is: &dyn Fn(&Candidate<'_>) -> bool| -> Vec<usize> {
        (0..among.len()).filter(|i| is(&among[*i])).collect()
    };
    let is_name = |one: &Candidate<'_>| one.name.as_ref().is_some_and(|n| n.answers_to(text));
    let begins = |one: &Candidate<'_>| text.len() >= SHOWN && one.id.starts_with(text);
    let ways: [&dyn Fn(&Candidate<'_>) -> bool; 2] = [
        &|one| one.id == text,
        // A container's name may equal another one's short id: then it is ambiguous.
        &|one| is_name(one) || begins(one),
    ];
    for way in ways {
        match all(way)[..] {
            [] => {}
            [only] => return Ok(only),
            ref several => {
                let ids: Vec<&str> = several.iter().map(|i| among[*i].id).take(5).collect();
                let text = text.chars().take(80).collect();
                return Err(RuntimeError::Ambiguous(text, ids.join(", ")));
            }
        }
    }
    let named = among.iter().filter_map(|one| name(one.name.as_ref()?));
    Err(unknown(text, among.iter().map(|one| one.id), named))
}

/// The text that names a container of this identity, if it has a name.
fn name(identity: &ContainerIdentity) -> Option<String> {
    identity.pod.as_ref().or(identity.name.as_ref())?;
    Some(identity.short())
}

/// Where else the container may be, for a user. Records of root and of each user are apart.
const BY_ROOT: &str =
    "only root sees engines' containers, and one without --runtime=agentbox has no walls";
/// The same for root.
const BY_USER: &str = "`sudo -u USER agentbox` sees a user's wrap, and a container without --runtime=agentbox has no walls";

fn elsewhere_hint() -> &'static str {
    match store::is_of_ordinary_user() {
        true => BY_ROOT,
        false => BY_USER,
    }
}

/// The error for a text that names no container. With the ids that begin so, if it is too short to choose by; else with
/// the nearest name. Nobody knows the id of an engine by heart.
fn unknown<'a>(
    text: &str,
    ids: impl Iterator<Item = &'a str>,
    names: impl Iterator<Item = String>,
) -> RuntimeError {
    let all: Vec<&str> = ids.collect();
    let names: Vec<String> = names.collect();
    let chosen = all.iter().copied().filter(|id| !is_of_engine(id));
    let meant = nearest(text, names.iter().map(String::as_str).chain(chosen)).map(escape);
    let is_beginning = |id: &&str| text.len() < SHOWN && !text.is_empty() && id.starts_with(text);
    // People choose the other ids, which may have the same beginning for longer.
    let short = |id: &'a str| match is_of_engine(id) {
        true => &id[..SHOWN],
        false => id,
    };
    let ids: BTreeSet<&str> = (all.iter().copied().filter(is_beginning).map(short)).collect();
    let is_whole = is_of_engine(text);
    let text: String = text.chars().take(80).collect();
    RuntimeError::Unknown(match (ids.is_empty(), meant) {
        // Engines ask by whole ids.
        (true, _) if is_whole => text,
        (true, Some(meant)) => format!("{text}{}", DidYouMean(Some(&meant))),
        (true, None) => format!("{text}; {}", elsewhere_hint()),
        (false, _) => format!(
            "{text}; give {SHOWN} characters or the name: {}",
            few(ids, 80)
        ),
    })
}

/// The same for a text that names no run either.
pub fn unknown_run<'a>(text: &str, runs: impl Iterator<Item = &'a str>) -> RuntimeError {
    let records = match store::all() {
        Ok(records) => records,
        Err(error) => return error,
    };
    let runs: Vec<&str> = runs.collect();
    let there = records.iter().map(|record| record.id.as_str());
    let names = records.iter().map(identity::of);
    unknown(text, there.chain(runs), names.filter_map(|of| name(&of)))
}

/// Other containers that answer to this id as their name, or as their short id.
fn rivals<'a>(id: &str, among: &'a [Candidate<'a>]) -> Vec<&'a Candidate<'a>> {
    let answers = |one: &&Candidate<'_>| {
        let is_name = one.name.as_ref().is_some_and(|name| name.answers_to(id));
        one.id != id && (is_name || is_short_id(id) && one.id.starts_with(id))
    };
    among.iter().filter(answers).collect()
}

/// Refuses the id of a container if another one answers to it. People choose ids (`wrap --name`, `ctr run`), and must
/// take over no name. The ids of engines are random, so that engines read no other record.
fn check_alone(id: &str) -> Result<(), RuntimeError> {
    if is_of_engine(id) {
        return Ok(());
    }
    let records = store::all()?;
    let candidates = candidates(&records);
    let rivals = rivals(id, &candidates);
    if rivals.is_empty() {
        return Ok(());
    }
    let shown = |one: &&Candidate<'_>| match &one.name {
        Some(name) => name.with_id(one.id),
        None => one.id.to_owned(),
    };
    let few: Vec<String> = rivals.iter().take(5).map(shown).collect();
    let id: String = id.chars().take(80).collect();
    let all = format!(
        "the id {id} (use `agentbox --root DIR`, or the start of its run), {} (use the id)",
        few.join(", ")
    );
    Err(RuntimeError::Ambiguous(id, all))
}

fn candidates(records: &[Record]) -> Vec<Candidate<'_>> {
    fn candidate(record: &Record) -> Candidate<'_> {
        Candidate {
            id: &record.id,
            name: Some(identity::of(record)),
        }
    }
    records.iter().map(candidate).collect()
}

/// The container that the text names.
pub fn container(text: &str) -> Result<Record, RuntimeError> {
    // An engine's id tells where it is, so no other record is read.
    if let [only] = &store::with_id(text)?[..] {
        check_alone(text)?;
        return Record::read(only);
    }
    let mut records = store::all()?;
    let chosen = choose(text, &candidates(&records))?;
    Ok(records.swap_remove(chosen))
}

/// A container's paths: in this `--root`. If no `--root` was given and it has no such container, in any engine's.
pub fn place(global: &GlobalOptions, text: &str) -> Result<ContainerPaths, RuntimeError> {
    let own = ContainerPaths::new(&global.root, text);
    let is_there =
        |place: &ContainerPaths| place.dir().exists() || place.libcontainer_dir().exists();
    if global.root_given {
        return own;
    }
    if own.as_ref().is_ok_and(is_there) {
        check_alone(text)?;
        return own;
    }
    match elsewhere(text) {
        // The verb's own error, which engines read; an invalid id is no name either.
        Err(RuntimeError::Unknown(_)) => own,
        other => other,
    }
}

fn elsewhere(text: &str) -> Result<ContainerPaths, RuntimeError> {
    // Also a container whose record this version cannot read: it must be possible to delete it.
    if let [only] = &store::with_id(text)?[..]
        && let Some(root) = record::root(only)
    {
        check_alone(text)?;
        return ContainerPaths::new(&root, text);
    }
    let record = container(text)?;
    ContainerPaths::new(&record.root, &record.id)
}

/// The container whose sidecar serves this one's network: itself, or the first of its pod.
pub fn network_of(record: Record) -> Result<Record, RuntimeError> {
    let Some(shared) = record.shared_network() else {
        return Ok(record);
    };
    // By its id under the same `--root`, or the only one of its id; never by a name or the beginning of an id.
    let first = ContainerPaths::new(&record.root, &shared.container)
        .and_then(|place| Record::read(&place.dir()))
        .or_else(|error| match &store::with_id(&shared.container)?[..] {
            [only] => Record::read(only),
            _ => Err(error),
        });
    first.map_err(|error| RuntimeError::State {
        verb: "find the network of",
        id: record.id.clone(),
        why: format!(
            "container {}, whose network it is in: {error}",
            shared.container
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn among<'a>(all: &[(&'a str, Option<&str>)]) -> Vec<Candidate<'a>> {
        let candidate = |(id, name): &(&'a str, Option<&str>)| Candidate {
            id,
            name: name.map(|name| ContainerIdentity {
                name: Some(name.to_owned()),
                ..ContainerIdentity::default()
            }),
        };
        all.iter().map(candidate).collect()
    }

    const LONG: &str = "4b139df2fd239b6a08861fef4a934014f0dbea13788977cbc0d805c6754637d2";

    #[test]
    fn an_id_comes_before_a_name_and_a_too_short_beginning_matches_none() {
        let all = among(&[("web", None), (LONG, Some("web")), ("other", Some("4b13"))]);
        let chosen = |text| choose(text, &all).ok();
        assert_eq!(chosen("web"), Some(0));
        assert_eq!(chosen("4b13"), Some(2));
        assert_eq!(chosen("4b1"), None);
        assert_eq!(chosen(&LONG[..12]), Some(1));
        assert_eq!(chosen("nobody"), None);
        assert_eq!(chosen(""), None);
    }

    /// M2: a name that equals another container's short id takes nothing over.
    #[test]
    fn a_name_does_not_take_over_another_containers_short_id() {
        let thief = &LONG[..12];
        let all = among(&[(LONG, Some("agent")), ("c0ffee", Some(thief))]);
        let said = choose(thief, &all).unwrap_err().to_string();
        assert!(said.contains(LONG) && said.contains("c0ffee"), "{said}");
        assert_eq!(choose(LONG, &all).ok(), Some(0));
        assert_eq!(choose("agent", &all).ok(), Some(0));
        // Both name and id match the same container.
        let own = among(&[(LONG, Some(thief))]);
        assert_eq!(choose(thief, &own).ok(), Some(0));
    }

    /// The same for an id that a person chose: `wrap --name web` beside Docker's container web.
    #[test]
    fn an_id_that_a_person_chose_takes_over_no_name_and_no_short_id() {
        let short = &LONG[..12];
        let all = among(&[
            ("web", None),
            (LONG, Some("web")),
            (short, None),
            ("job-of-the-night", None),
            ("job-of-the-night-2", None),
        ]);
        let of = |id| {
            rivals(id, &all)
                .iter()
                .map(|one| one.id)
                .collect::<Vec<_>>()
        };
        assert_eq!(of("web"), [LONG]);
        assert_eq!(of(short), [LONG]);
        // The control: as under runc, where an id may begin like another one.
        assert_eq!(of("job-of-the-night"), [""; 0]);
        assert!(is_of_engine(LONG) && !is_of_engine(short) && !is_of_engine("web"));
    }

    #[test]
    fn less_than_a_short_id_matches_none() {
        let all = among(&[(LONG, Some("agent"))]);
        let is_known = |text| choose(text, &all).is_ok();
        assert!(is_known("agent") && is_known(LONG) && is_known(&LONG[..12]));
        assert!(!is_known("4") && !is_known(&LONG[..11]));
    }

    /// `explain 4b139df2` of a running container said that it does not exist.
    #[test]
    fn less_than_a_short_id_is_an_error_with_the_ids_that_begin_so() {
        let other = LONG.replace("fd23", "0000");
        let all = among(&[
            (LONG, Some("agent")),
            (&other, None),
            ("4b13-job-of-mine", None),
        ]);
        let error = |text| choose(text, &all).unwrap_err();
        let said = |text| error(text).to_string();
        assert_eq!(
            said("4b139df2"),
            "container does not exist: 4b139df2; give 12 characters or the name: 4b139df20000, 4b139df2fd23"
        );
        assert!(said("4b13").ends_with(": 4b13-job-of-mine, 4b139df20000, 4b139df2fd23"));
        for text in ["", "5", "4b139df2fd24", "4b139df2fd23x"] {
            let hint = elsewhere_hint();
            assert_eq!(
                said(text),
                format!("container does not exist: {text}; {hint}")
            );
        }
        let whole = LONG.replace('4', "5");
        assert_eq!(said(&whole), format!("container does not exist: {whole}"));
        // Callers go on with deleted containers, and engines read the first words.
        assert!(matches!(error("4b139df2"), RuntimeError::Unknown(_)));
    }

    /// `explain agnt` said that it does not exist, beside a container agent.
    #[test]
    fn an_unknown_name_has_the_nearest_name_and_never_the_nearest_id_of_an_engine() {
        let all = among(&[(LONG, Some("agent")), ("nightly", None), ("b", Some("x/y"))]);
        let said = |text| choose(text, &all).unwrap_err().to_string();
        assert_eq!(
            said("agnt"),
            "container does not exist: agnt; did you mean agent?"
        );
        assert!(said("nigthly").ends_with("did you mean nightly?"));
        assert!(said("something").contains("has no walls"), "the control");
        let other = LONG.replace("4b13", "4b14");
        assert_eq!(said(&other), format!("container does not exist: {other}"));
    }

    /// Root was told that only root sees it.
    #[test]
    fn root_is_told_of_users_containers_and_not_that_root_alone_sees_others() {
        // No test settles the records as a user's.
        assert_eq!(elsewhere_hint(), BY_USER);
        assert!(BY_USER.contains("sudo -u USER") && !BY_USER.contains("only root"));
    }

    #[test]
    fn an_ambiguous_name_lists_the_ids() {
        let all = among(&[("a1", Some("app")), ("b2", Some("app"))]);
        let said = choose("app", &all).unwrap_err().to_string();
        assert!(said.contains("a1, b2"), "{said}");
    }
}
