//! PURE. Values of git's settings that name a remote (gitremotes(7), git-fetch(1)): which lead to another machine, and which
//! references a fetch writes.
//!
//! A remote on this machine is a program: `git push` runs the hooks of the repository that it names, as the user. A sandbox
//! can leave one where no search looks, such as a kept cache.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::text;

/// The protocols of git itself. For any other, git runs a program of that name.
const PROTOCOLS: [&[u8]; 6] = [b"https", b"http", b"ssh", b"git", b"git+ssh", b"ssh+git"];

/// Where a fetch may write: no local branch, and no replaced object.
const FETCHED: [&[u8]; 2] = [b"refs/remotes/", b"refs/tags/"];

/// What stands for an address that was taken out: git takes the name of a remote without one for a path.
pub(super) const NOWHERE: &[u8] = b"https://taken-out-by-agentbox.invalid/";

/// Whether a URL leads to another machine, as git reads it (`parse_connect_url` in its connect.c).
pub(super) fn is_elsewhere(url: &[u8]) -> bool {
    let at = |pattern: &[u8]| url.windows(pattern.len()).position(|part| part == pattern);
    let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
    let after = url.iter().position(|byte| !is_scheme(byte)).unwrap_or(0);
    // A program of git's, `git-remote-NAME`.
    if url[after..].starts_with(b"::") || !url.iter().all(u8::is_ascii_graphic) {
        return false;
    }
    match (at(b"://"), at(b"/")) {
        (Some(end), _) => {
            let rest = &url[end + 3..];
            // curl ends a host of HTTP; ssh gets all up to the slash (`parse_connect_url`).
            let (ends, also): (&[u8], &[u8]) = match url.starts_with(b"http") {
                true => (b"/?#", b"%!$&'()*,;="),
                false => (b"/", b""),
            };
            let end_of_host = rest.iter().position(|byte| ends.contains(byte));
            let authority = &rest[..end_of_host.unwrap_or(rest.len())];
            PROTOCOLS.contains(&&url[..end]) && is_authority(authority, also)
        }
        // HOST:PATH. What has a slash first is a path.
        (None, slash) => {
            let before = &url[..slash.unwrap_or(url.len())];
            let in_brackets = before.iter().position(|byte| *byte == b']').unwrap_or(0);
            let colon = before[in_brackets..].iter().position(|byte| *byte == b':');
            colon.is_some_and(|colon| is_authority(&before[..in_brackets + colon], b""))
        }
    }
}

/// Whether a host with a user and a port is another machine's, and has no character that the user's `ProxyCommand` of ssh would
/// hand to a shell (CVE-2023-51385). Git decodes `%` in an address of ssh; in one of HTTP it may stand in a password, as `also` says.
fn is_authority(text: &[u8], also: &[u8]) -> bool {
    let at = text.iter().rposition(|byte| *byte == b'@');
    let (user, host) = at.map_or((&b""[..], text), |at| (&text[..at], &text[at + 1..]));
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._~+:-".contains(byte);
    user.iter()
        .all(|byte| is_plain(byte) || also.contains(byte))
        && !user.starts_with(b"-")
        && is_others_host(host)
}

/// Whether a host with a port is another machine's. Only the usual spelling of an address counts.
fn is_others_host(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else {
        return false;
    };
    if let Some((address, _)) = host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        let address = address
            .parse::<Ipv6Addr>()
            .map(|address| address.to_canonical());
        return address.is_ok_and(|a| !a.is_loopback() && !a.is_unspecified());
    }
    let name = host.split(':').next().unwrap_or(host);
    let small = name.to_ascii_lowercase();
    let small = small.strip_suffix('.').unwrap_or(&small);
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let last = small.rsplit('.').next().unwrap_or(small);
    if last.starts_with(|c: char| c.is_ascii_digit()) {
        let address = small.parse::<Ipv4Addr>();
        return address.is_ok_and(|a| !a.is_loopback() && !a.is_unspecified());
    }
    !small.is_empty()
        && small.chars().all(is_plain)
        && !small.starts_with(['-', '_'])
        && !is_own_name(small)
}

/// Whether a name is this machine's in the hosts files of distributions.
fn is_own_name(name: &str) -> bool {
    let first = name.split('.').next().unwrap_or(name);
    let last = name.rsplit('.').next().unwrap_or(name);
    matches!(first, "localhost" | "localhost4" | "localhost6")
        || first.starts_with("ip6-")
        || last == "localhost"
        || last.starts_with("localdomain")
}

/// Whether git takes a name for a remote that is configured: it ignores one with a slash first (`handle_config` in its remote.c),
/// and a point is the repository itself. Before git 2.45 a blank of any kind in a value was a space, and so another name.
pub(super) fn is_remote_name(name: &[u8]) -> bool {
    let is_solid = |byte: &u8| byte.is_ascii_graphic() || !byte.is_ascii();
    let is_path = name.starts_with(b"/") || name == b"." || name == b"..";
    !name.is_empty() && !is_path && name.iter().all(is_solid)
}

/// Whether `branch.*.merge` names a reference, and no replaced object: `push.default=upstream` puts it behind a colon.
pub(super) fn is_pushed_branch(name: &[u8]) -> bool {
    let small = name.to_ascii_lowercase();
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b":*?[\\^~".contains(byte);
    small.starts_with(b"refs/") && !small.starts_with(b"refs/replace") && name.iter().all(is_plain)
}

/// Whether a refspec of a fetch writes only what comes from a remote.
pub(super) fn writes_remote_refs(refspec: &[u8]) -> bool {
    let colon = refspec.iter().position(|byte| *byte == b':');
    let written = colon.map_or(&b""[..], |colon| &refspec[colon + 1..]);
    written.is_empty() || FETCHED.iter().any(|place| written.starts_with(place))
}

/// Whether a refspec of a push sends the current branch alone, to its own name or to a review (Gerrit's refs/for, without options
/// such as `%submit`).
pub(super) fn pushes_current_branch(refspec: &[u8]) -> bool {
    let review = refspec.strip_prefix(b"HEAD:refs/for/");
    let is_plain = |name: &[u8]| {
        name.iter()
            .all(|byte| byte.is_ascii_alphanumeric() || b"._/-".contains(byte))
    };
    refspec == b"HEAD" || review.is_some_and(is_plain)
}

/// The remotes of a settings file that had an address at the start, those first that git takes when none is named.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NamedRemotes {
    /// The settings file, relative to the mount's source.
    #[serde(with = "text::one")]
    pub file: PathBuf,
    /// Their names.
    pub names: Vec<String>,
    /// Whether there were more.
    #[serde(default)]
    pub more: bool,
}

/// What git has at the start, for a comparison at the end.
#[derive(Debug, Default)]
pub struct KnownGit {
    /// Hashes of settings and links.
    pub hashes: BTreeSet<String>,
    /// Remotes with an address.
    pub remotes: Vec<NamedRemotes>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_on_this_machine_is_none_elsewhere() {
        for url in [
            "https://a.test/x.git",
            "http://a.test/x",
            "ssh://git@a.test:22/x",
            "git@a.test:org/x.git",
            "git://a.test/x",
            "gh:org/x",
            "https://user:p%40ss@a.test:8443/x",
            "ssh://git@[2001:db8::1]:22/x",
            "git@[2001:db8::1]:x",
            "git@192.0.2.1:x",
            "https://a-b.test:8443/x?y=%20",
            "https://me:p%40$s!@a.test/x",
        ] {
            assert!(is_elsewhere(url.as_bytes()), "{url}");
        }
        for url in [
            "",
            ".",
            "..",
            "origin",
            "/home/me/x.git",
            "./x",
            "../x",
            "~/x",
            "x/y:z",
            "./a://b",
            ":x",
            "file:///x",
            "ext::sh -c x",
            "https::x",
            "foo://a.test/x",
            "HTTPS://a.test/x",
            "https://",
            "localhost:/home/me/x.git",
            "ssh://127.0.0.1/home/me/x.git",
            "ssh://me@[::1]/home/me/x.git",
            "-oProxyCommand=x:y",
            "ssh://-oProxyCommand=x/y",
            "git@-x:y",
            "a$(x):y",
            "ssh://%6cocalhost/x",
            "ssh://a%24%28x%29/x",
            "ssh://a%0a@a.test/x",
            "[localhost]:/x",
            "[me@localhost]:/x",
            "[127.0.0.1]:/x",
            "ssh://localhost./x",
            "ssh://me@x.localhost:22/x",
            "0:x",
            "2130706433:/x",
            "ssh://127.1/x",
            "ssh://0x7f000001/x",
            "ssh://[::ffff:127.0.0.1]/x",
            "ssh://[::]/x",
            "ssh://a.test#$(touch${IFS}x)/y",
            "git+ssh://a.test?`id`/x",
            "ssh://a.test#%24%28id%29/y",
            "ssh://a.test?%0aid@h/y",
            "ssh://a.test#@localhost/x",
            "ssh://me@a.test#@[localhost]:22/x",
            "ip6-localhost:/home/me/x.git",
            "localhost.localdomain:x",
            "ssh://localhost6/x",
            "_outbound:x",
            "a b:y",
            "a\n:y",
        ] {
            assert!(!is_elsewhere(url.as_bytes()), "{url}");
        }
    }

    #[test]
    fn a_name_that_git_takes_for_a_path_is_no_remotes() {
        assert!(is_remote_name(b"origin") && is_remote_name(b"../x"));
        assert!(is_remote_name("zurück".as_bytes()));
        for name in ["", "/home/me/x.git", ".", "..", "a\tb", "a b", "a\rb"] {
            assert!(!is_remote_name(name.as_bytes()), "{name}");
        }
        assert!(is_elsewhere(NOWHERE));
    }

    #[test]
    fn a_branch_that_is_followed_is_a_reference() {
        for name in ["refs/heads/main", "refs/pull/7/head", "refs/tags/v1"] {
            assert!(is_pushed_branch(name.as_bytes()), "{name}");
        }
        for name in [
            "",
            "main",
            "x:refs/replace/0",
            "refs/heads/x:refs/replace/0",
            "refs/replace/0",
            "refs/REPLACE/0",
            "refs/heads/*",
        ] {
            assert!(!is_pushed_branch(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn a_push_sends_the_current_branch_alone() {
        for refspec in ["HEAD", "HEAD:refs/for/main"] {
            assert!(pushes_current_branch(refspec.as_bytes()), "{refspec}");
        }
        for refspec in [
            "",
            ":",
            ":refs/heads/main",
            "refs/heads/private",
            "HEAD:refs/heads/main",
            "HEAD:refs/for/main%submit",
            "+refs/heads/main",
            "refs/heads/*:refs/heads/*",
            "HEAD:refs/replace/0",
            "refs/heads/a:refs/heads/b:c",
            "refs/*",
            "main",
        ] {
            assert!(!pushes_current_branch(refspec.as_bytes()), "{refspec}");
        }
    }

    #[test]
    fn a_fetch_replaces_no_object_and_no_branch() {
        for refspec in [
            "+refs/heads/*:refs/remotes/origin/*",
            "refs/tags/*:refs/tags/*",
            "main",
            "^refs/heads/x",
            "refs/heads/x:",
        ] {
            assert!(writes_remote_refs(refspec.as_bytes()), "{refspec}");
        }
        for refspec in [
            "+refs/heads/x:refs/replace/0123",
            "+refs/*:refs/*",
            "main:main",
        ] {
            assert!(!writes_remote_refs(refspec.as_bytes()), "{refspec}");
        }
    }
}
