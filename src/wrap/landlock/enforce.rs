//! SHELL. Runs in the command's process: enters the walls one by one, then executes the command.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::Signal;

use super::domain::{self, DomainSetup};
use super::rules::{LandlockAccess, LandlockRule};
use crate::enforce::program::ContainerProgram;
use crate::enforce::{privileges, verify};
use crate::plan::CapabilitySets;
use crate::runtime::foreground::relay::Stdio;
use crate::seccomp::SyscallFilter;
use crate::sys::{kernel, process, seccomp, socket};

/// The walls around the command, made before its process.
pub struct LandlockSetup {
    /// The ruleset, with its rules.
    pub ruleset: RulesetCreated,
    /// The filter.
    pub filter: SyscallFilter,
    /// The process's capabilities.
    pub capabilities: CapabilitySets,
    /// What ends all processes of the run, where the kernel has scopes for signals.
    pub domain: Option<DomainSetup>,
    /// The standard streams that are not the caller's.
    pub stdio: Stdio,
}

/// The command to execute.
pub struct LandlockCommand {
    /// The program's file.
    pub file: PathBuf,
    /// Program and arguments.
    pub arguments: Vec<String>,
    /// The environment.
    pub environment: Vec<String>,
    /// The working directory.
    pub directory: PathBuf,
}

/// Makes the ruleset. `abi` is the kernel's; all of it is required. `ports` are those to connect to: the proxy's, and
/// those of services, at any address of the loopback interface, to which `wrap` binds each socket.
pub fn ruleset(rules: &[LandlockRule], ports: &[u16], abi: u32) -> Result<RulesetCreated> {
    let abi = ABI::from(i32::try_from(abi).unwrap_or(i32::MAX));
    let made = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(abi))
        .and_then(|r| r.handle_access(AccessNet::from_all(abi)))
        .context("ask for Landlock's rules on files and ports")?;
    let scopes = Scope::from_all(abi);
    let made = match scopes.is_empty() {
        true => Ok(made),
        false => made.scope(scopes),
    };
    let mut made = made
        .and_then(Ruleset::create)
        .context("make the Landlock ruleset")?;
    for rule in rules {
        if let Some(file) = open(rule)? {
            let access = rights(rule.access, &file, abi)?;
            made = made
                .add_rule(PathBeneath::new(file, access))
                .with_context(|| format!("add the Landlock rule for {:?}", rule.path))?;
        }
    }
    for port in ports {
        made = made
            .add_rule(NetPort::new(*port, AccessNet::ConnectTcp))
            .with_context(|| format!("add the Landlock rule for port {port}"))?;
    }
    Ok(made)
}

/// Opens the target of a rule. `None` if an unjudged target does not exist, or if a part was removed or replaced
/// meanwhile.
pub(super) fn open(rule: &LandlockRule) -> Result<Option<OwnedFd>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(CWD, &rule.path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NXIO)
            if rule.part || rule.judged.is_none() =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(|| format!("open {:?}", rule.path)),
    };
    if let Some(judged) = &rule.judged {
        let stat = rustix::fs::fstat(&file).with_context(|| format!("look at {:?}", rule.path))?;
        let is_other = (stat.st_dev, stat.st_ino) != (judged.dev, judged.ino);
        if is_other && rule.part {
            return Ok(None);
        }
        if is_other {
            bail!("{:?} changed after it was checked", rule.path);
        }
    }
    Ok(Some(file))
}

/// The kernel's rights; for a file, only those that apply to files.
fn rights(access: LandlockAccess, file: &OwnedFd, abi: ABI) -> Result<BitFlags<AccessFs>> {
    let all = AccessFs::from_all(abi);
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    // Nowhere may the command make device nodes. In directories it may send no device ioctl.
    let write = (AccessFs::from_write(abi)
        & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev))
        & !AccessFs::from_read(ABI::V1);
    let wanted = match access {
        LandlockAccess::Read => read,
        LandlockAccess::ReadExecute => read | AccessFs::Execute,
        LandlockAccess::ReadWrite => read | write,
        LandlockAccess::ReadWriteExecute => read | write | AccessFs::Execute,
        LandlockAccess::Device => AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev,
    };
    let stat = rustix::fs::fstat(file).context("look at what a rule is for")?;
    let is_directory = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
    Ok(match is_directory {
        true => wanted & all,
        false => wanted & all & AccessFs::from_file(abi),
    })
}

/// Enters the walls, sends the filter's listener to wrap, and executes the command. Returns only on failure.
pub fn execute(
    walls: LandlockSetup,
    command: &LandlockCommand,
    out: &OwnedFd,
) -> Result<std::convert::Infallible> {
    let LandlockSetup {
        ruleset,
        filter,
        capabilities,
        domain,
        stdio,
    } = walls;
    // If wrap dies, this process dies too. This process's children are ended by wrap.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .context("end with wrap")?;
    if rustix::process::getppid().is_none() {
        bail!("wrap is gone");
    }
    kernel::limit_core().context("set the limit of core files")?;
    enter(&command.directory)?;
    privileges::drop_to(&capabilities)?;
    privileges::set_no_new_privs()?;
    set(&stdio).context("set the standard streams")?;
    process::close_on_exec_from(3).context("close inherited descriptors")?;
    if let Some(domain) = domain {
        domain::enter(domain)?;
    }
    let status = ruleset
        .restrict_self()
        .context("enter the Landlock domain")?;
    if status.ruleset != RulesetStatus::FullyEnforced {
        bail!(
            "Landlock holds only a part of its rules: {:?}",
            status.ruleset
        );
    }
    verify_files()?;
    verify::capabilities(&capabilities)?;
    verify::no_new_privs()?;
    let listener = seccomp::load(&filter.program, filter.flags).map_err(no_listener)?;
    let listener = listener.context("the filter has no listener")?;
    socket::send(out.as_fd(), b"L", &[listener.as_fd()]).context("send the listener to wrap")?;
    drop(listener);
    verify::seccomp()?;
    Err(ContainerProgram::Named
        .execute(&command.file, &command.arguments, &command.environment)
        .into())
}

/// Loads a filter with a listener in a separate process, so that other walls around this one are reported at once.
pub fn try_to_listen() -> Result<()> {
    // A filter that never asks its listener: SECCOMP_RET_ALLOW for all.
    let allow = crate::seccomp::Instruction {
        code: 0x06,
        jt: 0,
        jf: 0,
        k: 0x7fff_0000,
    };
    let program = crate::seccomp::FilterProgram::new(vec![allow]).context("make a filter")?;
    let child = process::fork_into(|| {
        let loaded = rustix::thread::set_no_new_privs(true)
            .map_err(std::io::Error::from)
            .and_then(|()| seccomp::load(&program, NEW_LISTENER));
        match loaded {
            Ok(_) => 0,
            Err(error) => error.raw_os_error().unwrap_or(libc::EPERM),
        }
    })
    .context("make a process")?;
    let ended = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty());
    let code = ended
        .context("wait for a process")?
        .and_then(|(_, s)| s.exit_status());
    match code {
        Some(0) => Ok(()),
        code => Err(no_listener(std::io::Error::from_raw_os_error(
            code.unwrap_or(libc::EPERM),
        ))),
    }
}

/// `SECCOMP_FILTER_FLAG_NEW_LISTENER`
const NEW_LISTENER: u64 = 1 << 3;

/// Why a listener is not possible. `wrap` itself names a sandbox of agentbox around it ([`crate::runtime::unprivileged`]).
fn no_listener(error: std::io::Error) -> anyhow::Error {
    anyhow!(error).context(
        "`--walls landlock` needs a seccomp listener, which the kernel, a filter or another listener forbids: use other walls",
    )
}

fn set([input, output, error]: &Stdio) -> rustix::io::Result<()> {
    input.as_ref().map_or(Ok(()), rustix::stdio::dup2_stdin)?;
    output.as_ref().map_or(Ok(()), rustix::stdio::dup2_stdout)?;
    error.as_ref().map_or(Ok(()), rustix::stdio::dup2_stderr)
}

fn enter(directory: &Path) -> Result<()> {
    std::env::set_current_dir(directory).with_context(|| format!("enter {directory:?}"))
}

/// Checks that Landlock is in force: no rule covers the root directory, so listing it must fail.
fn verify_files() -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open("/", flags, Mode::empty()) {
        Err(rustix::io::Errno::ACCESS) => Ok(()),
        opened => bail!("Landlock was set, but the root can be opened: {opened:?}"),
    }
}
