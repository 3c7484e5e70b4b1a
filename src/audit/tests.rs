//! The log from events to lines and back: what cannot be hidden, and what is noticed.

use std::collections::BTreeMap;

use super::*;

fn context() -> Context {
    Context {
        container: "c1".into(),
        // A hostile image name that imitates the warden's reason.
        image: Some("\",\"time\":\"\",\"reason\":\"\"".into()),
        ..Context::default()
    }
}

fn refused(host: &str, port: u16) -> Event {
    let what = EventDetail::attempt(ConnectionKind::Http, host, Some(port));
    Event::new(WallName::Network, Verdict::Denied, what)
}

fn ended(host: &str, sent: u64) -> Event {
    let what = EventDetail::Connection {
        via: None,
        host: host.into(),
        port: Some(443),
        sent: Some(sent),
        received: Some(1),
    };
    Event::new(WallName::Network, Verdict::Ended, what)
}

fn lines(events: &[Event]) -> Vec<u8> {
    let (mut chain, mut text) = (Chain::default(), Vec::new());
    for event in events {
        let line = chain.render("2026-01-02T03:04:05.678Z", &context(), event);
        chain.commit(&line);
        text.extend(line);
    }
    text
}

fn three() -> Vec<u8> {
    lines(&[
        refused("a.test", 1),
        refused("b.test", 2),
        refused("c.test", 3),
    ])
}

#[test]
fn a_log_is_read_as_it_was_written() {
    let log = Log::parse(NODE, &three());
    assert!(log.faults.is_empty(), "{:?}", log.faults);
    assert_eq!(log.lines.len(), 3);
    assert_eq!(log.lines[1].event, refused("b.test", 2));
    assert_eq!((log.lines[2].seq, &log.lines[0].context), (3, &context()));
    assert_eq!(log.head.unwrap().seq, 3);
}

#[test]
fn a_line_that_is_changed_taken_out_or_put_in_is_noticed_with_its_number() {
    let text = three();
    let ends: Vec<usize> = (0..text.len()).filter(|i| text[*i] == b'\n').collect();
    let changed = String::from_utf8(text.clone())
        .unwrap()
        .replace("b.test", "x.test");
    let taken = [&text[..=ends[0]], &text[ends[1] + 1..]].concat();
    let put = [&text[..=ends[1]], &text[ends[0] + 1..]].concat();
    let no_event = [&text[..=ends[0]], b"{}\n", &text[ends[0] + 1..]].concat();
    for (what, text, line) in [
        ("changed", changed.as_bytes(), 3),
        ("taken out", &taken, 2),
        ("put in", &put, 3),
        ("no event", &no_event, 2),
        ("the first", &text[ends[0] + 1..], 1),
        ("cut", &text[..text.len() - 9], 3),
    ] {
        let faults = Log::parse(NODE, text).faults;
        assert_eq!(
            faults.first().map(|f| f.line),
            Some(line),
            "{what}: {faults:?}"
        );
    }
}

#[test]
fn a_cut_off_end_is_noticed_by_the_head_in_another_file() {
    let text = three();
    let head = Log::parse(NODE, &text).head.unwrap();
    let first_two = text
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b'\n')
        .nth(1)
        .unwrap()
        .0;
    for (text, faults) in [(&text[..], 0), (&text[..=first_two], 1), (b"", 1)] {
        let mut log = Log::parse(NODE, text);
        assert!(log.faults.is_empty());
        log.check_head(&head);
        assert_eq!(log.faults.len(), faults, "{:?}", log.faults);
    }
}

#[test]
fn a_template_becomes_a_line_whatever_names_are_in_it() {
    let event = Event::new(
        WallName::Network,
        Verdict::Ended,
        EventDetail::life(LifeState::Ended),
    );
    let template = chain::template(&context(), event);
    let line = chain::fill(std::str::from_utf8(&template).unwrap(), "now", "signal 9");
    let log = Log::parse(WARDEN, line.as_bytes());
    assert!(log.faults.is_empty(), "{:?}", log.faults);
    assert_eq!(log.lines[0].event.reason.as_deref(), Some("signal 9"));
    assert_eq!(
        (log.lines[0].time.as_str(), &log.lines[0].context),
        ("now", &context())
    );
}

#[test]
fn a_first_event_is_a_line_at_once_and_equal_ones_are_counted() {
    let mut quotas = Quotas::default();
    assert_eq!(quotas.take(refused("a.test", 1), 0), [refused("a.test", 1)]);
    for now in 1..1000 {
        assert!(quotas.take(refused("a.test", 1), now).is_empty());
    }
    assert_eq!(quotas.due_ms(), Some(2001));
    assert!(quotas.due(2000).is_empty());
    let folded = quotas.due(2001);
    assert_eq!((folded.len(), folded[0].times()), (1, 999));
    // The gap grows to one line an hour.
    let mut written = 0;
    for now in (2002..86_400_000).step_by(500) {
        written += quotas.take(refused("a.test", 1), now).len() + quotas.due(now).len();
    }
    assert!((10..60).contains(&written), "{written}");
    assert_eq!(quotas.rest().len(), 1, "the last ones");
    assert_eq!(quotas.left_out(), 0);
}

#[test]
fn bytes_are_added_up() {
    let mut quotas = Quotas::default();
    assert_eq!(quotas.take(ended("a.test", 5), 0), [ended("a.test", 5)]);
    assert!(quotas.take(ended("a.test", 7), 1).is_empty());
    assert!(quotas.take(ended("a.test", 9), 2).is_empty());
    let EventDetail::Connection { sent, received, .. } = quotas.rest()[0].what.clone() else {
        panic!("a connection");
    };
    assert_eq!((sent, received), (Some(16), Some(2)));
}

/// A flood of new names, or of new ports of one host, leaves room for all other lines.
#[test]
fn a_flood_of_one_class_or_host_hides_no_other() {
    let mut quotas = Quotas::default();
    let name = |n: u32| EventDetail::attempt(ConnectionKind::Dns, &format!("n{n}.test"), None);
    let asked = |n| Event::new(WallName::Network, Verdict::Denied, name(n));
    let written = (0..100_000)
        .filter(|n| !quotas.take(asked(*n), 0).is_empty())
        .count();
    assert_eq!(written, 100);
    assert_eq!(quotas.left_out(), 99_900);
    // Another class has its own quota.
    let scanned =
        (1..=65_000_u16).filter(|port| !quotas.take(refused("a.test", *port), 0).is_empty());
    assert_eq!(scanned.count(), 40, "one host");
    assert_eq!(
        quotas.take(refused("b.test", 443), 0).len(),
        1,
        "another host"
    );
    let counted: u64 = quotas
        .due(10_000)
        .iter()
        .map(|event| match event.what {
            EventDetail::LeftOut { events, .. } => events,
            _ => 0,
        })
        .sum();
    assert_eq!(counted, 99_900 + 64_960);
}

/// N48: a flood of denials hides no honeytoken, nor does one of them another.
#[test]
fn a_flood_hides_no_honeytoken() {
    let mut quotas = Quotas::default();
    for n in 0..100_000_u32 {
        let event = refused(&format!("n{n}.test"), 443);
        let bytes = if quotas.take(event.clone(), 0).is_empty() {
            0
        } else {
            50_000
        };
        quotas.spend(&event, bytes);
    }
    let honey = |token: &str, host: &str| Event {
        cause: Some(KnownCause::Honey.into()),
        reason: Some(format!("the honey value {token} was on its way out").into()),
        ..refused(host, 443)
    };
    for n in 0..1000 {
        quotas.take(honey("one", &format!("n{n}.test")), 0);
    }
    let last = honey("two", "allowed.test");
    assert_eq!(quotas.take(last.clone(), 0), std::slice::from_ref(&last));
    assert!(quotas.spend(&last, 300));
}

/// A class that fills the file leaves every other class its share.
#[test]
fn a_share_of_the_file_is_kept_for_each_class() {
    let mut quotas = Quotas::default();
    let mut used = 0;
    while quotas.spend(&refused("a.test", 1), 1000) {
        used += 1000;
    }
    assert!((1_300_000..4 << 20).contains(&used), "{used}");
    let other = Event::new(
        WallName::Life,
        Verdict::Noted,
        EventDetail::life(LifeState::Paused),
    );
    let more = (0..1000).filter(|_| quotas.spend(&other, 1000)).count();
    assert!(more > 100, "{more}");
}

fn parsed(events: &[Event]) -> Vec<LogLine> {
    Log::parse(NODE, &lines(events)).lines
}

fn some() -> Vec<LogLine> {
    let mount = EventDetail::Mount {
        destination: "/x".into(),
        source: "/etc".into(),
    };
    let process = EventDetail::Process {
        state: ProcessState::Began,
        arguments: vec!["sh".to_owned(), "-c".to_owned(), "true".to_owned()].into(),
        cut: Vec::new(),
        uid: 7,
        gid: 7,
        exit: None,
    };
    let missing = Event {
        count: Some(5),
        missing_rule: Some("a.test".into()),
        reason: Some("no rule matches it".into()),
        ..refused("a.test", 443)
    };
    let allowed = Event {
        rule: Some("b.test".into()),
        count: Some(3),
        ..Event::new(
            WallName::Network,
            Verdict::Allowed,
            EventDetail::attempt(ConnectionKind::Http, "b.test", Some(443)),
        )
    };
    let gone = Event {
        rule: Some("b.test".into()),
        ..ended("b.test", 500)
    };
    parsed(&[
        Event::new(
            WallName::Life,
            Verdict::Noted,
            EventDetail::life(LifeState::Created),
        ),
        Event::new(WallName::Filesystem, Verdict::Denied, mount),
        missing,
        Event::new(
            WallName::Network,
            Verdict::Denied,
            EventDetail::attempt(ConnectionKind::Dns, "a.test", None),
        ),
        allowed,
        gone,
        Event::new(WallName::Life, Verdict::Noted, process),
    ])
}

#[test]
fn the_report_starts_with_denials_that_a_rule_would_allow() {
    let lines = some();
    let lines: Vec<&LogLine> = lines.iter().collect();
    let denied = report::denied(&lines);
    let told: Vec<(&str, u64)> = denied.iter().map(|d| (d.what.as_str(), d.times)).collect();
    // The name of a host that was also connected to is not repeated.
    assert_eq!(told, [("a.test:443", 5), ("mount at /x (from /etc)", 1)]);
    let passed = report::passed(&lines);
    assert_eq!(
        (passed.len(), passed[0].connections, passed[0].sent),
        (1, 3, 500)
    );
    assert_eq!(report::happened(&lines).len(), 2);
}

#[test]
fn a_containers_names_never_become_markdown() {
    let evil = "`|<img src=x>[a](b)@team";
    let event = Event {
        reason: Some(evil.into()),
        ..refused(evil, 1)
    };
    let lines = parsed(&[event]);
    let lines: Vec<&LogLine> = lines.iter().collect();
    let text = markdown::text(&report::RunHeader::default(), &lines);
    let row = text.lines().last().unwrap();
    assert_eq!(
        row.matches('|').count() - row.matches("\\|").count(),
        5,
        "{row}"
    );
    let after_code = row.rsplit('`').next().unwrap();
    assert!(
        !after_code.contains("<img") && !after_code.contains("@team"),
        "{row}"
    );
}

/// Each OCSF event has the attributes that its class requires.
#[test]
fn a_line_becomes_an_event_of_its_class() {
    let classes: Vec<(u64, u64, &str)> = vec![
        (1007, 1, "process"),
        (1001, 12, "file"),
        (4001, 5, "dst_endpoint"),
        (4001, 5, "dst_endpoint"),
        (4001, 1, "dst_endpoint"),
        (4001, 2, "traffic"),
        (1007, 1, "process"),
    ];
    for (line, (class, activity, attribute)) in some().iter().zip(classes) {
        let event = ocsf::event(line);
        assert_eq!(event["class_uid"], class, "{event}");
        assert_eq!(event["type_uid"], class * 100 + activity, "{event}");
        assert_eq!(event["category_uid"], class / 1000);
        assert_eq!(event["time"], 1_767_323_045_678_i64);
        assert!(event[attribute].is_object(), "{event}");
        assert!(
            event["metadata"]["product"]["vendor_name"].is_string()
                && event["severity_id"].is_u64()
        );
        if class / 1000 == 1 {
            assert!(event["device"]["type_id"].is_u64() && event["actor"].is_object());
        }
        // The class decides where the container is.
        let container = match class {
            4001 => &event["src_endpoint"]["container"],
            _ => &event["device"]["container"],
        };
        assert_eq!(container["uid"], *line.context.container, "{event}");
        assert_eq!(event["metadata"]["profiles"][0], "container", "{event}");
        assert!(
            event["unmapped"]["container"]["container"].is_null(),
            "{event}"
        );
        assert_eq!(
            container["image"]["name"].as_str(),
            line.context.image.as_deref(),
            "{event}"
        );
    }
    let limit = EventDetail::Limit {
        limit: "limits.pids".into(),
        times: 1,
        value: Some(64),
    };
    let line = &parsed(&[Event::new(WallName::Resources, Verdict::Denied, limit)])[0];
    let event = ocsf::event(line);
    assert!(event["finding_info"]["uid"].is_string());
    let evidence = &event["evidences"][0]["src_endpoint"]["container"];
    assert_eq!(evidence["uid"], *line.context.container);
    let limit = EventDetail::Limit {
        limit: "limits.pids".into(),
        times: 1,
        value: Some(64),
    };
    let line = &parsed(&[Event::new(WallName::Resources, Verdict::Noted, limit)])[0];
    let event = ocsf::event(line);
    assert_eq!(event["type_uid"], 100_799, "a note is no finding: {event}");
    assert!(event["device"]["type_id"].is_u64() && event["process"]["name"].is_string());
    let inbound = EventDetail::Connection {
        via: Some(ConnectionKind::Inbound),
        host: "192.0.2.7".into(),
        port: Some(80),
        sent: None,
        received: None,
    };
    let line = &parsed(&[Event::new(WallName::Network, Verdict::Denied, inbound)])[0];
    let event = ocsf::event(line);
    assert_eq!(event["src_endpoint"]["ip"], "192.0.2.7");
    assert_eq!(event["dst_endpoint"]["port"], 80);
    assert_eq!(event["dst_endpoint"]["uid"], *line.context.container);
}

#[test]
fn an_ocsf_event_has_a_unique_id_no_null_and_the_decision() {
    fn has_null(value: &serde_json::Value) -> bool {
        match value {
            serde_json::Value::Null => true,
            serde_json::Value::Object(fields) => fields.values().any(has_null),
            serde_json::Value::Array(items) => items.iter().any(has_null),
            _ => false,
        }
    }
    // Two files of one run start alike.
    let mut lines = some();
    lines.extend(parsed(&[refused("a.test", 443)]));
    let events: Vec<serde_json::Value> = lines.iter().map(ocsf::event).collect();
    let mut uids: Vec<&str> = events
        .iter()
        .filter_map(|event| event["metadata"]["uid"].as_str())
        .collect();
    uids.sort_unstable();
    uids.dedup();
    assert_eq!(uids.len(), lines.len());
    for (event, line) in events.iter().zip(&lines) {
        assert!(!has_null(event), "{event}");
        let is_denied = line.event.verdict == Verdict::Denied;
        assert_eq!(event["disposition_id"] == 2, is_denied, "{event}");
        assert_eq!(event["action_id"] == 2, is_denied, "{event}");
    }
}

#[test]
fn a_burst_of_other_calls_does_not_hide_the_first_of_one() {
    let call = |name: &str, arguments: usize| {
        let what = EventDetail::Syscall {
            name: name.into(),
            call: format!("{name}({arguments})").into(),
            errno: "EPERM".into(),
        };
        Event::new(WallName::Syscalls, Verdict::Denied, what)
    };
    let mut quotas = Quotas::default();
    for arguments in 0..500 {
        quotas.take(call("socket", arguments), 0);
    }
    // The control: that call's new forms are over their limit.
    assert_eq!(quotas.take(call("socket", 501), 0), []);
    let first = call("init_module", 0);
    assert_eq!(quotas.take(first.clone(), 0), [first]);
    assert_eq!(quotas.take(call("init_module", 1), 0), []);
}

#[test]
fn again_counts_an_event_as_take_does() {
    let event = |n: u64| {
        let what = EventDetail::Connection {
            via: None,
            host: format!("h{}.test", n * n % 131).into(),
            port: Some(443),
            sent: Some(0),
            received: Some(0),
        };
        Event::new(WallName::Network, Verdict::Ended, what)
    };
    let with = |event: &Event, n: u64| {
        let mut event = event.clone();
        if let EventDetail::Connection { sent, received, .. } = &mut event.what {
            (*sent, *received) = (Some(n), Some(2 * n));
        }
        event
    };
    let (mut taken, mut again) = (Quotas::default(), Quotas::default());
    let mut counted = 0;
    for n in 0..20_000_u64 {
        // Bursts, then pauses after which a form counts as new.
        let now = n * 3 + n / 500 * 70_000;
        assert_eq!(taken.due(now), again.due(now), "{n}");
        let form = event(n);
        let lines = match again.again(&form, (Some(n), Some(2 * n)), now) {
            true => {
                counted += 1;
                Vec::new()
            }
            false => again.take(with(&form, n), now),
        };
        assert_eq!(taken.take(with(&form, n), now), lines, "{n}");
        assert_eq!(taken.due_ms(), again.due_ms(), "{n}");
    }
    assert!(counted > 1_000, "{counted}");
    assert_eq!(taken.left_out(), again.left_out());
    assert_eq!(taken.rest(), again.rest());
}

#[test]
fn a_hint_about_a_denial_can_still_be_followed() {
    let event = Event {
        missing_rule: Some("a.test".into()),
        hint: Some("agentbox update --network-add a.test c1".into()),
        ..refused("a.test", 443)
    };
    let lines = parsed(&[event]);
    let lines: Vec<&LogLine> = lines.iter().collect();
    let text = |is_over| {
        let subject = report::RunHeader {
            is_over,
            ..report::RunHeader::default()
        };
        report::text(&subject, &lines)
    };
    assert!(text(false).contains("to allow it: agentbox update"));
    // The container is gone, so its rules cannot change.
    let over = text(true);
    assert!(!over.contains("agentbox update"), "{over}");
    assert!(
        over.contains(
            "to allow it: the annotation dev.agentbox.network.allow=+,a.test for the next container"
        ),
        "{over}"
    );
}

#[test]
fn no_output_of_a_log_suggests_a_metadata_service() {
    // Lines of earlier versions name such rules.
    let lines = parsed(
        &["169.254.169.254:80", "metadata.google.internal:80"].map(|rule| Event {
            missing_rule: Some(rule.into()),
            hint: Some(format!("agentbox update --network-add {rule} c1").into()),
            ..refused("x.test", 80)
        }),
    );
    let lines: Vec<&LogLine> = lines.iter().collect();
    for is_over in [false, true] {
        let subject = report::RunHeader {
            is_over,
            ..report::RunHeader::default()
        };
        let text = report::text(&subject, &lines) + &markdown::text(&subject, &lines);
        let proposes = text.contains("169.254.169.254") || text.contains("metadata.google");
        assert!(!proposes, "{text}");
    }
}

#[test]
fn a_flood_of_denied_hosts_does_not_hide_a_call_or_a_limit() {
    let mut events: Vec<Event> = (0..300)
        .map(|n| refused(&format!("h{n}.test"), 443))
        .collect();
    let call = EventDetail::Syscall {
        name: "ptrace".into(),
        call: "ptrace(16, ...)".into(),
        errno: "EPERM".into(),
    };
    events.push(Event::new(WallName::Syscalls, Verdict::Denied, call));
    events.extend((0..300).map(|n| {
        let what = EventDetail::attempt(ConnectionKind::Http, &format!("f{n}.test"), Some(443));
        Event::new(WallName::Network, Verdict::Failed, what)
    }));
    let life = EventDetail::life(LifeState::Started);
    events.insert(0, Event::new(WallName::Life, Verdict::Noted, life));
    let lines = parsed(&events);
    let lines: Vec<&LogLine> = lines.iter().collect();
    let subject = report::RunHeader::default();
    let text = report::text(&subject, &lines);
    for word in ["ptrace(16, ...)", "and more: 2", " started\n"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(markdown::text(&subject, &lines).contains("ptrace(16, ...)"));
}

/// Former fault: the text had no times of denials.
#[test]
fn a_denial_is_listed_with_its_times() {
    let lines = parsed(&[refused("a.test", 443), refused("a.test", 443)]);
    let mut lines = lines;
    lines[1].time = "2026-01-02T03:14:05.678Z".into();
    let lines: Vec<&LogLine> = lines.iter().collect();
    let text = report::text(&report::RunHeader::default(), &lines);
    let wanted = "(from 2026-01-02T03:04:05Z to 2026-01-02T03:14:05Z)";
    assert!(text.contains(wanted), "{text}");
}

fn created(arguments: Vec<String>) -> Event {
    let what = EventDetail::Container {
        state: LifeState::Created,
        exit: None,
        signal: None,
        logs: Vec::new(),
        command: Some(LoggedCommand::of(arguments, 1000, 100)),
        kept: BTreeMap::new(),
        receipt_by: None,
    };
    Event::new(WallName::Life, Verdict::Noted, what)
}

#[test]
fn the_command_of_a_container_is_in_every_output_of_its_log() {
    let lines = parsed(&[created(vec![
        "sh".to_owned(),
        "-c".to_owned(),
        "a\u{1b}[2J".to_owned(),
    ])]);
    let text = words::line(&lines[0]);
    assert!(
        text.ends_with("created, to run as 1000:100: sh -c a\\u{1b}[2J"),
        "{text}"
    );
    let process = &ocsf::event(&lines[0])["process"];
    assert_eq!(process["name"], "sh");
    assert_eq!(process["cmd_line"], "sh -c a\\u{1b}[2J");
    assert_eq!(process["user"]["uid"], "1000");
    let subject = report::RunHeader {
        command: Some("as 1000:100: sh -c a".to_owned()),
        ..report::RunHeader::default()
    };
    let lines: Vec<&LogLine> = lines.iter().collect();
    let text = report::text(&subject, &lines);
    assert!(text.contains("\ncommand: as 1000:100: sh -c a\n"), "{text}");
    let page = markdown::text(&subject, &lines);
    assert!(page.contains("Command: `as 1000:100: sh -c a`"), "{page}");
}

/// A writer that continues a log looks for the last line in the last 64 KiB. It would mistake a part of a longer line
/// for a whole one.
#[test]
fn a_line_of_escaped_arguments_is_shorter_than_the_part_of_a_log_that_is_read() {
    for bad in ['\u{200b}', '\u{7f}', '"', '\\', 'a', '\u{10ffff}'] {
        let arguments = vec![String::from(bad).repeat(300); 100];
        let lines = Chain::default().render("", &Context::default(), &created(arguments));
        assert!(lines.len() < 40 << 10, "{bad:?}: {}", lines.len());
        let line: LogLine = serde_json::from_slice(&lines).unwrap();
        let EventDetail::Container { command, .. } = line.event.what else {
            panic!("{:?}", line.event.what);
        };
        let arguments = command.unwrap().arguments;
        assert_eq!(arguments.last().unwrap(), "...");
        assert!(arguments.len() > 5, "{}", arguments.len());
    }
}
