//! The lexer.

use crate::error::Issue;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    Ident(String),
    Int(String),
    Uint(String),
    Double(String),
    Text(String),
    Bytes(Vec<u8>),
    /// An operator, a bracket or a comma.
    Sign(&'static str),
    End,
}

impl Token {
    /// The token as error messages display it.
    pub(crate) fn display(&self) -> String {
        match self {
            Self::Ident(text) | Self::Int(text) | Self::Double(text) => text.clone(),
            Self::Uint(text) => format!("{text}u"),
            Self::Text(text) => format!("'{text}'"),
            Self::Bytes(bytes) => format!("b'{}'", String::from_utf8_lossy(bytes)),
            Self::Sign(sign) => (*sign).to_owned(),
            Self::End => "<EOF>".to_owned(),
        }
    }
}

/// Operators and punctuation. Longer ones come first, since the first match is taken.
const SIGNS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")",
    "[", "]", "{", "}",
];

struct Lexer {
    chars: Vec<char>,
    at: usize,
}

/// All tokens with their positions, including the end.
pub(crate) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, Issue> {
    let mut lexer = Lexer { chars: text.chars().collect(), at: 0 };
    let mut found = Vec::new();
    loop {
        lexer.skip_whitespace();
        let at = lexer.at;
        let token = lexer.next()?;
        let end = token == Token::End;
        found.push((at, token));
        if end {
            return Ok(found);
        }
    }
}

impl Lexer {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    /// Skips whitespace and comments.
    fn skip_whitespace(&mut self) {
        while let Some(letter) = self.peek(0) {
            if letter == '/' && self.peek(1) == Some('/') {
                while self.peek(0).is_some_and(|letter| letter != '\n') {
                    self.at += 1;
                }
            } else if matches!(letter, ' ' | '\t' | '\n' | '\r' | '\u{c}') {
                self.at += 1;
            } else {
                return;
            }
        }
    }

    fn next(&mut self) -> Result<Token, Issue> {
        let Some(first) = self.peek(0) else { return Ok(Token::End) };
        if let Some(quoted) = self.quoted() {
            return quoted;
        }
        if first.is_ascii_digit() || (first == '.' && self.peek(1).is_some_and(|c| c.is_ascii_digit())) {
            return Ok(self.number());
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let begin = self.at;
            while self.peek(0).is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
                self.at += 1;
            }
            return Ok(Token::Ident(self.chars[begin..self.at].iter().collect()));
        }
        for sign in SIGNS {
            if sign.chars().enumerate().all(|(i, c)| self.peek(i) == Some(c)) {
                self.at += sign.len();
                return Ok(Token::Sign(sign));
            }
        }
        Err(self.issue(self.at, format!("Syntax error: token recognition error at: '{first}'")))
    }

    fn issue(&self, at: usize, message: impl Into<String>) -> Issue {
        Issue { at: at.min(self.chars.len()), message: message.into() }
    }

    fn number(&mut self) -> Token {
        let begin = self.at;
        if self.peek(0) == Some('0') && matches!(self.peek(1), Some('x' | 'X')) {
            self.at += 2;
            while self.peek(0).is_some_and(|c| c.is_ascii_hexdigit()) {
                self.at += 1;
            }
        } else {
            let mut double = false;
            let digits = |lexer: &mut Self| {
                while lexer.peek(0).is_some_and(|c| c.is_ascii_digit()) {
                    lexer.at += 1;
                }
            };
            digits(self);
            if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
                double = true;
                self.at += 1;
                digits(self);
            }
            let signed = usize::from(matches!(self.peek(1), Some('+' | '-')));
            if matches!(self.peek(0), Some('e' | 'E'))
                && self.peek(1 + signed).is_some_and(|c| c.is_ascii_digit())
            {
                double = true;
                self.at += 1 + signed;
                digits(self);
            }
            if double {
                return Token::Double(self.chars[begin..self.at].iter().collect());
            }
        }
        let text: String = self.chars[begin..self.at].iter().collect();
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.at += 1;
            return Token::Uint(text);
        }
        Token::Int(text)
    }

    /// Reads a quoted literal with the prefixes `r` and `b` in any order; `None` if no literal begins here.
    fn quoted(&mut self) -> Option<Result<Token, Issue>> {
        let mut ahead = 0;
        let mut raw = false;
        let mut bytes = false;
        loop {
            match self.peek(ahead)? {
                'r' | 'R' if !raw => raw = true,
                'b' | 'B' if !bytes => bytes = true,
                '"' | '\'' => break,
                _ => return None,
            }
            ahead += 1;
        }
        let begin = self.at;
        self.at += ahead;
        let quote = self.peek(0)?;
        let long = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        self.at += if long { 3 } else { 1 };
        let mut out = Quoted { bytes, text: String::new(), octets: Vec::new() };
        loop {
            let Some(letter) = self.peek(0) else {
                return Some(Err(self.issue(begin, "Syntax error: token recognition error at end of text")));
            };
            let closes =
                letter == quote && (!long || (self.peek(1) == Some(quote) && self.peek(2) == Some(quote)));
            if closes {
                self.at += if long { 3 } else { 1 };
                return Some(Ok(if bytes { Token::Bytes(out.octets) } else { Token::Text(out.text) }));
            }
            if !long && matches!(letter, '\n' | '\r') {
                let text: String = self.chars[begin..self.at].iter().collect();
                let message = format!("Syntax error: token recognition error at: '{text}'");
                return Some(Err(self.issue(begin, message)));
            }
            self.at += 1;
            if letter == '\\' && !raw {
                if let Err(why) = self.escape(&mut out) {
                    return Some(Err(self.issue(begin, why)));
                }
            } else {
                out.push(letter);
            }
        }
    }

    fn escape(&mut self, out: &mut Quoted) -> Result<(), String> {
        let letter = self.peek(0).ok_or("unable to unescape string")?;
        self.at += 1;
        let plain = match letter {
            'a' => '\x07',
            'b' => '\x08',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            '\\' | '\'' | '"' | '`' | '?' => letter,
            'x' | 'X' => return self.code(2, 16, out, true),
            'u' => return self.code(4, 16, out, false),
            'U' => return self.code(8, 16, out, false),
            '0'..='3' => {
                self.at -= 1;
                return self.code(3, 8, out, true);
            }
            _ => return Err("unable to unescape string".to_owned()),
        };
        out.push(plain);
        Ok(())
    }

    fn code(&mut self, length: usize, radix: u32, out: &mut Quoted, octet: bool) -> Result<(), String> {
        let mut number = 0_u32;
        for _ in 0..length {
            let digit = self.peek(0).and_then(|c| c.to_digit(radix)).ok_or("unable to unescape string")?;
            number = number.saturating_mul(radix).saturating_add(digit);
            self.at += 1;
        }
        match (octet && out.bytes, u8::try_from(number)) {
            (true, Ok(byte)) => out.octets.push(byte),
            _ => out.push(char::from_u32(number).ok_or("invalid unicode code point")?),
        }
        Ok(())
    }
}

/// The content of a quoted literal.
struct Quoted {
    bytes: bool,
    text: String,
    octets: Vec<u8>,
}

impl Quoted {
    fn push(&mut self, letter: char) {
        if self.bytes {
            self.octets.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
        } else {
            self.text.push(letter);
        }
    }
}
