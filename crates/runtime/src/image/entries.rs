//! The entries of a tar file, read with a bound on all that is held in memory.
//!
//! The `tar` crate reads long names and pax records of any size into memory, and follows GNU's sparse maps. Here both
//! are bounded or refused, as is everything that two readers could understand differently.

use std::io::{self, BufReader, Read, Seek};

use tar::{EntryType, Header};

const BLOCK: usize = 512;
/// Long names and pax records of one entry together.
const LARGEST_METADATA: u64 = 1 << 20;
/// As long as the kernel takes a path.
pub(super) const LONGEST_PATH: usize = 4095;

/// Why an entry is refused.
pub(super) fn refused(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// Something to read that can go forward faster than by reading.
pub(super) trait Source: Read {
    /// Goes forward by this many bytes, which may be past the end.
    fn skip(&mut self, bytes: u64) -> io::Result<()>;
}

/// A source that can only be read.
pub(super) struct Stream<R>(pub(super) R);

impl<R: Read> Read for Stream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl<R: Read> Source for Stream<R> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut (&mut self.0).take(bytes), &mut io::sink())?;
        if skipped == bytes { Ok(()) } else { Err(truncated()) }
    }
}

impl<R: Read + Seek> Source for BufReader<R> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let bytes = i64::try_from(bytes).map_err(|_| refused("an entry of an impossible size"))?;
        self.seek_relative(bytes)
    }
}

fn truncated() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the tar file ends within an entry")
}

/// The header of an entry of a tar file.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) kind: EntryType,
    pub(super) name: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) size: u64,
    /// The offset of its data in the tar file.
    pub(super) position: u64,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) mode: u32,
    pub(super) mtime: i64,
    /// Extended attributes.
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Reads a tar file entry by entry.
pub(super) struct Entries<S> {
    from: S,
    position: u64,
    /// The unread bytes of the current entry's data.
    data: u64,
    padding: u64,
}

impl<S: Source> Entries<S> {
    pub(super) fn new(from: S) -> Self {
        Self { from, position: 0, data: 0, padding: 0 }
    }

    /// The next entry; its data can then be read. `None` at the end of the tar file.
    pub(super) fn next(&mut self) -> io::Result<Option<Entry>> {
        let mut extensions = Extensions::default();
        let mut metadata = 0;
        loop {
            let rest = self.data.saturating_add(self.padding);
            if rest > 0 {
                self.from.skip(rest)?;
                self.position = self.position.checked_add(rest).ok_or_else(truncated)?;
            }
            (self.data, self.padding) = (0, 0);
            let Some(header) = self.header()? else {
                if extensions.is_empty() {
                    return Ok(None);
                }
                return Err(refused("it ends with a long name or pax records of no entry"));
            };
            let kind = header.entry_type();
            let is_extension = matches!(
                kind,
                EntryType::GNULongName
                    | EntryType::GNULongLink
                    | EntryType::XHeader
                    | EntryType::XGlobalHeader
            );
            let size = match extensions.pax(b"size") {
                Some(size) if !is_extension => number(size, "size")?,
                _ => size_of(&header)?,
            };
            self.data = size;
            self.padding = size.wrapping_neg() % BLOCK as u64;
            if self.position.checked_add(size).and_then(|end| end.checked_add(BLOCK as u64)).is_none() {
                return Err(refused(format!("an entry of {size} bytes")));
            }
            if !is_extension {
                return extensions.entry(&header, size, self.position).map(Some);
            }
            metadata += size;
            if metadata > LARGEST_METADATA {
                return Err(refused(format!("names and pax records of {metadata} bytes for one entry")));
            }
            let mut text = Vec::new();
            self.read_to_end(&mut text)?;
            if text.len() as u64 != size {
                return Err(truncated());
            }
            extensions.add(kind, text)?;
        }
    }

    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut header = Header::new_old();
        let bytes = header.as_mut_bytes();
        let mut seen = 0;
        while seen < BLOCK {
            match self.from.read(&mut bytes[seen..])? {
                0 if seen == 0 => return Ok(None),
                0 => return Err(truncated()),
                more => seen += more,
            }
        }
        self.position += BLOCK as u64;
        if bytes.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let sum = bytes.iter().enumerate().fold(0, |sum: u32, (at, byte)| {
            // The checksum itself counts as spaces.
            sum + u32::from(if (148..156).contains(&at) { b' ' } else { *byte })
        });
        if header.cksum().ok() != Some(sum) {
            return Err(refused("it is not a tar file, or a header in it is damaged: wrong checksum"));
        }
        Ok(Some(header))
    }
}

/// The data of the current entry.
impl<S: Source> Read for Entries<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.data).unwrap_or(usize::MAX).min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        match self.from.read(&mut buffer[..most])? {
            0 => Err(truncated()),
            length => {
                self.data -= length as u64;
                self.position += length as u64;
                Ok(length)
            }
        }
    }
}

/// A size as the header has it: octal, or binary with a sign.
fn size_of(header: &Header) -> io::Result<u64> {
    let field = header.as_old().size;
    let negative = field[0] & 0xc0 == 0xc0;
    let beyond = field[0] & 0x80 != 0 && (field[0] & 0x3f != 0 || field[1..4].iter().any(|byte| *byte != 0));
    if negative || beyond {
        return Err(refused("an entry with a negative or impossible size"));
    }
    header.entry_size().map_err(|_| refused("an entry whose size is not a number"))
}

fn number(text: &[u8], what: &str) -> io::Result<u64> {
    let digits = str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = digits.and_then(|digits| digits.parse().ok());
    number.ok_or_else(|| refused(format!("pax records with a {what} that is not a number")))
}

/// The extended headers before an entry.
#[derive(Default)]
struct Extensions {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    pax: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl Extensions {
    fn is_empty(&self) -> bool {
        self.name.is_none() && self.link.is_none() && self.pax.is_none()
    }

    fn add(&mut self, kind: EntryType, mut text: Vec<u8>) -> io::Result<()> {
        let twice = match kind {
            // A global header is about all entries. What is known to write it puts a comment in; nothing of it applies.
            EntryType::XGlobalHeader => false,
            EntryType::XHeader => self.pax.replace(pax_records(&text)?).is_some(),
            _ => {
                let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
                text.truncate(end);
                let field = if kind == EntryType::GNULongName { &mut self.name } else { &mut self.link };
                field.replace(text).is_some()
            }
        };
        if twice { Err(refused("an entry with two long names or two sets of pax records")) } else { Ok(()) }
    }

    fn pax(&self, key: &[u8]) -> Option<&[u8]> {
        // Of a repeated key the last value counts.
        let found = self.pax.iter().flatten().rev().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_slice()).filter(|value| !value.is_empty())
    }

    fn entry(&self, header: &Header, size: u64, position: u64) -> io::Result<Entry> {
        let mut kind = header.entry_type();
        let sparse = self.pax.iter().flatten().any(|(name, _)| name.starts_with(b"GNU.sparse."));
        if sparse || kind == EntryType::GNUSparse {
            return Err(refused("a sparse file; write the layer without `--sparse`"));
        }
        let path = |long: &Option<Vec<u8>>, pax: Option<&[u8]>, short: Vec<u8>| match (long, pax) {
            (Some(long), Some(pax)) if long != pax => Err(refused("an entry with two names")),
            (Some(long), _) => Ok(long.clone()),
            (None, Some(pax)) => Ok(pax.to_vec()),
            (None, None) => Ok(short),
        };
        let name = path(&self.name, self.pax(b"path"), header.path_bytes().into_owned())?;
        let short = header.link_name_bytes().unwrap_or_default().into_owned();
        let link = path(&self.link, self.pax(b"linkpath"), short)?;
        for path in [&name, &link] {
            if path.len() > LONGEST_PATH {
                return Err(refused(format!("a path of {} bytes", path.len())));
            }
            if path.contains(&0) {
                return Err(refused("a path with a zero byte in it"));
            }
        }
        if kind == EntryType::Regular && name.ends_with(b"/") {
            // As the oldest tar files have directories.
            kind = EntryType::Directory;
        }
        let has_data = matches!(kind, EntryType::Regular | EntryType::Continuous);
        if size > 0 && !has_data {
            return Err(refused("an entry with data that is not a file"));
        }
        // Some tools leave out numbers that they don't care about.
        let id = |key: &[u8], field: io::Result<u64>| match self.pax(key) {
            Some(id) => number(id, "user or group"),
            None => Ok(field.unwrap_or(0)),
        };
        let xattrs =
            self.pax.iter().flatten().filter_map(|(name, value)| {
                Some((name.strip_prefix(b"SCHILY.xattr.")?.to_vec(), value.clone()))
            });
        Ok(Entry {
            kind,
            name,
            link,
            size,
            position,
            uid: id(b"uid", header.uid())?,
            gid: id(b"gid", header.gid())?,
            mode: header.mode().unwrap_or(0o644) & 0o7777,
            mtime: header.mtime().ok().and_then(|mtime| i64::try_from(mtime).ok()).unwrap_or(0),
            xattrs: xattrs.collect(),
        })
    }
}

/// Records of the form `LENGTH KEY=VALUE\n`; a value may have any bytes.
fn pax_records(mut text: &[u8]) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let malformed = || refused("malformed pax records");
    let mut records = Vec::new();
    while !text.is_empty() {
        let space = text.iter().position(|byte| *byte == b' ').ok_or_else(malformed)?;
        let length = usize::try_from(number(&text[..space], "length")?).map_err(|_| malformed())?;
        let record = text.get(space + 1..length).and_then(|record| record.strip_suffix(b"\n"));
        let record = record.ok_or_else(malformed)?;
        let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(malformed)?;
        records.push((record[..equals].to_vec(), record[equals + 1..].to_vec()));
        text = &text[length..];
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(kind: u8, name: &[u8], size: u64, data: &[u8]) -> Vec<u8> {
        let mut header = Header::new_ustar();
        header.as_old_mut().name[..name.len()].copy_from_slice(name);
        header.set_entry_type(EntryType::new(kind));
        header.set_size(size);
        header.set_cksum();
        let mut bytes = header.as_bytes().to_vec();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(BLOCK), 0);
        bytes
    }

    fn record(key: &str, value: &[u8]) -> Vec<u8> {
        let rest = [b" ", key.as_bytes(), b"=", value, b"\n"].concat();
        let mut length = rest.len() + 1;
        while length != rest.len() + length.to_string().len() {
            length += 1;
        }
        [length.to_string().as_bytes(), &rest].concat()
    }

    fn all(bytes: &[u8]) -> io::Result<Vec<(Entry, Vec<u8>)>> {
        let mut entries = Entries::new(Stream(bytes));
        let mut found = Vec::new();
        while let Some(entry) = entries.next()? {
            let mut data = Vec::new();
            entries.read_to_end(&mut data)?;
            found.push((entry, data));
        }
        Ok(found)
    }

    #[test]
    fn long_names_and_pax_records_belong_to_the_entry_that_follows() {
        let long = "d/".repeat(150) + "f";
        let pax =
            [record("path", long.as_bytes()), record("SCHILY.xattr.user.a", b"b\n=c"), record("uid", b"77")];
        let pax = pax.concat();
        let bytes = [
            block(b'g', b"pax_global_header", 3, b"abc"),
            block(b'x', b"pax", pax.len() as u64, &pax),
            block(b'0', b"short", 4, b"data"),
            block(b'L', b"././@LongLink", long.len() as u64 + 1, format!("{long}\0").as_bytes()),
            block(b'5', b"short", 0, b""),
            vec![0; 2 * BLOCK],
        ];
        let found = all(&bytes.concat()).unwrap();
        let names: Vec<_> = found.iter().map(|(entry, data)| (entry.name.clone(), data.clone())).collect();
        assert_eq!(names, [(long.clone().into_bytes(), b"data".to_vec()), (long.into_bytes(), vec![])]);
        assert_eq!(found[0].0.xattrs, [(b"user.a".to_vec(), b"b\n=c".to_vec())]);
        assert_eq!((found[0].0.uid, found[1].0.uid), (77, 0));
    }

    #[test]
    fn ambiguous_tar_entries_are_refused() {
        let entry = |kind, name: &[u8], size, data: &[u8]| block(kind, name, size, data);
        let pax = |records: &[Vec<u8>]| {
            let text = records.concat();
            [block(b'x', b"pax", text.len() as u64, &text), block(b'0', b"f", 0, b"")].concat()
        };
        let mut negative = Header::new_ustar();
        negative.as_old_mut().size = [0xff; 12];
        negative.set_cksum();
        let mut huge = Header::new_ustar();
        huge.as_old_mut().size = [0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        huge.set_cksum();
        let attempts: Vec<(&str, Vec<u8>)> = vec![
            ("negative size", negative.as_bytes().to_vec()),
            ("impossible size", huge.as_bytes().to_vec()),
            ("size without data", entry(b'0', b"f", 1 << 40, b"")),
            ("largest size", entry(b'0', b"f", u64::MAX, b"")),
            ("a directory with data", entry(b'5', b"d", 3, b"abc")),
            ("a link with data", entry(b'1', b"l", 3, b"abc")),
            ("an old sparse file", entry(b'S', b"f", 0, b"")),
            ("a pax sparse file", pax(&[record("GNU.sparse.major", b"1")])),
            ("a pax size that is none", pax(&[record("size", b"-1")])),
            ("a pax size beyond the data", pax(&[record("size", b"99999999999999999999")])),
            ("a pax path with a zero byte", pax(&[record("path", b"a\0b")])),
            ("pax records that are none", pax(&[b"9 nonsense".to_vec()])),
            ("a pax record longer than all", pax(&[b"99 a=b\n".to_vec()])),
            ("a path that is too long", pax(&[record("path", &[b'a'; 5000])])),
            (
                "two long names",
                [block(b'L', b"", 1, b"a"), block(b'L', b"", 1, b"b"), block(b'0', b"", 0, b"")].concat(),
            ),
            ("a long name of nothing", block(b'L', b"", 1, b"a")),
            ("half a header", vec![1; 100]),
            ("noise", vec![7; 1024]),
        ];
        for (what, bytes) in attempts {
            assert!(all(&bytes).is_err(), "{what}");
        }
    }

    #[test]
    fn metadata_is_bounded_before_it_is_read() {
        // A name without end: only a bound ends this.
        let bytes = block(b'L', b"././@LongLink", 1 << 40, b"");
        let endless = (&bytes[..]).chain(io::repeat(b'a'));
        let error = Entries::new(Stream(endless)).next().unwrap_err();
        assert!(error.to_string().contains("names and pax records"), "{error}");
    }
}
