//! The standard descriptors of an exec process.

use std::path::PathBuf;

use oci_spec::runtime::Process;

use super::error::ExecError;
use super::target::ExecTarget;
use crate::cli;
use crate::enforce::leader::Leader;
use crate::enforce::program::ContainerProgram;
use crate::runtime::error::RuntimeError;
use crate::runtime::foreground::relay::{self, CallersTerminals, Relay, Stdio};
use crate::runtime::foreground::tty;
use crate::runtime::launch::{RunRetention, Streams};
use crate::runtime::state::store::ContainerPaths;

/// What the process gets in place of the caller's descriptors, and what is relayed between them.
pub(super) struct ExecStreams {
    /// For its terminal, if no console socket was given.
    pub(super) listener: Option<tty::TerminalListener>,
    /// For its pipes, if it has no terminal.
    pub(super) relay: Option<Relay>,
    console: Option<PathBuf>,
    stdio: Stdio,
}

impl ExecStreams {
    /// Opens them.
    pub(super) fn new(
        place: &ContainerPaths,
        args: &cli::Exec,
        target: &ExecTarget,
        process: &Process,
    ) -> Result<Self, RuntimeError> {
        let terminal = process.terminal().unwrap_or(false);
        let listener = match (terminal, &args.console_socket, args.detach) {
            (true, None, true) => return Err(ExecError::DetachedTerminal.into()),
            (false, Some(_), _) => return Err(ExecError::SocketWithoutTerminal.into()),
            (true, None, false) => Some(tty::TerminalListener::new(&place.dir())?),
            _ => None,
        };
        let own = || listener.as_ref().map(|l| l.path().to_owned());
        let console = args.console_socket.clone().or_else(own);
        let (stdio, relay) = match (terminal, args.detach) {
            (false, false) => {
                let (stdio, relay) = relay::pipes(CallersTerminals::Replaced)?;
                (stdio, Some(relay))
            }
            (false, true) if target.record.plan().is_some() => {
                (relay::detached("`exec --detach`", Stdio::default())?, None)
            }
            _ => Default::default(),
        };
        Ok(Self {
            listener,
            relay,
            console,
            stdio,
        })
    }

    /// For the process, once.
    pub(super) fn streams(&mut self) -> Streams<'_> {
        Streams {
            console: self.console.as_deref(),
            stdio: std::mem::take(&mut self.stdio),
            relayed: self.listener.is_some(),
            leader: Leader::Program,
            program: ContainerProgram::Named,
            leaves: RunRetention::Run,
        }
    }
}
