//! H1, M1: the cost of a search is counted, not timed.

use super::*;
use crate::probe::search::index::tests::TestIndex;

fn looked(dir: &Path, budget: SearchBudget) -> (Result<(), String>, usize) {
    let root = rustix::fs::open(dir, OFlags::PATH, Mode::empty()).unwrap();
    let (never, meant) = (NeverList::builtin(), VisibleCredentials::new());
    let (unwanted, view) = (HiddenNames::new(never, &meant), MountView::default());
    let mut search = Search::new(&root, &unwanted, &view, budget);
    search.bases = vec![dir.to_owned()];
    let result = search.until_still();
    (result, search.inside.len())
}

fn budget(entries: usize, bytes: u64) -> SearchBudget {
    SearchBudget {
        entries,
        bytes,
        time: Duration::from_secs(600),
        rounds: 40,
        room: 64,
    }
}

fn repository(dir: &Path, index: &[u8]) {
    for name in ["objects", "refs", "info"] {
        fs::create_dir_all(dir.join(".git").join(name)).unwrap();
    }
    fs::write(dir.join(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
    fs::write(dir.join(".git/index"), index).unwrap();
}

/// M1: one directory has more entries than the budget, and is not read to its end.
#[test]
fn a_search_stops_in_the_middle_of_a_directory() {
    let scratch = TestDir::new("search-one-large");
    for number in 0..200 {
        fs::write(scratch.0.join(format!("{number}")), "").unwrap();
    }
    let root = rustix::fs::open(&scratch.0, OFlags::PATH, Mode::empty()).unwrap();
    let (never, meant) = (NeverList::builtin(), VisibleCredentials::new());
    let (unwanted, view) = (HiddenNames::new(never, &meant), MountView::default());
    let mut search = Search::new(&root, &unwanted, &view, budget(50, 1 << 20));
    assert!(search.until_still().unwrap_err().contains("more than 50"));
}

/// M1: many names of one large file, and git has each name.
#[test]
fn contents_are_read_within_the_budget() {
    let scratch = TestDir::new("search-many-links");
    let names: Vec<String> = (0..100).map(|n| format!(".ssh/{n:03}")).collect();
    fs::create_dir(scratch.0.join(".ssh")).unwrap();
    let first = fs::File::create(scratch.0.join(&names[0])).unwrap();
    first.set_len(1 << 20).unwrap();
    for name in &names[1..] {
        fs::hard_link(scratch.0.join(&names[0]), scratch.0.join(name)).unwrap();
    }
    let paths: Vec<&str> = names.iter().map(String::as_str).collect();
    repository(&scratch.0, &TestIndex::sha1(2, &paths).bytes(&[]));
    let (result, hidden) = looked(&scratch.0, budget(1000, 10 << 20));
    let why = result.unwrap_err();
    assert!(why.contains("more than 10 MiB to read"), "{why}");
    // The directory, and the files that could be read: git has another content.
    assert!(hidden <= 12, "{hidden}");
    // Neither a file over the size limit nor a file that git does not have is read.
    first.set_len((1 << 20) + 1).unwrap();
    assert_eq!(looked(&scratch.0, budget(1000, 1 << 20)).0, Ok(()));
    first.set_len(1 << 20).unwrap();
    repository(&scratch.0, &TestIndex::sha1(2, &[".ssh/none"]).bytes(&[]));
    assert_eq!(looked(&scratch.0, budget(1000, 1 << 20)).0, Ok(()));
}

/// H1: an index is read once, and counts wherever it is.
#[test]
fn indexes_are_read_within_the_budget() {
    let scratch = TestDir::new("search-many-indexes");
    let index = TestIndex::sha1(2, &["a"]).bytes(&[(b"TREE", &[0; 100_000])]);
    for number in 0..20 {
        let dir = scratch.0.join(format!("{number}"));
        repository(&dir, &index);
        for name in [".netrc", ".pgpass"] {
            fs::write(dir.join(name), "secret").unwrap();
        }
    }
    assert_eq!(looked(&scratch.0, budget(1000, 8 << 20)), (Ok(()), 40));
    let (result, hidden) = looked(&scratch.0, budget(1000, 1 << 20));
    assert!(result.unwrap_err().contains("more than 1 MiB to read"));
    assert!(hidden < 40);
}

/// H1: a deep directory takes no more memory than others, and the memory of all is limited.
#[test]
fn directories_stay_within_their_memory_budget() {
    let cost = DirTree::cost(&[b'd'; 8]);
    assert!(cost < 96, "{cost}");
    let mut cost = Cost::new(budget(1000, 1));
    let mut places = DirTree::new();
    let name = [b'd'; 250];
    let mut added = 0_u32;
    while cost.keep(DirTree::cost(&name)).is_ok() {
        places.push(added, &name, None);
        added += 1;
    }
    assert!((200_000..300_000).contains(&added), "{added}");
    assert!(cost.check().unwrap_err().contains("64 MiB of memory"));
}

#[test]
fn masks_are_limited_in_number_and_in_bytes_of_paths() {
    for (path, most) in [("a", 10_000), (&"d/".repeat(2000), 1048)] {
        let mut cost = Cost::new(budget(1, 1));
        let mut masked = 0;
        while cost.check().is_ok() {
            cost.mask(Path::new(path));
            masked += 1;
        }
        assert_eq!(masked, most + 1);
    }
}

/// Directories without entries are opened for as long as others: a search that looked at the clock by entries alone was
/// silent in them, and did not stop.
#[test]
fn the_clock_is_looked_at_in_directories_without_entries() {
    let scratch = TestDir::new("search-empty");
    for number in 0..300 {
        fs::create_dir(scratch.0.join(format!("{number}"))).unwrap();
    }
    let root = rustix::fs::open(&scratch.0, OFlags::PATH, Mode::empty()).unwrap();
    let (never, meant) = (NeverList::builtin(), VisibleCredentials::new());
    let (unwanted, view) = (HiddenNames::new(never, &meant), MountView::default());
    let mut limit = budget(1000, 1 << 20);
    limit.time = Duration::from_millis(200);
    let mut search = Search::new(&root, &unwanted, &view, limit);
    let mut listed = 0;
    // The first directory has all of the entries. Each listing of another one takes longer than a 64th of the time.
    search.hook = Some(Box::new(|_| {
        listed += 1;
        if listed > 1 {
            std::thread::sleep(Duration::from_millis(4));
        }
    }));
    let why = search.all().unwrap_err();
    assert!(why.contains("reached only"), "{why}");
    drop(search);
    assert!(listed < 200, "{listed}");
}
