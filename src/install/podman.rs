//! PURE. podman's drop-in file.

use std::path::Path;

/// The whole file.
pub fn text(binary: &Path) -> String {
    format!(
        "# Written by agentbox install.\n\
         [engine]\n\
         # A list replaces podman's own, which is this one without agentbox.\n\
         runtime_supports_json = [\"crun\", \"runc\", \"kata\", \"runsc\", \"youki\", \"krun\", \"agentbox\"]\n\
         [engine.runtimes]\n\
         agentbox = [\"{}\"]\n",
        binary.display()
    )
}
