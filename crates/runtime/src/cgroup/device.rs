//! Which devices the processes of a group may use.
//!
//! The rules are spelled as the devices controller of v1 takes them: `c 1:3 rwm`, with `a` for both kinds and `*` for any
//! number. Version 2 has no such file but asks an eBPF program, which is made here from the same rules.

use std::str::FromStr;

/// The access to a device, as the kernel numbers it for such programs.
const MKNOD: u8 = 1;
const READ: u8 = 2;
const WRITE: u8 = 4;
const ALL: u8 = MKNOD | READ | WRITE;
/// The kinds of devices, likewise.
const BLOCK: u8 = 1;
const CHARACTER: u8 = 2;

/// A kind of devices that may be used. `None` is any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    kind: Option<u8>,
    major: Option<u32>,
    minor: Option<u32>,
    access: u8,
}

/// That a rule is not one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NotARule;

impl FromStr for Rule {
    type Err = NotARule;

    fn from_str(text: &str) -> Result<Self, NotARule> {
        let mut words = text.split(' ');
        let (Some(kind), Some(numbers), Some(access), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return Err(NotARule);
        };
        let kind = match kind {
            "a" => None,
            "b" => Some(BLOCK),
            "c" => Some(CHARACTER),
            _ => return Err(NotARule),
        };
        let (major, minor) = numbers.split_once(':').ok_or(NotARule)?;
        // The kernel has 12 bits for the one and 20 for the other, so both fit into an instruction.
        let number = |text: &str, below: u32| match text {
            "*" => Ok(None),
            text => text.parse().ok().filter(|number| *number < below).map(Some).ok_or(NotARule),
        };
        let mut bits = 0;
        for letter in access.chars() {
            bits |= match letter {
                'm' => MKNOD,
                'r' => READ,
                'w' => WRITE,
                _ => return Err(NotARule),
            };
        }
        if bits == 0 {
            return Err(NotARule);
        }
        Ok(Self { kind, major: number(major, 1 << 12)?, minor: number(minor, 1 << 20)?, access: bits })
    }
}

/// The registers of the program, as it uses them.
const ANSWER: u8 = 0;
/// What is given: an address of three numbers, namely the access in the upper and the kind in the lower half of the
/// first, major and minor. Later on, something to compute with.
const GIVEN: u8 = 1;
const KIND: u8 = 2;
const ACCESS: u8 = 3;
const MAJOR: u8 = 4;
const MINOR: u8 = 5;

/// The instructions of `linux/bpf_common.h` and `linux/bpf.h` that are used.
const LOAD_WORD: u8 = 0x61;
const AND: u8 = 0x54;
const SHIFT_RIGHT: u8 = 0x74;
const MOVE: u8 = 0xb4;
const MOVE_REGISTER: u8 = 0xbc;
const JUMP_UNLESS_EQUAL: u8 = 0x55;
const JUMP_UNLESS_EQUAL_REGISTER: u8 = 0x5d;
const EXIT: u8 = 0x95;

/// An instruction as the kernel has it in memory: a byte of code, two registers in a byte, an offset, a number.
fn instruction(code: u8, to: u8, from: u8, offset: u8, number: u32) -> u64 {
    let registers = if cfg!(target_endian = "big") { to << 4 | from } else { from << 4 | to };
    let offset = u16::from(offset).to_ne_bytes();
    let [a, b, c, d] = number.to_ne_bytes();
    u64::from_ne_bytes([code, registers, offset[0], offset[1], a, b, c, d])
}

/// The program that lets pass what one of the rules allows: all of what is asked for at once has to be in the same rule.
pub(super) fn program(rules: &[Rule]) -> Vec<u64> {
    let mut program = vec![
        instruction(LOAD_WORD, KIND, GIVEN, 0, 0),
        instruction(MOVE_REGISTER, ACCESS, KIND, 0, 0),
        instruction(SHIFT_RIGHT, ACCESS, 0, 0, 16),
        instruction(AND, KIND, 0, 0, 0xffff),
        instruction(LOAD_WORD, MAJOR, GIVEN, 4, 0),
        instruction(LOAD_WORD, MINOR, GIVEN, 8, 0),
    ];
    for rule in rules {
        // Each is code, registers and number; those that jump do so to the next rule, which is found once the length
        // is known.
        let mut parts: Vec<(u8, u8, u8, u32)> = Vec::new();
        if let Some(kind) = rule.kind {
            parts.push((JUMP_UNLESS_EQUAL, KIND, 0, kind.into()));
        }
        if rule.access != ALL {
            parts.push((MOVE_REGISTER, GIVEN, ACCESS, 0));
            parts.push((AND, GIVEN, 0, rule.access.into()));
            parts.push((JUMP_UNLESS_EQUAL_REGISTER, GIVEN, ACCESS, 0));
        }
        if let Some(major) = rule.major {
            parts.push((JUMP_UNLESS_EQUAL, MAJOR, 0, major));
        }
        if let Some(minor) = rule.minor {
            parts.push((JUMP_UNLESS_EQUAL, MINOR, 0, minor));
        }
        parts.push((MOVE, ANSWER, 0, 1));
        parts.push((EXIT, 0, 0, 0));
        // A rule has eight instructions at most.
        let mut left = u8::try_from(parts.len()).unwrap_or(u8::MAX);
        for (code, to, from, number) in parts {
            left -= 1;
            let jumps = matches!(code, JUMP_UNLESS_EQUAL | JUMP_UNLESS_EQUAL_REGISTER);
            program.push(instruction(code, to, from, if jumps { left } else { 0 }, number));
        }
    }
    program.extend([instruction(MOVE, ANSWER, 0, 0, 0), instruction(EXIT, 0, 0, 0, 0)]);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result of the program, computed as the kernel does.
    fn run(program: &[u64], kind: u8, major: u32, minor: u32, access: u8) -> u64 {
        let given = [u32::from(access) << 16 | u32::from(kind), major, minor];
        let mut registers = [0_u64; 11];
        let mut at = 0;
        for _ in 0..1000 {
            let [code, pair, low, high, a, b, c, d] = program[at].to_ne_bytes();
            let (to, from) = (usize::from(pair & 15), usize::from(pair >> 4));
            let (offset, number) =
                (usize::from(u16::from_ne_bytes([low, high])), u32::from_ne_bytes([a, b, c, d]));
            at += 1;
            let word = |register: u64| u64::from(u32::try_from(register).unwrap());
            match code {
                LOAD_WORD => registers[to] = given[offset / 4].into(),
                MOVE => registers[to] = number.into(),
                MOVE_REGISTER => registers[to] = word(registers[from]),
                AND => registers[to] = word(registers[to]) & u64::from(number),
                SHIFT_RIGHT => registers[to] = word(registers[to]) >> number,
                JUMP_UNLESS_EQUAL if registers[to] != u64::from(number) => at += offset,
                JUMP_UNLESS_EQUAL_REGISTER if registers[to] != registers[from] => at += offset,
                JUMP_UNLESS_EQUAL | JUMP_UNLESS_EQUAL_REGISTER => {}
                EXIT => return registers[0],
                code => panic!("no such instruction: {code:#x}"),
            }
        }
        panic!("it does not end");
    }

    fn rules(texts: &[&str]) -> Vec<Rule> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn only_what_a_rule_allows_passes() {
        let usual = program(&rules(&["c *:* m", "b *:* m", "c 1:3 rwm", "c 136:* rwm", "b 8:0 r"]));
        let table = [
            (CHARACTER, 1, 3, READ, 1),
            (CHARACTER, 1, 3, READ | WRITE, 1),
            (CHARACTER, 1, 3, ALL, 1),
            (CHARACTER, 1, 11, READ, 0),
            (CHARACTER, 1, 11, MKNOD, 1),
            (CHARACTER, 1, 11, MKNOD | READ, 0),
            (CHARACTER, 136, 77, WRITE, 1),
            (CHARACTER, 137, 77, WRITE, 0),
            (BLOCK, 1, 3, READ, 0),
            (BLOCK, 1, 3, MKNOD, 1),
            (BLOCK, 8, 0, READ, 1),
            (BLOCK, 8, 0, READ | WRITE, 0),
            (BLOCK, 8, 0, READ | MKNOD, 0),
            (CHARACTER, 8, 0, READ, 0),
        ];
        for (kind, major, minor, access, answer) in table {
            assert_eq!(run(&usual, kind, major, minor, access), answer, "{kind} {major}:{minor} {access}");
        }
        assert_eq!(run(&program(&[]), CHARACTER, 1, 3, READ), 0);
        assert_eq!(run(&program(&rules(&["a *:* rwm"])), BLOCK, 1, 3, ALL), 1);
    }

    #[test]
    fn an_invalid_device_rule_is_refused() {
        for text in [
            "",
            "c",
            "c 1:3",
            "d 1:3 r",
            "c 1 r",
            "c 1:3 x",
            "c 1:x r",
            "c 4096:0 r",
            "c 1:1048576 r",
            "c 1:3 r w",
        ] {
            assert_eq!(text.parse::<Rule>(), Err(NotARule), "{text}");
        }
        let rule = Rule { kind: Some(CHARACTER), major: Some(1), minor: None, access: READ | WRITE };
        assert_eq!("c 1:* rw".parse(), Ok(rule));
    }
}
