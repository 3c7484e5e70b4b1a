//! PURE. The list of what no policy lets in: `policies/never.toml`.

use std::path::{Component, Path, PathBuf};

use serde::Deserialize;

/// The parsed list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Never {
    /// Paths of the node.
    pub host: Vec<HostPath>,
    credentials: Credentials,
}

/// A path of the node that is never let in, with all below it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostPath {
    /// The path.
    pub path: PathBuf,
    /// The reason, as a clause.
    pub why: String,
    /// Patterns below the path that are not meant; `*` stands for one component.
    #[serde(default)]
    pub except: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Credentials {
    why: String,
    paths: Vec<PathBuf>,
}

impl Never {
    /// The list that is built in.
    pub fn builtin() -> Self {
        toml::from_str(include_str!("../../policies/never.toml"))
            .expect("a test parses the built-in list")
    }

    /// Why `real` (a path without links) is never let in, if it is.
    pub fn refuses(&self, real: &Path) -> Option<&str> {
        let host = self
            .host
            .iter()
            .find(|h| h.covers(real))
            .map(|h| h.why.as_str());
        host.or_else(|| {
            self.holds_credentials(real)
                .then_some(self.credentials.why.as_str())
        })
    }

    /// Why a file with this path relative to a mount's source must be masked, if it must.
    pub fn credential(&self, relative: &Path) -> Option<&str> {
        self.ends_in_credentials(relative)
            .then_some(self.credentials.why.as_str())
    }

    /// Names of credentials, relative to a home directory.
    pub fn credentials(&self) -> impl Iterator<Item = &Path> {
        self.credentials.paths.iter().map(PathBuf::as_path)
    }

    /// Entries of the list that lie strictly below `real`: they are masked when `real` is mounted.
    pub fn below<'a>(&'a self, real: &'a Path) -> impl Iterator<Item = (&'a Path, &'a str)> {
        self.host.iter().filter_map(move |h| {
            let rest = h.path.strip_prefix(real).ok()?;
            (rest.components().next().is_some()).then_some((rest, h.why.as_str()))
        })
    }

    fn ends_in_credentials(&self, path: &Path) -> bool {
        self.credentials.paths.iter().any(|c| path.ends_with(c))
    }

    /// A credential folder itself, or anything below one.
    fn holds_credentials(&self, path: &Path) -> bool {
        path.ancestors().any(|a| self.ends_in_credentials(a))
    }
}

impl HostPath {
    fn covers(&self, real: &Path) -> bool {
        // Everything lies below "/": only "/" itself is meant by that entry.
        if self.path == Path::new("/") {
            return real == Path::new("/");
        }
        match real.strip_prefix(&self.path) {
            Ok(rest) => !self
                .except
                .iter()
                .any(|pattern| matches_or_below(pattern, rest)),
            Err(_) => false,
        }
    }
}

/// `rest` is what the pattern names, or lies below it.
fn matches_or_below(pattern: &str, rest: &Path) -> bool {
    let mut components = rest.components();
    pattern.split('/').all(|want| match components.next() {
        Some(Component::Normal(have)) => want == "*" || have == want,
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_list_parses_and_holds_what_the_documentation_promises() {
        let never = Never::builtin();
        for path in [
            "/",
            "/etc",
            "/etc/shadow",
            "/proc/sys",
            "/sys",
            "/dev/mem",
            "/run/docker.sock",
            "/var/lib/docker",
            "/var/lib/docker/overlay2/x/merged",
            "/var/lib/kubelet/pki",
            "/home/me/.ssh",
            "/root/.aws/config",
            "/home/me/.config/gcloud",
            "/home/me/.docker/config.json",
            "/srv/.netrc",
            "/var/lib/kubelet/pods/u/volumes/kubernetes.io~projected/kube-api-access-x",
        ] {
            assert!(never.refuses(Path::new(path)).is_some(), "{path} is let in");
        }
        for path in [
            "/home/me",
            "/home/me/project",
            "/srv",
            "/var/lib/docker/volumes/v/_data",
            "/var/lib/docker/volumes/v/_data/below",
            "/etcetera",
            "/home/me/.config",
            "/home/me/ssh",
            "/var/lib/kubelet/pods/u/volumes/kubernetes.io~empty-dir/cache",
        ] {
            assert_eq!(never.refuses(Path::new(path)), None, "{path} is refused");
        }
    }

    #[test]
    fn an_exception_does_not_cover_its_siblings_or_parents() {
        let never = Never::builtin();
        for path in [
            "/var/lib/docker/volumes",
            "/var/lib/docker/volumes/v",
            "/var/lib/docker/volumes/v/other",
        ] {
            assert!(never.refuses(Path::new(path)).is_some(), "{path} is let in");
        }
    }

    #[test]
    fn what_lies_below_a_kept_mount_is_named_for_masking() {
        let never = Never::builtin();
        let below: Vec<_> = never
            .below(Path::new("/var/lib"))
            .map(|(p, _)| p.to_path_buf())
            .collect();
        assert!(
            below.contains(&PathBuf::from("docker")) && below.contains(&PathBuf::from("kubelet"))
        );
        assert_eq!(
            never.credential(Path::new("u/.ssh")),
            Some("it holds credentials")
        );
        assert_eq!(never.credential(Path::new("u/.ssh/id_rsa")), None);
    }
}
