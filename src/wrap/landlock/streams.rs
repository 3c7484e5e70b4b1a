//! SHELL. The caller's standard streams, which the command inherits.

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::runtime::input::descriptors;
use crate::wrap::error::WrapRefusal;

/// Refuses inherited sockets that could be connected elsewhere, to a port of another machine or to a path.
pub fn refuse_sockets() -> Result<()> {
    let streams = [
        (rustix::stdio::stdin(), "input"),
        (rustix::stdio::stdout(), "output"),
        (rustix::stdio::stderr(), "error"),
    ];
    for (stream, name) in streams {
        let is_socket = rustix::net::sockopt::socket_domain(stream).is_ok();
        if is_socket && !descriptors::is_harmless_socket(stream) {
            let why = format!(
                "standard {name} is a socket that could be connected elsewhere: use a pipe"
            );
            bail!(WrapRefusal::NotByLandlock(why));
        }
    }
    Ok(())
}

/// The terminals among input and output.
pub fn terminals() -> Vec<PathBuf> {
    let streams = [
        rustix::stdio::stdin(),
        rustix::stdio::stdout(),
        rustix::stdio::stderr(),
    ];
    let names = streams
        .into_iter()
        .filter_map(|stream| rustix::termios::ttyname(stream, Vec::new()).ok());
    let mut all: Vec<PathBuf> = names
        .filter_map(|name| Some(PathBuf::from(name.to_str().ok()?)))
        .collect();
    all.sort();
    all.dedup();
    all
}
