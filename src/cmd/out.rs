//! Standard output. If the reader closes it (`| head`), only the output ends: the verb's exit status stays the same.
//! `println!` would panic.

use std::io::{ErrorKind, Write};

use anyhow::{Context, Result};

/// Whether a reader is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// As far as agentbox knows.
    Listens,
    /// It has closed its end.
    Gone,
}

/// Writes text as it is.
pub fn text(text: &str) -> Result<Reader> {
    write_to(&mut std::io::stdout().lock(), text)
}

/// Writes a line.
pub fn line(line: &str) -> Result<Reader> {
    text(&format!("{line}\n"))
}

/// Writes a value as indented JSON. Escapes all characters that a terminal would obey.
pub fn json(value: &impl serde::Serialize) -> Result<Reader> {
    line(&crate::text::escape_json(&serde_json::to_string_pretty(
        value,
    )?))
}

fn write_to(out: &mut impl Write, text: &str) -> Result<Reader> {
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    match written {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(Reader::Gone),
        Err(e) => Err(e).context("write to standard output"),
        Ok(()) => Ok(Reader::Listens),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fails(ErrorKind);

    impl Write for Fails {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_output_is_not_an_error_but_a_full_disk_is() {
        let gone = write_to(&mut Fails(ErrorKind::BrokenPipe), "x").unwrap();
        assert_eq!(gone, Reader::Gone);
        let full = write_to(&mut Fails(ErrorKind::StorageFull), "x");
        assert!(full.unwrap_err().to_string().contains("standard output"));
        let mut kept = Vec::new();
        assert_eq!(write_to(&mut kept, "x").unwrap(), Reader::Listens);
        assert_eq!(kept, b"x");
    }
}
