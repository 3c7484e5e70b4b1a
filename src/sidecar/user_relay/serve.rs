//! The loop of the relay to the SSH agent: it accepts connections of the workload, within limits.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Mutex, MutexGuard, Semaphore};
use tokio::task::spawn_local;
use tokio::time::Instant;

use super::connection;
use super::duty::RelayFds;
use super::log::{self, RelayLog};
use super::question::{ConfirmationFailure, Questions};
use crate::egress::ssh::agent::RequestedSignature;
use crate::egress::ssh::key::ListedKeys;
use crate::policy::SshFingerprint;
use crate::sidecar::journal::Journal;
use crate::sys::event::event_loop;

/// Connections at once; more wait in the kernel. Each holds one message of the workload's, and one of the agent's.
const MOST_CONNECTIONS: usize = 32;
/// The time that a message and a signature cost: in a burst 5,000 messages or 50 signatures. The log
/// takes more new forms than that (`audit::quota`: 100 and 10 a second), so that it refuses none for the rate.
const MESSAGE: Duration = Duration::from_millis(1);
const SIGNATURE: Duration = Duration::from_millis(100);
/// The pause after a signature that the agent refused, and the longest: each refusal in a row doubles it.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What a message costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestCost {
    Message,
    Signature,
}

/// When the agent is asked for the next signature. An agent that asks its user, or waits for a touch, serves no other client
/// meanwhile, and refusals would follow one another as fast as the user clicks. Keys that sign without a question are
/// told apart: they neither wait nor end the pause of others.
#[derive(Debug, Default)]
pub(super) struct SigningTurn {
    /// Refusals since the last signature, and the end of the pause after them. Only listed keys are here.
    pauses: BTreeMap<SshFingerprint, (u32, Instant)>,
    /// Keys that the agent has signed with, and not refused since.
    signing: BTreeSet<SshFingerprint>,
}

impl SigningTurn {
    /// The end of the pause that a key waits for.
    fn next(&self, key: SshFingerprint) -> Option<Instant> {
        let waits = !self.signing.contains(&key);
        waits.then(|| self.pauses.values().map(|(_, next)| *next).max())?
    }

    /// The agent signed: the next signature with the key needs no pause.
    pub fn succeed(&mut self, key: SshFingerprint) {
        self.pauses.remove(&key);
        self.signing.insert(key);
    }

    /// The agent refused, or did not answer.
    pub fn fail(&mut self, key: SshFingerprint, now: Instant) {
        self.signing.remove(&key);
        let (refusals, next) = self.pauses.entry(key).or_insert((0, now));
        *refusals = refusals.saturating_add(1);
        *next = now + pause(*refusals);
    }
}

/// The pause after so many refusals in a row.
fn pause(refusals: u32) -> Duration {
    match refusals.checked_sub(1) {
        None => Duration::ZERO,
        // 2^6 seconds are more than the longest.
        Some(doublings) => (PAUSE * 2_u32.pow(doublings.min(6))).min(LONGEST_PAUSE),
    }
}

/// What all connections share.
pub(super) struct RelayState {
    pub keys: ListedKeys,
    pub log: Rc<RelayLog>,
    /// Held by the one signature that the agent is asked for.
    turn: Mutex<SigningTurn>,
    /// The line to the user, who confirms each signature.
    questions: Option<Mutex<Questions>>,
}

impl RelayState {
    pub fn new(keys: ListedKeys, journal: Journal) -> Self {
        Self {
            keys,
            log: Rc::new(RelayLog::new(journal)),
            turn: Mutex::default(),
            questions: None,
        }
    }

    /// The same, where the user confirms each signature.
    pub fn asking(self, questions: Questions) -> Self {
        Self {
            questions: Some(Mutex::new(questions)),
            ..self
        }
    }

    /// Asks the user about a signature, if they are to confirm it.
    pub async fn confirm(&self, signature: &RequestedSignature) -> Result<(), ConfirmationFailure> {
        match &self.questions {
            Some(questions) => questions.lock().await.confirm(signature).await,
            None => Ok(()),
        }
    }

    /// Waits as long as the rate of messages requires.
    pub async fn pace(&self, cost: RequestCost) {
        let cost = match cost {
            RequestCost::Message => MESSAGE,
            RequestCost::Signature => SIGNATURE,
        };
        self.log.pace(cost).await;
    }

    /// Waits until no other signature is asked for, and until the pause after a refused one with this key is over.
    pub async fn turn(&self, key: SshFingerprint) -> MutexGuard<'_, SigningTurn> {
        loop {
            let turn = self.turn.lock().await;
            match turn.next(key) {
                Some(next) if next > Instant::now() => {
                    drop(turn);
                    tokio::time::sleep_until(next).await;
                }
                _ => return turn,
            }
        }
    }
}

/// Serves until the init process or `wrap` has ended.
pub(super) fn run(
    fds: RelayFds,
    listener: OwnedFd,
    keys: ListedKeys,
    journal: Journal,
    questions: Option<(u32, OwnedFd)>,
) -> io::Result<()> {
    let runtime = event_loop()?;
    let relay = runtime.block_on(async move {
        let mut relay = RelayState::new(keys, journal);
        if let Some((seconds, socket)) = questions {
            let stream = UnixStream::from_std(socket.into())?;
            relay = relay.asking(Questions::new(stream, seconds));
        }
        let relay = Rc::new(relay);
        let listener = UnixListener::from_std(listener.into())?;
        spawn_local(accept(Rc::clone(&relay), listener));
        spawn_local(log::keep(Rc::clone(&relay.log)));
        fds.ended().await?;
        io::Result::Ok(relay)
    })?;
    drop(runtime);
    relay.log.close();
    Ok(())
}

async fn accept(relay: Rc<RelayState>, listener: UnixListener) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
            return;
        };
        relay.pace(RequestCost::Message).await;
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let relay = Rc::clone(&relay);
        spawn_local(async move {
            connection::serve(&relay, stream).await;
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_in_a_row_doubles_the_pause_and_a_signature_ends_it() {
        let [key, other, third] =
            [&b"one"[..], b"two", b"three"].map(crate::egress::ssh::key::fingerprint);
        let mut turn = SigningTurn::default();
        let fail = |turn: &mut SigningTurn| {
            let now = Instant::now();
            turn.fail(key, now);
            (turn.next(key).unwrap() - now).as_secs()
        };
        let pauses: Vec<u64> = (0..9).map(|_| fail(&mut turn)).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        // A key that may ask as well waits too, and one that signs without a question does not end it.
        assert_eq!(turn.next(third), turn.next(key));
        turn.succeed(other);
        assert_eq!((turn.next(other), fail(&mut turn)), (None, 60));
        turn.succeed(key);
        assert_eq!(fail(&mut turn), 1);
        assert_eq!(pause(u32::MAX), LONGEST_PAUSE);
    }
}
