//! Parses what the kernel sends, whole and cut.

use super::message::{NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR};
use super::*;

fn link(name: &str) -> Vec<u8> {
    let mut body = vec![0, 0];
    body.extend(HARDWARE_LOOPBACK.to_ne_bytes());
    body.extend(1_u32.to_ne_bytes());
    body.extend((libc::IFF_LOOPBACK as u32).to_ne_bytes());
    body.extend([0; 4]);
    push_attribute(&mut body, 99, b"x");
    push_attribute(&mut body, IFLA_IFNAME, format!("{name}\0").as_bytes());
    padded(encode(RTM_NEWLINK, 2, 7, &body).unwrap())
}

fn padded(mut message: Vec<u8>) -> Vec<u8> {
    message.resize(message.len().next_multiple_of(4), 0);
    message
}

fn done(status: i32) -> Vec<u8> {
    encode(NLMSG_DONE, 2, 7, &status.to_ne_bytes()).unwrap()
}

fn parse_links(datagram: &[u8], sequence: u32, links: &mut Vec<Link>) -> io::Result<Dump> {
    parse_dump(datagram, sequence, RTM_NEWLINK, &mut |body| {
        links.push(parse_link(body)?);
        Ok(())
    })
}

#[test]
fn reads_a_dump_of_several_parts() {
    let mut links = Vec::new();
    let first = [link("lo"), link("eth0")].concat();
    assert_eq!(parse_links(&first, 7, &mut links).unwrap(), Dump::More);
    assert_eq!(
        parse_links(&done(0), 7, &mut links).unwrap(),
        Dump::Complete
    );
    assert_eq!(links.len(), 2);
    assert!(links[0].is_loopback());
    assert!(!links[1].is_loopback());
}

#[test]
fn a_link_is_loopback_only_by_name_flag_and_hardware() {
    let mut links = Vec::new();
    parse_links(&link("lo"), 7, &mut links).unwrap();
    let good = links.remove(0);
    for bad in [
        Link {
            flags: 0,
            ..good.clone()
        },
        Link {
            hardware: 1,
            ..good.clone()
        },
        Link {
            name: "lo0".into(),
            ..good.clone()
        },
    ] {
        assert!(!bad.is_loopback(), "{bad:?}");
    }
}

#[test]
fn a_links_kind_is_what_its_driver_says() {
    let mut nest = Vec::new();
    push_attribute(&mut nest, IFLA_INFO_KIND, b"ipip\0");
    push_attribute(&mut nest, 2, &[1, 2, 3]);
    for nested in [IFLA_LINKINFO, IFLA_LINKINFO | 0x8000] {
        let mut body = vec![0; LINK_HEADER];
        push_attribute(&mut body, IFLA_IFNAME, b"tunl0\0");
        push_attribute(&mut body, nested, &nest);
        let link = parse_link(&body).unwrap();
        assert_eq!((&*link.name, link.kind.as_deref()), ("tunl0", Some("ipip")));
        for cut in LINK_HEADER + 1..body.len() {
            // It must return, whatever the bytes are.
            drop(parse_link(&body[..cut]));
        }
    }
    assert_eq!(parse_link(&[0; LINK_HEADER]).unwrap().kind, None);
}

#[test]
fn every_cut_and_every_wrong_length_is_an_error_or_a_shorter_dump() {
    let whole = [link("lo"), done(0)].concat();
    for cut in 0..whole.len() {
        let complete = parse_links(&whole[..cut], 7, &mut Vec::new());
        assert!(!matches!(complete, Ok(Dump::Complete)), "cut at {cut}");
    }
    for at in 0..whole.len() {
        for value in [0, 1, 3, 0x7f, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] = value;
            // It must return, whatever the bytes are.
            drop(parse_links(&bytes, 7, &mut Vec::new()));
        }
    }
}

#[test]
fn refuses_answers_to_other_questions_and_interrupted_dumps() {
    assert!(parse_links(&link("lo"), 8, &mut Vec::new()).is_err());
    let mut interrupted = link("lo");
    interrupted[6..8].copy_from_slice(&NLM_F_DUMP_INTR.to_ne_bytes());
    assert!(parse_links(&interrupted, 7, &mut Vec::new()).is_err());
    assert!(parse_links(&done(-libc::EPERM), 7, &mut Vec::new()).is_err());
}

#[test]
fn an_acknowledgement_carries_the_errno() {
    let error = |code: i32| encode(NLMSG_ERROR, 0, 3, &code.to_ne_bytes()).unwrap();
    parse_acknowledgement(&error(0), 3).unwrap();
    let refused = parse_acknowledgement(&error(-libc::EEXIST), 3).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EEXIST));
    assert!(parse_acknowledgement(&error(0), 4).is_err());
    assert!(parse_acknowledgement(&error(i32::MIN), 3).is_err());
    assert!(parse_acknowledgement(&[], 3).is_err());
}

#[test]
fn lists_the_links_of_this_machine() {
    let links = RouteSocket::open().unwrap().links().unwrap();
    assert!(links.iter().any(Link::is_loopback), "{links:?}");
}
