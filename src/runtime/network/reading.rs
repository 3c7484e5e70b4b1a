//! What the reader of requests is given: certificates, and the node's secrets, which are read here and kept nowhere.

use std::path::Path;

use crate::plan::NetworkPlan;
use crate::policy::NodeSecret;
use crate::runtime::RuntimeError;
use crate::runtime::input::bundle::read_open;
use crate::runtime::network::upstream::{FileRule, open_of_root, roots};
use crate::sidecar::{ReadSecret, Reading, SHORTEST};

/// The longest secret, in bytes.
const LONGEST: usize = 4096;

const SECRET: FileRule = FileRule {
    what: "a secret and is not root's alone",
    denied: 0o077,
    cure: 0o600,
};

/// What a container with this network needs; `None` where no rule is for requests. Read at `create`: a file that changes later counts
/// for the next container.
pub fn read(config: &Path, network: &NetworkPlan) -> Result<Option<Reading>, RuntimeError> {
    let Some(roots) = roots(config, &network.rules)? else {
        return Ok(None);
    };
    let secrets = network.secrets.iter().map(of_file);
    let secrets = secrets.collect::<Result<_, _>>()?;
    Ok(Some(Reading { roots, secrets }))
}

fn of_file(secret: &NodeSecret) -> Result<ReadSecret, RuntimeError> {
    let path: &Path = secret.file.as_ref();
    let bytes = read_open(open_of_root(path, &SECRET)?, path)?;
    let value = String::from_utf8(bytes).ok();
    let value = value.as_deref().and_then(first_line);
    match value {
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

fn first_line(text: &str) -> Option<&str> {
    let line = text.lines().next()?.trim_end();
    let fits = (SHORTEST..=LONGEST).contains(&line.len());
    (fits && line.bytes().all(|b| b.is_ascii_graphic())).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_one_line_of_visible_characters() {
        assert_eq!(first_line("sk-0123456789\nmore\n"), Some("sk-0123456789"));
        assert_eq!(first_line("sk-0123456789 \r\n"), Some("sk-0123456789"));
        for bad in [
            "",
            "short",
            "\nsk-0123456789",
            "sk 0123456789",
            "sk-0123456789\u{e9}",
        ] {
            assert_eq!(first_line(bad), None, "{bad:?}");
        }
    }
}
