//! Ports of the loopback inside that lead to services of this machine (`wrap --connect`).
//!
//! A service of the machine is dialled on the machine's loopback, at the same port and nowhere else. Another host is
//! dialled as if the workload had named it: rules, addresses and first bytes are checked.

use std::net::{IpAddr, SocketAddr};
use std::pin::pin;

use tokio::net::TcpStream;

use super::notes::refuse;
use super::permission::Permission;
use super::refusal::Refusal;
use super::relay::relay;
use super::secure::Server;
use super::share::Share;
use super::stream::{connect, reset};
use super::wall::Wall;
use super::watch::Watch;
use crate::audit::ConnectionKind;
use crate::plan::ServiceTarget;
use crate::plan::connect::{LOCALHOST, LOOPBACK, denied_by};
use crate::rules::{Denial, Host, HostReach};

impl Wall {
    /// The service at an address and a port inside.
    pub fn service_at(&self, address: IpAddr, port: u16) -> Option<&ServiceTarget> {
        let service = self.services.get(&port)?;
        address.to_canonical().is_loopback().then_some(service)
    }

    /// The deny rule that covers a service of the machine.
    pub fn denies_service(&self, port: u16) -> Option<Denial> {
        let rules = self.rules();
        denied_by(&rules, port).map(|rule| Denial::DeniedBy(rule.clone()))
    }

    /// Counts a connection to a service of the machine. The list of services does not change while the container runs,
    /// but a deny rule may come.
    fn admit_service(&self, host: &Host, port: u16) -> Result<Share<'_>, Refusal> {
        let now = self.milliseconds();
        if let Some(denial) = self.denies_service(port) {
            return Err(Refusal::Denied(denial));
        }
        self.ledger
            .borrow()
            .check_pause(now)
            .map_err(Refusal::Over)?;
        self.ledger.borrow_mut().open(now).map_err(Refusal::Over)?;
        self.admitted.set(self.admitted.get().saturating_add(1));
        let permission = Permission {
            reach: HostReach::Public,
            once: false,
            rule: format!("network.connect: {port}"),
            learnt: None,
            request: None,
            is_service: true,
        };
        Ok(Share::new(self, host.clone(), port, permission))
    }
}

/// Carries a connection from inside to a port of the machine's loopback.
pub(super) async fn serve(wall: &Wall, client: &TcpStream, port: u16) {
    let Ok(host) = LOCALHOST.parse::<Host>() else {
        return reset(client);
    };
    if let Err(refusal) = carry(wall, client, &host, port).await {
        refuse(
            wall,
            client,
            ConnectionKind::Transparent,
            &host,
            port,
            &refusal,
        );
        reset(client);
    }
}

async fn carry(wall: &Wall, client: &TcpStream, host: &Host, port: u16) -> Result<(), Refusal> {
    let share = wall.admit_service(host, port)?;
    let work = pin!(async {
        let server = share.dial(dial(port)).await?;
        wall.allowed.set(wall.allowed.get().saturating_add(1));
        share.begin();
        let watch = Watch::Nothing.searched(wall.traps.search());
        relay(client, Server::Plain(server), watch, &share).await
    });
    share.while_allowed(work).await
}

async fn dial(port: u16) -> Result<TcpStream, Refusal> {
    let mut last = String::new();
    for address in LOOPBACK {
        match connect(SocketAddr::new(address, port)).await {
            Ok(stream) => return Ok(stream),
            // IPv4's error is the one to report: many machines have no ::1.
            Err(why) if last.is_empty() => last = why,
            Err(_) => {}
        }
    }
    Err(Refusal::Unreachable(format!(
        "no service of this machine answers at 127.0.0.1 or ::1, port {port}: {last}"
    )))
}
