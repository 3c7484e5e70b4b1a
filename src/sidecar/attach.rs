//! What a sidecar receives once the container exists: init to watch, the namespace to give away, and what to serve.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

use crate::audit::{
    Context, Event, EventDetail, KnownCause, LifeState, ReportedDenials, Verdict, WallName, chain,
};
use crate::network::Listeners;
use crate::plan::CallReasons;
use crate::policy::Tool;
use crate::seccomp::{FilterWords, SetIdWords};
use crate::sidecar::attachment::{Attachment, FdTag};
use crate::sidecar::callers::Callers;
use crate::sidecar::calls::Calls;
use crate::sidecar::counts::{CountKind, KernelCount};
use crate::sidecar::error::SidecarError;
use crate::sidecar::inside::DenialFile;
use crate::sidecar::loss;
use crate::sidecar::protocol::ProtocolError;
use crate::sidecar::serve::{Descriptors, ServingConfig};
use crate::sidecar::warden::WardensLog;
use crate::sidecar::watched::WatchedMount;
use crate::sys::netlink::RouteSocket;

/// The longest configuration: enough for 64 ports and several thousand rules.
const MOST_CONFIGURATION: u64 = 1 << 20;

/// The container that a ready sidecar serves.
pub(super) struct ServedContainer {
    pub init: OwnedFd,
    /// What init asks for; `None` if it is already in another container's network.
    pub inner: Option<InnerFds>,
    /// Mounts whose first write is recorded.
    pub watched: Vec<WatchedMount>,
    /// The kernel's counters.
    pub counts: Vec<KernelCount>,
    /// The listeners of its denied calls.
    pub calls: Option<Calls>,
    /// Their log, if the network is not served.
    pub calls_log: Option<OwnLog>,
    pub serving: Option<(ServingConfig, Descriptors)>,
}

/// The inner network namespace that init joins at `start`.
pub(super) struct InnerFds {
    pub netns: OwnedFd,
    pub sysfs: OwnedFd,
    pub cookie: u64,
}

/// The log of a sidecar that does not serve the network.
pub(super) struct OwnLog {
    pub file: OwnedFd,
    /// `None` after the warden took it.
    warden: Option<OwnedFd>,
    pub context: Context,
    /// The file that shows the container its denials.
    pub inside: Option<DenialFile>,
}

impl ServedContainer {
    /// The warden's log, and the lines that it may have to write there. From here on only the warden has it.
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
            cause: Some(KnownCause::SidecarLost.into()),
            hint: Some(loss::FIND_THE_CAUSE.into()),
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
#[derive(Default)]
pub(super) struct ReceivedFds {
    init: Option<OwnedFd>,
    inner: Option<(OwnedFd, u64)>,
    sysfs: Option<OwnedFd>,
    /// The network namespace to enter, if the sidecar is not already in it.
    pub outer: Option<OwnedFd>,
    denials: Option<(ReportedDenials, OwnedFd)>,
    watched: Vec<WatchedMount>,
    counts: Vec<KernelCount>,
    calls: Option<OwnedFd>,
    filter: Option<OwnedFd>,
    calls_log: Option<(OwnedFd, Context)>,
    wardens_log: Option<OwnedFd>,
    config: Option<OwnedFd>,
    journal: Option<OwnedFd>,
    control: Option<OwnedFd>,
    outside: Option<OwnedFd>,
    listeners: Vec<OwnedFd>,
    dialers: Vec<OwnedFd>,
    taps: Vec<OwnedFd>,
}

/// The error for a missing part of an attachment.
fn missing() -> SidecarError {
    SidecarError::Protocol(ProtocolError::Missing { peer: "runtime" })
}

impl ReceivedFds {
    /// Sorts the descriptors that came.
    pub fn new(tags: &[FdTag], fds: Vec<OwnedFd>) -> Result<Self, SidecarError> {
        if tags.len() != fds.len() {
            return Err(SidecarError::Protocol(ProtocolError::Descriptors {
                peer: "runtime",
                need: tags.len(),
                have: fds.len(),
            }));
        }
        let mut all = Self::default();
        for (tag, fd) in tags.iter().cloned().zip(fds) {
            match tag {
                FdTag::Init => all.init = Some(fd),
                FdTag::Inner(cookie) => all.inner = Some((fd, cookie)),
                FdTag::Sysfs => all.sysfs = Some(fd),
                FdTag::Outer => all.outer = Some(fd),
                FdTag::Denials(shows) => all.denials = Some((shows, fd)),
                FdTag::Watched(place) => all.watched.push(WatchedMount { place, writes: fd }),
                FdTag::Count(of) => all.count(of, fd),
                FdTag::Calls => all.calls = Some(fd),
                FdTag::Filter => all.filter = Some(fd),
                FdTag::CallsLog(context) => all.calls_log = Some((fd, context)),
                FdTag::WardensLog => all.wardens_log = Some(fd),
                FdTag::Config => all.config = Some(fd),
                FdTag::Journal => all.journal = Some(fd),
                FdTag::Control => all.control = Some(fd),
                FdTag::Outside => all.outside = Some(fd),
                FdTag::Listener => all.listeners.push(fd),
                FdTag::Dialer => all.dialers.push(fd),
                FdTag::Tap => all.taps.push(fd),
            }
        }
        // A serving sidecar needs an inner namespace.
        let is_misplaced = all.inner.is_none() && all.config.is_some();
        match all.init.is_none() || is_misplaced {
            true => Err(missing()),
            false => Ok(all),
        }
    }

    fn count(&mut self, of: CountKind, file: OwnedFd) {
        match self.counts.last_mut() {
            Some(last) if last.of == of && last.files.len() < of.files() => last.files.push(file),
            _ => self.counts.push(KernelCount {
                of,
                files: vec![file],
            }),
        }
    }

    /// Reads the configuration and opens sockets in the engine's namespace, while it still has the right. `node` is a
    /// routing socket of the node's network, `node_cookie` that network's cookie.
    pub fn prepare(
        mut self,
        attachment: Attachment,
        node: Option<RouteSocket>,
        node_cookie: u64,
    ) -> Result<ServedContainer, SidecarError> {
        let callers = Callers {
            // The user that runs this program on the node: still ours, until the sidecar changes its ids.
            uid: rustix::process::getuid().as_raw(),
            cookie: node_cookie,
            pid_namespace: attachment.pid_namespace,
        };
        // It has one writer: if the network is served, that log.
        let denials = self.denials.take();
        let mut inside = denials.map(|(shows, file)| DenialFile::new(shows, file));
        let calls_log = self.calls_log.take().map(|(file, context)| OwnLog {
            file,
            warden: self.wardens_log.take(),
            context,
            inside: inside.take(),
        });
        let served = node.map(|node| self.serving(node, callers, inside));
        let serving = served.transpose()?;
        let context = serving.as_ref().map(|(serving, _)| &serving.context);
        let context = context.or(calls_log.as_ref().map(|log| &log.context));
        let tool = context.map_or(Tool::default(), Context::tool);
        let calls = match self.calls.take() {
            Some(listening) => {
                let filter = self.filter.take().ok_or_else(missing)?;
                let words = in_words(attachment.reasons, tool);
                let calls = Calls::new(listening, filter.as_fd(), callers, words);
                Some(calls.map_err(SidecarError::step("prepare to answer denied calls"))?)
            }
            None => None,
        };
        let inner = match self.inner.take() {
            Some((netns, cookie)) => Some(InnerFds {
                netns,
                sysfs: self.sysfs.take().ok_or_else(missing)?,
                cookie,
            }),
            None => None,
        };
        Ok(ServedContainer {
            init: self.init.ok_or_else(missing)?,
            inner,
            watched: self.watched,
            counts: self.counts,
            calls,
            calls_log,
            serving,
        })
    }

    /// The configuration and descriptors to serve the network.
    fn serving(
        &mut self,
        node: RouteSocket,
        callers: Callers,
        inside: Option<DenialFile>,
    ) -> Result<(ServingConfig, Descriptors), SidecarError> {
        let serving = read_configuration(self.config.take().ok_or_else(missing)?)?;
        let (listeners, dialers) = (&mut self.listeners, &mut self.dialers);
        if listeners.len() + dialers.len() != serving.sockets() {
            return Err(missing());
        }
        let listeners = match &serving.ports {
            Some(_) => {
                let listeners = Listeners::from_fds(serving.stub(), listeners.drain(..));
                Some(listeners.ok_or_else(missing)?)
            }
            None => None,
        };
        let inbound = listen_inbound(&serving)?;
        let engine = routes("open a routing socket of the engine's network")?;
        let descriptors = Descriptors {
            inbound,
            callers,
            listeners,
            dialers: std::mem::take(dialers),
            taps: std::mem::take(&mut self.taps),
            journal: self.journal.take().ok_or_else(missing)?,
            inside,
            outside: self.outside.take(),
            warden: self.wardens_log.take(),
            control: self.control.take().ok_or_else(missing)?,
            routes: [engine, node],
            reader: None,
        };
        Ok((serving, descriptors))
    }
}

fn in_words(reasons: CallReasons, tool: Tool) -> FilterWords {
    FilterWords {
        set_id: reasons.set_id.map(|cause| SetIdWords {
            why: cause.to_string(),
            hint: cause.cure(tool),
        }),
        allowed: reasons.allowed,
        without_profile: tool.without_profile().to_owned(),
    }
}

/// A routing socket of the current namespace, which hears of changes.
pub(super) fn routes(step: &'static str) -> Result<RouteSocket, SidecarError> {
    RouteSocket::open()
        .and_then(|mut route| route.watch().map(|()| route))
        .map_err(SidecarError::step(step))
}

fn read_configuration(config: OwnedFd) -> Result<ServingConfig, SidecarError> {
    let mut text = String::new();
    File::from(config)
        .take(MOST_CONFIGURATION)
        .read_to_string(&mut text)
        .map_err(SidecarError::Configuration)?;
    serde_json::from_str(&text).map_err(|error| SidecarError::Configuration(error.into()))
}

/// Listens in the engine's network on the inbound ports.
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

/// Listens at all of these addresses. A node without IPv6 has no `::1`, which is skipped if there are other addresses.
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
    use crate::audit::CountedLimit;
    use crate::sidecar::protocol::own_pid_namespace;

    fn received(tags: &[FdTag], count: usize) -> Result<ReceivedFds, SidecarError> {
        let own = own_pid_namespace().unwrap();
        let fds = (0..count).map(|_| own.try_clone().unwrap()).collect();
        ReceivedFds::new(tags, fds)
    }

    #[test]
    fn a_sidecar_without_a_namespace_to_give_away_serves_nothing() {
        use FdTag::{Config, Control, Init, Inner, Journal, Sysfs};
        let arrives = |tags: &[FdTag], count| received(tags, count).is_ok();
        let served = [Init, Inner(1), Sysfs, Config, Journal, Control];
        assert!(arrives(&served, 6));
        assert!(arrives(&[Init, Inner(1), Sysfs], 3));
        assert!(arrives(&[Init], 1));
        assert!(!arrives(&[Init, Config, Journal, Control], 4));
        assert!(!arrives(&[Inner(1), Sysfs], 2), "no init");
        assert!(!arrives(&[Init], 3), "too many descriptors");
        assert!(!arrives(&served, 5), "too few");
    }

    #[test]
    fn a_count_of_several_files_has_all_of_them() {
        let of = |limit| FdTag::Count(CountKind::Limit(limit, None));
        let (memory, pids) = (of(CountedLimit::Memory), of(CountedLimit::Pids));
        let tags = [
            FdTag::Init,
            FdTag::Count(CountKind::Unrouted),
            memory.clone(),
            memory,
            pids.clone(),
            pids,
        ];
        let counts = received(&tags, 6).unwrap().counts;
        let files: Vec<usize> = counts.iter().map(|count| count.files.len()).collect();
        assert_eq!(files, [1, 2, 2]);
    }
}
