//! SHELL. The environment of the command.

use anyhow::{Result, bail};

use super::error::WrapRefused;
use super::list::List;

/// The environment of the command: what the list passes on, and what was asked for.
pub fn passed(list: &List, asked: &[String]) -> Result<Vec<String>> {
    let mut env: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)))
        .collect();
    env.retain(|(key, _)| list.passes(key));
    for pair in asked {
        let Some((key, value)) = pair.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            bail!(WrapRefused::Env(pair.clone()));
        };
        env.retain(|(k, _)| k != key);
        env.push((key.to_owned(), value.to_owned()));
    }
    if !env.iter().any(|(k, _)| k == "PATH") {
        env.push((
            "PATH".to_owned(),
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned(),
        ));
    }
    Ok(env.into_iter().map(|(k, v)| format!("{k}={v}")).collect())
}
