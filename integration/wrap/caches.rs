//! Caches of package managers under `wrap`: the user's caches are read, and the command's writes never reach them.

use super::account::Account;
use crate::command::{Finished, run};
use crate::direct::program;
use crate::docker::Docker;

/// As the user behind sudo, and as the user alone.
fn both(person: &Account, options: &[&str], script: &str) -> [Finished; 2] {
    let arguments = [&["wrap"], options, &["--", "bash", "-c", script]].concat();
    [person.wrap(options, script), person.agentbox(&arguments)]
}

/// A home with caches and other files beside them.
fn person() -> Account {
    let person = Account::new();
    for (name, content) in [
        (".cargo/registry/cache/index/a-1.0.crate", "crate"),
        (".cargo/credentials.toml", "token"),
        (".npm/_cacache/content-v2/aa", "package"),
        (".npm/_logs/last.log", "log"),
        (".npmrc", "token"),
        (".cache/pip/http-v2/a", "wheel"),
        (".cache/other/secret", "secret"),
        (".cache/uv/wheels-v5/a", "wheel"),
        (".cache/uv/git-v0/db/1/FETCH_HEAD", "https://me:word@a.test"),
        // A cache without an omitted part.
        (".cache/yarn/v6/a/package.json", "package"),
        (".bun/install/cache/1f.git/config", "https://me:word@a.test"),
        ("go/pkg/mod/a.test@v1/a.go", "package a"),
        ("go/pkg/mod/cache/vcs/1/config", "https://me:word@a.test"),
        (".m2/repository/a/a.jar", "jar"),
        (".m2/settings.xml", "word"),
        ("elsewhere/secret", "secret"),
    ] {
        person.file(name, content);
    }
    person
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_reads_caches_and_nothing_that_it_writes_reaches_them() {
    let _docker = Docker::connect();
    let person = person();
    let all = "find ~ -path ~/src -prune -o -path ~/.local/state -prune -o -type f -exec md5sum {} + | sort";
    let before = person.does(all);
    let script = "cd; cat .cargo/registry/cache/index/*.crate .npm/_cacache/content-v2/aa .cache/pip/http-v2/a \
        go/pkg/mod/a.test@v1/a.go .m2/repository/a/a.jar .cache/uv/wheels-v5/a .cache/yarn/v6/a/package.json && \
        echo poison >.npm/_cacache/content-v2/aa && echo new >.cache/pip/http-v2/b && \
        rm -r .cargo/registry/cache && mkdir .cargo/registry/cache && touch .cargo/registry/cache/x && \
        chmod 777 .m2/repository && mv .m2/repository/a .m2/repository/b && ln .npm/_cacache/content-v2/aa .npm/_cacache/z && \
        cat .npm/_cacache/z .m2/repository/b/a.jar && echo && echo all";
    for finished in both(&person, &[], script) {
        let shown = finished.ok();
        assert!(
            shown.starts_with("cratepackagewheelpackage ajarwheelpackage"),
            "{shown}"
        );
        assert!(shown.ends_with("poison\njar\nall\n"), "{shown}");
        assert_eq!(person.does(all), before);
    }
    // The control: without walls the same commands change the cache.
    person.does("cd; echo poison >.npm/_cacache/content-v2/aa");
    assert_ne!(person.does(all), before);
    // The next run sees nothing of the last.
    for finished in both(
        &person,
        &[],
        "cat ~/.cache/pip/http-v2/b ~/.m2/repository/b/a.jar",
    ) {
        finished.failed();
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_shows_of_caches_no_credential_no_socket_and_no_link_to_elsewhere() {
    let _docker = Docker::connect();
    let person = person();
    person.does(
        "rm -r .cache/pip && ln -s ../elsewhere .cache/pip && ln -s ../../../elsewhere/secret .npm/_cacache/content-v2/link && \
         mkdir -p .yarn/berry && ln -s \"$HOME\" .yarn/berry/cache && ln -s . .nuget && \
         mkdir packages && echo secret >packages/secret && \
         mkdir -p .cache/yarn/v6/.tmp/1/.git && echo word >.cache/yarn/v6/.tmp/1/.git/config",
    );
    // A socket with a listener in a cache.
    let path = format!("{}/.npm/_cacache/socket", person.home);
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    person.does("test -S .npm/_cacache/socket");
    let hidden = [
        ".cargo/credentials.toml",
        ".npm/_logs/last.log",
        ".npmrc",
        ".cache/other/secret",
        ".cache/pip/secret",
        "go/pkg/mod/cache/vcs/1/config",
        ".m2/settings.xml",
        ".npm/_cacache/content-v2/link",
        ".yarn/berry/cache/elsewhere/secret",
        ".nuget/packages/secret",
        ".cache/uv/git-v0/db/1/FETCH_HEAD",
        ".cache/yarn/v6/.tmp/1/.git/config",
        ".bun/install/cache/1f.git/config",
    ];
    for name in hidden {
        person.does(&format!("cat {name}"));
        for finished in both(&person, &[], &format!("cat ~/{name}")) {
            finished.failed();
        }
    }
    let connect = "python3 -c 'import os, socket; \
        socket.socket(socket.AF_UNIX).connect(os.path.expanduser(\"~/.npm/_cacache/socket\"))'";
    std::os::unix::fs::chown(&path, Some(person.uid), Some(person.gid)).unwrap();
    person.does(connect);
    for finished in both(&person, &[], connect) {
        finished.failed();
    }
    drop(listener);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_hides_caches_where_it_is_told_to() {
    let _docker = Docker::connect();
    let person = person();
    let script = "cat ~/.npm/_cacache/content-v2/aa";
    for options in [
        &["--no-caches"][..],
        &["--policy", "strict"],
        &["--walls", "landlock"],
        &["--hide", "../../.npm"],
    ] {
        for finished in both(&person, options, script) {
            finished.failed();
        }
    }
    let settings = person.file(".config/agentbox/config.toml", "caches = false\n");
    let [_, alone] = both(&person, &[], script);
    alone.failed();
    std::fs::remove_file(settings).unwrap();
    for finished in both(&person, &[], script) {
        assert_eq!(finished.ok(), "package");
    }
    // A path of `--write` is written.
    let named = ["--write", "../../.npm/_cacache"];
    let [_, alone] = both(
        &person,
        &named,
        "echo -n more >>~/.npm/_cacache/content-v2/aa",
    );
    alone.ok();
    assert!(
        person
            .does("cat .npm/_cacache/content-v2/aa")
            .starts_with("packagemore")
    );
    for finished in both(&person, &["--dry-run"], "true") {
        let plan = finished.ok();
        assert!(plan.contains("a package cache"), "{plan}");
    }
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_keeps_what_it_writes_to_caches_for_the_next_run_there() {
    let _docker = Docker::connect();
    let person = person();
    let all = "find ~ -path ~/src -prune -o -path ~/.local/state -prune -o -type f -exec md5sum {} + | sort";
    let before = person.does(all);
    let keep = ["--keep-caches"];
    // The rig's root is an overlay, which cannot be another overlay's upper layer.
    for finished in both(&person, &keep, "true") {
        let refused = finished.failed();
        assert!(refused.contains("leave --keep-caches out"), "{refused}");
    }
    let state = format!("{}/.local/state", person.home);
    let owner = format!("mode=700,uid={},gid={}", person.uid, person.gid);
    run("mount", &["-t", "tmpfs", "-o", &owner, "tmpfs", &state]).ok();
    let writes = "cd; echo new >.cache/pip/http-v2/b && echo poison >.npm/_cacache/content-v2/aa && rm -r .m2/repository/a && \
        rm -r .cargo/registry/cache && mkdir -p .cargo/registry/cache/index";
    let reads = "cd; cat .cache/pip/http-v2/* .npm/_cacache/content-v2/aa; ls .m2/repository .cargo/registry/cache/index";
    for finished in both(&person, &keep, writes) {
        finished.ok();
        assert_eq!(person.does(all), before);
    }
    for _ in 0..2 {
        for finished in both(&person, &keep, reads) {
            let seen = finished.ok();
            assert!(
                seen.contains("new\n") && seen.contains("poison\n"),
                "{seen}"
            );
            assert!(
                !seen.contains("a-1.0.crate") && !seen.contains("\na\n"),
                "{seen}"
            );
        }
    }
    // Not without the option, and not in another workspace.
    for finished in both(&person, &[], reads) {
        let seen = finished.ok();
        assert!(!seen.contains("new") && seen.contains("package"), "{seen}");
    }
    person.does("mkdir ~/src/other");
    for finished in both(&person, &[keep[0], "--workspace", "../other"], reads) {
        let seen = finished.ok();
        assert!(!seen.contains("new") && seen.contains("package"), "{seen}");
    }
    // A second run beside one that keeps its writes has its own layer, and says so.
    let inner = format!(
        "{} wrap --keep-caches -- cat ~/.cache/pip/http-v2/b",
        program()
    );
    let beside = format!(
        "{} wrap --keep-caches -- sh -c 'touch begun; for i in $(seq 100); do [ -e done ] && exit; sleep 0.1; done' & \
         for i in $(seq 100); do [ -e begun ] && break; sleep 0.1; done; {inner} 2>&1; touch done; wait",
        program()
    );
    let said = person.does(&format!("cd ~/src/project && {{ {beside}; }}"));
    assert!(
        said.contains("another run in this workspace") && said.contains("No such file"),
        "{said}"
    );
    // A command cannot be given write access to kept files.
    let state = format!("{state}/agentbox");
    for finished in both(&person, &["--write", &state], "true") {
        finished.failed();
    }
    person.file(".config/agentbox/config.toml", "caches = \"keep\"\n");
    let [_, alone] = both(&person, &[], reads);
    assert!(alone.ok().contains("new\n"));
    run("umount", &["--lazy", state.trim_end_matches("/agentbox")]).ok();
}

/// A disk of the user's, without a UUID as in virtual machines; unmounted when dropped.
struct Disk(String);

impl Disk {
    fn at(person: &Account, name: &str) -> Self {
        person.does(&format!("mkdir -p ~/{name}"));
        let place = format!("{}/{name}", person.home);
        let image = format!("/srv/{}-{}.img", person.name, name.replace('/', "-"));
        let owner = format!("{}:{}", person.uid, person.gid);
        let script = "set -e; truncate -s 32M \"$1\"; mkfs.ext4 -q -U 00000000-0000-0000-0000-000000000000 \"$1\"; \
            mount -o loop \"$1\" \"$2\"; rm \"$1\"; chown \"$3\" \"$2\"; chmod 700 \"$2\"";
        run("bash", &["-c", script, "-", &image, &place, &owner]).ok();
        Self(place)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run("umount", &["--lazy", &self.0]);
    }
}

/// `cp` over a new name of a cached file emptied both. Over an overlay it still does (the control).
#[test]
#[ignore = "needs the rig: hack/test"]
fn hard_links_hold_in_caches_and_stay_in_kept_ones() {
    let _docker = Docker::connect();
    let person = Account::new();
    let _caches = Disk::at(&person, ".npm");
    let _state = Disk::at(&person, ".local/state");
    for cache in [".npm/_cacache/content-v2", ".cache/pip/http-v2"] {
        person.file(&format!("{cache}/a"), "package");
    }
    // Separately: a file that already has two names, `p` and `q`.
    person.does("cd .npm/_cacache/content-v2 && cp a p && ln p q");
    let links = |cache: &str| {
        format!(
            "cd ~/{cache} && ln a c && cp a c 2>/dev/null; cat a; echo; [ a -ef c ] && echo one; \
             python3 -c 'import os; os.rename(\"c\", \"a\")' && echo -n more >>c && cat a; echo; \
             [ -e q ] && echo -n more >>p && cat q"
        )
    };
    let (on_disk, on_overlay) = (
        links(".npm/_cacache/content-v2"),
        links(".cache/pip/http-v2"),
    );
    // Names that are one file in the cache stay one file.
    let seen = person.wrap(&[], &on_disk).ok();
    assert_eq!(seen, "package\none\npackagemore\npackagemore");
    let control = person.wrap(&[], &on_overlay).stdout;
    assert!(
        !control.contains("one") && !control.starts_with("package"),
        "{control}"
    );
    // Kept files go to another disk. There the cache's own names come apart when one is written, as in an image.
    let seen = person.wrap(&["--keep-caches"], &on_disk);
    assert!(
        seen.stdout.starts_with("package\none\npackagemore\n"),
        "{seen:?}"
    );
    let again = "cd ~/.npm/_cacache/content-v2 && cat a && echo -n 2 >>c && cat a && [ a -ef c ] && echo one";
    let seen = person.wrap(&["--keep-caches"], again).ok();
    assert_eq!(seen, "packagemorepackagemore2one\n");
    assert_eq!(
        person.does("cat .npm/_cacache/content-v2/*"),
        "packagepackagepackage"
    );
    // Where they come apart, the plan says so: over an overlay, and always without root's rights.
    let apart = "a hard link to a file of it comes apart";
    let [root, alone] = both(&person, &["--dry-run"], "true").map(|plan| {
        let plan = plan.ok();
        let lines = plan.lines().filter(|line| line.contains(apart));
        lines.map(str::to_owned).collect::<Vec<_>>().join("\n")
    });
    assert!(
        root.contains(".cache/pip") && !root.contains("_cacache"),
        "{root}"
    );
    assert!(
        alone.contains(".cache/pip") && alone.contains("_cacache"),
        "{alone}"
    );
}

/// An index of one package on the loopback, and npm that installs the package from it, which fills its cache.
const FETCHES: &str = r#"
import base64, hashlib, http.server, io, json, os, subprocess, tarfile, threading
def packed():
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as tar:
        for name, text in (("package.json", '{"name":"leftish","version":"1.0.0"}'), ("index.js", 'module.exports = "from the cache"')):
            entry = tarfile.TarInfo("package/" + name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    return data.getvalue()
tarball = packed()
class Index(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        here = "http://127.0.0.1:%d/leftish/-/leftish-1.0.0.tgz" % self.server.server_address[1]
        digest = "sha512-" + base64.b64encode(hashlib.sha512(tarball).digest()).decode()
        version = {"name": "leftish", "version": "1.0.0", "dist": {"tarball": here, "integrity": digest}}
        body = {"name": "leftish", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        body = tarball if self.path.endswith(".tgz") else json.dumps(body).encode()
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Index)
threading.Thread(target=server.serve_forever, daemon=True).start()
address = "http://127.0.0.1:%d/" % server.server_address[1]
os.makedirs(os.path.expanduser("~/warm"))
npm = ["npm", "install", "--no-audit", "--no-fund", "--registry", address, "leftish"]
subprocess.run(npm, cwd=os.path.expanduser("~/warm"), check=True, stdout=subprocess.DEVNULL)
print(address)
"#;

#[test]
#[ignore = "needs the rig: hack/test"]
fn wrap_installs_with_npm_from_the_cache_and_without_a_network() {
    let _docker = Docker::connect();
    let person = Account::new();
    let fetches = person.file("fetches.py", FETCHES);
    let address = person.does(&format!("python3 {fetches}"));
    let install = format!(
        "rm -rf node_modules package*; npm install --offline --no-audit --no-fund --registry {} leftish >/dev/null && \
         node -p 'require(\"leftish\")'",
        address.trim()
    );
    for round in 0..2 {
        for finished in both(&person, &[], &install) {
            assert_eq!(finished.ok(), "from the cache\n", "{round}");
        }
        // A run's writes to the cache go with it: the next run installs as before.
        for finished in both(
            &person,
            &[],
            "find ~/.npm/_cacache -type f | while read -r f; do echo poison >$f; done; rm -r ~/.npm/_cacache/*",
        ) {
            finished.ok();
        }
    }
    // The control: the package comes only from the cache.
    for finished in both(&person, &["--no-caches"], &install) {
        let refused = finished.failed();
        assert!(refused.contains("ENOTCACHED"), "{refused}");
    }
}
