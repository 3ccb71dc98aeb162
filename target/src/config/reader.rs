//! Reads a TOML document key by key, remembering where each value stood; reports wrong types, values out of range and
//! keys that nobody asked for. Knows TOML, but none of our keys.

use std::fmt::Display;
use std::ops::RangeInclusive;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use super::error::Diagnostics;
use super::size;

/// A value with its place.
#[derive(Clone, Debug)]
pub(super) struct Field<'d, T> {
    pub(super) value: T,
    at: usize,
    path: String,
    diagnostics: &'d Diagnostics,
}

impl<'d, T> Field<'d, T> {
    /// Notes that this value is wrong.
    pub(super) fn report(&self, message: impl Into<String>) {
        self.diagnostics.report(self.at, self.path.clone(), message);
    }

    /// A list in this place, unless one of its elements was wrong; looks at all of them.
    fn with<U>(&self, elements: impl Iterator<Item = Option<U>>) -> Option<Field<'d, Vec<U>>> {
        let looked_at: Vec<Option<U>> = elements.collect();
        let value = looked_at.into_iter().collect::<Option<Vec<U>>>()?;
        Some(Field { value, at: self.at, path: self.path.clone(), diagnostics: self.diagnostics })
    }

    /// Converts the value, or notes why it can't be.
    pub(super) fn parse<U, E: Display>(
        self,
        convert: impl FnOnce(T) -> Result<U, E>,
    ) -> Option<Field<'d, U>> {
        let Self { value, at, path, diagnostics } = self;
        match convert(value) {
            Ok(value) => Some(Field { value, at, path, diagnostics }),
            Err(why) => {
                diagnostics.report(at, path, why.to_string());
                None
            }
        }
    }
}

/// One table of the document. Each key is asked for once; [`Section::finish`] refuses the others.
#[derive(Debug)]
pub(super) struct Section<'d, 'i> {
    table: &'d DeTable<'i>,
    at: usize,
    path: String,
    known: Vec<&'static str>,
    diagnostics: &'d Diagnostics,
}

impl<'d, 'i> Section<'d, 'i> {
    /// The whole document.
    pub(super) fn root(table: &'d DeTable<'i>, diagnostics: &'d Diagnostics) -> Self {
        Self::new(table, 0, String::new(), diagnostics)
    }

    fn new(table: &'d DeTable<'i>, at: usize, path: String, diagnostics: &'d Diagnostics) -> Self {
        Self { table, at, path, known: Vec::new(), diagnostics }
    }

    /// A string.
    pub(super) fn string(&mut self, key: &'static str) -> Option<Field<'d, &'d str>> {
        let field = self.value(key)?;
        typed(field, "a string", DeValue::as_str)
    }

    /// `true` or `false`.
    pub(super) fn boolean(&mut self, key: &'static str) -> Option<Field<'d, bool>> {
        let field = self.value(key)?;
        typed(field, "true or false", DeValue::as_bool)
    }

    /// An integer within a range.
    pub(super) fn integer(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Option<Field<'d, u64>> {
        let field = self.value(key)?;
        in_range(field, &range)
    }

    /// A number of bytes.
    pub(super) fn size(&mut self, key: &'static str) -> Option<Field<'d, u64>> {
        let field = self.value(key)?;
        match field.value {
            DeValue::Integer(_) => in_range(field, &(1..=size::MAX)),
            _ => typed(field, size::ALLOWED, DeValue::as_str)?.parse(size::parse),
        }
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let field = self.string(key)?.parse(|word| {
            words.iter().find(|(name, _)| *name == word).map(|(_, value)| *value).ok_or_else(|| {
                let allowed = words.iter().map(|(name, _)| format!("{name:?}")).collect::<Vec<_>>();
                format!("{word:?} is none of {}", allowed.join(", "))
            })
        })?;
        Some(field.value)
    }

    /// A list of strings; elements of another type are noted.
    pub(super) fn strings(&mut self, key: &'static str) -> Option<Field<'d, Vec<Field<'d, &'d str>>>> {
        let list = self.value(key)?;
        let list = typed(list, "a list of strings", DeValue::as_array)?;
        list.with(elements(&list).map(|element| typed(element, "a string", DeValue::as_str)))
    }

    /// An integer, or a list of integers of another range; wrong elements are noted.
    pub(super) fn integer_or_list(
        &mut self,
        key: &'static str,
        one: &RangeInclusive<u64>,
        each: &RangeInclusive<u64>,
    ) -> Option<OneOrList<'d>> {
        let field = self.value(key)?;
        if matches!(field.value, DeValue::Integer(_)) {
            return Some(OneOrList::One(in_range(field, one)?));
        }
        let list = typed(field, "an integer or a list of integers", DeValue::as_array)?;
        list.with(elements(&list).map(|element| in_range(element, each))).map(OneOrList::List)
    }

    /// A table.
    pub(super) fn section(&mut self, key: &'static str) -> Option<Self> {
        let field = self.value(key)?;
        let table = typed(field, "a table", DeValue::as_table)?;
        Some(Self::new(table.value, table.at, table.path, table.diagnostics))
    }

    /// A list of tables, as `[[key]]` makes one.
    pub(super) fn sections(&mut self, key: &'static str) -> Vec<Self> {
        let what = format!("a list of tables, written [[{}]]", join(&self.path, key));
        let Some(list) = self.value(key).and_then(|field| typed(field, &what, DeValue::as_array)) else {
            return Vec::new();
        };
        elements(&list)
            .filter_map(|element| typed(element, "a table", DeValue::as_table))
            .map(|table| Self::new(table.value, table.at, table.path, table.diagnostics))
            .collect()
    }

    /// Any value of a key whose feature is not there yet: refused with what it would be.
    pub(super) fn not_yet(&mut self, key: &'static str, what: &str) {
        if let Some(field) = self.value(key) {
            field.report(format!("not supported yet: {what}"));
        }
    }

    /// Notes that `key` is missing, unless it is there but wrong (which was noted already).
    pub(super) fn require<T>(&self, value: Option<T>, key: &'static str, example: &str) -> Option<T> {
        if value.is_none() && !self.has(key) {
            self.report(format!("`{key}` is missing, such as {example}"));
        }
        value
    }

    /// Whether the key is there, whatever its value.
    pub(super) fn has(&self, key: &str) -> bool {
        self.table.keys().any(|name| name.get_ref() == key)
    }

    /// Whether the table has no key at all but these.
    pub(super) fn has_only(&self, keys: &[&str]) -> bool {
        self.table.keys().all(|name| keys.contains(&name.get_ref().as_ref()))
    }

    /// Notes that the table as a whole is wrong.
    pub(super) fn report(&self, message: impl Into<String>) {
        self.diagnostics.report(self.at, self.path.clone(), message);
    }

    /// Notes that the value of a key, which was right by itself, is wrong.
    pub(super) fn report_key(&self, key: &str, message: impl Into<String>) {
        if let Some(value) = self.again(key) {
            value.report(message);
        }
    }

    /// Refuses every key that was not asked for, naming the nearest one that was.
    pub(super) fn finish(self) {
        for name in self.table.keys() {
            let key = name.get_ref().as_ref();
            if self.known.contains(&key) {
                continue;
            }
            let allowed = self.known.join(", ");
            let message = match nearest(key, &self.known) {
                Some(near) => format!("unknown key; did you mean `{near}`? Allowed: {allowed}"),
                None => format!("unknown key; allowed: {allowed}"),
            };
            self.diagnostics.report(name.span().start, join(&self.path, key), message);
        }
    }

    fn value(&mut self, key: &'static str) -> Option<Field<'d, &'d DeValue<'i>>> {
        self.known.push(key);
        self.again(key)
    }

    fn again(&self, key: &str) -> Option<Field<'d, &'d DeValue<'i>>> {
        let (_, value) = self.table.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(Field {
            value: value.get_ref(),
            at: value.span().start,
            path: join(&self.path, key),
            diagnostics: self.diagnostics,
        })
    }
}

/// An integer or a list of them.
#[derive(Debug)]
pub(super) enum OneOrList<'d> {
    One(Field<'d, u64>),
    List(Field<'d, Vec<Field<'d, u64>>>),
}

fn typed<'d, 'i, T>(
    field: Field<'d, &'d DeValue<'i>>,
    expected: &str,
    convert: impl FnOnce(&'d DeValue<'i>) -> Option<T>,
) -> Option<Field<'d, T>> {
    field.parse(|value| {
        convert(value).ok_or_else(|| format!("must be {expected}, and is {}", describe(value)))
    })
}

fn in_range<'d>(field: Field<'d, &'d DeValue<'_>>, range: &RangeInclusive<u64>) -> Option<Field<'d, u64>> {
    let (low, high) = (range.start(), range.end());
    let number = typed(field, &format!("an integer from {low} to {high}"), DeValue::as_integer)?;
    number.parse(|number: &DeInteger<'_>| {
        u64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .filter(|n| range.contains(n))
            .ok_or_else(|| format!("must be from {low} to {high}, and is {number}"))
    })
}

fn elements<'d, 'i>(
    list: &Field<'d, &'d toml::de::DeArray<'i>>,
) -> impl Iterator<Item = Field<'d, &'d DeValue<'i>>> {
    let (path, diagnostics) = (list.path.clone(), list.diagnostics);
    list.value.iter().enumerate().map(move |(i, element): (usize, &'d Spanned<DeValue<'i>>)| Field {
        value: element.get_ref(),
        at: element.span().start,
        path: format!("{path}[{i}]"),
        diagnostics,
    })
}

/// `path.key`, with the key quoted where TOML would quote it.
fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let key = if bare { key.to_owned() } else { format!("{key:?}") };
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

fn describe(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date or time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The known key that somebody who typed `key` most likely meant.
fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    known
        .iter()
        .map(|name| (strsim::jaro_winkler(key, name), *name))
        .filter(|(likeness, _)| *likeness > 0.75)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, name)| name)
}
