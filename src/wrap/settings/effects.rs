//! What settings do, in the words that `trust` shows before it trusts them.

use crate::policy::{Field, NodeSecret, OnUnknown};

/// What a file does that lets nothing wait for the user.
const UNASKED: &str = "lets keys of --ssh-agent sign without a question";

/// What a `[[secret]]` does.
pub(super) fn kept_outside(secret: &NodeSecret) -> Option<String> {
    let source = secret.of_user()?;
    let name = &secret.name;
    Some(format!("keeps outside: secret {name}, from {source}"))
}

/// What `ask` does.
pub(super) fn asks(on_unknown: OnUnknown) -> String {
    match on_unknown {
        OnUnknown::Ask => "asks at the terminal about connections to other hosts".to_owned(),
        OnUnknown::Deny => format!("denies connections to other hosts at once, and {UNASKED}"),
    }
}

/// What a value of `network.on-unknown` does besides.
pub(super) fn unasked(name: &str, value: &str) -> Option<String> {
    let asks = name != Field::NetworkOnUnknown.as_str() || value == OnUnknown::Ask.to_string();
    (!asks).then(|| UNASKED.to_owned())
}

/// What a name under `unprotect` does.
pub(super) fn unprotects(name: &str) -> String {
    match name {
        "*" => "lets every file be written that your tools run later".to_owned(),
        name => format!("lets a file be written that your tools run later: {name}"),
    }
}
