//! Runs a filter outside the kernel: for tests, for `explain`, and to find the errno of a denied call.

use std::collections::BTreeSet;

use super::program::{
    AND, FilterProgram, Instruction, JUMP, JUMP_EQ, JUMP_GE, JUMP_GT, JUMP_SET, LOAD, RETURN,
};
use super::rule::SyscallVerdict;

/// `AUDIT_ARCH_X86_64`
pub const ARCH_X86_64: u32 = 0xc000_003e;
/// `AUDIT_ARCH_I386`
pub const ARCH_I386: u32 = 0x4000_0003;

/// Offset of the number in `struct seccomp_data`.
pub(super) const NUMBER: u32 = 0;
/// Offset of the architecture in `struct seccomp_data`.
pub(super) const ARCH: u32 = 4;
/// Offset of the first argument in `struct seccomp_data`; each has eight bytes, low half first.
pub(super) const ARGS: u32 = 16;

/// `struct seccomp_data` without the instruction pointer, which our filters do not read (it reads as 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyscallData {
    /// The number, with `__X32_SYSCALL_BIT` for an x32 call.
    pub number: u32,
    /// [`ARCH_X86_64`] or [`ARCH_I386`].
    pub arch: u32,
    /// The arguments, as in the registers.
    pub args: [u64; 6],
}

impl SyscallData {
    fn word(&self, offset: u32) -> u32 {
        match offset {
            NUMBER => self.number,
            ARCH => self.arch,
            ARGS.. => {
                let index = (offset - ARGS) as usize;
                self.args
                    .get(index / 8)
                    .map_or(0, |arg| (arg >> (8 * (index % 8))) as u32)
            }
            _ => 0,
        }
    }
}

/// Whether the comparison of a conditional jump is true; `None` for any other instruction.
fn compare(instruction: &Instruction, accumulator: u32) -> Option<bool> {
    match instruction.code {
        JUMP_EQ => Some(accumulator == instruction.k),
        JUMP_GT => Some(accumulator > instruction.k),
        JUMP_GE => Some(accumulator >= instruction.k),
        JUMP_SET => Some(accumulator & instruction.k != 0),
        _ => None,
    }
}

/// The filter's verdict about the call.
pub fn run(program: &FilterProgram, call: &SyscallData) -> SyscallVerdict {
    let instructions = program.instructions();
    let (mut at, mut accumulator) = (0, 0);
    // This ends, because every jump goes forward, and in a `FilterProgram` every path returns.
    while let Some(instruction) = instructions.get(at) {
        match instruction.code {
            LOAD => accumulator = call.word(instruction.k),
            AND => accumulator &= instruction.k,
            JUMP => at += instruction.k as usize,
            RETURN => return SyscallVerdict::from_raw(instruction.k),
            _ => match compare(instruction, accumulator) {
                Some(true) => at += usize::from(instruction.jt),
                Some(false) => at += usize::from(instruction.jf),
                None => return SyscallVerdict::KillProcess,
            },
        }
        at += 1;
    }
    SyscallVerdict::KillProcess
}

/// All possible verdicts about this call; with a single one, arguments do not matter.
///
/// It is a superset if two tests of one argument exclude each other, like the kernel's own cache.
pub fn outcomes(program: &FilterProgram, arch: u32, number: u32) -> BTreeSet<SyscallVerdict> {
    let instructions = program.instructions();
    let call = SyscallData {
        number,
        arch,
        args: [0; 6],
    };
    let mut verdicts = BTreeSet::new();
    let mut seen = BTreeSet::new();
    // The accumulator is `None` if it holds an argument.
    let mut todo = vec![(0_usize, Some(0_u32))];
    while let Some((at, accumulator)) = todo.pop() {
        let Some(instruction) = instructions.get(at) else {
            continue;
        };
        if !seen.insert((at, accumulator)) {
            continue;
        }
        match instruction.code {
            LOAD if instruction.k < ARGS => todo.push((at + 1, Some(call.word(instruction.k)))),
            LOAD => todo.push((at + 1, None)),
            AND => todo.push((at + 1, accumulator.map(|value| value & instruction.k))),
            JUMP => todo.push((at + 1 + instruction.k as usize, accumulator)),
            RETURN => {
                verdicts.insert(SyscallVerdict::from_raw(instruction.k));
            }
            _ => {
                let holds = accumulator.and_then(|value| compare(instruction, value));
                if holds != Some(false) {
                    todo.push((at + 1 + usize::from(instruction.jt), accumulator));
                }
                if holds != Some(true) {
                    todo.push((at + 1 + usize::from(instruction.jf), accumulator));
                }
            }
        }
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(lines: &[(u16, u8, u8, u32)]) -> FilterProgram {
        FilterProgram::new(
            lines
                .iter()
                .map(|&(code, jt, jf, k)| Instruction { code, jt, jf, k })
                .collect(),
        )
        .unwrap()
    }

    #[test]
    fn reads_each_half_of_each_argument() {
        let args = [0x1_0000_0002, 0x3_0000_0004, 5, 6, 7, 0x8_0000_0009];
        let call = SyscallData {
            number: 41,
            arch: ARCH_X86_64,
            args,
        };
        let words: Vec<u32> = (0..16).map(|index| call.word(4 * index)).collect();
        assert_eq!(
            words,
            [41, ARCH_X86_64, 0, 0, 2, 1, 4, 3, 5, 0, 6, 0, 7, 0, 9, 8]
        );
    }

    #[test]
    fn every_instruction_does_what_the_kernel_does() {
        // if (nr & 0xff) == 7 allow, else if nr > 9 errno 1, else if nr >= 5 errno 2, else if nr & 1 errno 3, else trap
        let program = program(&[
            (LOAD, 0, 0, 0),
            (AND, 0, 0, 0xff),
            (JUMP_EQ, 0, 1, 7),
            (RETURN, 0, 0, 0x7fff_0000),
            (LOAD, 0, 0, 0),
            (JUMP_GT, 3, 0, 9),
            (JUMP_GE, 3, 0, 5),
            (JUMP_SET, 3, 0, 1),
            (JUMP, 0, 0, 3),
            (RETURN, 0, 0, 0x0005_0001),
            (RETURN, 0, 0, 0x0005_0002),
            (RETURN, 0, 0, 0x0005_0003),
            (RETURN, 0, 0, 0x0003_0000),
        ]);
        let verdict = |number| {
            run(
                &program,
                &SyscallData {
                    number,
                    arch: ARCH_X86_64,
                    args: [0; 6],
                },
            )
        };
        assert_eq!(verdict(0x107), SyscallVerdict::Allow);
        assert_eq!(verdict(10), SyscallVerdict::Errno(1));
        assert_eq!(verdict(5), SyscallVerdict::Errno(2));
        assert_eq!(verdict(3), SyscallVerdict::Errno(3));
        assert_eq!(verdict(2), SyscallVerdict::Trap);
    }

    #[test]
    fn outcomes_follow_both_ways_only_where_an_argument_decides() {
        let program = program(&[
            (LOAD, 0, 0, 0),
            (JUMP_EQ, 0, 2, 1),
            (LOAD, 0, 0, 16),
            (JUMP_EQ, 1, 0, 5),
            (RETURN, 0, 0, 0x0005_0001),
            (RETURN, 0, 0, 0x7fff_0000),
        ]);
        assert_eq!(
            outcomes(&program, ARCH_X86_64, 1),
            BTreeSet::from([SyscallVerdict::Errno(1), SyscallVerdict::Allow])
        );
        assert_eq!(
            outcomes(&program, ARCH_X86_64, 2),
            BTreeSet::from([SyscallVerdict::Errno(1)])
        );
    }
}
