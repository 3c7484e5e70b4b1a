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

/// The columns of the terminal on standard output, or COLUMNS, as ps(1) has it in a pipe. `None`: any width fits.
pub fn terminal_width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(rustix::stdio::stdout());
    let columns = match size {
        Ok(size) => Some(usize::from(size.ws_col)),
        Err(_) => std::env::var("COLUMNS")
            .ok()
            .and_then(|text| text.parse().ok()),
    };
    columns.filter(|columns| *columns > 0)
}

/// How a table that is wider than a terminal is made to fit.
#[derive(Debug, Default)]
pub struct TableFit {
    /// The terminal's columns; `None`: any width fits.
    pub width: Option<usize>,
    /// The columns of the table that are left out, in this order, while the last one has no room.
    pub expendable: &'static [usize],
}

/// The narrowest last column, in characters: about a program and its first argument.
const LEAST_LAST: usize = 20;

/// A table whose columns are as wide as their content.
pub fn columns<const N: usize>(
    head: [&str; N],
    lines: impl IntoIterator<Item = [String; N]>,
    fit: &TableFit,
) -> String {
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(lines);
    let width = |column: &usize| {
        let cells = rows.iter().map(|row| row[*column].chars().count());
        cells.max().unwrap_or(0)
    };
    let mut shown: Vec<usize> = (0..N).collect();
    let room = |shown: &[usize]| {
        let before = &shown[..shown.len() - 1];
        let used: usize = before.iter().map(|column| width(column) + GAP.len()).sum();
        fit.width.map(|all| all.saturating_sub(used))
    };
    for column in fit.expendable {
        let least = LEAST_LAST.min(width(&(N - 1)));
        if room(&shown).is_none_or(|room| room >= least) {
            break;
        }
        shown.retain(|one| one != column);
    }
    let room = room(&shown).map(|room| room.max(1));
    let cell = |row: &[String; N], column: &usize| match (*column == N - 1, room) {
        (true, Some(room)) => shortened(&row[*column], room),
        (true, None) => row[*column].clone(),
        (false, _) => format!("{:<1$}", row[*column], width(column)),
    };
    let mut table = String::new();
    for row in &rows {
        let cells: Vec<String> = shown.iter().map(|column| cell(row, column)).collect();
        table += cells.join(GAP).trim_end();
        table.push('\n');
    }
    table
}

/// Between two columns.
const GAP: &str = "   ";

/// The beginning of a text, with dots if that is not all.
fn shortened(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(3)).collect();
    kept + &"..."[..most.min(3)]
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

    #[test]
    fn a_table_gives_up_columns_before_its_last_one() {
        let rows = || [["a", "bbbb", "a command that is long"].map(str::to_owned)];
        let table = |width, expendable| {
            columns(["A", "B", "LAST"], rows(), &TableFit { width, expendable })
        };
        let whole = "A   B      LAST\na   bbbb   a command that is long\n";
        assert_eq!(table(None, &[1]), whole);
        assert_eq!(table(Some(33), &[1]), whole);
        let cut = "A   B      LAST\na   bbbb   a command that is...\n";
        assert_eq!(table(Some(31), &[1]), cut);
        let fewer = "A   LAST\na   a command that is long\n";
        assert_eq!(table(Some(30), &[1]), fewer);
        let narrow = "A   B      LAST\na   bbbb   a ...\n";
        assert_eq!(table(Some(16), &[]), narrow);
        assert_eq!(table(Some(3), &[]), "A   B      .\na   bbbb   .\n");
    }

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
