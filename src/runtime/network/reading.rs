//! The files of the reader of requests: certificates, and secrets, which are read here and saved nowhere.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, CWD, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use zeroize::Zeroizing;

use crate::enforce::trust::TrustStore;
use crate::plan::NetworkPlan;
use crate::policy::{NodeSecret, SecretSource, VolumeKey};
use crate::runtime::RuntimeError;
use crate::runtime::network::upstream::{FileRule, open_of_root, roots};
use crate::runtime::state::store::is_of_ordinary_user;
use crate::sidecar::{Authority, ReadSecret, ReaderConfig, SHORTEST};

/// TMPFS_MAGIC of linux/magic.h.
const TMPFS: i64 = 0x0102_1994;
/// The longest secret, in bytes.
const LONGEST: usize = 4096;

const SECRET: FileRule = FileRule {
    what: "a secret and is not root's alone",
    denied: 0o077,
    cure: 0o600,
};

/// The files and settings with which a container makes requests.
#[derive(Default)]
pub struct RequestSetup {
    /// For the reader; `None` without request rules, or in another container's network.
    pub reading: Option<ReaderConfig>,
    /// For the container's programs, if TLS is opened.
    pub trust: Option<TrustStore>,
}

/// Reads the value of a secret of the user of `wrap`, which may have more lines. None: nothing is started, and none is
/// needed.
pub type UserSecretReader<'a> =
    &'a dyn Fn(&NodeSecret) -> Result<Option<Zeroizing<Vec<u8>>>, RuntimeError>;

/// The reader of callers without such secrets.
pub fn no_user_secrets(_: &NodeSecret) -> Result<Option<Zeroizing<Vec<u8>>>, RuntimeError> {
    Ok(None)
}

/// The sources of secrets besides the node's own files.
#[derive(Clone, Copy)]
pub struct SecretSources<'a> {
    /// Where the Secrets of the container's pod may be.
    pub volumes: &'a [PathBuf],
    /// The user's.
    pub user: UserSecretReader<'a>,
}

/// Reads what a container with this network gets, at `create`: later changes of a file count for the next container. If
/// TLS is opened, the plan gets the certificate of a new authority, or of the container whose network it joins.
pub fn read(
    config: &Path,
    network: &mut NetworkPlan,
    sources: SecretSources<'_>,
) -> Result<RequestSetup, RuntimeError> {
    let Some(roots) = roots(config, &network.rules)? else {
        return Ok(RequestSetup::default());
    };
    let reading = match &network.shared {
        Some(_) => None,
        None => {
            let secrets = network.secrets.iter();
            let secrets = secrets.filter_map(|secret| read_secret(secret, sources).transpose());
            let secrets = secrets.collect::<Result<_, _>>()?;
            let made = network.opens().map(Authority::make).transpose();
            let made = made.map_err(|error| {
                let why = std::io::Error::other(error.to_string());
                RuntimeError::io("make the container's certificate authority")(why)
            })?;
            let (authority, certificate) = made.unzip();
            network.authority = certificate;
            Some(ReaderConfig {
                roots: roots.clone(),
                secrets,
                honey: network.honey.clone(),
                fields: network.request_fields.clone(),
                authority,
            })
        }
    };
    let trust = network.authority.clone().map(|authority| TrustStore {
        authority,
        nodes: roots,
    });
    Ok(RequestSetup { reading, trust })
}

fn read_secret(
    secret: &NodeSecret,
    sources: SecretSources<'_>,
) -> Result<Option<ReadSecret>, RuntimeError> {
    let (mut file, path) = match &secret.source {
        SecretSource::File(file) => {
            let path: &Path = file.as_ref();
            if is_of_ordinary_user() && is_closed(path) {
                // Without it the program's own credentials would pass (docs/network.md).
                return Err(RuntimeError::Secret {
                    name: secret.name.clone(),
                    why: "the node puts it into these requests, and root alone reads its key: run with sudo, with a policy that it is not \
                          for, or without the rules for its requests"
                        .to_owned(),
                });
            }
            (open_of_root(path, &SECRET)?, path.to_owned())
        }
        SecretSource::Volume(key) => open_in_volume(key, sources.volumes)?,
        SecretSource::User(source) => {
            let Some(bytes) = (sources.user)(secret)? else {
                return Ok(None);
            };
            let why = || RuntimeError::Secret {
                name: secret.name.clone(),
                why: format!("the first line of {source} is no secret: {}", grammar()),
            };
            return value(secret, &bytes).ok_or_else(why).map(Some);
        }
    };
    // One byte more than allowed, to notice a longer line. Its copies are wiped with it.
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
    let why = || RuntimeError::Input {
        path,
        why: format!(
            "its first line is not the secret {}: {}",
            secret.name,
            grammar()
        ),
    };
    value(secret, &bytes[..length]).ok_or_else(why).map(Some)
}

/// Whether this process may not read a file.
fn is_closed(path: &Path) -> bool {
    rustix::fs::access(path, Access::READ_OK) == Err(Errno::ACCESS)
}

/// What a secret looks like.
fn grammar() -> String {
    format!("{SHORTEST} to {LONGEST} characters of visible ASCII")
}

/// The secret with its value, the first line.
fn value(secret: &NodeSecret, bytes: &[u8]) -> Option<ReadSecret> {
    first_line(bytes).map(|value| ReadSecret {
        secret: secret.clone(),
        value: value.to_owned(),
    })
}

/// Opens a key of a Secret that is a volume of the container's own pod. Only the pod's author can name such a volume,
/// and has the Secret anyway. Only a kubelet writes it, in memory.
fn open_in_volume(key: &VolumeKey, volumes: &[PathBuf]) -> Result<(File, PathBuf), RuntimeError> {
    let wanted = PathBuf::from(key.volume()).join(key.key());
    let refused = |why: &str| RuntimeError::Input {
        path: wanted.clone(),
        why: format!("it is to be a key of a Secret volume of the pod: {why}"),
    };
    if volumes.is_empty() {
        return Err(refused("this container is in no pod of a kubelet's"));
    }
    let volume = |above: &PathBuf| {
        let above = open(CWD, above, OFlags::DIRECTORY, ResolveFlags::NO_MAGICLINKS).ok()?;
        let own = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        open(&above, Path::new(key.volume()), OFlags::DIRECTORY, own).ok()
    };
    let volume = volumes
        .iter()
        .find_map(volume)
        .ok_or_else(|| refused("it has no such volume, or no container of the pod mounts it"))?;
    let magic = rustix::fs::fstatfs(&volume).map(|found| found.f_type);
    if magic.ok() != Some(TMPFS) {
        return Err(refused("the volume is not in memory"));
    }
    // Through the kubelet's own links: KEY -> ..data/KEY, ..data -> ..TIME.
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_XDEV;
    let file = open(&volume, Path::new(key.key()), OFlags::NONBLOCK, within)
        .map_err(|_| refused("the Secret has no such key"))?;
    let file = File::from(file);
    let is_file = file.metadata().is_ok_and(|found| found.is_file());
    match is_file {
        true => Ok((file, wanted)),
        false => Err(refused("the key is no file")),
    }
}

fn open(
    at: impl AsFd,
    path: &Path,
    flags: OFlags,
    resolve: ResolveFlags,
) -> rustix::io::Result<OwnedFd> {
    let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC;
    rustix::fs::openat2(at, path, flags, Mode::empty(), resolve)
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
    fn the_file_behind_links_is_read_and_checked() {
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
        let sources = SecretSources {
            volumes: &[],
            user: &no_user_secrets,
        };
        let of_file = |secret: &NodeSecret| read_secret(secret, sources).map(|read| read.unwrap());
        assert_eq!(of_file(&secret).unwrap().value, "sk-0123456789");
        put("..2", "sk-9876543210", 0o400);
        assert_eq!(of_file(&secret).unwrap().value, "sk-9876543210");
        // As mounted without `defaultMode`.
        put("..3", "sk-5555555555", 0o644);
        assert!(of_file(&secret).is_err());
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// As a kubelet lays out a Secret, with links that must not be followed.
    #[test]
    fn a_key_of_the_pods_own_volume_is_read_and_nothing_outside() {
        use std::os::unix::fs::symlink;
        let base = format!("agentbox-volumes-{}", std::process::id());
        let (memory, disk) = (
            Path::new("/dev/shm").join(&base),
            std::env::temp_dir().join(&base),
        );
        let is_memory =
            |dir: &Path| rustix::fs::statfs(dir).is_ok_and(|found| found.f_type == TMPFS);
        if !is_memory(Path::new("/dev/shm")) {
            return;
        }
        for above in [&memory, &disk] {
            let volume = above.join("apikey");
            std::fs::create_dir_all(volume.join("..2026")).unwrap();
            std::fs::write(volume.join("..2026/key"), "sk-0123456789\n").unwrap();
            std::fs::create_dir(volume.join("..2026/dir")).unwrap();
            symlink("..2026", volume.join("..data")).unwrap();
            symlink("..data/key", volume.join("key")).unwrap();
            symlink("..data/dir", volume.join("dir")).unwrap();
            std::fs::write(above.join("other"), "sk-9876543210\n").unwrap();
            symlink("../other", volume.join("out")).unwrap();
            symlink(above.join("other"), volume.join("absolute")).unwrap();
            symlink("apikey", above.join("linked")).unwrap();
        }
        let read = |above: &[PathBuf], key: &str| {
            let text = format!(
                "name = \"k\"\nvolume = {key:?}\npolicies = [\"p\"]\nrequests = [\"GET https://a.test/x\"]\nquery = \"key\""
            );
            let secret: NodeSecret = toml::from_str(&text).unwrap();
            let sources = SecretSources {
                volumes: above,
                user: &no_user_secrets,
            };
            let read = read_secret(&secret, sources).map_err(|error| error.to_string());
            read.map(|read| read.unwrap())
        };
        let absent = memory.join("absent");
        let places = [absent.clone(), memory.clone()];
        assert_eq!(
            read(&places[..], "apikey/key").unwrap().value,
            "sk-0123456789"
        );
        for (places, key, why) in [
            (&places[..], "apikey/none", "no such key"),
            (&places[..], "apikey/out", "no such key"),
            (&places[..], "apikey/absolute", "no such key"),
            (&places[..], "apikey/dir", "no file"),
            (&places[..], "linked/key", "no such volume"),
            (&places[..], "other/key", "no such volume"),
            (
                std::slice::from_ref(&absent),
                "apikey/key",
                "no such volume",
            ),
            (&[][..], "apikey/key", "in no pod"),
        ] {
            let said = read(places, key).err().unwrap();
            assert!(said.contains(why), "{key}: {said}");
        }
        if !is_memory(&disk) {
            let said = read(std::slice::from_ref(&disk), "apikey/key")
                .err()
                .unwrap();
            assert!(said.contains("not in memory"), "{said}");
        }
        for above in [memory, disk] {
            std::fs::remove_dir_all(above).unwrap();
        }
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
