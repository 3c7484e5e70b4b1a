//! Ordinary work behind `standard`: what agents do all day, on glibc, as root and as an ordinary user.
//!
//! Nothing here needs a registry: packages are made on the spot and installed from there.

use std::time::Duration;
use std::{env, process::Command};

use super::{Docker, Policy};
use crate::command::run_for;

/// The result under the profile `paranoid`.
#[derive(PartialEq)]
enum Paranoid {
    Works,
    /// The program compiles at run time.
    Fails,
}

/// Runs a bash script in a scratch directory under /tmp, behind `standard`, as root and as `dev`, and as `dev` under
/// the profile `paranoid`. docs/policy.md lists the results of the last.
#[track_caller]
fn works(paranoid: Paranoid, script: &str, last_line: &str) {
    let _docker = Docker::connect();
    let script = format!("set -euo pipefail\nmkdir -p /tmp/w && cd /tmp/w\n{script}");
    let dev = ("1000:1000", "/home/dev");
    for (user, home, profile) in [
        ("0:0", "/root", "agent"),
        (dev.0, dev.1, "agent"),
        (dev.0, dev.1, "paranoid"),
    ] {
        let mut options = Policy::Standard.options();
        let profile = format!("dev.agentbox.syscalls.profile={profile}");
        options.extend(["--annotation", &profile]);
        let home = format!("HOME={home}");
        options.extend([
            "--user",
            user,
            "--env",
            &home,
            "test-workloads",
            "bash",
            "-c",
            &script,
        ]);
        let finished = run_for(
            Duration::from_secs(240),
            Command::new("docker")
                .args(["run", "--rm"])
                .args(&options)
                .env_remove("RUST_BACKTRACE"),
        );
        if profile.ends_with("paranoid") && paranoid == Paranoid::Fails {
            assert_ne!(finished.code, 0, "as {user}, {profile}: {finished}");
            continue;
        }
        assert_eq!(finished.code, 0, "as {user}, {profile}: {finished}");
        assert_eq!(
            finished.stdout.lines().last(),
            Some(last_line),
            "as {user}: {finished}"
        );
    }
    // A variable of the rig shows that this was the rig's engine.
    assert!(env::var_os("DOCKER_HOST").is_some());
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn bash_runs_jobs_pipes_and_substitutions() {
    works(
        Paranoid::Works,
        r#"
        sleep 0.1 & wait $!
        diff <(printf '1\n2\n') <(seq 2) && seq 1000 | sort -rn | head -1 | tee out
        trap 'echo trapped >>out' USR1; kill -USR1 $$
        tail -1 out
        "#,
        "trapped",
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn python_threads_processes_and_sockets_work() {
    works(
        Paranoid::Works,
        r#"
        cat >t.py <<'PY'
import asyncio, concurrent.futures, multiprocessing, socket, sqlite3, subprocess, tempfile, threading
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert sum(pool.map(abs, range(-10, 0))) == 55
with multiprocessing.Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]
assert subprocess.check_output(["echo", "x"]) == b"x\n"
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
client.sendall(b"hi"); assert server.accept()[0].recv(2) == b"hi"
asyncio.run(asyncio.sleep(0.01))
db = sqlite3.connect("t.db"); db.execute("create table t(x)"); db.commit()
socket.getaddrinfo("localhost", 80)
print("python works")
PY
        python3 t.py
        "#,
        "python works",
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn pip_installs_a_package_into_a_virtual_environment() {
    works(
        Paranoid::Works,
        r#"
        mkdir -p pkg/boxed && echo 'NAME = "boxed"' >pkg/boxed/__init__.py
        printf '[project]\nname="boxed"\nversion="1"\n[build-system]\nrequires=["setuptools"]\nbuild-backend="setuptools.build_meta"\n' >pkg/pyproject.toml
        python3 -m venv --system-site-packages v && . v/bin/activate
        pip install --quiet --no-index --no-build-isolation ./pkg
        cd / && python -c 'import boxed; print(boxed.NAME)'
        "#,
        "boxed",
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn node_and_npm_work() {
    works(
        Paranoid::Fails,
        r#"
        mkdir -p lib app && echo 'module.exports = () => "from npm"' >lib/index.js
        echo '{"name":"lib","version":"1.0.0"}' >lib/package.json
        echo '{"name":"app","version":"1.0.0","scripts":{"start":"node main.js"}}' >app/package.json
        cat >app/main.js <<'JS'
const { Worker, isMainThread } = require("worker_threads"), http = require("http");
if (isMainThread) {
  new Worker(__filename).on("exit", () => {
    const s = http.createServer((q, r) => r.end(require("lib")())).listen(0, "127.0.0.1", () =>
      http.get(s.address(), r => r.on("data", d => { console.log(String(d)); s.close(); })));
  });
}
JS
        (cd lib && npm pack --silent >/dev/null)
        cd app && npm install --silent --offline --no-audit --no-fund ../lib/lib-1.0.0.tgz >/dev/null
        npm start --silent
        "#,
        "from npm",
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn git_commits_branches_clones_and_merges() {
    works(
        Paranoid::Works,
        r#"
        export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
        git init -q -b main one && cd one && echo 1 >f && git add f && git commit -qm one
        git checkout -qb side && echo 2 >g && git add g && git commit -qm two
        git checkout -q main && git merge -q --no-ff -m merged side && cd ..
        git clone -q one two && cd two && git gc -q && git log --format=%s -1
        "#,
        "merged",
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn gcc_and_make_build_and_run() {
    works(
        Paranoid::Works,
        r#"
        printf '#include <stdio.h>\nint main(void){puts("built");}\n' >m.c
        printf 'm: m.o\n\tgcc -o $@ $^\n' >Makefile
        make -s -j2 && ./m
        "#,
        "built",
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn cargo_builds_tests_and_runs() {
    works(
        Paranoid::Works,
        r#"
        export USER=dev
        cargo new -q --vcs none hello && cd hello
        printf '#[test] fn t() { std::thread::spawn(|| ()).join().unwrap(); }\n' >>src/main.rs
        cargo test -q --offline >/dev/null && cargo run -q --offline
        "#,
        "Hello, world!",
    );
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn curl_talks_to_a_local_server() {
    works(
        Paranoid::Works,
        r#"
        echo served >index.html
        python3 -m http.server --bind 127.0.0.1 8123 >/dev/null 2>&1 & server=$!
        for i in $(seq 300); do curl -fsS http://127.0.0.1:8123/ 2>/dev/null && break; sleep 0.1; done
        kill $server
        "#,
        "served",
    );
}
