//! A container's usage of its budgets, kept for its next run: a file of lines, appended by the sidecar.
//!
//! Each kind of line has one length, so that the number of lines is known before, and a truncated line is recognised.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::hash::sip;
use super::names::MOST_NAMES;
use crate::policy::HostName;

/// Begins a file.
const HEAD: &str = "kept ";
/// The longest head: two numbers, of ten digits and of thirty-two.
pub const LONGEST_HEAD: u64 = 64;
/// What one run writes of bytes that are sent: the sidecar's portions, and the end.
const UPLOADS: u64 = 80;
const UPLOAD_BYTES: u64 = 28;
const HOST_BYTES: u64 = 22;
const USE_BYTES: u64 = 45;

/// Bytes sent, names looked up and requests that carried a secret, summed over all runs that count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes. Never less than what was sent.
    pub upload_bytes: u64,
    /// The names, by their numbers ([`UsageFile::number`]).
    pub hosts: BTreeSet<u64>,
    /// Uses of each secret that has a limit, by the number of its name. Never less than there were.
    pub uses: BTreeMap<u64, u64>,
}

/// The whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageFile {
    /// For how long after the end of a run it counts.
    pub seconds: u32,
    /// What the names' numbers are made with: the file's own.
    pub key: u128,
    /// What was used.
    pub spent: Usage,
}

/// One line of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpentLine {
    /// So many bytes in all have been sent, or will have been before the next such line. The last one counts.
    Upload(u64),
    /// The name with this number was looked up.
    Host(u64),
    /// The secret with this number has been used so often, or will have been before the next such line of it.
    Use(u64, u64),
}

impl fmt::Display for SpentLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Upload(bytes) => writeln!(f, "upload {bytes:020}"),
            Self::Host(number) => writeln!(f, "host {number:016x}"),
            Self::Use(number, uses) => writeln!(f, "secret {number:016x} {uses:020}"),
        }
    }
}

impl SpentLine {
    fn read(line: &str) -> Option<Self> {
        match line.split_once(' ')? {
            ("upload", bytes) if bytes.len() == 20 => bytes.parse().ok().map(Self::Upload),
            ("host", number) => hexadecimal(number).map(Self::Host),
            ("secret", rest) => match rest.split_once(' ')? {
                (number, uses) if uses.len() == 20 => {
                    Some(Self::Use(hexadecimal(number)?, uses.parse().ok()?))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

fn hexadecimal(number: &str) -> Option<u64> {
    let whole = number.len() == 16;
    whole.then(|| u64::from_str_radix(number, 16).ok())?
}

/// How long the file of a container may become that may look up so many names and has so many secrets, after what it has used.
pub fn room(hosts: u32, secrets: usize, earlier: &Usage) -> u64 {
    let hosts = u64::from(hosts.min(MOST_NAMES)).max(earlier.hosts.len() as u64);
    let uses = UPLOADS * secrets as u64 + earlier.uses.len() as u64;
    LONGEST_HEAD + UPLOADS * UPLOAD_BYTES + hosts * HOST_BYTES + uses * USE_BYTES
}

/// For how long a file counts that begins like this.
pub fn seconds_of(head: &str) -> Option<u32> {
    head.strip_prefix(HEAD)?.split(' ').next()?.parse().ok()
}

impl UsageFile {
    /// The number of a name in this file.
    pub fn number(&self, name: &HostName) -> u64 {
        sip(self.key, name.as_str().as_bytes())
    }

    /// The number of a secret in it.
    pub fn secret(&self, name: &str) -> u64 {
        sip(self.key, name.as_bytes())
    }

    /// Reads a file. A last line without its end was cut: nothing was sent or answered for it, but a name counts.
    ///
    /// # Errors
    /// The number of the first line that is not understood. Nobody but a sidecar writes them, so something is wrong, and what
    /// was used is not known.
    pub fn parse(text: &str) -> Result<Self, usize> {
        let mut lines = text.split_inclusive('\n').enumerate();
        let head = lines.next().and_then(|(_, line)| line.strip_suffix('\n'));
        let words = head.map(|head| head.split(' ').collect::<Vec<_>>());
        let key = words.and_then(|words| match words[..] {
            [_, _, key] => key.parse().ok(),
            _ => None,
        });
        let mut kept = Self {
            seconds: head.and_then(seconds_of).ok_or(1_usize)?,
            key: key.ok_or(1_usize)?,
            spent: Usage::default(),
        };
        for (at, line) in lines {
            let whole = line.strip_suffix('\n');
            match (SpentLine::read(whole.unwrap_or(line)), whole) {
                (Some(SpentLine::Upload(bytes)), _) => kept.spent.upload_bytes = bytes,
                (Some(SpentLine::Host(number)), _) => {
                    kept.spent.hosts.insert(number);
                }
                (Some(SpentLine::Use(number, uses)), _) => {
                    kept.spent.uses.insert(number, uses);
                }
                (None, Some(_)) => return Err(at + 1),
                (None, None) => kept.count_cut(line),
            }
        }
        Ok(kept)
    }

    fn count_cut(&mut self, line: &str) {
        if line.starts_with('h') {
            // Whichever it was: one that is not there yet.
            let free = (0..=u64::MAX).find(|number| !self.spent.hosts.contains(number));
            self.spent.hosts.extend(free);
        }
    }
}

impl fmt::Display for UsageFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}{} {}", self.seconds, self.key)?;
        SpentLine::Upload(self.spent.upload_bytes).fmt(f)?;
        let Usage { hosts, uses, .. } = &self.spent;
        hosts
            .iter()
            .try_for_each(|number| SpentLine::Host(*number).fmt(f))?;
        let mut uses = uses.iter();
        uses.try_for_each(|(number, uses)| SpentLine::Use(*number, *uses).fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(upload_bytes: u64, hosts: &[u64]) -> UsageFile {
        UsageFile {
            seconds: 604_800,
            key: u128::MAX,
            spent: Usage {
                upload_bytes,
                hosts: hosts.iter().copied().collect(),
                uses: [(7, 3), (u64::MAX, 0)].into(),
            },
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let first = kept(u64::MAX, &[0, 5, u64::MAX]);
        let text = first.to_string();
        assert_eq!(UsageFile::parse(&text), Ok(first));
        let more = format!("{text}{}{}", SpentLine::Upload(90), SpentLine::Host(5));
        assert_eq!(UsageFile::parse(&more), Ok(kept(90, &[0, 5, u64::MAX])));
        let head = text.lines().next().unwrap();
        assert_eq!(seconds_of(head), Some(604_800));
        assert_eq!(text.lines().count(), 7);
        let used = format!("{text}{}", SpentLine::Use(7, u64::MAX));
        assert_eq!(UsageFile::parse(&used).unwrap().spent.uses[&7], u64::MAX);
    }

    /// M4: a name is not in the file, and how long its line is does not hang on it.
    #[test]
    fn lines_have_one_length_and_no_names() {
        for number in [0, 1, u64::MAX] {
            let length = |line: SpentLine| line.to_string().len() as u64;
            assert_eq!(length(SpentLine::Upload(number)), UPLOAD_BYTES);
            assert_eq!(length(SpentLine::Host(number)), HOST_BYTES);
            assert_eq!(length(SpentLine::Use(number, number)), USE_BYTES);
        }
        let head = kept(0, &[]).to_string();
        assert!(head.lines().next().unwrap().len() < LONGEST_HEAD as usize);
        let name: HostName = "secret.example.test".parse().unwrap();
        let (one, mut two) = (kept(0, &[]), kept(0, &[]));
        two.key = 7;
        assert_ne!(one.number(&name), two.number(&name));
        assert_eq!(
            one.number(&name),
            one.number(&"Secret.example.test.".parse().unwrap())
        );
        let none = Usage::default();
        assert!(room(1_000_000, 8, &none) < 4 << 20);
        let some = Usage {
            hosts: (0..1000).collect(),
            ..Usage::default()
        };
        assert!(room(1, 0, &some) > room(1, 0, &none) && room(1, 1, &none) > room(1, 0, &none));
    }

    /// M3: whatever was cut, the container starts again, and what was used is never less.
    #[test]
    fn a_last_line_that_was_cut_is_no_reason_to_refuse() {
        let first = kept(5, &[7]);
        let text = first.to_string();
        let line = SpentLine::Upload(u64::MAX).to_string();
        for cut in 0..line.len() {
            let read = UsageFile::parse(&format!("{text}{}", &line[..cut])).unwrap();
            let whole = if cut == line.len() - 1 { u64::MAX } else { 5 };
            assert_eq!(read.spent.upload_bytes, whole, "{cut}");
        }
        let line = SpentLine::Host(9).to_string();
        for cut in 1..line.len() {
            let read = UsageFile::parse(&format!("{text}{}", &line[..cut])).unwrap();
            assert_eq!(read.spent.hosts.len(), 2, "{cut}");
        }
        // What is not at the end is not what a sidecar writes.
        let use_of = SpentLine::Use(7, 9).to_string();
        for cut in 0..use_of.len() {
            let read = UsageFile::parse(&format!("{text}{}", &use_of[..cut])).unwrap();
            let whole = if cut == use_of.len() - 1 { 9 } else { 3 };
            assert_eq!(read.spent.uses[&7], whole, "{cut}");
        }
        for bad in [
            "uplo",
            "upload",
            "upload 6",
            "host 7",
            "host ..",
            "",
            "x 1",
            "secret 7 1",
        ] {
            assert_eq!(
                UsageFile::parse(&format!("{text}{bad}\nupload 6\n")),
                Err(6),
                "{bad}"
            );
        }
        for bad in ["", "kept", "kept 5", "kept 5\n", "kept x 1\n", "x\n"] {
            assert_eq!(UsageFile::parse(bad), Err(1), "{bad}");
        }
    }
}
