//! PURE. The command of a container's init process, and the record of arguments that are too long for a line.

use data_encoding::HEXLOWER;
use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};

use super::plain::{LONGEST, PlainList, PlainText};

/// A program with its arguments, and the user who executes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Command"))]
#[serde(rename_all = "camelCase")]
pub struct LoggedCommand {
    /// The program and its arguments. Each is cut after 256 characters. After 64 items or 16 KiB, one `...` replaces the
    /// others.
    pub arguments: PlainList,
    /// The arguments that are cut in `arguments`. Absent if none is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<ArgumentCut>,
    /// The user id inside the container.
    pub uid: u32,
    /// The group id inside the container.
    pub gid: u32,
}

/// An argument that is cut in the line, or all arguments that the final `...` replaces.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Cut"))]
#[serde(rename_all = "camelCase")]
pub struct ArgumentCut {
    /// The index in `arguments`, from 0. The index of the final `...` stands for all arguments from there on, each with a
    /// zero byte after it, as in /proc/PID/cmdline.
    pub argument: usize,
    /// The uncut length, in bytes.
    pub bytes: u64,
    /// SHA-256 of these bytes: 64 hexadecimal digits.
    pub sha256: PlainText,
}

impl ArgumentCut {
    fn of<'a>(argument: usize, parts: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut digest = Context::new(&SHA256);
        let mut bytes = 0_u64;
        for part in parts {
            digest.update(part);
            bytes = bytes.saturating_add(part.len() as u64);
        }
        Self {
            argument,
            bytes,
            sha256: HEXLOWER.encode(digest.finish().as_ref()).into(),
        }
    }

    /// On one line.
    pub fn words(&self) -> String {
        let Self {
            argument,
            bytes,
            sha256,
        } = self;
        format!("[argument {argument}: {bytes} bytes, sha256 {sha256}]")
    }
}

/// The item of a [`PlainList`] for the rest of a list.
const REST: &str = "...";

impl LoggedCommand {
    /// Makes the arguments bounded and harmless on a terminal, as an image may have chosen them, and records the cuts.
    pub fn of(arguments: Vec<String>, uid: u32, gid: u32) -> Self {
        let list = PlainList::from(arguments.clone());
        // The last item of a shortened list stands for the rest.
        let is_short = list.len() < arguments.len()
            || list
                .last()
                .is_some_and(|last| *last == REST && arguments.last().is_none_or(|a| a != REST));
        let whole = list.len() - usize::from(is_short);
        let long = arguments.iter().take(whole).enumerate();
        let long = long.filter(|(_, text)| text.chars().nth(LONGEST).is_some());
        let mut cut: Vec<ArgumentCut> = long
            .map(|(at, text)| ArgumentCut::of(at, std::iter::once(text.as_bytes())))
            .collect();
        if is_short {
            let rest = arguments.iter().skip(whole);
            let rest = rest.flat_map(|text| [text.as_bytes(), b"\0"]);
            cut.push(ArgumentCut::of(whole, rest));
        }
        Self {
            arguments: list,
            cut,
            uid,
            gid,
        }
    }

    /// On one line.
    pub fn words(&self) -> String {
        let words = command_line(&self.arguments, &self.cut);
        format!("as {}:{}: {words}", self.uid, self.gid)
    }
}

/// Arguments on one line, with the cuts.
pub(super) fn command_line(arguments: &[PlainText], cut: &[ArgumentCut]) -> String {
    let mut words = arguments.join(" ");
    for cut in cut {
        words.push(' ');
        words.push_str(&cut.words());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::super::plain::MOST_ITEMS;
    use super::*;

    fn plain(arguments: &[&str]) -> (PlainList, Vec<ArgumentCut>) {
        let arguments = arguments.iter().map(|text| (*text).to_owned());
        let LoggedCommand { arguments, cut, .. } = LoggedCommand::of(arguments.collect(), 0, 0);
        (arguments, cut)
    }

    #[test]
    fn a_cut_argument_can_be_proved_by_its_hash() {
        let script = format!("{}rm -r /", "x".repeat(LONGEST));
        let (list, cut) = plain(&["sh", "-c", &script]);
        assert!(list[2].ends_with("...") && !list[2].contains("rm"));
        let [only] = &cut[..] else { panic!("{cut:?}") };
        assert_eq!((only.argument, only.bytes), (2, script.len() as u64));
        assert_eq!(only.sha256, super::super::hash(script.as_bytes()));
        assert_eq!(plain(&["sh", "-c", "true"]).1, []);
        assert_eq!(plain(&[&"x".repeat(LONGEST)]).1, []);
        assert_eq!(plain(&["..."]).1, []);
    }

    #[test]
    fn arguments_beyond_the_list_can_be_proved_by_a_hash() {
        for (count, length) in [
            (MOST_ITEMS + 3, 1),
            (2 * MOST_ITEMS, LONGEST),
            (MOST_ITEMS, 4 * LONGEST),
        ] {
            let all: Vec<String> = (0..count).map(|n| n.to_string().repeat(length)).collect();
            let all_texts: Vec<&str> = all.iter().map(String::as_str).collect();
            let (list, cut) = plain(&all_texts);
            assert!(list.len() <= MOST_ITEMS + 1, "{}", list.len());
            let Some(rest) = cut
                .iter()
                .find(|cut| cut.argument + 1 == list.len() && list[cut.argument] == REST)
            else {
                assert_eq!(list.len(), count);
                assert_eq!(cut.len(), count);
                continue;
            };
            let mut text = all[rest.argument..].join("\0");
            text.push('\0');
            assert_eq!(rest.sha256, super::super::hash(text.as_bytes()));
        }
    }
}
