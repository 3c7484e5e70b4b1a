//! The man pages and completions of the command line, for hack/package: an example, so that the program carries neither them nor
//! what writes them.
//!
//!   cargo run --example reference -- DIR

use std::error::Error;
use std::fs;
use std::path::Path;

use clap_complete::{Shell, generate_to};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args_os().nth(1).ok_or("usage: reference DIR")?;
    let directory = Path::new(&directory);
    let man = directory.join("man");
    fs::create_dir_all(&man)?;
    clap_mangen::generate_to(agentbox::cli::command(), &man)?;
    let completions = directory.join("completions");
    fs::create_dir_all(&completions)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(
            shell,
            &mut agentbox::cli::command(),
            "agentbox",
            &completions,
        )?;
    }
    Ok(())
}
