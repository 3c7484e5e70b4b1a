//! Moves by other processes during a search (F2-H3, MEDIUM-3).

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Mode, OFlags};

use super::*;

const KEY: &str = "x/.aws";

/// `a` is listed before `z`. The directory `first` contains credentials.
fn two(name: &str, first: &str) -> TestDir {
    let scratch = TestDir::new(name);
    for dir in ["a", "z", &format!("{first}/{KEY}")] {
        fs::create_dir_all(scratch.0.join(dir)).unwrap();
    }
    scratch
}

/// Searches, and calls `hook` after each listing of a directory.
fn with_hook(
    dir: &Path,
    rounds: usize,
    hook: impl FnMut(&Path),
) -> (Result<(), String>, Vec<String>) {
    let root = open(dir);
    let (never, meant, view) = (
        NeverList::builtin(),
        VisibleCredentials::new(),
        MountView::default(),
    );
    let unwanted = HiddenNames::new(never, &meant);
    let budget = SearchBudget {
        rounds,
        ..SearchBudget::of(SearchRule::Complete)
    };
    let mut search = Search::new(&root, &unwanted, &view, budget);
    search.bases = vec![PathBuf::new()];
    search.hook = Some(Box::new(hook));
    let result = search.until_still();
    search.finish();
    let found = search.inside.iter().map(|i| i.path.display().to_string());
    (result, found.collect())
}

/// Moves `x` into the listed directory from the other one.
fn follow(dir: &Path, listed: &Path) {
    let other = match listed.to_str() {
        Some("a") => "z",
        Some("z") => "a",
        _ => return,
    };
    fs::rename(dir.join(other).join("x"), dir.join(listed).join("x")).ok();
}

#[test]
fn a_directory_that_moves_into_a_listed_one_is_found() {
    for first in ["a", "z"] {
        let scratch = two("search-moves-once", first);
        let dir = &scratch.0;
        let mut moves = 1;
        let (result, found) = with_hook(dir, 40, |listed| {
            if moves > 0 && listed.to_str().is_some_and(|l| l == "a" || l == "z") {
                moves -= 1;
                follow(dir, listed);
            }
        });
        assert_eq!(result, Ok(()));
        let there = ["a", "z"].map(|d| format!("{d}/{KEY}"));
        let there: Vec<_> = there.into_iter().filter(|p| dir.join(p).exists()).collect();
        assert_eq!(found, there, "{first}");
    }
}

/// Each of the two is listed while `x` is in the other.
#[test]
fn a_directory_that_never_holds_still_is_refused() {
    let scratch = two("search-moves", "z");
    let dir = &scratch.0;
    let (result, _) = with_hook(dir, 6, |listed| follow(dir, listed));
    let why = result.unwrap_err();
    assert!(
        why.contains("change while") && why.contains("\"a\""),
        "{why}"
    );
}

/// The control: one look at each directory misses a move from the last listed to the first.
#[test]
fn one_look_misses_what_moves() {
    let missed = ["a", "z"].map(|first| {
        let scratch = two("search-moves-control", first);
        let dir = &scratch.0;
        let root = open(dir);
        let (never, meant, view) = (
            NeverList::builtin(),
            VisibleCredentials::new(),
            MountView::default(),
        );
        let unwanted = HiddenNames::new(never, &meant);
        let budget = SearchBudget::of(SearchRule::Complete);
        let mut search = Search::new(&root, &unwanted, &view, budget);
        search.bases = vec![PathBuf::new()];
        search.hook = Some(Box::new(|listed| follow(dir, listed)));
        search.all().unwrap();
        search.inside.is_empty()
    });
    assert!(missed.contains(&true), "{missed:?}");
}

/// Results in a directory that is gone are dropped: their masks would refuse the start.
#[test]
fn a_renamed_directory_is_reported_by_its_new_name_only() {
    let scratch = two("search-renamed", "a");
    let dir = &scratch.0;
    let (result, found) = with_hook(dir, 40, |listed| {
        if listed == Path::new("a/x") {
            fs::rename(dir.join("a"), dir.join("b")).ok();
        }
    });
    assert_eq!((result, found), (Ok(()), vec![format!("b/{KEY}")]));
}

/// A build that changes one directory all the time does not end a search. Neither does one that sometimes changes two.
#[test]
fn a_busy_workspace_is_searched() {
    let scratch = two("search-busy", "z");
    let dir = &scratch.0;
    let mut count = 0;
    let (result, found) = with_hook(dir, 40, |_| {
        count += 1;
        let made = dir.join("a/made");
        match count % 3 {
            0 => fs::create_dir(&made).ok(),
            _ => fs::remove_dir(&made).ok(),
        };
        fs::write(dir.join("a").join(count.to_string()), "").unwrap();
        if count < 9 {
            fs::write(dir.join("z").join(count.to_string()), "").unwrap();
        }
    });
    assert_eq!((result, found), (Ok(()), vec![format!("z/{KEY}")]));
    for number in 0..300 {
        fs::create_dir_all(dir.join(format!("{number}/below"))).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let made = dir.join("zz-made");
                fs::create_dir(&made).unwrap();
                fs::remove_dir(&made).unwrap();
            }
        });
        let found: Vec<_> = (0..5).map(|_| searched(dir).unsearched).collect();
        done.store(true, Ordering::Relaxed);
        assert!(found.iter().all(Option::is_none), "{found:?}");
    });
}

/// A build that makes and removes directories in several places without a pause: a search waits for a quiet moment
/// (forty rounds were too few).
#[test]
fn several_directories_that_change_all_the_time_are_searched_in_a_quiet_moment() {
    let scratch = two("search-several", "z");
    let dir = &scratch.0;
    let mut count = 0;
    let rounds = SearchBudget::of(SearchRule::Complete).rounds;
    let (result, found) = with_hook(dir, rounds, |_| {
        count += 1;
        for place in ["a/made", "z/made"] {
            let made = dir.join(place);
            if count < 300 && fs::create_dir(&made).is_err() {
                fs::remove_dir(&made).unwrap();
            }
        }
    });
    assert!(count > 300, "{count}");
    assert_eq!((result, found), (Ok(()), vec![format!("z/{KEY}")]));
}

/// A build may remove a directory between its opening and its listing: no reason to refuse a start.
#[test]
fn a_directory_that_is_removed_after_its_opening_is_ignored() {
    let scratch = two("search-removed", "z");
    let dir = &scratch.0;
    let gone = rustix::fs::open(dir.join("a"), OFlags::RDONLY, Mode::empty()).unwrap();
    let root = open(dir);
    let (never, meant, view) = (
        NeverList::builtin(),
        VisibleCredentials::new(),
        MountView::default(),
    );
    let unwanted = HiddenNames::new(never, &meant);
    let mut search = Search::new(
        &root,
        &unwanted,
        &view,
        SearchBudget::of(SearchRule::Complete),
    );
    let gone = Directory {
        number: 0,
        fd: &gone,
    };
    fs::remove_dir(dir.join("a")).unwrap();
    let listing = search.list(&gone, &mut Box::new_uninit_slice(NAMES));
    assert_eq!(listing.map(|listing| listing.new), Ok(0));
}

/// A real race: each search finds the credential, or is refused.
#[test]
fn no_search_misses_a_credential_in_a_race() {
    let scratch = two("search-race", "z");
    let dir = &scratch.0;
    for number in 0..200 {
        fs::create_dir(dir.join(format!("{number}"))).unwrap();
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                fs::rename(dir.join("z/x"), dir.join("a/x")).unwrap();
                fs::rename(dir.join("a/x"), dir.join("z/x")).unwrap();
            }
        });
        let missed = (0..10).filter(|_| {
            let facts = searched(dir);
            facts.unsearched.is_none() && facts.inside.is_empty()
        });
        let missed = missed.count();
        done.store(true, Ordering::Relaxed);
        assert_eq!(missed, 0);
    });
    assert_eq!(found(&searched(dir)), [format!("z/{KEY}")]);
}
