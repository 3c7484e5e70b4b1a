//! The table of ps(1) for the processes of a container.

use anyhow::{Context, Result, bail};

use crate::sys::program;
use crate::text::escape;

/// The lines of ps(1), with these options, of the processes `pids`; below its header.
///
/// # Errors
/// ps(1) is missing, refuses the options, or prints no PID column.
pub fn table(pids: &[i32], options: &[String]) -> Result<String> {
    let default = ["-ef".to_owned()];
    let options = if options.is_empty() {
        &default[..]
    } else {
        options
    };
    let ps = program::find("ps").context("run ps(1)")?;
    let output = program::command(&ps, &["LANG", "LC_ALL", "COLUMNS"])
        .args(options)
        .output()
        .context("run ps(1)")?;
    if !output.status.success() {
        bail!(
            "ps: {}",
            escape(String::from_utf8_lossy(&output.stderr).trim())
        );
    }
    only(&String::from_utf8_lossy(&output.stdout), pids)
        .context("ps with these options prints no PID column")
}

/// The header of this table and the lines of these processes, harmless on a terminal. None without a column of pids.
fn only(text: &str, pids: &[i32]) -> Option<String> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let column = header.split_ascii_whitespace().position(|c| c == "PID")?;
    let mut table = format!("{header}\n");
    for line in lines {
        let pid = line
            .split_ascii_whitespace()
            .nth(column)
            .and_then(|p| p.parse().ok());
        if pid.is_some_and(|p| pids.contains(&p)) {
            table += &escape(line);
            table.push('\n');
        }
    }
    Some(table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_containers_processes_alone() {
        let text = "USER   PID CMD\nroot     1 init\nroot    17 sh 42\nme      42 a\u{1b}[2Jb\n";
        assert_eq!(
            only(text, &[42, 7]).as_deref(),
            Some("USER   PID CMD\nme      42 a\\u{1b}[2Jb\n")
        );
        assert_eq!(only(text, &[]).as_deref(), Some("USER   PID CMD\n"));
        assert_eq!(only("USER CMD\nroot 42\n", &[42]), None);
        assert_eq!(only("", &[42]), None);
    }
}
