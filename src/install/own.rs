//! PURE. Files of agentbox's own: the node's file, the script that requires `strict`, the AppArmor profile.

use std::path::Path;

/// The node's file: all settings, as comments.
pub const CONFIG: &str = include_str!("../../hack/config.toml");

const STRICT: &str = include_str!("../../hack/kubernetes/agentbox-strict");

/// The script that requires `strict`.
pub fn strict(binary: &Path) -> String {
    STRICT.replace("/usr/local/bin/agentbox", &binary.display().to_string())
}

/// Ubuntu since 23.10 gives a user namespace of an ordinary user no rights unless the program has a profile with `userns`.
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

/// A digest as sha256sum(1) prints that of its input.
pub fn digest(text: &str) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    format!("{}  -\n", data_encoding::HEXLOWER.encode(digest.as_ref()))
}

/// Whether a path can be written into the files as it is: in JSON, TOML, a shell's script and a profile.
pub fn is_plain(path: &Path) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '+');
    path.to_str().is_some_and(|path| path.chars().all(allowed))
}
