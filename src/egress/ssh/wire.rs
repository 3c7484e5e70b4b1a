//! PURE. SSH's encoding of numbers and strings (RFC 4251, section 5), read from untrusted bytes.

/// Bytes that are still to be read.
#[derive(Debug, Clone, Copy)]
pub(super) struct WireReader<'a>(&'a [u8]);

impl<'a> WireReader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// 0 or 1, as every program writes it.
    pub fn boolean(&mut self) -> Option<bool> {
        match self.byte()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    pub fn number(&mut self) -> Option<u32> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*first))
    }

    pub fn string(&mut self) -> Option<&'a [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        let (string, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(string)
    }

    /// Whether this string is next.
    pub fn is(&mut self, expected: &str) -> Option<()> {
        (self.string()? == expected.as_bytes()).then_some(())
    }

    /// Nothing is left.
    pub fn end(&self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

/// Appends a string.
pub(super) fn put(to: &mut Vec<u8>, string: &[u8]) {
    // Longer strings are in no message.
    let length = u32::try_from(string.len()).unwrap_or(u32::MAX);
    to.extend(length.to_be_bytes());
    to.extend(string);
}
