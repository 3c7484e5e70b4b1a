//! TLS that is opened so that agentbox sees the requests within it (N45 of the threat list). Programs need no change,
//! and requests that no rule allows do not arrive.

use super::allowlist::{Agent, INTERNET, arrived, witness};
use super::requests::trusting;
use super::{Docker, runtime};
use crate::command::{at_once, run};

const ALLOW: &str = "dev.agentbox.network.allow=GET,HEAD,POST https://api.example.test/repos/acme/**, \
                     GET https://other.example.test:8443/ok, index.example.test, git:read files.example.test/smart/read";
const OPEN: &str = "dev.agentbox.network.tls=open";

fn start(docker: &Docker) -> Agent<'_> {
    Agent::start(
        docker,
        &[runtime(), "--annotation", ALLOW, "--annotation", OPEN],
    )
}

/// Programs that request an address and print the answer. Each finds certificates in its own way. The control's
/// environment gives each the small internet's authority.
const CLIENTS: [(&str, &str); 7] = [
    (
        "the variable of the engine",
        "curl -sS --max-time 20 ADDRESS",
    ),
    (
        "the system's list",
        "env -i PATH=$PATH curl -sS --max-time 20 ADDRESS",
    ),
    (
        "SSL_CERT_FILE",
        "python3 -c 'import urllib.request, urllib.error\ntry: print(urllib.request.urlopen(\"ADDRESS\", timeout=20).read())\n\
         except urllib.error.HTTPError as e: print(e.code, e.read())'",
    ),
    (
        "REQUESTS_CA_BUNDLE",
        "python3 -c 'from pip._vendor import requests\nr = requests.get(\"ADDRESS\", timeout=20); print(r.status_code, r.text)'",
    ),
    (
        "NODE_EXTRA_CA_CERTS",
        "node -e 'fetch(\"ADDRESS\").then(async r => console.log(r.status, await r.text()), e => console.log(e, e.cause))'",
    ),
    (
        "a tunnel of the proxy",
        "curl -sS --max-time 20 --proxytunnel ADDRESS",
    ),
    (
        "a tunnel of SOCKS",
        "curl -sS --max-time 20 --proxy socks5h://${http_proxy#http://} ADDRESS",
    ),
];

#[test]
#[ignore = "needs the rig of hack/test"]
fn programs_ask_by_tls_as_ever_and_get_what_rules_for_requests_name() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let agent = start(&docker);
    for (number, (how, program)) in CLIENTS.iter().enumerate() {
        let ask = |path: &str| {
            let address = format!("https://api.example.test{path}");
            let script = program.replace("ADDRESS", &address);
            agent.container.exec(&[], &["sh", "-c", &script])
        };
        let path = format!("/repos/acme/opened-{number}");
        let got = ask(&path);
        assert!(got.stdout.contains(&format!("{path}\"")), "{how}: {got}");
        assert_eq!(arrived(&["GET", &format!("{path}\"")]), 1, "{how}");
        let refused = ask("/repos/other/opened");
        assert!(
            refused
                .stdout
                .contains("no rule in network.allow matches this request"),
            "{how}: {refused}"
        );
    }
    assert_eq!(arrived(&["/repos/other/opened"]), 0);
    // On another port, and in plain HTTP, which works as before.
    let got = agent.curl(true, &["https://other.example.test:8443/ok"]);
    assert!(got.stdout.contains("/ok\""), "{got}");
    let got = agent.curl(true, &["http://api.example.test/repos/acme/plain"]);
    assert!(got.stdout.contains("/repos/acme/plain\""), "{got}");
    // One connection for two requests: the second one is checked too.
    let got = agent.curl(
        true,
        &[
            "-w",
            "%{num_connects}\\n",
            "https://api.example.test/repos/acme/kept",
            "https://api.example.test/repos/other/kept",
        ],
    );
    assert!(got.stdout.contains("/repos/acme/kept\""), "{got}");
    assert!(
        got.stdout.contains("1\n") && got.stdout.contains("0\n"),
        "{got}"
    );
    assert!(got.stdout.contains("no rule in network.allow"), "{got}");
    // Hosts that the rules open as a whole pass unread: the certificate is the host's own.
    let issuer = |host: &str| {
        let program = format!(
            "import socket, ssl\nc = ssl.create_default_context(cafile='/authority.crt')\n\
             s = c.wrap_socket(socket.create_connection(('{host}', 443), 10), server_hostname='{host}')\n\
             print(s.getpeercert()['issuer'])"
        );
        agent.python(&program)
    };
    let whole = issuer("index.example.test");
    assert!(
        whole.code == 0 && !whole.stdout.contains("agentbox"),
        "{whole}"
    );
    let read = issuer("api.example.test");
    assert!(
        read.stdout.contains("agentbox, for this container alone"),
        "{read}"
    );
    // No variable tells programs to use plain HTTP.
    let told = agent.container.exec(&[], &["env"]);
    assert!(!told.stdout.contains("insteadOf"), "{told}");
    let id = agent.container.inspect("{{.Id}}");
    let told = run("agentbox", &["explain", &id]).ok();
    assert!(
        told.contains("TLS to api.example.test, ") && told.contains("is opened"),
        "{told}"
    );
    // Its authority is valid for these hosts only, even after an update.
    let more = [
        "update",
        &id,
        "--network-add",
        "GET https://private.example.test/x",
    ];
    let refused = run("agentbox", &more);
    assert!(
        refused.code != 0 && refused.stderr.contains("is not valid for"),
        "{refused}"
    );
    let fewer = [
        "update",
        &id,
        "--network-add",
        "GET https://api.example.test/more",
    ];
    run("agentbox", &fewer).ok();
    let got = agent.curl(true, &["https://api.example.test/more"]);
    assert!(got.stdout.contains("/more\""), "{got}");
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn no_greeting_and_no_shape_within_tls_leads_elsewhere() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let agent = start(&docker);
    // Sends these bytes within TLS, with this name in the greeting, and prints the answer.
    let within = |name: &str, bytes: &str| {
        let program = format!(
            "import socket, ssl\nc = ssl.create_default_context(cafile='/authority.crt'); c.check_hostname = False\n\
             s = c.wrap_socket(socket.create_connection(('api.example.test', 443), 10), server_hostname='{name}')\n\
             s.settimeout(1); s.sendall({bytes:?}.encode()); all = b''\n\
             try:\n  while (d := s.recv(65536)): all += d\nexcept OSError as e: all += repr(e).encode()\n\
             print(all.decode('latin-1'))"
        );
        agent.python(&program)
    };
    let host = "Host: api.example.test\r\n";
    let good = format!("GET /repos/acme/good HTTP/1.1\r\n{host}\r\n");
    let control = within("api.example.test", &good);
    assert!(control.stdout.contains("200 OK"), "{control}");
    let other = within("index.example.test", &good);
    assert!(!other.stdout.contains("200 OK"), "{other}");
    let hidden = format!("GET /evil/hidden HTTP/1.1\r\n{host}\r\n");
    let post = "POST /repos/acme/post HTTP/1.1\r\n";
    let length = hidden.len();
    let shapes = [
        format!("{good}{hidden}"),
        format!(
            "{post}{host}Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"
        ),
        format!("{post}{host}Transfer-Encoding: xchunked\r\n\r\n{hidden}"),
        "GET /evil/host HTTP/1.1\r\nHost: index.example.test\r\n\r\n".to_owned(),
        format!("GET https://index.example.test/evil/host HTTP/1.1\r\n{host}\r\n"),
        format!("GET http://index.example.test/evil/host HTTP/1.1\r\n{host}\r\n"),
        "GET /evil/port HTTP/1.1\r\nHost: api.example.test:80\r\n\r\n".to_owned(),
        format!("GET /repos/acme/../../evil/dots HTTP/1.1\r\n{host}\r\n"),
        format!(
            "GET /repos/acme/evil HTTP/1.1\r\n{host}Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        ),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
    ];
    let before = arrived(&["evil"]);
    at_once(&shapes, |shape| {
        within("api.example.test", shape);
        assert_eq!(arrived(&["evil"]), before, "{shape:?}");
    });
    // A program that trusts only its own list fails, and the log says why.
    let copy = "cp /authority.crt /tmp/own.crt; sed -i '/END/q' /tmp/own.crt; \
                curl -sS --cacert /tmp/own.crt https://api.example.test/repos/acme/pinned";
    let pinned = agent.container.exec(&[], &["sh", "-c", copy]);
    assert_ne!(pinned.code, 0, "{pinned}");
    agent.counted("does not trust the certificate", 1);
    let spoken = agent.curl(
        true,
        &[
            "--http2-prior-knowledge",
            "https://api.example.test/repos/acme/h2",
        ],
    );
    assert_eq!(spoken.code, 0, "curl offers both: {spoken}");
    let alone = "import socket, ssl\nc = ssl.create_default_context(cafile='/authority.crt'); c.set_alpn_protocols(['h2'])\n\
                 c.wrap_socket(socket.create_connection(('api.example.test', 443), 10), server_hostname='api.example.test')";
    let refused = agent.python(alone);
    assert_ne!(refused.code, 0, "{refused}");
    agent.counted("HTTP/2 alone", 1);
    // The trust files and their mount are unchanged.
    let below = agent.container.exec(
        &[],
        &["sh", "-c", "grep -c BEGIN /run/agentbox/trust/authority.pem; ls /run/agentbox/trust; cat /proc/mounts | grep -c ca-certificates.crt"],
    );
    assert_eq!(
        below.stdout, "1\nauthority.pem\ncertificates.pem\n1\n",
        "{below}"
    );
    let written = agent.container.exec(
        &[],
        &["sh", "-c", "echo x >>/etc/ssl/certs/ca-certificates.crt; rm -f /run/agentbox/trust/*; mv /run/agentbox/trust /tmp"],
    );
    assert_eq!(written.stderr.matches("ead-only").count(), 5, "{written}");
}

/// Certificate lists of every kind of image, and every kind of walls.
#[test]
#[ignore = "needs the rig of hack/test"]
fn each_kind_of_container_and_wrap_trusts_its_own_authority() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let annotations = ["--annotation", ALLOW, "--annotation", OPEN];
    let options = [&["--rm", runtime()][..], &annotations].concat();
    let count = "grep -c BEGIN $SSL_CERT_FILE; grep -c BEGIN $NODE_EXTRA_CA_CERTS; ls /etc/ssl/certs 2>&1 | wc -l";
    // An image without a list gets the node's, and the image itself is unchanged.
    let own = run(
        "grep",
        &["-c", "BEGIN", "/etc/ssl/certs/ca-certificates.crt"],
    )
    .ok();
    let own: u32 = own.trim().parse().unwrap();
    let bare = docker.run(
        &[&options[..], &["test-probe"]].concat(),
        &["sh", "-c", count],
    );
    let expected = format!("{}\n1\n", own + 2);
    assert!(bare.stdout.starts_with(&expected), "{bare}");
    // If a volume replaces the image's directory, the volume's file gets the list.
    let dir = std::env::temp_dir().join(format!("opened-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::copy(
        "/srv/internet/authority.crt",
        dir.join("ca-certificates.crt"),
    )
    .unwrap();
    let list = std::fs::read(dir.join("ca-certificates.crt")).unwrap();
    let volume = format!("{}:/etc/ssl/certs:ro", dir.display());
    let ask = "grep -c BEGIN /etc/ssl/certs/ca-certificates.crt $SSL_CERT_FILE; \
               curl -sS https://api.example.test/repos/acme/place";
    for more in [
        &["-v", &volume][..],
        &["-v", &volume, "-u", "1000"],
        &[
            "-v",
            &volume,
            "--annotation",
            "dev.agentbox.policy=permissive",
        ],
    ] {
        let all = [&options[..], more, &["test-workloads"]].concat();
        let got = docker.run(&all, &["sh", "-c", ask]);
        assert!(
            got.stdout.contains("ca-certificates.crt:2\n"),
            "{more:?} {got}"
        );
        assert!(
            got.stdout.contains("certificates.pem:2\n"),
            "{more:?} {got}"
        );
        assert!(got.stdout.contains("/repos/acme/place\""), "{more:?} {got}");
    }
    assert_eq!(
        std::fs::read(dir.join("ca-certificates.crt")).unwrap(),
        list
    );
    // A list that only its owner can read stays so, and a device is not a list.
    let closed = dir.join("own.pem");
    std::fs::write(&closed, "-----BEGIN CERTIFICATE-----\nsecret-of-root\n").unwrap();
    std::fs::set_permissions(&closed, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let volume = format!("{}:/own.pem:ro", closed.display());
    let look = "cat /own.pem; grep -r secret-of-root /run/agentbox; stat -c %a /own.pem";
    let ordinary = [
        "-u",
        "1000",
        "-v",
        &volume,
        "-e",
        "PIP_CERT=/own.pem",
        "-e",
        "AWS_CA_BUNDLE=/dev/zero",
        "-e",
        "DENO_CERT=/proc/modules",
    ];
    let got = docker.run(
        &[&options[..], &ordinary, &["test-workloads"]].concat(),
        &["sh", "-c", look],
    );
    assert_eq!(got.stdout, "400\n", "{got}");
    let all = [&options[..], &ordinary[2..], &["test-workloads"]].concat();
    let got = docker.run(&all, &["sh", "-c", look]);
    assert!(
        got.stdout.contains("\nsecret-of-root\n-----BEGIN")
            && !got.stdout.contains("/run/agentbox"),
        "{got}"
    );
    // `wrap`, with namespaces and without.
    for walls in [&[][..], &["--walls", "landlock"]] {
        let settings = [
            "--policy",
            "standard",
            "--set",
            "network.allow=GET https://api.example.test/repos/acme/**",
            "--set",
            "network.tls=open",
        ];
        let ask = "python3 -c 'import urllib.request\nprint(urllib.request.urlopen(\"https://api.example.test/repos/acme/wrapped\", \
                   timeout=20).read())'";
        let all = [&["wrap"], walls, &settings, &["--", "sh", "-c", ask]].concat();
        let got = crate::command::finish(
            std::process::Command::new("agentbox")
                .args(&all)
                .current_dir(&dir),
        );
        assert!(
            got.stdout.contains("/repos/acme/wrapped\""),
            "{walls:?} {got}"
        );
    }
    std::fs::remove_dir_all(dir).unwrap();
}

/// A node's secret is added to requests within TLS too, and removed from answers.
#[test]
#[ignore = "needs the rig of hack/test"]
fn a_secret_goes_into_requests_within_tls() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = super::secrets::node(0o600);
    let agent = Agent::start(
        &docker,
        &[
            runtime(),
            "--annotation",
            super::secrets::ALLOW,
            "--annotation",
            OPEN,
        ],
    );
    let ask = "curl -sS -i -H \"Authorization: Bearer $MODEL_API_KEY\" https://api.example.test/repos/acme/";
    let got = agent
        .container
        .exec(&[], &["sh", "-c", &format!("{ask}within")]);
    assert!(got.stdout.contains("/repos/acme/within\""), "{got}");
    let value = format!("Bearer {}", super::secrets::VALUE);
    assert_eq!(arrived(&["/repos/acme/within\"", &value]), 1);
    let got = agent
        .container
        .exec(&[], &["sh", "-c", &format!("{ask}echo")]);
    assert!(
        got.stdout.contains("****") && !got.stdout.contains(super::secrets::VALUE),
        "{got}"
    );
}

/// A container that shares the network sends requests through it, and trusts its authority.
#[test]
#[ignore = "needs the rig of hack/test"]
fn who_shares_the_network_trusts_its_authority() {
    let docker = Docker::alone();
    let _turn = witness();
    let _node = trusting();
    let agent = start(&docker);
    let id = agent.container.inspect("{{.Id}}");
    let network = format!("--network=container:{id}");
    let ask = "curl -sS https://api.example.test/repos/acme/member; curl -sS https://api.example.test/repos/other/member";
    let given = ["--annotation", ALLOW, "--annotation", OPEN];
    for annotations in [&given[..], &given[..2]] {
        let all = [
            &["--rm", runtime(), &network],
            annotations,
            &["test-workloads"],
        ]
        .concat();
        let got = docker.run(&all, &["sh", "-c", ask]);
        assert!(got.stdout.contains("/repos/acme/member\""), "{got}");
        assert!(got.stdout.contains("no rule in network.allow"), "{got}");
    }
    assert_eq!(arrived(&["/repos/other/member"]), 0);
}

/// With every kind of root file system, and without root's rights.
#[test]
#[ignore = "needs the rig of hack/test"]
fn it_is_trusted_under_every_kind_of_root() {
    let docker = Docker::alone();
    let _turn = witness();
    let mut node = trusting();
    let given = ["--annotation", ALLOW, "--annotation", OPEN];
    let ask = "curl -sS https://api.example.test/repos/acme/root";
    for more in [
        &["--read-only"][..],
        &["--annotation", "dev.agentbox.policy=strict"],
        &["--annotation", "dev.agentbox.filesystem.root=read-only"],
        &["--tmpfs", "/run"],
        &["--annotation", "dev.agentbox.report.denied=on"],
    ] {
        let all = [&["--rm", runtime()], &given[..], more, &["test-workloads"]].concat();
        let got = docker.run(&all, &["sh", "-c", ask]);
        assert!(got.stdout.contains("/repos/acme/root\""), "{more:?} {got}");
    }
    let readable = format!("[network]\nupstream-trust-roots = \"{INTERNET}/authority.crt\"\n");
    node.write("config.toml", 0o644, &readable);
    let person = crate::wrap::account::Account::new();
    let rules = "network.allow=GET https://api.example.test/repos/acme/**";
    let settings = [
        "--policy",
        "standard",
        "--set",
        rules,
        "--set",
        "network.tls=open",
    ];
    let got = person.wraps(&settings, ask);
    assert!(got.stdout.contains("/repos/acme/root\""), "{got}");
}
