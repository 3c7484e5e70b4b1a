//! Bodies that are held whole until a decision: MCP messages, and answers with lists. Their total is bounded.
//!
//! Each body may hold a little without room, so none waits for a slow sender. A longer one takes room for its full
//! length at once, and returns it when its last byte is sent on. With part of the room, bodies could wait for each
//! other.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::egress::mcp::LONGEST;
use crate::egress::words::BUSY;

/// Bytes that each may hold without room. Most calls are shorter.
const ALWAYS: usize = 16 << 10;
/// The unit of room.
const UNIT: usize = 1 << 10;
/// Bytes that all together may hold beyond that: for messages, and as much for answers.
const ROOM: usize = 16 << 20;
/// Bytes sent on at a time: sending a whole message at once would copy it.
const SLICE: usize = 16 << 10;
/// The time limit for a message, or an answer with a list.
const WITHIN: Duration = Duration::from_secs(30);
/// The same for a message that has taken room.
const SOON: Duration = Duration::from_secs(5);

/// Why a body cannot be held.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HoldError {
    /// It cannot be held, for this reason.
    Unfit(String),
    /// There is no room now.
    Busy,
}

impl HoldError {
    /// The reason in words.
    pub fn into_reason(self) -> String {
        match self {
            Self::Unfit(why) => why,
            Self::Busy => BUSY.to_owned(),
        }
    }
}

/// The sender of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// A program in the container, which is near.
    Client,
    Host,
}

/// The room for one kind of body.
#[derive(Debug, Clone)]
pub(super) struct Room {
    free: Arc<Semaphore>,
    within: Duration,
    soon: Duration,
}

impl Default for Room {
    fn default() -> Self {
        Self {
            free: Arc::new(Semaphore::new(ROOM / UNIT)),
            within: WITHIN,
            soon: SOON,
        }
    }
}

/// A share of a room.
#[derive(Debug, Default)]
pub(super) struct Share(Option<OwnedSemaphorePermit>);

impl Room {
    /// Whether this many bytes may be held without room.
    pub fn has_always(length: usize) -> bool {
        length <= ALWAYS
    }

    /// Reads a whole body, without its trailers.
    pub async fn whole<B>(
        &self,
        body: &mut B,
        sender: Sender,
    ) -> Result<(Vec<u8>, Share), HoldError>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let unfit = |why: &str| HoldError::Unfit(why.to_owned());
        let length = body.size_hint().exact();
        let most = length.map_or(LONGEST, |length| {
            usize::try_from(length).unwrap_or(usize::MAX)
        });
        if most > LONGEST {
            return Err(too_long());
        }
        let mut until = Instant::now() + self.within;
        let (mut bytes, mut share) = (Vec::new(), Share::default());
        loop {
            let Ok(frame) = timeout_at(until, body.frame()).await else {
                return Err(unfit("its body took too long"));
            };
            let Some(frame) = frame else {
                return Ok((bytes, share));
            };
            let frame = frame.map_err(|_| unfit("its body ends before its end"))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let all = bytes.len() + data.len();
            if all > LONGEST {
                return Err(too_long());
            }
            if all > ALWAYS && share.0.is_none() {
                share = match timeout_at(until, self.take(most)).await {
                    Ok(share) => share,
                    Err(_) => return Err(HoldError::Busy),
                };
                if sender == Sender::Client {
                    until = until.min(Instant::now() + self.soon);
                }
                bytes.reserve_exact(most - bytes.len());
            }
            bytes.extend_from_slice(&data);
        }
    }

    /// Takes room for this many bytes.
    async fn take(&self, length: usize) -> Share {
        let units = units(length);
        Share(Arc::clone(&self.free).acquire_many_owned(units).await.ok())
    }

    /// Resizes a share to this many bytes. Only the excess goes to waiting bodies. An error if it must grow and there
    /// is no room.
    pub fn change(&self, share: Share, length: usize) -> Result<Share, HoldError> {
        if Self::has_always(length) {
            return Ok(Share::default());
        }
        let wanted = units(length) as usize;
        let have = share
            .0
            .as_ref()
            .map_or(0, OwnedSemaphorePermit::num_permits);
        let mut permit = share.0;
        if let Some(permit) = permit.as_mut().filter(|_| have > wanted) {
            drop(permit.split(have - wanted));
        }
        if have < wanted {
            let more = u32::try_from(wanted - have).unwrap_or(u32::MAX);
            let more = Arc::clone(&self.free).try_acquire_many_owned(more);
            let more = more.map_err(|_| HoldError::Busy)?;
            permit = Some(match permit {
                Some(mut permit) => {
                    permit.merge(more);
                    permit
                }
                None => more,
            });
        }
        Ok(Share(permit))
    }
}

fn units(length: usize) -> u32 {
    u32::try_from(length.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

fn too_long() -> HoldError {
    HoldError::Unfit(format!(
        "its body is longer than {LONGEST} bytes, the bound of an MCP message"
    ))
}

/// A held body that is sent on in slices, with its share of the room.
#[derive(Debug, Default)]
pub(super) struct Slices {
    rest: Bytes,
    _share: Share,
}

impl Slices {
    /// For these bytes, with their share of the room.
    pub fn new(bytes: Vec<u8>, share: Share) -> Self {
        Self {
            rest: bytes.into(),
            _share: share,
        }
    }
}

impl Body for Slices {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let length = self.rest.len().min(SLICE);
        let slice = self.rest.split_to(length);
        Poll::Ready((!slice.is_empty()).then(|| Ok(Frame::data(slice))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.rest.len()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;

    const NEVER: Duration = Duration::from_secs(3600);
    const AT_ONCE: Duration = Duration::from_millis(1);

    fn run<F: Future>(future: F) -> F::Output {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().build().unwrap();
        runtime.block_on(future)
    }

    fn room(within: Duration, soon: Duration) -> Room {
        Room {
            within,
            soon,
            ..Room::default()
        }
    }

    fn body(length: usize) -> Full<Bytes> {
        Full::from(vec![b'x'; length])
    }

    /// Held bodies, and bodies that wait for room.
    #[test]
    fn all_that_is_held_has_a_bound_and_small_messages_never_wait() {
        run(async {
            let room = room(AT_ONCE, NEVER);
            let mut held = Vec::new();
            for _ in 0..ROOM / LONGEST {
                held.push(
                    room.whole(&mut body(LONGEST), Sender::Client)
                        .await
                        .unwrap(),
                );
            }
            let long = room.whole(&mut body(ALWAYS + 1), Sender::Client).await;
            assert_eq!(long.err(), Some(HoldError::Busy));
            let (small, share) = room.whole(&mut body(ALWAYS), Sender::Client).await.unwrap();
            assert_eq!(small.len(), ALWAYS);
            assert!(share.0.is_none());
            // Until one is sent on, to its last byte and the end of its body.
            let (bytes, share) = held.pop().unwrap();
            let mut slices = Slices::new(bytes, share);
            let mut sent = 0;
            while let Some(frame) = slices.frame().await {
                let slice = frame.unwrap().into_data().unwrap();
                assert!(slice.len() <= SLICE);
                sent += slice.len();
            }
            assert_eq!(sent, LONGEST);
            assert!(room.change(Share::default(), ALWAYS + 1).is_err());
            drop(slices);
            assert!(room.whole(&mut body(LONGEST), Sender::Client).await.is_ok());
        });
    }

    /// Returned room goes to a waiting body at once.
    #[test]
    fn a_share_that_becomes_smaller_stays_room() {
        run(async {
            let room = room(NEVER, NEVER);
            let full = room.take(ROOM).await;
            let waits = std::pin::pin!(room.take(2 * ALWAYS));
            let mut waits = waits;
            let now = std::future::poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx))).await;
            assert!(now.is_pending());
            let smaller = room.change(full, ROOM - UNIT).unwrap();
            assert_eq!(smaller.0.as_ref().unwrap().num_permits(), ROOM / UNIT - 1);
            let smaller = room.change(smaller, ROOM - 2 * ALWAYS).unwrap();
            let waited = waits.await;
            assert_eq!(room.free.available_permits(), 0);
            assert!(room.change(smaller, ROOM).is_err());
            drop(waited);
            assert_eq!(room.free.available_permits(), ROOM / UNIT);
        });
    }

    /// Bodies that begin, and then send nothing more.
    #[test]
    fn a_slow_sender_keeps_room_only_for_a_short_time() {
        struct StuckBody(usize);
        impl Body for StuckBody {
            type Data = Bytes;
            type Error = Infallible;
            fn poll_frame(
                mut self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
                match std::mem::take(&mut self.0) {
                    0 => Poll::Pending,
                    length => Poll::Ready(Some(Ok(Frame::data(vec![0; length].into())))),
                }
            }
        }
        run(async {
            for (length, room) in [
                (1, room(AT_ONCE, NEVER)),
                (ALWAYS + 1, room(NEVER, AT_ONCE)),
            ] {
                let stuck = room.whole(&mut StuckBody(length), Sender::Client).await;
                assert!(matches!(stuck, Err(HoldError::Unfit(_))));
            }
            // Senders of one byte delay no other.
            let room = room(NEVER, NEVER);
            let mut stuck: Vec<StuckBody> = (0..100).map(|_| StuckBody(1)).collect();
            let all = stuck
                .iter_mut()
                .map(|body| room.whole(body, Sender::Client));
            let mut all: Vec<_> = all.map(Box::pin).collect();
            for one in &mut all {
                let now = std::future::poll_fn(|cx| Poll::Ready(one.as_mut().poll(cx))).await;
                assert!(now.is_pending());
            }
            assert!(room.whole(&mut body(LONGEST), Sender::Client).await.is_ok());
        });
    }

    #[test]
    fn a_body_that_says_it_is_longer_is_not_read() {
        run(async {
            let long = Room::default()
                .whole(&mut body(LONGEST + 1), Sender::Host)
                .await;
            assert!(matches!(long, Err(HoldError::Unfit(_))));
        });
    }
}
