//! agentbox: an OCI runtime that sandboxes AI agents. No daemon, no second container, no change to the image.
//!
//! ```text
//!  PURE (no root, no clock, no files)                                SHELL (thin, ordered)
//!  annotations + policies/*.toml + node file --resolve--> Policy
//!  bundle/config.json ------------------------parse----> Spec --+
//!  kernel, bundle's files --------------------probe----> Facts --+-- plan() --> Plan (saved with the state)
//!                                                                    |
//!         render: spec -> shadow bundle | BPF program | files | explanation
//!  create: probe -> plan -> sidecar, inner network namespace -> shadow bundle -> libcontainer (our Executor)
//!  start:  release init; in init, last thing before execve, our Executor, each step read back from the kernel:
//!          inner namespace -> keyring -> no_new_privs -> capabilities -> filter -> execve; `start` waits for that
//!  exec:   process.json through the same limits -> the same Executor in init's namespaces -> the same walls
//!  delete: from the saved record, idempotent, also after SIGKILL of anything
//! ```
//!
//! The **policy** is the operator's request, the **plan** the decision for one container, the **spec** an OCI
//! config.json. **init** is the container's init process, an **exec process** one that `exec` starts. The **sidecar** is the
//! process outside the container that holds its ways out and its log. A **wall** is one dimension of enforcement. docs/design.md has the picture of
//! the processes, the order of steps with its reasons, and a table of where to look.
//!
//! | Module | Purpose | May |
//! |---|---|---|
//! | [`engines`] | Docker, containerd, podman, CRI-O, kubelets: annotations, roots, directories | only compute |
//! | [`data`] | the program's own tables: policies/**/*.toml | only compute |
//! | [`text`] | quotes, bounds and escapes words of others | only compute |
//! | [`rules`] | network rules, requests -> verdicts | only compute |
//! | [`policy`] | text -> [`policy::Policy`] | only compute |
//! | [`plan`] | policy, spec, facts -> [`plan::Plan`] | only compute |
//! | [`seccomp`] | rules and the engine's profile -> one program | only compute |
//! | [`egress`] | what clients send -> hosts, requests, refusals | only compute |
//! | [`devices`] | device rules -> a program for cgroup v2 | only compute |
//! | [`audit`] | events -> lines in a hash chain, and a run -> a signed statement; and back | only compute |
//! | [`render`] | plan -> spec, files, text | only compute |
//! | [`kernel`] | terms of the kernel's interfaces that several modules share | only compute |
//! | [`probe`] | kernel and files -> facts | read |
//! | [`scratch`] | the scratch disk, overlays | make them, in a child |
//! | [`runtime`] | the life of a container | everything, in order |
//! | [`cgroup`] | cgroups of both versions: places, limits, statistics, devices | read and write cgroups |
//! | [`enforce`] | in the container's process, before execve | only restrict |
//! | [`network`] | the inner network namespace | in its own child |
//! | [`sidecar`] | the helper processes: sidecar, reader, warden, timekeeper, relays | in their own processes |
//! | [`wrap`] | `agentbox wrap`: a bundle from the host itself | everything, in order |
//! | [`verify`] | `agentbox verify`: attacks, tried in a sandbox | try, in children with a time limit |
//! | [`doctor`] | `agentbox doctor`: what this node lacks | read, and try in a child |
//! | [`indexes`] | package managers of the node -> presets | run them, ask once |
//! | [`install`] | `agentbox install`: registration with engines, and its removal | write files of root's |
//! | [`sys`] | system calls, the only `unsafe` | make them, and decide nothing |
//! | [`cli`] | the command line as plain data, and its help | parse |
//! | [`log`] | the log for engines, and sentences for users | write one line each |
//! | [`cmd`] | one verb each | print |

pub mod audit;
mod cgroup;
pub mod cli;
pub mod cmd;
mod data;
mod devices;
mod doctor;
pub mod egress;
mod enforce;
mod engines;
mod indexes;
mod install;
pub mod kernel;
pub mod log;
pub mod network;
pub mod plan;
pub mod policy;
pub mod probe;
pub mod render;
pub mod rules;
pub mod runtime;
mod scratch;
pub mod seccomp;
pub mod sidecar;
pub mod sys;
mod text;
pub mod verify;
mod wrap;
