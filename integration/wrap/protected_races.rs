//! F37: programs that race against the protected files of a project, at the start, in the middle, and at the end of a run:
//! `racer.pl`. Each run does a hundred rounds of ten races. Whoever wins, nothing that the user's tools run is the sandbox's
//! afterwards, nothing of the user's is lost, and no name is left behind. The control is the same without the wall.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::account::{Account, GIT};
use crate::command::{Finished, HANGS, await_that, finish, undecided};
use crate::direct::program;
use crate::docker::{Docker, Policy};

/// Rounds of each race in a run.
const ROUNDS: &str = "100";

/// What the program says when all races are done, without what it has seen in protected files.
const DONE: &str = "races 10 seen ";

/// Protected files that are there, and those beside them that the user's tools would run if they were made.
const THERE: [&str; 6] = [
    ".envrc",
    ".vscode/tasks.json",
    ".claude/settings.json",
    ".codex/config.toml",
    ".github/workflows/ci.yml",
    ".git/hooks/post-commit",
];
const MISSING: [&str; 4] = [".zed", ".idea", ".cursor", ".mcp.json"];

/// A project with a repository in it, and work of the user's. Git's programs leave a mark in the home.
fn fresh(person: &Account) {
    // A container's root may have made files in it.
    for name in ["src", ".local", "outside"] {
        let _gone = std::fs::remove_dir_all(format!("{}/{name}", person.home));
    }
    person.does(&format!(
        "mkdir -p ~/src/project ~/outside/hooks ~/outside/fish; {GIT} cd ~/outside; git init -q; git init -q --bare .; \
         for f in config config.worktree .envrc .mcp.json tasks.json hooks/x fish/config.fish .git/hooks/x .git/config; do echo theirs >$f; done; \
         {OUTSIDE} >~/before; cd ~/src/project; for d in . sub; do git init -q $d; \
         git -C $d config core.pager less; git -C $d commit -q --allow-empty -m one; echo mine >$d/mine; done; \
         for f in {} sub/.envrc; do mkdir -p $(dirname $f); echo kept >$f; done",
        THERE.join(" ")
    ));
    person.file("src/project/racer.pl", include_str!("racer.pl"));
}

/// All of a directory outside of the project.
const OUTSIDE: &str = "find ~/outside -printf '%p %i %m %u %s %T@\\n' | sort";

/// The arguments of a run, and how it ends.
fn racer<'a>(end: &'a str, seed: &'a str) -> [&'a str; 5] {
    ["perl", "racer.pl", ROUNDS, end, seed]
}

/// The places where the user's tools would find something of the sandbox's. The repository of the user's may have got
/// another name, and another one its name.
fn planted(person: &Account) -> Vec<String> {
    let look = format!(
        "cd ~/src/project; for d in . sub moved fake t-out-sub; do [ $d = . ] || [ $d = sub ] || [ -e $d/mine ] || continue; \
         for f in {} {} .config/fish; do grep -rlsE --exclude='*.agentbox-*' 'evil|bait' $d/$f; done; done; \
         find . '(' -path '*/hooks/*' -o -name config -o -name config.worktree -o -name commondir ')' -type f ! -name '*.agentbox-*' \
         -exec grep -lE evil '{{}}' +; \
         for f in {}; do [ -e $f ] || [ -L $f ] && echo $f; done; true",
        THERE.join(" "),
        MISSING.join(" "),
        MISSING.join(" ")
    );
    let found = person.does(&look);
    let mut found: Vec<String> = found.lines().map(str::to_owned).collect();
    found.sort();
    found.dedup();
    found
}

/// What is lost of the user's: files, the work of a run, settings of git's, and what is left beside them.
fn lost(person: &Account, rounds: u32) -> String {
    let work: String = (0..rounds).map(|n| format!(" work/{n}")).collect();
    person.does(&format!(
        "cd ~/src/project; for f in {}; do [ \"$(cat $f)\" = kept ] || echo $f; done; for f in{work}; do [ \"$(cat $f)\" = good ] || echo $f; done; \
         [ \"$(cat mine)\" = mine ] || echo mine; subs=$(cat sub/mine moved/mine fake/mine t-out-sub/mine 2>/dev/null); [ \"$subs\" = mine ] || echo sub: $subs; \
         [ \"$(cat sub/.envrc moved/.envrc fake/.envrc t-out-sub/.envrc 2>/dev/null | grep -c kept)\" = 1 ] || echo .envrc of sub; \
         grep -q 'pager = less' .git/config || echo .git/config; \
         export GIT_CONFIG_GLOBAL=/dev/null; [ \"$(git log --format=%s)\" = one ] || echo git log; find . -name '*agentbox*' ! -name '*.agentbox-*'; \
         {OUTSIDE} | cmp ~/before -; true",
        THERE.join(" ")
    ))
}

/// After a run and the look at its end.
#[track_caller]
fn assert_held(person: &Account, rounds: u32, seen: &dyn std::fmt::Display) {
    assert_eq!(planted(person), [""; 0], "{seen}");
    assert_eq!(lost(person, rounds), "", "{seen}");
}

/// Without the wall the same races plant, and change what is there. They are ended in the middle, where any name may be
/// away for a moment: such a run is done again.
#[track_caller]
fn assert_planted(person: &Account, mut run: impl FnMut(u32) -> Finished) -> Finished {
    let mut all = String::new();
    for seed in 60..65 {
        fresh(person);
        let seen = run(seed);
        assert!(seen_times(&seen) > 0, "{seen}");
        let found = planted(person);
        let is_there = |name: &str| found.iter().any(|one| one.ends_with(name));
        let all_there = ["./.envrc", "/config", ".mcp.json"]
            .into_iter()
            .all(is_there);
        if all_there && lost(person, 0).contains(".envrc") {
            return seen;
        }
        all += &format!("{found:?} {seen}");
    }
    panic!("{all}");
}

/// What the program said: how often a protected file had another text.
#[track_caller]
fn seen_times(seen: &Finished) -> u32 {
    let line = seen.stdout.trim();
    let count = line.strip_prefix(DONE).and_then(|count| count.parse().ok());
    count.unwrap_or_else(|| panic!("{seen}"))
}

/// Runs the program under `wrap`, as root or without root's rights.
fn wrapped(person: &Account, by_root: bool, options: &[&str], seed: u32) -> Finished {
    let seed = seed.to_string();
    let all = [&["wrap"], options, &["--"], &racer("exit", &seed)].concat();
    match by_root {
        true => finish(&mut person.sudo(&all)),
        false => person.agentbox(&all),
    }
}

fn by_wrap(by_root: bool) {
    let _docker = Docker::connect();
    let person = Account::new();
    for seed in 0..6 {
        fresh(&person);
        let policy = ["standard", "standard", "permissive"][seed as usize % 3];
        let seen = wrapped(&person, by_root, &["--policy", policy], seed);
        assert_eq!(seen_times(&seen), 0, "{seen}");
        assert!(seen.stderr.contains("moved "), "{seen}");
        assert_held(&person, 100, &seen);
        // The next run finds nothing either, and no mark of git's.
        let next = person.wraps(&[], "true");
        assert!(!next.stderr.contains("moved "), "{next} after {seen}");
        assert_held(&person, 100, &next);
    }
    let free = ["--set", "filesystem.unprotected=*"];
    assert_planted(&person, |seed| wrapped(&person, by_root, &free, seed));
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_no_race_plants_under_wrap_of_root() {
    by_wrap(true);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_no_race_plants_under_wrap_without_root() {
    by_wrap(false);
}

/// Waits until a run is in the middle of its races.
#[track_caller]
fn await_ready(person: &Account) {
    let ready = format!("{}/ready", person.project);
    let start = Instant::now();
    while !Path::new(&ready).exists() {
        if start.elapsed() > HANGS {
            undecided("the races did not begin");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Landlock cannot take a file out of a directory that is written, and has no look at the end: `explain` says so.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_landlock_holds_none_of_it_and_says_so() {
    let _docker = Docker::connect();
    let person = Account::new();
    fresh(&person);
    let landlock = ["--walls", "landlock"];
    let said = person.agentbox(&[&["explain"][..], &landlock].concat());
    assert!(said.stdout.contains("can write git hooks"), "{said}");
    let seen = assert_planted(&person, |seed| wrapped(&person, false, &landlock, seed));
    // No race goes on without its run: the project stays as it is.
    let list =
        || person.does("cd ~/src/project; find . -printf '%p %T@ %C@\\n' | sort | sha256sum");
    let before = list();
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(list(), before, "{seen}");
}

/// `wrap` is killed in the middle of the races.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_no_race_survives_the_look_after_a_killed_wrap() {
    let _docker = Docker::connect();
    let person = Account::new();
    for seed in 10..16 {
        fresh(&person);
        let number = seed.to_string();
        let run = [&["wrap", "--"][..], &racer("stay", &number)].concat();
        let program = program();
        let by_root = seed % 2 == 0;
        let as_caller = |arguments: &[&str]| match by_root {
            true => person.sudo(arguments),
            false => person.alone(&[&[program.as_str()], arguments].concat()),
        };
        let mut killed = as_caller(&run);
        killed.stdin(Stdio::null()).stdout(Stdio::null());
        let mut killed = killed.stderr(Stdio::null()).spawn().unwrap();
        await_ready(&person);
        // The control: until the look they are there, which may be another test's. In the middle of a race each is away now
        // and then.
        let start = Instant::now();
        while planted(&person).is_empty() {
            if start.elapsed() > HANGS {
                undecided(&format!("the control of {seed}"));
            }
        }
        killed.kill().unwrap();
        killed.wait().unwrap();
        let end = Instant::now() + HANGS;
        let mut all = String::new();
        while !planted(&person).is_empty() {
            assert!(Instant::now() < end, "{all}");
            let looked = finish(&mut as_caller(&["list"]));
            all += &looked.to_string();
        }
        assert_held(&person, 100, &all);
    }
}

/// Other runs in the same project end and look while the races go on: root's rights follow no link. The last look cleans.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_a_look_beside_races_touches_nothing_outside() {
    let _docker = Docker::connect();
    let person = Account::new();
    fresh(&person);
    let start = |arguments: &[&str]| {
        let mut run = person.sudo(&[&["wrap", "--"], arguments].concat());
        run.stdin(Stdio::null()).stdout(Stdio::null());
        run.stderr(Stdio::null()).spawn().unwrap()
    };
    let mut others: Vec<_> = (0..8)
        .map(|number| {
            let wait = format!(
                "touch begun{number}; until [ -e ready ]; do sleep 0.02; done; sleep 0.{number}"
            );
            start(&["sh", "-c", &wait])
        })
        .collect();
    let begun = |number: &u32| Path::new(&format!("{}/begun{number}", person.project)).exists();
    await_that("the others began", || (0..8).all(|number| begun(&number)));
    let mut races = start(&racer("stay", "70"));
    await_ready(&person);
    for other in &mut others {
        assert!(other.wait().unwrap().success());
    }
    races.kill().unwrap();
    races.wait().unwrap();
    // Another test's run may be the one that looks.
    let mut all = String::new();
    let end = Instant::now() + HANGS;
    while !planted(&person).is_empty() {
        assert!(Instant::now() < end, "{all}");
        let looked = finish(&mut person.sudo(&["list"]));
        all += &looked.to_string();
    }
    assert_held(&person, 100, &all);
}

/// `wrap` is killed when the command has ended: before, during or after its look.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_no_race_survives_a_kill_of_the_look() {
    let _docker = Docker::connect();
    let person = Account::new();
    for seed in 40..52 {
        fresh(&person);
        let number = seed.to_string();
        let run = [&["wrap", "--"][..], &racer("exit", &number)].concat();
        let mut killed = person.sudo(&run);
        killed.stdin(Stdio::null()).stdout(Stdio::null());
        let mut killed = killed.stderr(Stdio::null()).spawn().unwrap();
        await_ready(&person);
        std::thread::sleep(Duration::from_millis((seed - 40) * 4));
        let _gone = killed.kill();
        killed.wait().unwrap();
        let end = Instant::now() + HANGS;
        let mut all = String::new();
        let mut looks = 0;
        while looks == 0 || !planted(&person).is_empty() {
            assert!(Instant::now() < end, "{:?} {all}", planted(&person));
            let looked = finish(&mut person.sudo(&["list"]));
            all += &looked.to_string();
            looks += 1;
        }
        assert_held(&person, 100, &format!("{seed} {all}"));
    }
}

/// The options of a container with the project.
fn bound(person: &Account) -> [String; 2] {
    let volume = format!("--volume={}:/work", person.project);
    [volume, "--workdir=/work".to_owned()]
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_no_race_plants_in_a_container_of_docker() {
    let docker = Docker::connect();
    let person = Account::new();
    let bound = bound(&person);
    let there = [&bound[0], &bound[1], "test-workloads"];
    let user = format!("--user={}:{}", person.uid, person.gid);
    for (policy, seed) in Policy::ALL.into_iter().zip(["20", "21", "22"]) {
        fresh(&person);
        let as_user = [user.as_str()];
        let as_user = &as_user[..usize::from(policy == Policy::Strict)];
        let options = [&policy.options()[..], as_user, &there].concat();
        let seen = docker.run(&options, &racer("exit", seed));
        assert_eq!(seen_times(&seen), 0, "{policy:?} {seen}");
        assert_held(&person, 100, &seen);
    }
    // Killed: the container, or a program in it that was started later.
    for (exec, seed) in [(false, "23"), (true, "24"), (false, "25"), (true, "26")] {
        fresh(&person);
        let options = [&Policy::Standard.options()[..], &there].concat();
        let stay = racer("stay", seed);
        let container = match exec {
            false => docker.start(&options, &stay),
            true => {
                let container = docker.start(&options, &["sleep", "60"]);
                container.exec(&["--detach"], &stay).ok();
                container
            }
        };
        await_ready(&person);
        container.call("kill", &[]).ok();
        // Its removal waits for the look.
        drop(container);
        assert_held(&person, 100, &format!("{exec} {seed}"));
    }
    // The control.
    let options = [&["--runtime=runc"][..], &there].concat();
    assert_planted(&person, |seed| {
        docker.run(&options, &racer("exit", &seed.to_string()))
    });
}

/// In another container's pid namespace the end of the first process ends no other.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_no_race_outlives_the_first_process_in_a_shared_pid_namespace() {
    let docker = Docker::connect();
    let person = Account::new();
    let bound = bound(&person);
    let own = ["--annotation", "dev.agentbox.privileges.set-id=off"];
    let standard = [&Policy::Standard.options()[..], &own].concat();
    let first = docker.start(
        &[&standard[..], &["test-workloads"]].concat(),
        &["sleep", "120"],
    );
    let pid = format!("--pid=container:{}", first.name);
    for seed in ["30", "31", "32"] {
        fresh(&person);
        let there = [&bound[0], &bound[1], pid.as_str(), "test-workloads"];
        let seen = docker.run(&[&standard[..], &there].concat(), &racer("exit", seed));
        assert_eq!(seen_times(&seen), 0, "{seen}");
        assert_held(&person, 100, &seen);
        std::thread::sleep(Duration::from_millis(300));
        assert_held(&person, 100, &seen);
    }
}
