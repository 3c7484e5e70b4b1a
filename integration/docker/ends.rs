//! How exec processes ended. The engine waits for them, not agentbox.

use serde_json::Value;

use super::{Container, Docker, runtime};
use crate::command::{awaited, run};

const IMAGE: &str = "test-musl";

fn agentbox(arguments: &[&str]) -> String {
    run(&std::env::var("AGENTBOX_BIN").unwrap(), arguments).ok()
}

/// The lines of exec processes.
fn processes(id: &str) -> Vec<Value> {
    let text = agentbox(&["audit", "--json", id]);
    let all = text.lines().map(|line| serde_json::from_str(line).unwrap());
    all.filter(|line: &Value| line["what"]["kind"] == "process")
        .collect()
}

/// The lines of one command: state, status and pid of each.
fn of<'a>(lines: &'a [Value], command: &str) -> Vec<(&'a str, Option<i64>, Option<i64>)> {
    let of_command = lines.iter().filter(|line| {
        let arguments = line["what"]["arguments"].as_array().unwrap();
        arguments.last().unwrap() == command
    });
    of_command
        .map(|line| {
            let (what, pid) = (&line["what"], line["pid"].as_i64());
            (what["state"].as_str().unwrap(), what["exit"].as_i64(), pid)
        })
        .collect()
}

fn start<'a>(docker: &'a Docker, options: &[&str]) -> (Container<'a>, String) {
    let options = [&[runtime()], options, &[IMAGE]].concat();
    let container = docker.start(&options, &["sleep", "300"]);
    let id = container.inspect("{{.Id}}");
    (container, id)
}

/// Waits until a running container's log has the end of this command.
fn await_end(id: &str, command: &str) -> Vec<Value> {
    awaited(command, || {
        let lines = processes(id);
        let has_ended = of(&lines, command)
            .iter()
            .any(|(state, ..)| *state == "ended");
        match has_ended {
            true => Ok(lines),
            false => Err(format!("{lines:?}")),
        }
    })
}

/// The status, which the kernel reports since Linux 6.15.
fn known(status: i64) -> Option<i64> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
    let kernel = (numbers.next().unwrap(), numbers.next().unwrap());
    (kernel >= (6, 15)).then_some(status)
}

/// Former fault: the log had neither an end nor a status.
#[test]
#[ignore = "needs the rig of hack/test"]
fn how_each_exec_ended_is_in_the_log() {
    let docker = Docker::connect();
    for options in [
        &[][..],
        &["--annotation=dev.agentbox.policy=strict"],
        &["--annotation=dev.agentbox.network.allow=api.example.test"],
        &["--network=none"],
    ] {
        let (container, id) = start(&docker, options);
        let cases = [
            ("exit 0", &[][..], 0),
            ("exit 7", &[], 7),
            ("kill -TERM $$", &[], 143),
            ("sleep 0.2; exit 9", &["-d"], 9),
            ("exit 3", &["-u", "1000:1000"], 3),
        ];
        for (command, options, status) in cases {
            let finished = container.exec(options, &["sh", "-c", command]);
            let expected = if options == ["-d"] { 0 } else { status };
            assert_eq!(finished.code, expected, "{command}: {finished}");
            let lines = await_end(&id, command);
            let of_command = of(&lines, command);
            let [("began", None, Some(pid)), ("ended", exit, ended)] = of_command[..] else {
                panic!("{options:?}: {command}: {of_command:?}");
            };
            assert_eq!(
                (exit, ended),
                (known(status.into()), Some(pid)),
                "{command}"
            );
        }
        // It failed to start, so it has no end.
        container.exec(&[], &["no-such-program"]).failed();
        // The container ends first.
        container.exec(&["-d"], &["sh", "-c", "sleep 200"]).ok();
        assert_eq!(of(&processes(&id), "sleep 200").len(), 1);
        drop(container);
        let lines = processes(&id);
        let killed = of(&lines, "sleep 200");
        assert_eq!(killed.len(), 2, "{lines:?}");
        assert_eq!((killed[1].0, killed[1].1), ("ended", known(137)));
        let states: Vec<_> = of(&lines, "no-such-program");
        assert_eq!((states.len(), states[0].0), (1, "refused"), "{lines:?}");
        let text = agentbox(&["audit", &id]);
        let words = "exec ended with status 7 as 0:0: sh -c exit 7";
        assert!(known(7).is_none() || text.contains(words), "{text}");
    }
}

/// Many ends at once: each is in a line or counted in one, and none is mistaken for another.
#[test]
#[ignore = "needs the rig of hack/test"]
fn many_ends_at_once_are_counted() {
    let docker = Docker::connect();
    let (container, id) = start(&docker, &[]);
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let container = &container;
            scope.spawn(move || {
                for number in 0..8 {
                    let command = match number % 2 {
                        0 => "exit 5".to_owned(),
                        _ => format!("exit {}", 10 + worker),
                    };
                    container.exec(&[], &["sh", "-c", &command]).failed();
                }
            });
        }
    });
    drop(container);
    let lines = processes(&id);
    let ended = lines.iter().filter(|line| line["what"]["state"] == "ended");
    let mut counts = std::collections::BTreeMap::new();
    for line in ended {
        let of_status = counts.entry(line["what"]["exit"].as_i64()).or_insert(0);
        *of_status += line["count"].as_i64().unwrap_or(1);
    }
    let expected = [(5, 16), (10, 4), (11, 4), (12, 4), (13, 4)];
    let expected = expected.map(|(status, count)| (known(status), count));
    if known(0).is_some() {
        assert_eq!(counts, expected.into(), "{lines:?}");
    } else {
        assert_eq!(counts.values().sum::<i64>(), 32, "{lines:?}");
    }
}
