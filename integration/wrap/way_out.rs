//! N58: the way out of `wrap` is the one of the user's other programs: the proxy of their environment and the node's hosts
//! file. Neither gets past a rule or a check of addresses, and no sandbox chooses the proxy.

use std::io::{Read, Write};
use std::process::Command;

use super::NodeDir;
use super::account::Account;
use super::agents::WALLS;
use crate::command::{Finished, finish};
use crate::direct::program;
use crate::docker::Docker;
use crate::docker::allowlist::{arrived, internet, witness};
use crate::docker::upstream::{CODED, CompanyProxy, PASSWORD, PLACE, USER};

const HOST: &str = "api.example.test";

/// Looks for the password in all that a process can reach of processes, files and memory.
fn search() -> String {
    let (first, rest) = PASSWORD.split_at(4);
    let (code, coded) = CODED.split_at(4);
    format!(
        r#"
    echo "environment: $( (env; set; cat /proc/*/environ /proc/*/task/*/environ /proc/*/cmdline) 2>/dev/null | tr '\0' '\n' | grep -acE '{first}[{a}]{b}|{code}[{c}]{d}')"
    echo "files: $(grep -rlsaE '{first}[{a}]{b}' ~ "$PWD" /tmp /run /etc /var /dev/shm /home 2>/dev/null | wc -l)"
    python3 - <<'END'
import glob, os
marks = [("{first}" + "{rest}").encode(), ("{code}" + "{coded}").encode()]
hits = 0
for maps in glob.glob("/proc/[0-9]*/maps"):
    if str(os.getpid()) in maps:
        continue
    try:
        memory = open(maps.replace("maps", "mem"), "rb", 0)
        for line in open(maps):
            begin, last = (int(part, 16) for part in line.split()[0].split("-"))
            if " rw" in line and last - begin < 1 << 26:
                memory.seek(begin)
                content = memory.read(last - begin)
                hits += sum(mark in content for mark in marks)
    except (OSError, ValueError, OverflowError):
        pass
print("memory:", min(hits, 1))
END
"#,
        a = &rest[..1],
        b = &rest[1..],
        c = &coded[..1],
        d = &coded[1..],
    )
}

impl CompanyProxy {
    /// Its URL, with the credentials that it wants.
    fn url(&self, address: &str) -> String {
        format!("http://{USER}:{PASSWORD}@{address}:{}", self.port)
    }
}

impl Account {
    /// `agentbox ARGUMENTS...` by sudo and as the user, with these variables of the caller.
    fn by_both(&self, variables: &[(&str, &str)], arguments: &[&str]) -> [Finished; 2] {
        [self.sudo(&[]), self.alone(&[&program()])].map(|mut way| {
            way.envs(variables.iter().copied()).args(arguments);
            finish(&mut way)
        })
    }

    /// `agentbox wrap OPTIONS... -- bash -c SCRIPT` by both.
    fn goes_out(
        &self,
        variables: &[(&str, &str)],
        options: &[&str],
        script: &str,
    ) -> [Finished; 2] {
        let all = [&["wrap"], options, &["--", "bash", "-c", script]].concat();
        self.by_both(variables, &all)
    }
}

/// Asks the host for a path; the witness of the test's internet tells what arrived.
fn asking(path: &str) -> String {
    format!("curl -sS --max-time 30 http://{HOST}/{path}")
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n58_hosts_are_reached_through_the_users_proxy_and_its_password_stays_outside() {
    let _docker = Docker::connect();
    let _turn = witness();
    internet();
    let person = Account::new();
    let rule = format!("{HOST}:80");
    for address in [PLACE, "127.0.0.1"] {
        let proxy = CompanyProxy::start_at(address);
        let url = proxy.url(address);
        let plain = format!("http://{address}:{}", proxy.port);
        for (walls, variable) in WALLS.into_iter().zip(["HTTPS_PROXY", "https_proxy"]) {
            let about = format!("{address} {walls}");
            let options = ["--walls", walls, "--allow", &rule];
            // The control: without the variable the proxy hears of nothing.
            let before = proxy.asked().len();
            for said in person.goes_out(&[], &options, &asking("directly")) {
                assert!(
                    said.stdout.contains("\"path\": \"/directly\""),
                    "{about}: {said}"
                );
                assert!(
                    !said.stderr.contains("through the proxy"),
                    "{about}: {said}"
                );
            }
            assert_eq!(proxy.asked().len(), before, "{about}");
            let script = format!("{}; echo; {}", asking("behind"), search());
            for said in person.goes_out(&[(variable, &url)], &options, &script) {
                assert!(
                    said.stdout.contains("\"path\": \"/behind\""),
                    "{about}: {said}"
                );
                let line = format!("hosts are reached through the proxy {plain} ({variable})");
                assert!(said.stderr.contains(&line), "{about}: {said}");
                for nothing in ["environment: 0", "files: 0", "memory: 0"] {
                    assert!(said.stdout.contains(nothing), "{about}: {said}");
                }
                assert!(!said.stdout.contains(PASSWORD) && !said.stderr.contains(PASSWORD));
            }
            let asked = proxy.asked();
            assert_eq!(asked.len(), before + 2, "{about}: {asked:?}");
            // An address that was looked at, and not the name.
            let is_address = |line: &&str| {
                line.starts_with("CONNECT 198.51.100.10:") || line.starts_with("CONNECT [2001:")
            };
            let new = || asked[before..].iter().map(String::as_str);
            assert!(new().all(|line| is_address(&line)), "{about}: {asked:?}");
            stays_within_the_rules(&person, &proxy, &options, (variable, &url));
            let dry = [&["wrap"], &options[..], &["--dry-run", "--", "true"]].concat();
            for said in person.by_both(&[(variable, &url)], &dry) {
                let words = format!("through the proxy of your {variable}, {plain}");
                assert!(said.stdout.contains(&words), "{about}: {said}");
                assert!(!said.stdout.contains(PASSWORD) && !said.stderr.contains(PASSWORD));
            }
        }
    }
    // The control of the search: it finds the password where it is.
    let script = format!("export LEAK=$PASS; {}", search());
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).env("PASS", PASSWORD);
    shell.current_dir(&person.project).env("HOME", &person.home);
    let found = finish(&mut shell).stdout;
    for nothing in ["environment: 0", "memory: 0"] {
        assert!(!found.contains(nothing), "{found}");
    }
}

/// What is denied without a proxy is denied with one, and the proxy never hears of it. Exceptions are dialled directly.
fn stays_within_the_rules(
    person: &Account,
    proxy: &CompanyProxy,
    options: &[&str],
    variable: (&str, &str),
) {
    let before = proxy.asked().len();
    let script = format!(
        "for at in http://other.example.test/ http://private.example.test/ http://10.9.9.9/ {PLACE}:{port} 127.0.0.1:{port}; do \
           curl -sS --max-time 10 $at; curl -sS --noproxy '*' --max-time 10 $at; done; echo tried all",
        port = proxy.port
    );
    let more = [options, &["--allow", "private.example.test:80"]].concat();
    for said in person.goes_out(&[variable], &more, &script) {
        assert!(said.stdout.contains("tried all"), "{said}");
        assert!(said.stderr.contains("other.example.test"), "{said}");
    }
    assert_eq!(proxy.asked().len(), before, "{options:?}");
    for exceptions in [
        "api.example.test",
        ".example.test,x.test",
        "198.51.100.0/24 2001:db8::/64",
        "*",
    ] {
        let variables = [variable, ("NO_PROXY", exceptions)];
        for said in person.goes_out(&variables, options, &asking("excepted")) {
            assert!(
                said.stdout.contains("\"path\": \"/excepted\""),
                "{exceptions}: {said}"
            );
        }
    }
    assert_eq!(proxy.asked().len(), before, "{options:?}");
    // A proxy that refuses is no reason to go around it.
    let wrong = variable.1.replace(PASSWORD, "another");
    let arrived_before = arrived(&["/refused"]);
    for said in person.goes_out(&[(variable.0, &wrong)], options, &asking("refused")) {
        assert!(said.stdout.contains("(407)"), "{said}");
    }
    assert_eq!(arrived(&["/refused"]), arrived_before);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n58_no_sandbox_and_no_file_chooses_the_proxy() {
    let _docker = Docker::connect();
    let _turn = witness();
    internet();
    let person = Account::new();
    let proxy = CompanyProxy::start_at("127.0.0.1");
    let url = proxy.url("127.0.0.1");
    let rule = format!("{HOST}:80");
    let evil = [("HTTPS_PROXY", &*url)];
    person.does("mkdir -p ~/src/project/sub; cd ~/src/project && git init -q");
    for walls in WALLS {
        let options = ["--walls", walls, "--allow", &rule];
        let goes = |variables: &[(&str, &str)], more: &[&str], through: usize, line: &str| {
            let before = proxy.asked().len();
            let all = [&options[..], more].concat();
            for said in person.goes_out(variables, &all, &asking("x")) {
                let about = format!("{walls} {more:?} {line}");
                assert!(said.stdout.contains("\"path\": \"/x\""), "{about}: {said}");
                assert!(said.stderr.contains(line), "{about}: {said}");
                assert!(!said.stderr.contains(PASSWORD), "{about}: {said}");
            }
            assert_eq!(
                proxy.asked().len(),
                before + through,
                "{walls} {more:?} {line}"
            );
        };
        // The control: this variable leads through the proxy.
        goes(&evil, &[], 2, "through the proxy");
        // A sandbox writes the file from which direnv and others load the user's next environment.
        for file in [".env", "sub/.env.local", "sub/dev.env"] {
            let write = format!("printf 'Https_Proxy=\"{url}\"\\n' >{file}");
            person.wraps(&["--walls", walls], &write).ok();
            let sub = format!("{}/sub", person.project);
            let mut way = person.alone(&[&program()]);
            way.args(["wrap", "--walls", walls, "--allow", &rule]);
            way.args(["--", "bash", "-c", &asking("x")]);
            way.envs(evil).current_dir(sub);
            let before = proxy.asked().len();
            let said = finish(&mut way);
            assert!(
                said.stdout.contains("\"path\": \"/x\""),
                "{walls} {file}: {said}"
            );
            let line = "HTTPS_PROXY is not used, and hosts are dialled directly";
            assert!(said.stderr.contains(line), "{walls} {file}: {said}");
            assert!(
                said.stderr.contains("may have written"),
                "{walls} {file}: {said}"
            );
            assert_eq!(proxy.asked().len(), before, "{walls} {file}");
            person.does(&format!("rm ~/src/project/{file}"));
        }
        // A variable for the command is not the caller's.
        let pair = format!("HTTPS_PROXY={url}");
        if walls == "namespaces" {
            goes(&[], &["--set", "network.proxy-env=off", "-e", &pair], 0, "");
        }
        // No metadata service and no link-local address is a proxy.
        for wrong in [
            "http://169.254.169.254:80",
            "http://metadata.google.internal:80",
            "http://[fe80::1]:80",
            "socks5://127.0.0.1:1080",
        ] {
            goes(&[("HTTPS_PROXY", wrong)], &[], 0, "HTTPS_PROXY is not used");
        }
        // `--connect` would lead the workload to the proxy itself, which reaches any host.
        let port = proxy.port.to_string();
        let connect = [&options[..], &["--connect", &port]].concat();
        for said in person.goes_out(&evil, &connect, "echo ran") {
            assert!(!said.stdout.contains("ran"), "{walls}: {said}");
            assert!(
                said.stderr.contains("--connect leads to it"),
                "{walls}: {said}"
            );
        }
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn n58_the_nodes_file_and_a_ceiling_decide_about_the_users_proxy() {
    let _docker = Docker::connect();
    let _turn = witness();
    internet();
    let person = Account::new();
    let [users, nodes] = [
        CompanyProxy::start_at("127.0.0.1"),
        CompanyProxy::start_at(PLACE),
    ];
    let of_users = users.url("127.0.0.1");
    let rule = format!("{HOST}:80");
    let node = NodeDir::new();
    let own = nodes.url(PLACE);
    for walls in WALLS {
        for (text, of_user, of_node, line) in [
            ("", 1, 0, "through the proxy"),
            (
                "[network]\nupstream-from-user = \"off\"\n",
                0,
                0,
                "does not permit it",
            ),
            // An operator's ceiling lists hosts, past which a proxy of the user's choice would get.
            ("ceiling = \"permissive\"\n", 0, 0, "does not permit it"),
            (
                "ceiling = \"permissive\"\n[network]\nupstream-from-user = \"on\"\n",
                1,
                0,
                "through the proxy",
            ),
            (
                &format!("[network]\nupstream-proxy = \"{own}\"\n"),
                0,
                1,
                "",
            ),
        ] {
            let config = node.file("config.toml", text);
            let mut chmod = Command::new("chmod");
            finish(chmod.args(["600", &config])).ok();
            let before = [users.asked().len(), nodes.asked().len()];
            let mut way = person.sudo(&["--config", &config, "wrap", "--walls", walls]);
            way.args(["--allow", &rule, "--", "bash", "-c", &asking("x")]);
            way.env("HTTPS_PROXY", &of_users);
            let said = finish(&mut way);
            assert!(
                said.stdout.contains("\"path\": \"/x\""),
                "{walls} {text}: {said}"
            );
            assert!(said.stderr.contains(line), "{walls} {text}: {said}");
            let now = [users.asked().len(), nodes.asked().len()];
            assert_eq!(
                now,
                [before[0] + of_user, before[1] + of_node],
                "{walls} {text}"
            );
        }
    }
}

/// The node's hosts file counts for names that rules list, by the same checks as an answer of DNS.
#[test]
#[ignore = "needs the rig: hack/test"]
fn n58_the_nodes_hosts_file_leads_where_rules_and_addresses_allow() {
    let _docker = Docker::connect();
    let _turn = witness();
    internet();
    let person = Account::new();
    let name = |kind: &str| format!("{kind}-{}.corp.test", person.uid);
    let [private, metadata, cloud, here, public] =
        ["private", "metadata", "cloud", "here", "public"].map(name);
    let path = format!("hosts-{}", person.uid);
    let ask = |host: &str| format!("curl -sS --max-time 20 http://{host}/{path}");
    // The control: nothing else knows the name.
    for walls in WALLS {
        let allow = format!("internal:{private}:80");
        for said in person.goes_out(&[], &["--walls", walls, "--allow", &allow], &ask(&private)) {
            assert!(!said.stdout.contains("\"path\""), "{walls}: {said}");
        }
    }
    let lines = format!(
        "10.9.9.9 {private}\n169.254.169.254 {metadata}\n100.100.100.200 {cloud}\n127.0.0.1 {here}\n198.51.100.10 {public}\n"
    );
    let hosts = std::fs::OpenOptions::new()
        .append(true)
        .create(true)
        .open("/etc/hosts");
    hosts.unwrap().write_all(lines.as_bytes()).unwrap();
    // A server on the loopback, until the test ends.
    let listener = std::net::TcpListener::bind("127.0.0.1:80").unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (mut stream, mut head) = (stream, [0; 4096]);
            let _asked = stream.read(&mut head);
            let _sent = stream.write_all(
                b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\nConnection: close\r\n\r\n{\"path\": \"/\"}",
            );
        }
    });
    // The controls: this machine reaches all of them.
    for host in [&private, &metadata, &cloud, &here, &public] {
        let mut curl = Command::new("bash");
        let said = finish(curl.args(["-c", &ask(host)]));
        assert!(said.stdout.contains("\"path\""), "{host}: {said}");
    }
    for walls in WALLS {
        let before = arrived(&[&path]);
        for (rule, host) in [
            // Without `internal:` a private address is none that a rule means.
            (format!("{private}:80"), &private),
            (format!("internal:{metadata}:80"), &metadata),
            (format!("internal:{cloud}:80"), &cloud),
            (format!("internal:{here}:80"), &here),
            // No rule names this one.
            (format!("internal:{private}:80"), &public),
        ] {
            let options = ["--walls", walls, "--allow", &rule];
            for said in person.goes_out(&[], &options, &ask(host)) {
                assert!(!said.stdout.contains("\"path\""), "{walls} {rule}: {said}");
            }
        }
        assert_eq!(arrived(&[&path]), before, "{walls}");
        for (rule, host) in [
            (format!("internal:{private}:80"), &private),
            (format!("{public}:80"), &public),
        ] {
            let options = ["--walls", walls, "--allow", &rule];
            for said in person.goes_out(&[], &options, &ask(host)) {
                assert!(said.stdout.contains("\"path\""), "{walls} {rule}: {said}");
            }
        }
    }
}
