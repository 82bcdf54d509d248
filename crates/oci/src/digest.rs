//! Digests of content, and of what they may name.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use ring::digest::{Context, SHA256, digest};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use data_encoding::HEXLOWER;

const PREFIX: &str = "sha256:";
const BYTES: usize = 32;

/// A SHA-256 digest. Only `sha256:` and 64 lower-case hexadecimal digits can be read as one, so whatever file name is
/// made of it stays in its directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; BYTES]);

/// Some text that is not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a digest: it must be \"sha256:\" and 64 lower-case hexadecimal digits")]
pub struct InvalidDigest(String);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_ring(&digest(&SHA256, bytes))
    }

    fn from_ring(digest: &ring::digest::Digest) -> Self {
        let mut bytes = [0; BYTES];
        // SHA-256 has that many bytes.
        bytes.copy_from_slice(digest.as_ref());
        Self(bytes)
    }

    /// The hexadecimal digits alone.
    pub fn hex(&self) -> String {
        HEXLOWER.encode(&self.0)
    }
}

impl FromStr for Digest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        // A message need not repeat all of a text that may be megabytes long.
        let refused = || InvalidDigest(text.chars().take(80).collect());
        let digits = text.strip_prefix(PREFIX).filter(|digits| digits.len() == 2 * BYTES);
        let bytes = HEXLOWER.decode(digits.ok_or_else(refused)?.as_bytes()).map_err(|_| refused())?;
        bytes.try_into().map(Self).map_err(|_| refused())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Digests content that arrives in parts.
#[derive(Clone)]
pub struct Hasher(Context);

impl Default for Hasher {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

impl Hasher {
    /// Adds the next part.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all parts.
    pub fn finish(self) -> Digest {
        Digest::from_ring(&self.0.finish())
    }
}

/// Reads from another reader and digests what was read.
#[derive(Debug)]
pub struct Digesting<R> {
    inner: R,
    hasher: Hasher,
}

impl<R: Read> Digesting<R> {
    /// Digests what is read through it.
    pub fn new(inner: R) -> Self {
        Self { inner, hasher: Hasher::default() }
    }

    /// The digest of all that was read, and of what is still to be read.
    pub fn finish(self) -> io::Result<Digest> {
        Ok(self.finish_with()?.0)
    }

    /// The same, and the reader, which is at its end.
    pub fn finish_with(mut self) -> io::Result<(Digest, R)> {
        io::copy(&mut self, &mut io::sink())?;
        Ok((self.hasher.finish(), self.inner))
    }
}

impl<R: Read> Read for Digesting<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..length]);
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sha256_and_64_lower_case_digits_are_a_digest() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(empty.parse(), Ok(Digest::of(b"")));
        for text in [
            "",
            "sha256:",
            "sha256:/home",
            "sha256:../../../etc",
            "sha512:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "sha256:E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855",
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b85",
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b8555",
            "sha256:sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b78",
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b/..",
        ] {
            assert!(text.parse::<Digest>().is_err(), "{text}");
        }
    }
}
