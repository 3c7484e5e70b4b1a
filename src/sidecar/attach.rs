//! What the runtime hands a sidecar when the container stands: whom it watches, which namespace it gives away, and what it
//! serves.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use crate::audit::{
    Context, Event, EventDetail, LifeState, ReportedDenials, SIDECAR_LOST, Verdict, WallName, chain,
};
use crate::network::Listeners;
use crate::plan::SetIdCause;
use crate::seccomp::SetIdWords;
use crate::sidecar::SidecarError;
use crate::sidecar::attachment::{Attachment, CallsAttachment, InnerAttachment, NetnsAttachment};
use crate::sidecar::callers::Callers;
use crate::sidecar::calls::Calls;
use crate::sidecar::counts::KernelCount;
use crate::sidecar::inside::DenialFile;
use crate::sidecar::protocol::{NamespaceId, ProtocolError};
use crate::sidecar::serve::{Descriptors, ServingConfig};
use crate::sidecar::warden::WardensLog;
use crate::sidecar::watched::WatchedMount;
use crate::sys::netlink::RouteSocket;

/// Bytes of a configuration: 64 ports and some thousand rules.
const MOST_CONFIGURATION: u64 = 1 << 20;

/// The container that a ready sidecar serves.
pub(super) struct ServedContainer {
    pub init: OwnedFd,
    /// What init asks for; `None` where it is in another container's network already.
    pub inner: Option<InnerFds>,
    /// Mounts of which the first write is recorded.
    pub watched: Vec<WatchedMount>,
    /// What the kernel counts.
    pub counts: Vec<KernelCount>,
    /// The listeners of its denied calls.
    pub calls: Option<Calls>,
    /// Their log, where nothing else has one.
    pub calls_log: Option<OwnLog>,
    pub serving: Option<(ServingConfig, Descriptors)>,
}

/// The inner network namespace that init joins at `start`.
pub(super) struct InnerFds {
    pub netns: OwnedFd,
    pub sysfs: OwnedFd,
    pub cookie: u64,
}

/// The log of a sidecar that serves nothing.
pub(super) struct OwnLog {
    pub file: OwnedFd,
    /// Until the warden has it.
    warden: Option<OwnedFd>,
    pub context: Context,
    /// What the container is shown of it.
    pub inside: Option<DenialFile>,
}

impl ServedContainer {
    /// The warden's log, and the lines that it may have to write there. The warden alone has it from here on.
    pub fn take_wardens_log(&mut self) -> Option<WardensLog> {
        let (file, context) = match (&mut self.serving, &mut self.calls_log) {
            (Some((serving, descriptors)), _) => {
                (descriptors.warden.take()?, serving.context.clone())
            }
            (None, Some(own)) => (own.warden.take()?, own.context.clone()),
            (None, None) => return None,
        };
        let what = EventDetail::life(LifeState::Ended);
        let event = Event {
            cause: Some(SIDECAR_LOST.to_owned()),
            hint: Some(
                "find what ended the sidecar: the node's OOM killer, or a process of root"
                    .to_owned(),
            ),
            ..Event::new(WallName::Network, Verdict::Ended, what)
        };
        Some(WardensLog {
            file,
            lost: chain::template(&context, event),
            ended: chain::template_of_exit(&context),
        })
    }
}

/// The descriptors of an attachment, as received.
pub(super) struct ReceivedAttachment {
    init: OwnedFd,
    inner: Option<InnerFds>,
    pid_namespace: NamespaceId,
    /// The network namespace that the sidecar is to be in, where it is not in it already.
    pub place: Option<OwnedFd>,
    /// The file in which the container is shown its refusals.
    shown: Option<(ReportedDenials, OwnedFd)>,
    watched: Vec<WatchedMount>,
    counts: Vec<KernelCount>,
    /// For denied calls: the socket for listeners, and the program.
    calls: Option<[OwnedFd; 2]>,
    calls_log: Option<OwnLog>,
    set_id: Option<SetIdCause>,
    /// Configuration, log, control socket, listeners.
    serving: Vec<OwnedFd>,
}

impl ReceivedAttachment {
    /// Sorts the descriptors that came.
    pub fn new(attachment: &Attachment, fds: Vec<OwnedFd>) -> Result<Self, SidecarError> {
        let mut arrived = ReceivedFds::new(fds, attachment.descriptors());
        // Who serves connections serves those of a namespace that it was given.
        let is_misplaced = attachment.inner == InnerAttachment::No && attachment.sockets.is_some();
        if arrived.have != arrived.need || is_misplaced {
            return Err(arrived.wrong());
        }
        Ok(Self {
            init: arrived.next()?,
            inner: match attachment.inner {
                InnerAttachment::Cookie(cookie) => Some(InnerFds {
                    netns: arrived.next()?,
                    sysfs: arrived.next()?,
                    cookie,
                }),
                InnerAttachment::No => None,
            },
            pid_namespace: attachment.pid_namespace,
            place: match attachment.place {
                NetnsAttachment::Sent => Some(arrived.next()?),
                NetnsAttachment::Inherited => None,
            },
            shown: match attachment.shows {
                Some(shows) => Some((shows, arrived.next()?)),
                None => None,
            },
            watched: arrived.watched(attachment)?,
            counts: arrived.counts(attachment)?,
            calls: match attachment.calls {
                CallsAttachment::No => None,
                CallsAttachment::SharedLog | CallsAttachment::OwnLog(_) => {
                    Some([arrived.next()?, arrived.next()?])
                }
            },
            calls_log: match &attachment.calls {
                CallsAttachment::No | CallsAttachment::SharedLog => None,
                CallsAttachment::OwnLog(context) => Some(OwnLog {
                    file: arrived.next()?,
                    warden: Some(arrived.next()?),
                    context: context.clone(),
                    inside: None,
                }),
            },
            set_id: attachment.set_id.clone(),
            serving: arrived.fds.collect(),
        })
    }

    /// Reads the configuration and opens what must be opened in the engine's namespace, while there is the right to.
    /// `node` is a routing socket of the node's network, `cookie` that network's.
    pub fn prepare(
        self,
        node: Option<RouteSocket>,
        node_cookie: u64,
    ) -> Result<ServedContainer, SidecarError> {
        let Self {
            init,
            inner,
            pid_namespace,
            place: _,
            shown,
            watched,
            counts,
            calls,
            calls_log,
            set_id,
            serving,
        } = self;
        // One writer for it: where the network is served, the log of that.
        let mut inside = shown.map(|(shows, file)| DenialFile::new(shows, file));
        let calls_log = calls_log.map(|log| OwnLog {
            inside: inside.take(),
            ..log
        });
        let callers = Callers {
            // Whoever runs this program on the node: this process itself, until it becomes nobody.
            uid: rustix::process::getuid().as_raw(),
            cookie: node_cookie,
            pid_namespace,
        };
        let calls = match calls {
            Some([listening, program]) => {
                let calls = Calls::new(listening, program.as_fd(), callers, set_id.map(in_words));
                Some(calls.map_err(SidecarError::step("prepare to answer denied calls"))?)
            }
            None => None,
        };
        let serving = node
            .map(|node| prepare_serving(serving, node, callers, inside))
            .transpose()?;
        Ok(ServedContainer {
            init,
            inner,
            watched,
            counts,
            calls,
            calls_log,
            serving,
        })
    }
}

fn in_words(cause: SetIdCause) -> SetIdWords {
    SetIdWords {
        why: cause.to_string(),
        hint: cause.cure(),
    }
}

/// Received descriptors, taken in their order.
struct ReceivedFds {
    fds: std::vec::IntoIter<OwnedFd>,
    have: usize,
    need: usize,
}

impl ReceivedFds {
    fn new(fds: Vec<OwnedFd>, need: usize) -> Self {
        Self {
            have: fds.len(),
            fds: fds.into_iter(),
            need,
        }
    }

    fn next(&mut self) -> Result<OwnedFd, SidecarError> {
        self.fds.next().ok_or_else(|| self.wrong())
    }

    fn watched(&mut self, attachment: &Attachment) -> Result<Vec<WatchedMount>, SidecarError> {
        let places = attachment.watched.iter().cloned();
        places
            .map(|place| {
                let writes = self.next()?;
                Ok(WatchedMount { place, writes })
            })
            .collect()
    }

    fn counts(&mut self, attachment: &Attachment) -> Result<Vec<KernelCount>, SidecarError> {
        let all = attachment.counts.iter();
        all.map(|of| {
            let files = (0..of.files()).map(|_| self.next());
            Ok(KernelCount {
                of: *of,
                files: files.collect::<Result<_, _>>()?,
            })
        })
        .collect()
    }

    fn wrong(&self) -> SidecarError {
        SidecarError::Protocol(ProtocolError::Descriptors {
            peer: "runtime",
            need: self.need,
            have: self.have,
        })
    }
}

/// A routing socket of the namespace that this is in, which hears of changes.
pub(super) fn routes(step: &'static str) -> Result<RouteSocket, SidecarError> {
    RouteSocket::open()
        .and_then(|mut route| route.watch().map(|()| route))
        .map_err(SidecarError::step(step))
}

fn prepare_serving(
    fds: Vec<OwnedFd>,
    node: RouteSocket,
    callers: Callers,
    inside: Option<DenialFile>,
) -> Result<(ServingConfig, Descriptors), SidecarError> {
    let mut arrived = ReceivedFds::new(fds, 3);
    let (config, journal, control) = (arrived.next()?, arrived.next()?, arrived.next()?);
    let serving = read_configuration(config)?;
    let optional = [serving.outside, serving.warden];
    arrived.need += optional.map(usize::from).iter().sum::<usize>() + serving.sockets();
    let outside = match serving.outside {
        true => Some(arrived.next()?),
        false => None,
    };
    let warden = match serving.warden {
        true => Some(arrived.next()?),
        false => None,
    };
    if arrived.fds.len() != serving.sockets() {
        return Err(arrived.wrong());
    }
    let listeners = match &serving.ports {
        Some(_) => {
            let own = arrived.fds.by_ref().take(serving.listeners());
            let listeners = Listeners::from_fds(serving.stub(), own);
            Some(listeners.ok_or_else(|| arrived.wrong())?)
        }
        None => None,
    };
    let inbound = listen_inbound(&serving)?;
    let engine = routes("open a routing socket of the engine's network")?;
    let descriptors = Descriptors {
        inbound,
        callers,
        listeners,
        dialers: arrived.fds.collect(),
        journal,
        inside,
        outside,
        warden,
        control,
        routes: [engine, node],
        reader: None,
    };
    Ok((serving, descriptors))
}

fn read_configuration(config: OwnedFd) -> Result<ServingConfig, SidecarError> {
    let mut text = String::new();
    File::from(config)
        .take(MOST_CONFIGURATION)
        .read_to_string(&mut text)
        .map_err(SidecarError::Configuration)?;
    serde_json::from_str(&text).map_err(|error| SidecarError::Configuration(error.into()))
}

/// Listens in the engine's network on the ports that lead in.
fn listen_inbound(serving: &ServingConfig) -> Result<Vec<(u16, OwnedFd)>, SidecarError> {
    let mut all = Vec::new();
    for port in &serving.inbound {
        let port = *port;
        match serving.published.get(&port) {
            None => {
                let listener = crate::network::listen_everywhere(port);
                let listener = listener.map_err(|source| SidecarError::Inbound { port, source })?;
                all.push((port, listener));
            }
            Some(addresses) => {
                let listeners = listen_published(addresses)?;
                all.extend(listeners.into_iter().map(|listener| (port, listener)));
            }
        }
    }
    Ok(all)
}

/// Listens at all of these addresses. A node without IPv6 has no `::1`, which is left out beside another address.
fn listen_published(addresses: &BTreeSet<SocketAddr>) -> Result<Vec<OwnedFd>, SidecarError> {
    let mut listeners = Vec::new();
    for address in addresses {
        let is_one_of_several = addresses.len() > 1 && address.is_ipv6();
        match crate::network::listen_at(*address) {
            Ok(listener) => listeners.push(listener),
            Err(error) if is_one_of_several && is_without_ipv6(&error) => {}
            Err(source) => {
                return Err(SidecarError::Published {
                    address: *address,
                    source,
                });
            }
        }
    }
    Ok(listeners)
}

fn is_without_ipv6(error: &std::io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EAFNOSUPPORT | libc::EADDRNOTAVAIL)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sidecar::protocol::own_pid_namespace;

    fn arrives(inner: InnerAttachment, sockets: Option<usize>, count: usize) -> bool {
        let own = own_pid_namespace().unwrap();
        let attachment = Attachment {
            inner,
            place: NetnsAttachment::Inherited,
            pid_namespace: NamespaceId::of(own.as_fd()).unwrap(),
            shows: None,
            watched: Vec::new(),
            counts: Vec::new(),
            calls: CallsAttachment::No,
            set_id: None,
            sockets,
        };
        let fds = (0..count).map(|_| own.try_clone().unwrap()).collect();
        ReceivedAttachment::new(&attachment, fds).is_ok()
    }

    #[test]
    fn who_has_no_namespace_to_give_away_serves_nobody() {
        assert!(arrives(InnerAttachment::Cookie(1), Some(0), 6));
        assert!(arrives(InnerAttachment::Cookie(1), None, 3));
        assert!(arrives(InnerAttachment::No, None, 1));
        assert!(!arrives(InnerAttachment::No, Some(0), 4));
        assert!(
            !arrives(InnerAttachment::No, None, 3),
            "too many descriptors"
        );
    }
}
