//! What a container has used of its budgets, as it is kept for its next run: a file of lines that the sidecar appends to.

use std::fmt;

use crate::policy::HostName;

/// Bytes sent and names looked up, over all runs that count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spent {
    /// Bytes. Never less than what was sent.
    pub upload_bytes: u64,
    /// Each name once, in the order in which they came.
    pub hosts: Vec<HostName>,
}

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SpentLine<'a> {
    /// So many bytes in all have been sent, or will have been before the next such line. The last one counts.
    Upload(u64),
    /// A name was looked up.
    Host(&'a HostName),
}

impl fmt::Display for SpentLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Upload(bytes) => writeln!(f, "upload {bytes}"),
            Self::Host(name) => writeln!(f, "host {name}"),
        }
    }
}

impl Spent {
    /// Reads the lines of a file.
    ///
    /// # Errors
    /// The number of the first line that is not understood. Nobody but a sidecar writes them, so something is wrong, and what
    /// was used is not known.
    pub fn parse<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Self, usize> {
        let mut spent = Self::default();
        let mut known = std::collections::HashSet::new();
        for (at, line) in lines.enumerate() {
            let read = match line.split_once(' ') {
                Some(("upload", bytes)) => bytes.parse().map(|b| spent.upload_bytes = b).ok(),
                Some(("host", name)) => name.parse::<HostName>().ok().map(|name| {
                    if known.insert(name.clone()) {
                        spent.hosts.push(name);
                    }
                }),
                _ => None,
            };
            read.ok_or(at + 1)?;
        }
        Ok(spent)
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SpentLine::Upload(self.upload_bytes).fmt(f)?;
        self.hosts
            .iter()
            .try_for_each(|name| SpentLine::Host(name).fmt(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = "upload 5\nhost a.test\nupload 90\nhost b.test\nhost a.test\n";
        let spent = Spent::parse(text.lines()).unwrap();
        assert_eq!(spent.upload_bytes, 90);
        assert_eq!(spent.hosts.len(), 2);
        assert_eq!(spent.to_string(), "upload 90\nhost a.test\nhost b.test\n");
        assert_eq!(Spent::parse(spent.to_string().lines()), Ok(spent));
        assert_eq!(Spent::parse("".lines()), Ok(Spent::default()));
    }

    #[test]
    fn half_a_line_is_not_taken_for_less() {
        for bad in [
            "uplo",
            "upload",
            "upload x",
            "upload -1",
            "host ..",
            "",
            "x 1",
        ] {
            let text = format!("upload 5\n{bad}\nupload 6\n");
            assert_eq!(Spent::parse(text.lines()), Err(2), "{bad}");
        }
    }
}
