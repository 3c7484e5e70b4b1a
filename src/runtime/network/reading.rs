//! What the reader of requests is given: certificates, and the node's secrets, which are read here and kept nowhere.

use std::io::{ErrorKind, Read};
use std::path::Path;

use zeroize::Zeroizing;

use crate::enforce::trust::Trust;
use crate::plan::NetworkPlan;
use crate::policy::NodeSecret;
use crate::runtime::RuntimeError;
use crate::runtime::network::upstream::{FileRule, open_of_root, roots};
use crate::sidecar::{Authority, ReadSecret, Reading, SHORTEST};

/// The longest secret, in bytes.
const LONGEST: usize = 4096;

const SECRET: FileRule = FileRule {
    what: "a secret and is not root's alone",
    denied: 0o077,
    cure: 0o600,
};

/// What a container is given for its requests.
#[derive(Default)]
pub struct Given {
    /// For the reader; nothing where no rule is for requests, or where the network is another container's.
    pub reading: Option<Reading>,
    /// For the container's programs, where TLS is opened.
    pub trust: Option<Trust>,
}

/// What a container with this network is given. Read at `create`: a file that changes later counts for the next container. Where TLS is
/// opened the plan gets the certificate of a new authority, or has that of the container whose network it is.
pub fn read(config: &Path, network: &mut NetworkPlan) -> Result<Given, RuntimeError> {
    let Some(roots) = roots(config, &network.rules)? else {
        return Ok(Given::default());
    };
    let reading = match &network.shared {
        Some(_) => None,
        None => {
            let secrets = network.secrets.iter().map(of_file);
            let secrets = secrets.collect::<Result<_, _>>()?;
            let made = network.opens().map(Authority::make).transpose();
            let made = made.map_err(|error| {
                let why = std::io::Error::other(error.to_string());
                RuntimeError::io("make the container's certificate authority")(why)
            })?;
            let (authority, certificate) = made.unzip();
            network.authority = certificate;
            Some(Reading {
                roots: roots.clone(),
                secrets,
                honey: network.honey.clone(),
                fields: network.request_fields.clone(),
                authority,
            })
        }
    };
    let trust = network.authority.clone().map(|authority| Trust {
        authority,
        nodes: roots,
    });
    Ok(Given { reading, trust })
}

fn of_file(secret: &NodeSecret) -> Result<ReadSecret, RuntimeError> {
    let path: &Path = secret.file.as_ref();
    let mut file = open_of_root(path, &SECRET)?;
    // One more than fits, so that a longer line is known as one. Its copies go with it.
    let mut bytes = Zeroizing::new([0; LONGEST + 1]);
    let mut length = 0;
    while length < bytes.len() {
        match file.read(&mut bytes[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(RuntimeError::io(format!("read {path:?}"))(error)),
        }
    }
    match first_line(&bytes[..length]) {
        Some(value) => Ok(ReadSecret {
            secret: secret.clone(),
            value: value.to_owned(),
        }),
        None => Err(RuntimeError::Input {
            path: path.to_owned(),
            why: format!(
                "its first line is not the secret {}: {SHORTEST} to {LONGEST} characters of visible ASCII",
                secret.name
            ),
        }),
    }
}

fn first_line(bytes: &[u8]) -> Option<&str> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.trim_end();
    let fits = (SHORTEST..=LONGEST).contains(&line.len());
    (fits && line.bytes().all(|b| b.is_ascii_graphic())).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a kubelet mounts a Secret, and changes it.
    #[test]
    fn the_file_behind_links_is_read_and_judged() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        if !rustix::process::getuid().is_root() {
            return;
        }
        let dir = std::env::temp_dir().join(format!("agentbox-links-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let put = |version: &str, value: &str, mode: u32| {
            let path = dir.join(version);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("key"), value).unwrap();
            std::fs::set_permissions(path.join("key"), PermissionsExt::from_mode(mode)).unwrap();
            symlink(version, dir.join("..new")).unwrap();
            std::fs::rename(dir.join("..new"), dir.join("..data")).unwrap();
        };
        put("..1", "sk-0123456789", 0o400);
        symlink("..data/key", dir.join("key")).unwrap();
        let text = format!(
            "name = \"k\"\nfile = {:?}\npolicies = [\"p\"]\nrequests = [\"GET https://a.test/x\"]\nquery = \"key\"",
            dir.join("key")
        );
        let secret: NodeSecret = toml::from_str(&text).unwrap();
        assert_eq!(of_file(&secret).unwrap().value, "sk-0123456789");
        put("..2", "sk-9876543210", 0o400);
        assert_eq!(of_file(&secret).unwrap().value, "sk-9876543210");
        // As it is mounted without `defaultMode`.
        put("..3", "sk-5555555555", 0o644);
        assert!(of_file(&secret).is_err());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_secret_is_one_line_of_visible_characters() {
        for good in [
            "sk-0123456789\nmore\n",
            "sk-0123456789 \r\n",
            "sk-0123456789\n\u{e9}",
        ] {
            assert_eq!(first_line(good.as_bytes()), Some("sk-0123456789"));
        }
        for bad in [
            "",
            "short",
            "\nsk-0123456789",
            "sk 0123456789",
            "sk-0123456789\u{e9}",
        ] {
            assert_eq!(first_line(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(first_line(&[b'k'; LONGEST + 1]), None);
    }
}
