//! `key`

use std::process::ExitCode;

use anyhow::Result;

use crate::cmd::out;
use crate::runtime::runs::receipt;

/// Prints the public key of receipts. Makes the key if there is none.
pub fn run() -> Result<ExitCode> {
    let key = receipt::make_key()?;
    out::text(&key.public().to_pem())?;
    Ok(ExitCode::SUCCESS)
}
