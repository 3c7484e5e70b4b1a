//! SHELL. The caller's standard streams, which the command inherits.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use crate::wrap::WrapRefusal;

/// Refuses inherited sockets: they could be connected elsewhere, to a port of another machine or to a path. Connected
/// UNIX stream sockets cannot, and clients start their servers with such pairs.
pub fn refuse_sockets() -> Result<()> {
    let streams = [
        (rustix::stdio::stdin(), "input"),
        (rustix::stdio::stdout(), "output"),
        (rustix::stdio::stderr(), "error"),
    ];
    for (stream, name) in streams {
        use rustix::net::{AddressFamily, SocketType, sockopt};
        let Ok(family) = sockopt::socket_domain(stream) else {
            continue;
        };
        let kind = sockopt::socket_type(stream).context("look at a standard stream")?;
        let connected = rustix::net::getpeername(stream).is_ok();
        let harmless = family == AddressFamily::UNIX
            && [SocketType::STREAM, SocketType::SEQPACKET].contains(&kind)
            && connected;
        if !harmless {
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
