//! Texts of engines' files, with unusual ones.

use std::path::{Path, PathBuf};

use super::containerd::{self, Registration};
use super::docker::{self, EntryState};
use super::{own, podman};

const BINARY: &str = "/usr/local/bin/agentbox";

fn main_text(text: &str) -> String {
    match containerd::register(text, Path::new(BINARY)) {
        Registration::Main(text) => text,
        other => panic!("{other:?}"),
    }
}

fn refusal(text: &str) -> String {
    match containerd::register(text, Path::new(BINARY)) {
        Registration::None(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_rest_of_daemon_json_keeps_its_form() {
    let before = "{\n\t\"log-level\": \"warn\",\n\t\"runtimes\": {\n\t\t\"z\": {\"path\":\"/z\"},\n\t\t\"a\": { \"path\" : \"/a\" }\n\t},\n\t\"dns\": [\"1.1.1.1\",   \"::1\"]\n}\n";
    let after = docker::register(before, BINARY).unwrap().unwrap();
    for line in before.lines().filter(|line| !line.contains("/a")) {
        assert!(after.lines().any(|other| other == line), "{line}: {after}");
    }
    assert!(after.contains("{ \"path\" : \"/a\" },"), "{after}");
    assert_eq!(
        docker::register(&after, BINARY).unwrap(),
        None,
        "once is enough"
    );
    assert_eq!(
        docker::unregister(&after, BINARY).unwrap().as_deref(),
        Some(before)
    );
    assert_eq!(docker::unregister(&after, "/elsewhere").unwrap(), None);
}

#[test]
fn a_daemon_json_of_any_form_is_changed_and_restored() {
    for before in [
        "",
        " \n",
        "{}",
        "{\"debug\":true}",
        "{ \"runtimes\": {} }",
        "{\n  \"runtimes\": { \"other\": { \"path\": \"/bin/other\" } },\n  \"n\": 1.50e+3\n}",
        "{\"a\":\"\\u00e9\\/\",\r\n\"b\":[]}\r\n",
    ] {
        let after = docker::register(before, BINARY).unwrap_or_else(|e| panic!("{before}: {e}"));
        let after = after.unwrap();
        let value: Result<serde_json::Value, _> = serde_json::from_str(&after);
        let value = value.unwrap_or_else(|e| panic!("{after}: {e}"));
        assert_eq!(value["runtimes"]["agentbox"]["path"], BINARY);
        let gone = docker::unregister(&after, BINARY).unwrap().unwrap();
        assert!(!gone.contains("agentbox"), "{gone}");
        assert!(
            serde_json::from_str::<serde_json::Value>(&gone).is_ok(),
            "{gone}"
        );
    }
}

#[test]
fn a_daemon_json_that_dockerd_refuses_is_refused() {
    for broken in [
        "{ \"debug\": tru",
        "[]",
        "\"text\"",
        "{ // a comment\n}",
        "{\"a\":1,}",
        "{'a':1}",
        "{\"runtimes\": []}",
        "{\"runtimes\": {}, \"runtimes\": {}}",
        "{\"runtimes\": {\"agentbox\": {}, \"agentbox\": {}}}",
        "\u{feff}{}",
    ] {
        assert!(docker::register(broken, BINARY).is_err(), "{broken}");
    }
    let changed = "{\"runtimes\":{\"agentbox\":{\"path\":\"/elsewhere\",\"runtimeArgs\":[]}}}";
    assert_eq!(docker::entry_state(changed), Ok(EntryState::Foreign));
}

/// An entry with `--policy strict` is a wall.
#[test]
fn an_entry_with_more_than_a_path_is_the_operators() {
    let with = |entry: &str| format!("{{\"runtimes\":{{\"agentbox\":{entry}}}}}");
    for (entry, state) in [
        (
            "{\"path\":\"/opt/a\"}",
            EntryState::Plain("/opt/a".to_owned()),
        ),
        (
            "{\"path\":\"/opt/a\",\"runtimeArgs\":[\"--policy\",\"strict\"]}",
            EntryState::Foreign,
        ),
        ("{\"runtimeType\":\"x\"}", EntryState::Foreign),
        ("\"/opt/a\"", EntryState::Foreign),
    ] {
        assert_eq!(docker::entry_state(&with(entry)), Ok(state), "{entry}");
    }
    assert_eq!(docker::entry_state("{}"), Ok(EntryState::Absent));
    assert!(docker::is_default("{\"default-runtime\":\"agentbox\"}"));
    assert!(!docker::is_default("{\"default-runtime\":\"runc\"}"));
}

#[test]
fn containerds_file_keeps_every_byte() {
    for before in [
        "version = 2\n# a comment\n\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\n\tdefault_runtime_name = 'runc' # tabs\n",
        "version = 3\r\n[plugins]\r\n  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\r\n",
        "version = 0x2\nplugins.\"io.containerd.grpc.v1.cri\".sandbox_image = \"\"\"\n[x]\n\"\"\"\n",
        "version = 2\ndisabled_plugins = [\"aufs\"]\n",
    ] {
        let Registration::Main(after) = containerd::register(before, Path::new(BINARY)) else {
            // A dotted key closes its table: nothing can be added to it.
            assert!(before.contains("0x2"), "{before}");
            continue;
        };
        assert!(after.starts_with(before), "{after}");
        assert_eq!(containerd::without(&after).unwrap(), before);
        assert_eq!(main_text(&after), after, "a second time changes nothing");
    }
    // A last line without a line end gets one.
    let after = main_text("version = 2");
    assert_eq!(containerd::without(&after).unwrap(), "version = 2\n");
}

#[test]
fn a_file_of_containerd_that_cannot_be_changed_stays_and_the_reason_is_given() {
    for (text, why) in [
        ("version = 2\nplugins = {}\n", "cannot append"),
        ("version = 2\nversion = 2\n", "not TOML"),
        ("version = [", "not TOML"),
        ("", "neither version"),
        ("version = 4\n", "neither version"),
        (
            "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n",
            "disabled",
        ),
        (
            "version = 3\ndisabled_plugins = ['io.containerd.cri.v1.runtime']\n",
            "disabled",
        ),
        ("version = 2\n# agentbox: begin\n", "counterpart"),
        ("version = 2\n# agentbox: end\n", "counterpart"),
    ] {
        assert!(refusal(text).contains(why), "{text}: {}", refusal(text));
    }
    // A block of an earlier hack/install is matched by its first words.
    let old = "version = 2\n# agentbox: begin (hack/install; docs/kubernetes.md)\nx = [\n# agentbox: end\n";
    assert_eq!(containerd::without(old).unwrap(), "version = 2\n");
    assert!(main_text(old).starts_with("version = 2\n# agentbox: begin (agentbox install"));
}

#[test]
fn containerd_2_gets_a_drop_in_and_containerd_1_never() {
    let with = |version: u8, imports: &str| {
        let text = format!("version = {version}\nimports = [{imports}]\n");
        containerd::register(&text, Path::new(BINARY))
    };
    let usual = "'/etc/containerd/conf.d/*.toml'";
    let Registration::DropIn { path, text } = with(3, usual) else {
        panic!("no drop-in");
    };
    assert_eq!(path, PathBuf::from("/etc/containerd/conf.d/agentbox.toml"));
    let table: toml::Table = text.parse().unwrap();
    assert_eq!(table["version"].as_integer(), Some(3));
    assert!(table["plugins"]["io.containerd.cri.v1.runtime"]["containerd"]["runtimes"]["agentbox-strict"].is_table());
    for (version, imports) in [
        (2, usual),
        (3, "'/home/me/*.toml'"),
        (3, "'/etc/containerd/*/*.toml'"),
        (3, "'/etc/containerd/../x/*.toml'"),
        (3, "'conf.d/*.toml'"),
        (3, "'/etc/containerd/one.toml'"),
    ] {
        assert!(
            matches!(with(version, imports), Registration::Main(_)),
            "{imports}"
        );
    }
}

#[test]
fn an_engines_default_is_found_in_any_notation() {
    for text in [
        "[plugins.\"io.containerd.grpc.v1.cri\".containerd]\ndefault_runtime_name = \"agentbox\" # ours\n",
        "plugins.\"io.containerd.cri.v1.runtime\".containerd.default_runtime_name = 'agentbox-strict'\n",
        "[plugins.x]\ncontainerd = { default_runtime_name = \"agentbox\" }\n",
    ] {
        assert!(containerd::is_default(text), "{text}");
        assert!(!containerd::is_default(&text.replace("agentbox", "runc")));
    }
    for text in [
        "[engine]\nruntime=\"agentbox\"\n",
        "engine.runtime = 'agentbox'",
    ] {
        assert!(podman::is_default(text), "{text}");
    }
    assert!(!podman::is_default(
        "[engine]\nruntime = \"crun\" # agentbox\n[x]\nruntime = \"agentbox\"\n"
    ));
}

#[test]
fn only_paths_that_need_no_escaping_are_written() {
    assert!(own::is_plain(Path::new("/opt/box-1.0_x+/bin/agentbox")));
    for odd in ["/opt/a b", "/opt/\"", "/opt/$x", "/opt/a\nb", "/opt/\u{e9}"] {
        assert!(!own::is_plain(Path::new(odd)), "{odd}");
    }
    assert!(
        own::strict(Path::new("/opt/bin/agentbox"))
            .contains("exec /opt/bin/agentbox --policy strict")
    );
}
