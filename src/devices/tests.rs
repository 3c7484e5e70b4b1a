//! Compares rules with the controller of cgroup v1, and programs with the rules.

use super::program::{
    AND, COPY, EXIT, JUMP_EQUAL, JUMP_UNEQUAL, JUMP_UNEQUAL_REGISTER, LOAD, SET, SHIFT_RIGHT,
};
use super::*;

/// `allow c 1:3 rw`, as written to the files of cgroup v1.
fn rule(text: &str) -> LinuxDeviceCgroup {
    let words: Vec<&str> = text.split([' ', ':']).collect();
    let mut rule = LinuxDeviceCgroup::default();
    rule.set_allow(words[0] == "allow");
    rule.set_typ(Some(match words[1] {
        "a" => LinuxDeviceType::A,
        "b" => LinuxDeviceType::B,
        "c" => LinuxDeviceType::C,
        _ => LinuxDeviceType::U,
    }));
    if let [major, minor, access] = words[2..] {
        rule.set_major(major.parse().ok());
        rule.set_minor(minor.parse().ok());
        rule.set_access(Some(access.to_owned()));
    }
    rule
}

fn table(rules: &[&str]) -> Result<DeviceTable, DeviceError> {
    let rules: Vec<LinuxDeviceCgroup> = rules.iter().map(|text| rule(text)).collect();
    DeviceTable::new(&rules)
}

/// Runs a program as the kernel would.
fn run(
    program: &DeviceProgram,
    kind: DeviceKind,
    major: u32,
    minor: u32,
    access: DeviceAccess,
) -> bool {
    let context = [access.bits() << 16 | kind as u32, major, minor];
    let mut registers = [0_u32; 11];
    let mut at = 0;
    loop {
        let DeviceInstruction {
            code,
            registers: both,
            offset,
            immediate,
        } = program.instructions()[at];
        let (to, from) = (usize::from(both & 15), usize::from(both >> 4));
        let value = immediate.cast_unsigned();
        at += 1;
        let jumps = match code {
            LOAD => {
                assert_eq!(from, 1);
                registers[to] = context[usize::try_from(offset).unwrap() / 4];
                false
            }
            COPY => {
                registers[to] = registers[from];
                false
            }
            SET => {
                registers[to] = value;
                false
            }
            AND => {
                registers[to] &= value;
                false
            }
            SHIFT_RIGHT => {
                registers[to] >>= value;
                false
            }
            JUMP_EQUAL => registers[to] == value,
            JUMP_UNEQUAL => registers[to] != value,
            JUMP_UNEQUAL_REGISTER => registers[to] != registers[from],
            EXIT => return registers[0] == 1,
            _ => panic!("{code:#x} is no instruction of ours"),
        };
        if jumps {
            at += usize::try_from(offset).unwrap();
        }
    }
}

const READ: DeviceAccess = DeviceAccess(2);
const WRITE: DeviceAccess = DeviceAccess(4);
const MAKE: DeviceAccess = DeviceAccess(1);
const BOTH: DeviceAccess = DeviceAccess(6);
use DeviceKind::{Block, Character};

#[test]
fn rules_have_the_result_of_cgroup_v1() {
    let null = |access| (Character, 1, 3, access);
    let disk = |access| (Block, 8, 0, access);
    for (rules, (kind, major, minor, access), allowed) in [
        // Without a rule nothing is allowed.
        (&[][..], null(READ), false),
        (&["allow a"], disk(BOTH), true),
        (&["deny a", "allow c 1:3 rw"], null(BOTH), true),
        (&["deny a", "allow c 1:3 rw"], null(MAKE), false),
        (&["deny a", "allow c 1:3 rw"], disk(READ), false),
        // One exception must cover the whole access; two do not add up unless they name the same devices.
        (&["allow c 1:3 r", "allow c 1:3 w"], null(BOTH), true),
        (&["allow c 1:3 r", "allow c 1:* w"], null(BOTH), false),
        (&["allow c 1:* r", "allow b 8:* rwm"], disk(WRITE), true),
        (&["allow c *:3 r"], null(READ), true),
        (&["allow c 1:3 rwm", "deny c 1:3 w"], null(WRITE), false),
        (&["allow c 1:3 rwm", "deny c 1:3 w"], null(READ), true),
        // Removing an access that was never granted does nothing.
        (&["allow c 1:3 rwm", "deny c 1:5 w"], null(WRITE), true),
        // A denied part denies the whole access.
        (&["allow a", "deny b 8:0 w"], disk(BOTH), false),
        (&["allow a", "deny b 8:0 w"], disk(READ), true),
        (&["allow a", "deny b 8:* rwm"], null(READ), true),
        (
            &["allow a", "deny b 8:0 w", "allow b 8:0 w"],
            disk(BOTH),
            true,
        ),
        // `a` replaces all earlier rules.
        (&["allow c 1:3 rwm", "deny a"], null(READ), false),
        (&["allow a", "deny c 1:3 r", "allow a"], null(READ), true),
        // Engines write -1 for any number.
        (&["deny a", "allow c -1:3 r"], null(READ), true),
    ] {
        let table = table(rules).unwrap();
        let what = format!("{rules:?} {kind:?} {major}:{minor} {access:?}");
        assert_eq!(table.allows(kind, major, minor, access), allowed, "{what}");
    }
}

#[test]
fn a_program_decides_as_its_table() {
    let numbers = [0, 1, 3, 5, 8, 136, 200, 0x7fff_ffff, 0x8000_0000, u32::MAX];
    let tables = [
        table(&[]),
        table(&["allow a"]),
        table(&["allow c 1:3 rw", "allow c 136:* rwm", "allow b *:* m"]),
        table(&["allow c 2147483648:4294967295 r"]),
        table(&["allow a", "deny b 8:0 w", "deny c *:3 rm", "deny c 5:* rwm"]),
        DeviceTable::new(&defaults()),
    ];
    for table in tables.map(Result::unwrap) {
        let program = table.compile();
        for kind in [Block, Character] {
            for (major, minor) in numbers.iter().flat_map(|a| numbers.map(|b| (*a, b))) {
                for access in (1..8).map(DeviceAccess) {
                    let said = run(&program, kind, major, minor, access);
                    let meant = table.allows(kind, major, minor, access);
                    assert_eq!(said, meant, "{table:?} {kind:?} {major}:{minor} {access:?}");
                }
            }
        }
    }
}

#[test]
fn rules_that_no_device_cgroup_can_enforce_are_errors() {
    let error = |rules: &[&str]| table(rules).unwrap_err();
    assert_eq!(
        error(&["allow c 1:3 x"]),
        DeviceError::Access("x".to_owned())
    );
    assert!(matches!(error(&["allow c 1:3"]), DeviceError::Access(_)));
    assert_eq!(error(&["allow c -2:3 r"]), DeviceError::Number(-2));
    assert_eq!(error(&["allow u 1:3 r"]), DeviceError::Type("u".to_owned()));
    for punches in [
        &["allow c 1:* rwm", "deny c 1:3 w"][..],
        &["allow c *:3 rwm", "deny c 1:3 w"],
        &["allow c *:* rwm", "deny c 1:* w"],
        &["allow a", "deny b *:* w", "allow b 8:0 w"],
    ] {
        assert!(
            matches!(error(punches), DeviceError::Hole(_)),
            "{punches:?}"
        );
    }
    // Other accesses do not change.
    assert!(table(&["allow c *:* m", "deny c 1:3 w"]).is_ok());
}

#[test]
fn the_default_devices_are_the_specifications_and_no_disk() {
    let rules: Vec<LinuxDeviceCgroup> = [rule("deny a")].into_iter().chain(defaults()).collect();
    let table = DeviceTable::new(&rules).unwrap();
    for (major, minor) in [
        (1, 3),
        (1, 5),
        (1, 7),
        (1, 8),
        (1, 9),
        (5, 0),
        (5, 2),
        (136, 7),
    ] {
        assert!(table.allows(Character, major, minor, DeviceAccess::ALL));
    }
    for (major, minor) in [(8, 0), (254, 0), (1, 3)] {
        assert!(table.allows(Block, major, minor, MAKE));
        assert!(!table.allows(Block, major, minor, READ));
    }
    // /dev/mem
    assert!(!table.allows(Character, 1, 1, READ));
}

impl DeviceTable {
    /// Whether this access is allowed. An allowed exception must cover all of it, a denied one any part
    /// (device_cgroup.c, `match_exception` and `match_exception_partial`).
    fn allows(&self, kind: DeviceKind, major: u32, minor: u32, access: DeviceAccess) -> bool {
        let matches = |devices: &Devices, known: DeviceAccess| {
            devices.kind == kind
                && devices.major.is_none_or(|m| m == major)
                && devices.minor.is_none_or(|m| m == minor)
                && match self.otherwise {
                    DefaultAccess::Deny => access.0 & !known.0 == 0,
                    DefaultAccess::Allow => access.0 & known.0 != 0,
                }
        };
        let excepted = self.exceptions.iter().any(|(d, a)| matches(d, *a));
        excepted != (self.otherwise == DefaultAccess::Allow)
    }
}
