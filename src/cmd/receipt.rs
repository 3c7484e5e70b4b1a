//! `receipt`

use std::fmt::Write;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::audit::receipt::{Envelope, PublicKey, Statement};
use crate::cli::{Receipt, ReceiptVerb, VerifyReceipt};
use crate::cmd::out;
use crate::runtime::runs::compare::{self, FileState};
use crate::runtime::runs::read;
use crate::runtime::runs::receipt;
use crate::text::escape;

/// The exit status for a receipt that cannot be trusted.
const NOT_GENUINE: u8 = 1;
/// The exit status for a good signature with a missing or changed file, or with a log that was not whole.
const FILES_DIFFER: u8 = 3;

/// Most bytes of a receipt or of a key.
const LONGEST: u64 = 16 << 20;

/// Prints a run's receipt, or checks one.
pub fn run(args: &Receipt) -> Result<ExitCode> {
    match (&args.verb, &args.id) {
        (Some(ReceiptVerb::Verify(args)), _) => verify(args),
        (None, Some(id)) => {
            let found = read::find(id)?;
            let logs = found.logs()?;
            let issued = receipt::of(&found, &logs)?;
            // A fault that came after the signature counts too.
            let whole = super::audit::verdict(&found, &logs);
            match issued {
                Some(envelope) => out::json(&envelope).map(|_| ())?,
                None => crate::log::complain(
                    "agentbox: no receipt was signed: it would prove a log that is not whole; see `agentbox audit`",
                ),
            }
            Ok(whole)
        }
        (None, None) => bail!("name a container, or `verify` and a file"),
    }
}

fn verify(args: &VerifyReceipt) -> Result<ExitCode> {
    let (file, key) = (text(&args.file)?, text(&args.key)?);
    let key = PublicKey::from_pem(&key).with_context(|| format!("read the key {:?}", args.key))?;
    let envelope: Envelope =
        serde_json::from_str(&file).with_context(|| format!("read {:?} as DSSE", args.file))?;
    let payload = match envelope.payload_by(&key) {
        Ok(payload) => payload,
        Err(why) => {
            out::line(&format!("NOT GENUINE: {why}"))?;
            return Ok(ExitCode::from(NOT_GENUINE));
        }
    };
    let statement = Statement::parse(&payload)?;
    let dir = directory(args, &statement)?;
    let files = match &dir {
        Some(dir) => compare::compare(&statement, dir)?,
        None => Vec::new(),
    };
    out::text(&page(&statement, dir.as_deref(), &files))?;
    let was_whole = statement.predicate.faults.is_empty();
    Ok(
        match was_whole && files.iter().all(|(_, held)| held.is_good()) {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(FILES_DIFFER),
        },
    )
}

fn text(path: &Path) -> Result<String> {
    let mut text = String::new();
    // The open of a FIFO would wait for a writer.
    let open = || {
        File::options()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)
    };
    let file = open().with_context(|| format!("read {path:?}"))?;
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        bail!("read {path:?}: it is not a file");
    }
    let read = file.take(LONGEST + 1).read_to_string(&mut text);
    read.with_context(|| format!("read {path:?}"))?;
    if text.len() as u64 > LONGEST {
        bail!("{path:?} is longer than any receipt or key");
    }
    Ok(text)
}

/// The directory of the run's files.
fn directory(args: &VerifyReceipt, statement: &Statement) -> Result<Option<PathBuf>> {
    if args.signature_only {
        return Ok(None);
    }
    if let Some(dir) = &args.dir {
        return Ok(Some(dir.clone()));
    }
    let run = &statement.predicate.run;
    match read::named(run)? {
        Some(run) => Ok(Some(run.dir().to_owned())),
        None => bail!(
            "the signature is good, and this node keeps no run {:?}: name its directory with --dir, or check the signature alone \
             with --signature-only",
            escape(run)
        ),
    }
}

/// The result, for people.
fn page(statement: &Statement, dir: Option<&Path>, files: &[(String, FileState)]) -> String {
    let receipt = &statement.predicate;
    let mut page = String::from("the signature is good\n");
    let mut line = |name: &str, text: &str| {
        writeln!(page, "{name}: {}", escape(text)).expect("a String takes every text");
    };
    for fault in &receipt.faults {
        line("THE LOG WAS NOT WHOLE", fault.as_str());
    }
    let container = &receipt.container;
    let mut who = container.container.to_string();
    let parts = [
        &container.namespace,
        &container.pod,
        &container.name,
        &container.image,
    ];
    for part in parts.into_iter().flatten() {
        who = format!("{who}, {part}");
    }
    line("container", &who);
    if container.learn {
        let words = "public names that no rule lists were allowed (report.learn)";
        line("LEARN MODE", words);
    }
    match (&container.policy, &container.policy_hash) {
        (Some(policy), Some(hash)) => line("policy", &format!("{policy}, sha256:{hash}")),
        _ => line("policy", "unconfined: there were no walls"),
    }
    let version = format!("{}, commit {}", receipt.version, receipt.commit);
    line("agentbox", &version);
    line("kernel", &receipt.kernel);
    let times = &receipt.times;
    let known = [
        ("created", &times.created),
        ("started", &times.started),
        ("ended", &times.ended),
    ];
    for (name, time) in known {
        if let Some(time) = time {
            line(name, time);
        }
    }
    if let Some(exit) = receipt.exit {
        line("exit status", &exit.to_string());
    }
    if let Some(verified) = &receipt.verified {
        let mut words = format!(
            "{}, {} attempts held off, at {}",
            verified.result, verified.held, verified.time
        );
        for (list, name) in [
            (&verified.not_held, "not held"),
            (&verified.not_tried, "not tried"),
        ] {
            if !list.is_empty() {
                words = format!("{words}; {name}: {}", list.join(", "));
            }
        }
        line("verified by trying", &words);
    }
    for log in &receipt.log {
        let counts: Vec<String> = log
            .counts
            .iter()
            .map(|(kind, count)| format!("{count} {kind}"))
            .collect();
        line(&log.end.file, &counts.join(", "));
    }
    let Some(dir) = dir else {
        line("files", "not compared (--signature-only)");
        return page;
    };
    line("files", &dir.display().to_string());
    for (name, held) in files {
        line(&format!("  {name}"), held.words());
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::TestDir;

    #[test]
    fn a_receipt_that_is_no_file_is_refused_at_once() {
        let scratch = TestDir::new("receipt");
        let path = scratch.0.join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(text(&path).unwrap_err().to_string().contains("not a file"));
        let file = scratch.0.join("file");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(text(&file).unwrap(), "x");
    }
}
