//! The way out: the engine's resolver finds the addresses of a name, each is vetted, and one that passes is dialled.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    NameServerConfig, NameServerConfigGroup, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::name_server::TokioConnectionProvider;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::proto::xfer::Protocol;
use tokio::net::TcpStream;

use super::around::NamespaceWatch;
use super::control::EngineNames;
use super::live::Share;
use super::proxy::{Gate, ProxyTarget};
use super::refusal::Refusal;
use super::secure::Server;
use crate::egress::address::vet;
use crate::egress::{AddressRefusal, Decision, Denial, EgressRules, Surroundings};
use crate::plan::network::unseen_denial;
use crate::policy::{Host, HostName, HostReach};

/// The time limit for one address to accept.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// The most addresses of a name that are tried.
const TRIED: usize = 4;
/// The resolver's time limit for one try, and its number of tries.
const RESOLVE_WITHIN: Duration = Duration::from_secs(3);
const RESOLVE_TRIES: usize = 2;
const DNS_PORT: u16 = 53;
const UNKNOWN: &str = "the resolver is not known yet";
/// The most names from containers that share the network.
const MOST_FURTHER: usize = 1024;

/// The routes as the engine left them when the container started: resolver, hosts file, surroundings.
pub(super) struct UpstreamRoutes {
    ways: RefCell<Option<Rc<RouteTable>>>,
    around: NamespaceWatch,
}

/// What to dial, and under which rules.
pub(super) struct Dial<'a> {
    pub host: &'a Host,
    pub port: u16,
    /// How far the rule lets the name lead.
    pub reach: HostReach,
    /// The rules at the moment of dialling.
    pub rules: &'a RefCell<EgressRules>,
    /// Receives the dialled address.
    pub share: &'a Share<'a>,
}

impl Dial<'_> {
    /// The names to resolve: those of the rule that allows this one, without the denied ones.
    fn asked_for(&self, name: &HostName) -> Vec<HostName> {
        let rules = self.rules.borrow();
        let mut asked = match rules.decide(self.host, self.port) {
            Decision::Allow(rule) => rules.meant_by(rule, name),
            Decision::Deny(_) => return vec![name.clone()],
        };
        asked.retain(|name| rules.denies(&Host::Name(name.clone()), self.port).is_none());
        asked
    }
}

/// The resolver, the hosts file and the upstream proxy.
struct RouteTable {
    resolver: TokioResolver,
    hosts: BTreeMap<HostName, Vec<IpAddr>>,
    /// Those of containers that share the network, only for private names.
    further: RefCell<BTreeMap<HostName, Vec<IpAddr>>>,
    closed: BTreeSet<IpAddr>,
    proxy: Option<Gate>,
}

/// One route to a host.
enum HostRoute<'a> {
    /// To an address that was vetted, or that a rule names.
    Direct(IpAddr),
    /// Through the node's proxy.
    Through(&'a Gate, ProxyTarget),
}

/// A connection to one address, or why there is none.
pub(super) async fn connect(to: SocketAddr) -> Result<TcpStream, String> {
    match tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect(to)).await {
        Ok(Ok(stream)) => {
            // Small requests leave at once. If it fails, they leave a little later.
            let _no_delay = stream.set_nodelay(true);
            Ok(stream)
        }
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it did not answer in time".to_owned()),
    }
}

impl UpstreamRoutes {
    pub fn new(around: NamespaceWatch) -> Self {
        Self {
            ways: RefCell::new(None),
            around,
        }
    }

    /// Why these rules cannot be enforced, if so: they deny addresses, but a proxy resolves the names, so that their
    /// addresses stay unseen.
    pub fn cannot_hold(&self, rules: &EgressRules) -> Option<String> {
        let ways = self.ways.borrow();
        let ways = ways.as_ref()?;
        let proxy = ways.proxy.as_ref()?;
        let why = unseen_denial(rules).filter(|_| proxy.sends_names());
        why.map(|why| format!("network.deny cannot be kept: {why}"))
    }

    /// Takes the engine's settings for names; once, before the container's program runs.
    pub fn take_names(&self, names: EngineNames) -> Result<(), String> {
        if self.ways.borrow().is_some() {
            return Err("the engine's names are known already".to_owned());
        }
        let EngineNames {
            nameservers,
            // It is in the rules, because it decides their meaning.
            search: _,
            hosts,
            closed,
            proxy,
        } = names;
        let mut servers = NameServerConfigGroup::new();
        for address in nameservers {
            for protocol in [Protocol::Udp, Protocol::Tcp] {
                servers.push(NameServerConfig::new(
                    SocketAddr::new(address, DNS_PORT),
                    protocol,
                ));
            }
        }
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let mut options = ResolverOpts::default();
        options.use_hosts_file = ResolveHosts::Never;
        options.timeout = RESOLVE_WITHIN;
        options.attempts = RESOLVE_TRIES;
        options.cache_size = 256;
        let resolver =
            TokioResolver::builder_with_config(config, TokioConnectionProvider::default())
                .with_options(options)
                .build();
        let mut by_name: BTreeMap<HostName, Vec<IpAddr>> = BTreeMap::new();
        for (name, address) in hosts {
            by_name.entry(name).or_default().push(address);
        }
        let ways = RouteTable {
            resolver,
            hosts: by_name,
            further: RefCell::default(),
            closed,
            proxy: proxy.map(Gate::new).transpose()?,
        };
        *self.ways.borrow_mut() = Some(Rc::new(ways));
        Ok(())
    }

    /// Adds names from the hosts file of a container that shares the network. They never change the address of a name
    /// that another container has, or of a public name.
    pub fn add_hosts(&self, hosts: Vec<(HostName, IpAddr)>) -> Result<(), String> {
        let Some(ways) = self.ways.borrow().clone() else {
            return Err(UNKNOWN.to_owned());
        };
        let mut further = ways.further.borrow_mut();
        let mut new: BTreeMap<HostName, Vec<IpAddr>> = BTreeMap::new();
        for (name, address) in hosts {
            if !further.contains_key(&name) {
                new.entry(name).or_default().push(address);
            }
        }
        if further.len() + new.len() > MOST_FURTHER {
            return Err(format!(
                "its containers' hosts files have more than {MOST_FURTHER} names"
            ));
        }
        further.extend(new);
        Ok(())
    }

    /// Connects to a host that the rules allow.
    pub async fn dial(&self, dial: &Dial<'_>) -> Result<Server, Refusal> {
        let Dial {
            host, port, share, ..
        } = *dial;
        let Some(ways) = self.ways.borrow().clone() else {
            return Err(Refusal::Unreachable(UNKNOWN.to_owned()));
        };
        let mut last = None;
        for way in self.ways(&ways, dial).await? {
            if let Some(address) = way.address() {
                // It has passed, but much may have changed while the previous address did not answer.
                if last.is_some() {
                    let around = self.surroundings(&ways)?;
                    judge(dial, address, &around)?;
                }
                // From here on, a denial that covers the address ends the connection.
                share.leads_to(address);
            }
            let dialled = match way {
                HostRoute::Direct(address) => connect(SocketAddr::new(address, port))
                    .await
                    .map(Server::Plain)
                    .map_err(Refusal::Unreachable),
                HostRoute::Through(proxy, target) => Box::pin(proxy.tunnel(&target, port)).await,
            };
            match dialled {
                Ok(stream) => return Ok(stream),
                Err(refusal) => last = Some(refusal.to_string()),
            }
        }
        Err(Refusal::Unreachable(format!(
            "cannot connect to {host}, port {port}: {}",
            last.unwrap_or_else(|| "it has no address".to_owned())
        )))
    }

    /// The routes to a host, at most [`TRIED`].
    async fn ways<'a>(
        &self,
        ways: &'a RouteTable,
        dial: &Dial<'_>,
    ) -> Result<Vec<HostRoute<'a>>, Refusal> {
        let addresses = match (dial.host, &ways.proxy) {
            // Names that may be private are resolved on this side of the proxy.
            (Host::Name(name), Some(proxy))
                if proxy.sends_names() && dial.reach == HostReach::Public =>
            {
                dial.share.ask_for(name)?;
                return Ok(vec![HostRoute::Through(
                    proxy,
                    ProxyTarget::Name(name.clone()),
                )]);
            }
            (Host::Name(name), _) => self.resolve(ways, name, dial).await?,
            // A rule names the address itself: there is nothing to vet.
            (Host::Address(address), _) => vec![*address],
        };
        let addresses = addresses.into_iter().take(TRIED);
        let Some(proxy) = &ways.proxy else {
            return Ok(addresses.map(HostRoute::Direct).collect());
        };
        let around = self.surroundings(ways)?;
        Ok(addresses
            .map(|address| match vet(address, HostReach::Public, &around) {
                Ok(address) => HostRoute::Through(proxy, ProxyTarget::Address(address)),
                // Allowed as internal or by its address, and not on the internet: it is not reached through the proxy.
                Err(_) => HostRoute::Direct(address),
            })
            .collect())
    }

    async fn resolve(
        &self,
        ways: &RouteTable,
        name: &HostName,
        dial: &Dial<'_>,
    ) -> Result<Vec<IpAddr>, Refusal> {
        let found = match ways.named(name, dial.reach) {
            Some(addresses) => addresses,
            // Boxed, like everything large that few connections need: the futures of the others stay small.
            None => {
                let asked = dial.asked_for(name);
                Box::pin(ways.look_up(name, &asked, dial.share)).await?
            }
        };
        let around = self.surroundings(ways)?;
        let mut refused = None;
        let mut good = Vec::new();
        for address in found {
            match judge(dial, address, &around) {
                Ok(()) => good.push(address),
                Err(refusal) => refused = Some(refusal),
            }
        }
        match (good.is_empty(), refused) {
            (false, _) => Ok(good),
            (true, Some(refusal)) => Err(refusal),
            (true, None) => Err(Refusal::Unreachable(format!("{name} has no address"))),
        }
    }

    fn surroundings(&self, ways: &RouteTable) -> Result<Rc<Surroundings>, Refusal> {
        self.around.look(&ways.closed).map_err(|error| {
            Refusal::Unreachable(format!("cannot look at the surroundings: {error}"))
        })
    }
}

/// Whether an address may be dialled, by the current rules and surroundings.
fn judge(dial: &Dial<'_>, address: IpAddr, around: &Surroundings) -> Result<(), Refusal> {
    let Dial {
        host,
        port,
        reach,
        rules,
        share,
    } = dial;
    let rules = rules.borrow();
    let refused = |why: AddressRefusal| Refusal::Address(address, why);
    match host {
        Host::Name(_) => {
            let vetted = rules.vet(address, *port, *reach, around);
            vetted.map(drop).map_err(refused)
        }
        // A rule names it, which is enough; a denial of it may have come since.
        Host::Address(_) => match rules.decide(host, *port) {
            Decision::Allow(_) => Ok(()),
            Decision::Deny(Denial::OnlyRequests) if share.carries_requests() => Ok(()),
            Decision::Deny(denial) => Err(Refusal::Denied(denial)),
        },
    }
}

impl HostRoute<'_> {
    /// The vetted address, if there is one.
    fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Direct(address) | Self::Through(_, ProxyTarget::Address(address)) => {
                Some(*address)
            }
            Self::Through(_, ProxyTarget::Name(_)) => None,
        }
    }
}

impl RouteTable {
    /// The addresses of a name in the engine's hosts files.
    fn named(&self, name: &HostName, reach: HostReach) -> Option<Vec<IpAddr>> {
        let own = self.hosts.get(name).cloned();
        own.or_else(|| {
            let further = self.further.borrow();
            further.get(name).filter(|_| reach.is_private()).cloned()
        })
    }

    /// The addresses of the first of these names that has any.
    async fn look_up(
        &self,
        name: &HostName,
        asked: &[HostName],
        share: &Share<'_>,
    ) -> Result<Vec<IpAddr>, Refusal> {
        let bad = |error: &dyn std::fmt::Display| {
            Refusal::Unreachable(format!("{name} does not resolve: {error}"))
        };
        let mut candidates = Vec::new();
        for name in asked {
            let mut complete = Name::from_ascii(name.as_str()).map_err(|e| bad(&e))?;
            complete.set_fqdn(true);
            candidates.push((name, complete));
        }
        let mut last = None;
        for (name, candidate) in candidates {
            share.ask_for(name)?;
            match self.resolver.lookup_ip(candidate).await {
                Ok(found) => return Ok(found.iter().collect()),
                Err(error) => last = Some(error),
            }
        }
        Err(match last {
            Some(error) => bad(&error),
            None => bad(&"no name to ask for"),
        })
    }
}
