//! PURE. Writable mounts, and whether a file in them was written (`report.learn`).

use std::collections::BTreeMap;

use serde::Serialize;

use super::cause::{EventCause, KnownCause};
use super::event::{Event, LogLine, Verdict, WallName};
use super::plain::PlainText;
use super::what::EventDetail;
use crate::text::escape;

/// The event that writes to a mount's files are recorded from now on. `field` is the policy field that makes it
/// writable, if any.
pub fn watched(mount: EventDetail, field: Option<&str>) -> Event {
    let why = "whether its files are written is recorded (report.learn)";
    event(mount, KnownCause::Watched.into(), why.to_owned(), field)
}

/// The event that writes to a mount's files are not recorded, for this reason.
pub fn not_watched(mount: EventDetail, error: &str) -> Event {
    let why = format!("whether its files are written is not recorded: {error}");
    event(mount, "not-watched".into(), why, None)
}

/// The event that a file of a mount was written for the first time.
pub fn written(mount: EventDetail) -> Event {
    let why = "a file in it was written".to_owned();
    event(mount, KnownCause::Written.into(), why, None)
}

fn event(mount: EventDetail, cause: EventCause, why: String, field: Option<&str>) -> Event {
    Event {
        cause: Some(cause),
        reason: Some(why.into()),
        rule: field.map(Into::into),
        ..Event::new(WallName::Filesystem, Verdict::Noted, mount)
    }
}

/// The writable mounts of one container.
#[derive(Debug, Default, Clone, Serialize, PartialEq, Eq)]
pub struct Mounts {
    /// Mounts in which a file was written.
    pub written: Vec<String>,
    /// Mounts in which no write is known.
    pub unwritten: Vec<UnwrittenMount>,
}

/// A mount in which no file was written.
#[derive(Debug, Clone, Serialize, PartialEq, Eq)]
pub struct UnwrittenMount {
    /// Its mount point.
    pub destination: String,
    /// The policy field that makes it writable, if any.
    pub field: Option<String>,
}

impl UnwrittenMount {
    /// The text of a policy that makes it read-only.
    pub fn instead(&self) -> &'static str {
        match self.field.as_deref() {
            Some("filesystem.workspace") => "filesystem.workspace = \"read-only\"",
            Some("filesystem.write") => "filesystem.write without it",
            Some("filesystem.mounts") => {
                "filesystem.mounts = \"read-only\", with filesystem.write for mounts that are written"
            }
            _ => "the engine's option for a mount that is read-only",
        }
    }
}

/// The limits of this knowledge, for people.
const AS_FAR_AS_KNOWN: &str =
    "no file in it was written (creating, renaming and removing are not recorded)";

impl Mounts {
    /// For people. `line` gets an indent and a line.
    pub fn text(&self, mut line: impl FnMut(&str, &str)) {
        if !self.written.is_empty() {
            line("", "mounts with written files:");
        }
        for destination in &self.written {
            line("  ", destination);
        }
        if !self.unwritten.is_empty() {
            line("", "mounts that may need less access:");
        }
        for one in &self.unwritten {
            let (destination, instead) = (&one.destination, one.instead());
            line("  ", &format!("{destination}: {AS_FAR_AS_KNOWN}"));
            line("    ", &format!("instead: {instead}"));
        }
    }

    /// The same as comments of a policy file, for its reader to decide.
    pub fn comments(&self) -> String {
        let mut text = String::new();
        for one in &self.unwritten {
            let destination = escape(&one.destination);
            text += &format!(
                "\n# {destination}: {AS_FAR_AS_KNOWN}. Instead: {}\n",
                one.instead()
            );
        }
        text
    }
}

/// The watched mounts in these lines. Mounts of the pod's other containers are told apart by their ids.
pub fn of(lines: &[&LogLine]) -> Mounts {
    let mut watched: BTreeMap<(&str, &str), (Option<&PlainText>, bool)> = BTreeMap::new();
    for cause in [KnownCause::Watched, KnownCause::Written] {
        let of_cause = lines.iter().filter(|line| line.event.has_cause(cause));
        for line in of_cause {
            let EventDetail::Mount { destination, .. } = &line.event.what else {
                continue;
            };
            let key = (line.context.container.as_str(), destination.as_str());
            match cause {
                KnownCause::Watched => drop(watched.insert(key, (line.event.rule.as_ref(), false))),
                _ => {
                    if let Some((_, is_written)) = watched.get_mut(&key) {
                        *is_written = true;
                    }
                }
            }
        }
    }
    let mut mounts = Mounts::default();
    for ((container, destination), (field, is_written)) in watched {
        let is_lost = |line: &&LogLine| {
            line.context.container == container && line.event.has_cause(KnownCause::SidecarLost)
        };
        match (is_written, lines.iter().copied().find(|line| is_lost(line))) {
            (true, _) => mounts.written.push(destination.to_owned()),
            (false, None) => mounts.unwritten.push(UnwrittenMount {
                destination: destination.to_owned(),
                field: field.map(PlainText::to_string),
            }),
            // Its sidecar died, so later writes are unknown.
            (false, Some(_)) => {}
        }
    }
    mounts
}

#[cfg(test)]
mod tests {
    use super::super::{Context, SCHEMA};
    use super::*;
    use crate::policy::Field;

    fn mount(destination: &str) -> EventDetail {
        EventDetail::Mount {
            destination: destination.into(),
            source: "/srv/x".into(),
        }
    }

    fn line(container: &str, event: Event) -> LogLine {
        LogLine {
            schema: SCHEMA.to_owned(),
            seq: 1,
            time: "2026-01-02T03:04:05.678Z".into(),
            context: Context {
                container: container.into(),
                ..Context::default()
            },
            event,
            prev: String::new(),
        }
    }

    fn found(lines: &[LogLine]) -> (Vec<String>, Vec<String>) {
        let found = of(&lines.iter().collect::<Vec<_>>());
        let unwritten = found.unwritten.into_iter().map(|one| one.destination);
        (found.written, unwritten.collect())
    }

    #[test]
    fn only_a_watched_mount_without_writes_is_unwritten() {
        let mut lines = vec![
            line("a", written(mount("/work"))),
            line("a", watched(mount("/work"), Some("filesystem.workspace"))),
            line("a", watched(mount("/ref"), Some("filesystem.write"))),
            line("a", not_watched(mount("/blind"), "EPERM")),
            // Another container of the pod.
            line("pod", written(mount("/ref"))),
        ];
        let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(found(&lines), (words(&["/work"]), words(&["/ref"])));
        let lost = |container| {
            let event = Event {
                cause: Some(KnownCause::SidecarLost.into()),
                ..Event::new(WallName::Network, Verdict::Ended, mount("/"))
            };
            line(container, event)
        };
        lines.push(lost("pod"));
        assert_eq!(found(&lines), (words(&["/work"]), words(&["/ref"])));
        lines.push(lost("a"));
        assert_eq!(found(&lines), (words(&["/work"]), words(&[])));
    }

    #[test]
    fn a_policy_has_these_suggestions_only_as_comments() {
        let lines = [line(
            "a",
            watched(mount("/ref\n[network]"), Some("filesystem.write")),
        )];
        let comments = of(&lines.iter().collect::<Vec<_>>()).comments();
        let read: toml::Table = comments.parse().unwrap();
        assert!(read.is_empty(), "{comments}");
        assert!(
            comments.contains("filesystem.write without it"),
            "{comments}"
        );
    }

    #[test]
    fn a_field_has_its_own_words() {
        let instead = |field: Option<&str>| {
            let field = field.map(str::to_owned);
            let destination = "/x".to_owned();
            UnwrittenMount { destination, field }.instead()
        };
        for field in [
            Field::FilesystemWorkspace,
            Field::FilesystemWrite,
            Field::FilesystemMounts,
        ] {
            let field = field.as_str();
            assert!(instead(Some(field)).starts_with(field), "{field}");
        }
        assert!(instead(None).contains("the engine's option"));
    }
}
