//! Static tokens, as in upstream's `--token-auth-file`. Plumb creates none: the administrator has a client certificate,
//! which expires.

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{Token, User, csv};
use crate::pki::{FileError, files};

/// A presented token is compared with every static token, so that the time reveals nothing.
const MAX_TOKENS: usize = 1_000;

/// Why a token file cannot be used. The file is unchanged, and no message contains a token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A line is invalid.
    #[error(
        "{} line {line}: {what}; each line is token,user,uid,\"group,group\"",
        path.display()
    )]
    Unfit {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// There is no such file.
    #[error("there is no token file {}", .0.display())]
    Missing(PathBuf),
}

/// Static tokens: a file with a line for each, in the format of upstream's static token file
/// (`token,user,uid,"group,group"`).
#[derive(Debug, Default)]
pub struct Tokens {
    known: Vec<(Token, Arc<User>)>,
}

impl Tokens {
    /// Reads the file.
    pub fn open(path: &Path) -> Result<Self, TokenError> {
        let bytes = files::read_private(path)?.ok_or_else(|| TokenError::Missing(path.to_owned()))?;
        Self::read(path, &String::from_utf8_lossy(&bytes))
    }

    fn read(path: &Path, text: &str) -> Result<Self, TokenError> {
        let mut known = Vec::new();
        let mut seen = HashSet::new();
        for (number, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            let unfit = |what| TokenError::Unfit { path: path.to_owned(), line: number + 1, what };
            let (token, user) = entry(line).map_err(unfit)?;
            if !seen.insert(token.reveal().to_owned()) {
                return Err(unfit("the token of an earlier line again"));
            }
            if known.len() == MAX_TOKENS {
                return Err(unfit("too many tokens"));
            }
            known.push((token, Arc::new(user)));
        }
        Ok(Self { known })
    }

    /// The user of a token.
    pub(super) fn bearer(&self, presented: &[u8]) -> Option<Arc<User>> {
        // All are compared, even after a match.
        self.known.iter().fold(None, |found, (token, user)| {
            let is = token.is(presented);
            if is { Some(Arc::clone(user)) } else { found }
        })
    }

    /// The first token of a user.
    pub fn of(&self, user: &str) -> Option<&Token> {
        self.known.iter().find(|(_, bearer)| bearer.name() == user).map(|(token, _)| token)
    }
}

fn entry(line: &str) -> Result<(Token, User), &'static str> {
    let mut fields = csv::fields(line)?.into_iter();
    let (Some(token), Some(name), Some(uid)) = (fields.next(), fields.next(), fields.next()) else {
        return Err("fewer than three fields");
    };
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a token is one word of printable characters");
    }
    if name.is_empty() {
        return Err("the user has no name");
    }
    let groups = fields.next().unwrap_or_default();
    let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty());
    Ok((Token::new(token), User::new(name, uid, groups)))
}
