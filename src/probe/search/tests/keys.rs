//! L6: private keys outside of `.ssh`, by their names and their first lines.

use std::os::unix::fs::PermissionsExt;

use super::*;

const KEY: &str = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1r\n";

#[test]
fn private_keys_are_hidden_wherever_they_lie() {
    let scratch = TestDir::new("search-keys");
    let dir = &scratch.0;
    fs::create_dir_all(dir.join("a/b")).unwrap();
    for (name, text, mode) in [
        ("id_rsa", KEY, 0o644),
        ("id_rsa.pub", "ssh-rsa AAAA", 0o644),
        ("a/b/deploy.pem", KEY, 0o600),
        // A key for tests that all users may read; a certificate; a key under an ordinary name.
        ("a/server.key", KEY, 0o644),
        ("a/ca.pem", "-----BEGIN CERTIFICATE-----\n", 0o600),
        ("a/notes", KEY, 0o600),
    ] {
        let path = dir.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    std::os::unix::fs::symlink("id_rsa", dir.join("id_ed25519")).unwrap();
    assert_eq!(found(&searched(dir)), ["a/b/deploy.pem", "id_rsa"]);
    let meant = VisibleCredentials::from(["*.pem".into()]);
    assert_eq!(found(&searched_for(dir, &meant)), ["id_rsa"]);
    // Policy fields decide about a pod's Secret.
    let secret = dir.join("kubernetes.io~secret/tls");
    fs::create_dir_all(&secret).unwrap();
    fs::rename(dir.join("a/b/deploy.pem"), secret.join("tls.key")).unwrap();
    assert_eq!(found(&searched(&secret)), [""; 0]);
}
