//! The path of a request in its canonical form, and in both readings that servers make of it.
//!
//! A path is a sequence of symbols: a character, or an encoded byte (`%2F`). An encoded letter becomes the letter, hex
//! digits become capitals, dot segments are resolved (RFC 3986, section 6.2.2). Servers differ in the rest, which is
//! refused: `//`, `;`, `\`, lookalikes (full-width forms), control characters, invalid UTF-8, an encoded `%`.

use std::fmt;

/// The longest path, in bytes.
pub const LONGEST_PATH: usize = 4096;

/// Marks a byte that is written as `%XX`.
const ENCODED: u16 = 0x100;
/// The separator of segments.
pub(super) const SLASH: Symbol = Symbol(b'/' as u16);
/// A slash that one server reads as a separator, and another as part of a name.
pub(super) const ENCODED_SLASH: Symbol = Symbol(ENCODED | b'/' as u16);
const DOT: Symbol = Symbol(b'.' as u16);

/// A character of a path, or an encoded byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Symbol(u16);

impl Symbol {
    /// A character that stands for itself.
    pub(super) fn plain(byte: u8) -> Self {
        Self(byte.into())
    }

    /// As a server reads it that decodes before it splits segments.
    pub(super) fn decoded(self) -> Self {
        match self.byte() {
            byte if is_reserved(byte) => Self::plain(byte),
            _ => self,
        }
    }

    /// The same letter in lower case.
    pub(super) fn folded(self) -> Self {
        match self.is_encoded() {
            true => self,
            false => Self::plain(self.byte().to_ascii_lowercase()),
        }
    }

    fn byte(self) -> u8 {
        u8::try_from(self.0 & 0xff).unwrap_or(0)
    }

    fn is_encoded(self) -> bool {
        self.0 & ENCODED != 0
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_encoded() {
            true => write!(f, "%{:02X}", self.byte()),
            false => write!(f, "{}", char::from(self.byte())),
        }
    }
}

/// Why a path has no canonical form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PathFault(pub &'static str);

impl fmt::Display for PathFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// The path of a request, in its canonical form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestPath(Vec<Symbol>);

impl RequestPath {
    /// Reads a path as a client wrote it; an empty one is `/`.
    pub fn parse(text: &str) -> Result<Self, PathFault> {
        let text = match text {
            "" => "/",
            text => text,
        };
        if text.len() > LONGEST_PATH {
            return Err(PathFault("a path of more than 4096 bytes"));
        }
        if !text.starts_with('/') {
            return Err(PathFault("a path that does not begin with a slash"));
        }
        let symbols = symbols(text)?;
        let symbols = without_dots(&symbols)?;
        // Refuse a name that a server would read as dot segments after decoding.
        let decoded: Vec<Symbol> = symbols.iter().map(|symbol| symbol.decoded()).collect();
        if without_dots(&decoded)? != decoded {
            return Err(PathFault("a dot segment beside an encoded slash"));
        }
        Ok(Self(symbols))
    }

    /// As written.
    pub(super) fn symbols(&self) -> &[Symbol] {
        &self.0
    }

    /// As a server reads it that decodes first.
    pub(super) fn decoded(&self) -> Vec<Symbol> {
        self.0.iter().map(|symbol| symbol.decoded()).collect()
    }

    /// Every reading that some server makes of it, for denials: written and decoded, with ASCII letters for those that servers fold, without the segment endings that Windows
    /// drops, with and without a final slash.
    pub(super) fn readings(&self) -> Vec<Vec<Symbol>> {
        let mut all = vec![self.0.clone()];
        let mut add = |make: &dyn Fn(&[Symbol]) -> Vec<Symbol>| {
            let made: Vec<_> = all.iter().map(|reading| make(reading)).collect();
            for reading in made {
                if !all.contains(&reading) {
                    all.push(reading);
                }
            }
        };
        add(&|path| path.iter().map(|symbol| symbol.decoded()).collect());
        add(&in_ascii);
        add(&without_ends);
        add(&|path| match path {
            [before @ .., SLASH | ENCODED_SLASH] => before.to_vec(),
            path => [path, &[SLASH]].concat(),
        });
        all
    }
}

impl fmt::Display for RequestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|symbol| symbol.fmt(f))
    }
}

/// With ASCII letters for those that servers fold to them: full-width forms (NFKC), long s, Kelvin sign, dotless and dotted i
/// (case).
fn in_ascii(path: &[Symbol]) -> Vec<Symbol> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, others @ ..] = rest {
        let bytes: Vec<u8> = rest.iter().take(3).map(|symbol| symbol.byte()).collect();
        let (letter, length) = match bytes[..] {
            _ if !first.is_encoded() => (None, 1),
            [0xef, 0xbc, low @ 0x81..=0xbf] => (Some(low - 0x60), 3),
            [0xef, 0xbd, low @ 0x80..=0x9e] => (Some(low - 0x20), 3),
            [0xe2, 0x84, 0xaa] => (Some(b'k'), 3),
            [0xc5, 0xbf, ..] => (Some(b's'), 2),
            [0xc4, 0xb0 | 0xb1, ..] => (Some(b'i'), 2),
            _ => (None, 1),
        };
        match letter {
            Some(letter) => {
                out.push(Symbol::plain(letter));
                rest = &rest[length..];
            }
            None => {
                out.push(*first);
                rest = others;
            }
        }
    }
    out
}

/// Without trailing dots and spaces of segments, and without stream names there (`:$DATA`, `::$INDEX_ALLOCATION`), as
/// Windows opens files.
fn without_ends(path: &[Symbol]) -> Vec<Symbol> {
    let is_space = |symbol: &Symbol| *symbol == DOT || symbol.byte() == b' ';
    let mut out = Vec::with_capacity(path.len());
    for segment in path.split_inclusive(|symbol| *symbol == SLASH) {
        let (name, slash) = match segment {
            [name @ .., SLASH] => (name, &[SLASH][..]),
            name => (name, &[][..]),
        };
        let is_colon = |symbol: &Symbol| symbol.byte() == b':';
        let has_type = |stream: &[Symbol]| stream.iter().any(|symbol| symbol.byte() == b'$');
        let colon = name
            .iter()
            .position(is_colon)
            .filter(|at| has_type(&name[*at..]));
        let name = &name[..colon.unwrap_or(name.len())];
        let end = name.iter().rposition(|symbol| !is_space(symbol));
        out.extend_from_slice(&name[..end.map_or(0, |at| at + 1)]);
        out.extend_from_slice(slash);
    }
    out
}

/// Whether some server reads this as a separator of path parts (NFKC, and "best fit" of Windows' code pages).
fn is_separators_double(character: char) -> bool {
    matches!(
        character,
        '\u{2024}'..='\u{2026}' | '\u{2044}' | '\u{2215}' | '\u{2216}' | '\u{29f5}' | '\u{29f8}' | '\u{29f9}'
            // Small and full-width forms of `.`, `;`, `#`, `%`, `/`, `:`, `?`, `\`.
            | '\u{fe52}' | '\u{fe54}'..='\u{fe56}' | '\u{fe5f}' | '\u{fe68}' | '\u{fe6a}'
            | '\u{ff03}' | '\u{ff05}' | '\u{ff0e}' | '\u{ff0f}' | '\u{ff1a}' | '\u{ff1b}' | '\u{ff1f}' | '\u{ff3c}'
    )
}

/// The symbols of a text. An asterisk is an ordinary symbol here.
pub(super) fn symbols(text: &str) -> Result<Vec<Symbol>, PathFault> {
    let mut found = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        found.push(match byte {
            b'%' => encoded(bytes.next(), bytes.next())?,
            b';' => return Err(PathFault("a ';', after which some servers do not read on")),
            b'\\' => {
                return Err(PathFault("a '\\', which some servers take for a slash"));
            }
            b'/' => SLASH,
            byte if is_unreserved(byte) || is_reserved(byte) => Symbol::plain(byte),
            _ => {
                return Err(PathFault(
                    "a character that a path has in its encoded form only",
                ));
            }
        });
    }
    let bytes: Vec<u8> = found.iter().map(|symbol| symbol.byte()).collect();
    match std::str::from_utf8(&bytes) {
        Ok(text) if text.chars().any(is_separators_double) => Err(PathFault(
            "an encoded character that some servers take for '.', '/', '\\', ';', ':', '?', '#' or '%'",
        )),
        Ok(_) => Ok(found),
        Err(_) => Err(PathFault("encoded bytes that are not UTF-8")),
    }
}

fn encoded(high: Option<u8>, low: Option<u8>) -> Result<Symbol, PathFault> {
    let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
    let (Some(high), Some(low)) = (digit(high), digit(low)) else {
        return Err(PathFault("a '%' without two hexadecimal digits"));
    };
    let byte = u8::try_from(high * 16 + low).unwrap_or(0);
    match byte {
        0..=0x1f | 0x7f => Err(PathFault("an encoded control character")),
        b'%' => Err(PathFault("an encoded '%', which some servers decode twice")),
        b'?' | b'#' => Err(PathFault(
            "an encoded '?' or '#', after which some servers do not read on",
        )),
        b';' => Err(PathFault("a ';', after which some servers do not read on")),
        b'\\' => Err(PathFault("a '\\', which some servers take for a slash")),
        byte if is_unreserved(byte) => Ok(Symbol::plain(byte)),
        byte => Ok(Symbol(ENCODED | u16::from(byte))),
    }
}

/// RFC 3986, section 5.2.4, but refuses a path above the root and segments without a name.
fn without_dots(path: &[Symbol]) -> Result<Vec<Symbol>, PathFault> {
    let mut kept: Vec<&[Symbol]> = Vec::new();
    let mut segments = path.split(|symbol| *symbol == SLASH).skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            [] if !is_last => return Err(PathFault("two slashes in a row")),
            [DOT, DOT] if kept.pop().is_none() => {
                return Err(PathFault("a path that leads above its root"));
            }
            // At the end, it leaves the slash before it.
            [DOT] | [DOT, DOT] if is_last => kept.push(&[]),
            [DOT] | [DOT, DOT] => {}
            name => kept.push(name),
        }
    }
    let mut out = Vec::with_capacity(path.len());
    for segment in kept {
        out.push(SLASH);
        out.extend(segment);
    }
    Ok(out)
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// Characters whose encoded form is another path by the standard, but the same one for many servers.
fn is_reserved(byte: u8) -> bool {
    b"/!$&'()*+,=:@".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> Result<String, &'static str> {
        match RequestPath::parse(text) {
            Ok(path) => Ok(path.to_string()),
            Err(PathFault(why)) => Err(why),
        }
    }

    #[test]
    fn a_path_has_one_form() {
        for (text, form) in [
            ("", "/"),
            ("/", "/"),
            ("/a/b/", "/a/b/"),
            ("/%7euser/%61%2D", "/~user/a-"),
            ("/a%2fb", "/a%2Fb"),
            ("/a/./b/../c", "/a/c"),
            ("/a/%2e%2E/b", "/b"),
            ("/a/..", "/"),
            ("/a/b/.", "/a/b/"),
            ("/@types%2fnode", "/@types%2Fnode"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/.../a.", "/.../a."),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(form), "{text}");
            assert_eq!(canonical(form).as_deref(), Ok(form), "{form}");
        }
    }

    #[test]
    fn a_path_that_servers_read_differently_is_refused() {
        let long = format!("/{}", "a".repeat(LONGEST_PATH));
        for text in [
            "a",
            "*",
            "//",
            "//a",
            "/a//b",
            "/..",
            "/a/../..",
            "/a/../../b",
            "/%2e%2e/a",
            "/a;x/b",
            "/a/..;/b",
            "/a%3bx",
            "/a\\b",
            "/a%5cb",
            "/a%5C..%5Cb",
            "/a%2f..%2fb",
            "/a%2f%2e%2e",
            "/a/..%2fb",
            "/a%2f/b",
            "/%2fa",
            "/%252e%252e/a",
            "/a%25",
            "/a%3Fb",
            "/a/..%23",
            "/a%00",
            "/a%0d%0aHost:x",
            "/a%7f",
            "/%c0%ae%c0%ae/a",
            "/%c0%af",
            "/%ff",
            "/a%",
            "/a%2",
            "/a%zz",
            "/a%+1",
            "/a b",
            "/a\tb",
            "/a?b",
            "/a#b",
            "/a\r\nb",
            "/caf\u{e9}",
            "/a|b",
            "/a/%EF%BC%8E%EF%BC%8E/b",
            "/a%EF%BC%8Fb",
            "/a%EF%BC%BCb",
            "/a%EF%BC%9Bb",
            "/%E2%80%A4%E2%80%A4/a",
            "/%E2%80%A5/a",
            "/a%E2%88%95b",
            &long,
        ] {
            assert!(canonical(text).is_err(), "{text:?}: {:?}", canonical(text));
        }
    }
}
