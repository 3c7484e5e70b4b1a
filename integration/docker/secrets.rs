//! Secrets of the node that are added to requests on the way out (N43, N44 of the threat list): no container has them.

use super::allowlist::{Agent, INTERNET, arrived, internet, witness};
use super::node::NodeFiles;
use super::{Docker, runtime};
use crate::command::{await_that, run};

pub const VALUE: &str = "sk-live-5d7c1e0b42f94a6b8f3a";
const PLACEHOLDER: &str = "agentbox-secret-model";
pub const ALLOW: &str = "dev.agentbox.network.allow=GET,HEAD,POST https://api.example.test/repos/acme/**, \
                     GET https://api.example.test/other/**, GET https://index.example.test/**";

/// A node with a secret for requests to one host.
pub fn node(mode: u32) -> NodeFiles {
    internet();
    let mut node = NodeFiles::default();
    node.write("model-key", mode, &format!("{VALUE}\n"));
    node.write("config.toml", 0o600, &node_text());
    node
}

/// Its file, which ends in the secret.
pub fn node_text() -> String {
    format!(
        "[network]\nupstream-trust-roots = \"{INTERNET}/authority.crt\"\n\
         [[secret]]\nname = \"model\"\nfile = \"/etc/agentbox/model-key\"\npolicies = [\"standard\"]\n\
         requests = [\"GET,HEAD,POST https://api.example.test/repos/acme/**\"]\nheader = \"authorization: Bearer {{}}\"\n\
         env = \"MODEL_API_KEY\"\n"
    )
}

/// Whether a process of the rig has these bytes in writable memory. One that has ended has none.
fn has_in_memory(pid: &str, what: &[u8]) -> bool {
    use std::os::unix::fs::FileExt;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps"));
    let memory = std::fs::File::open(format!("/proc/{pid}/mem"));
    let (Ok(maps), Ok(memory)) = (maps, memory) else {
        return false;
    };
    let regions = maps.lines().filter_map(|line| {
        let (bounds, rest) = line.split_once(' ')?;
        let (begin, end) = bounds.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        rest.starts_with("rw")
            .then_some((number(begin)?, number(end)?))
    });
    regions.into_iter().any(|(begin, end)| {
        let mut bytes = vec![0; usize::try_from(end - begin).unwrap()];
        let read = memory.read_at(&mut bytes, begin).unwrap_or(0);
        bytes[..read]
            .windows(what.len())
            .any(|window| window == what)
    })
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_secret_of_the_node_is_in_the_request_and_nowhere_inside() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = node(0o600);
    let key = "MODEL_API_KEY=key-of-the-engine";
    let agent = Agent::start(&docker, &[runtime(), "-e", key, "--annotation", ALLOW]);
    // Programs find the placeholder, no matter what the engine reports.
    let found = agent.container.exec(&[], &["printenv", "MODEL_API_KEY"]);
    assert_eq!(found.stdout.trim(), PLACEHOLDER, "{found}");
    let first = agent.container.exec(&[], &["cat", "/proc/1/environ"]);
    assert!(first.stdout.contains(PLACEHOLDER) && !first.stdout.contains("key-of-the-engine"));
    let header = format!("Authorization: Bearer {PLACEHOLDER}");
    for (place, fields) in [
        ("placeholder", &["-H", &*header][..]),
        ("none", &[]),
        ("own", &["-H", "Authorization: Bearer key-of-the-agent"]),
    ] {
        let address = format!("http://api.example.test/repos/acme/{place}");
        for direct in [true, false] {
            let got = agent.curl(direct, &[fields, &[&*address]].concat());
            assert!(got.stdout.contains(place), "{got}");
        }
        let path = format!("/repos/acme/{place}\"");
        assert_eq!(arrived(&[&path, &format!("Bearer {VALUE}")]), 2, "{place}");
    }
    assert_eq!(arrived(&["key-of-the-agent"]), 0);
    // Another request to that host, and another host, get no secret.
    let got = agent.curl(true, &["http://api.example.test/other/x"]);
    assert!(got.stdout.contains("/other/x"), "{got}");
    assert_eq!(arrived(&["/other/x", VALUE]), 0);
    for refused in [
        &["-H", &*header, "http://index.example.test/x"][..],
        &["-H", &*header, "http://api.example.test/other/y"],
        &[
            "-H",
            "X-Other: agentbox-secret-model",
            "http://api.example.test/repos/acme/y",
        ],
        &["http://api.example.test/repos/acme/y?key=agentbox-secret-model"],
        &["http://api.example.test/repos/acme/agentbox-secret-model"],
    ] {
        let got = agent.curl(true, &[&["-i"], refused].concat());
        assert!(got.stdout.starts_with("HTTP/1.1 403 agentbox: "), "{got}");
        assert!(got.stdout.contains("placeholder of secret model"), "{got}");
    }
    // A host that echoes what it received, in pieces of seven bytes.
    let address = "http://api.example.test/repos/acme/echo";
    let got = agent.curl(true, &["-i", address]);
    assert!(
        got.stdout.contains("authorization") && got.stdout.contains("****"),
        "{got}"
    );
    assert!(
        !got.stdout.contains(VALUE) && !got.stdout.contains("c2stbGl2ZS"),
        "{got}"
    );
    let head = agent.curl(true, &["-I", "http://api.example.test/repos/acme/head"]);
    assert!(
        head.stdout.starts_with("HTTP/1.1 200") && !head.stdout.contains("chunked"),
        "{head}"
    );
    // Other answers of that host are searched for the secret too.
    let other = agent.curl(true, &["-i", "http://api.example.test/other/echo"]);
    assert!(
        other.stdout.contains("X-Echo: none") || other.stdout.contains("x-echo: none"),
        "{other}"
    );
    // On the node it is only in its file and in the process that needs it.
    let id = agent.container.inspect("{{.Id}}");
    for place in ["/run/agentbox", "/var/lib/agentbox", "/run/docker"] {
        let found = run("grep", &["-rlIs", "--binary-files=text", VALUE, place]);
        assert_eq!(found.stdout, "", "{place}");
    }
    let control = run("grep", &["-rls", VALUE, "/etc/agentbox"]);
    assert!(control.stdout.contains("model-key"), "{control}");
    let sidecar = agent.sidecar();
    let reader = super::requests::reader_of(&sidecar).unwrap();
    assert!(has_in_memory(&reader, VALUE.as_bytes()), "the control");
    assert!(!has_in_memory(&sidecar, VALUE.as_bytes()));
    let told = run("agentbox", &["explain", &id]);
    assert!(told.stdout.contains("secret model, kept outside"), "{told}");
    assert!(!told.stdout.contains(VALUE), "{told}");
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_secret_that_cannot_be_kept_is_an_error() {
    let docker = Docker::alone();
    let _turn = witness();
    let allow = |rules: &str| format!("dev.agentbox.network.allow={rules}");
    let refused = |allow: &str| {
        let all = ["--rm", runtime(), "--annotation", allow, "test-workloads"];
        docker.run(&all, &["true"])
    };
    {
        let _node = node(0o600);
        let both = allow("api.example.test, POST https://api.example.test/repos/acme/**");
        let got = refused(&both);
        assert!(
            got.code != 0 && got.stderr.contains("reads only requests of request rules"),
            "{got}"
        );
        // If no request to its host is allowed, the secret is not given, and no message says so.
        let got = refused(&allow("index.example.test"));
        assert_eq!(got.code, 0, "{got}");
    }
    let wanted = allow("POST https://api.example.test/repos/acme/**");
    {
        let _node = node(0o644);
        let got = refused(&wanted);
        assert!(got.code != 0 && got.stderr.contains("chmod 600"), "{got}");
    }
    // Another user could put another file of root's there.
    let mut node = node(0o600);
    let dir = "/srv/way-of-secrets";
    std::fs::create_dir_all(dir).unwrap();
    run("cp", &["-p", "/etc/agentbox/model-key", dir]).ok();
    let config = std::fs::read_to_string("/etc/agentbox/config.toml").unwrap();
    let moved = config.replace("/etc/agentbox/model-key", &format!("{dir}/model-key"));
    node.write("config.toml", 0o600, &moved);
    for (mode, starts) in [("0755", true), ("0777", false)] {
        run("chmod", &[mode, dir]).ok();
        let got = refused(&wanted);
        let told = got.stderr.contains("others than root may write it");
        assert_eq!((got.code == 0, told), (starts, !starts), "{mode}: {got}");
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// Running processes of this program: their names and numbers.
fn own_processes() -> Vec<(String, String)> {
    let all = std::fs::read_dir("/proc").unwrap();
    let pids = all.filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    pids.filter_map(|pid| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        name.starts_with("agentbox")
            .then(|| (name.trim().to_owned(), pid))
    })
    .collect()
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn who_hands_a_secret_on_keeps_no_copy_of_it() {
    let _docker = Docker::alone();
    let _turn = witness();
    let _node = node(0o600);
    let dir = std::env::temp_dir().join(format!("secrets-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    for walls in [&[][..], &["--walls", "landlock"]] {
        // `wrap` reads the secret and lives as long as its command.
        let mut wrap = std::process::Command::new("agentbox")
            .args(["wrap"])
            .args(walls)
            .args(["--policy", "standard", "--set"])
            .arg("network.allow=POST https://api.example.test/repos/acme/**")
            .args([
                "--",
                "sh",
                "-c",
                "printenv MODEL_API_KEY; echo began >began; exec sleep 30",
            ])
            .current_dir(&dir)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let began = dir.join("began");
        await_that("it began", || began.exists());
        std::fs::remove_file(began).unwrap();
        let (mut with, mut without) = (Vec::new(), Vec::new());
        for (name, pid) in own_processes() {
            match has_in_memory(&pid, VALUE.as_bytes()) {
                true => with.push(name),
                false => without.push(name),
            }
        }
        wrap.kill().unwrap();
        wrap.wait().unwrap();
        // It ends when it notices: the next round would find it too.
        await_that("its reader has ended", || {
            let mut left = own_processes().into_iter();
            !left.any(|(name, _)| name == "agentbox-reader")
        });
        assert_eq!(with, ["agentbox-reader"], "{walls:?}");
        assert!(without.iter().any(|name| name == "agentbox"), "{without:?}");
    }
}

/// N44: errors of `create` are errors of `update` too, and request rules come back.
#[test]
#[ignore = "needs the rig of hack/test"]
fn an_update_opens_no_host_of_a_secret_whole() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = node(0o600);
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let id = agent.container.inspect("{{.Id}}");
    let update = |option: &str, rules: &str| run("agentbox", &["update", &id, option, rules]);
    for whole in [
        "api.example.test",
        "api.example.test:8443",
        "*.example.test:80",
    ] {
        let refused = update("--network-add", whole).failed();
        assert!(
            refused.contains("reads only requests of request rules"),
            "{refused}"
        );
    }
    // The control: another host.
    update("--network-add", "other.example.test").ok();
    let request = "GET https://api.example.test/repos/acme/**";
    let taken = update("--network-allow", "");
    assert_eq!(taken.code, 0, "{taken}");
    assert!(taken.stderr.contains("secret model any more"), "{taken}");
    let get = |word: &str| {
        let address = format!("http://api.example.test/repos/acme/{word}");
        agent.curl(true, &[&address])
    };
    get("none-allowed");
    assert_eq!(arrived(&["none-allowed"]), 0);
    update("--network-allow", request).ok();
    let got = get("back-again");
    assert_eq!(arrived(&["back-again", VALUE]), 1, "{got}");
}

/// Each start has as many uses as the node's file says, and no more.
#[test]
#[ignore = "needs the rig of hack/test"]
fn uses_of_a_secret_are_bounded_in_each_start() {
    let docker = Docker::alone();
    let _turn = witness();
    let mut node = node(0o600);
    node.write(
        "config.toml",
        0o600,
        &format!(
            "[network]\nupstream-trust-roots = \"{INTERNET}/authority.crt\"\n\
             [[secret]]\nname = \"model\"\nfile = \"/etc/agentbox/model-key\"\npolicies = [\"standard\"]\n\
             requests = [\"GET https://api.example.test/repos/acme/**\"]\nheader = \"authorization: Bearer {{}}\"\nuses = 2\n"
        ),
    );
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let status = || {
        let address = "http://api.example.test/repos/acme/used";
        let code = ["-o", "/dev/null", "-w", "%{http_code}", address];
        agent.curl(true, &code).stdout
    };
    for _ in 0..2 {
        assert_eq!([status(), status(), status()], ["200", "200", "403"]);
        agent.container.call("restart", &["--time=0"]).ok();
    }
}

/// N55. Without namespaces every process can reach the proxy's port: those of another user, and those of another
/// container in the same network.
#[test]
#[ignore = "needs the rig of hack/test"]
fn no_stranger_gets_a_secret_from_the_proxy_of_landlocks_walls() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = node(0o600);
    let dir = std::env::temp_dir().join(format!("stranger-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (port, go) = (dir.join("port"), dir.join("go"));
    let script = "echo ${HTTP_PROXY##*:} >new && mv new port; while ! [ -e go ]; do sleep 0.05; done; \
                  exec curl -sS -m 20 http://api.example.test/repos/acme/by-the-command";
    let wrap = std::process::Command::new("agentbox")
        .args([
            "wrap", "--walls", "landlock", "--policy", "standard", "--set",
        ])
        .arg("network.allow=GET https://api.example.test/repos/acme/**")
        .args(["--", "sh", "-c", script])
        .current_dir(&dir)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    await_that("the proxy's port", || port.exists());
    let number = std::fs::read_to_string(&port).unwrap();
    let proxy = format!("http://127.0.0.1:{}", number.trim());
    let url = |who: &str| format!("http://api.example.test/repos/acme/by-{who}");
    let (user, container) = (url("another-user"), url("another-container"));
    let curl = ["curl", "-sS", "-m", "10", "-x", &proxy];
    let another = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let by_user = run("setpriv", &[&another[..], &curl, &[&user]].concat());
    let beside = ["--runtime=runc", "--network=host", "-u", "1000"];
    let beside = docker.start(&beside, &["test-workloads", "sleep", "600"]);
    let by_container = beside.exec(&[], &[&curl[..], &[&container]].concat());
    std::fs::write(&go, "").unwrap();
    let own = wrap.wait_with_output().unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    assert_ne!(by_user.code, 0, "{by_user}");
    assert_ne!(by_container.code, 0, "{by_container}");
    assert_eq!(arrived(&["by-another-"]), 0);
    // The control: the command's own request gets the secret, over the same port.
    assert!(own.status.success(), "{own:?}");
    assert_eq!(arrived(&["by-the-command", VALUE]), 1);
}

/// An agent's day without a key inside: it clones and pushes one repository and reads another's issues, no more.
#[test]
#[ignore = "needs the rig of hack/test"]
fn an_agent_works_with_git_and_an_interface_without_a_key() {
    const ALLOW: &str = "dev.agentbox.network.allow=git:read files.example.test/smart/*, git:push files.example.test/smart/write, \
                         GET https://api.example.test/repos/acme/other/issues";
    let docker = Docker::alone();
    let _turn = witness();
    let mut node = node(0o600);
    let secret = |name: &str, requests: &str, place: &str| {
        format!(
            "[[secret]]\nname = \"{name}\"\nfile = \"/etc/agentbox/model-key\"\npolicies = [\"standard\"]\n\
             requests = [{requests}]\n{place}\n"
        )
    };
    let (push, get) = (
        "\"git:push files.example.test/smart/write\"",
        "\"GET,POST https://api.example.test/**\"",
    );
    let config = format!(
        "[network]\nupstream-trust-roots = \"{INTERNET}/authority.crt\"\n{}{}",
        secret("git", push, "basic = \"x-access-token\""),
        secret("api", get, "query = \"key\"\nenv = \"API_KEY\"\nuses = 4")
    );
    node.write("config.toml", 0o600, &config);
    super::requests::smart_repositories();
    let open = "dev.agentbox.network.tls=open";
    let agent = Agent::start(
        &docker,
        &[runtime(), "--annotation", ALLOW, "--annotation", open],
    );
    let does = |script: &str| agent.container.exec(&[], &["sh", "-c", script]);
    let works = |name: &str| {
        does(&format!(
            "cd /tmp && rm -rf w && git clone -q https://files.example.test/smart/{name} w && cd w && cat file && date +%N >new && \
             git add new && git -c user.name=a -c user.email=a@b commit -qm inside && git push -q origin HEAD:main && echo pushed"
        ))
    };
    let done = works("write");
    assert!(done.stdout.ends_with("pushed\n"), "{done}");
    assert_eq!(super::requests::heads("write"), "inside\none\n");
    let password = data_encoding::BASE64.encode(format!("x-access-token:{VALUE}").as_bytes());
    let basic = format!("Basic {password}");
    // The push has it, and the fetch of objects does not.
    assert!(arrived(&["/smart/write/git-receive-pack", &basic]) > 0);
    assert!(arrived(&["/smart/write/git-upload-pack"]) > 0);
    assert_eq!(arrived(&["/git-upload-pack", &basic]), 0);
    // Without a variable for it a program needs no key; with one it has the placeholder.
    let issues = "https://api.example.test/repos/acme/other/issues";
    for query in ["", "?key=$API_KEY", "?key=own", "?page=2&k%65y=own"] {
        let got = does(&format!("curl -sS \"{issues}{query}\""));
        assert!(got.stdout.contains("/repos/acme/other/issues"), "{got}");
        assert!(!got.stdout.contains(VALUE), "{got}");
    }
    assert_eq!(
        arrived(&["/repos/acme/other/issues", &format!("key={VALUE}")]),
        4
    );
    assert_eq!(arrived(&["key=own"]), 0);
    // As many requests as the node allows.
    let got = does(&format!("curl -sS {issues}"));
    assert!(
        got.stdout.contains("the secret api is used up: 4 requests"),
        "{got}"
    );
    let id = agent.container.inspect("{{.Id}}");
    let told = run("agentbox", &["network", &id]).ok();
    assert!(
        told.contains("secret api: 4 of 4 requests had it\n"),
        "{told}"
    );
    // Elsewhere: another repository, another path of the same API, and the placeholder in other places.
    let refused = works("read");
    assert!(
        refused.stdout == "hello\n" && refused.stderr.contains("403"),
        "{refused}"
    );
    assert_eq!(super::requests::heads("read"), "one\n");
    for script in [
        "curl -sS -d x https://api.example.test/gists",
        "curl -sS -d x https://api.example.test/repos/acme/other/issues",
        "curl -sS -H \"X-Key: $API_KEY\" https://api.example.test/repos/acme/other/issues",
        "curl -sS \"https://api.example.test/repos/acme/other/issues?other=$API_KEY\"",
        "curl -sS \"https://files.example.test/smart/$API_KEY/info/refs?service=git-upload-pack\"",
    ] {
        let got = does(script);
        assert!(got.stdout.contains("denied by agentbox"), "{script}: {got}");
    }
    assert_eq!(arrived(&["/gists"]), 0);
    let found = does("env; cat /proc/1/environ; grep -rs sk-live /run /tmp /root /home");
    assert!(!found.stdout.contains(VALUE), "{found}");
}
