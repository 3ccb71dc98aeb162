//! Fields of vectors, read with their type and a sentence when they have another.

use serde_json::{Map, Value};

use super::Malformed;

/// A JSON object and what it is called.
#[derive(Clone, Debug)]
pub(super) struct Object<'a> {
    fields: &'a Map<String, Value>,
    name: String,
}

impl<'a> Object<'a> {
    pub(super) fn new(value: &'a Value, name: &str) -> Result<Self, Malformed> {
        match value {
            Value::Object(fields) => Ok(Self { fields, name: name.to_owned() }),
            _ => Err(format!("{name} is not an object")),
        }
    }

    /// Refuses keys that are not in `known`.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Malformed> {
        match self.fields.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => {
                Err(format!("{} has {key}, which is not known; known are {}", self.name, known.join(", ")))
            }
            None => Ok(()),
        }
    }

    /// The field, if it is there and not null.
    pub(super) fn find(&self, key: &str) -> Option<&'a Value> {
        self.fields.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.fields.contains_key(key)
    }

    pub(super) fn field(&self, key: &str) -> Result<&'a Value, Malformed> {
        self.find(key).ok_or_else(|| format!("{} lacks {key}", self.name))
    }

    pub(super) fn object(&self, key: &str) -> Result<Self, Malformed> {
        Self::new(self.field(key)?, &self.path(key))
    }

    pub(super) fn list(&self, key: &str) -> Result<&'a [Value], Malformed> {
        match self.field(key)? {
            Value::Array(list) => Ok(list),
            _ => Err(format!("{} is not a list", self.path(key))),
        }
    }

    pub(super) fn text(&self, key: &str) -> Result<&'a str, Malformed> {
        self.field(key)?.as_str().ok_or_else(|| format!("{} is not a text", self.path(key)))
    }

    /// A number: plain, or as `"0x…"`.
    pub(super) fn number(&self, key: &str) -> Result<u64, Malformed> {
        number(self.field(key)?).ok_or_else(|| format!("{} is not a number", self.path(key)))
    }

    /// As [`number`](Self::number), for a type that may be too small for it.
    pub(super) fn small<T: TryFrom<u64>>(&self, key: &str) -> Result<T, Malformed> {
        let value = self.number(key)?;
        T::try_from(value).map_err(|_| format!("{} is {value:#x}, which is too large", self.path(key)))
    }

    /// A number of things of `size` bytes each, as many as are reasonable in a test.
    pub(super) fn count(&self, key: &str, size: usize) -> Result<usize, Malformed> {
        const BYTES: usize = 1 << 28;
        let count: usize = self.small(key)?;
        match count.checked_mul(size) {
            Some(bytes) if bytes <= BYTES => Ok(count),
            _ => Err(self.refuse(key, &format!("is {count}, times {size} bytes: too many for a test"))),
        }
    }

    /// As [`small`](Self::small); zero when absent.
    pub(super) fn small_or_zero<T: TryFrom<u64> + Default>(&self, key: &str) -> Result<T, Malformed> {
        if self.find(key).is_some() { self.small(key) } else { Ok(T::default()) }
    }

    /// A flag: 0, 1, true or false.
    pub(super) fn flag(&self, key: &str) -> Result<bool, Malformed> {
        match self.field(key)? {
            Value::Bool(flag) => Ok(*flag),
            value => match number(value) {
                Some(0) => Ok(false),
                Some(1) => Ok(true),
                _ => Err(format!("{} is neither 0 nor 1", self.path(key))),
            },
        }
    }

    pub(super) fn hex(&self, key: &str) -> Result<Vec<u8>, Malformed> {
        hex(self.text(key)?).ok_or_else(|| format!("{} is not pairs of hexadecimal digits", self.path(key)))
    }

    /// As [`hex`](Self::hex), for exactly `N` bytes.
    pub(super) fn bytes<const N: usize>(&self, key: &str) -> Result<[u8; N], Malformed> {
        let bytes = self.hex(key)?;
        let length = bytes.len();
        bytes.try_into().map_err(|_| format!("{} has {length} bytes, not {N}", self.path(key)))
    }

    /// What `table` has for the text of a field.
    pub(super) fn one_of<T: Copy>(&self, key: &str, table: &[(&str, T)]) -> Result<T, Malformed> {
        let text = self.text(key)?;
        let found = table.iter().find(|(name, _)| *name == text);
        found.map(|(_, value)| *value).ok_or_else(|| {
            let known: Vec<_> = table.iter().map(|(name, _)| *name).collect();
            format!("{} is {text:?}, which is none of {}", self.path(key), known.join(", "))
        })
    }

    /// What is wrong with a field's value.
    pub(super) fn refuse(&self, key: &str, why: &str) -> Malformed {
        format!("{} {why}", self.path(key))
    }

    fn path(&self, key: &str) -> String {
        if self.name.starts_with("the ") { key.to_owned() } else { format!("{}.{key}", self.name) }
    }
}

pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => u64::from_str_radix(text.strip_prefix("0x")?, 16).ok(),
        other => other.as_u64(),
    }
}

pub(super) fn hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    digits.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect()
}
