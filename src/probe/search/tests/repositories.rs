//! Files that git has stay visible, other contents of them are distinguished, and git is told about the rest.

use super::*;
use crate::plan::{GitState, UntrackedFile, VisibleFile, VisibleKind};
use crate::probe::search::index::tests::TestIndex;

/// A work tree, and files beside it.
struct Work(TestDir);

impl Work {
    fn new(name: &str) -> Self {
        let work = Self(TestDir::new(name));
        work.repository(".git");
        work
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.0.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Makes a directory a repository.
    fn repository(&self, at: &str) {
        for name in ["objects", "refs", "info"] {
            fs::create_dir_all(self.0.0.join(at).join(name)).unwrap();
        }
        self.write(&format!("{at}/HEAD"), "ref: refs/heads/main\n");
    }

    fn index(&self, at: &str, paths: &[&str]) {
        self.write(
            &format!("{at}/index"),
            TestIndex::sha1(2, paths).bytes(&[(b"TREE", b"x")]),
        );
    }

    /// The hidden paths, each with git's view of it.
    fn hidden(&self) -> Vec<(String, GitState)> {
        let inside = searched(&self.0.0).inside.into_iter();
        let told = inside.map(|i| (i.path.to_str().unwrap().to_owned(), i.git));
        told.collect()
    }

    /// The visible files of a hidden directory.
    fn seen(&self, path: &str) -> Vec<String> {
        let inside = searched(&self.0.0).inside;
        let found = inside.iter().find(|i| i.path == Path::new(path)).unwrap();
        let seen = found.seen.iter().map(|s| s.path.display().to_string());
        let mut seen: Vec<_> = seen.collect();
        seen.sort();
        seen
    }

    /// git's view of a path: `EXCLUDE: NAME`, or the state.
    fn told(&self, path: &str) -> String {
        let hidden = self.hidden();
        let found = hidden.iter().find(|(own, _)| own == path);
        match &found
            .unwrap_or_else(|| panic!("{path} is seen: {hidden:?}"))
            .1
        {
            GitState::Nothing => "nothing".to_owned(),
            GitState::Changed => "changed".to_owned(),
            GitState::Untold(why) => why.clone(),
            GitState::Untracked(UntrackedFile { exclude, name }) => {
                format!("{}: {}", exclude.display(), name.display())
            }
        }
    }
}

#[test]
fn a_file_that_git_has_with_the_same_content_is_visible() {
    let work = Work::new("search-git");
    // In the test's index the content of each file is its name.
    work.index(".git", &[".aws/config", ".netrc", ".npmrc", "sub/.netrc"]);
    work.write(".aws/config", ".aws/config");
    work.write(".aws/credentials", "secret");
    work.write(".netrc", ".netrc");
    work.write(".npmrc", "_authToken=secret");
    work.write("sub/.netrc", "secret");
    work.write("other/.npmrc", "save-exact=true");
    work.write("other/.netrc", ".netrc");
    work.write(".ssh/id", "secret");
    let hidden = work.hidden();
    let names: Vec<_> = hidden.iter().map(|(name, _)| name.as_str()).collect();
    const HIDDEN: [&str; 5] = [".aws", ".npmrc", ".ssh", "other/.netrc", "sub/.netrc"];
    assert_eq!(names, HIDDEN);
    for (name, told) in [
        // git has a file in it, and does not miss the rest.
        (".aws", "nothing"),
        (".npmrc", "changed"),
        (".ssh", ".git/info/exclude: .ssh"),
        ("other/.netrc", ".git/info/exclude: other/.netrc"),
        ("sub/.netrc", "changed"),
    ] {
        assert_eq!(work.told(name), told);
    }
    assert_eq!(work.seen(".aws"), ["config"]);
    // A directory of that name is not a repository yet. A repository inside has its own files.
    fs::create_dir_all(work.0.0.join("other/.git")).unwrap();
    work.index("other/.git", &[".netrc"]);
    assert_eq!(work.told("other/.netrc"), ".git/info/exclude: other/.netrc");
    work.repository("other/.git");
    assert_eq!(work.hidden().len(), HIDDEN.len() - 1);
    work.write("other/.netrc", "secret");
    work.write("other/.pgpass", "secret");
    assert_eq!(work.told("other/.netrc"), "changed");
    assert_eq!(
        work.told("other/.pgpass"),
        "other/.git/info/exclude: .pgpass"
    );
}

#[test]
fn an_unknown_state_of_git_is_reported_with_the_reason() {
    let work = Work::new("search-git-untold");
    work.write(".aws/config", "secret");
    work.write("a/.netrc", "secret");
    let both = |expect: &str| {
        for name in [".aws", "a/.netrc"] {
            let told = work.told(name);
            assert!(told.contains(expect), "{name}: {told}");
        }
    };
    // Nothing was ever added.
    both(".git/info/exclude: ");
    work.write(".git/index", "no index");
    both("not understood");
    let link = [&[7; 20][..], &[0; 4]].concat();
    work.write(
        ".git/index",
        TestIndex::sha1(2, &[]).bytes(&[(b"link", &link)]),
    );
    both("missing");
    work.write(
        ".git/index",
        TestIndex::sha1(3, &["a/"]).bytes(&[(b"sdir", b"")]),
    );
    assert!(work.told("a/.netrc").contains("sparse-checkout"));
    assert_eq!(work.told(".aws"), ".git/info/exclude: .aws");
    // Larger than the limit, but sparse on the disk.
    let index = fs::File::create(work.0.0.join(".git/index")).unwrap();
    index.set_len((128 << 20) + 1).unwrap();
    both("larger than 128 MiB");
}

#[test]
fn a_split_index_and_sha256_are_read() {
    let work = Work::new("search-git-forms");
    work.write(".netrc", ".netrc");
    work.write("a/.netrc", "secret");
    let paths = [".netrc", "a/.netrc"];
    let made = TestIndex {
        version: 4,
        width: 32,
        paths: &paths,
    };
    work.write(".git/index", made.bytes(&[]));
    let changed = [("a/.netrc".to_owned(), GitState::Changed)];
    assert_eq!(work.hidden(), changed);
    let name = "07".repeat(20);
    work.index(".git", &paths);
    let git = work.0.0.join(".git");
    fs::rename(git.join("index"), git.join(format!("sharedindex.{name}"))).unwrap();
    work.write(
        ".git/index",
        TestIndex::sha1(2, &[]).bytes(&[(b"link", &[7; 20])]),
    );
    assert_eq!(work.hidden(), changed);
}

#[test]
fn a_file_that_git_skips_is_only_hidden() {
    let work = Work::new("search-git-skipped");
    let mut index = TestIndex::sha1(3, &[".netrc"]).bytes(&[]);
    work.write(".netrc", "secret");
    work.write(".git/index", &index);
    assert_eq!(work.told(".netrc"), "changed");
    // Set the extended bit, and skip-worktree in the two bytes that it adds.
    index[12 + 60] |= 0x40;
    index.splice(12 + 62..12 + 62, [0x40, 0]);
    // 62 + 2 + 7 of 72 bytes, of which the last are zeros.
    index.drain(12 + 64 + 8..12 + 64 + 10);
    work.write(".git/index", &index);
    assert_eq!(work.told(".netrc"), "nothing");
    // With sparse checkout git looks at the files that exist.
    work.write(".git/info/sparse-checkout", "/*\n");
    assert_eq!(work.told(".netrc"), "changed");
}

#[test]
fn a_repository_is_where_git_finds_it() {
    let work = Work::new("search-git-places");
    // A submodule.
    work.repository(".git/modules/sub");
    work.write("sub/.git", "gitdir: ../.git/modules/sub\n");
    work.write("sub/.netrc", "secret");
    assert_eq!(
        work.told("sub/.netrc"),
        ".git/modules/sub/info/exclude: .netrc"
    );
    // A second work tree, which has its own index, and a link in place of a repository.
    work.write(".git/worktrees/wt/HEAD", "ref: refs/heads/other\n");
    work.write(".git/worktrees/wt/commondir", "../..\n");
    work.index(".git/worktrees/wt", &["x/.netrc"]);
    work.write("wt/.git", "gitdir: ../.git/worktrees/wt\n");
    work.write("wt/x/.netrc", "secret");
    work.write("wt/.pgpass", "secret");
    assert_eq!(work.told("wt/x/.netrc"), "changed");
    assert_eq!(work.told("wt/.pgpass"), ".git/info/exclude: .pgpass");
    fs::create_dir(work.0.0.join("linked")).unwrap();
    std::os::unix::fs::symlink("../.git", work.0.0.join("linked/.git")).unwrap();
    work.write("linked/.netrc", "secret");
    assert_eq!(work.told("linked/.netrc"), ".git/info/exclude: .netrc");
    // A repository that is not in the container: git does nothing there.
    work.write("lost/.git", "gitdir: /nowhere/.git/worktrees/lost\n");
    work.write("lost/.netrc", "secret");
    assert_eq!(work.told("lost/.netrc"), "nothing");
    // A link in place of the exclude file.
    fs::create_dir(work.0.0.join("own")).unwrap();
    work.repository("own/.git");
    std::os::unix::fs::symlink("/etc/passwd", work.0.0.join("own/.git/info/exclude")).unwrap();
    work.write("own/.netrc", "secret");
    assert_eq!(work.told("own/.netrc"), "nothing");
}

/// `-v TREE:TREE -v MAIN/.git:MAIN/.git`, the mounts that a second work tree needs.
#[test]
fn a_repository_may_be_another_mount() {
    let work = Work::new("search-git-mounts");
    work.write(".git/worktrees/wt/HEAD", "ref: refs/heads/other\n");
    work.write(".git/worktrees/wt/commondir", "../..\n");
    work.index(".git/worktrees/wt", &[".netrc"]);
    let tree = TestDir::new("search-git-mounts-tree");
    let file = |name: &str, text: &str| fs::write(tree.0.join(name), text).unwrap();
    file(".git", "gitdir: /main/.git/worktrees/wt\n");
    file(".netrc", "secret");
    file(".pgpass", "secret");
    let open = |path: &Path| rustix::fs::open(path, OFlags::PATH, Mode::empty()).unwrap();
    let (root, main) = (open(&tree.0), open(&work.0.0.join(".git")));
    let mut facts = SourceFacts::plain(tree.0.clone(), 0, 0, FileKind::Directory);
    let (never, meant) = (NeverList::builtin(), VisibleCredentials::new());
    let view = MountView {
        own: "/tree".into(),
        others: &[("/main/.git".into(), main.as_fd())],
        passed: Vec::new(),
        unprotected: None,
    };
    let budget = SearchBudget::of(SearchRule::Complete);
    search(
        &root,
        &HiddenNames::new(never, &meant),
        budget,
        &view,
        &mut facts,
    );
    facts.inside.sort_by(|a, b| a.path.cmp(&b.path));
    let told: Vec<_> = facts.inside.into_iter().map(|i| i.git).collect();
    let exclude = "/main/.git/info/exclude".into();
    let name = ".pgpass".into();
    let untracked = GitState::Untracked(UntrackedFile { exclude, name });
    assert_eq!(told, [GitState::Changed, untracked]);
}

/// H3: an index that names one file of a directory of credentials shows none of the others, nor their names.
#[test]
fn a_directory_of_credentials_is_hidden_whatever_the_index_says() {
    let work = Work::new("search-git-crafted");
    work.index(".git", &[".ssh/config", ".ssh/sub/there", ".ssh/x"]);
    work.write(".ssh/id_rsa", "secret");
    work.write(".ssh/sub/other", "secret");
    let all = || -> Vec<_> { work.hidden().into_iter().map(|(name, _)| name).collect() };
    assert_eq!(all(), [".ssh"]);
    assert_eq!(work.seen(".ssh"), [""; 0]);
    // Files that git has are visible, a link by its target. git misses none of them.
    work.write(".ssh/config", ".ssh/config");
    work.write(".ssh/sub/there", ".ssh/sub/there");
    std::os::unix::fs::symlink(".ssh/x", work.0.0.join(".ssh/x")).unwrap();
    std::os::unix::fs::symlink("id_rsa", work.0.0.join(".ssh/y")).unwrap();
    assert_eq!(all(), [".ssh"]);
    assert_eq!(work.seen(".ssh"), ["config", "sub/there", "x"]);
    let inside = searched(&work.0.0).inside;
    let config = fs::metadata(work.0.0.join(".ssh/config")).unwrap();
    let what = VisibleKind::File {
        dev: std::os::unix::fs::MetadataExt::dev(&config),
        ino: std::os::unix::fs::MetadataExt::ino(&config),
    };
    let path = "config".into();
    assert!(inside[0].seen.contains(&VisibleFile { path, what }));
    // git would commit its removal.
    work.write(".ssh/sub/there", "secret");
    assert_eq!(work.told(".ssh/sub/there"), "changed");
    let inside = searched(&work.0.0).inside;
    assert!(
        inside
            .iter()
            .all(|i| i.covered == (i.path != Path::new(".ssh")))
    );
}
