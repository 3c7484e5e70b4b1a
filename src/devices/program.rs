//! Compiles a table to eBPF (Documentation/bpf/standardization/instruction-set.rst).

use super::{DefaultAccess, DeviceAccess, DeviceTable};

/// `struct bpf_insn`
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceInstruction {
    /// The operation.
    pub code: u8,
    /// Destination register in the low half, source register in the high one.
    pub registers: u8,
    /// How many instructions to skip, or a memory offset.
    pub offset: i16,
    /// The operand.
    pub immediate: i32,
}

/// A program that returns 1 for an allowed access, and 0 otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceProgram(Vec<DeviceInstruction>);

impl DeviceProgram {
    /// The instructions, at least two.
    pub fn instructions(&self) -> &[DeviceInstruction] {
        &self.0
    }
}

/// `BPF_LDX | BPF_MEM | BPF_W`
pub(super) const LOAD: u8 = 0x61;
/// `BPF_ALU | BPF_MOV | BPF_X`
pub(super) const COPY: u8 = 0xbc;
/// `BPF_ALU | BPF_MOV | BPF_K`
pub(super) const SET: u8 = 0xb4;
/// `BPF_ALU | BPF_AND | BPF_K`
pub(super) const AND: u8 = 0x54;
/// `BPF_ALU | BPF_RSH | BPF_K`
pub(super) const SHIFT_RIGHT: u8 = 0x74;
/// `BPF_JMP32 | BPF_JEQ | BPF_K`
pub(super) const JUMP_EQUAL: u8 = 0x16;
/// `BPF_JMP32 | BPF_JNE | BPF_K`
pub(super) const JUMP_UNEQUAL: u8 = 0x56;
/// `BPF_JMP32 | BPF_JNE | BPF_X`
pub(super) const JUMP_UNEQUAL_REGISTER: u8 = 0x5e;
/// `BPF_JMP | BPF_EXIT`
pub(super) const EXIT: u8 = 0x95;

/// The kernel's context, `struct bpf_cgroup_dev_ctx`; scratch once it is read.
const CONTEXT: u8 = 1;
const KIND: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;
const ANSWER: u8 = 0;

fn one(code: u8, to: u8, from: u8, offset: i16, immediate: u32) -> DeviceInstruction {
    DeviceInstruction {
        code,
        registers: to | from << 4,
        offset,
        immediate: immediate.cast_signed(),
    }
}

fn answer(value: u32) -> [DeviceInstruction; 2] {
    [one(SET, ANSWER, 0, 0, value), one(EXIT, 0, 0, 0, 0)]
}

pub(super) fn compile(table: &DeviceTable) -> DeviceProgram {
    let (excepted, otherwise) = match table.otherwise {
        DefaultAccess::Allow => (0, 1),
        DefaultAccess::Deny => (1, 0),
    };
    // access_type: the kind in its low half, the access in its high one.
    let mut all = vec![
        one(LOAD, KIND, CONTEXT, 0, 0),
        one(COPY, ACCESS, KIND, 0, 0),
        one(AND, KIND, 0, 0, 0xffff),
        one(SHIFT_RIGHT, ACCESS, 0, 0, 16),
        one(LOAD, MAJOR, CONTEXT, 4, 0),
        one(LOAD, MINOR, CONTEXT, 8, 0),
    ];
    for (devices, access) in &table.exceptions {
        let mut tests = vec![one(JUMP_UNEQUAL, KIND, 0, 0, devices.kind as u32)];
        if *access != DeviceAccess::ALL {
            tests.push(one(COPY, CONTEXT, ACCESS, 0, 0));
            tests.push(one(AND, CONTEXT, 0, 0, access.bits()));
            tests.push(match table.otherwise {
                DefaultAccess::Deny => one(JUMP_UNEQUAL_REGISTER, CONTEXT, ACCESS, 0, 0),
                DefaultAccess::Allow => one(JUMP_EQUAL, CONTEXT, 0, 0, 0),
            });
        }
        for (register, number) in [(MAJOR, devices.major), (MINOR, devices.minor)] {
            tests.extend(number.map(|number| one(JUMP_UNEQUAL, register, 0, 0, number)));
        }
        // Each failed test skips the remaining ones and the result.
        let end = tests.len() + 2;
        for (at, test) in tests.iter_mut().enumerate() {
            let jumps = [JUMP_EQUAL, JUMP_UNEQUAL, JUMP_UNEQUAL_REGISTER].contains(&test.code);
            if jumps {
                // Below ten: at most seven tests, and two.
                test.offset = (end - at - 1) as i16;
            }
        }
        all.extend(tests);
        all.extend(answer(excepted));
    }
    all.extend(answer(otherwise));
    DeviceProgram(all)
}
