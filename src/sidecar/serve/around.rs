//! A container's current surroundings: the addresses and networks of the node and of the engine's namespace.
//!
//! Two routing sockets, one in each namespace, announce changes. The sidecar then reads the state again, so a new
//! address of the node is known at once.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::rc::Rc;

use serde::{Deserialize, Serialize};

use crate::rules::Surroundings;
use crate::sys::netlink::{Neighbourhood, RouteSocket};

/// How rules `service:` see the networks of the engine's namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineNetworks {
    /// Closed to such rules.
    Closed,
    /// Beside the container: its engine made them for containers.
    Beside,
}

/// The routing sockets of both namespaces, and their last answers.
pub(super) struct NamespaceWatch {
    engine: RefCell<RouteSocket>,
    node: RefCell<RouteSocket>,
    /// The cluster's networks in the node's file.
    services: BTreeSet<(IpAddr, u8)>,
    engine_networks: EngineNetworks,
    known: RefCell<Option<Rc<Surroundings>>>,
}

impl NamespaceWatch {
    pub fn new(
        [engine, node]: [RouteSocket; 2],
        services: BTreeSet<(IpAddr, u8)>,
        engine_networks: EngineNetworks,
    ) -> Self {
        Self {
            services,
            engine_networks,
            engine: RefCell::new(engine),
            node: RefCell::new(node),
            known: RefCell::default(),
        }
    }

    /// The current surroundings, with these closed addresses in addition.
    pub fn look(&self, closed: &BTreeSet<IpAddr>) -> io::Result<Rc<Surroundings>> {
        let (mut engine, mut node) = (self.engine.borrow_mut(), self.node.borrow_mut());
        // Both sockets are asked before anything is read: a later change is news the next time.
        let news = [engine.has_news(), node.has_news()].contains(&true);
        if let (false, Some(known)) = (news, &*self.known.borrow()) {
            return Ok(Rc::clone(known));
        }
        // If reading fails, the previous answer must not stay.
        self.known.replace(None);
        let near = of_engine(engine.neighbourhood()?).and(of_node(node.neighbourhood()?));
        let mut beside = self.services.clone();
        if self.engine_networks == EngineNetworks::Beside {
            beside.extend(engine.pair_networks()?);
        }
        let now = Rc::new(near.and(Surroundings {
            own: closed.clone(),
            beside,
            ..Surroundings::default()
        }));
        self.known.replace(Some(Rc::clone(&now)));
        Ok(now)
    }
}

/// A gateway there is the node, or a router of the engine.
fn of_engine(found: Neighbourhood) -> Surroundings {
    let Neighbourhood {
        own,
        own_networks,
        on_link,
        default_gateways: _,
        gateways,
    } = found;
    Surroundings {
        own: own.into_iter().chain(gateways).collect(),
        own_networks,
        on_link,
        ..Surroundings::default()
    }
}

/// The node's default gateway is closed. Its other gateways include the other nodes of a cluster, which a rule may call
/// internal.
fn of_node(found: Neighbourhood) -> Surroundings {
    let Neighbourhood {
        own,
        own_networks,
        on_link,
        default_gateways,
        gateways: _,
    } = found;
    Surroundings {
        node: own.clone(),
        own: own.into_iter().chain(default_gateways).collect(),
        own_networks,
        on_link,
        ..Surroundings::default()
    }
}
