//! The reader's own program: drop every privilege, then serve connections until the sidecar ends.

use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::process::Signal;
use tokio::net::TcpStream;
use tokio::task::spawn_local;

use super::ReaderConfig;
use super::authority::Opener;
use super::conversation::{self, ReaderState};
use super::messages::{Arrival, MessageChannel};
use super::outside::Greetings;
use super::secrets::Secrets;
use crate::egress::Honey;
use crate::egress::http::KnownFields;
use crate::network::with_causes;
use crate::sidecar::confine::{self, ConfineError};
use crate::sidecar::error::SidecarError;
use crate::sidecar::filter;
use crate::sidecar::protocol::{self, Reply};
use crate::sys::event::event_loop;
use crate::sys::process;

/// Its name in ps(1).
const NAME: &std::ffi::CStr = c"agentbox-reader";

/// Runs until the sidecar ends.
pub(super) fn live(
    configuration: OwnedFd,
    line: OwnedFd,
    confine: impl FnOnce() -> Result<u32, ConfineError>,
) -> Result<(), SidecarError> {
    let (reply, given) = match prepare(configuration, &line, confine) {
        Ok((landlock_abi, given)) => {
            let pid = None;
            (Reply::Ready { landlock_abi, pid }, Some(given))
        }
        Err(error) => {
            let reason = with_causes(&error);
            (Reply::Failed { reason }, None)
        }
    };
    protocol::send(line.as_fd(), "sidecar", &reply, &[]).map_err(SidecarError::Protocol)?;
    match given {
        Some(given) => serve(line, given),
        None => Ok(()),
    }
}

/// Reads its configuration, then gives up everything but the line.
fn prepare(
    configuration: OwnedFd,
    line: &OwnedFd,
    confine: impl FnOnce() -> Result<u32, ConfineError>,
) -> Result<(u32, ReaderState), SidecarError> {
    process::set_name(NAME).map_err(SidecarError::step("set the name"))?;
    let reading = ReaderConfig::read(configuration).map_err(SidecarError::Configuration)?;
    let ReaderConfig {
        roots,
        secrets,
        honey,
        fields,
        authority,
    } = reading;
    let greetings = Greetings::new(&roots)
        .map_err(|why| SidecarError::Configuration(std::io::Error::other(why)))?;
    drop(roots);
    let secrets = Secrets::new(secrets);
    let opener = authority.as_ref().map(Opener::new).transpose();
    let opener = opener.map_err(|why| SidecarError::Configuration(std::io::Error::other(why)))?;
    drop(authority);
    let fields = KnownFields::new(fields);
    let filter = filter::of_reader()
        .map_err(ConfineError::Filter)
        .map_err(SidecarError::Confine)?;
    let landlock_abi = confine().map_err(SidecarError::Confine)?;
    // After the change of ids, which clears it. In the sidecar's own pid namespace, the kernel ends the reader too.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(SidecarError::step("end with the sidecar"))?;
    // The sidecar's descriptors are not for the reader.
    process::close_all_but(line.as_fd())
        .map_err(SidecarError::step("close what is the sidecar's"))?;
    confine::seal(&filter).map_err(SidecarError::Confine)?;
    let given = ReaderState {
        greetings,
        secrets,
        honey: Rc::new(Honey::new(&honey)),
        fields,
        opener,
        rooms: Default::default(),
    };
    Ok((landlock_abi, given))
}

/// Takes clients' connections until the line closes.
fn serve(line: OwnedFd, given: ReaderState) -> Result<(), SidecarError> {
    let step = |step| SidecarError::step::<std::io::Error>(step);
    let runtime = event_loop().map_err(step("make the event loop"))?;
    runtime.block_on(async move {
        let line = MessageChannel::new(line).map_err(step("watch the line to the sidecar"))?;
        let given = Rc::new(given);
        loop {
            let heard = line.hear::<Arrival>().await;
            let Some((arrival, fds)) = heard.map_err(step("hear the sidecar"))? else {
                return Ok(());
            };
            let Ok([client, questions]) = <[OwnedFd; 2]>::try_from(fds) else {
                continue;
            };
            let given = Rc::clone(&given);
            spawn_local(async move {
                let client = TcpStream::from_std(client.into());
                if let (Ok(client), Ok(questions)) = (client, MessageChannel::new(questions)) {
                    conversation::serve(&given, client, questions, arrival).await;
                }
            });
        }
    })
}
