//! M3: which hosts file decides where the rules of a shared network lead.

use crate::command::run;
use crate::docker::allowlist::{Agent, witness};
use crate::docker::{Docker, Network, runtime};

const IMAGE: &str = "test-musl";

/// A volume that a container writes, removed with the value.
struct Volume<'a>(&'a Docker, String);

impl Drop for Volume<'_> {
    fn drop(&mut self) {
        self.0.call(&["volume", "rm", "-f", &self.1]);
    }
}

/// A server that answers with its own name.
#[track_caller]
fn server<'a>(docker: &'a Docker, net: &str, word: &str) -> crate::docker::Container<'a> {
    let script = format!(
        "mkdir /www && echo {word} >/www/index.html && exec python3 -m http.server 80 --directory /www"
    );
    docker.start(
        &["--runtime=runc", net, "test-workloads"],
        &["sh", "-c", &script],
    )
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_hosts_file_in_a_volume_changes_no_destination() {
    let docker = Docker::connect();
    let _turn = witness();
    let network = Network::create(&docker, &[]);
    let net = format!("--network={}", network.name);
    let evil = server(&docker, &net, "evil");
    let address = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
    let at = evil.inspect(address);
    let allow = "dev.agentbox.network.allow=service:db:80,service:own:80";
    let own = format!("--add-host=own:{at}");
    let victim = Agent::start(&docker, &[runtime(), &net, &own, "--annotation", allow]);
    let id = victim.container.inspect("{{.Id}}");
    let ask = |name: &str| {
        let url = format!("http://{name}/");
        let retry = ["-f", "--retry", "3", "--retry-connrefused", &url];
        victim.curl(true, &retry)
    };
    // The control: the hosts that were given to the engine.
    assert_eq!(ask("own").ok(), "evil\n");
    assert_ne!(ask("db").code, 0, "no container has this name");
    let volume = Volume(&docker, format!("m3-{}", std::process::id()));
    docker.call(&["volume", "create", &volume.1]).ok();
    let inspect = ["volume", "inspect", "-f", "{{.Mountpoint}}", &volume.1];
    let place = docker.call(&inspect).ok();
    let any = "5".repeat(64);
    for made in [&id, &any] {
        let write =
            format!("mkdir -p /v/containers/{made} && echo {at} db >/v/containers/{made}/hosts");
        let mount = format!("-v={}:/v", volume.1);
        docker
            .run(&["--runtime=runc", &mount], &[IMAGE, "sh", "-c", &write])
            .ok();
        let hosts = format!("-v={}/containers/{made}/hosts:/etc/hosts", place.trim());
        let joined = format!("--network=container:{}", victim.container.name);
        let options = [runtime(), &joined, &hosts, "--annotation", allow, IMAGE];
        let member = docker.start(&options, &["sleep", "600"]);
        let got = ask("db");
        assert_ne!(got.code, 0, "{made}: {got}");
        let program = crate::direct::program();
        let told = run(&program, &["explain", &member.name]).ok();
        assert!(told.contains("no names are taken from"), "{told}");
        // The engine's own hosts file, shared with the other container, is no volume.
        let options = [runtime(), &joined, "--annotation", allow, IMAGE];
        let plain = docker.start(&options, &["sleep", "600"]);
        let told = run(&program, &["explain", &plain.name]).ok();
        assert!(!told.contains("no names are taken from"), "{told}");
    }
}
