//! P08: a process of `exec` that the container stops before it has executed its program, by its predicted number.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::*;

/// Files of /proc/PID that every process may read of every other one.
const FILES: [&str; 12] = [
    "net/dev",
    "net/route",
    "net/unix",
    "net/tcp",
    "mountinfo",
    "cgroup",
    "cmdline",
    "limits",
    "oom_score_adj",
    "uid_map",
    "status",
    "stat",
];

/// Those that show the namespaces of a process.
const NAMESPACES: [&str; 5] = ["net/dev", "net/route", "net/unix", "net/tcp", "mountinfo"];

const ROUNDS: usize = 12;
const PATIENCE: Duration = Duration::from_secs(60);

/// The lines of the init process's own file, and of the stopped process's.
#[derive(Debug, Default, Clone, PartialEq)]
struct FileLines {
    own: Vec<String>,
    other: Vec<String>,
}

/// What the init process has read of one stopped process.
type Round = BTreeMap<String, FileLines>;

/// The rounds in which the process was still stopped after the last file was read.
fn rounds(text: &str) -> Vec<Round> {
    let (mut rounds, mut round) = (Vec::new(), Round::new());
    for line in text.lines() {
        let fields: Vec<&str> = line.splitn(3, '\t').collect();
        match fields[..] {
            ["end", _, state] => {
                let ended = std::mem::take(&mut round);
                rounds.extend((state == "stopped").then_some(ended));
            }
            [file, who, text] => {
                let lines = round.entry(file.to_owned()).or_default();
                match who {
                    "own" => lines.own.push(text.to_owned()),
                    _ => lines.other.push(text.to_owned()),
                }
            }
            _ => {}
        }
    }
    rounds
}

/// The name of the stopped process. A runtime's own: it has not executed its program yet.
fn name(round: &Round) -> &str {
    round["comm"].other.first().map_or("", String::as_str)
}

/// What of a file must be the same in both processes.
fn comparable(file: &str, lines: &[String]) -> BTreeSet<String> {
    let first = |line: &String| line.split(':').next().unwrap_or_default().trim().to_owned();
    match file {
        // Numbers of packets change.
        "net/dev" => lines.iter().map(first).collect(),
        "status" => {
            let groups = lines.iter().filter(|line| line.starts_with("Groups:"));
            groups.map(|line| line.trim_end().to_owned()).collect()
        }
        // A process without arguments.
        "cmdline" => {
            let arguments = lines.iter().map(|line| line.trim().to_owned());
            let strange =
                arguments.filter(|text| !text.is_empty() && !text.starts_with("/bin/hold"));
            strange.collect()
        }
        // The terminal, after the parent, the group and the session.
        "stat" => {
            let after = lines.iter().filter_map(|line| line.rsplit_once(") "));
            let tty = after.filter_map(|(_, fields)| fields.split(' ').nth(4));
            tty.map(str::to_owned).collect()
        }
        _ => lines.iter().cloned().collect(),
    }
}

/// The files that differ between the two processes.
fn strange<'a>(round: &Round, files: &[&'a str]) -> Vec<&'a str> {
    let differs = |file: &&&str| {
        let lines = round.get(**file).cloned().unwrap_or_default();
        comparable(file, &lines.own) != comparable(file, &lines.other)
    };
    files.iter().filter(differs).copied().collect()
}

/// A container whose init process stops the next ones.
struct Holder<'a> {
    stage: &'a Stage,
    runtime: Runtime,
    id: String,
}

impl<'a> Holder<'a> {
    fn start(stage: &'a Stage, runtime: Runtime) -> Self {
        let script = format!(
            "exec /bin/hold {ROUNDS} {} >/tmp/seen 2>&1",
            FILES.join(" ")
        );
        let mut config = stage.config(&script);
        config["process"]["cwd"] = json!("/");
        let (bundle, id) = stage.bundle(&config);
        stage
            .call(runtime, &["run", "--detach", "--bundle", &bundle, &id])
            .ok();
        Self { stage, runtime, id }
    }

    fn exec(&self, command: &[&str]) -> Finished {
        let words = [&["exec", self.id.as_str()], command].concat();
        self.stage.call(self.runtime, &words)
    }

    /// What it has read so far.
    fn seen(&self) -> String {
        self.exec(&["cat", "/tmp/seen"]).ok()
    }
}

impl Drop for Holder<'_> {
    fn drop(&mut self) {
        self.stage
            .call(self.runtime, &["delete", "--force", &self.id]);
    }
}

/// Puts the program into the image.
fn add_hold(stage: &Stage) {
    add_program(stage, "hold");
}

fn add_program(stage: &Stage, name: &str) {
    let source = format!(
        "{}/integration/hostile/{name}.c",
        env!("CARGO_MANIFEST_DIR")
    );
    let file = format!("{}/bin/{name}", stage.image);
    run("gcc", &["-static", "-O1", "-o", &file, &source]).ok();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_p08_a_process_that_is_stopped_before_its_program_shows_nothing_of_the_node() {
    let stage = Stage::new();
    add_hold(&stage);
    for runtime in [Runtime::Unconfined, Runtime::Standard] {
        let holder = Holder::start(&stage, runtime);
        for _ in 0..ROUNDS {
            holder.exec(&["true"]).ok();
        }
        let seen = holder.seen();
        let caught: Vec<Round> = rounds(&seen)
            .into_iter()
            .filter(|round| name(round).starts_with("agentbox"))
            .collect();
        assert!(!caught.is_empty(), "{runtime:?}: none was stopped: {seen}");
        for round in &caught {
            let strange = strange(round, &FILES);
            assert!(strange.is_empty(), "{runtime:?} {strange:?}: {round:#?}");
        }
    }
    // The control: a process that begins in the pid namespace alone shows the node's mounts and network.
    let holder = Holder::start(&stage, Runtime::Unconfined);
    let state: Value =
        serde_json::from_str(&stage.call(Runtime::Unconfined, &["state", &holder.id]).ok())
            .unwrap();
    let pid = state["pid"].to_string();
    // nsenter stops when its child does.
    let script =
        format!("nsenter --target {pid} --pid sleep 0.2 & sleep 2; kill -CONT $!; wait $!");
    run("sh", &["-c", &script]).ok();
    let seen = holder.seen();
    let caught = rounds(&seen);
    let strange = strange(caught.first().expect(&seen), &NAMESPACES);
    assert!(
        strange.contains(&"mountinfo") && strange.contains(&"net/dev"),
        "{strange:?}: {seen}"
    );
}

/// P04: the helper that makes the process of `exec`, or that process, is killed at any moment. A container that shares the
/// node's pid namespace can do it; here the node's is a namespace of the test.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_p04_a_killed_exec_fails_and_leaves_no_process() {
    let stage = Stage::new();
    add_hold(&stage);
    let mut config = stage.config("exec /bin/hold 30 kill >/dev/null 2>&1");
    config["process"]["cwd"] = json!("/");
    let namespaces = config["linux"]["namespaces"].as_array_mut().unwrap();
    namespaces.retain(|one| one["type"] != "pid");
    let (bundle, id) = stage.bundle(&config);
    let call = format!(
        "{} --root {} --policy unconfined",
        program(),
        stage.node.root
    );
    let pid = stage.node.scratch.path("hold.pid");
    let script = format!(
        "{call} run --detach --pid-file {pid} --bundle {bundle} {id} </dev/null
         for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
             {call} exec {id} echo ran </dev/null
             echo status $?
         done
         read hold <{pid}
         kill -KILL $hold
         grep -l agentbox /proc/[0-9]*/comm
         {call} delete --force {id}"
    );
    let unshare = ["--pid", "--fork", "--mount-proc", "sh", "-c", &script];
    let seen = run("unshare", &unshare);
    let lines: Vec<&str> = seen.stdout.lines().collect();
    let statuses = lines
        .iter()
        .filter(|line| line.starts_with("status "))
        .count();
    assert_eq!(statuses, 30, "{seen}");
    assert!(
        !lines.iter().any(|line| line.starts_with("/proc/")),
        "{seen}"
    );
    // 0, if and only if the program ran. The program of an exec that was killed may print after its status.
    let (mut ran, mut last) = (false, "");
    for line in &lines {
        match *line {
            "ran" => ran = true,
            "status 0" => assert!(ran, "{seen}"),
            "status 255" => assert!(!ran || last == "status 137", "{seen}"),
            _ => {}
        }
        if line.starts_with("status ") {
            (ran, last) = (false, line);
        }
    }
    let said = |words: &str| seen.stderr.contains(words);
    let caught = said("its helper ended before it made the process")
        || said("the process ended before it executed its program");
    assert!(caught, "{seen}");
    assert_eq!(stage.node.leftovers(&id), Vec::<String>::new());
}

/// The state and the number of threads of a process (proc_pid_stat(5)), if it is there.
fn state_and_threads(pid: &str) -> Option<(String, u32)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
    let state = fields.next()?.to_owned();
    Some((state, fields.nth(16)?.parse().ok()?))
}

/// P04: a process runs until its last thread has ended, and so long every verb ends it. The first thread's end makes the process
/// a zombie to a reader of its state alone.
#[test]
#[ignore = "needs the rig: hack/test"]
fn hostile_p04_a_process_without_its_first_thread_is_ended_by_every_verb() {
    let stage = Stage::new();
    add_program(&stage, "threads");
    let limited = ["the limit"];
    let ways: [&[&str]; 4] = [
        &["kill", "ID", "KILL"],
        &["kill", "--all", "ID", "KILL"],
        &["delete", "--force", "ID"],
        &limited,
    ];
    for (runtime, way) in [Runtime::Unconfined, Runtime::Standard]
        .into_iter()
        .flat_map(|runtime| ways.map(|way| (runtime, way)))
    {
        if way == limited && runtime == Runtime::Unconfined {
            // It has no limits.
            continue;
        }
        let mut config = stage.config("exec /bin/threads >/dev/null 2>&1");
        if way == limited {
            config["annotations"]["dev.agentbox.time.wall"] = json!("5s");
            config["annotations"]["dev.agentbox.time.grace"] = json!("0s");
        }
        let (bundle, id) = stage.bundle(&config);
        let file = stage.node.scratch.path("threads.pid");
        let run = [
            "run",
            "--detach",
            "--pid-file",
            &file,
            "--bundle",
            &bundle,
            &id,
        ];
        stage.call(runtime, &run).ok();
        let pid = fs::read_to_string(&file).unwrap();
        let zombie = Some(("Z".to_owned(), 2));
        let begun = Instant::now();
        while state_and_threads(&pid) != zombie {
            assert!(begun.elapsed() < PATIENCE, "{:?}", state_and_threads(&pid));
            std::thread::sleep(Duration::from_millis(20));
        }
        // The control: nothing else ends it.
        let state = stage.call(runtime, &["state", &id]).ok();
        assert!(state.contains("\"status\": \"running\""), "{state}");
        stage.call(runtime, &["kill", &id, "0"]).ok();
        if way != limited {
            let call: Vec<&str> = way
                .iter()
                .map(|word| if *word == "ID" { &id } else { *word })
                .collect();
            stage.call(runtime, &call).ok();
        }
        let begun = Instant::now();
        while state_and_threads(&pid).is_some_and(|(_, threads)| threads > 1) {
            assert!(begun.elapsed() < PATIENCE, "{runtime:?} {way:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
        stage.call(runtime, &["delete", "--force", &id]).ok();
        assert_eq!(stage.node.leftovers(&id), Vec::<String>::new());
    }
}
