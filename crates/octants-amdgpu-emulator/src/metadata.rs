//! Kernel metadata of a code object, in MessagePack: sizes, and the hidden arguments that the launch appends.

use std::collections::HashMap;

/// A value of MessagePack, as far as metadata uses them.
#[derive(Debug, Clone)]
enum Value {
    Integer(u64),
    Text(String),
    List(Vec<Value>),
    Map(Vec<(Value, Value)>),
    Other,
}

impl Value {
    fn get(&self, key: &str) -> Option<&Value> {
        let Value::Map(entries) = self else { return None };
        entries.iter().find_map(|(k, v)| matches!(k, Value::Text(t) if t == key).then_some(v))
    }

    fn integer(&self, key: &str) -> Option<u64> {
        match self.get(key)? {
            Value::Integer(number) => Some(*number),
            _ => None,
        }
    }

    fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, bytes: usize) -> Option<&[u8]> {
        let (first, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(first)
    }

    fn number(&mut self, bytes: usize) -> Option<u64> {
        Some(self.take(bytes)?.iter().fold(0, |n, b| n << 8 | u64::from(*b)))
    }

    fn text(&mut self, bytes: u64) -> Option<Value> {
        Some(Value::Text(String::from_utf8_lossy(self.take(bytes as usize)?).into_owned()))
    }

    fn list(&mut self, count: u64) -> Option<Value> {
        (0..count).map(|_| self.value()).collect::<Option<_>>().map(Value::List)
    }

    fn map(&mut self, count: u64) -> Option<Value> {
        (0..count).map(|_| Some((self.value()?, self.value()?))).collect::<Option<_>>().map(Value::Map)
    }

    fn value(&mut self) -> Option<Value> {
        let tag = self.number(1)?;
        match tag {
            0x00..=0x7f => Some(Value::Integer(tag)),
            0x80..=0x8f => self.map(tag & 15),
            0x90..=0x9f => self.list(tag & 15),
            0xa0..=0xbf => self.text(tag & 31),
            0xc0 | 0xc2 | 0xc3 | 0xe0..=0xff => Some(Value::Other),
            0xcc..=0xcf => self.number(1 << (tag - 0xcc)).map(Value::Integer),
            0xd0..=0xd3 => self.number(1 << (tag - 0xd0)).map(|_| Value::Other),
            0xca => self.number(4).map(|_| Value::Other),
            0xcb => self.number(8).map(|_| Value::Other),
            0xd9..=0xdb => self.number(1 << (tag - 0xd9)).and_then(|n| self.text(n)),
            0xdc | 0xdd => self.number(2 << (tag - 0xdc)).and_then(|n| self.list(n)),
            0xde | 0xdf => self.number(2 << (tag - 0xde)).and_then(|n| self.map(n)),
            _ => None,
        }
    }
}

/// An argument that the launch appends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HiddenArgument {
    /// Its kind, as named in the metadata.
    pub kind: String,
    /// Where it is.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
}

/// The metadata of a kernel.
#[derive(Debug, Clone, Default)]
pub struct KernelMetadata {
    /// Bytes of the arguments that a launch passes by value.
    pub argument_bytes: usize,
    /// What the launch fills in.
    pub hidden: Vec<HiddenArgument>,
    /// Maximum number of threads of a block.
    pub most_threads: u32,
}

/// The kernels of a note's content, by name.
pub fn kernels(bytes: &[u8]) -> Option<HashMap<String, KernelMetadata>> {
    let all = Reader(bytes).value()?;
    let Value::List(kernels) = all.get("amdhsa.kernels")? else { return None };
    kernels.iter().map(|kernel| Some((kernel.text(".name")?.to_string(), describe(kernel)?))).collect()
}

fn describe(kernel: &Value) -> Option<KernelMetadata> {
    let mut found = KernelMetadata {
        most_threads: kernel.integer(".max_flat_workgroup_size")? as u32,
        ..KernelMetadata::default()
    };
    let Some(Value::List(arguments)) = kernel.get(".args") else { return Some(found) };
    for argument in arguments {
        let (offset, size) = (argument.integer(".offset")? as usize, argument.integer(".size")? as usize);
        match argument.text(".value_kind")? {
            kind if kind.starts_with("hidden_") => {
                found.hidden.push(HiddenArgument { kind: kind.into(), offset, size })
            }
            _ => found.argument_bytes = found.argument_bytes.max(offset + size),
        }
    }
    Some(found)
}
