//! SHELL. The caller's standard streams.

use std::path::PathBuf;

use anyhow::{Result, bail};

use super::enforce::LandlockSetup;
use crate::runtime::RuntimeError;
use crate::runtime::foreground::ended::ChildExit;
use crate::runtime::foreground::relay::{self, CallersTerminals, Relay};
use crate::runtime::input::descriptors::{self, DescriptorRule};
use crate::wrap::error::WrapRefusal;

/// Refuses inherited directories and disks, and sockets that could be connected elsewhere, to a port of another machine or to a
/// path.
pub fn check() -> Result<()> {
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
    Ok(descriptors::check_standard(DescriptorRule::Harmless)?)
}

/// Pipes in place of files, and of a pipe that the caller reads, too: Landlock judges neither what is open already (ftruncate(2),
/// a file's offset) nor a pipe that is opened again.
pub fn relay(walls: &mut LandlockSetup) -> Result<Relay> {
    let (stdio, relay) = relay::pipes(CallersTerminals::Kept)?;
    walls.stdio = stdio;
    Ok(relay)
}

/// A file that could not be read or written on: the command, if it ended well, did not see it.
pub fn judge(relayed: Result<(), RuntimeError>, ended: &ChildExit) -> Result<()> {
    match relayed {
        Err(error) if ended.code == 0 => Err(error.into()),
        Err(error) => {
            crate::log::complain(&crate::log::chain(&error));
            Ok(())
        }
        Ok(()) => Ok(()),
    }
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
