//! Keeps what is used of the budgets for the container's next run (`network.budgets-kept`).
//!
//! What is written is never less than what was used, also when the sidecar is killed: bytes are written down before they are
//! sent, in portions, and a name before it is answered.

use std::io::Write;
use std::os::fd::OwnedFd;

use crate::egress::{OverBudget, SpentLine};
use crate::policy::HostName;

/// A sixty-fourth of the budget is the most that a killed sidecar counts too much, and a file has few lines.
const PORTIONS: u64 = 64;

/// The file of one container.
#[derive(Debug)]
pub(super) struct Keeper {
    file: std::fs::File,
    /// Bytes that the file says.
    written: u64,
    portion: u64,
    most: u64,
}

impl Keeper {
    /// `sent` is what the file says already, `most` the budget.
    pub fn new(file: OwnedFd, sent: u64, most: u64) -> Self {
        Self {
            file: file.into(),
            written: sent,
            portion: (most / PORTIONS).max(1),
            most,
        }
    }

    /// So many bytes in all will have been sent.
    pub fn will_send(&mut self, total: u64) -> Result<(), OverBudget> {
        if total <= self.written {
            return Ok(());
        }
        let ahead = total.saturating_add(self.portion).min(self.most).max(total);
        self.put(&SpentLine::Upload(ahead))?;
        self.written = ahead;
        Ok(())
    }

    /// A name will be looked up.
    pub fn will_look_up(&mut self, name: &HostName) -> Result<(), OverBudget> {
        self.put(&SpentLine::Host(name))
    }

    /// The run has ended: what was sent is known.
    pub fn settle(&mut self, total: u64) {
        // If it fails, the file says more than was sent.
        let _ = self.put(&SpentLine::Upload(total));
    }

    fn put(&mut self, line: &SpentLine<'_>) -> Result<(), OverBudget> {
        let written = self.file.write_all(line.to_string().as_bytes());
        written.map_err(|_| OverBudget::Unkept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::Spent;
    use std::io::{Read, Seek};

    fn file() -> std::fs::File {
        rustix::fs::memfd_create("spent", rustix::fs::MemfdFlags::CLOEXEC)
            .unwrap()
            .into()
    }

    fn text(file: &mut std::fs::File) -> String {
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn the_file_never_says_less_than_was_sent() {
        let mut file = file();
        let mut keeper = Keeper::new(file.try_clone().unwrap().into(), 0, 6400);
        let mut sent = 0;
        for step in [1, 50, 49, 100, 1000, 5000, 200] {
            sent += step;
            keeper.will_send(sent).unwrap();
            let spent = Spent::parse(text(&mut file).lines()).unwrap();
            assert!((sent..=sent + 100).contains(&spent.upload_bytes));
            assert!(spent.upload_bytes <= 6400);
        }
        keeper.settle(sent);
        let spent = Spent::parse(text(&mut file).lines()).unwrap();
        assert_eq!(spent.upload_bytes, 6400);
    }

    #[test]
    fn a_file_has_few_lines() {
        let mut file = file();
        let mut keeper = Keeper::new(file.try_clone().unwrap().into(), 0, 1 << 20);
        for sent in (0..1 << 20).step_by(100) {
            keeper.will_send(sent).unwrap();
        }
        assert!(text(&mut file).lines().count() <= 65);
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        let flags = rustix::fs::OFlags::RDONLY;
        let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty()).unwrap();
        let mut keeper = Keeper::new(null, 0, 100);
        assert_eq!(keeper.will_send(1), Err(OverBudget::Unkept));
        let name = "a.test".parse().unwrap();
        assert_eq!(keeper.will_look_up(&name), Err(OverBudget::Unkept));
    }
}
