//! The bytes of one entry of the store: a header, then the contents. However the bytes were damaged since they were
//! written, reading returns the contents stored under the key, or an error.

use crate::Key;

/// The magic number of the files of the store.
const MAGIC: [u8; 8] = *b"octants\n";
/// The version of the header and of the serialization.
pub(crate) const FORMAT: u32 = 15;

// Offsets in the header; all numbers little-endian.
const FORMAT_AT: usize = 8;
const COMPILER_AT: usize = 12;
const KEY_AT: usize = 44;
const LENGTH_AT: usize = 76;
const SUM_AT: usize = 84;
/// Size of the header.
pub(crate) const HEADER: usize = 116;

/// Why bytes are not a valid entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// Written by a version of the compiler with another format.
    OtherFormat,
    /// The bytes were changed after they were written.
    Damaged,
}

/// The bytes of an entry.
pub(crate) fn write_entry(compiler: &Key, key: &Key, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + body.len());
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&FORMAT.to_le_bytes());
    bytes.extend_from_slice(compiler.bytes());
    bytes.extend_from_slice(key.bytes());
    bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
    let sum = checksum(&bytes, body);
    bytes.extend_from_slice(&sum);
    bytes.extend_from_slice(body);
    bytes
}

/// The contents of an entry.
pub(crate) fn read_entry<'a>(key: &Key, bytes: &'a [u8]) -> Result<&'a [u8], Refused> {
    let (head, body) = check_entry(bytes)?;
    if head[KEY_AT..LENGTH_AT] != key.bytes()[..] {
        return Err(Refused::Damaged);
    }
    Ok(body)
}

/// The header without the checksum, and the body, of an intact entry.
pub(crate) fn check_entry(bytes: &[u8]) -> Result<(&[u8], &[u8]), Refused> {
    let (header, body) = bytes.split_at_checked(HEADER).ok_or(Refused::Damaged)?;
    let (head, sum) = header.split_at(SUM_AT);
    if head[..FORMAT_AT] != MAGIC {
        return Err(Refused::Damaged);
    }
    // Before the checksum, which another format may compute differently.
    if head[FORMAT_AT..COMPILER_AT] != FORMAT.to_le_bytes() {
        return Err(Refused::OtherFormat);
    }
    let whole = head[LENGTH_AT..] == (body.len() as u64).to_le_bytes() && checksum(head, body) == sum;
    if whole { Ok((head, body)) } else { Err(Refused::Damaged) }
}

/// The compiler that wrote an entry, according to its first bytes.
pub(crate) fn compiler_of(bytes: &[u8]) -> Option<&[u8]> {
    (bytes.starts_with(&MAGIC)).then_some(bytes.get(COMPILER_AT..KEY_AT)?)
}

fn checksum(head: &[u8], body: &[u8]) -> [u8; 32] {
    *blake3::Hasher::new().update(head).update(body).finalize().as_bytes()
}
