//! A classic BPF program for seccomp(2): the instructions that filters use, checked once when it is made.

/// `struct sock_filter`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instruction {
    /// The operation.
    pub code: u16,
    /// How many instructions to skip if a comparison is true.
    pub jt: u8,
    /// How many to skip if it is false.
    pub jf: u8,
    /// The operand.
    pub k: u32,
}

/// `BPF_MAXINSNS`
pub const MAX_INSTRUCTIONS: usize = 4096;

/// `BPF_LD | BPF_W | BPF_ABS`: a word of `struct seccomp_data` into the accumulator.
pub(super) const LOAD: u16 = 0x20;
/// `BPF_ALU | BPF_AND | BPF_K`
pub(super) const AND: u16 = 0x54;
/// `BPF_JMP | BPF_JA`
pub(super) const JUMP: u16 = 0x05;
/// `BPF_JMP | BPF_JEQ | BPF_K`
pub(super) const JUMP_EQ: u16 = 0x15;
/// `BPF_JMP | BPF_JGT | BPF_K`
pub(super) const JUMP_GT: u16 = 0x25;
/// `BPF_JMP | BPF_JGE | BPF_K`
pub(super) const JUMP_GE: u16 = 0x35;
/// `BPF_JMP | BPF_JSET | BPF_K`
pub(super) const JUMP_SET: u16 = 0x45;
/// `BPF_RET | BPF_K`
pub(super) const RETURN: u16 = 0x06;

/// `sizeof(struct seccomp_data)`
const DATA_BYTES: u32 = 64;

/// A filter that the kernel accepts: neither empty nor too long; every jump lands, every path returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilterProgram(Vec<Instruction>);

/// Why a sequence of instructions is not a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// An empty program: readers could take it for allow-all or deny-all.
    #[error("the program is empty")]
    Empty,
    /// `BPF_MAXINSNS`
    #[error("the program has {have} instructions, the kernel takes {MAX_INSTRUCTIONS}")]
    TooLong {
        /// how many there are
        have: usize,
    },
    /// The bytes are not whole instructions.
    #[error("{0} bytes are not a whole number of instructions")]
    Cut(usize),
    /// An instruction that our filters do not use, a load outside the data, a jump outside the program, or no return at
    /// the end.
    #[error("instruction {0} is not one of a filter")]
    Malformed(usize),
}

impl FilterProgram {
    /// Checks the instructions.
    pub fn new(instructions: Vec<Instruction>) -> Result<Self, ProgramError> {
        let have = instructions.len();
        match have {
            0 => return Err(ProgramError::Empty),
            1..=MAX_INSTRUCTIONS => {}
            _ => return Err(ProgramError::TooLong { have }),
        }
        for (at, instruction) in instructions.iter().enumerate() {
            // The number of instructions after this one: a jump may skip all but the last.
            let room = have - at - 1;
            let good = match instruction.code {
                LOAD => instruction.k % 4 == 0 && instruction.k < DATA_BYTES && room > 0,
                AND => room > 0,
                JUMP => usize::try_from(instruction.k).is_ok_and(|skip| skip < room),
                JUMP_EQ | JUMP_GT | JUMP_GE | JUMP_SET => {
                    usize::from(instruction.jt.max(instruction.jf)) < room
                }
                RETURN => true,
                _ => false,
            };
            if !good {
                return Err(ProgramError::Malformed(at));
            }
        }
        Ok(FilterProgram(instructions))
    }

    /// The instructions, at least one and at most 4,096.
    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    /// The kernel's bytes, to be saved in a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.0.len() * 8);
        for instruction in &self.0 {
            bytes.extend_from_slice(&instruction.code.to_ne_bytes());
            bytes.extend_from_slice(&[instruction.jt, instruction.jf]);
            bytes.extend_from_slice(&instruction.k.to_ne_bytes());
        }
        bytes
    }

    /// A program from the bytes of [`FilterProgram::to_bytes`], checked again.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ProgramError> {
        let chunks = bytes.chunks_exact(8);
        if !chunks.remainder().is_empty() {
            return Err(ProgramError::Cut(bytes.len()));
        }
        let instruction = |chunk: &[u8]| Instruction {
            code: u16::from_ne_bytes([chunk[0], chunk[1]]),
            jt: chunk[2],
            jf: chunk[3],
            k: u32::from_ne_bytes([chunk[4], chunk[5], chunk[6], chunk[7]]),
        };
        FilterProgram::new(chunks.map(instruction).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOW: Instruction = Instruction {
        code: RETURN,
        jt: 0,
        jf: 0,
        k: 0x7fff_0000,
    };

    #[test]
    fn an_empty_program_is_an_error() {
        assert_eq!(FilterProgram::new(Vec::new()), Err(ProgramError::Empty));
        assert_eq!(FilterProgram::from_bytes(&[]), Err(ProgramError::Empty));
    }

    #[test]
    fn refuses_what_the_kernel_would_refuse() {
        let load = |k| Instruction {
            code: LOAD,
            jt: 0,
            jf: 0,
            k,
        };
        let jump = |jt| Instruction {
            code: JUMP_EQ,
            jt,
            jf: 0,
            k: 0,
        };
        for (program, at) in [
            (vec![load(0)], 0),
            (vec![load(64), ALLOW], 0),
            (vec![load(2), ALLOW], 0),
            (vec![jump(1), ALLOW], 0),
            (
                vec![
                    load(0),
                    Instruction {
                        code: JUMP,
                        k: 1,
                        ..ALLOW
                    },
                    ALLOW,
                ],
                1,
            ),
            (
                vec![
                    Instruction {
                        code: 0x07,
                        ..ALLOW
                    },
                    ALLOW,
                ],
                0,
            ),
        ] {
            assert_eq!(
                FilterProgram::new(program),
                Err(ProgramError::Malformed(at))
            );
        }
        assert_eq!(
            FilterProgram::new(vec![ALLOW; 4097]),
            Err(ProgramError::TooLong { have: 4097 })
        );
        assert!(FilterProgram::new(vec![jump(0), ALLOW]).is_ok());
    }

    #[test]
    fn survives_a_file_and_notices_a_cut() {
        let program = FilterProgram::new(vec![
            Instruction {
                code: LOAD,
                jt: 0,
                jf: 0,
                k: 4,
            },
            ALLOW,
        ])
        .unwrap();
        let bytes = program.to_bytes();
        assert_eq!(FilterProgram::from_bytes(&bytes), Ok(program));
        assert_eq!(
            FilterProgram::from_bytes(&bytes[..15]),
            Err(ProgramError::Cut(15))
        );
        assert_eq!(
            FilterProgram::from_bytes(&bytes[..8]),
            Err(ProgramError::Malformed(0))
        );
    }
}
