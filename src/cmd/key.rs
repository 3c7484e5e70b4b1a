//! `key`

use std::process::ExitCode;

use anyhow::Result;

use crate::cmd::out;
use crate::runtime::runs::receipt;

/// Makes the key that signs receipts, where there is none, and prints its public half.
pub fn run() -> Result<ExitCode> {
    let key = receipt::make_key()?;
    out::text(&key.public().to_pem())?;
    Ok(ExitCode::SUCCESS)
}
