//! PURE. Compares promises with findings, for users and for programs.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::inside;
use super::probe::{Finding, Outcome, Probe, ProbedWall};
use super::probes;
use super::promise::Promise;
use crate::runtime::runs::verified::VerifySummary;

/// Version of the format of `--json`.
const SCHEMA: &str = "agentbox.verify/1";

/// The process that ran a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeRunner {
    /// The container's init process.
    Init,
    /// An exec process.
    Exec,
    /// The verifying process, on the node.
    Node,
}

impl ProbeRunner {
    /// In words.
    const fn name(self) -> &'static str {
        match self {
            Self::Init => "the init process",
            Self::Exec => "an exec process",
            Self::Node => "the node",
        }
    }
}

/// Whether a promise holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProbeVerdict {
    /// Promised, and it holds.
    Held,
    /// Promised, but it does not hold.
    NotHeld,
    /// Promised, but unknown.
    NotTried,
    /// Not promised; `found` has the finding.
    NotPromised,
}

/// One probe by one process.
#[derive(Debug, Serialize)]
pub struct ProbeOutcome {
    /// The probe.
    pub id: &'static str,
    /// Its wall.
    pub wall: ProbedWall,
    /// Its numbers in docs/threats.md.
    pub threats: &'static [&'static str],
    /// The process that tried.
    pub by: ProbeRunner,
    /// The attempt.
    pub tried: &'static str,
    /// The answer of a wall that holds.
    pub expected: &'static str,
    /// The verdict on the promise.
    pub verdict: ProbeVerdict,
    /// The finding.
    pub found: Finding,
    #[serde(skip)]
    means: &'static str,
    #[serde(skip)]
    remedy: &'static str,
}

/// All findings about one container.
#[derive(Debug, Serialize)]
pub struct VerifyReport {
    schema: &'static str,
    /// The subject, in words.
    subject: String,
    /// Whether a policy promised walls.
    promised: bool,
    /// What needs root's rights, and is not enforced without them.
    #[serde(rename = "not-enforced", skip_serializing_if = "Vec::is_empty")]
    not_enforced: Vec<String>,
    result: ProbeVerdict,
    probes: Vec<ProbeOutcome>,
}

impl VerifyReport {
    /// An empty report.
    pub fn new(subject: String, promise: &Promise) -> Self {
        Self {
            schema: SCHEMA,
            subject,
            promised: promise.walls.is_some(),
            not_enforced: Vec::new(),
            result: ProbeVerdict::NotTried,
            probes: Vec::new(),
        }
    }

    /// The same, with what is not enforced without root's rights.
    pub fn without(self, not_enforced: Vec<String>) -> Self {
        Self {
            not_enforced,
            ..self
        }
    }

    /// Adds the findings of a process inside. A probe with no finding, or with two, was not tried.
    pub fn add_inside(&mut self, by: ProbeRunner, promise: &Promise, found: &[(String, Finding)]) {
        for probe in probes::all().filter(|probe| inside::is_tried_inside(probe)) {
            let mut of_it = found.iter().filter(|(id, _)| id == probe.id);
            let finding = match (of_it.next(), of_it.next()) {
                (Some((_, finding)), None) => finding.clone(),
                (None, _) => Finding::not_tried("the probe process ended before it"),
                (Some(_), Some(_)) => Finding::not_tried("the probe process answered twice"),
            };
            self.add(by, promise, probe, finding);
        }
    }

    /// Adds one finding.
    pub fn add(&mut self, by: ProbeRunner, promise: &Promise, probe: &Probe, found: Finding) {
        let verdict = match ((probe.promised)(promise), found.outcome) {
            (false, _) => ProbeVerdict::NotPromised,
            (true, Outcome::Held) => ProbeVerdict::Held,
            (true, Outcome::NotHeld) => ProbeVerdict::NotHeld,
            (true, Outcome::NotTried) => ProbeVerdict::NotTried,
        };
        self.probes.push(ProbeOutcome {
            id: probe.id,
            wall: probe.wall,
            threats: probe.threats,
            by,
            tried: probe.tried,
            expected: probe.expected,
            verdict,
            found,
            means: probe.means,
            remedy: probe.remedy,
        });
        self.result = self.judge();
    }

    fn judge(&self) -> ProbeVerdict {
        let has = |verdict| self.probes.iter().any(|entry| entry.verdict == verdict);
        match () {
            () if !self.promised => ProbeVerdict::NotPromised,
            () if has(ProbeVerdict::NotHeld) => ProbeVerdict::NotHeld,
            () if has(ProbeVerdict::NotTried) || !has(ProbeVerdict::Held) => ProbeVerdict::NotTried,
            () => ProbeVerdict::Held,
        }
    }

    /// The summary for the log and the receipt.
    pub fn summary(&self) -> VerifySummary {
        let result = match self.result {
            ProbeVerdict::Held => "held",
            ProbeVerdict::NotHeld => "not-held",
            ProbeVerdict::NotTried => "not-tried",
            ProbeVerdict::NotPromised => "not-promised",
        };
        let of = |verdict| {
            self.probes
                .iter()
                .filter(move |entry| entry.verdict == verdict)
        };
        let names = |verdict| {
            let names: BTreeSet<&str> = of(verdict).map(|entry| entry.id).collect();
            names.into_iter().map(str::to_owned).collect()
        };
        VerifySummary {
            result: result.to_owned(),
            held: of(ProbeVerdict::Held).count() as u64,
            not_held: names(ProbeVerdict::NotHeld),
            not_tried: names(ProbeVerdict::NotTried),
        }
    }

    /// 0: all promises hold. 1: a promise does not hold, or there was none. 2: an attempt could not be made.
    pub fn exit_code(&self) -> u8 {
        match self.result {
            ProbeVerdict::Held => 0,
            ProbeVerdict::NotHeld | ProbeVerdict::NotPromised => 1,
            ProbeVerdict::NotTried => 2,
        }
    }

    /// The report for programs.
    ///
    /// # Errors
    /// From serde_json; none is known for these types.
    pub fn json(&self) -> serde_json::Result<String> {
        Ok(crate::text::escape_json(&serde_json::to_string_pretty(
            self,
        )?))
    }

    /// The report for users: a line for each wall, then the failed promises and the attempts that could not be made.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.subject);
        if !self.promised {
            text += "no wall was promised: it is unconfined. Results:\n";
        }
        for wall in ProbedWall::ALL {
            text += &self.wall(wall);
        }
        text += &self.not_held();
        text += &self.not_tried();
        text += &self.not_promised();
        if !self.not_enforced.is_empty() {
            text += "\nnot enforced without root's rights, and not tried:\n";
        }
        for what in &self.not_enforced {
            text += &format!("  {}\n", crate::text::escape(what));
        }
        text
    }

    /// `network       held         6 attacks, by the first process and by exec`
    fn wall(&self, wall: ProbedWall) -> String {
        let entries: Vec<&ProbeOutcome> = self.probes.iter().filter(|e| e.wall == wall).collect();
        let count = |verdict| entries.iter().filter(|e| e.verdict == verdict).count();
        let name = wall.name();
        if !self.promised {
            let absent = entries
                .iter()
                .filter(|e| e.found.outcome == Outcome::NotHeld);
            let mut ids: Vec<&str> = absent.map(|e| e.id).collect();
            ids.sort_unstable();
            ids.dedup();
            return match ids.is_empty() {
                true => format!("{name:14}no attack succeeded\n"),
                false => format!("{name:14}absent       {}\n", ids.join(", ")),
            };
        }
        let words = match (
            count(ProbeVerdict::NotHeld),
            count(ProbeVerdict::NotTried),
            count(ProbeVerdict::Held),
        ) {
            (0, 0, 0) => "not promised",
            (0, 0, _) => "held",
            (0, _, _) => "not known",
            (_, _, _) => "NOT HELD",
        };
        let mut parts = Vec::new();
        for (verdict, words) in [
            (ProbeVerdict::Held, "held"),
            (ProbeVerdict::NotHeld, "not held"),
            (ProbeVerdict::NotTried, "not tried"),
            (ProbeVerdict::NotPromised, "not promised"),
        ] {
            match count(verdict) {
                0 => {}
                many => parts.push(format!("{many} {words}")),
            }
        }
        format!("{name:14}{words:13}{}\n", parts.join(", "))
    }

    /// A paragraph for each probe that found a fault, by any process.
    fn not_held(&self) -> String {
        let mut by_probe: BTreeMap<(ProbedWall, &str, &str), Vec<&ProbeOutcome>> = BTreeMap::new();
        for entry in self.of(ProbeVerdict::NotHeld) {
            let key = (entry.wall, entry.id, entry.found.saw.as_str());
            by_probe.entry(key).or_default().push(entry);
        }
        let paragraph = |entries: &Vec<&ProbeOutcome>| {
            let entry = entries[0];
            let by: Vec<&str> = entries.iter().map(|e| e.by.name()).collect();
            format!(
                "\nnot held: {} ({}), by {}\n  tried:     {}\n  expected:  {}\n  happened:  {}\n  means:     {}\n  do:        {}\n",
                entry.id,
                entry.threats.join(", "),
                by.join(" and "),
                entry.tried,
                entry.expected,
                crate::text::escape(&entry.found.saw),
                entry.means,
                entry.remedy
            )
        };
        by_probe.values().map(paragraph).collect()
    }

    /// A paragraph for each reason why attempts could not be made: one reason may apply to all.
    fn not_tried(&self) -> String {
        let mut by_reason: BTreeMap<(ProbeRunner, &str), Vec<&ProbeOutcome>> = BTreeMap::new();
        for entry in self.of(ProbeVerdict::NotTried) {
            let key = (entry.by, entry.found.saw.as_str());
            by_reason.entry(key).or_default().push(entry);
        }
        let paragraph = |((by, saw), entries): (&(ProbeRunner, &str), &Vec<&ProbeOutcome>)| {
            let ids: Vec<&str> = entries.iter().map(|entry| entry.id).collect();
            format!(
                "\ncould not be tried by {}: {}\n  because:   {}\n",
                by.name(),
                ids.join(", "),
                crate::text::escape(saw)
            )
        };
        by_reason.iter().map(paragraph).collect()
    }

    /// The attacks against which this policy has no wall. Under `unconfined` all of them are, which the lines say.
    fn not_promised(&self) -> String {
        let mut ids: Vec<&str> = self.of(ProbeVerdict::NotPromised).map(|e| e.id).collect();
        ids.sort_unstable();
        ids.dedup();
        match ids.is_empty() || !self.promised {
            true => String::new(),
            false => format!("\nnot promised by this policy: {}\n", ids.join(", ")),
        }
    }

    fn of(&self, verdict: ProbeVerdict) -> impl Iterator<Item = &ProbeOutcome> {
        self.probes.iter().filter(move |e| e.verdict == verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::promise::PromisedWalls;

    fn promise() -> Promise {
        let mut promise = Promise {
            walls: Some(PromisedWalls::default()),
            ..Promise::default()
        };
        promise.walls.as_mut().unwrap().set_id_refused = true;
        promise.walls.as_mut().unwrap().paranoid = true;
        promise
    }

    fn all(outcome: Finding) -> Vec<(String, Finding)> {
        let inside = probes::all().filter(|probe| inside::is_tried_inside(probe));
        inside
            .map(|probe| (probe.id.to_owned(), outcome.clone()))
            .collect()
    }

    fn report(promise: &Promise, found: &[(String, Finding)]) -> VerifyReport {
        let mut report = VerifyReport::new("a test".to_owned(), promise);
        report.add_inside(ProbeRunner::Exec, promise, found);
        report
    }

    #[test]
    fn the_exit_code_is_0_only_if_all_promises_hold() {
        let held = all(Finding::held("x"));
        assert_eq!(report(&promise(), &held).exit_code(), 0);
        for (outcome, code) in [(Finding::not_held("y"), 1), (Finding::not_tried("y"), 2)] {
            for number in 0..held.len() {
                let mut found = held.clone();
                found[number].1 = outcome.clone();
                let report = report(&promise(), &found);
                let id = &found[number].0;
                let entry = report.probes.iter().find(|e| e.id == *id).unwrap();
                // Only read-only policies promise `root`.
                let is_promised = entry.verdict != ProbeVerdict::NotPromised;
                let expected = if is_promised { code } else { 0 };
                assert_eq!(report.exit_code(), expected, "{id}");
                let text = report.text();
                let (faults, rest) = text.split_once("\nnot promised by this policy: ").unwrap();
                assert_eq!(faults.contains(id.as_str()), is_promised, "{id}");
                assert_eq!(rest.contains(id.as_str()), !is_promised, "{id}: {rest}");
            }
        }
    }

    #[test]
    fn missing_and_double_findings_count_as_not_tried() {
        let held = all(Finding::held("x"));
        assert_eq!(report(&promise(), &held[1..]).exit_code(), 2);
        assert_eq!(report(&promise(), &[]).exit_code(), 2);
        let mut twice = held.clone();
        twice.push(held[0].clone());
        assert_eq!(report(&promise(), &twice).exit_code(), 2);
    }

    #[test]
    fn a_reason_appears_once_and_findings_are_escaped() {
        let text = report(&promise(), &[]).text();
        assert_eq!(text.matches("could not be tried").count(), 1, "{text}");
        assert!(
            text.contains("io-uring") && text.contains("runtime-file"),
            "{text}"
        );
        let found = all(Finding::not_held("\x1b[2J\nheld"));
        let report = report(&promise(), &found);
        assert!(!report.text().contains("\x1b") && !report.text().contains("\nheld"));
        assert!(!report.json().unwrap().contains('\x1b'));
    }

    /// The other walls hold: the exit status is about promises.
    #[test]
    fn what_needs_roots_rights_is_listed_and_not_called_held() {
        let mut report = VerifyReport::new("a test".to_owned(), &promise())
            .without(vec!["limits.pids: none\n".to_owned()]);
        report.add_inside(ProbeRunner::Exec, &promise(), &all(Finding::held("x")));
        let text = report.text();
        let end = "\nnot enforced without root's rights, and not tried:\n  limits.pids: none\\n\n";
        assert!(text.ends_with(end), "{text}");
        assert!(report.json().unwrap().contains("\"not-enforced\""));
        assert_eq!(report.exit_code(), 0);
    }

    #[test]
    fn unconfined_is_never_a_success() {
        let none = Promise::default();
        let report = report(&none, &all(Finding::not_held("open")));
        assert_eq!(report.exit_code(), 1);
        let text = report.text();
        assert!(text.contains("no wall was promised"), "{text}");
        assert!(text.contains("absent"), "{text}");
    }
}
