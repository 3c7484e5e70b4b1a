//! The way out: the engine's resolver finds the addresses of a name, each is vetted, and one that passes is dialled.

use std::net::{IpAddr, SocketAddr};

use hickory_resolver::proto::rr::Name;

use super::proxy::{Gate, ProxyTarget};
use super::refusal::Refusal;
use super::routes::{RouteTable, UNKNOWN, UpstreamRoutes};
use super::secure::Server;
use super::share::Share;
use super::stream::connect;
use super::wall::Wall;
use crate::rules::address::vet;
use crate::rules::{AddressRefusal, Decision, Denial, Host, HostName, HostReach, Surroundings};

/// The most addresses of a name that are tried.
const TRIED: usize = 4;

/// What to dial, and under which rules.
pub(super) struct Dial<'a> {
    pub host: &'a Host,
    pub port: u16,
    /// How far the rule lets the name lead.
    pub reach: HostReach,
    /// It has the rules at the moment of dialling.
    pub wall: &'a Wall,
    /// Receives the dialled address.
    pub share: &'a Share<'a>,
}

impl Dial<'_> {
    /// The names to resolve: those of the rule that allows this one, without the denied ones.
    fn asked_for(&self, name: &HostName) -> Vec<HostName> {
        let rules = self.wall.rules();
        let mut asked = match rules.decide(self.host, self.port) {
            Decision::Allow(rule) => rules.meant_by(rule, name),
            Decision::Deny(_) => return vec![name.clone()],
        };
        asked.retain(|name| rules.denies(&Host::Name(name.clone()), self.port).is_none());
        asked
    }
}

/// One route to a host.
enum HostRoute<'a> {
    /// To an address that was vetted, or that a rule names.
    Direct(IpAddr),
    /// Through the upstream proxy.
    Through(&'a Gate, ProxyTarget),
}

impl UpstreamRoutes {
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
        let proxy = ways.proxy.as_ref();
        let proxy = proxy.filter(|proxy| !proxy.leaves_out(dial.host));
        let addresses = match (dial.host, proxy) {
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
        let Some(proxy) = proxy else {
            return Ok(addresses.map(HostRoute::Direct).collect());
        };
        let around = self.surroundings(ways)?;
        Ok(addresses
            .map(|address| match vet(address, HostReach::Public, &around) {
                Ok(address) if !proxy.leaves_out(&Host::Address(address)) => {
                    HostRoute::Through(proxy, ProxyTarget::Address(address))
                }
                // An exception of the proxy's. Or allowed as internal or by its address, and not on the internet.
                Ok(_) | Err(_) => HostRoute::Direct(address),
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
}

/// Whether an address may be dialled, by the current rules and surroundings.
fn judge(dial: &Dial<'_>, address: IpAddr, around: &Surroundings) -> Result<(), Refusal> {
    let Dial {
        host,
        port,
        reach,
        wall,
        share,
    } = dial;
    let rules = wall.rules();
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
            Some(error) if error.is_nx_domain() => bad(&"there is no such name"),
            Some(error) if error.is_no_records_found() => bad(&"it has no address"),
            Some(error) => bad(&error),
            None => bad(&"no name to ask for"),
        })
    }
}
