//! Behind a company's TLS proxy: its certificate identifies it, and any other proxy gets no byte.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::allowlist::{Agent, INTERNET, internet, witness};
use super::node::NodeFiles;
use super::upstream::{ALLOW, CompanyProxy, PASSWORD, PLACE, USER, everything_goes_through};
use super::{Docker, runtime};
use crate::command::run;

/// The internet's servers have certificates for this domain. This name is the rig itself.
const NAME: &str = "proxy.example.test";

/// TLS in front of a proxy, with a certificate of the small internet; its port. Its thread ends with the test binary.
fn in_front_of(proxy: &CompanyProxy, certificate: &str) -> u16 {
    let pem = |file: &str| std::fs::read(Path::new(INTERNET).join(file)).unwrap();
    let chain = CertificateDer::pem_slice_iter(&pem(certificate))
        .map(Result::unwrap)
        .collect();
    let key = PrivateKeyDer::from_pem_slice(&pem("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let behind = proxy.port;
    let listener = std::net::TcpListener::bind((PLACE, 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            while let Ok((client, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut client = acceptor.accept(client).await.ok()?;
                    let mut server = TcpStream::connect((PLACE, behind)).await.ok()?;
                    tokio::io::copy_bidirectional(&mut client, &mut server)
                        .await
                        .ok()
                });
            }
        });
    });
    port
}

fn config(host: &str, port: u16, roots: &str) -> String {
    format!(
        "[network]\nupstream-proxy = \"https://{USER}:{PASSWORD}@{host}:{port}\"\nupstream-trust-roots = \"{roots}\"\n"
    )
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_proxy_that_speaks_tls_is_known_by_its_certificate() {
    let docker = Docker::alone();
    let _turn = witness();
    internet();
    let proxy = CompanyProxy::start();
    let port = in_front_of(&proxy, "server.pem");
    let roots = format!("{INTERNET}/authority.crt");
    let mut node = NodeFiles::default();
    node.write("config.toml", 0o600, &config(NAME, port, &roots));
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    everything_goes_through(&agent, &proxy);
    // Long streams both ways.
    let long = agent.curl(
        true,
        &[
            "http://api.example.test/bytes/3000000",
            "-o",
            "/tmp/long",
            "-w",
            "%{size_download}",
        ],
    );
    assert_eq!(long.stdout, "3000000", "{long}");
    let sent = agent.curl(
        true,
        &[
            "https://api.example.test/sent",
            "--data-binary",
            "@/tmp/long",
        ],
    );
    assert!(sent.stdout.contains("/sent"), "{sent}");
    let id = agent.container.inspect("{{.Id}}");
    let explained = run("agentbox", &["explain", &id]).ok();
    assert!(
        explained.contains(&format!("through the node's proxy https://{NAME}:{port}")),
        "{explained}"
    );
    drop(agent);
    // Identified by its address.
    let sign = format!(
        "cd {INTERNET} && echo subjectAltName=IP:{PLACE} >ip.ext && openssl x509 -req -in server.csr -CA authority.crt \
         -CAkey ca.key -CAcreateserial -days 2 -extfile ip.ext -out ip.pem 2>/dev/null"
    );
    run("sh", &["-c", &sign]).ok();
    let port = in_front_of(&proxy, "ip.pem");
    node.write("config.toml", 0o600, &config(PLACE, port, &roots));
    let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
    let got = agent.curl(true, &["https://api.example.test/by-address"]);
    assert!(got.code == 0 && got.stdout.contains("/by-address"), "{got}");
}

#[test]
#[ignore = "needs the rig of hack/test"]
fn a_proxy_whose_certificate_is_anothers_is_told_nothing() {
    let docker = Docker::alone();
    let _turn = witness();
    internet();
    let proxy = CompanyProxy::start();
    let port = in_front_of(&proxy, "server.pem");
    let authority = format!("{INTERNET}/authority.crt");
    let stranger = format!("{INTERNET}/stranger.crt");
    let make = format!(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=stranger \
         -keyout /dev/null -out {stranger} 2>/dev/null"
    );
    run("sh", &["-c", &make]).ok();
    let mut node = NodeFiles::default();
    for (host, roots, why) in [
        (NAME, &stranger, "no authority that the node trusts"),
        (PLACE, &authority, "its certificate is for another name"),
    ] {
        node.write("config.toml", 0o600, &config(host, port, roots));
        let agent = Agent::start(&docker, &[runtime(), "--annotation", ALLOW]);
        let got = agent.curl(false, &["http://api.example.test/unknown"]);
        assert!(
            got.stdout.contains("the upstream proxy is not known: ") && got.stdout.contains(why),
            "{got}"
        );
        let direct = agent.curl(true, &["-f", "https://api.example.test/unknown"]);
        assert_ne!(direct.code, 0, "{direct}");
    }
    assert_eq!(proxy.asked(), [""; 0]);
    // Other users could write the file, and so choose the proxy.
    node.write(
        "anybodys.pem",
        0o666,
        &std::fs::read_to_string(&authority).unwrap(),
    );
    node.write(
        "config.toml",
        0o600,
        &config(NAME, port, "/etc/agentbox/anybodys.pem"),
    );
    let got = docker.run(&[runtime(), "test-probe"], &["true"]);
    assert!(
        got.code != 0 && got.stderr.contains("others than root can write it"),
        "{got}"
    );
}
