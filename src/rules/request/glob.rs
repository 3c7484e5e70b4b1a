//! Patterns of paths: `*` for a part of a segment, `**` for one segment or more.
//!
//! A path is matched in both readings: written, and decoded. A rule for `/a/*` does not allow `/a/b%2Fc`, which a
//! server may read as `/a/b/c`. A denial of `/a/b/**` covers it.

use std::fmt;

use super::path::{PathFault, RequestPath, SLASH, Symbol, symbols};

/// The most wildcards of a pattern, so that matching and comparing stay cheap.
const MOST_WILDCARDS: usize = 8;
/// The longest pattern, in bytes.
const LONGEST: usize = 512;

/// A piece of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Piece {
    /// This symbol.
    Is(Symbol),
    /// One symbol that is no slash.
    One,
    /// Any number of symbols that are no slashes.
    Part,
    /// Any number of symbols.
    Rest,
}

/// A pattern of paths.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PathGlob {
    text: String,
    written: Vec<Piece>,
    decoded: Vec<Piece>,
}

impl PathGlob {
    /// Reads a pattern; an empty one is `/**`, every path.
    pub fn parse(text: &str) -> Result<Self, PathFault> {
        let text = match text {
            "" => "/**",
            text => text,
        };
        if text.len() > LONGEST || text.matches('*').count() > MOST_WILDCARDS {
            return Err(PathFault("a pattern of more than 512 bytes or 8 asterisks"));
        }
        let Some(rest) = text.strip_prefix('/') else {
            return Err(PathFault("a path that does not begin with a slash"));
        };
        // With letters for the wildcards, the rest must be a valid path.
        let literal = RequestPath::parse(&text.replace('*', "x"))?;
        if literal.symbols().len() != symbols(text)?.len() {
            return Err(PathFault("a dot segment"));
        }
        let mut written = Vec::new();
        for segment in rest.split('/') {
            written.push(Piece::Is(SLASH));
            match segment {
                "**" => written.push(Piece::Rest),
                // Not empty: a path that ends with a slash is another path.
                "*" => written.extend([Piece::One, Piece::Part]),
                segment if segment.contains("**") => {
                    return Err(PathFault("a '**' beside other characters of a segment"));
                }
                segment => {
                    for (at, part) in segment.split('*').enumerate() {
                        written.extend((at > 0).then_some(Piece::Part));
                        written.extend(symbols(part)?.into_iter().map(Piece::Is));
                    }
                }
            }
        }
        let decoded = |piece: &Piece| match piece {
            Piece::Is(symbol) => Piece::Is(symbol.decoded()),
            other => *other,
        };
        Ok(Self {
            text: printed(&written),
            decoded: written.iter().map(decoded).collect(),
            written,
        })
    }

    /// Whether the path matches, however a server reads it.
    pub fn matches(&self, path: &RequestPath) -> bool {
        matches(&self.written, path.symbols(), Symbol::eq)
            && matches(&self.decoded, &path.decoded(), Symbol::eq)
    }

    /// Whether the path matches in any of its readings, ignoring case.
    pub fn denies(&self, path: &RequestPath) -> bool {
        let same = |one: &Symbol, other: &Symbol| one.folded() == other.folded();
        path.readings().iter().any(|reading| {
            matches(&self.written, reading, same) || matches(&self.decoded, reading, same)
        })
    }

    /// The pattern, for written paths.
    pub(super) fn written(&self) -> &[Piece] {
        &self.written
    }

    /// The pattern, for decoded paths.
    pub(super) fn decoded(&self) -> &[Piece] {
        &self.decoded
    }
}

impl fmt::Display for PathGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn printed(pieces: &[Piece]) -> String {
    let mut out = String::new();
    for piece in pieces {
        match piece {
            Piece::Is(symbol) => out += &symbol.to_string(),
            Piece::One => {}
            Piece::Part => out.push('*'),
            Piece::Rest => out += "**",
        }
    }
    out
}

/// The positions in a pattern that a path may have reached.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Positions(Vec<bool>);

impl Positions {
    /// Before the first symbol.
    pub(super) fn first(pieces: &[Piece]) -> Self {
        let mut places = vec![false; pieces.len() + 1];
        places[0] = true;
        Self(places).passing(pieces)
    }

    /// After one more symbol.
    pub(super) fn after(
        &self,
        pieces: &[Piece],
        symbol: Symbol,
        same: impl Fn(&Symbol, &Symbol) -> bool,
    ) -> Self {
        let mut next = vec![false; pieces.len() + 1];
        for (at, piece) in pieces.iter().enumerate().filter(|(at, _)| self.0[*at]) {
            match piece {
                Piece::Is(own) if same(own, &symbol) => next[at + 1] = true,
                Piece::One if symbol != SLASH => next[at + 1] = true,
                Piece::Part if symbol != SLASH => next[at] = true,
                Piece::Rest => next[at] = true,
                Piece::Is(_) | Piece::One | Piece::Part => {}
            }
        }
        Self(next).passing(pieces)
    }

    /// Whether the path so far matches.
    pub(super) fn is_end(&self) -> bool {
        self.0.last() == Some(&true)
    }

    /// Whether no path with this beginning matches.
    pub(super) fn is_dead(&self) -> bool {
        !self.0.contains(&true)
    }

    /// Adds the positions after wildcards that match nothing.
    fn passing(mut self, pieces: &[Piece]) -> Self {
        for (at, piece) in pieces.iter().enumerate() {
            if self.0[at] && matches!(piece, Piece::Part | Piece::Rest) {
                self.0[at + 1] = true;
            }
        }
        self
    }
}

fn matches(pieces: &[Piece], path: &[Symbol], same: impl Fn(&Symbol, &Symbol) -> bool) -> bool {
    let mut places = Positions::first(pieces);
    for symbol in path {
        places = places.after(pieces, *symbol, &same);
        if places.is_dead() {
            return false;
        }
    }
    places.is_end()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn glob(text: &str) -> PathGlob {
        PathGlob::parse(text).unwrap()
    }

    fn path(text: &str) -> RequestPath {
        RequestPath::parse(text).unwrap()
    }

    #[test]
    fn wildcards_keep_to_their_segments() {
        for (pattern, text, matched) in [
            ("", "/", true),
            ("/**", "/a/b/", true),
            ("/**", "/@types%2fnode", true),
            ("/a", "/a", true),
            ("/a", "/A", false),
            ("/a", "/a/", false),
            ("/a/", "/a/", true),
            ("/a/*", "/a/b", true),
            ("/a/*", "/a/", false),
            ("/a/*", "/a/b/c", false),
            ("/a/*", "/a/b%2fc", false),
            ("/a/**", "/a", false),
            ("/a/**", "/a/", true),
            ("/a/**", "/a/b%2fc", true),
            ("/a/**", "/a%2fb", false),
            ("/a/**", "/ab/c", false),
            ("/a/**", "/a/../b", false),
            ("/a/**/z", "/a/b/c/z", true),
            ("/a/**/z", "/a/z", false),
            ("/p/acme%2fapp/**", "/p/acme%2Fapp/x", true),
            ("/p/acme%2fapp/**", "/p/acme/app/x", false),
            ("/r/*.git/info", "/r/app.git/info", true),
            ("/r/*.git/info", "/r/a/b.git/info", false),
            ("/r/pack-*", "/r/pack-", true),
            ("/%61", "/a", true),
        ] {
            let found = glob(pattern).matches(&path(text));
            assert_eq!(found, matched, "{pattern} {text}");
        }
    }

    #[test]
    fn a_denial_means_every_reading() {
        let denied = glob("/repos/acme/secret/**");
        for text in [
            "/repos/acme/secret/x",
            "/repos/acme/secret/",
            "/repos/acme/secret",
            "/repos/ACME/Secret/x",
            "/repos/acme%2fsecret/x",
            "/repos%2Facme%2Fsecret%2Fx",
            "/repos/%61cme/secret/x",
            "/repos/other/../acme/secret/x",
        ] {
            assert!(denied.denies(&path(text)), "{text}");
        }
        assert!(!denied.denies(&path("/repos/acme/secrets")));
        for (pattern, text) in [
            ("/exact", "/exact%2f"),
            ("/exact", "/exact%2F"),
            ("/exact/", "/exact%2f"),
            ("/mcp", "/MCP%2f"),
            ("/admin/**", "/admin./x"),
            ("/admin/**", "/admin%20/x"),
            ("/admin/**", "/admin.%20./x"),
            ("/admin", "/admin%20"),
            ("/admin", "/admin:$DATA"),
            ("/admin", "/admin%3A$DATA/"),
            ("/admin/**", "/admin::$INDEX_ALLOCATION/x"),
            ("/admin", "/%EF%BD%81dmin"),
            ("/admin", "/%EF%BC%A1DMIN%2f"),
            ("/keys", "/%E2%84%AAey%C5%BF"),
            ("/admin", "/admin.%2f"),
        ] {
            assert!(glob(pattern).denies(&path(text)), "{pattern} {text}");
            assert!(!glob("/other").denies(&path(text)), "{text}");
        }
        // The control: a Google API verb after a colon is another path.
        assert!(!glob("/v1/models/a").denies(&path("/v1/models/a:generate")));
        assert!(glob("/a/").denies(&path("/a")) && glob("/a").denies(&path("/A/")));
    }

    #[test]
    fn a_text_that_is_no_pattern_is_refused() {
        for text in [
            "a",
            "*",
            "/a//b",
            "/a/../b",
            "/a/.",
            "/a**",
            "/a/***",
            "/a/**b",
            "/a;b",
            "/a?b=c",
            "/a#b",
            "/a%5c*",
            "/a%25",
            "/a%2f/b",
            "/a%2f..",
            "/[a]",
            "/{a,b}",
            "/*/*/*/*/*/*/*/*/*",
        ] {
            assert!(PathGlob::parse(text).is_err(), "{text}");
        }
        assert!(PathGlob::parse(&format!("/{}", "a".repeat(512))).is_err());
        for text in ["/**", "/a/*/b*c/**", "/a%2Fb/", "/", "/*"] {
            assert_eq!(glob(text).to_string(), text);
        }
    }
}
