//! A path as messages show it.

use std::fmt;
use std::path::Path;

/// A path for people: as it is where that is harmless, and otherwise in quotes with escapes, so that a name can't pass for
/// a message or drive a terminal.
#[derive(Clone, Copy, Debug)]
pub(super) struct Name<'p>(pub(super) &'p Path);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |c: char| matches!(c, '"' | '\'' | '\\') || c.escape_debug().len() == 1;
        match self.0.to_str() {
            Some(text) if !text.is_empty() && text.chars().all(plain) => f.write_str(text),
            _ => write!(f, "{:?}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn odd_names_are_quoted_and_others_are_as_they_are() {
        for (bytes, shown) in [
            (&b"/srv/my disk's.img"[..], "/srv/my disk's.img"),
            ("größe.img".as_bytes(), "größe.img"),
            (b"a\nb", r#""a\nb""#),
            (b"a\x1b[2Jb", r#""a\u{1b}[2Jb""#),
            ("a\u{202e}b".as_bytes(), r#""a\u{202e}b""#),
            (b"\xff.img", r#""\xFF.img""#),
            (b"", r#""""#),
        ] {
            assert_eq!(Name(Path::new(OsStr::from_bytes(bytes))).to_string(), shown);
        }
    }
}
