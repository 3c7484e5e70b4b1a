//! PURE. agentbox's own files: the node file, the script that requires `strict`, the AppArmor profile.

use std::path::Path;

/// The node file: all settings, as comments.
pub const CONFIG: &str = include_str!("../../hack/config.toml");

const STRICT: &str = include_str!("../../hack/kubernetes/agentbox-strict");

/// The script that requires `strict`.
pub fn strict(binary: &Path) -> String {
    STRICT.replace("/usr/local/bin/agentbox", &binary.display().to_string())
}

/// The AppArmor profile. On Ubuntu since 23.10 an ordinary user's namespace has no rights unless the program has a
/// profile with `userns`.
pub fn apparmor(binary: &Path) -> String {
    format!(
        "# From agentbox install: `agentbox wrap` without root makes a user namespace. Everything else is as without a profile.\n\
         abi <abi/4.0>,\n\
         include <tunables/global>\n\n\
         profile agentbox {} flags=(unconfined) {{\n  \
           userns,\n  \
           include if exists <local/agentbox>\n\
         }}\n",
        binary.display()
    )
}

/// The digest of a text, in the form that sha256sum(1) prints for standard input.
pub fn digest(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    format!("{}  -\n", data_encoding::HEXLOWER.encode(digest.as_ref()))
}

/// Whether a path needs no escaping in JSON, TOML, a shell script and a profile.
pub fn is_plain(path: &Path) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '+');
    path.to_str().is_some_and(|path| path.chars().all(allowed))
}
