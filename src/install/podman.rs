//! PURE. podman's drop-in file.

use std::path::Path;

use toml::{Table, Value};

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

/// Whether a file of podman's makes agentbox the default runtime. podman does not start with a file that is not TOML.
pub fn is_default(text: &str) -> bool {
    let table: Table = text.parse().unwrap_or_default();
    let runtime = table.get("engine").and_then(|engine| engine.get("runtime"));
    runtime.and_then(Value::as_str) == Some("agentbox")
}
