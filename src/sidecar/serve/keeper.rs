//! Keeps what is used of the budgets for the container's next run (`network.budgets-kept`).
//!
//! The file never has less than the real usage, even if the sidecar is killed: bytes are written down before they are
//! sent, in portions, and a name before it is answered. Lines are written whole or not at all, and after one that was
//! not nothing is written any more.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::OwnedFd;

use crate::egress::{OverBudget, SpentLine, Usage};

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
    /// Uses that it says, of each secret.
    uses: BTreeMap<u64, u64>,
    /// How many bytes the file may still become longer.
    room: u64,
}

impl Keeper {
    /// `spent` is what the file says already, `most` the budget.
    pub fn new(file: OwnedFd, spent: &Usage, most: u64, room: u64) -> Self {
        Self {
            file: file.into(),
            written: spent.upload_bytes,
            uses: spent.uses.clone(),
            portion: (most / PORTIONS).max(1),
            most,
            room,
        }
    }

    /// So many bytes in all will have been sent.
    pub fn will_send(&mut self, total: u64) -> Result<(), OverBudget> {
        if total <= self.written {
            return Ok(());
        }
        let ahead = total.saturating_add(self.portion).min(self.most).max(total);
        self.put(SpentLine::Upload(ahead))?;
        self.written = ahead;
        Ok(())
    }

    /// The name with this number will be looked up.
    pub fn will_look_up(&mut self, number: u64) -> Result<(), OverBudget> {
        self.put(SpentLine::Host(number))
    }

    /// The secret with this number will have been used so often, of so many times that it may be.
    pub fn will_use(&mut self, number: u64, used: u64, limit: u32) -> Result<(), OverBudget> {
        if used <= self.uses.get(&number).copied().unwrap_or(0) {
            return Ok(());
        }
        let limit = u64::from(limit);
        let ahead = (used + limit / PORTIONS).min(limit).max(used);
        self.put(SpentLine::Use(number, ahead))?;
        self.uses.insert(number, ahead);
        Ok(())
    }

    /// The run has ended: how often the secret was used is known.
    pub fn settle_uses(&mut self, number: u64, used: u64) {
        if self.uses.get(&number).is_some_and(|said| *said != used) {
            let _ = self.put(SpentLine::Use(number, used));
        }
    }

    /// The run has ended: what was sent is known.
    pub fn settle(&mut self, total: u64) {
        // If it fails, the file says more than was sent.
        let _ = self.put(SpentLine::Upload(total));
    }

    fn put(&mut self, line: SpentLine) -> Result<(), OverBudget> {
        let line = line.to_string();
        let length = line.len() as u64;
        let left = self.room.checked_sub(length).ok_or(OverBudget::Unkept)?;
        // A write that fails may have written a part.
        self.room = 0;
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|_| OverBudget::Unkept)?;
        self.room = left;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::{UsageFile, room};
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

    const HEAD: &str = "kept 60 5\n";

    fn keeper(file: &std::fs::File, most: u64, room: u64) -> Keeper {
        Keeper::new(
            file.try_clone().unwrap().into(),
            &Usage::default(),
            most,
            room,
        )
    }

    fn spent(file: &mut std::fs::File) -> u64 {
        let kept = UsageFile::parse(&format!("{HEAD}{}", text(file))).unwrap();
        kept.spent.upload_bytes
    }

    #[test]
    fn the_file_never_says_less_than_was_sent() {
        let mut file = file();
        let mut keeper = keeper(&file, 6400, 1 << 20);
        let mut sent = 0;
        for step in [1, 50, 49, 100, 1000, 5000, 200] {
            sent += step;
            keeper.will_send(sent).unwrap();
            let said = spent(&mut file);
            assert!((sent..=sent + 100).contains(&said) && said <= 6400);
        }
        keeper.settle(sent);
        assert_eq!(spent(&mut file), 6400);
    }

    #[test]
    fn a_file_has_few_lines() {
        let mut file = file();
        let mut keeper = keeper(&file, 1 << 20, room(0, 0, &Usage::default()));
        for sent in (0..1 << 20).step_by(100) {
            keeper.will_send(sent).unwrap();
        }
        keeper.settle(1 << 20);
        assert!(text(&mut file).lines().count() <= 66);
    }

    /// M3: nothing is written that there is no room for, and no line in part.
    #[test]
    fn a_line_is_written_whole_or_not_at_all() {
        let mut file = file();
        let mut keeper = keeper(&file, 100, 100);
        for number in 0..4 {
            assert_eq!(keeper.will_look_up(number), Ok(()), "{number}");
        }
        assert_eq!(keeper.will_look_up(4), Err(OverBudget::Unkept));
        assert_eq!(keeper.will_send(1), Err(OverBudget::Unkept));
        let text = text(&mut file);
        assert!(text.len() <= 100 && text.ends_with('\n'), "{text}");
        let kept = UsageFile::parse(&format!("{HEAD}{text}")).unwrap();
        assert_eq!(kept.spent.hosts.len(), 4);
    }

    /// M4: the room that the runtime gives is enough for every name of the budget and for all that is sent.
    #[test]
    fn there_is_room_for_the_whole_budget() {
        let file = file();
        let room = room(500, 2, &Usage::default()) - HEAD.len() as u64;
        let mut keeper = keeper(&file, 1 << 30, room);
        for number in 0..500 {
            keeper.will_look_up(number).unwrap();
        }
        for sent in 0..=1024 {
            keeper.will_send(sent << 20).unwrap();
        }
        for (secret, limit) in [(1, 40), (2, 1000)] {
            for used in 1..=limit {
                keeper.will_use(secret, used.into(), limit).unwrap();
            }
            keeper.settle_uses(secret, limit.into());
        }
        keeper.settle(1 << 30);
    }

    #[test]
    fn the_file_never_says_less_than_a_secret_was_used() {
        let mut file = file();
        let mut keeper = keeper(&file, 6400, 1 << 20);
        let said = |file: &mut std::fs::File| {
            let kept = UsageFile::parse(&format!("{HEAD}{}", text(file))).unwrap();
            kept.spent.uses[&9]
        };
        for used in 1..=640 {
            keeper.will_use(9, used, 640).unwrap();
            assert!((used..=used + 10).contains(&said(&mut file)), "{used}");
        }
        keeper.will_use(9, 641, 6400).unwrap();
        keeper.settle_uses(9, 641);
        assert_eq!(said(&mut file), 641);
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        let flags = rustix::fs::OFlags::RDONLY;
        let null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty()).unwrap();
        let mut keeper = Keeper::new(null, &Usage::default(), 100, 1000);
        assert_eq!(keeper.will_send(1), Err(OverBudget::Unkept));
        assert_eq!(keeper.will_look_up(1), Err(OverBudget::Unkept));
    }
}
