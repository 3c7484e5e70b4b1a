//! Servers of this machine that the command may have meant: it tried ports of its own loopback where nothing listens.
//!
//! Programs also try ports of their own, so a line is printed only for ports where the machine has a server.

use std::collections::{BTreeMap, BTreeSet};

use crate::audit::loopback::MOST_PORTS;
use crate::log::complain;
use crate::plan::connect::{LOCALHOST, is_offered};
use crate::policy::{Field, Tool};
use crate::runtime::network::listeners;

/// Says which option leads to the machine's servers at these ports. At published ones the command has its own.
pub fn tell<T>(refused: &BTreeSet<u16>, published: &BTreeMap<u16, T>) {
    if refused.is_empty() {
        return;
    }
    let served = listeners::of("self");
    let is_meant = |port: &u16| served.contains(port) && !published.contains_key(port);
    let meant = refused.iter().copied().filter(is_meant);
    if let Some(line) = line(&meant.take(MOST_PORTS).collect::<Vec<_>>()) {
        complain(&line);
    }
}

fn line(ports: &[u16]) -> Option<String> {
    let (noun, servers) = match ports {
        [] => return None,
        [_] => ("a connection", "server"),
        _ => ("connections", "servers"),
    };
    let hosts: Vec<String> = (ports.iter())
        .map(|port| format!("{LOCALHOST}:{port}"))
        .collect();
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
    let was = if ports.len() == 1 { "was" } else { "were" };
    let (hosts, option) = (
        hosts.join(", "),
        Tool::Wrap.adds(Field::NetworkConnect, &ports),
    );
    Some(format!(
        "agentbox: {noun} to {hosts} {was} refused inside; {option} reaches this machine's {servers}"
    ))
}

/// Says which option lets this machine reach servers of the command that listened to its end.
pub fn tell_lasting<T>(lasting: &BTreeSet<u16>, published: &BTreeMap<u16, T>) {
    // A command chooses them: the next one would stand at a port of Docker's or of a debugger.
    let is_new = |port: &&u16| !published.contains_key(port) && is_offered(**port);
    let own = lasting.iter().filter(is_new);
    let own: Vec<u16> = own.take(MOST_PORTS).copied().collect();
    if let Some(line) = lasting_line(&own) {
        complain(&line);
    }
}

fn lasting_line(ports: &[u16]) -> Option<String> {
    let noun = match ports {
        [] => return None,
        [_] => "port",
        _ => "ports",
    };
    let each = |prefix: &str, separator: &str| {
        let each: Vec<String> = ports.iter().map(|port| format!("{prefix}{port}")).collect();
        each.join(separator)
    };
    Some(format!(
        "agentbox: the command listened on {noun} {}, which only it could reach; {} opens it to this machine",
        each("", ", "),
        each("--publish ", " ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_has_an_option_for_each_port() {
        assert_eq!(line(&[]), None);
        assert_eq!(
            line(&[5432]).unwrap(),
            "agentbox: a connection to localhost:5432 was refused inside; --connect 5432 reaches this machine's server"
        );
        assert_eq!(
            line(&[5432, 6379]).unwrap(),
            "agentbox: connections to localhost:5432, localhost:6379 were refused inside; --connect 5432 --connect 6379 reaches \
             this machine's servers"
        );
    }
    #[test]
    fn a_server_that_lasted_has_an_option_too() {
        assert_eq!(lasting_line(&[]), None);
        assert_eq!(
            lasting_line(&[5173]).unwrap(),
            "agentbox: the command listened on port 5173, which only it could reach; --publish 5173 opens it to this machine"
        );
        let two = lasting_line(&[3000, 8080]).unwrap();
        assert!(two.contains("--publish 3000 --publish 8080 opens"), "{two}");
    }
}
