//! PURE. Chooses the rows of a long list that people see: a flood of one kind leaves room for all others.

use std::collections::BTreeMap;

use super::event::WallName;

/// Most rows of one list; the rest is counted.
pub const MOST: usize = 50;

/// A kind of row: its wall, and a name that separates rows of one wall, such as a system call.
pub type RowKind<'a> = (WallName, &'a str);

/// Which of these rows are shown, and how many of each wall are not. Walls take turns, and so do kinds within a wall.
pub fn share(kinds: &[RowKind<'_>]) -> (Vec<bool>, BTreeMap<WallName, usize>) {
    let mut walls: BTreeMap<WallName, BTreeMap<&str, Vec<usize>>> = BTreeMap::new();
    for (index, (wall, kind)) in kinds.iter().enumerate() {
        let of_wall = walls.entry(*wall).or_default();
        of_wall.entry(kind).or_default().push(index);
    }
    let mut queues: BTreeMap<WallName, Vec<usize>> = walls
        .iter()
        .map(|(wall, kinds)| (*wall, in_turn(kinds.values())))
        .collect();
    let mut shown = vec![false; kinds.len()];
    let all: Vec<Vec<usize>> = queues.values().cloned().collect();
    for index in in_turn(all.iter()).into_iter().take(MOST) {
        shown[index] = true;
    }
    queues
        .values_mut()
        .for_each(|queue| queue.retain(|index| !shown[*index]));
    let hidden = queues.into_iter().map(|(wall, queue)| (wall, queue.len()));
    (shown, hidden.filter(|(_, count)| *count > 0).collect())
}

/// The first of each list, then the second of each.
fn in_turn<'a>(lists: impl Iterator<Item = &'a Vec<usize>> + Clone) -> Vec<usize> {
    let longest = lists.clone().map(Vec::len).max().unwrap_or(0);
    (0..longest)
        .flat_map(|turn| lists.clone().filter_map(move |list| list.get(turn)))
        .copied()
        .collect()
}

/// `and 12 more of network, 3 of syscalls`; `None` if all are shown.
pub fn hidden_words(hidden: &BTreeMap<WallName, usize>) -> Option<String> {
    let words = hidden
        .iter()
        .map(|(wall, count)| format!("{count} of {}", wall.as_str()));
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| format!("and more: {}", words.join(", ")))
}

/// `1 connection`, `3 connections`.
pub fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_list_is_shown_whole() {
        let kinds = [(WallName::Network, "x"); MOST];
        let (shown, hidden) = share(&kinds);
        assert!(shown.iter().all(|one| *one) && hidden.is_empty());
        assert_eq!(hidden_words(&hidden), None);
    }

    /// Former fault: fifty denied hosts hid every denied call.
    #[test]
    fn no_flood_hides_another_wall_or_another_kind() {
        let mut kinds = vec![(WallName::Network, "not-listed"); 10_000];
        kinds.push((WallName::Network, "honey"));
        kinds.extend([(WallName::Syscalls, "socket"); 300]);
        kinds.extend([
            (WallName::Syscalls, "ptrace"),
            (WallName::Resources, "limits.pids"),
        ]);
        let (shown, hidden) = share(&kinds);
        let is_shown = |kind| {
            let mut all = kinds.iter().zip(&shown);
            all.any(|(one, shown)| *one == kind && *shown)
        };
        for kind in [
            (WallName::Network, "honey"),
            (WallName::Syscalls, "ptrace"),
            (WallName::Resources, "limits.pids"),
        ] {
            assert!(is_shown(kind), "{kind:?}");
        }
        assert_eq!(shown.iter().filter(|one| **one).count(), MOST);
        let count: usize = hidden.values().sum();
        assert_eq!(count, kinds.len() - MOST);
        let words = hidden_words(&hidden).unwrap();
        assert!(words.contains(" of network, ") && words.contains(" of syscalls"));
    }
}
