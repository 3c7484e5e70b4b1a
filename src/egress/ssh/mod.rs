//! PURE. SSH: the messages of its agent, and a refusal as a message of a server. Clients show the reason of a
//! disconnect, but no line before the version.

pub mod agent;
pub mod key;
pub mod signed;
mod wire;

/// SSH's own port.
pub const SSH: u16 = 22;

/// SSH_MSG_DISCONNECT, and SSH_DISCONNECT_HOST_NOT_ALLOWED_TO_CONNECT (RFC 4253, section 11.1).
const DISCONNECT: u8 = 1;
const NOT_ALLOWED: u32 = 1;
/// Before there is a cipher, a packet's length is a multiple of this (section 6). It has at least this much padding.
const BLOCK: usize = 8;
const LEAST_PADDING: usize = 4;
/// OpenSSH shows 400 characters.
const LONGEST: usize = 400;

/// A complete server answer that ends the connection before key exchange: its version, and the reason.
pub fn goodbye(reason: &str) -> Vec<u8> {
    let reason: String = reason.chars().take(LONGEST).collect();
    let mut payload = vec![DISCONNECT];
    payload.extend(NOT_ALLOWED.to_be_bytes());
    for text in [reason.as_str(), "en"] {
        payload.extend(length(text.len()));
        payload.extend(text.as_bytes());
    }
    // The four bytes of the length, and the one of the padding's length.
    let filled = 4 + 1 + payload.len() + LEAST_PADDING;
    let padding = LEAST_PADDING + (BLOCK - filled % BLOCK) % BLOCK;
    let mut all = b"SSH-2.0-agentbox\r\n".to_vec();
    all.extend(length(1 + payload.len() + padding));
    all.push(u8::try_from(padding).unwrap_or(u8::MAX));
    all.extend(payload);
    all.extend(std::iter::repeat_n(0, padding));
    all
}

fn length(of: usize) -> [u8; 4] {
    u32::try_from(of).unwrap_or(u32::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_the_form_of_the_specification() {
        for reason in [
            "",
            "x",
            "no rule in network.allow matches it",
            &"é".repeat(500),
        ] {
            let said = goodbye(reason);
            let packet = said.strip_prefix(b"SSH-2.0-agentbox\r\n").unwrap();
            assert_eq!(packet.len() % BLOCK, 0, "{reason}");
            let number = |at: usize| {
                let bytes = packet[at..at + 4].try_into().unwrap();
                usize::try_from(u32::from_be_bytes(bytes)).unwrap()
            };
            assert_eq!(number(0), packet.len() - 4);
            assert!((LEAST_PADDING..LEAST_PADDING + BLOCK).contains(&usize::from(packet[4])));
            assert_eq!((packet[5], number(6)), (DISCONNECT, 1));
            let text = std::str::from_utf8(&packet[14..14 + number(10)]).unwrap();
            assert!(reason.starts_with(text) && text.chars().count() <= LONGEST);
            let language = 14 + number(10);
            assert_eq!(
                language + 4 + number(language) + usize::from(packet[4]),
                packet.len()
            );
        }
    }
}
