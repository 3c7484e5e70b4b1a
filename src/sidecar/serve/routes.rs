//! The routes out, as the engine left them when the container started: resolver, hosts files, upstream proxy.

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
use hickory_resolver::proto::xfer::Protocol;

use super::around::NamespaceWatch;
use super::message::EngineNames;
use super::proxy::Gate;
use super::refusal::Refusal;
use crate::plan::own_network::unseen_denial;
use crate::rules::{EgressRules, HostName, HostReach, Surroundings};

/// The resolver's time limit for one try, and its number of tries.
const RESOLVE_WITHIN: Duration = Duration::from_secs(3);
const RESOLVE_TRIES: usize = 2;
const DNS_PORT: u16 = 53;
pub(super) const UNKNOWN: &str = "the resolver is not known yet";
/// The most names from containers that share the network.
const MOST_FURTHER: usize = 1024;

/// The routes as the engine left them when the container started: resolver, hosts file, surroundings.
pub(super) struct UpstreamRoutes {
    pub ways: RefCell<Option<Rc<RouteTable>>>,
    around: NamespaceWatch,
}

/// The resolver, the hosts file and the upstream proxy.
pub(super) struct RouteTable {
    pub resolver: TokioResolver,
    hosts: BTreeMap<HostName, Vec<IpAddr>>,
    /// Those of containers that share the network, only for private names.
    further: RefCell<BTreeMap<HostName, Vec<IpAddr>>>,
    closed: BTreeSet<IpAddr>,
    pub proxy: Option<Gate>,
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

    /// The current addresses and networks around the container.
    pub fn surroundings(&self, ways: &RouteTable) -> Result<Rc<Surroundings>, Refusal> {
        self.around.look(&ways.closed).map_err(|error| {
            Refusal::Unreachable(format!("cannot look at the surroundings: {error}"))
        })
    }
}

impl RouteTable {
    /// The addresses of a name in the engine's hosts files.
    pub fn named(&self, name: &HostName, reach: HostReach) -> Option<Vec<IpAddr>> {
        let own = self.hosts.get(name).cloned();
        own.or_else(|| {
            let further = self.further.borrow();
            further.get(name).filter(|_| reach.is_private()).cloned()
        })
    }
}
