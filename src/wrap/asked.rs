//! SHELL. What the options say of the policy.

use std::path::Path;

use anyhow::Result;

use super::own_file;
use super::person::Person;
use crate::cli;
use crate::policy::{Asked, AskedOption, AskedPolicy, Field, OnUnknown};

/// What the command line asks for. To be called with the person's rights over files.
pub fn of(args: &cli::Wrap, person: &Person) -> Result<Asked> {
    let mut options = Vec::new();
    for text in &args.set {
        options.push(AskedOption::set(text)?);
    }
    for hosts in &args.allow {
        options.push(AskedOption::adding("--allow", Field::NetworkAllow, hosts));
    }
    for hosts in &args.deny {
        options.push(AskedOption::adding("--deny", Field::NetworkDeny, hosts));
    }
    if args.ask {
        let ask = OnUnknown::Ask.to_string();
        options.push(AskedOption::setting("--ask", Field::NetworkOnUnknown, &ask));
    }
    Ok(Asked {
        policy: (args.policy.as_deref().map(|text| policy(text, person))).transpose()?,
        options,
    })
}

/// A policy by its name, or a file by its path: no name has a `/` or ends in `.toml`.
fn policy(text: &str, person: &Person) -> Result<AskedPolicy> {
    if !text.contains('/') && !text.ends_with(".toml") {
        return Ok(AskedPolicy::Named(text.to_owned()));
    }
    Ok(AskedPolicy::File {
        path: text.to_owned(),
        text: own_file::read_trusted(Path::new(text), person)?,
    })
}
